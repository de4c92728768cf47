"""Resources of a multiprocessor that a block takes: copies in shared memory and their stages, values, and sums in registers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax
from kernelscape.kernels.frontend.kernel import kernel, template, types
from kernelscape.kernels.frontend.recorder import ndarray, record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import restore
from kernelscape.space.families.block_memory import SLACK_BYTES
from kernelscape.space.families.packing import rows_of_layout
from kernelscape.space.targets.gpu_facts import row_order, tree_bytes

from .gpu_target import GPU, LARGE, problem_of


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
                is_transposed, gap = rows_of_layout(layout)
                order = row_order(o, plan.problem.array(array), is_transposed=is_transposed)
                row = t.loop(order[-1]).tile
                assert gap == "PLAIN" or row % 8 == 0
                assert gap != "SWIZZLED" or row & (row - 1) == 0
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


N = 1000  # elements of a value that fits into shared memory as a whole


@kernel
def put(x: types.ndarray(), t: types.ndarray(), first: template(), step: template()):
    for i in range(x.shape[0]):
        t[first + step * i] = 2 * x[i]


@kernel
def take(t: types.ndarray(), y: types.ndarray(), first: template(), step: template()):
    for i in range(y.shape[0]):
        y[i] += t[first + step * i]


@kernel
def put_column(x: types.ndarray(), t: types.ndarray()):
    for i in range(x.shape[0]):
        t[i, 1] = 2 * x[i]


@kernel
def take_column(t: types.ndarray(), y: types.ndarray()):
    for i in range(y.shape[0]):
        y[i] += t[i, 1]


def forward(x, y, z):
    t = ndarray(np.float32, (N,), name="t")
    put(x, t, 0, 1)
    take(t, y, 0, 1)


def two_readers(x, y, z):
    t = ndarray(np.float32, (N,), name="t")
    put(x, t, 0, 1)
    take(t, y, 0, 1)
    take(t, z, 0, 1)


def backward(x, y, z):
    t = ndarray(np.float32, (N,), name="t")
    put(x, t, N - 1, -1)
    take(t, y, N - 1, -1)


def column(x, y, z):
    t = ndarray(np.float32, (N, 2), name="t")
    put_column(x, t)
    take_column(t, y)


def shared_elements(candidate):
    """Sizes of the arrays that the kernels of a candidate have in shared memory."""
    bodies = [f.body for f in lower(plan_of(candidate)).functions]
    return [
        s.extent
        for body in bodies
        for s in body
        if isinstance(s, csyntax.Declare) and s.is_shared and s.name != "meeting"
    ]


def kept(sequence, orders, shared_bytes):
    """A sequence whose value is in shared memory, of which there is so much for what a block keeps; the order of its loop to those
    of its readers.
    """
    arrays = [np.zeros(N, np.float32) for _ in range(3)]
    problem = normalise(record_sequence(sequence, arrays, "kept"))
    little = tree_bytes(GPU.max_threads_per_block) + shared_bytes
    space = build_space(problem, replace(GPU, shared_bytes_per_block=little))
    writer, *readers = (t.name for t in problem.tasks)
    wanted = {f"mem_space({writer}->{r}.t)": "SHARED" for r in readers}
    for r, order in zip(readers, orders, strict=True):
        wanted |= {f"order({writer}.i.outer,{r}.i.outer)": order}
    made = restore(space, wanted.items())
    return made.complete() if isinstance(made, Candidate) else made


@pytest.mark.parametrize(
    ("sequence", "orders"),
    [
        (forward, ["BEFORE"]),
        (two_readers, ["BEFORE", "BEFORE"]),
        (two_readers, ["BEFORE", "MERGED"]),
        (two_readers, ["MERGED", "BEFORE"]),
    ],
)
def test_a_small_value_is_there_once_for_all_its_readers(sequence, orders):
    """An array is kept whole if some reader does not share the loop that writes it."""
    needed = 4 * N + SLACK_BYTES
    made = kept(sequence, orders, needed)
    assert isinstance(made, Candidate)
    assert shared_elements(made) == [N]
    assert isinstance(kept(sequence, orders, needed - 1), DeadEnd)


@pytest.mark.parametrize("n_elements", [16, 128])
def test_readers_that_share_the_loop_have_one_tile(n_elements):
    """The tile takes what there is and no more, however long the value is."""
    made = kept(two_readers, ["MERGED", "MERGED"], 4 * n_elements + SLACK_BYTES)
    assert isinstance(made, Candidate)
    (found,) = shared_elements(made)
    assert found <= n_elements


@pytest.mark.parametrize(
    ("sequence", "needed", "is_tile_enough"),
    [
        (forward, 4 * N + SLACK_BYTES, True),
        (two_readers, 4 * N + SLACK_BYTES, True),
        (backward, 4 * N + SLACK_BYTES, False),
        (column, 2 * 4 * N + SLACK_BYTES, False),
    ],
)
def test_a_tile_has_room_for_whole_axes_unless_each_is_one_loop(sequence, needed, is_tile_enough):
    """An axis that is constant, or that a loop strides along or runs down, is there as a whole, though the loops are shared."""
    orders = ["MERGED"] * (2 if sequence is two_readers else 1)
    assert isinstance(kept(sequence, orders, needed), Candidate)
    assert isinstance(kept(sequence, orders, needed - 1), Candidate) == is_tile_enough


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
