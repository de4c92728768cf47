"""Batch compilation: several C texts in one compiler run.

Starting, headers and linking take most of a small text's time. Each text is included after definitions that give its file-scope
names a suffix of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ...codegen.text.source import Source, labelled
from ..api.outcome import Failure
from .compiler import Compiler, Library, build_files, library_path


def build_together(
    compiler: Compiler,
    sources: Sequence[Source],
    folder: Path,
    timeout_s: float,
    labels: Sequence[str] = (),
) -> Library | Failure:
    """Builds one library from sources with equal flags.

    Each source has its entry there under `entry_of` with its label, or its number. The deadline is `timeout_s` times their
    number.
    """
    flags = sources[0].flags
    named = zip(sources, labels or map(str, range(len(sources))), strict=True)
    lines = [line for s, label in named for line in _included(s, label)]
    whole = "\n".join(lines) + "\n"
    target = library_path(folder, compiler, flags, whole, *(s.text for s in sources))
    files = {f"{target.stem}.c": whole} | {_file(s): s.text for s in sources}
    return build_files(compiler, files, flags, target, timeout_s * len(sources))


def entry_of(source: Source, label: int | str) -> str:
    return labelled(source.entry, label)


def _included(source: Source, label: str) -> Iterator[str]:
    yield from (f"#define {name} {labelled(name, label)}" for name in source.names)
    yield f'#include "{_file(source)}"'
    yield from (f"#undef {name}" for name in source.names)


def _file(source: Source) -> str:
    return f"{source.key}.c"
