"""Normalisation: examples of each rule, golden text of the library, and the meaning of random
sequences.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.analysis.effects import (
    are_independent,
    arrays_read,
    overwrites_all,
    task_writes,
)
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.domain import Count, Loop
from kernelscape.kernels.ir.simplify import binary
from kernelscape.kernels.ir.task import Problem
from kernelscape.kernels.ir.text import show_task, show_tasks
from kernelscape.kernels.ir.walk import children, size
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.segments import segments_of
from kernelscape.testing.generator.features import OPEN
from kernelscape.testing.generator.sequences import program
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.run_tasks import run_tasks

nd = types.ndarray()


def array(*shape: int) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.uniform(-1, 1, shape).astype(np.float32)


def problem_of(fn: Any, *args: Any) -> Problem:
    """The problem of a sequence, or of one kernel; what its tasks compute is compared with the
    oracle.
    """
    recording = record_sequence(fn, args, name=getattr(fn, "__name__", "one"))
    problem = normalise(recording)
    n = len(recording.arrays)
    inputs = [x for x in args if isinstance(x, np.ndarray)]
    numbers = [x for x in args if not isinstance(x, np.ndarray)]
    arrays = dict(zip((p.name for p in recording.arrays), inputs[:n], strict=True))
    scalars = dict(zip((p.name for p in recording.scalars), numbers, strict=True))
    wanted = run_reference(recording, arrays, scalars, dtype=np.float64)
    for name, got in run_tasks(problem, arrays, scalars, float64=True).items():
        np.testing.assert_allclose(got, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)
    return problem


def lines(problem: Problem) -> list[str]:
    return [f"{t.name}: {show_task(t)}" for t in problem.tasks]


def roles(problem: Problem) -> dict[str, str]:
    return {a.name: a.role for a in problem.arrays}


@pytest.mark.parametrize("number", range(150))
def test_tasks_compute_what_the_calls_compute(number: int) -> None:
    example = program(OPEN, number)
    problem = example.problem
    wanted = run_reference(example.recording, example.arrays, example.scalars, dtype=np.float64)
    got = run_tasks(problem, example.arrays, example.scalars, float64=True)
    for name, result in got.items():
        np.testing.assert_allclose(result, wanted[name], rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("number", range(150))
def test_all_of_them_are_open(number: int) -> None:
    example = program(OPEN, number)
    assert all(task.is_structured for task in example.problem.tasks), example


def test_some_of_them_are_guarded() -> None:
    drawn = (program(OPEN, number).problem.tasks for number in range(150))
    assert sum(any(task.is_guarded for task in tasks) for tasks in drawn) > 10


def test_library_tasks(golden: Any) -> None:
    texts = []
    for name in names():
        entry = load(name)
        sizes = {k: {"m": 5, "n": 7, "k": 3}[k] for k in entry.sizes}
        args = entry.make_arguments(sizes, np.float32, np.random.default_rng(0))
        texts.append(show_tasks(normalise(record_sequence(entry.sequence, args, name=name))))
    golden("\n".join(texts), "library_tasks.txt")


# --- reductions -----------------------------------------------------------------------------------


@kernel
def gemv_accumulated(a: nd, x: nd, y: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = acc


@kernel
def gemv_renamed(a: nd, x: nd, y: nd):
    for row in range(a.shape[0]):
        total = 0.0
        for column in range(a.shape[1]):
            total = total + a[row, column] * x[column]
        y[row] = total


@kernel
def gemv_updated(a: nd, x: nd, y: nd):
    for i in range(a.shape[0]):
        y[i] = 0.0
        for j in range(a.shape[1]):
            y[i] += a[i, j] * x[j]


@kernel
def clear(y: nd):
    for k in range(y.shape[0]):
        y[k] = 0.0


@kernel
def gemv_added(a: nd, x: nd, y: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[i] += a[i, j] * x[j]


def cleared_gemv(a: Any, x: Any, y: Any) -> None:
    clear(y)
    gemv_added(a, x, y)


def cleared_twice(a: Any, x: Any, y: Any) -> None:
    clear(y)
    cleared_gemv(a, x, y)


@pytest.mark.parametrize(
    "spelling", [gemv_renamed, gemv_updated, cleared_gemv], ids=lambda s: s.__name__
)
def test_all_spellings_of_a_reduction_are_one_task(spelling: Any) -> None:
    args = array(5, 7), array(7), array(5)
    wanted = problem_of(gemv_accumulated, *args)
    assert problem_of(spelling, *args).key == wanted.key
    assert isinstance(wanted.tasks[0].finish, ir.Accumulator)
    assert roles(wanted) == {"a": "input", "x": "input", "y": "output"}


def test_reduction_without_initialiser_keeps_the_old_value() -> None:
    problem = problem_of(gemv_added, array(5, 7), array(7), array(5))
    assert lines(problem) == [
        "gemv_added0: for i<5 j<7 reduced: y[i]:f32 = y[i] + acc with acc = sum(j) a[i, j] * x[j]"
    ]
    assert roles(problem)["y"] == "inout"


def test_initialiser_read_in_between_stays() -> None:
    def sequence(a: Any, x: Any, y: Any, z: Any) -> None:
        clear(y)
        copy(y, z)
        gemv_added(a, x, y)

    problem = problem_of(sequence, array(5, 7), array(7), array(5), array(5))
    assert [t.name for t in problem.tasks] == ["clear0", "copy0", "gemv_added0"]


@kernel
def copy(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = x[i]


def test_initialiser_whose_source_is_overwritten_stays() -> None:
    def sequence(a: Any, x: Any, y: Any, z: Any) -> None:
        copy(z, y)
        clear(z)
        gemv_added(a, x, y)

    problem = problem_of(sequence, array(5, 7), array(7), array(5), array(5))
    assert [t.name for t in problem.tasks] == ["copy0", "clear0", "gemv_added0"]


@kernel
def clear_first(y: nd):
    for i in range(y.shape[0] - 1):
        y[i] = 0.0


def test_initialiser_of_a_part_stays() -> None:
    def sequence(a: Any, x: Any, y: Any) -> None:
        clear_first(y)
        gemv_added(a, x, y)

    assert len(problem_of(sequence, array(5, 7), array(7), array(5)).tasks) == 2


@kernel
def scale(y: nd, beta: float):
    for i in range(y.shape[0]):
        y[i] *= beta


def test_chain_of_initialisers_is_absorbed() -> None:
    def sequence(a: Any, x: Any, y: Any, z: Any, beta: float) -> None:
        copy(z, y)
        scale(y, beta)
        gemv_added(a, x, y)

    problem = problem_of(sequence, array(5, 7), array(7), array(5), array(5), 0.5)
    assert lines(problem) == [
        "gemv_added0: for i<5 j<7 reduced: "
        "y[i]:f32 = z[i] * beta + acc with acc = sum(j) a[i, j] * x[j]"
    ]


@kernel
def two_uses(a: nd, y: nd, z: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j]
        y[i] = acc
        z[i] = acc * acc


def test_reduction_used_twice_is_stored() -> None:
    assert lines(problem_of(two_uses, array(5, 7), array(5), array(5))) == [
        "two_uses0.acc: for i<5 j<7 reduced: two_uses0.acc[i]:f32 = sum(j) a[i, j]",
        "two_uses0.y: for i<5: y[i]:f32 = two_uses0.acc[i]",
        "two_uses0.z: for i<5: z[i]:f32 = two_uses0.acc[i] * two_uses0.acc[i]",
    ]


@kernel
def two_sums(a: nd, b: nd, y: nd):
    for i in range(a.shape[0]):
        s = 0.0
        t = 1.0
        for j in range(a.shape[1]):
            s += a[i, j]
            t *= b[i, j]
        y[i] = s + t


def test_two_reductions_for_one_result() -> None:
    problem = problem_of(two_sums, array(5, 7), array(5, 7), array(5))
    assert [t.name for t in problem.tasks] == ["two_sums0.s", "two_sums0.y"]
    assert [t.op for t in problem.tasks] == ["add", "mul"]


@kernel
def frobenius(a: nd, r: nd):
    acc = 1.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            acc += a[i, j] * a[i, j]
            acc += 0.5
    r[0] = acc / 2.0


def test_reduction_over_several_loops_with_a_start_value() -> None:
    assert lines(problem_of(frobenius, array(5, 7), array(1))) == [
        "frobenius0: for i<5 reduced j<7 reduced: "
        "r[0]:f32 = (1.0 + acc) / 2.0 with acc = sum(i, j) a[i, j] * a[i, j] + 0.5"
    ]


@kernel
def nested(a: nd, x: nd, r: nd):
    acc = 0.0
    for i in range(a.shape[0]):
        t = 0.0
        for j in range(a.shape[1]):
            t += a[i, j]
        acc += t * x[i]
    r[0] = acc


def test_reduction_of_reductions() -> None:
    problem = problem_of(nested, array(5, 7), array(5), array(1))
    assert [t.name for t in problem.tasks] == ["nested0.t", "nested0.r"]


# --- distribution ---------------------------------------------------------------------------------


@kernel
def both(a: nd, p: nd, r: nd, q: nd, s: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * p[j]
            s[j] += a[i, j] * r[i]
        q[i] = acc


def test_two_reductions_in_one_nest() -> None:
    problem = problem_of(both, array(5, 7), array(7), array(5), array(5), array(7))
    assert [(t.name, t.op) for t in problem.tasks] == [("both0.s", "add"), ("both0.q", "add")]


@kernel
def forward(x: nd, y: nd, z: nd):
    for _ in range(1):
        for i in range(x.shape[0] - 1):
            y[i] = x[i]
            z[i] = y[i] + 1.0


@kernel
def backward(x: nd, y: nd, z: nd):
    for _ in range(1):
        for i in range(x.shape[0] - 1):
            z[i] = y[i] + 1.0
            y[i + 1] = x[i]


@kernel
def prefix(x: nd, y: nd):
    for _ in range(1):
        for i in range(x.shape[0] - 1):
            y[i + 1] = y[i] + x[i]


@kernel
def last_wins(a: nd, y: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[i] = a[i, j]


@kernel
def flat(x: nd, y: nd):
    for i in range(5):
        for j in range(7):
            y[i * 7 + j] = x[i * 7 + j]


@kernel
def colliding(x: nd, y: nd):
    for _ in range(1):
        for i in range(5):
            for j in range(7):
                y[i * 5 + j] = x[i * 7 + j]


@kernel
def gathered(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[(i * i) % 3] = x[i]


@pytest.mark.parametrize(
    ("fn", "shapes", "is_structured"),
    [
        (forward, [(6,), (6,), (6,)], True),
        (backward, [(6,), (6,), (6,)], False),
        (prefix, [(6,), (6,)], False),
        (last_wins, [(5, 7), (5,)], False),
        (flat, [(35,), (35,)], True),
        (colliding, [(35,), (35,)], False),
        (gathered, [(9,), (9,)], False),
    ],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_what_distributes(fn: Any, shapes: list[tuple[int, ...]], is_structured: bool) -> None:
    problem = problem_of(fn, *(array(*s) for s in shapes))
    assert all((t.is_structured) == is_structured for t in problem.tasks)


@kernel
def local_kept(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        old = x[i]
        x[i] = y[i]
        z[i] = old


def test_local_of_an_overwritten_element_is_stored() -> None:
    problem = problem_of(local_kept, array(5), array(5), array(5))
    assert [t.name for t in problem.tasks] == ["local_kept0.old", "local_kept0.x", "local_kept0.z"]
    assert roles(problem)["local_kept0.old"] == "temp"


@kernel
def branching(x: nd, y: nd, n: int):
    for i in range(x.shape[0]):
        t = x[i]
        if t > 0.0:
            for _ in range(n):
                t = t * 0.5
        y[i] = t


def test_closed_task_is_parallel_over_its_outermost_loop() -> None:
    (task,) = problem_of(branching, array(9), array(9), 3).tasks
    assert task.body is not None
    assert [(x.name, x.extent) for x in task.loops] == [("i", 9)]
    assert list(arrays_read(task)) == ["x"]
    assert task.target == task_writes(task)[0]


def test_range_of_a_run_time_number_is_as_long_as_its_arrays_let_it_be() -> None:
    problem = problem_of(counted, array(9), 4)
    (task,) = problem.tasks
    assert task.body is not None
    assert task.loops == (Loop("i", 9, False, Count("argument", "n")),)
    assert not task.has_known_extents
    assert are_independent(task, task.loops[0])
    assert not overwrites_all(task, problem, "x")  # only so many iterations are wanted


def test_range_that_its_own_loop_changes_is_serial() -> None:
    (task,) = problem_of(growing, np.ones(9, np.int64), array(9)).tasks
    assert task.loops == ()


def test_range_of_which_no_array_says_how_long_it_can_be_is_serial() -> None:
    (task,) = problem_of(sometimes, array(9), 4).tasks
    assert task.loops == ()


@kernel
def counted(x: nd, n: int):
    for i in range(n):
        x[i] = 1.0


@kernel
def growing(n: nd, x: nd):
    for i in range(n[0]):
        n[i] += 1
        x[i] = 1.0


@kernel
def sometimes(x: nd, n: int):
    for i in range(n):
        if i < 9:
            x[i] = 1.0


# --- arrays ---------------------------------------------------------------------------------------


def test_temporaries_nobody_reads_go() -> None:
    def sequence(x: Any, y: Any) -> None:
        t = ndarray(x.dtype, x.shape, name="t")
        copy(x, t)
        copy(x, y)
        scale(t, 2.0)

    problem = problem_of(sequence, array(5), array(5))
    assert [t.name for t in problem.tasks] == ["copy1"]
    assert list(roles(problem)) == ["x", "y"]


def test_what_is_written_over_before_anyone_reads_it_goes() -> None:
    def sequence(x: Any, y: Any, z: Any) -> None:
        copy(x, y)
        scale(z, 2.0)
        copy(z, y)

    problem = problem_of(sequence, array(5), array(5), array(5))
    assert [t.name for t in problem.tasks] == ["scale0", "copy1"]


def test_what_is_written_over_in_part_stays() -> None:
    def sequence(x: Any, y: Any) -> None:
        copy(x, y)
        clear_first(y)

    assert len(problem_of(sequence, array(5), array(5)).tasks) == 2


def test_temporary_read_before_it_is_written_is_zero() -> None:
    def sequence(x: Any, y: Any) -> None:
        t = ndarray(x.dtype, x.shape, name="t")
        clear_first(t)
        copy(t, y)

    problem = problem_of(sequence, array(5), array(5))
    assert problem.tasks[0].name == "zero_t"


def test_roles() -> None:
    def sequence(x: Any, y: Any, z: Any, w: Any) -> None:
        copy(x, y)
        clear_first(z)
        clear_first(x)

    problem = problem_of(sequence, array(5), array(5), array(5), array(5))
    assert roles(problem) == {"x": "inout", "y": "output", "z": "inout", "w": "input"}


@kernel(fast_math=False)
def exact_sum(x: nd, r: nd):
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i]
    r[0] = acc


@kernel(fast_math=False)
def exact_add(x: nd, r: nd):
    for i in range(x.shape[0]):
        r[0] += x[i]


def test_order_of_updates_is_kept_without_fast_math() -> None:
    (task,) = problem_of(exact_sum, array(5), array(1)).tasks
    assert task.is_structured
    assert not task.fast_math
    (task,) = problem_of(exact_add, array(5), array(1)).tasks
    assert task.body is not None
    assert task.loops == ()


def test_key_sees_what_decides_the_computation() -> None:
    args = array(5, 7), array(7), array(5)
    key = problem_of(gemv_accumulated, *args).key
    assert key == problem_of(gemv_renamed, *args).key
    others = [
        problem_of(gemv_added, *args).key,
        problem_of(gemv_accumulated, array(5, 8), array(8), array(5)).key,
        problem_of(gemv_accumulated, *(x.astype(np.float64) for x in args)).key,
    ]
    assert len({key, *others}) == 4


def test_values_that_follow_from_scalars_are_not_repeated_without_limit() -> None:
    """The kind: substitution into each read, which a chain of locals makes exponential (3^9 parts here; svd has 50 links)."""
    value: ir.Expr = ir.Param("a", ir.DType.f32)
    body: list[ir.Stmt] = []
    for k in range(9):
        body.append(
            ir.SetLocal(f"v{k}", binary("add", binary("mul", value, value), value), ir.NOWHERE)
        )
        value = ir.Local(f"v{k}", ir.DType.f32)
    body.append(ir.Store("x", (ir.Const(0, ir.DType.i64),), value, ir.NOWHERE))
    inside = [s for segment in segments_of(tuple(body)) for s in segment]
    assert sum(size(e) for s in inside for e in children(s)) < 3000
