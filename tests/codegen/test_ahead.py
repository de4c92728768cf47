"""Operands that are packed ahead: every shape computes the same, every slice is packed once, and every line of it is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.loops.ir import (
    OpenBlock,
    PackFirstBlock,
    PackRest,
    Schedule,
    loop_of,
    loops_in,
)
from kernelscape.codegen.passes.packing import iterations
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import choices as ch
from kernelscape.space.backbone import MID, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.testing import checking, syntax
from kernelscape.testing.checking import Way
from kernelscape.testing.syntax import loops

from .packed_cases import decided, inputs_of, random_copies, recorded

CANDIDATES = 4

# A thread packs blocks of 16 x 12 elements of A while it uses the one before, in register tiles of 4 rows by 8 columns.
PRODUCT = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.j.outer)": "LOOP",
    "size(multiply0.i.mid)": "4",
    "size(multiply0.i.inner)": "4",
    "size(multiply0.j.mid)": "4",
    "size(multiply0.j.inner)": "8",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.k.mid)": "4",
    "size(multiply0.k.inner)": "3",
    "staged(multiply0.a)": "TWO_STAGES",
    "staged(multiply0.b)": "DIRECT",
    "order(multiply0.i.outer,multiply0.k.outer)": "OUTER",
    "order(multiply0.k.outer,multiply0.j.outer)": "OUTER",
    "order(multiply0.j.outer,multiply0.j.mid)": "OUTER",
    "order(multiply0.j.mid,multiply0.i.mid)": "OUTER",
    "order(multiply0.i.mid,multiply0.k.mid)": "OUTER",
}
# The loop from block to block is the one that is shared out: each thread packs ahead in its own part of it.
IN_PARTS = {
    **PRODUCT,
    "order(multiply0.i.outer,multiply0.k.outer)": "INNER",
    "order(multiply0.i.outer,multiply0.j.outer)": "INNER",
}
# Threads share out what is summed, and each packs ahead in its part.
OF_PARTIALS = {
    **PRODUCT,
    "dim_kind(multiply0.i.outer)": "LOOP",
    "dim_kind(multiply0.k.outer)": "PARALLEL",
}
BESIDE_TEAM = {**IN_PARTS, "staged(multiply0.b)": "COPY", "packed_by(multiply0.b)": "TEAM"}
BOTH_AHEAD = {**PRODUCT, "staged(multiply0.b)": "TWO_STAGES"}
# So many iterations of the innermost loop that it runs in strips.
IN_STRIPS = {**PRODUCT, "size(multiply0.k.mid)": "64", "size(multiply0.k.inner)": "1"}
SUMS_AHEAD = {
    **IN_PARTS,
    "staged(multiply0.a)": "COPY",
    "prefetch_accumulators(multiply0.c)": "AHEAD",
}
SIZES = {
    "matmul": ((64, 64, 48), (61, 67, 50)),
    "matmul_strided": ((166, 20, 30), (61, 67, 50), (7, 9, 13)),
}
NESTS = {
    "of_all": PRODUCT,
    "in_parts": IN_PARTS,
    "of_partials": OF_PARTIALS,
    "beside_team": BESIDE_TEAM,
    "both_ahead": BOTH_AHEAD,
}


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "sizes", "dtype"),
    [
        ("matmul", {"m": 61, "n": 130, "k": 9}, np.float64),
        ("matmul", {"m": 64, "n": 96, "k": 128}, np.float32),
        ("matmul_strided", {"m": 33, "n": 47, "k": 65}, np.float32),
        ("matmul_strided", {"m": 33, "n": 47, "k": 65}, np.float64),
        ("matmul_strided", {"m": 5, "n": 3, "k": 2}, np.float32),
        ("matmul_strided", {"m": 96, "n": 33, "k": 200}, np.float64),
    ],
)
def test_what_is_packed_ahead_computes_the_same(tmp_path, name, sizes, dtype):
    """Partial tiles and blocks, one block only, teams smaller than planned, called twice."""
    recording, args = recorded(name, dtype, **sizes)
    candidates = random_copies(
        recording, {"staged": ch.TWO_STAGES}, CANDIDATES, 2, sum(sizes.values())
    )
    assert len(candidates) == CANDIDATES
    for candidate in candidates:
        launches = launches_of(plan_of(candidate), candidate.space.target)
        assert any(launch.buffers for launch in launches)
    sources = [checking.crowded_source_of(c) for c in candidates]
    flags = checking.PLAINLY if name == "matmul_strided" else ()
    ways, inputs = (Way(), Way(repeats=2, thread_limit=1)), inputs_of(recording, args)
    assert not checking.fault(sources, inputs, tmp_path, *ways, more_flags=flags)


def product(name="matmul", wanted=PRODUCT, cores=2, **sizes):
    recording, args = recorded(name, np.float32, **sizes)
    return decided(recording, wanted, cores), recording, args


@pytest.mark.compiler
@pytest.mark.parametrize("cores", [2, 5])
@pytest.mark.parametrize("wanted", NESTS.values(), ids=NESTS)
@pytest.mark.parametrize("name", ["matmul", "matmul_strided"])
def test_a_block_is_packed_while_the_one_before_is_used(tmp_path, name, wanted, cores):
    """Also where a thread's part begins inside a block of the loop or is empty, and where a team is smaller than planned."""
    made = [
        product(name, wanted, cores, **dict(zip("mnk", sizes, strict=True)))
        for sizes in SIZES[name][1 if cores > 2 else 0 :]
    ]
    works = [(checking.crowded_source_of(c), inputs_of(*given)) for c, *given in made]
    ways, flags = (Way(), Way(repeats=2, thread_limit=1)), checking.level(len(works))
    assert not checking.fault_of_any(works, tmp_path, *ways, may_warn=True, more_flags=flags)


