"""Iterations in lanes that run by the lengths of their inner loops, against the interpreter."""

from __future__ import annotations

import ast
import ctypes
import subprocess
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.passes.storage import aligned
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.csyntax import Declare
from kernelscape.codegen.write.length_order import SORT_BY_LENGTH
from kernelscape.kernels.analysis.inner_ranges import run_time_length
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    Assert,
    Binary,
    Const,
    DType,
    For,
    Load,
    Local,
    LoopIndex,
    SetLocal,
)
from kernelscape.kernels.ir.walk import walk
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.library import load_library
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.families.row_lengths import UNSORTED
from kernelscape.space.families.scatter_sorts import SORT_ANEW, SORT_IF_CHANGED
from kernelscape.testing import checking
from kernelscape.testing.calling import InputSet, call_once, in_child, set_team_size
from kernelscape.testing.interpreted import run_reference

from .test_ranges import FLAGS, forces, lists, matrix, problem_of, product_of_rows

nd: Any = types.ndarray()
N = 151  # two whole windows of 64 and a part of one, and no multiple of lanes


@kernel
def shorten(count: nd, most: nd):
    for i in range(count.shape[0]):
        count[i] = min(count[i], most[i])


@kernel
def triangle(x: nd, y: nd):
    for i in range(y.shape[0]):
        total = 0.0
        for k in range(i):
            total += x[k] * x[k] if x[k] > 0.5 else 1.0
        y[i] = total


@kernel
def used_up(count: nd, x: nd, y: nd):
    for i in range(y.shape[0]):
        total = 0.0
        for k in range(count[i]):
            total += x[k]
        y[i] = total
        count[i] = 0


def within_triangle(x: Any, y: Any) -> None:
    triangle(x, y)


def uses_up(count: Any, x: Any, y: Any) -> None:
    used_up(count, x, y)


def short_lists(count: Any, near: Any, x: Any, y: Any, most: Any) -> None:
    shorten(count, most)
    forces(count, near, x, y)


def with_most(kind: str, n: int) -> dict[str, np.ndarray]:
    return {**lists(kind, n), "most": lists("odd", n)["count"][::-1].copy()}


def outcome(recording: Any, arrays: dict[str, np.ndarray]) -> InputSet:
    want = run_reference(recording, arrays, {}, dtype=np.float64)
    return InputSet(arrays, {}, want, 100.0, float(np.abs(want["y"]).max(initial=1.0)))


def sorted_ones(space: Any, task: int = 0) -> list[Candidate]:
    """Every window with every way of its sort, on a team with every schedule and on one thread, in lanes."""
    v = space.variables
    window, sort = (v.of_tasks[kind][task] for kind in ("length_window", "length_sort"))
    schedule = next(x for d, x in v.schedule.items() if d.task == task)
    inner = next(x for d, x in v.kind.items() if d.task == task and d.name.endswith("inner"))
    outer = next(x for d, x in v.kind.items() if d.task == task and d.name.endswith("outer"))
    found, rng = [], np.random.default_rng(task)
    sizes = range(1, len(space.choices[window].values))
    ways = product(sizes, (SORT_ANEW, SORT_IF_CHANGED), (ch.PARALLEL, ch.LOOP), range(4))
    for size, how, kind, shares in ways:
        c: Any = space.root()
        for var, value in ((window, size), (sort, how), (outer, kind), (schedule, shares)):
            c = c.decide(var, 1 << value) if isinstance(c, Candidate) else c
        if isinstance(c, Candidate):
            assert c.value(inner) == ch.VECTOR
            found.append(checking.random_candidate(c, rng))
    return found


