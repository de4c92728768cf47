"""Many texts compiled by one call of a compiler and run in one child: a compiler takes as long to begin as for a short text."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..codegen.text.source import Source
from ..runtime.library import load_library
from .calling import InputSet, call_once, in_child, set_team_size
from .checking import SHIFTS, Build, build, with_delays
from .joining import entry_of, joined

_NOT_COMPILED = "not compiled: "
_CHILD_S = 120.0  # of one text: a hundred calls with late threads
THREADS = (1, 2, 3)


@dataclass(frozen=True)
class Work:
    """A text, and the inputs that it runs on."""

    source: Source
    inputs: Sequence[InputSet]


def faults(
    works: Sequence[Work], stem: Path, flags: tuple[str, ...] = (), compiler: str = "gcc"
) -> list[str]:
    """The fault of each text, "" for none: on its inputs, with one thread, two and three, each of which is late once.
    The library and its text stay in files that begin with `stem`.
    """
    built = build(joined([w.source for w in works]), stem, flags, compiler)
    if built.library is None or built.log:  # warnings, where flags do not silence them
        if len(works) == 1:
            return [f"{_NOT_COMPILED}{built.log}"]
        alone = [
            faults([w], stem.with_name(f"{stem.name}_{k}"), flags, compiler)
            for k, w in enumerate(works)
        ]
        assert any(said.startswith(_NOT_COMPILED) for (said,) in alone), built.log
        return [what for (what,) in alone]
    found = [""] * len(works)
    said = in_child(lambda: _run(built, works, range(len(works))), _CHILD_S)
    if said and not re.match(r"\d+: ", said):  # the child ended: by which of them?
        each = [in_child(partial(_run, built, works, (k,)), _CHILD_S) for k in range(len(works))]
        return [re.sub(r"^\d+: ", "", what) for what in each]
    for line in said.splitlines():
        k, _, what = line.partition(": ")
        found[int(k)] = what
    return found


def _run(built: Build, works: Sequence[Work], numbers: Sequence[int]) -> str:
    library = load_library(str(built.library))
    said = []
    for k in numbers:
        what = _run_one(library, works[k], k)
        if what:
            said.append(f"{k}: {' '.join(what.split())}")
    return "\n".join(said)


def _run_one(library: ctypes.CDLL, work: Work, number: int) -> str:
    source = work.source
    entry = getattr(library, entry_of(source, number))
    entry.restype = None
    late = None
    if with_delays(source.text) != source.text:
        late = ctypes.c_int.in_dll(library, "late_thread")
    for n in THREADS if source.team else (1,):
        if n > max(1, source.n_threads):
            break
        if source.team:
            set_team_size(library, n)
        for who in range(max(n, len(work.inputs))):
            is_late = late is not None and 1 < n > who
            if late is not None:
                late.value = who if is_late else -1
            at = who % len(work.inputs)
            what = call_once(entry, source, work.inputs[at], shift=SHIFTS[(n + who) % len(SHIFTS)])
            if what:
                said = f", thread {who} late" if is_late else ""
                return f"{what} (inputs {at}, {n} threads{said})"
    return ""
