"""Dependences against all pairs of element accesses, enumerated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.effects import task_reads
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.access import Access
from kernelscape.kernels.ir.task import Problem, Task
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.dependence import Dependence, SharedRead, dependences, shared_reads
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing.generator.features import TINY
from kernelscape.testing.generator.sequences import program

Touch = tuple[str, tuple[int, ...], dict[str, int]]  # array, element, iteration


def problem_of(name: str) -> Problem:
    entry = load(name)
    sizes = dict.fromkeys(entry.sizes, 6)
    args = entry.make_arguments(sizes, np.float32, np.random.default_rng(0))
    return normalise(record_sequence(entry.sequence, args, name=name))


def _iterations(task: Task, over_all: bool) -> Iterator[dict[str, int]]:
    loops = [x for x in task.loops if over_all or not x.is_reduction]
    for point in product(*(range(x.extent) for x in loops)):
        yield dict(zip((x.name for x in loops), point, strict=True))


def _element(access: Access, at: dict[str, int]) -> tuple[int, ...]:
    axes = [a for a in access.axes if a is not None]
    return tuple(a.const + sum(c * at[n] for n, c in a.terms) for a in axes)


def touches(task: Task) -> tuple[list[Touch], list[Touch]]:
    """Every element read and every element written, with the loops that the access may be mapped
    by.
    """
    reads = [
        (a.array, _element(a, at), at)
        for a, in_finish in task_reads(task)
        for at in _iterations(task, not in_finish)
    ]
    target = task.target
    writes = [(target.array, _element(target, at), at) for at in _iterations(task, False)]
    return reads, writes


@pytest.mark.parametrize("number", range(60))
def test_dependences_cover_all_meetings_of_elements(number: int) -> None:
    problem = program(TINY, number).problem
    found = {(d.source, d.sink, d.array, d.kind): d for d in dependences(problem)}
    all_touches = [touches(t) for t in problem.tasks]
    last_writer: dict[tuple[str, tuple[int, ...]], int] = {}
    readers: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for k, (reads, writes) in enumerate(all_touches):
        for array, element, _ in reads:
            source = last_writer.get((array, element), k)
            assert source == k or (source, k, array, "flow") in found
            readers.setdefault((array, element), set()).add(k)
        for array, element, _ in writes:
            for reader in readers.pop((array, element), set()) - {k}:
                assert (reader, k, array, "anti") in found
            source = last_writer.get((array, element), k)
            assert source == k or (source, k, array, "output") in found
            last_writer[array, element] = k
    for d in found.values():
        _check_mapped(problem, d, all_touches)


def _check_mapped(
    problem: Problem, d: Dependence, all_touches: list[tuple[list[Touch], list[Touch]]]
) -> None:
    before = all_touches[d.source][0 if d.kind == "anti" else 1]
    after = all_touches[d.sink][0 if d.kind == "flow" else 1]
    for a, b in product(before, after):
        if a[0] == b[0] == d.array and a[1] == b[1]:
            for p, c in d.mapped:
                assert a[2][p] == b[2][c]


def test_flow_through_a_row_reduction_is_mapped() -> None:
    assert dependences(problem_of("atax")) == (Dependence(0, 1, "t", "flow", (("i", "i"),)),)
    gemver = {(d.source, d.sink, d.array): d.mapped for d in dependences(problem_of("gemver"))}
    assert gemver == {
        (0, 1, "b"): (("i", "i"), ("j", "j")),
        (0, 2, "b"): (("i", "i"), ("j", "j")),
        (1, 2, "x"): (("j", "j"),),
    }


def test_a_stencil_is_not_mapped() -> None:
    step = [d for d in dependences(problem_of("heat")) if d.sink == 4 and d.array == "t"]
    assert step == [Dependence(2, 4, "t", "flow", ())]


def test_matrix_loads_are_shared() -> None:
    both = (("i", "i"), ("j", "j"))
    assert shared_reads(problem_of("bicgk")) == (SharedRead(0, 1, "a", both),)
    assert SharedRead(1, 2, "b", both) in shared_reads(problem_of("gemver"))


def test_overwritten_versions_do_not_reach_later_readers() -> None:
    pairs: set[tuple[Any, ...]] = {
        (d.source, d.sink) for d in dependences(problem_of("heat")) if d.array == "v"
    }
    assert (3, 6) not in pairs  # add_source1 writes all of v in between