def test_lengths_are_expressions_of_what_arrays_hold() -> None:
    def length(fn: Any, arrays: dict[str, np.ndarray], *before: Any) -> Any:
        recording, _ = problem_of(fn, arrays)
        (loop,) = recording.calls[0].ir.body
        assert isinstance(loop, For)
        return run_time_length(loop.loop, (*before, *loop.body))

    def read(e: Any) -> set[str]:
        return {x.array for x in walk(e) if isinstance(x, Load)}

    assert read(length(product_of_rows, matrix("odd", 5))) == {"row"}
    assert read(length(forces, lists("odd", 5))) == {"count"}
    ends = Assert(Const(value=False, dtype=DType.bool_), "here it ends", (), NOWHERE)
    assert length(forces, lists("odd", 5), ends) is None
    x = np.ones(9, np.float32)
    assert length(within_triangle, {"x": x, "y": x.copy()}) is None
    count = np.ones(9, np.int32)
    assert length(uses_up, {"count": count, "x": x, "y": x.copy()}) is None


@pytest.mark.parametrize("n_locals", [1, 60])
def test_lengths_that_many_locals_lead_to_take_no_time(n_locals: int) -> None:
    """Kind: locals written out in an expression, each with the one before twice, grow exponentially."""
    long = DType.i64
    body: list[Any] = [SetLocal("v0", Load("count", (LoopIndex("i"),), long), NOWHERE)]
    for k in range(n_locals):
        before = Local(f"v{k}", long)
        body.append(SetLocal(f"v{k + 1}", Binary("mul", before, before, long), NOWHERE))
    body.append(For("q", Local(f"v{n_locals}", long), (), NOWHERE))
    assert (run_time_length("i", tuple(body)) is None) == (n_locals > 4)


def test_what_is_sorted_is_in_lanes_and_what_is_kept_is_sorted() -> None:
    _, problem = problem_of(forces, lists("odd", N))
    space = build_space(problem, checking.target(2, 32))
    v = space.variables
    (window,), (sort,) = (v.of_tasks[k].values() for k in ("length_window", "length_sort"))
    assert space.choices[window].values == ("UNSORTED", "64", "512")
    (inner,) = (x for d, x in v.kind.items() if d.name.endswith("inner"))
    scalar: Any = space.root().decide(inner, 1 << ch.ABSENT)
    assert (scalar.value(window), scalar.value(sort)) == (UNSORTED, SORT_ANEW)
    found = [c for c in sorted_ones(space) if c.value(sort) == SORT_IF_CHANGED]
    words = describe(found[0])["vectors"]
    assert any("sorts its iterations by length within windows of 64" in x for x in words)
    assert any("keeps their order while lengths are the same" in x for x in words)


def test_lengths_that_the_sequence_writes_are_sorted_in_each_call() -> None:
    _, problem = problem_of(short_lists, with_most("odd", N))
    space = build_space(problem, checking.target(2, 32))
    (sort,) = space.variables.of_tasks["length_sort"].values()
    assert space.root().values(sort) == (SORT_ANEW,)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("fn", "made", "cores", "width"),
    [
        (product_of_rows, matrix, 2, 32),
        (product_of_rows, matrix, 5, 64),
        (forces, lists, 3, 16),
    ],
)
def test_rows_in_the_order_of_their_lengths_compute_what_the_interpreter_does(
    fn: Any, made: Any, cores: int, width: int, tmp_path: Path
) -> None:
    """The first call has empty rows, as memory before it would say; then lengths change, stay, and change again."""
    recording, problem = problem_of(fn, made("odd", N))
    found = sorted_ones(build_space(problem, checking.target(cores, width)))
    kinds = ("empty", "odd", "odd", "huge", "even", "empty")
    inputs = [outcome(recording, made(kind, N)) for kind in kinds]
    with verifying():
        sources = [checking.source_of(c) for c in found]
    assert len({s.text for s in sources}) == len(sources)
    assert not checking.fault(sources[::3], inputs, tmp_path, more_flags=FLAGS)


def order_in(built: checking.Build, memory: str, inputs: list[InputSet]) -> str:
    """The order that a library has in its `memory` after calls with some inputs; what is wrong with them, if anything is."""
    library = load_library(str(built.library))
    set_team_size(library, built.source.n_threads)
    entry = getattr(library, built.entry)
    entry.restype = None
    for one in inputs:
        if wrong := call_once(entry, built.source, one, shift=0):
            return wrong
    begin = aligned(4 * N) // 4  # behind the lengths
    return str((ctypes.c_int32 * (begin + N)).in_dll(library, memory)[begin:])


