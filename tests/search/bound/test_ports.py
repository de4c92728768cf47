"""Ports, lines and shares in the bound: hand-worked values, monotone, and no more loads and stores than the loop IR has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.heat import step
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.bound.explain import explain
from kernelscape.search.predict import FACTORS, Predictor
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER, MID, OUTER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.targets.target import CacheLevel
from kernelscape.testing.machines import IdealMachine, library_space, root_of, round_target
from kernelscape.testing.port_counts import PortCounts, count_barriers, count_ports

N = 256
RATE = 20.0


@kernel
def brighter(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[i, j] = max(a[i, j], b[i, j])


def space_of(name: str, **sizes: int) -> Space:
    """Sixteen lanes, and stores for nothing."""
    return library_space(name, round_target(loads_per_ns=RATE), **sizes)


def decided(
    space: Space,
    order: Sequence[str],
    vector: str,
    inner: dict[str, int],
    mid: int = 1,
    copied: tuple[str, ...] = (),
) -> Any:
    """Domains of task 0 with its loops in this order and sizes, vectors along one of them (""), and `copied` operands packed."""
    v = space.variables
    domains = root_of(space).domains.copy()
    loops = {loop.name: loop for loop in space.problem.tasks[0].loops}
    for name in loops:
        part = space.backbone.dim(0, name, INNER)
        kinds = 1 << ch.VECTOR
        is_vector = name == vector
        domains[v.kind[part]] = kinds if is_vector else int(domains[v.kind[part]]) & ~kinds
        sizes = ((part, inner.get(name, 1)), (space.backbone.dim(0, name, MID), mid))
        for d, size in sizes:
            domains[v.size[d]] = 1 << v.universe[d].index(size)
    for name in order:
        for other in order:
            for k in (OUTER, MID):
                for m in (OUTER, MID):
                    d, e = space.backbone.dim(0, name, k), space.backbone.dim(0, other, m)
                    if name != other:
                        is_inside = order.index(name) > order.index(other)
                        at = space.model.order(d.order_id, e.order_id)
                        domains[at] = 1 << (ch.INSIDE if is_inside else ch.OUTSIDE)
    for operand, var in v.staged.items():
        domains[var] = 1 << (ch.COPY if operand.access.array in copied else ch.DIRECT)
    return domains


def term(space: Space, domains: Any, name: str) -> float:
    return dict(Bounder(space).bound(domains).terms).get(name, 0.0)


def loads_ns(space: Space, *decisions: Any, **more: Any) -> float:
    return term(space, decided(space, *decisions, **more), "ports")


def test_a_register_tile_saves_loads() -> None:
    space = space_of("matmul", m=N, n=N, k=N)
    points = N**3 / 16 / RATE
    # Two rows of one vector: an element of A for each row, a vector of B for both.
    assert loads_ns(space, "ijk", "j", {"i": 2, "j": 16}) == pytest.approx(points * (1 + 1 / 2))
    assert loads_ns(space, "ijk", "j", {"i": 4, "j": 32}) == pytest.approx(points * (1 / 2 + 1 / 4))
    assert loads_ns(space, "ijk", "", {}) == pytest.approx(2 * N**3 / RATE)


def test_a_prediction_tells_tiles_of_few_sums_apart() -> None:
    """Kind: equal bounds, and predictions, of tiles whose few sums wait for one another."""
    space = library_space(
        "matmul", round_target(loads_per_ns=1e3, add_latency_ns=4.0), m=N, n=N, k=N
    )
    predictor, parts = Predictor(Bounder(space)), []
    for rows in (1, 2, 4):
        domains = decided(space, "ijk", "j", {"i": rows, "j": 16})
        parts.append(predictor.parts(domains)[FACTORS.index("operations")])
        assert term(space, domains, "operations") < parts[-1]
    assert parts == pytest.approx([N**3 / 16 * 4.0 / 2 / rows for rows in (1, 2, 4)])
    by_rows = decided(space, "ikj", "j", {"j": 16})  # neighbouring sums, in memory
    assert predictor.parts(by_rows)[FACTORS.index("operations")] == term(
        space, by_rows, "operations"
    )


def test_a_prediction_counts_all_of_a_tile_that_caches_lose() -> None:
    """Kind: orders with about equal predictions, since a cache may hold most of what it loses before its next use."""
    space = library_space("matmul", round_target(), m=N, n=N, k=5 * N)
    bounder = Bounder(space)
    held, operand = bounder.tables.capacity[1], 4 * 5 * N * N
    by_rows, by_steps = (decided(space, order, "", {}) for order in ("ikj", "kij"))
    assert held < operand < 1.3 * held
    assert term(space, by_rows, "tiles") < 0.3 * N * operand / 400.0
    found = [bounder.ns(x) and bounder.lost_ns()[0] for x in (by_rows, by_steps)]
    assert found[0] == pytest.approx(N * operand / 400.0, rel=0.01)
    assert found[1] < found[0] / 10
    parts = Predictor(bounder).parts(by_rows)
    assert parts[FACTORS.index("caches")] >= found[0]


def test_sums_that_change_in_the_innermost_loop_are_loaded_there() -> None:
    space = space_of("matmul", m=N, n=2 * N, k=N)
    # B and the sums; A stays in a register, and the first sums come from nowhere.
    n = 2 * N**3 / 16 / RATE
    assert loads_ns(space, "ikj", "j", {"j": 16}) == pytest.approx(2 * n - n / N)


def test_elements_far_apart_take_a_load_a_lane_unless_they_are_packed() -> None:
    space = space_of("matmul_strided", m=N, n=N, k=2 * N)
    tile, n = {"i": 2, "j": 4, "k": 16}, 2 * N**3 * (1 / 4 + 1 / 2) / RATE
    assert loads_ns(space, "ijk", "k", tile) == pytest.approx(n)
    packed = loads_ns(space, "ijk", "k", tile, copied=("a", "b"))
    assert packed == pytest.approx(2 * n / 16)  # each tile is packed where it is used


def test_sums_beyond_the_registers_are_loaded_in_each_iteration() -> None:
    """Kind: register tiles of any size with equal bounds."""
    tile, points = {"i": 8, "j": 64}, N**3 / 16 / RATE
    found = {}
    for registers in (16, 32):
        target = round_target(loads_per_ns=RATE, vector_registers=registers)
        space = library_space("matmul", target, m=N, n=N, k=N)
        found[registers] = loads_ns(space, "ijk", "j", tile)
    assert found[32] == pytest.approx(points * (1 / 4 + 1 / 8))
    # 16 of 32 vectors, but in the first iteration of each of two threads.
    assert found[16] - found[32] == pytest.approx(points * 1 / 2 * (1 - 2 / N))


def test_a_block_is_packed_in_each_iteration_around_it() -> None:
    """Kind: packed operands for nothing."""
    space, tile = space_of("matmul", m=N, n=N, k=N), {"i": 4, "j": 16}

    def packing(order: str) -> float:
        copied = loads_ns(space, order, "j", tile, mid=4, copied=("b",))
        return copied - loads_ns(space, order, "j", tile, mid=4)

    once = N * N / 16 / RATE
    assert packing("ijk") == pytest.approx(once * N / (4 * 4))
    assert packing("jki") == pytest.approx(once)


def test_a_compiler_may_unroll_short_loops() -> None:
    space = space_of("matmul", m=N, n=N, k=N)
    tile = {"i": 2, "j": 16}
    once = loads_ns(space, "ijk", "j", tile)
    # Four steps of each loop, whatever is inside: A for four vectors, B for eight rows.
    assert loads_ns(space, "kij", "j", tile, mid=4) < once


def test_scalar_code_takes_a_load_an_element() -> None:
    """Kind: scalar candidates with the bound of vectors, where memory is the limit."""
    space = library_space("axpy", round_target(loads_per_ns=1.0, stores_per_ns=1.0), n=1 << 20)
    (name,) = (loop.name for loop in space.problem.tasks[0].loops)
    assert loads_ns(space, name, "", {}) == pytest.approx(2 << 20)
    assert loads_ns(space, name, name, {name: 16}) == pytest.approx((2 << 20) / 16)


def test_last_vectors_of_many_lanes_may_begin_earlier() -> None:
    """Kind: elements behind the last vector that count one by one, though a vector that overlaps the one before has them."""
    pixels = [np.zeros((128, 1000), np.uint8) for _ in range(3)]
    space = build_space(
        normalise(record_sequence(brighter, pixels)), round_target(loads_per_ns=1.0)
    )
    i, j = (loop.name for loop in space.problem.tasks[0].loops)
    assert 0 < loads_ns(space, i + j, j, {j: 64}) <= 2 * 128 * 16


def test_what_another_read_may_have_in_registers_does_not_count() -> None:
    def one_step(u: Any, v: Any) -> None:
        step(u, v, 0.125)  # a point's neighbours are points of the next ones

    fields = np.zeros((N, N), np.float32), np.zeros((N, N), np.float32)
    problem = normalise(record_sequence(one_step, fields))
    space = build_space(problem, round_target(loads_per_ns=RATE))
    i, j = (loop.name for loop in space.problem.tasks[0].loops)
    ns = loads_ns(space, i + j, j, {j: 16})
    vectors, behind = divmod(
        N - 2, 16
    )  # of a row; elements behind the last whole vector are loaded one by one
    assert 0 < ns <= 1.01 * (N - 2) * (vectors + behind) / RATE


def test_nothing_follows_where_the_rate_is_not_known() -> None:
    space = library_space("matmul", m=N, n=N, k=N)
    assert loads_ns(space, "ijk", "", {}) == 0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(("matmul_strided", "sgemv", "gesummv")), st.integers(0, 2**31))
def test_loads_and_bytes_grow_along_descents(name: str, seed: int) -> None:
    space = descended(name)
    bounder, rng = Bounder(space), np.random.default_rng(seed)
    at, before = root_of(space), np.zeros(len(space.problem.tasks) + 1)
    while not at.is_complete:
        var = int(rng.choice(at.open_choices()))
        children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            return
        at = children[int(rng.integers(len(children)))]
        ports = dict(bounder.bound(at).terms).get("ports", 0.0)
        after = np.array([ports, *bounder.tiles_ns(at)])  # of each task, whatever runs beside it
        assert (after >= before * (1 - 1e-9)).all()
        before = after


@cache
def descended(name: str) -> Space:
    sizes = {"m": N, "n": N, "k": N} if name == "matmul_strided" else {"m": N, "n": N}
    sizes_of_caches = ((2048, 1000.0), (8192, 400.0), (32768, 200.0))
    levels = (
        CacheLevel(name=f"L{k + 1}", capacity_bytes=n, read_bytes_per_ns=rate, ways=2)
        for k, (n, rate) in enumerate(sizes_of_caches)
    )
    target = round_target(loads_per_ns=RATE, vector_registers=2, levels=tuple(levels))
    return library_space(name, target, **sizes)


# --- lines and shares ----------------------------------------------------------------------------


def test_columns_fetch_a_line_an_element() -> None:
    """Kind: rows and columns of a matrix with equal bounds."""
    m, n = 1 << 15, 128
    space = library_space("sgemv", round_target(), m=m, n=n)
    i, j = (loop.name for loop in space.problem.tasks[0].loops)
    by_columns = decided(space, (j, i), "", {})
    held = Bounder(space).tables.capacity[1]  # registers and first caches of all cores
    # Of each column a line an element, and the sums of all rows, but that of the first columns; a line of the vector.
    touched = n * (64 * m + 64) + 4 * m * (n - 2)
    assert term(space, by_columns, "tiles") == pytest.approx((touched - n * held) / 400.0)
    assert term(space, decided(space, (i, j), "", {}), "tiles") == 0
    in_lines = decided(space, (j, i), "", {j: 16})  # once, and the sums
    assert term(space, in_lines, "tiles") < term(space, by_columns, "tiles") / 8


def test_lines_may_stay_where_caches_hold_a_column() -> None:
    space = library_space("sgemv", round_target(), m=1 << 12, n=128)
    i, j = (loop.name for loop in space.problem.tasks[0].loops)
    assert term(space, decided(space, (j, i), "", {}), "tiles") == 0


def test_a_product_by_rows_reads_a_whole_operand_for_each() -> None:
    """Kind: tiles and orders with equal bounds. What fits after all is not read again."""
    space = library_space("matmul", round_target(), m=N, n=4 * N, k=8 * N)
    held, row = Bounder(space).tables.capacity, 4 * (8 * N + 4 * N - 2 * 4 * N / N)
    by_rows = decided(space, "ikj", "", {})
    operand = 4 * 8 * N * 4 * N
    levels = ((1, 400.0), (2, 200.0))
    wanted = max(N * (operand + row - held[k]) / rate for k, rate in levels)
    assert term(space, by_rows, "tiles") == pytest.approx(wanted, rel=1e-2)
    in_tiles = decided(space, "ikj", "j", {"i": 8, "j": 64})
    assert term(space, in_tiles, "tiles") == pytest.approx(wanted / 8, rel=0.1)
    # A strip of 64 columns fits.
    assert term(space, decided(space, "jik", "j", {"i": 8, "j": 64}), "tiles") < wanted / 100


def test_packing_reads_the_lines_that_a_block_lies_in() -> None:
    """Kind: blocks of a few columns that are packed for the bytes of their elements alone."""
    levels = tuple(
        CacheLevel(name=f"L{k + 1}", capacity_bytes=n, read_bytes_per_ns=1.0)
        for k, n in enumerate((2048, 8192))
    )
    target = round_target(cores=1, levels=levels, vector_registers=0)
    space = library_space("matmul", target, m=8, n=N, k=N)

    def tiles(order: str, *copied: str) -> float:
        return term(space, decided(space, order, "", {"j": 4}, copied=copied), "tiles")

    lines = 64 * N * N / 4
    assert tiles("jki", "b") == tiles("jki") > lines


def test_explanations_have_a_row_of_packing() -> None:
    space = space_of("matmul", m=N, n=N, k=N)
    packed = decided(space, "ijk", "j", {"i": 4, "j": 16}, copied=("b",))
    found = Bounder(space).bound(packed)
    terms = dict(found.terms)
    assert terms["packing"] == pytest.approx(N * N / 16 / RATE * N / 4)
    assert terms["packing"] < terms["ports"]
    assert any(line.startswith("packing: ") for line in explain(found, space))
    assert term(space, decided(space, "ijk", "j", {"i": 4, "j": 16}), "packing") == 0


def test_hardware_threads_share_a_cache() -> None:
    """Kind: a share of a cache for each thread, where one of them may use it whole, and what one brings in serves both."""

    def by_rows(shared_by: int) -> float:
        levels = (
            CacheLevel(
                name="L1", capacity_bytes=1 << 17, read_bytes_per_ns=1000.0, shared_by=shared_by
            ),
            CacheLevel(name="L2", capacity_bytes=1 << 22, read_bytes_per_ns=1.0),
        )
        target = round_target(levels=levels, vector_registers=0)
        space = library_space("matmul", target, m=N, n=N, k=N)
        domains = decided(space, "ikj", "", {})
        domains[space.variables.kind[space.backbone.dim(0, "i", OUTER)]] = 1 << ch.PARALLEL
        return term(space, domains, "tiles")

    assert by_rows(1) - 2 * by_rows(2) == pytest.approx(N * (1 << 16))


def test_a_product_moves_its_volume_in_any_order() -> None:
    """Kind: a root's bound that believes caches hold all that is used again."""
    small = (
        CacheLevel(name="L1", capacity_bytes=2 * 2048, read_bytes_per_ns=1000.0),
        CacheLevel(name="L2", capacity_bytes=2 * 4096, read_bytes_per_ns=1.0),
    )
    target = round_target(levels=small, vector_registers=0)
    space = library_space("matmul", target, m=512, n=512, k=512)
    held = 2048 / 4  # elements of a core's first cache
    elements = 2 * 512**3 / held**0.5 - 2 * 2 * held - 2 * 512**2
    assert term(space, root_of(space).domains, "tiles") == pytest.approx(4 * elements)


