"""Candidates of sequences on sparse fields as compiled C, over several periods: each begins with what the one before has left.

A list that is old, a slot that two cells have, or a counter that was not set shows in the next period, so states are handed on as
the candidate leaves them, and compared with those of the reference as the program sees them (kernels/fields/canonical_state.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ..codegen.text.source import Source
from ..kernels.fields.canonical_state import canonical
from ..kernels.frontend.recorder import Recording
from ..kernels.sparse.naming import shared_parts
from ..kernels.tasks.naive_activation import cell_by_cell
from ..kernels.tasks.pipeline import normalise
from ..runtime.library import load_library
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..space.decisions import fix, restore, to_names
from . import checking, sparse_emulation
from .calling import Arrays, InputSet, Judge, call_once, first_fault, set_team_size
from .interpreted import run_reference

N_PERIODS = 3
THREADS = (1, 2)
_SECONDS = 60.0


Between = Callable[[Arrays], Arrays]
"""The host's changes of states between two periods."""


def nothing(state: Arrays) -> Arrays:
    """The host leaves states as they are."""
    return state


def periods(
    recording: Recording, before: Arrays, n: int = N_PERIODS, between: Between = nothing
) -> list[Arrays]:
    """The right states behind each period, in the form in which they are compared."""
    state, found, plain = before, [], cell_by_cell(recording)
    for period in range(n):
        state = run_reference(plain, between(state) if period else state, {})
        found.append(canonical(recording.trees, state))
    return found


def space_of(
    shape: sparse_emulation.Shape, calls: Sequence[tuple[str, int]], cores: int = 2
) -> Space:
    """The space of a sequence of calls on a tree."""
    recording, _ = sparse_emulation.recorded(shape, calls)
    return build_space(normalise(recording), checking.target(cores, 32))


def drawn(space: Space, *decided: tuple[str, str], seed: int = 1) -> Candidate:
    """A random candidate with some decisions, by name."""
    root = fix(space, decided).root()
    assert isinstance(root, Candidate)
    found = checking.random_candidate(root, np.random.default_rng(seed))
    assert isinstance(found, Candidate)
    return found


def names_of(candidate: Candidate) -> dict[str, str]:
    """The decisions of a candidate, by name: the one that is restored from them has the same text."""
    names = dict(to_names(candidate))
    again = restore(candidate.space, names.items())
    assert isinstance(again, Candidate)
    assert checking.source_of(again).text == checking.source_of(candidate).text
    return names


def combinations(space: Space, kinds: Sequence[str]) -> Iterator[Candidate]:
    """Every combination of values that the choices of these kinds can have together, those that are never better among them."""
    chosen = [int(v) for v in space.searchable if space.choices[int(v)].kind in kinds]
    found = [root] if isinstance(root := space.open_root(), Candidate) else []
    for var in chosen:
        made = (child for c in found for _, child in c.expand(var))
        found = [c for c in made if isinstance(c, Candidate)]
    yield from found


def combined_sources(
    recording: Recording, kinds: Sequence[str], most: int, seed: int = 1
) -> list[Source]:
    """The different texts of so many combinations of these choices, drawn without bias, all else at random."""
    rng = np.random.default_rng(seed)
    found = list(combinations(build_space(normalise(recording), checking.target(2, 32)), kinds))
    drawn = [found[k] for k in rng.permutation(len(found))[:most]]
    made = [checking.random_candidate(c, rng) for c in drawn]
    sources = [checking.source_of(c) for c in made if isinstance(c, Candidate)]
    return list({source.text: source for source in sources}.values())


def drawn_sources(recording: Recording, n_draws: int, seed: int) -> list[Source]:
    """The different texts of random candidates of a sequence."""
    root = build_space(normalise(recording), checking.target(2, 32)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(seed)
    drawn = (checking.random_candidate(root, rng) for _ in range(n_draws))
    made = (checking.source_of(c) for c in drawn if isinstance(c, Candidate))
    return list({source.text: source for source in made}.values())


def fault(recording: Recording, before: Arrays, sources: Sequence[Source], folder: Path) -> str:
    """The first fault of texts of a sequence, "" for none: with each number of threads, and each thread late."""
    wanted = periods(recording, before)
    made = checking.build_all(sources, folder, "sparse", n_threads=1, more_flags=checking.PLAINLY)
    if log := next((b.log for b in made if b.library is None), ""):
        return f"not built: {log}"
    ways = [(b, n) for b in made for n in (THREADS if b.source.team else THREADS[:1])]
    found = first_fault(
        [partial(run_built, b, recording, before, wanted, n) for b, n in ways], _SECONDS
    )
    if found is None:
        return ""
    built, n_threads = ways[found[0]]
    return f"{found[1]}, {n_threads} threads:\n{built.source.text}"


def run_built(
    built: checking.Build,
    recording: Recording,
    before: Arrays,
    wanted: Sequence[Arrays],
    n: int,
    between: Between = nothing,
) -> str:
    """The fault of a built text over all periods, with `n` threads, and each of them late."""
    library = load_library(str(built.library))
    if built.source.team:
        set_team_size(library, n)
    entry = getattr(library, built.entry)
    entry.restype = None
    has_delays = checking.with_delays(built.source.text) != built.source.text

    def call(inputs: InputSet, judge: Judge, _: int) -> str | None:
        return call_once(entry, built.source, inputs, 0, judge)

    for late in range(-1, n if has_delays and n > 1 else 0):
        if has_delays:
            ctypes.c_int.in_dll(library, "late_thread").value = late
        said = through_periods(call, recording, before, wanted, between)
        if said:
            return f"{said}, thread {late} late"
    return ""


def through_periods(
    call: Callable[[InputSet, Judge, int], str | None],
    recording: Recording,
    before: Arrays,
    wanted: Sequence[Arrays],
    between: Between = nothing,
) -> str:
    """The fault of any period, each of which begins with the states that the one before and the host have left. `call` also takes
    its number.
    """
    kept = {name: n for name, (n, _) in shared_parts(recording.trees).items()}
    state = before
    for period, want in enumerate(wanted):
        left: Arrays = {}

        def judge(
            got: Arrays, state: Arrays = state, want: Arrays = want, left: Arrays = left
        ) -> str:
            left.update(state | {name: a.copy() for name, a in got.items()})
            found = canonical(recording.trees, left)
            pairs = {name: (found[name], a) for name, a in want.items()}
            wrong = [x for x, pair in pairs.items() if not np.array_equal(*pair, equal_nan=True)]
            return f"{', '.join(wrong)} differ from the reference" if wrong else ""

        said = call(InputSet(state, {}, {}, 0.0, 0.0, kept), judge, period)
        if said:
            return f"{said} in period {period}"
        state = between(left)
    return ""