@pytest.mark.compiler
def test_a_kept_order_is_made_again_where_a_length_has_changed(tmp_path: Path) -> None:
    """Another order would be right, too, but slow."""
    recording, problem = problem_of(forces, lists("odd", N))
    space = build_space(problem, checking.target(2, 32))
    (sort,) = space.variables.of_tasks["length_sort"].values()
    candidate = next(c for c in sorted_ones(space) if c.value(sort) == SORT_IF_CHANGED)
    before = (s for f in lower(plan_of(candidate)).functions for s in f.before)
    (held,) = (s for s in before if isinstance(s, Declare) and s.type == "static int64_t")
    source = checking.source_of(candidate)
    text = source.text.replace(f"static int64_t {held.name}", f"extern int64_t {held.name}")
    text += f"\nint64_t {held.name}[{held.extent}];\n"
    built = checking.build(replace(source, text=text), tmp_path / "kept", FLAGS)
    assert built.library is not None and not built.log
    given = [lists(kind, N) for kind in ("odd", "huge", "even")]
    for arrays in given:
        arrays["count"] %= 32  # of which each has a class
    inputs = [outcome(recording, arrays) for arrays in given]
    for one in inputs:
        length = [*one.arrays["count"]]
        stable = sorted(range(64), key=[-n for n in length].__getitem__)
        found = in_child(partial(order_in, built, held.name, [*inputs, one]), 60)
        assert ast.literal_eval(found)[:64] == stable, found


