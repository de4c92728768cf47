"""Parts of loops for threads, and sums that lie where results are stored."""

from __future__ import annotations

from itertools import product
from math import ceil

import numpy as np
import pytest
from kernelscape.codegen.loops.ir import Owner, Schedule, loops_in
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.syntax import names_in, program_of

from .packed_cases import decided, inputs_of, recorded

# What is summed is outermost, threads share the rows inside: each thread packs B once.
DEPTH_FIRST = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "schedule(multiply0.i.outer)": "BLOCKED",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.j.outer)": "LOOP",
    "size(multiply0.i.inner)": "6",
    "size(multiply0.j.inner)": "8",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.j.mid)": "8",
    "size(multiply0.k.mid)": "8",
    "size(multiply0.k.inner)": "1",
    "staged(multiply0.a)": "COPY",
    "staged(multiply0.b)": "COPY",
    "order(multiply0.j.outer,multiply0.k.outer)": "INNER",
    "order(multiply0.i.outer,multiply0.j.outer)": "INNER",
    "order(multiply0.j.mid,multiply0.k.mid)": "OUTER",
    "order(multiply0.i.mid,multiply0.j.mid)": "INNER",
    "order(multiply0.i.mid,multiply0.k.mid)": "OUTER",
}


def shared_loops(candidate):
    """The loops of the first launch that threads share out in blocks."""
    launch = launches_of(plan_of(candidate), candidate.space.target)[0]
    return [n for n in loops_in(launch.nodes) if n.schedule is Schedule.BLOCKED]


@pytest.mark.parametrize("cores", [2, 3])
@pytest.mark.parametrize(("rows", "tiles"), [(1024, 16), (1000, 32), (200, 32), (97, 8)])
def test_threads_get_register_tiles_where_whole_blocks_are_uneven(rows, tiles, cores):
    recording, _ = recorded("matmul", np.float32, m=rows, n=64, k=32)
    made = decided(recording, DEPTH_FIRST | {"size(multiply0.i.mid)": str(tiles)}, cores)
    (loop,) = shared_loops(made)
    assert loop.unit % 6 == 0
    assert loop.step % loop.unit == 0
    busiest = ceil(ceil(rows / loop.unit) / cores) * loop.unit
    assert busiest <= max(1.02 * ceil(ceil(rows / 6) / cores) * 6, 6)


def test_blocks_stay_whole_where_they_share_out_evenly():
    recording, _ = recorded("matmul", np.float32, m=384, n=64, k=32)
    made = decided(recording, DEPTH_FIRST | {"size(multiply0.i.mid)": "16"}, 2)
    assert [n.unit for n in shared_loops(made)] == [96]


@pytest.mark.compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_of_blocks_compute_the_same(tmp_path, dtype):
    works = []
    for sizes, tiles in product(((200, 64, 40), (121, 67, 50), (97, 9, 13)), ("4", "16")):
        recording, args = recorded("matmul", dtype, **dict(zip("mnk", sizes, strict=True)))
        made = decided(recording, DEPTH_FIRST | {"size(multiply0.i.mid)": tiles}, 3)
        works.append((checking.source_of(made), inputs_of(recording, args)))
    ways = Way(repeats=3), Way(repeats=2, thread_limit=2)
    assert not checking.fault_of_any(works, tmp_path, *ways, may_warn=True)


def sums_of(recording, made):
    launches = launches_of(plan_of(made), made.space.target)
    return {t: acc for launch in launches for t, acc in launch.accumulators.items()}


def test_sums_in_memory_are_the_results_themselves():
    recording, _ = recorded("matmul", np.float32, m=96, n=64, k=32)
    made = decided(recording, DEPTH_FIRST | {"size(multiply0.i.mid)": "4"}, 2)
    assert sums_of(recording, made)[0].in_result
    assert "c_sum" not in names_in(program_of(made))


def test_results_that_are_read_in_the_launch_have_sums_of_their_own():
    """The second product reads what the first one sums up: until it is finished nobody may see it."""

    def two_products(a, b, c, d):
        multiply(a, b, c)
        multiply(c, b, d)

    rng = np.random.default_rng(0)
    args = [rng.uniform(-1, 1, (64, 64)).astype(np.float32) for _ in range(4)]
    recording = record_sequence(two_products, args, "two_products")
    both = {"fused(multiply0,multiply1)": "SAME_LAUNCH"}
    last = {key.replace("multiply0", "multiply1"): value for key, value in DEPTH_FIRST.items()}
    last = {key.replace("multiply1.a", "multiply1.c"): value for key, value in last.items()}
    made = decided(recording, DEPTH_FIRST | both | last, 2)
    assert [acc.in_result for _, acc in sorted(sums_of(recording, made).items())] == [False, True]


def test_results_that_are_finished_otherwise_have_sums_of_their_own():
    entry = load("sgemv")
    args = entry.make_arguments({"m": 64, "n": 64}, np.dtype("f4"), np.random.default_rng(0))
    recording = record_sequence(entry.sequence, args, "sgemv")
    space = build_space(normalise(recording), checking.target(2, 32))
    rng = np.random.default_rng(1)
    drawn = [checking.random_candidate(space.root(), rng) for _ in range(30)]
    found = [
        acc for c in drawn if isinstance(c, Candidate) for acc in sums_of(recording, c).values()
    ]
    assert any(acc.in_memory and acc.owner in (Owner.TEAM, Owner.THREAD) for acc in found)
    assert not any(acc.in_result for acc in found)