def test_all_blocks_but_the_first_of_a_part_are_packed_ahead():
    candidate, _, _ = product("matmul_strided", IN_PARTS, m=64, n=64, k=48)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, candidate.space.target)
    assert launch.buffers[0, "a"].holder == "i"
    lists = [launch.nodes, *(n.children for n in loops_in(launch.nodes))]
    (beside,) = (x for x in lists if any(isinstance(n, PackFirstBlock) for n in x))
    at = next(k for k, n in enumerate(beside) if isinstance(n, PackFirstBlock))
    holder = beside[at + 1]
    assert holder.schedule is Schedule.BLOCKED
    assert loop_of(holder, 0) == "i"
    assert isinstance(holder.children[0], OpenBlock)
    assert isinstance(holder.children[-1], PackRest)


def test_slices_are_one_for_each_register_tile_and_all_their_lines_are_asked_for():
    candidate, _, _ = product("matmul_strided", m=64, n=64, k=48)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, candidate.space.target)
    made = launch.buffers[0, "a"]
    assert (made.holder, made.across, made.along) == ("k", "i", "k")
    # 4 x 2 register tiles of 8 columns for each of 4 rows of tiles: 8 slices of each, of 3 columns at least (k.inner).
    assert made.chunk * made.chunks >= 12
    assert made.chunk % 3 == 0
    asked = made.in_strips
    assert asked is not None
    assert (asked.across.count, asked.along.count) == (4, made.chunk)
    (inner,) = (n for n in loops_in(launch.nodes) if n.strips)
    assert inner.strips.length >= iterations(plan, inner) == 4  # which are too few for two strips
    # Each has one element of a block and is read once: it is to drive nothing else out of the second cache.
    places = syntax.prefetches(syntax.program_of(candidate), 0)
    assert [syntax.array_of(place) for place in places] == ["a"] * 4 * made.chunk


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"size(multiply0.k.mid)": "32"},
        {"staged(multiply0.b)": "TWO_STAGES"},
        {"staged(multiply0.b)": "TWO_STAGES", "size(multiply0.i.mid)": "32"},
    ],
    ids=["a", "short", "both", "few_of_b"],
)
def test_every_line_is_asked_for_once_and_a_register_tile_early(more):
    """Each strip packs a slice, and asks for the lines of the one that is packed so many strips later as a register tile has."""
    candidate, _, _ = product("matmul_strided", IN_STRIPS | more, m=128, n=64, k=256)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, candidate.space.target)
    program = syntax.program_of(candidate)
    depth = int((IN_STRIPS | more)["size(multiply0.k.mid)"])
    strip = next((x.step for x in loops(program) if x.var == "k_strip"), depth)
    branches = [n for n in syntax.nodes(program) if isinstance(n, c.If)]
    first_sum = syntax.sums(program, "c_acc_")[0]
    assert strip >= 8
    for (_, name), made in launch.buffers.items():
        row, column = {"a": (256 * 32, 32), "b": (1, 64)}[name]  # elements to the next
        current, n_slices = c.Id(f"{name}_slice"), c.Id(f"{name}_slices")
        early = c.Bin("<", c.add(current, c.number(-(-depth // strip))), n_slices)
        (asking,) = (n for n in branches if n.condition == early)
        places = syntax.prefetches(asking.then)
        assert {syntax.array_of(place) for place in places} == {name}
        offsets = [c.flatten(place.x.index)[1] for place in places]
        lines = made.in_strips
        wanted = {
            r * row + k * column
            for r in range(lines.across.count)
            for k in range(lines.along.count)
        }
        assert sorted(offsets) == sorted(wanted)
        # The lines of two slices are not the same: a slice has whole lines, or is the whole block along that loop.
        assert lines.along.count * lines.along.apart == made.chunk or made.chunks == 1
        (packed,) = (n for n in branches if n.condition == c.Bin("<", current, n_slices))
        assert c.Assign(current, c.Num("1"), "+") in packed.then
        # Between two strips, not behind the register tile.
        assert syntax.is_before(program, packed, first_sum) and not syntax.sums(packed, "c_acc_")


@pytest.mark.parametrize("wanted", [PRODUCT, IN_PARTS, IN_STRIPS, BOTH_AHEAD])
def test_no_iteration_of_the_innermost_loop_asks(wanted):
    """A test in that loop takes as long as what it computes."""
    candidate, _, _ = product("matmul_strided", wanted, m=64, n=64, k=256)
    program = syntax.program_of(candidate)
    computing = [x for x in syntax.innermost(program) if syntax.sums(x, "c_acc")]
    assert computing
    assert syntax.prefetches(program)
    assert not any(syntax.prefetches(x) for x in computing)


@pytest.mark.compiler
def test_one_thread_packs_ahead_in_a_loop_that_all_go_through(tmp_path):
    """It alone computes one of two products, of which another shares the loop from block to block and is for all threads."""
    rng = np.random.default_rng(0)
    shapes = ((16, 24), (24, 16), (24, 16), (16, 16), (16, 16))
    args = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    recording = record_sequence(two_products, args, "two")
    loops = {f"dim_kind(multiply{t}.{name}.outer)": "LOOP" for t in (0, 1) for name in "ijk"}
    wanted = {
        **loops,
        "dim_kind(multiply1.i.outer)": "PARALLEL",
        "fused(multiply0,multiply1)": "SAME_LAUNCH",
        "size(multiply0.i.mid)": "4",
        "size(multiply0.k.mid)": "4",
        "staged(multiply0.a)": "TWO_STAGES",
        "order(multiply0.k.outer,multiply1.k.outer)": "MERGED",
        "order(multiply0.k.outer,multiply0.i.outer)": "OUTER",
        "order(multiply0.k.outer,multiply0.j.outer)": "OUTER",
    }
    candidate = decided(recording, wanted, 2)
    source = checking.crowded_source_of(candidate)
    alone = c.Bin("==", c.Id("tid"), c.Num("0"))
    assert any(
        isinstance(n, c.If) and n.condition == alone
        for n in syntax.nodes(syntax.program_of(candidate))
    )
    (built,) = checking.build_all([source], tmp_path, "two")
    assert built.library is not None, built.log
    assert checking.check(built, inputs_of(recording, args), Way(), Way(thread_limit=1)) == ""


def two_products(a, b, e, c, d):
    multiply(a, b, c)
    multiply(a, e, d)


def test_neighbours_share_the_lines_that_are_asked_for():
    candidate, _, _ = product("matmul", m=64, n=64, k=48)
    plan = plan_of(candidate)
    asked = launches_of(plan, candidate.space.target)[0].buffers[0, "a"].in_strips
    assert asked is not None
    assert (asked.along.count, asked.along.apart) == (1, 16)
    program = syntax.program_of(candidate)
    assert len(syntax.prefetches(program, 2)) == 4  # of each row one
    assert not any(x.var.endswith("_strip") for x in loops(program))


@pytest.mark.parametrize("has_schedules", [True, False])
def test_each_thread_goes_from_block_to_block_by_itself(has_schedules):
    """Threads are around the loop that the blocks of A follow one another in, or it is shared out in blocks to them."""
    recording, _ = recorded("matmul", np.float32, m=64, n=64, k=48)
    target = checking.target(2, 32)
    roomy = tuple(replace(x, capacity_bytes=1 << 20) for x in target.levels)
    target = target if has_schedules else replace(target, levels=roomy)
    space = build_space(normalise(recording), target)
    v = space.variables
    assert bool(v.schedule) == has_schedules
    operand = next(o for o in v.staged if o.access.array == "a")
    rng = np.random.default_rng(3)
    root = space.root().decide(v.staged[operand], 1 << ch.TWO_STAGES)
    assert isinstance(root, Candidate)
    n_around = n_parts = 0
    for _ in range(100):
        made = root.random_completion(rng)
        if isinstance(made, DeadEnd):
            continue
        dims = {name: space.backbone.dim(0, name, OUTER) for name in "ijk"}
        blocks = [dims["i"], dims["k"]]
        for d in dims.values():
            if made.value(v.kind[d]) != ch.PARALLEL:
                continue
            inside = [x for x in blocks if x is not d]
            orders = [made.value(space.model.order(d.order_id, x.order_id)) for x in inside]
            if ch.OUTSIDE in orders:
                n_around += 1
            else:
                n_parts += 1
                assert d in blocks
                assert not has_schedules or made.value(v.schedule[d]) == ch.BLOCKED
    assert n_around > 5
    assert n_parts > 5


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["matmul", "matmul_strided"])
def test_lines_of_sums_are_asked_for_before_a_register_tile_is_added_to_them(tmp_path, name):
    """Each once, where the tile is whole; what is computed is the same."""
    shapes = ((288, 1024, 96), (290, 1023, 50))
    made = [
        product(name, SUMS_AHEAD, 2, **dict(zip("mnk", shape, strict=True))) for shape in shapes
    ]
    for candidate, _, _ in made:
        program = syntax.program_of(candidate)
        asked = syntax.prefetches(program, 3)
        # Register tiles of 4 rows by 8 columns of 4 bytes: half a line each.
        assert len(asked) == len(set(asked)) == 4
        assert {syntax.array_of(place) for place in asked} == {
            "c"
        }  # which is where they are added up
        to_write = [x for x in syntax.calls(program, c.PREFETCH) if x.args[1] == c.Num("1")]
        assert [x.args[0] for x in to_write] == asked
        assert syntax.is_before(program, to_write[0], syntax.sums(program, "c_acc_")[0])
    works = [(checking.crowded_source_of(c), inputs_of(*given)) for c, *given in made]
    assert not checking.fault_of_any(works, tmp_path, Way(repeats=2), may_warn=True)


def test_sums_are_asked_for_only_where_they_are_in_memory():
    candidate, _, _ = product(wanted=SUMS_AHEAD, m=288, n=1024, k=96)
    space = candidate.space
    (var,) = space.variables.prefetch_accumulators.values()
    outer = {name: space.backbone.dim(0, name, OUTER).order_id for name in "ijk"}
    root = space.root().decide(var, 1 << ch.SUMS_AHEAD)
    mids = {d: x for d, x in space.variables.kind.items() if d.level == MID}
    for x in mids.values():
        root = root.decide(x, 1 << ch.ABSENT)
    for name in "ij":
        root = (
            root
            if isinstance(root, DeadEnd)
            else root.decide(space.model.order(outer["k"], outer[name]), 1 << ch.INSIDE)
        )
    assert isinstance(root, DeadEnd)