@pytest.mark.compiler
@pytest.mark.parametrize("n", [8, 9, 63, 64, 65])
def test_windows_may_be_longer_than_the_loop(n: int, tmp_path: Path) -> None:
    recording, problem = problem_of(product_of_rows, matrix("odd", n))
    found = sorted_ones(build_space(problem, checking.target(3, 32)))
    inputs = [outcome(recording, matrix(kind, n)) for kind in ("empty", "huge", "odd")]
    sources = [checking.source_of(c) for c in found[:: max(1, len(found) // 3)]]
    assert not checking.fault(sources, inputs, tmp_path, more_flags=FLAGS)


@pytest.mark.compiler
def test_lengths_of_a_task_before_are_complete_before_they_are_sorted(tmp_path: Path) -> None:
    recording, problem = problem_of(short_lists, with_most("odd", N))
    space = build_space(problem, checking.target(3, 32))
    (t,) = space.variables.of_tasks["length_window"]
    (fused,) = space.variables.fused.values()
    together = [c for c in sorted_ones(space, t) if c.value(fused) == ch.SAME_LAUNCH]
    assert together
    with verifying():
        sources = [checking.crowded_source_of(c) for c in together[:2]]
    inputs = [outcome(recording, with_most(kind, N)) for kind in ("huge", "even")]
    assert not checking.fault(sources, inputs, tmp_path, more_flags=FLAGS)


def test_threads_meet_between_a_sort_and_its_loop() -> None:
    _, problem = problem_of(product_of_rows, matrix("odd", N))
    candidate = sorted_ones(build_space(problem, checking.target(2, 32)))[0]
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, candidate.space.target)
    kinds = [type(n) for n in launch.nodes]
    assert kinds == [loop_ir.SortByLength, loop_ir.Barrier, loop_ir.Loop]
    sort, barrier, loop = launch.nodes
    verify(launch, plan)
    for nodes in ((loop, barrier, sort), (sort, barrier, sort, barrier, loop)):
        with pytest.raises(IllFormedError):
            verify(replace(launch, nodes=nodes), plan)
    plain = replace(plan, tasks=(replace(plan.tasks[0], by_length=None),))
    with pytest.raises(IllFormedError, match="has no order"):
        verify(launch, plain)


@kernel
def gathered_to(start: nd, x: nd, at: nd, y: nd):
    for i in range(at.shape[0]):
        total = 0.0
        for k in range(start[i], start[i + 1]):
            total += x[k] * x[k] if x[k] > 0.5 else 1.0
        y[at[i]] = total


def test_iterations_that_conflict_keep_their_order() -> None:
    """Several may store to one element: only their fronts run in lanes, and the last one's value stays."""
    start = np.arange(0, 3 * (N + 1), 3, dtype=np.int32)
    arrays = (start, np.zeros(3 * N, np.float32), np.zeros(N, np.int32), np.zeros(9, np.float32))
    problem = normalise(record_sequence(gathered_to, arrays))
    of_tasks = build_space(problem, checking.target(2, 32)).variables.of_tasks
    assert of_tasks["lane_parts"]
    assert not of_tasks["length_window"]


def test_first_candidates_sort_rows_by_their_lengths() -> None:
    _, problem = problem_of(product_of_rows, matrix("odd", 2000))
    space = build_space(problem, checking.target(2, 32))
    (window,) = space.variables.of_tasks["length_window"].values()
    found = [c for _, c in sketched_candidates(space) if c.value(window) != UNSORTED]
    assert [space.choices[window].values[c.value(window)] for c in found] == ["4096"]
    told = lower(plan_of(found[0])).decisions
    for phrase in ("sorted by length in windows of 4096", "kept while lengths are the same"):
        assert any(phrase in x for x in told)


def test_sorted_loops_share_their_loop_with_no_other_task() -> None:
    def twice(row: Any, col: Any, val: Any, x: Any, y: Any, z: Any) -> None:
        product_of_rows(row, col, val, x, y)
        product_of_rows(row, col, val, x, z)

    given = {**matrix("odd", N), "z": np.zeros(N, np.float32)}
    _, problem = problem_of(twice, given)
    space = build_space(problem, checking.target(2, 32))
    outer = (d.order_id for d in space.variables.kind if d.name.endswith("outer"))
    order = space.model.order(*outer)
    windows = list(space.variables.of_tasks["length_window"].values())
    merged: Any = space.root().decide(order, 1 << ch.MERGED)
    assert not isinstance(merged, DeadEnd)
    assert [merged.value(x) for x in windows] == [UNSORTED, UNSORTED]


# --- the sort ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sorter(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("sort")
    source, library = folder / "sort.c", folder / "sort.so"
    source.write_text(f"#include <stdint.h>\n#define static\n#define inline\n{SORT_BY_LENGTH}\n")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library))


def class_of(sorter: ctypes.CDLL, length: int) -> int:
    return int(sorter.length_class(ctypes.c_int32(length)))


@pytest.mark.compiler
def test_lengths_of_one_class_differ_by_an_eighth_at_most(sorter: ctypes.CDLL) -> None:
    lengths = [*range(5000), *(1 << k for k in range(31)), *((1 << k) - 1 for k in range(1, 31))]
    least: dict[int, int] = {}
    before = 0
    for n in sorted(lengths):
        found = class_of(sorter, n)
        assert before <= found < 240
        before = found
        assert n - least.setdefault(found, n) <= least[found] / 8
    assert [class_of(sorter, n) for n in range(32)] == list(range(32))


@pytest.mark.compiler
def test_a_window_has_each_of_its_iterations_once_the_longest_first(sorter: ctypes.CDLL) -> None:
    rng = np.random.default_rng(7)
    begin, end = 64, 151
    lengths = (rng.pareto(1.0, N) * 5).astype(np.int32)
    order = np.full(N, -1, np.int32)
    pointers = (x.ctypes.data_as(ctypes.c_void_p) for x in (order, lengths))
    sorter.sort_by_length(*pointers, ctypes.c_long(begin), ctypes.c_long(end))
    assert sorted(order[begin:end]) == list(range(begin, end))
    assert (order[:begin] == -1).all()
    classes = [class_of(sorter, int(lengths[i])) for i in order[begin:end]]
    assert classes == sorted(classes, reverse=True) and len(set(classes)) > 9