IN_BYTES = {"memory_read_bytes_per_ns": 1.0, "memory_mixed_bytes_per_ns": 1.0}


@kernel
def strided(x: types.ndarray(), y: types.ndarray()) -> None:
    for i in y:
        for j in range(2):
            y[i] += x[i, 16 * j]


def test_elements_a_line_apart_may_share_the_line_of_the_next_row() -> None:
    """Kind: a line for each element of a row, where the next row begins in the last one."""
    x, y = (np.zeros(shape, np.float32) for shape in ((1 << 12, 17), 1 << 12))
    small = CacheLevel(name="L1", capacity_bytes=64, read_bytes_per_ns=1.0)
    target = round_target(cores=1, vector_registers=0, levels=(small,), **IN_BYTES)
    space = build_space(normalise(record_sequence(strided, (x, y))), target)
    i, j = (loop.name for loop in space.problem.tasks[0].loops)
    assert term(space, decided(space, (i, j), "", {i: 64}), "tiles") <= x.nbytes
    apart = build_space(
        normalise(record_sequence(strided, (np.zeros((1 << 12, 32), np.float32), y))), target
    )
    assert term(apart, decided(apart, (i, j), "", {i: 64}), "tiles") > 1.8 * x.nbytes


@kernel
def make(c: types.ndarray(), x: types.ndarray()) -> None:
    for i, k in x:
        x[i, k] = c[i] * 2.0


