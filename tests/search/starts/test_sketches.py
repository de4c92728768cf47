"""First candidates: complete, different, and what their tags say."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import names
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.starts.complete import (
    NO_VALUE,
    complete_sketch,
    default_preference,
    first_candidates,
    greedy_preference,
    sketched_candidates,
)
from kernelscape.search.starts.proposals import default_sketch, greedy_sketch, sketches
from kernelscape.search.starts.roles import find_roles
from kernelscape.search.starts.sketches import Along, Axis, CopyInputs, Packing, Sketch, TileSizes
from kernelscape.search.starts.tiles import product_tile, register_tiles
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.targets.target import CacheLevel, Target
from kernelscape.testing.machines import library_space, root_of, round_target
from kernelscape.testing.violations import violations
from kernelscape.tests.space.gpu_target import GPU


@cache
def space_of(name: str) -> Space:
    return library_space(name, n=512) if name not in ("axpydot", "vadd") else library_space(name)


@pytest.mark.parametrize("name", names())
def test_first_candidates_are_complete_and_different(name: str) -> None:
    space = space_of(name)
    found = first_candidates(space, cpsat_seconds=0.5)
    assert found[0][0] == "default"
    assert len(found) >= 4
    assert len({c.key for _, c in found}) == len({tag for tag, _ in found}) == len(found)
    for _, candidate in found:
        assert candidate.is_complete
        assert violations(space.model, candidate.assignment()) == []


def test_the_default_is_what_a_plain_compiler_does() -> None:
    space = space_of("bicgk")
    default = dict(first_candidates(space, cpsat_seconds=0.5))["default"]
    v = space.variables
    assert all(default.value(var) == ch.SEPARATE for var in v.fused.values())
    kinds = {d.name: ch.DIM_KIND[default.value(var)] for d, var in v.kind.items()}
    outer = {d.name: kinds[d.name] for d in v.kind if d.level == OUTER}
    inner = {d.name: kinds[d.name] for d in v.kind if d.level == INNER}
    assert sorted(outer.values()) == ["LOOP", "LOOP", "PARALLEL", "PARALLEL"]
    assert sorted(inner.values()) == ["ABSENT", "ABSENT", "VECTOR", "VECTOR"]
    assert {name for name, kind in outer.items() if kind == "PARALLEL"} == {
        "gemv0.i.outer",
        "add_gemvt0.i.outer",
    }
    assert all(default.value(var) == ch.CACHED for var in v.cache.values())


@pytest.mark.parametrize("name", ["bicgk", "atax", "gemver", "sgemvt", "axpydot", "vadd"])
def test_the_greedy_one_shares_all_loads(name: str) -> None:
    space = library_space(name, n=2**24 if name in ("axpydot", "vadd") else 4096)
    b, root = Bounder(space), root_of(space)
    made = dict(sketched_candidates(space))
    greedy, default = made[greedy_sketch(space)], made[default_sketch(space)]
    assert b.ns(greedy) < 1.01 * b.ns(root) < 0.95 * b.ns(default)


def is_own_panel(sketch: Sketch) -> bool:
    return sketch.reuse is not None and sketch.shift == ch.LATE


def is_greedy_but_for_its_tile(space: Space, sketch: Sketch) -> bool:
    greedy = greedy_sketch(space)
    return sketch != greedy and sketch == replace(greedy, tile=sketch.tile)


@pytest.mark.parametrize(("n", "is_beyond_caches"), [(8192, True), (512, False)])
@pytest.mark.parametrize("name", ["gemver", "sgemvt"])
def test_panels_come_before_rows_beyond_the_caches(
    name: str, n: int, is_beyond_caches: bool
) -> None:
    """A search of large arrays measures few candidates, and the second task is to find in a cache what the first has read."""
    space = library_space(name, n=n)
    tried = [sketch for sketch, _ in sketched_candidates(space)]
    panels = next(k for k, sketch in enumerate(tried) if is_own_panel(sketch))
    rows = next(k for k, sketch in enumerate(tried) if is_greedy_but_for_its_tile(space, sketch))
    assert (panels < rows) == is_beyond_caches


@pytest.mark.parametrize(
    ("n", "l3", "around"), [(4096, 50, True), (4096, 200, False), (512, 50, False)]
)
def test_panels_are_stored_around_a_slow_last_cache(n: int, l3: float, around: bool) -> None:
    """A cache that reads a line before it is written over, and writes it back, is to be twice as fast as memory."""
    capacities = {"L1": (96 << 10, 500.0), "L2": (4 << 20, 200.0), "L3": (256 << 20, l3)}
    levels = (
        CacheLevel(name=name, capacity_bytes=n, read_bytes_per_ns=rate)
        for name, (n, rate) in capacities.items()
    )
    machine = round_target(levels=tuple(levels), memory_write_bytes_per_ns=40.0)
    space = library_space("gemver", machine, n=n)
    tried = list(sketches(space))
    panels = next(sketch for sketch in tried if is_own_panel(sketch))
    assert (panels.stores == ch.STREAM) == around
    rows = replace(greedy_sketch(space), tile=TileSizes(8, 1))
    assert (tried.index(panels) < tried.index(rows)) == around


def made_by(space: Space, tile: TileSizes, packing: Packing) -> Candidate:
    """The first candidate with this tile and packing."""
    tried = sketched_candidates(space)
    return next(c for sketch, c in tried if (sketch.tile, sketch.packing) == (tile, packing))


def packings(space: Space) -> dict[Packing, Candidate]:
    """Each packing has a first candidate with it in blocks for the caches."""
    found: dict[Packing, Candidate] = {}
    for sketch, candidate in sketched_candidates(space):
        if sketch.packing is not None and sketch.tile.blocks is not None:
            found.setdefault(sketch.packing, candidate)
    return found


def test_products_get_register_tiles_and_packed_blocks() -> None:
    space = library_space("matmul", m=1024, n=1024, k=1024)
    packed = made_by(space, TileSizes(6, 2, block=256), Packing())
    v = space.variables
    sizes = {d.name.split(".", 1)[1]: v.universe[d][packed.value(x)] for d, x in v.size.items()}
    assert (sizes["i.inner"], sizes["j.inner"], sizes["k.inner"]) == (6, 32, 1)
    assert sorted(packed.value(x) for x in v.staged.values()) == [ch.DIRECT, ch.COPY]


def tile_sizes(space: Space, made: Candidate) -> dict[str, int]:
    v = space.variables
    return {d.name.split(".", 1)[1]: v.universe[d][made.value(x)] for d, x in v.size.items()}


@pytest.mark.parametrize("depth_first", [False, True])
def test_what_has_gaps_between_its_elements_is_packed_ahead(depth_first: bool) -> None:
    n = 1024
    packing = Packing(
        every=True, depth_first=depth_first, stages=ch.TWO_STAGES, prefetched=depth_first
    )
    assert packing not in packings(library_space("matmul", m=n, n=n, k=n))
    space = library_space("matmul_strided", m=n, n=n, k=n)
    made = packings(space)[packing]
    v = space.variables
    found = {o.access.array: made.value(var) for o, var in v.staged.items()}
    assert found == {"a": ch.TWO_STAGES, "b": ch.COPY}
    # The block that is not packed ahead is a small part of what a thread packs.
    size = tile_sizes(space, made)
    rows = size["i.mid"] * size["i.inner"]
    assert (n // space.target.cores // rows if depth_first else n // size["k.mid"]) >= 8


def test_rows_pass_by_packed_panels_that_fit_the_caches() -> None:
    capacities = {"L1": 96 << 10, "L2": 2 << 20, "L3": 32 << 20}
    levels = (
        CacheLevel(name=name, capacity_bytes=n, read_bytes_per_ns=100.0)
        for name, n in capacities.items()
    )
    machine = round_target(levels=tuple(levels))
    space = library_space("matmul", machine, m=2048, n=2048, k=2048)
    target, v = space.target, space.variables
    for every, n_copies in ((False, 1), (True, 2)):
        made = packings(space)[Packing(every=every)]
        size = tile_sizes(space, made)
        rows = size["i.mid"] * size["i.inner"]
        columns = size["j.mid"] * size["j.inner"]
        own_cache = target.own_cache_bytes
        assert 4 * size["j.inner"] * size["k.mid"] < target.levels[0].capacity_bytes / target.cores
        assert 0.3 * own_cache < 4 * columns * (size["k.mid"] + rows) < own_cache
        assert sum(made.value(x) == ch.COPY for x in v.staged.values()) == n_copies
        dims = {d.name.split(".", 1)[1]: d.order_id for d in space.backbone.dims}
        around = space.model.order(dims["j.mid"], dims["i.mid"])
        assert made.value(around) == ch.OUTSIDE
        once = made.value(space.model.order(dims["k.outer"], dims["j.outer"])) == ch.OUTSIDE
        assert once == every


@pytest.mark.parametrize("rows", [1000, 2048, 3000, 5000, 100_000])
def test_a_thread_packs_no_oftener_than_its_cache_makes_it(rows: int) -> None:
    space = library_space("matmul", m=rows, n=512, k=512)
    tile = product_tile(space, register_tiles(space.target)[0])
    assert tile is not None
    held = space.target.own_cache_bytes / 4
    own_rows = rows / space.target.cores
    assert tile.by_rows.columns * (tile.by_rows.rows + tile.by_rows.depth) < 1.1 * held
    assert tile.by_depth.rows * tile.by_depth.depth < held
    for blocks in (tile.by_rows, tile.by_depth, tile.by_team):
        assert -(-own_rows // blocks.rows) <= -(-own_rows // (0.3 * held / blocks.depth))
    assert 2 * tile.by_depth_ahead.rows * tile.by_depth_ahead.depth < held
    size = tile_sizes(space, packings(space)[Packing(every=True, depth_first=True)])
    assert size["i.mid"] * size["i.inner"] == tile.by_depth.rows


@pytest.mark.parametrize("by_team", [False, True])
def test_panels_are_packed_once_where_what_is_summed_is_outermost(by_team: bool) -> None:
    space = library_space("matmul", m=2048, n=2048, k=2048)
    made = packings(space)[Packing(every=True, depth_first=True, by_team=by_team)]
    dims = {d.name.split(".", 1)[1]: d.order_id for d in space.backbone.dims}
    for outside, inside in (("k.outer", "j.outer"), ("j.outer", "i.outer")):
        assert made.value(space.model.order(dims[outside], dims[inside])) == ch.OUTSIDE
    size = tile_sizes(space, made)
    n_blocks = 1 if by_team else space.target.cores
    in_last_cache = size["k.mid"] * size["j.mid"] * size["j.inner"] * 4 * n_blocks
    assert in_last_cache < space.target.last_cache_bytes
    staged = {o.access.array: made.value(x) for o, x in space.variables.staged.items()}
    packers = {o.access.array: made.value(x) for o, x in space.variables.packed_by.items()}
    assert staged == {"a": ch.COPY, "b": ch.COPY}
    assert packers == {"a": ch.BY_THREAD, "b": ch.BY_TEAM if by_team else ch.BY_THREAD}
    assert 4 * size["k.mid"] * size["i.mid"] * size["i.inner"] < space.target.own_cache_bytes


@pytest.mark.parametrize(
    ("n_registers", "size_bytes", "tiles"), [(16, 32, [(6, 2)]), (32, 64, [(6, 4), (12, 2)])]
)
def test_registers_hold_the_tile_of_a_product(n_registers, size_bytes, tiles) -> None:
    """Six rows by four vectors take 10 loads for 24 multiplications, twelve by two take 14."""
    space = library_space("matmul", m=512, n=512, k=512)
    target = replace(space.target, vector_registers=n_registers, vector_bytes=size_bytes)
    space = build_space(space.problem, target)
    assert register_tiles(target) == tiles
    for registers in register_tiles(target):
        assert registers.rows * registers.vectors + registers.vectors < n_registers
        tile = product_tile(space, registers)
        assert tile is not None
        in_first_cache = tile.by_rows.depth * registers.vectors * size_bytes
        assert in_first_cache < target.levels[0].capacity_bytes / target.cores
    packed = {(s.tile.rows, s.tile.vectors) for s in sketches(space) if s.tile.blocks is not None}
    assert packed == set(tiles)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [("vadd", {"n": 4096}), ("gemver", {"n": 512}), ("matmul", {"m": 256, "n": 128, "k": 16})],
)
def test_what_fits_the_first_cache_has_no_panels(name: str, sizes: dict[str, int]) -> None:
    space = library_space(name, **sizes)
    assert product_tile(space, register_tiles(space.target)[0]) is None
    assert all(sketch.tile.blocks is None for sketch in sketches(space))


@pytest.mark.parametrize(("n_levels", "has_panels"), [(0, False), (1, False), (2, True)])
def test_panels_need_a_cache_of_a_cores_own(n_levels: int, has_panels: bool) -> None:
    """That is the last but one: with one cache, all that is known of is shared."""
    machine = round_target(levels=round_target().levels[:n_levels])
    space = library_space("matmul", machine, m=1024, n=1024, k=1024)
    tile = product_tile(space, register_tiles(space.target)[0])
    assert (tile is not None) == has_panels
    made = dict(sketched_candidates(space))
    assert any(sketch.tile.blocks is not None for sketch in made) == has_panels
    assert all(candidate.is_complete for candidate in made.values())
    assert {default_sketch(space), greedy_sketch(space)} <= set(made)


def test_streams_depend_on_the_footprint() -> None:
    large = library_space("waxpby", n=2**24)
    small = library_space("waxpby", n=2**12)
    for space, expected in ((large, True), (small, False)):
        greedy = dict(sketched_candidates(space))[greedy_sketch(space)]
        cached = [greedy.value(var) for var in space.variables.cache.values()]
        assert (ch.STREAM in cached) == expected
    kinds = small.variables.kind
    greedy = dict(sketched_candidates(small))[greedy_sketch(small)]
    assert all(greedy.value(var) != ch.PARALLEL for var in kinds.values())


def test_preferences_name_values_of_their_choices() -> None:
    space = space_of("gemver")
    for wanted in (default_preference(space), greedy_preference(space)):
        assert wanted.shape[0] == space.n_choices
        assert wanted.dtype == np.uint8
        for var in root_of(space).open_choices():
            named = [int(x) for x in wanted[var] if x != NO_VALUE]
            assert named
            assert len(set(named)) == len(named)
            assert all(x < len(space.choices[var].values) for x in named)


def test_roles_agree_between_tasks_that_can_merge() -> None:
    space = space_of("bicgk")
    roles = find_roles(space, merge=True)
    assert len(set(roles.parallel.values())) == 1
    assert len(set(roles.vector.values())) == 1
    assert roles.parallel[0] != roles.vector[0]


@kernel
def batched_product(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for h in range(c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2]):
                s = 0.0
                for k in range(a.shape[2]):
                    s += a[h, i, k] * b[h, k, j]
                c[h, i, j] = s


@pytest.mark.parametrize("merge", [False, True])
def test_a_batch_of_tall_products_has_the_roles_of_one_product(merge: bool) -> None:
    """The kind of fault: the largest array decides, though a smaller one is read in each iteration, too; and copies of the body
    along the loop of the batch have nothing in common.
    """
    shapes = ((8, 256, 128), (8, 128, 32), (8, 256, 32))
    args = [np.zeros(shape, np.float32) for shape in shapes]
    problem = normalise(record_sequence(lambda *x: batched_product(*x), args, "batch"))
    roles = find_roles(build_space(problem, round_target()), merge=merge)
    assert (roles.parallel[0], roles.vector[0], roles.rows[0]) == ("h", "j", "i")


def test_an_impossible_start_gives_none() -> None:
    space = space_of("vadd")
    root = root_of(space)
    assert isinstance(root, Candidate)
    assert complete_sketch(root, Sketch()) is not None


@pytest.mark.parametrize(
    ("name", "together"), [("gemver", {(0, 1)}), ("sgemvt", set()), ("bicgk", None), ("atax", None)]
)
def test_sweeps_merge_what_needs_no_sum_of_another_over_the_rows(name, together) -> None:
    """GEMVER's second product needs all of the vector that the first one sums up over the rows; BiCGK and ATAX are one pass."""
    space = space_of(name)
    found = [sketch for sketch in sketches(space) if sketch.fusion.in_sweeps]
    if together is None:
        assert not found
        return
    assert found
    for sketch in found:
        made = complete_sketch(root_of(space), sketch)
        assert made is not None
        b, v = space.backbone, space.variables
        tasks = range(len(space.problem.tasks))
        assert {made.value(var) for var in v.fused.values()} == {ch.SAME_LAUNCH}
        outer = {(t, loop): b.dim(t, loop, OUTER) for t in tasks for loop in "ij"}
        merged = {
            loop: {
                (t, u)
                for t in tasks
                for u in tasks
                if t < u
                and made.value(space.model.order(outer[t, loop].order_id, outer[u, loop].order_id))
                == ch.MERGED
            }
            for loop in "ij"
        }
        assert merged == {"i": together, "j": together}
        for t in tasks:
            assert made.value(v.kind[outer[t, "i"]]) == ch.PARALLEL
            assert (
                made.value(space.model.order(outer[t, "i"].order_id, outer[t, "j"].order_id))
                == ch.OUTSIDE
            )


