"""Random programs as random candidates: results that each must give, and a corpus of many, built together, for all judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..codegen.text.source import Source
from ..kernels.ir.task import Problem
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd
from ..space.choices import PARALLEL, SCATTER
from ..space.targets.target import Target
from . import checking
from .batches import Work, faults
from .calling import Arrays, InputSet
from .generator.features import Features
from .generator.sequences import Program, program
from .interpreted import run_reference

BATCH = 50  # texts of one call of a compiler
_MACHINES = ((3, 32), (2, 16), (3, 16), (2, 32), (1, 32), (2, 64))  # cores, bytes of a vector
# Choices that each candidate has, of as many values as there are.
_COMMON = ("order", "size", "fused")
_FACTOR = 4.0  # of the tolerance, in roundings of the largest number: an iteration too few shows
_MOST = 2.0**20  # above it sums are not exact in f32
Draw = Callable[[Candidate, np.random.Generator], Candidate | DeadEnd]


@dataclass(frozen=True)
class Drawn:
    """A program with a random candidate. `inputs` are empty where rounding decides what comes out."""

    program: Program
    candidate: Candidate
    inputs: tuple[InputSet, ...]

    @cached_property
    def source(self) -> Source:
        """Its text; of every other program with nothing between what threads have for themselves."""
        texts = (checking.source_of, checking.crowded_source_of)
        return texts[self.program.number % 2](self.candidate)

    @property
    def traits(self) -> set[str]:
        """The forms that the candidate has, by name: its decisions, and how threads scatter."""
        space, made = self.candidate.space, self.candidate
        decided = ((ch, made.value(var)) for var, ch in enumerate(space.choices))
        found = {f"{ch.kind} {ch.values[v]}" for ch, v in decided if ch.kind not in _COMMON}
        teams = {d.task for d, var in space.variables.kind.items() if made.value(var) == PARALLEL}
        scatters = space.variables.scatter.items()
        return found | {
            f"{SCATTER[made.value(v)]}{' of threads' * (t in teams)}" for (t, _), v in scatters
        }


def machine(number: int) -> Target:
    """The machine that candidates of a program are for."""
    return checking.target(*_MACHINES[number % len(_MACHINES)])


def inputs_of(given: Program, which: slice = slice(None)) -> tuple[InputSet, ...]:
    """Results that inputs of a program must give: of some of them where numbers are integers, on which all sums are exact."""
    if given.features.are_integers:
        return tuple(_exact_inputs(given, which))
    return tuple(checking.make_inputs(given.recording, given.problem, given.arrays, given.scalars))


def _exact_inputs(given: Program, which: slice) -> Iterator[InputSet]:
    judge = (
        given.in_python if given.features.by_python else lambda arrays: _interpreted(given, arrays)
    )
    for arrays in [*given.inputs()][which]:
        want = judge(arrays)
        numbers = [a for a in want.values() if a.dtype.kind == "f"] or [*want.values()]
        most = max((float(np.abs(a[np.isfinite(a)]).max(initial=1)) for a in numbers), default=1.0)
        if want and most < _MOST:
            yield InputSet(arrays, given.scalars, want, _FACTOR, most)


def _interpreted(given: Program, arrays: Arrays) -> Arrays:
    """Returns the interpreter's results in float64; none where those in the types of the program differ."""
    with np.errstate(all="ignore"):
        want = run_reference(given.recording, arrays, given.scalars, dtype=np.float64)
        if all(a.dtype != np.float32 for a in arrays.values()):
            return want
        same = run_reference(given.recording, arrays, given.scalars)
    is_same = all(
        np.array_equal(a, same[k], equal_nan=a.dtype.kind == "f") for k, a in want.items()
    )
    return want if is_same else {}


def candidates(
    problem: Problem,
    machine: Target,
    rng: np.random.Generator,
    n: int = 1,
    draw: Draw = checking.random_candidate,
) -> list[Candidate]:
    """Random complete candidates; fewer where descents end dead. Raises ValueError where the space is empty."""
    root = build_space(problem, machine).root()
    if isinstance(root, DeadEnd):
        raise ValueError(f"the space is empty: {root.why}")
    made = (draw(root, rng) for _ in range(n))
    return [c for c in made if isinstance(c, Candidate)]


def drawn(given: Program, machine: Target, n: int = 1, which: slice = slice(None)) -> list[Drawn]:
    """A program with up to `n` random candidates, and `which` of its inputs. Raises what the product raises."""
    inputs = inputs_of(given, which)
    rng = np.random.default_rng(given.number)
    is_unusual = given.features.by_python
    draw = checking.unusual_candidate if is_unusual else checking.random_candidate
    return [Drawn(given, c, inputs) for c in candidates(given.problem, machine, rng, n, draw)]


def corpus(features: Features, numbers: Iterable[int], n: int = 1) -> list[Drawn]:
    """Programs of a corpus with candidates, each with one of its two sets of inputs where numbers are integers."""
    which = (slice(0, 1), slice(1, 2))
    return [d for k in numbers for d in drawn(program(features, k), machine(k), n, which[k % 2])]


def wrong(some: Sequence[Drawn], stem: Path, flags: tuple[str, ...]) -> list[str]:
    """The texts that do not give what they must, each with what is wrong."""
    found = []
    for at in range(0, len(some), BATCH):
        here = [d for d in some[at : at + BATCH] if d.inputs]
        works = [Work(d.source, d.inputs) for d in here]
        said = faults(works, stem.with_name(f"{stem.name}{at}"), flags) if here else []
        found += [f"{what}\n{d.program}" for d, what in zip(here, said, strict=True) if what]
    return found