@kernel
def use(x: types.ndarray(), b: types.ndarray(), y: types.ndarray()) -> None:
    for i, k in x:
        y[i] += x[i, k] * b[k]


def test_what_is_made_where_it_is_read_crosses_nothing() -> None:
    """Kind: bytes of an array that merged loops write and read, which memory never gives. The simulated machine judges."""

    def both(c: Any, x: Any, b: Any, y: Any) -> None:
        make(c, x)
        use(x, b, y)

    arrays = [np.zeros(shape, np.float32) for shape in (8, (8, 300), 300, 8)]
    small = CacheLevel(name="L1", capacity_bytes=8 * 64, read_bytes_per_ns=1e9)
    target = round_target(cores=1, vector_bytes=16, vector_registers=0, levels=(small,), **IN_BYTES)
    space = build_space(normalise(record_sequence(both, arrays)), target)
    domains, b = root_of(space).domains.copy(), space.backbone
    for m in b.merges:
        if (m.loop_a, m.loop_b) in (("i", "i"), ("k", "k")):
            first, second = b.dim(m.a, m.loop_a, OUTER), b.dim(m.b, m.loop_b, OUTER)
            domains[space.model.order(first.order_id, second.order_id)] = 1 << ch.MERGED
    for var in space.variables.mem_space.values():
        domains[var] = 1 << ch.GLOBAL
    merged, rng = space.candidate(domains), np.random.default_rng(1)
    assert isinstance(merged, Candidate)
    made = [
        c for c in (merged.random_completion(rng) for _ in range(6)) if isinstance(c, Candidate)
    ]
    assert made
    for c in made:
        assert Bounder(space).tiles_ns(c).max() <= IdealMachine(c, 8).traffic(calls=1)[0]


