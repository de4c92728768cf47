"""The space of a GPU: what its candidates have in common, and how blocks and threads combine what they sum up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.analysis.effects import arrays_written, task_reads
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.errors import LanguageError
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.backbone import MID, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import restore
from kernelscape.space.targets.gpu_facts import adds_to_result
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.machines import library_space

from .gpu_target import GPU, LARGE, problem_of


def is_together(candidate, t, u):
    fused = candidate.space.variables.fused
    return candidate.value(fused[min(t, u), max(t, u)]) == ch.SAME_LAUNCH


def test_blocks_have_as_many_threads_as_the_target_allows(plans):
    sizes = {t.n_threads for _, plan in plans for t in plan.tasks}
    assert max(sizes) <= GPU.max_threads_per_block
    assert len(sizes) > 4


def test_a_launch_has_one_grid(plans):
    together = 0
    for candidate, plan in plans:
        for t in plan.tasks:
            for u in plan.tasks[: t.index]:
                if not is_together(candidate, t.index, u.index):
                    continue
                if plan.stays(t.index):  # nests of their own, with as many blocks
                    blocks = [{p.n_blocks for p in x.loops if p.is_parallel} for x in (t, u)]
                    assert blocks[0] == blocks[1] != {0}
                else:
                    grids = [
                        sorted((p.loop.extent, p.tile) for p in x.loops if p.is_parallel)
                        for x in (t, u)
                    ]
                    assert grids[0] == grids[1]
                    together += bool(grids[0])
    assert together > 10


def test_nothing_follows_partial_results_in_their_launch(plans):
    with_partials = 0
    for candidate, plan in plans:
        for dep in candidate.space.backbone.dependences:
            if plan.tasks[dep.source].is_split:
                with_partials += 1
                assert not is_together(candidate, dep.source, dep.sink)
    assert with_partials > 10


def test_nothing_touches_what_a_last_block_finishes_in_its_launch(plans):
    last = 0
    for candidate, plan in plans:
        for t in plan.tasks:
            if not t.by_last_block:
                continue
            last += 1
            target = t.task.target.array
            finish = {a.array for a, in_finish in task_reads(t.task) if in_finish}
            for u in plan.tasks:
                if u is not t and is_together(candidate, t.index, u.index):
                    written = set(arrays_written(u.task))
                    assert target not in written | {a.array for a, _ in task_reads(u.task)}
                    assert not finish & written
    assert last > 10


@pytest.mark.parametrize(
    ("way", "is_there"), [("SEQUENTIAL", True), ("PARTIALS", False), ("LAST_BLOCK", False)]
)
def test_a_result_is_read_before_the_launch_in_which_blocks_finish_it(way, is_there):
    @kernel
    def scaled(a: types.ndarray(), b: types.ndarray(), out: types.ndarray()):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                b[i, j] = a[i, j] * out[j]

    @kernel
    def summed(b: types.ndarray(), out: types.ndarray()):
        for j in range(b.shape[1]):
            acc = 0.0
            for i in range(b.shape[0]):
                acc += b[i, j]
            out[j] = acc

    def both(a, b, out):
        scaled(a, b, out)
        summed(b, out)

    arrays = [np.zeros(shape, np.float32) for shape in ((64, 32), (64, 32), 32)]
    problem = normalise(record_sequence(both, arrays, "both"))
    decisions = {"fused(scaled0,summed0)": "SAME_LAUNCH", "reduction(summed0.i.outer)": way}
    made = restore(build_space(problem, GPU), decisions.items())
    assert isinstance(made, Candidate) == is_there


def test_what_blocks_add_to_is_touched_by_nothing_else_in_their_launch(plans):
    atomic = 0
    for candidate, plan in plans:
        for t in plan.tasks:
            target = t.task.target.array
            if not t.is_atomic or not adds_to_result(plan.problem, t.task):
                continue
            atomic += 1
            for u in plan.tasks:
                if u is not t and is_together(candidate, t.index, u.index):
                    reads = {a.array for a, _ in task_reads(u.task)}
                    assert target not in reads | set(arrays_written(u.task))
    assert atomic > 10


IN_REGISTERS = {
    "mem_space(add_two_outer0->add_scaled_gemvt0.b)": "REGISTER",
    "dim_kind(add_two_outer0.i.mid)": "THREAD",
    "dim_kind(add_two_outer0.j.mid)": "THREAD",
    "team(add_two_outer0)": "BLOCKS",
}


def test_threads_of_a_task_have_an_order(plans):
    """Each order of two loops occurs, and a register is read by the thread that has it."""
    orders = Counter()
    registers = 0
    root = restore(build_space(problem_of("gemver"), GPU), IN_REGISTERS.items())
    rng = np.random.default_rng(5)
    drawn = [
        c for c in (random_candidate(root, rng) for _ in range(40)) if isinstance(c, Candidate)
    ]
    for plan in (*(plan for _, plan in plans), *map(plan_of, drawn)):
        for t in plan.tasks:
            assert sorted(t.threads) == sorted(p.loop.name for p in t.loops if p.is_thread)
            if len(t.threads) > 1:
                names = [p.loop.name for p in t.loops if p.is_thread]
                orders[len(names), tuple(names.index(x) for x in t.threads)] += 1
            for f in t.registers:
                names = dict(f.pairs)
                registers += len(t.threads) > 1
                there = plan.tasks[f.consumer].threads
                assert tuple(names[x] for x in t.threads) == there
    assert min(orders[2, order] for order in ((0, 1), (1, 0))) > 10
    assert registers > 3


def test_threads_along_three_loops_have_every_order():
    """Three loops of a product, all shared out to threads."""
    space = build_space(problem_of("matmul", LARGE), GPU)
    made = space.root()
    for d, var in space.variables.kind.items():
        if d.level == MID:
            made = made.decide(var, 1 << ch.THREAD)
            assert isinstance(made, Candidate), made
    rng = np.random.default_rng(0)
    drawn = [made.random_completion(rng) for _ in range(120)]
    plans = [plan_of(c) for c in drawn if isinstance(c, Candidate)]
    assert {p.tasks[0].threads for p in plans} == set(
        permutations(x.name for x in space.problem.tasks[0].loops)
    )


@kernel
def add_along_rows(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            for k in range(a.shape[2]):
                for m in range(a.shape[3]):
                    c[i, j, k, m] = a[i, j, k, m] + b[j, m]


def rows_problem():
    shapes = ((16, 16, 16, 16), (16, 16), (16, 16, 16, 16))
    arrays = [np.zeros(s, np.float32) for s in shapes]
    return normalise(record_sequence(lambda a, b, c: add_along_rows(a, b, c), arrays, "rows"))


def threads_along(task, sizes):
    """Decisions: (loop, threads) of a task, those of neighbours first."""
    wanted = {}
    for n, (x, size) in enumerate(sizes):
        wanted |= {f"dim_kind({task}.{x}.mid)": "THREAD", f"size({task}.{x}.mid)": str(size)}
        for y, _ in sizes[n + 1 :]:
            first, second, level = (x, y, "INNER") if x < y else (y, x, "OUTER")
            wanted[f"thread_level({task}.{first}.mid,{task}.{second}.mid)"] = level
    return wanted


@pytest.mark.parametrize("order", list(permutations("ijk")), ids="".join)
def test_there_are_few_threads_along_z(order):
    """The slowest of three loops is along z; two loops have no z, and threads along four are counted in one number."""
    target = replace(GPU, max_threads_along_z=4)

    def fits(problem, task, *sizes):
        wanted = threads_along(task, sizes)
        return isinstance(restore(build_space(problem, target), wanted.items()), Candidate)

    product, (x, y, z) = problem_of("matmul", LARGE), order
    assert fits(product, "multiply0", (x, 8), (y, 8), (z, 4))
    assert not fits(product, "multiply0", (x, 2), (y, 2), (z, 8))
    assert fits(product, "multiply0", (x, 2), (y, 8))
    rows = rows_problem()
    absent = {"dim_kind(add_along_rows0.m.mid)": "ABSENT"}
    assert fits(rows, "add_along_rows0", (x, 2), (y, 2), (z, 8), ("m", 8))
    three = threads_along("add_along_rows0", [(x, 2), (y, 2), (z, 8)]) | absent
    made = restore(build_space(rows, target), three.items())
    assert isinstance(made, DeadEnd) and "threads along z" in made.why


def test_loops_are_inside_blocks(plans):
    for candidate, plan in plans:
        backbone = candidate.space.backbone
        kinds = candidate.space.variables.kind
        for d in backbone.dims:
            if d.level != OUTER or candidate.value(kinds[d]) != ch.PARALLEL:
                continue
            for e in backbone.dims_of(d.task):
                if e.order_id >= 0 and candidate.value(kinds[e]) == ch.LOOP:
                    order = candidate.space.model.order(d.order_id, e.order_id)
                    assert candidate.value(order) == ch.OUTSIDE
        assert all(sum(p.is_parallel for p in t.loops) <= 3 for t in plan.tasks)


def test_a_reduction_in_order_is_of_one_thread(plans):
    seen = 0
    for _, plan in plans:
        for t in plan.tasks:
            if t.task.is_reduction and not t.task.fast_math:
                seen += 1
                assert not t.has_tree and not t.is_split
    strict = [t for t in problem_of("sgemv").tasks if not t.fast_math]
    assert seen or not strict


def test_hints_are_for_loads_from_memory_and_read_only_for_what_is_not_written(plans):
    seen = Counter()
    for candidate, plan in plans:
        v = candidate.space.variables
        for (t, array), var in v.load_cache.items():
            hint = candidate.value(var)
            seen[hint] += 1
            flows = [f for f in v.mem_space if (f.consumer, f.array) == (t, array)]
            if hint != ch.CA:
                assert all(candidate.value(v.mem_space[f]) == ch.GLOBAL for f in flows)
            writers = [u.index for u in plan.tasks if array in arrays_written(u.task)]
            if hint == ch.READ_ONLY:
                assert t not in writers
                assert not any(is_together(candidate, t, u) for u in writers)
    assert min(seen[hint] for hint in range(len(ch.LOAD_CACHE))) > 20


@kernel
def whole_sum(a: types.ndarray(), out: types.ndarray()):
    acc = a[0, 0] - a[0, 0]
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            acc += a[i, j]
    out[0] = acc


def sum_of(*shape):
    """The sum of a matrix, and the name of the task that reduces."""
    arrays = [np.zeros(shape, np.float32), np.zeros(1, np.float32)]
    problem = normalise(record_sequence(lambda a, out: whole_sum(a, out), arrays, "sum"))
    return problem, next(t.name for t in problem.tasks if t.is_reduction)


@pytest.mark.parametrize(
    ("ways", "is_there"),
    [
        (("PARTIALS", "PARTIALS"), True),
        (("ATOMIC", "ATOMIC"), True),
        (("PARTIALS", "SEQUENTIAL"), True),
        (("PARTIALS", "ATOMIC"), False),
        (("LAST_BLOCK", "LAST_BLOCK"), True),
        (("LAST_BLOCK", "PARTIALS"), False),
    ],
)
def test_blocks_along_two_loops_combine_in_one_way(ways, is_there):
    problem, name = sum_of(64, 48)
    decisions = {f"reduction({name}.{x}.outer)": way for x, way in zip("ij", ways, strict=True)}
    made = restore(build_space(problem, GPU), decisions.items())
    assert isinstance(made, Candidate) == is_there
    assert not is_there or isinstance(made.complete(), Candidate)


def test_partial_results_of_two_loops_fit_together():
    problem, name = sum_of(16384, 16384)
    tiles = {f"reduction({name}.{x}.outer)": "PARTIALS" for x in "ij"}
    tiles |= {f"size({name}.{x}.inner)": "1" for x in "ij"}
    for size, is_there in (("1", False), ("4", True)):
        wanted = tiles | {f"size({name}.{x}.mid)": size for x in "ij"}
        assert isinstance(restore(build_space(problem, GPU), wanted.items()), Candidate) == is_there


@pytest.mark.parametrize("how", ["PARTIALS", "LAST_BLOCK", "ATOMIC"])
def test_blocks_that_stride_leave_few_partial_results(how):
    """Kind: a limit that holds for one tile a block alone. A part of this product has 64 MiB; added up in place there is none."""
    wanted = {"reduction(multiply0.k.outer)": how, "dim_kind(multiply0.k.outer)": "PARALLEL"}
    space = library_space("matmul", GPU, m=4096, n=4096, k=4096)
    for stride in ("1", "16"):
        made = restore(space, {**wanted, "grid_stride(multiply0.k.outer)": stride}.items())
        assert isinstance(made, Candidate) == (how == "ATOMIC"), stride


def test_a_gpu_has_no_arithmetic_on_halves():
    @kernel
    def twice(x: types.ndarray(), y: types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i] * 2

    def problem(dtype):
        x = np.ones(8, dtype)
        return normalise(record_sequence(twice, (x, np.zeros_like(x))))

    build_space(problem(np.uint8), GPU)
    with pytest.raises(LanguageError, match="twice computes with f16, on which code for a GPU has"):
        build_space(problem(np.float16), GPU)
