"""Loops of at most 16 iterations as one register tile: products of small matrices, a batch of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.backbone import INNER, MID, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.families.tiling import ABSENT, LOOP
from kernelscape.testing import checking
from kernelscape.testing.syntax import loops, program_of

BATCH = 37
nd: Any = ks.types.ndarray()


@ks.kernel
def products(a: nd, b: nd, c: nd):
    for n, i, j in ks.ndrange(c.shape[0], c.shape[1], c.shape[2]):
        s = 0.0
        for k in range(a.shape[2]):
            s += a[n, i, k] * b[n, k, j]
        c[n, i, j] = s


def of_extent(n: int) -> tuple[Any, Any, dict[str, Any]]:
    given = {f"a{k}": np.ones((BATCH, n, n), np.float32) for k in range(3)}
    recording = record_sequence(lambda *x: products(*x), tuple(given.values()), name="products")
    problem = normalise(recording)
    return (
        recording,
        problem,
        dict(zip([a.name for a in problem.arrays], given.values(), strict=True)),
    )


def with_tile(space: Any, name: str, size: int) -> Candidate:
    """A candidate whose only tile is a register tile of one loop, of this size; no threads."""
    v, decided = space.variables, space.root()
    for loop in space.problem.tasks[0].loops:
        outer, mid, inner = (space.backbone.dim(0, loop.name, x) for x in (OUTER, MID, INNER))
        n = size if loop.name == name else 1
        decided = decided.decide(v.size[inner], 1 << v.universe[inner].index(n))
        decided = decided.decide(v.kind[outer], 1 << LOOP).decide(v.kind[mid], 1 << ABSENT)
    made = decided.complete()
    assert isinstance(made, Candidate)
    assert plan_of(made).tasks[0].loop(name).inner == size
    return made


def n_partial(made: Candidate, name: str) -> int:
    """The number of loops over iterations that fill no tile: they begin where a tile does."""
    first = c.Id(f"{name}0")
    return sum(x.var == name and x.lo == first for x in loops(program_of(made)))


@pytest.mark.compiler
@pytest.mark.parametrize("n", [5, 7, 9, 11, 13, 15])
def test_a_short_loop_is_a_tile_without_an_end_of_its_own(n: int, tmp_path: Path) -> None:
    recording, problem, given = of_extent(n)
    space = build_space(problem, checking.target(2, 32))
    sources = list[Any]()
    for name in ("j", "k"):
        whole, parts = (with_tile(space, name, size) for size in (n, 4))
        assert not n_partial(whole, name)
        assert n_partial(parts, name)
        sources.append(checking.source_of(whole))
    inputs = checking.make_inputs(recording, problem, given, {})
    assert not checking.fault(sources, inputs, tmp_path)


def test_longer_loops_have_the_sizes_of_their_target() -> None:
    for n, is_there in ((16, True), (17, False), (31, False)):
        _, problem, _ = of_extent(n)
        space = build_space(problem, checking.target(2, 32))
        part = space.backbone.dim(0, "j", INNER)
        assert (n in space.variables.universe[part]) == is_there
