"""Batches of random programs on random trees of sparse fields, as random candidates: what is wrong, and what was drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from ..codegen.text.source import Source
from ..kernels.frontend.recorder import Recording
from ..kernels.ir.task import Problem
from ..kernels.tasks.pipeline import normalise
from . import checking, gpu_checking, gpu_running, sparse_candidates, sparse_periods
from .calling import Arrays
from .sparse_candidates import Values, Work
from .sparse_drawn import MOST_CELLS, Part, Tree, drawn_parts, drawn_tree
from .sparse_periods import nothing
from .sparse_programs import Emptied, World, interpreted

_Made = tuple[tuple[Part, ...], Recording, Arrays, list[Arrays], Emptied | None]
_FEW_CALLS = 8  # of more, which repeat, the interpreter of trees is not asked, and two periods are all: they take a second
_CORES = 2  # of the GPU that is emulated: lists of few elements have more tiles than blocks
_TRIES = 20  # for a program that leaves room in its tree for three periods


@dataclass(frozen=True)
class Size:
    """Programs of a tree, parts of a program at most, and cells of a tree at most."""

    n_programs: int = 3
    n_parts: int = 3
    most_cells: int = MOST_CELLS


LARGE = Size()


@dataclass
class Found:
    """Counts of some programs. `wrong` has the fault of each wrong one, with its tree and calls."""

    programs: int = 0
    trees: int = 0
    nodes: int = 0
    calls: int = 0
    dead_ends: int = 0
    wrong: list[str] = field(default_factory=list)
    values: Values = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)

    def add(self, program: Program, has_repeat: bool) -> None:
        """Counts a program."""
        parts = program.parts
        self.programs += 1
        self.calls += _n_calls(parts)
        self.words.update(what for p in parts for what, _ in p.calls)
        self.words["a repeat"] += has_repeat
        self.words["deactivate_all by the host"] += program.emptied is not None
        self.words["a tree with offsets"] += any(program.tree.least)


@dataclass(frozen=True)
class Program:
    """A program of a tree, by the number of the tree."""

    number: int
    tree: Tree
    parts: tuple[Part, ...]
    emptied: Emptied | None = None  # between periods

    def __str__(self) -> str:
        calls = " ".join(
            f"{p.times}x{p.slope}{[*p.calls]}" if p.times > 1 else f"{[*p.calls]}"
            for p in self.parts
        )
        between = f", node {self.emptied.node} emptied" if self.emptied else ""
        return f"tree {self.number} {self.tree}: {calls}{between}"


def _n_calls(parts: Sequence[Part]) -> int:
    return sum(p.times * len(p.calls) for p in parts)


def works_of(
    number: int,
    ways: Sequence[str],
    found: Mapping[str, Found],
    size: Size,
) -> Iterator[tuple[str, Program, Work]]:
    """The programs of a tree, each as a text of a random candidate of each way. What the interpreter of trees, which is asked where
    calls are few, or the product says to one that is wrong is among what was found.
    """
    # Programs stay as they are where a choice is new: candidates have numbers of their own.
    rng, of_candidates = np.random.default_rng(number), np.random.default_rng((number, 1))
    tree = drawn_tree(rng, size.most_cells)
    for one in found.values():
        one.trees += 1
        one.nodes += len(tree.chain) + len(tree.other)
    world = World(tree)
    try:
        for _ in range(size.n_programs):
            world.begin(int(rng.integers(40)))
            made = _with_room(world, rng, size.n_parts)
            if made is None:
                return
            parts, recording, before, wanted, emptied = made
            program, problem = Program(number, tree, parts, emptied), None
            is_short = _n_calls(parts) <= _FEW_CALLS
            said = interpreted(partial(world.run, parts), wanted[0]) if is_short else ""
            for way in ways:
                one = found[way]
                one.add(program, bool(recording.repeats))
                if said:
                    one.wrong.append(f"{program}: {said} by the interpreter of trees")
                try:
                    problem = problem or normalise(recording)
                    source = _source(way, problem, number, of_candidates, one.values)
                except Exception as e:  # whatever the product says to a program is an answer
                    one.wrong.append(f"{program}: {type(e).__name__}: {e}")
                    continue
                if source is None:
                    one.dead_ends += 1
                else:
                    yield (
                        way,
                        program,
                        Work(source, recording, before, wanted, emptied or nothing),
                    )
    finally:
        world.end()


def _with_room(world: World, rng: np.random.Generator, n_parts: int) -> _Made | None:
    """A program, recorded, with the states it begins with, those that it leaves, and what the host does between two periods, which
    is something in a quarter of the programs. None where all fill a tree.
    """
    for _ in range(_TRIES):
        parts = drawn_parts(rng, n_parts)
        recording, before = world.recorded(parts)
        number = int(rng.integers(4 * len(world.sparse)))
        emptied = world.emptied(recording, number) if number < len(world.sparse) else None
        try:
            n = sparse_periods.N_PERIODS if _n_calls(parts) <= _FEW_CALLS else 2
            wanted = sparse_periods.periods(recording, before, n, emptied or nothing)
            return parts, recording, before, wanted, emptied
        except AssertionError:
            continue
    return None


def _source(
    way: str, problem: Problem, number: int, rng: np.random.Generator, values: Values
) -> Source | None:
    if way in ("emulated", "cuda"):
        machine = gpu_checking.target(_CORES) if way == "emulated" else gpu_running.target()
        candidate = sparse_candidates.drawn(problem, machine, rng, values)
        return gpu_checking.source_of(candidate) if candidate is not None else None
    candidate = sparse_candidates.drawn(problem, sparse_candidates.machine(number), rng, values)
    return checking.source_of(candidate) if candidate is not None else None


def run(
    ways: Sequence[str],
    trees: range,
    folder: Path,
    *,
    plainly: bool = True,
    size: Size = LARGE,
) -> dict[str, Found]:
    """Returns the counts of the programs of some trees by way: "decided", "emulated" and "cuda"."""
    found = {way: Found() for way in ways}
    made = [x for k in trees for x in works_of(k, ways, found, size)]
    for way in ways:
        here = [(program, work) for w, program, work in made if w == way]
        works, stem = [work for _, work in here], folder / f"{way}{trees.start}"
        if not works:
            continue
        if way == "emulated":
            said = sparse_candidates.faults_emulated(works, stem)
        elif way == "cuda":
            said = sparse_candidates.faults_on_gpu(works, stem)
        else:
            flags = checking.PLAINLY if plainly else ()
            said = sparse_candidates.faults_built(works, stem, flags)
        found[way].wrong += [
            f"{p}: {what}" for (p, _), what in zip(here, said, strict=True) if what
        ]
    return found
