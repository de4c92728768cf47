"""Random bodies as random candidates, against the interpreter: what a body must give, and what is drawn for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.ir.task import Problem
from ..kernels.tasks.pipeline import normalise
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd
from ..space.choices import PARALLEL, SCATTER
from ..space.targets.target import Target
from .calling import InputSet
from .checking import random_candidate, target, unusual_candidate
from .interpreted import run_reference
from .random_bodies import Body

_MACHINES = ((3, 32), (2, 16), (3, 16), (2, 32), (1, 32))  # cores, bytes of a vector
_COMMON = (
    "order",
    "size",
    "fused",
)  # choices that each candidate has, of as many values as there are
_FACTOR = 4.0  # of the tolerance, in roundings of the largest number: an iteration too few shows
Draw = Callable[[Candidate, np.random.Generator], Candidate | DeadEnd]
_MOST = 2.0**20  # above it sums are not exact in f32


@dataclass(frozen=True)
class Drawn:
    """A body with a random candidate. `inputs` are empty where rounding decides what comes out."""

    body: Body
    candidate: Candidate
    inputs: tuple[InputSet, ...]

    @property
    def traits(self) -> set[str]:
        """What the candidate does, by name: how it scatters, and whether threads do."""
        space, made = self.candidate.space, self.candidate
        if self.body.run is not None:
            decided = ((ch, made.value(var)) for var, ch in enumerate(space.choices))
            return {f"{ch.kind} {ch.values[v]}" for ch, v in decided if ch.kind not in _COMMON}
        teams = {d.task for d, var in space.variables.kind.items() if made.value(var) == PARALLEL}
        return {
            f"{SCATTER[made.value(var)]}{' of threads' if t in teams else ''}"
            for (t, _), var in space.variables.scatter.items()
        }


def machine(number: int) -> Target:
    """The machine that candidates of a body are for."""
    return target(*_MACHINES[number % len(_MACHINES)])


def inputs_of(body: Body, which: slice = slice(None)) -> tuple[InputSet, ...]:
    """What must come out of the inputs of a body, or of some of them, on which all numbers are exact."""
    if body.run is not None:
        return tuple(_inputs_by(body, which))
    found = []
    has_f32 = any(a.dtype == np.float32 for a in body.arrays.values())
    for arrays in [*body.inputs()][which]:
        with np.errstate(all="ignore"):
            want = run_reference(body.recording, arrays, {}, dtype=np.float64)
            same = run_reference(body.recording, arrays, {}) if has_f32 else want
        most = 1.0
        for a in want.values():
            if a.dtype.kind == "f":
                most = max(most, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
        if most < _MOST and all(
            np.array_equal(want[k], same[k], equal_nan=want[k].dtype.kind == "f") for k in want
        ):
            found.append(InputSet(arrays, {}, want, _FACTOR, most))
    return tuple(found)


def _inputs_by(body: Body, which: slice) -> Iterator[InputSet]:
    """The same where Python itself says what must come out."""
    assert body.run is not None
    for arrays in [*body.inputs()][which]:
        want = body.run(body.text, arrays)
        most = max(float(np.abs(a[np.isfinite(a)]).max(initial=1)) for a in want.values())
        if most < _MOST:
            yield InputSet(arrays, {}, want, _FACTOR, most)


def candidates(
    problem: Problem,
    machine: Target,
    rng: np.random.Generator,
    n: int = 1,
    draw: Draw = random_candidate,
) -> list[Candidate]:
    """Random complete candidates; fewer where descents end dead. Raises ValueError where the space is empty."""
    root = build_space(problem, machine).root()
    if isinstance(root, DeadEnd):
        raise ValueError(f"the space is empty: {root.why}")
    made = (draw(root, rng) for _ in range(n))
    return [c for c in made if isinstance(c, Candidate)]


def drawn(body: Body, machine: Target, n: int = 1, which: slice = slice(None)) -> list[Drawn]:
    """A body with up to `n` random candidates, and `which` of its inputs. Raises what the product raises."""
    inputs = inputs_of(body, which)
    rng = np.random.default_rng(body.number)
    draw = random_candidate if body.run is None else unusual_candidate
    found = candidates(normalise(body.recording), machine, rng, n, draw)
    return [Drawn(body, c, inputs) for c in found]