def test_a_sweep_has_as_many_rows_as_registers_hold() -> None:
    for registers, rows in ((16, 6), (32, 8)):
        target = replace(round_target(), vector_registers=registers)
        space = build_space(space_of("gemver").problem, target)
        tried = list(sketches(space))
        most = replace(greedy_sketch(space), tile=TileSizes(rows, 1))
        assert most in tried
        in_sweeps = replace(most.fusion, in_sweeps=True)
        assert any(s.fusion == in_sweeps and s.tile == most.tile for s in tried)


def test_first_candidates_of_a_product_begin_with_packed_panels() -> None:
    """The first candidates decide the result of a search of two seconds."""
    space = library_space("matmul", m=1024, n=1024, k=1024)
    tried = [sketch for sketch, _ in sketched_candidates(space)]
    assert tried[0] == default_sketch(space)
    assert all(sketch.tile.blocks is not None for sketch in tried[1:4])


def of_two(a, b, c, ab, d) -> None:
    multiply(a, b, ab)
    multiply(ab, c, d)


def of_three(a, b, c, ab, d) -> None:
    multiply(a, b, ab)
    multiply(b, c, d)
    multiply(ab, d, c)


@pytest.mark.parametrize("sequence", [of_two, of_three])
def test_products_that_follow_one_another_have_tiles_of_their_own_results(sequence) -> None:
    """The columns of one product are what the next one sums over: in a loop of both, one would keep no sums in registers."""
    problem = normalise(record_sequence(sequence, [np.zeros((600, 600)) for _ in range(5)]))
    space = build_space(problem, round_target())
    summed = {d for d in space.variables.kind if d.loop.is_reduction}
    for sketch, made in list(sketched_candidates(space))[1:4]:
        assert sketch.tile.blocks is not None
        kinds = {d: made.value(x) for d, x in space.variables.kind.items() if d.level == INNER}
        assert not any(kind == ch.VECTOR for d, kind in kinds.items() if d in summed)
        assert sum(kind == ch.VECTOR for kind in kinds.values()) == len(problem.tasks)


@pytest.mark.parametrize("target", [round_target(), GPU], ids=lambda target: target.backend)
@pytest.mark.parametrize("name", ["gemver", "matmul_strided", "gesummv"])
def test_sketches_are_told_apart_by_their_words(name: str, target: Target) -> None:
    space = library_space(name, target, n=1024)
    tried = dict.fromkeys((default_sketch(space), *sketches(space)))
    assert len({str(sketch) for sketch in tried}) == len(tried)


def test_a_sketch_is_composed_from_roles() -> None:
    sketch = Sketch(
        tile=TileSizes(rows=1, vectors=8),
        threads=Along(Axis.CONTIGUOUS, ch.CYCLIC),
        reuse=CopyInputs(),
        shift=ch.LATE,
        prefetch=ch.NEAR,
    )
    assert str(sketch) == "rows1 vectors8, contiguous, cyclic, inputs copied, late, prefetch near"
    assert len(fields(Sketch)) <= 8
