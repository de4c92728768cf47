"""The space of a GPU: what its candidates have in common, and implementations that must be among them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice, permutations
from math import gcd, prod

import numpy as np
import pytest
from kernelscape.codegen.plan import read_plan
from kernelscape.experiments.cases import library_cases
from kernelscape.experiments.checking import random_candidate
from kernelscape.kernels.accesses import task_reads
from kernelscape.kernels.language import kernel, types
from kernelscape.kernels.library import load, names
from kernelscape.kernels.normalise import normalise
from kernelscape.kernels.sequence import record_sequence
from kernelscape.space import choices as ch
from kernelscape.space import cpsat
from kernelscape.space.backbone import MID, OUTER, index_loops, written_arrays
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.constraints import build_space
from kernelscape.space.decisions import restore
from kernelscape.space.gpu_facts import adds_to_result, row_order
from kernelscape.space.target import CacheLevel, Target

GPU = Target(
    backend="cuda",
    name="some GPU",
    cores=8,
    vector_bytes=16,
    vector_registers=63,
    levels=(CacheLevel(name="L2", capacity_bytes=1 << 20, read_bytes_per_ns=100),),
    memory_read_bytes_per_ns=50,
    memory_write_bytes_per_ns=50,
    memory_mixed_bytes_per_ns=50,
    f32_flops_per_ns=1000,
    f64_flops_per_ns=500,
    launch_ns=1000,
    barrier_ns=10,
    call_ns=1,
    architecture="sm_90",
    max_threads_per_block=256,
    registers_per_core=1 << 16,
    shared_bytes_per_block=16 << 10,
)
N_LIBRARY = len(names())
SMALL, LARGE = 4, 6  # which sizes


def problem_of(name, sizes=SMALL):
    cases = islice(library_cases(), sizes * N_LIBRARY, (sizes + 1) * N_LIBRARY)
    return next(c.problem for c in cases if c.name.split()[0] == name)


@pytest.fixture(scope="module")
def plans():
    """Random candidates of every library sequence, with their plans."""
    found = []
    rng = np.random.default_rng(0)
    for name in names():
        space = build_space(problem_of(name), GPU)
        root = space.root()
        assert isinstance(root, Candidate), root
        for _ in range(18):
            made = random_candidate(root, rng)
            if isinstance(made, Candidate):
                assert not space.model.violations(made.assignment())
                found.append((made, read_plan(made)))
    assert len(found) > 16 * N_LIBRARY
    return found


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
                if is_together(candidate, t.index, u.index):
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
                    assert target not in reads | written_arrays(u.task)
    assert atomic > 10


def test_threads_of_a_task_have_an_order(plans):
    """Each order of two loops occurs, and a register is read by the thread that has it."""
    orders = Counter()
    registers = 0
    for _, plan in plans:
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
    """Of a product whose three loops are all shared out to threads."""
    space = build_space(problem_of("matmul", LARGE), GPU)
    made = space.root()
    for d, var in space.variables.kind.items():
        if d.level == MID:
            made = made.decide(var, 1 << ch.THREAD)
            assert isinstance(made, Candidate), made
    rng = np.random.default_rng(0)
    drawn = [made.random_completion(rng) for _ in range(120)]
    plans = [read_plan(c) for c in drawn if isinstance(c, Candidate)]
    assert {p.tasks[0].threads for p in plans} == set(
        permutations(x.name for x in space.problem.tasks[0].loops)
    )


def test_loops_are_inside_blocks(plans):
    for candidate, plan in plans:
        backbone = candidate.space.backbone
        kinds = candidate.space.variables.kind
        for d in backbone.dims:
            if d.level != OUTER or candidate.value(kinds[d]) != ch.BLOCK:
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


def test_copies_fit_shared_memory(plans):
    staged = 0
    for _, plan in plans:
        for t in plan.tasks:
            sizes = [
                prod(t.loop(name).tile for name in o.loops)
                * t.task.dtype.size_bytes
                * t.stages[o.access.array]
                for o in t.copies
            ]
            staged += len(sizes)
            assert sum(sizes) <= GPU.shared_bytes_per_block
    assert staged > 5


def test_rows_of_copies_are_moved_apart_where_all_banks_take_part(plans):
    seen = Counter()
    for _, plan in plans:
        for t in plan.tasks:
            copied = {o.access.array: o for o in t.copies}
            for array, layout in t.layouts.items():
                if array not in copied:
                    assert layout == "PLAIN"
                    continue
                seen[layout] += 1
                o = copied[array]
                row = t.loop(row_order(o, plan.problem.array(array))[-1]).tile
                assert layout == "PLAIN" or row % 8 == 0
                assert layout != "SWIZZLED" or row & (row - 1) == 0
    assert set(seen) == set(ch.LAYOUT)


def test_a_target_that_gives_more_shared_memory_has_larger_copies():
    copied = {"size(multiply0.i.mid)": "16", "size(multiply0.k.mid)": "8"}
    copied |= {"staged(multiply0.a)": "COPY"}
    little = replace(GPU, shared_bytes_per_block=3 << 10)
    problem = problem_of("matmul", LARGE)
    none, some = (
        restore(build_space(problem, target), copied.items())
        for target in (little, replace(little, shared_bytes_per_block_most=16 << 10))
    )
    assert isinstance(none, DeadEnd) and "in shared memory" in none.why
    assert isinstance(some, Candidate)


@pytest.mark.parametrize(
    ("a", "b", "rows", "columns", "is_there"),
    [
        (None, "COPY", 96, 128, True),  # 8 KiB of the 14 that there are: more than half
        ("COPY", "COPY", 64, 128, True),  # 4 KiB and 8 KiB
        ("COPY", "COPY", 96, 128, False),  # 6 KiB and 8 KiB, and what it takes to align them
        (None, "TWO_STAGES", 96, 128, False),
        ("COPY", "TWO_STAGES", 64, 64, True),
        ("THREE_STAGES", "COPY", 64, 32, False),
    ],
)
def test_copies_share_what_shared_memory_there_is(a, b, rows, columns, is_there):
    """It is counted together, and not divided beforehand between all that might be copied."""
    wanted = {"size(multiply0.k.mid)": "8", "size(multiply0.k.inner)": "1"}
    wanted |= {"size(multiply0.i.mid)": "32", "size(multiply0.i.inner)": str(rows // 32)}
    wanted |= {"size(multiply0.j.mid)": str(columns), "size(multiply0.j.inner)": "1"}
    wanted |= {f"layout(multiply0.{x})": "PLAIN" for x in "ab"}
    wanted |= {f"staged(multiply0.{x})": s or "DIRECT" for x, s in (("a", a), ("b", b))}
    made = restore(build_space(problem_of("matmul", LARGE), GPU), wanted.items())
    assert isinstance(made, Candidate) == is_there, made
    assert not is_there or isinstance(made.complete(), Candidate)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "threads", "why"),
    [
        (np.float32, 8, 16, 32, None),
        (np.float32, 16, 16, 32, "sums of a thread"),  # 256 sums, and 255 registers
        (np.float64, 8, 16, 32, "sums of a thread"),  # of two registers each
        (np.float32, 8, 16, 16, None),
        (np.float32, 8, 16, 64, "sums of a block"),  # 8 * 16 * 8 * 64 = 2^16: nothing is left
        (np.float32, 8, 12, 64, None),
    ],
)
def test_sums_fit_registers(dtype, rows, columns, threads, why):
    wanted = {f"size(multiply0.{x}.inner)": str(n) for x, n in (("i", rows), ("j", columns))}
    wanted |= {f"size(multiply0.{x}.mid)": str(n) for x, n in (("i", 8), ("j", threads))}
    wanted |= {f"dim_kind(multiply0.{x}.mid)": "THREAD" for x in "ij"}
    target = replace(GPU, max_threads_per_block=1024)
    entry = load("matmul")
    args = entry.make_arguments(
        {"m": 512, "n": 2048, "k": 64}, np.dtype(dtype), np.random.default_rng(0)
    )
    problem = normalise(record_sequence(entry.sequence, args, "matmul"))
    made = restore(build_space(problem, target), wanted.items())
    if why is None:
        assert isinstance(made, Candidate), made
    else:
        assert isinstance(made, DeadEnd)
        assert why in made.why
    free = restore(build_space(problem, replace(target, registers_per_core=0)), wanted.items())
    assert isinstance(free, Candidate), free


def test_copies_in_stages_go_from_tile_to_tile(plans):
    seen = Counter()
    for _, plan in plans:
        for t in plan.tasks:
            for o in t.copies:
                stages = t.stages[o.access.array]
                seen[stages] += 1
                assert stages == 1 or not all(t.loop(name).is_parallel for name in o.loops)
    assert seen[2] and seen[3]


def test_what_cannot_copy_asynchronously_has_one_stage():
    old = build_space(problem_of("matmul"), replace(GPU, architecture="sm_75"))
    assert old.variables.staged
    for var in old.variables.staged.values():
        assert int(old.model.initial[var]) == 1 << ch.DIRECT | 1 << ch.COPY


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        (
            "axpy",
            {
                "dim_kind(add_scaled0.i.outer)": "BLOCK",
                "size(add_scaled0.i.mid)": "32",
                "dim_kind(add_scaled0.i.mid)": "THREAD",
                "dim_kind(add_scaled0.i.inner)": "VECTOR",
                "cache(add_scaled0.z)": "STREAM",
                "cache(x->add_scaled0)": "STREAM",
                "cache(y->add_scaled0)": "READ_ONLY",
            },
        ),
        (
            "bicgk",
            {
                "fused(gemv0,add_gemvt0)": "SAME_LAUNCH",
                "reduction(gemv0.j.mid)": "TREE",
                "reduction(add_gemvt0.i.outer)": "PARTIALS",
            },
        ),
        (
            "axpydot",
            {
                "fused(subtract_scaled0,dot0)": "SAME_LAUNCH",
                "mem_space(subtract_scaled0->dot0.z)": "REGISTER",
                "reduction(dot0.i.outer)": "PARTIALS",
                "reduction(dot0.i.mid)": "TREE",
            },
        ),
        (
            "axpydot",
            {
                "fused(subtract_scaled0,dot0)": "SAME_LAUNCH",
                "reduction(dot0.i.outer)": "ATOMIC",
                "reduction(dot0.i.mid)": "TREE",
            },
        ),
        (
            "gemver",
            {
                "dim_kind(add_two_outer0.i.mid)": "THREAD",
                "dim_kind(add_two_outer0.j.mid)": "THREAD",
                "thread_level(add_two_outer0.i.mid,add_two_outer0.j.mid)": "OUTER",
                "thread_level(add_scaled_gemvt0.i.mid,add_scaled_gemvt0.j.mid)": "INNER",
                "fused(add_two_outer0,add_scaled_gemvt0)": "SAME_LAUNCH",
                "order(add_two_outer0.i.outer,add_scaled_gemvt0.i.outer)": "MERGED",
                "order(add_two_outer0.j.outer,add_scaled_gemvt0.j.outer)": "MERGED",
            },
        ),
        (
            "matmul",
            {
                "staged(multiply0.a)": "COPY",
                "staged(multiply0.b)": "THREE_STAGES",
                "dim_kind(multiply0.i.mid)": "THREAD",
                "dim_kind(multiply0.j.mid)": "THREAD",
                "dim_kind(multiply0.k.mid)": "LOOP",
            },
        ),
    ],
)
def test_known_implementations_are_in_the_space(name, decisions):
    made = restore(build_space(problem_of(name, LARGE), GPU), decisions.items())
    assert isinstance(made, Candidate), made
    assert isinstance(made.complete(), Candidate)


@pytest.mark.parametrize(
    ("name", "decisions"),
    [
        (
            "axpydot",
            {
                "mem_space(subtract_scaled0->dot0.z)": "REGISTER",
                "dim_kind(dot0.i.mid)": "THREAD",
                "dim_kind(subtract_scaled0.i.mid)": "LOOP",
            },
        ),
        (
            "gemver",
            {
                "mem_space(add_two_outer0->add_scaled_gemvt0.b)": "REGISTER",
                "thread_level(add_two_outer0.i.mid,add_two_outer0.j.mid)": "OUTER",
                "thread_level(add_scaled_gemvt0.i.mid,add_scaled_gemvt0.j.mid)": "INNER",
            },
        ),
        (
            "atax",
            {"fused(gemv0,add_gemvt0)": "SAME_LAUNCH", "reduction(gemv0.j.outer)": "PARTIALS"},
        ),
        (
            "matmul",
            {
                "staged(multiply0.a)": "TWO_STAGES",
                "dim_kind(multiply0.i.outer)": "BLOCK",
                "dim_kind(multiply0.k.outer)": "BLOCK",
            },
        ),
        (
            "matmul",
            {"staged(multiply0.b)": "TWO_STAGES", "cache(b->multiply0)": "STREAM"},
        ),
        (
            "matmul",
            {
                "dim_kind(multiply0.k.outer)": "LOOP",
                "dim_kind(multiply0.i.outer)": "BLOCK",
                "order(multiply0.i.outer,multiply0.k.outer)": "INNER",
            },
        ),
    ],
)
def test_wrong_implementations_are_not(name, decisions):
    assert isinstance(restore(build_space(problem_of(name), GPU), decisions.items()), DeadEnd)


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
            writers = [u.index for u in plan.tasks if array in written_arrays(u.task)]
            if hint == ch.READ_ONLY:
                assert t not in writers
                assert not any(is_together(candidate, t, u) for u in writers)
    assert min(seen[hint] for hint in range(len(ch.LOAD_CACHE))) > 20


@pytest.mark.parametrize(
    ("name", "wanted", "forbidden"),
    [
        (
            "matmul",
            {
                "staged(multiply0.a)": "THREE_STAGES",
                "layout(multiply0.a)": "SWIZZLED",
                "reduction(multiply0.k.mid)": "TREE",
                "thread_level(multiply0.i.mid,multiply0.k.mid)": "INNER",
            },
            {"cache(a->multiply0)": "CG"},
        ),
        (
            "axpydot",
            {
                "reduction(dot0.i.outer)": "ATOMIC",
                "fused(subtract_scaled0,dot0)": "SAME_LAUNCH",
                "cache(z->dot0)": "READ_ONLY",
            },
            None,
        ),
    ],
)
def test_the_solver_knows_the_same_rules(name, wanted, forbidden):
    """CP-SAT, made from the same declarations, completes what is possible and refuses what is not."""
    space = build_space(problem_of(name, LARGE), GPU)
    domains = space.model.initial.copy()

    def decide(decisions):
        for choice, value in decisions.items():
            var = space.model.positions[choice]
            space.model.narrow(domains, var, 1 << space.choices[var].values.index(value))

    decide(wanted)
    if forbidden is None:  # what a task of the launch writes is not read-only
        assert not cpsat.has_solution(space, domains)
        return
    found = cpsat.complete(space, domains, {}, 20.0)
    assert found is not None
    made = space.candidate(found)
    assert isinstance(made, Candidate) and not space.model.violations(made.assignment())
    decide(forbidden)
    assert not cpsat.has_solution(space, domains)


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


@pytest.mark.parametrize("name", names())
def test_what_a_sequence_can_use_is_drawn(name):
    """Each way to reduce, stage, load and hint, for every task of the library that has any use for it."""
    space = build_space(problem_of(name, LARGE), replace(GPU, shared_bytes_per_block=64 << 10))
    root = space.root()
    assert isinstance(root, Candidate)
    v, rng = space.variables, np.random.default_rng(4)
    seen = Counter()
    for _ in range(80):
        made = random_candidate(root, rng)
        for t in read_plan(made).tasks if isinstance(made, Candidate) else ():
            seen["TREE"] += t.has_tree
            seen["PARTIALS"] += t.partials
            seen["ATOMIC"] += t.is_atomic
            seen.update(t.stages[o.access.array] for o in t.copies)
            seen.update(t.load_hints.values())
            lanes = GPU.lanes(t.task.dtype.size_bytes)
            seen.update(f"vectors of {gcd(p.inner, lanes)}" for p in t.loops if p.is_vector)
    written = {array for t in space.problem.tasks for array in written_arrays(t)}
    wanted = ["CG", "STREAM", "vectors of 2"] if v.load_cache else []
    wanted += ["READ_ONLY"] if any(array not in written for _, array in v.load_cache) else []
    tasks = [t for t in space.problem.tasks if t.opaque is None]
    if any(t.is_reduction and t.fast_math for t in tasks):
        wanted += ["TREE", "PARTIALS", "ATOMIC"]
    if any(t.dtype.size_bytes == 4 for t in tasks):
        wanted.append("vectors of 4")
    reused = any(
        len(index_loops(access)) in range(1, len(t.loops))
        for t in tasks
        for access, in_finish in task_reads(t)
        if not in_finish and t.is_reduction and access.array not in written_arrays(t)
    )
    assert not reused or v.staged
    wanted += [1, 2, 3] if v.staged else []
    assert not [x for x in wanted if not seen[x]], seen
