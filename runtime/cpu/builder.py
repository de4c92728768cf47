"""Builder for the CPU: compiles generated sources, one or several per compiler run, and the C files of this folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...codegen.text.source import UNIT_ENTRY
from ..api.artifact import Artifact
from ..api.backend import AbstractBuilder
from ..api.errors import DeviceError
from ..api.outcome import Failure
from ..device import DeviceOptions
from ..host import cpu_key
from ..library import load_library
from .compiler import Compiler, build_library, end_compilers, find_compiler
from .dialect import C_TEAM, TEAM_FILES
from .together import build_together, entry_of
from .unit_cache import UnitCache

if TYPE_CHECKING:
    from ...codegen.bodies.index_checks import IndexChecks
    from ...codegen.text.dialect import Dialect
    from ...codegen.text.source import Source
    from .index_check import IndexCheck


class CpuBuilder(AbstractBuilder):
    """Builds with the system's C compiler. Raises DeviceError on first use if none works."""

    makes_libraries = True
    most_together = 8  # more take longer to come back than starting compilers would
    builds_units = True

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options
        self._adopted: dict[str, Path] = {}
        self.units = UnitCache(options)

    @cached_property
    def compiler(self) -> Compiler:
        """The C compiler, searched on first use: a process that only loads artifacts needs none."""
        return find_compiler(self.options.compiler)

    def dialect(self) -> Dialect:
        return C_TEAM

    @property
    def can_build(self) -> bool:
        try:
            return bool(self.compiler.path)
        except DeviceError:
            return False

    def adopt(self, source_key: str, library: Path) -> bool:
        try:
            load_library(library)
        except OSError:  # what it was linked with is not here
            return False
        self._adopted[source_key] = library
        return True

    def build(self, source: Source) -> Artifact | Failure:
        o = self.options
        library = self._adopted.get(source.key)
        if library is not None:
            return Artifact.of(source, library.stem, library, 0)
        if source.table is not None:
            return self.units.assembled(self.compiler, source)
        if source.entry == UNIT_ENTRY:
            return self.units.build(self.compiler, (source,))[0]
        # Alone it has a team of its own, for processes without the timing loop: libraries are kept and sent to others.
        compiler = self.compiler.linking_all() if source.team else self.compiler
        built = build_library(
            compiler, source.file_text, source.flags, o.build_folder, o.compile_timeout_s
        )
        if isinstance(built, Failure):
            return built
        return Artifact.of(source, built.key, built.path, built.build_ns)

    def end_builds(self) -> None:
        end_compilers()

    def build_together(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        o, compiler = self.options, self.compiler
        if all(s.entry == UNIT_ENTRY and s.table is None for s in sources):
            return self.units.build(compiler, sources)
        alike = [s for s in sources if s.names and s.flags == sources[0].flags]
        if len(alike) < len(sources) or len(sources) == 1:
            return [self.build(s) for s in sources]
        built = build_together(compiler, sources, o.build_folder, o.compile_timeout_s)
        if isinstance(built, Failure):  # of one of them: each says so for itself
            return [self.build(s) for s in sources]
        build_ns = built.build_ns // len(sources)
        return [
            Artifact.of(s, built.key, built.path, build_ns, entry_of(s, k))
            for k, s in enumerate(sources)
        ]

    def build_check(self, checks: IndexChecks) -> IndexCheck | Failure:
        """Builds and loads index checks. Returns a Failure without a compiler, as with an adopted library."""
        if not self.can_build:
            advice = "without a C compiler its indices cannot be looked at: compile(check_indices=False) does not"
            return Failure("compile", advice)
        from .index_check import build_check  # brings code generation and numba, see `Worker`

        return build_check(checks, self.compiler, self.options)

    def build_harness(self) -> Path:
        """Builds the timing loop and the thread team, once per compiler; returns their library's path."""
        return self.build_own("timer.c", "table.c", *TEAM_FILES)

    def build_own(self, *names: str) -> Path:
        """Builds the named C files of this folder into one library."""
        text = "\n".join((Path(__file__).parent / name).read_text() for name in names)
        return self.build_own_text(names[0], text)

    def build_own_text(self, name: str, text: str) -> Path:
        """Builds a C text of the product into a library; `name`: of a C file, for messages."""
        o = self.options
        last = o.build_folder / own_library_name(name, text)
        try:
            compiler = self.compiler.unspared()
        except DeviceError:
            if last.exists():  # built when there was a compiler, for these instructions
                return last
            raise
        built = build_library(compiler, text, (), o.build_folder, o.compile_timeout_s)
        if isinstance(built, Failure):
            raise DeviceError(f"{self.compiler.path} cannot build {name}: {built.log.strip()}")
        with suppress(OSError):  # it is only for a day without a compiler
            if not last.exists():
                os.link(built.path, last)
        return built.path


def own_library_name(name: str, text: str) -> str:
    """Returns the file name of the library for the C file `name` with this text, independent of its compiler."""
    digest = hashlib.blake2b(f"{text}\0{cpu_key()}".encode(), digest_size=8).hexdigest()
    return f"own-{Path(name).stem}-{digest}.so"
