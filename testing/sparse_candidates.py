"""Random candidates of sequences on sparse fields, many compiled by one call of a compiler: as C, and as CUDA text on the emulator.

A compiler takes as long to begin, and to read the emulator, as for a text; what optimises takes two thirds of the rest, so most
texts are compiled plainly. Each runs over three periods, each of which begins with what the one before has left.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.text.source import Source
from ..kernels.frontend.recorder import Recording
from ..kernels.ir.task import Problem
from ..kernels.sparse.naming import in_terms_of_trees
from ..runtime.api.outcome import Failure
from ..runtime.device import open_device
from ..space.backbone import INNER, OUTER
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd
from ..space.choices import PARALLEL, VECTOR
from ..space.families.stores import STREAM
from ..space.targets.target import Target
from . import checking, gpu_checking, gpu_running, sparse_periods
from .calling import Arrays, InputSet, Judge, in_child
from .checking import PLAINLY
from .joining import entry_of, joined
from .sparse_periods import Between, nothing

OF_TREES = (
    "listgen", "activate", "compaction", "settling", "record", "directory", "leaf_layout", "cell_order", "staged", "unrolled",
    "prefetch_distance", "schedule", "scatter", "grid_stride",
)  # fmt: skip
MACHINES = ((2, 32), (2, 16), (3, 32), (2, 64), (1, 32))  # cores, bytes of a vector
NOT_COUNTED = ("order", "size")
_CHILD_S = 300.0
_TIMES_ON_A_GPU = 2

Values = Counter[tuple[str, str]]
"""Counts of the draws of each value of each kind of choices."""


@dataclass(frozen=True)
class Work:
    """A text, and the states that it must leave behind each period, in the form in which they are compared. `between` two periods
    the host may change them.
    """

    source: Source
    recording: Recording
    before: Arrays
    wanted: Sequence[Arrays]
    between: Between = nothing

    def run_built(self, library: Path, number: int) -> str:
        """The fault of a text as the n-th of a library of C, with one thread and more, each of which is late."""
        built = checking.Build(self.source, library, "", entry_of(self.source, number))
        for n in range(1, self.source.n_threads + 1 if self.source.team else 2):
            said = sparse_periods.run_built(
                built, self.recording, self.before, self.wanted, n, self.between
            )
            if said:
                return f"{said}, {n} threads"
        return ""

    def run_on_gpu(self, loaded: gpu_running.Loaded) -> str:
        """The fault of a text on a GPU in two runs: threads have another order each time."""

        def call(inputs: InputSet, judge: Judge, _: int) -> str:
            return loaded.call(inputs, judge)

        for _ in range(_TIMES_ON_A_GPU):
            said = sparse_periods.through_periods(
                call, self.recording, self.before, self.wanted, self.between
            )
            if said:
                return in_terms_of_trees(self.recording.trees, said)
        return ""

    def run_emulated(self, library: Path, number: int) -> str:
        """The fault of a text as the n-th of a library of the emulator, with threads in each order in each period."""
        named = replace(self.source, entry=entry_of(self.source, number))
        emulated = gpu_checking.Emulated(str(library), named)
        n_orders = len(gpu_checking.ORDERS)
        for turn in range(n_orders):

            def call(inputs: InputSet, judge: Judge, period: int, turn: int = turn) -> str:
                return emulated.call(inputs, judge, (turn + period) % n_orders, turn)

            said = sparse_periods.through_periods(
                call, self.recording, self.before, self.wanted, self.between
            )
            if said:
                return f"{in_terms_of_trees(self.recording.trees, said)}, orders from {turn}"
        return ""


def machine(number: int) -> Target:
    """A machine whose cores have no cache of their own, so that no table is too small for a directory."""
    found = checking.target(*MACHINES[number % len(MACHINES)])
    *near, own, last = found.levels
    return replace(found, levels=(*near, replace(own, capacity_bytes=0), last))


def drawn(
    problem: Problem, target: Target, rng: np.random.Generator, values: Values
) -> Candidate | None:
    """A random candidate: all choices about trees first, also values that are never better, threads in two of three, a loop of
    vectors in two of three where there may be one, and stores around the caches in half of these. None for a dead end. Counts what
    was drawn. Raises ValueError where the space is empty.
    """
    space = build_space(problem, target)
    made = space.open_root()
    if isinstance(made, DeadEnd):
        raise ValueError(f"the space is empty: {made.why}")
    outer = [v for d, v in space.variables.kind.items() if d.level == OUTER]
    if outer and rng.integers(3):
        made = _decided(made, int(rng.choice(outer)), PARALLEL)
    inner = [v for d, v in space.variables.kind.items() if d.level == INNER]
    inner = [v for v in inner if VECTOR in made.values(v)]
    if inner and rng.integers(3):
        made = _decided(made, int(rng.choice(inner)), VECTOR)
        for var in space.variables.cache.values() if rng.integers(2) else ():
            made = _decided(made, var, STREAM)
    about = [int(v) for v in space.searchable if space.choices[int(v)].kind in OF_TREES]
    for var in map(int, rng.permutation(about)):
        made = _decided(made, var, int(rng.choice(made.values(var))))
    done = checking.random_candidate(made, rng)
    if isinstance(done, DeadEnd):
        return None
    for var in map(int, space.searchable):
        choice = space.choices[var]
        if choice.kind not in NOT_COUNTED:
            values[choice.kind, choice.values[done.value(var)]] += 1
    return done


def _decided(candidate: Candidate, var: int, value: int) -> Candidate:
    """With a choice decided where it may have that value."""
    if value not in candidate.values(var):
        return candidate
    made = candidate.decide(var, 1 << value)
    return made if isinstance(made, Candidate) else candidate


def faults_built(works: Sequence[Work], stem: Path, flags: tuple[str, ...] = PLAINLY) -> list[str]:
    """The fault of each text as C, "" for none."""

    def build(some: Sequence[Work], path: Path) -> tuple[Path | None, str]:
        text = joined([w.source for w in some])
        made = checking.build(text, path, ("-w", *flags))
        return made.library, made.log

    return _faults(works, stem, build, Work.run_built)


def faults_emulated(works: Sequence[Work], stem: Path) -> list[str]:
    """The fault of each CUDA text on the emulator, "" for none."""

    builder: Any = open_device("emulator").builder

    def build(some: Sequence[Work], path: Path) -> tuple[Path | None, str]:
        named = {entry_of(w.source, k): w.source for k, w in enumerate(some)}
        made = builder.build_in_one(named, PLAINLY, path)
        return (None, f"{made}") if isinstance(made, Failure) else (made.path, "")

    return _faults(works, stem, build, Work.run_emulated)


def faults_on_gpu(works: Sequence[Work], folder: Path, device: str = "cuda") -> list[str]:
    """The fault of each CUDA text on the GPU of this machine, "" for none."""
    sources = [w.source for w in works]
    return gpu_running.faults(sources, lambda x, k: works[k].run_on_gpu(x), folder, device)


def _faults(
    works: Sequence[Work],
    stem: Path,
    build: Callable[[Sequence[Work], Path], tuple[Path | None, str]],
    run: Callable[[Work, Path, int], str],
) -> list[str]:
    library, log = build(works, stem)
    if library is None:
        if len(works) == 1:
            return [f"not compiled: {log}"]
        alone = [
            _faults([w], stem.with_name(f"{stem.name}_{k}"), build, run)
            for k, w in enumerate(works)
        ]
        return [what for (what,) in alone]

    def all_of(numbers: Sequence[int]) -> str:
        said = ((k, " ".join(run(works[k], library, k).split())) for k in numbers)
        return "\n".join(f"{k}: {what}" for k, what in said if what)

    found = [""] * len(works)
    said = in_child(partial(all_of, range(len(works))), _CHILD_S)
    if said and not re.match(r"\d+: ", said):  # the child ended: by which of them?
        each = (in_child(partial(all_of, (k,)), _CHILD_S) for k in range(len(works)))
        return [re.sub(r"^\d+: ", "", what) for what in each]
    for line in said.splitlines():
        k, _, what = line.partition(": ")
        found[int(k)] = what
    return found