@kernel
def scaled(x: types.ndarray(), z: types.ndarray(), v: types.ndarray(), y: types.ndarray()) -> None:
    for i, j in y:
        for k in range(v.shape[0]):
            y[i, j] += x[i, k] * z[i, j] * v[k]


def test_the_bytes_of_open_tiles_are_at_most_those_of_any_tile() -> None:
    """Kind: the least of a larger of two counts, looked for at the ends alone: one falls with tiles while the other rises."""
    arrays = [np.zeros(shape, np.float32) for shape in ((4, 1 << 12), (4, 256), 1 << 12, (4, 256))]
    levels = (
        CacheLevel(name="L1", capacity_bytes=32, read_bytes_per_ns=1e9),
        CacheLevel(name="L2", capacity_bytes=64, read_bytes_per_ns=1e9),
    )
    target = round_target(vector_registers=0, levels=levels)
    space = build_space(normalise(record_sequence(scaled, arrays)), target)
    i, j, k = (loop.name for loop in space.problem.tasks[0].loops)
    v, part = space.variables, space.backbone.dim(0, j, INNER)

    def bytes_of(sizes: int) -> float:
        domains = decided(space, (i, j, k), "", {k: 16})
        domains[v.kind[space.backbone.dim(0, i, OUTER)]] = 1 << ch.PARALLEL
        domains[v.size[part]] = sizes
        return term(space, domains, "tiles")

    n = len(v.universe[part])
    each = [bytes_of(1 << at) for at in range(n)]
    assert 0 < bytes_of((1 << n) - 1) <= min(each)


@kernel
def gathered(at: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(y.shape[0]):
        k = at[i]
        if k >= 0:
            y[i] = y[i] + 1.0
        y[i] += x[k] + x[k + 1] + x[i]


def test_an_element_whose_index_was_loaded_takes_a_load() -> None:
    """Kind: bodies with the loads of vectors, where no vector can be loaded."""
    arrays = np.zeros(N, np.int32), np.zeros(N + 1, np.float32), np.zeros(N, np.float32)
    problem = normalise(record_sequence(gathered, arrays))
    space = build_space(problem, round_target(loads_per_ns=RATE))
    assert not space.problem.tasks[0].is_structured
    assert term(space, root_of(space).domains, "ports") == pytest.approx(N / RATE)


@kernel
def rows(at: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:
    for i in range(at.shape[0]):
        begin = at[i]
        for k in range(8):
            y[i] += x[begin + k]


def test_a_row_that_begins_anywhere_may_be_loaded_in_vectors() -> None:
    """Kind: a load for each element, where only where they begin was loaded."""
    arrays = np.zeros(N, np.int32), np.zeros(N + 8, np.float32), np.zeros(N, np.float32)
    problem = normalise(record_sequence(rows, arrays))
    space = build_space(problem, round_target(loads_per_ns=RATE))
    assert not space.problem.tasks[0].is_structured
    assert term(space, root_of(space).domains, "ports") == pytest.approx(8 * N / 16 / RATE)


def test_the_busiest_thread_has_whole_register_tiles() -> None:
    """Kind: tiles that do not divide among threads, with the bound of those that do."""
    space = library_space("matmul", round_target(), m=48, n=1024, k=1024)
    d = space.backbone.dim(0, "i", OUTER)

    def operations(rows: int) -> float:
        domains = decided(space, "ijk", "j", {"i": rows, "j": 16})
        domains[space.variables.kind[d]] = 1 << ch.PARALLEL
        return term(space, domains, "operations")

    assert operations(12) == operations(8)  # two tiles each, or three
    # Two tiles for one thread, one for the other, whose core may run faster when the first is done.
    assert operations(16) == pytest.approx(operations(8) * (1 + 1 / 1.3) * 2 / 3)


def test_lanes_of_sums_are_folded_once_a_result() -> None:
    """Kind: vectors along a reduced loop with the bound of those along results."""
    space = library_space("matmul", round_target(), m=N, n=N, k=N)
    whole, tile = 2 * N**3 / 500, {"i": 4, "j": 4, "k": 16}
    along_results = decided(space, "ijk", "j", {"i": 4, "j": 64})
    assert term(space, along_results, "operations") == pytest.approx(whole)
    # Four halvings of sixteen lanes, in instructions as fast as those of single elements.
    folded = whole + 4 * N**2 * 16 / 250
    assert term(space, decided(space, "ijk", "k", tile), "operations") == pytest.approx(folded)
    # Units that only add take part in folds: here as many as those of multiply-adds.
    beside = library_space("matmul", round_target(f32_mixed_flops_per_ns=750.0), m=N, n=N, k=N)
    assert term(beside, decided(beside, "ijk", "k", tile), "operations") == pytest.approx(whole)


# --- against the loop IR -------------------------------------------------------------------------

N_JUDGED = 6
JUDGED = {
    "matmul": {"m": 40, "n": 24, "k": 40},
    "matmul_strided": {"m": 40, "n": 24, "k": 40},
    "bicgk": {"m": 72, "n": 80},
    "gemver": {"m": 72, "n": 72},
    "axpydot": {"n": 5000},
}
LOADS = {"loads_per_ns": 1.0}
STORES = {"loads_per_ns": 1e12, "stores_per_ns": 1.0}


def judged(sequence: str, ports: dict[str, float]) -> Bounder:
    """Vectors of four lanes on one core; the ports start one a ns, or any number."""
    target = round_target(cores=1, vector_bytes=16, **ports)
    return Bounder(library_space(sequence, target, **JUDGED[sequence]))


@pytest.mark.parametrize("sequence", ["matmul", "bicgk", "gemver", "axpydot"])
def test_the_bound_counts_no_more_than_the_loop_ir(sequence: str) -> None:
    """Kind: a term above what a candidate does. The judge runs the loops of the loop IR on a machine with all registers."""
    loads, stores = judged(sequence, LOADS), judged(sequence, STORES)
    rng, nearest = np.random.default_rng(7), 0.0
    for _ in range(N_JUDGED):
        made = root_of(loads.space).random_completion(rng)
        found = count_ports(made) if isinstance(made, Candidate) else PortCounts(is_whole=False)
        if not found.is_whole:
            continue
        for bounder, n in ((loads, found.loads), (stores, found.stores)):
            ns = dict(bounder.bound(made).terms).get("ports", 0.0)
            assert ns <= 1.001 * n
            nearest = max(nearest, ns / max(n, 1))
    assert nearest > 0.7  # and does not count next to nothing


@kernel
def products(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()) -> None:
    for h in range(c.shape[0]):
        for i in range(c.shape[1]):
            for j in range(c.shape[2]):
                total = 0.0
                for k in range(a.shape[2]):
                    total += a[h, i, k] * b[h, k, j]
                c[h, i, j] = total


@pytest.mark.parametrize(("m", "vector_bytes"), [(4, 32), (8, 64), (12, 64)])
def test_short_rows_in_vectors_count_no_more_than_the_loop_ir(m: int, vector_bytes: int) -> None:
    """Kind: vectors counted wider than a row; the judge has those of the plan."""
    arrays = tuple(np.zeros((20_000 // m**3, m, m), np.float32) for _ in range(3))
    problem = normalise(record_sequence(lambda a, b, c: products(a, b, c), arrays))
    targets = (round_target(cores=1, vector_bytes=vector_bytes, **x) for x in (LOADS, STORES))
    loads, stores = (Bounder(build_space(problem, x)) for x in targets)
    kind = loads.space.variables.kind[loads.space.backbone.dim(0, "j", INNER)]
    rows = root_of(loads.space).decide(kind, 1 << ch.VECTOR)
    assert isinstance(rows, Candidate)
    rng, nearest = np.random.default_rng(m), 0.0
    for _ in range(N_JUDGED // 2):
        made = rows.random_completion(rng)
        found = count_ports(made) if isinstance(made, Candidate) else PortCounts(is_whole=False)
        if found.is_whole:
            for bounder, n in ((loads, found.loads), (stores, found.stores)):
                ns = dict(bounder.bound(made).terms).get("ports", 0.0)
                assert ns <= 1.001 * n
                nearest = max(nearest, ns / max(n, 1))
    assert nearest > 0.5


@pytest.mark.parametrize("sequence", ["matmul", "matmul_strided"])
def test_folds_count_no_more_than_those_of_the_loop_ir(sequence: str) -> None:
    """Kind: a fold that no candidate makes. Only folds take time here: each halving a ns."""
    facts = {"f32_flops_per_ns": 1e12, "scalar_f32_flops_per_ns": 2.0}
    bounder, shares = judged(sequence, facts), list[float]()
    kind = bounder.space.variables.kind[bounder.space.backbone.dim(0, "k", INNER)]
    along = root_of(bounder.space).decide(kind, 1 << ch.VECTOR)
    assert isinstance(along, Candidate)
    rng = np.random.default_rng(5)
    for _ in range(N_JUDGED // 2):
        made = along.random_completion(rng)
        found = count_ports(made) if isinstance(made, Candidate) else PortCounts(is_whole=False)
        if found.is_whole:
            ns = dict(bounder.bound(made).terms)["operations"]
            assert ns <= 2 * found.folds * 1.001
            shares.append(ns / max(2 * found.folds, 1))
    assert max(shares) > 0.1


def test_loops_of_merged_tasks_stay_where_both_have_many_operations() -> None:
    """Kind: a loop of two trips that the judge unrolls for one task of few operations, whatever the others in it have."""
    bounder = Bounder(
        library_space("gesummv", round_target(cores=1, vector_bytes=16, **LOADS), m=64, n=66)
    )
    space = bounder.space
    domains, b, v = root_of(space).domains.copy(), space.backbone, space.variables
    for m in b.merges:
        if (m.loop_a, m.loop_b) in (("i", "i"), ("j", "j")):
            for level in (OUTER, MID):
                first, second = b.dim(m.a, m.loop_a, level), b.dim(m.b, m.loop_b, level)
                domains[space.model.order(first.order_id, second.order_id)] = 1 << ch.MERGED
    for t in (0, 1):
        for name, mid, inner in (("i", 4, 1), ("j", 2, 12)):
            for level, size in ((MID, mid), (INNER, inner)):
                d = b.dim(t, name, level)
                domains[v.size[d]] = 1 << v.universe[d].index(size)
        kind, vector = v.kind[b.dim(t, "j", INNER)], 1 << ch.VECTOR
        domains[kind] = vector if t == 0 else int(domains[kind]) & ~vector
    merged, rng = space.candidate(domains), np.random.default_rng(1)
    assert isinstance(merged, Candidate)
    drawn = (merged.random_completion(rng) for _ in range(6))
    made = [c for c in drawn if isinstance(c, Candidate)]
    shares = [term(space, c.domains, "ports") / count_ports(c).loads for c in made]
    assert 0.7 < max(shares) <= 1.001


@pytest.mark.parametrize(("sequence", "sizes"), [("madd", {"n": 40}), ("matmul", {"n": 24})])
def test_threads_synchronise_in_each_trip_around_a_shared_loop(
    sequence: str, sizes: dict[str, int]
) -> None:
    """Kind: a barrier that counts once, whatever loops are around it. The judge counts those of the loop IR."""
    target = round_target(vector_bytes=16, call_ns=0.0, launch_ns=0.0, barrier_ns=1.0)
    bounder = Bounder(library_space(sequence, target, **sizes))
    rng, most = np.random.default_rng(11), 0.0
    for _ in range(80):
        made = root_of(bounder.space).random_completion(rng)
        if isinstance(made, Candidate):
            n = dict(bounder.bound(made).terms).get("launches", 0.0)
            assert n <= count_barriers(made)
            most = max(most, n)
    assert most > 4
