"""Loops in order over loops: in which other orders they may run, by enumeration; wavefronts of them against the interpreter."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.pipeline import verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.nest_plan import ONE_BY_ONE, WavePlan
from kernelscape.codegen.plan.plan import Plan
from kernelscape.kernels.analysis.wavefronts import sweep_at
from kernelscape.kernels.frontend.intrinsics import loop_config
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    ArrayParam,
    Binary,
    Compare,
    Const,
    DType,
    Expr,
    For,
    KernelIR,
    Load,
    Local,
    LoopIndex,
    SetLocal,
    Stmt,
    Store,
    UpdateLocal,
    While,
)
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import Renaming
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.engine import building
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.planning import decided_plan, default_plan
from kernelscape.space import choices as ch
from kernelscape.space.backbone import OUTER
from kernelscape.space.build import build_space
from kernelscape.testing import checking

nd: Any = types.ndarray()
I64, F64 = DType.i64, DType.f64
ROWS, COLUMNS, MARGIN = 11, 9, 3
Offset = tuple[int, int]


def whole(n: int) -> Const:
    return Const(n, I64)


def at(k: Expr, n: int) -> Expr:
    return Binary("add", k, whole(n + MARGIN), I64)


def nest(read: list[Offset], written: Offset = (0, 0), triangular: bool = False) -> KernelIR:
    """In order over i and j: the element at (i, j) + written becomes the mean of those at (i, j) + read."""
    i, j = Local("i", I64), LoopIndex("j", I64)

    def load(offset: Offset) -> Expr:
        return Load("a", (at(i, offset[0]), at(j, offset[1])), F64)

    value: Expr = Const(0.5, F64)
    for offset in read:
        value = Binary("add", value, load(offset), F64)
    value = Binary("div", value, Const(float(len(read) + 1), F64), F64)
    store = Store("a", (at(i, written[0]), at(j, written[1])), value, NOWHERE)
    extent: Expr = whole(COLUMNS)
    if triangular:
        rest = Binary("sub", whole(COLUMNS + 1), i, I64)
        extent = Binary("max", rest, whole(0), I64)
    inside: tuple[Stmt, ...] = (
        For("j", extent, (store,), NOWHERE),
        UpdateLocal("i", "add", whole(1), NOWHERE),
    )
    body = (
        SetLocal("i", whole(0), NOWHERE),
        While(Compare("lt", i, whole(ROWS)), inside, NOWHERE),
    )
    shape = (ROWS + 2 * MARGIN, COLUMNS + 2 * MARGIN)
    made = KernelIR("nest", (ArrayParam("a", F64, shape),), (), body, NOWHERE, fast_math=False)
    check(made)
    return made


def least_skew(read: list[Offset], written: Offset, triangular: bool) -> int | None:
    """By enumeration: with the skew, what touches an element in a later row has a larger inner index."""

    def columns(i: int) -> range:
        return range(max(0, COLUMNS + 1 - i) if triangular else COLUMNS)

    touched: dict[Offset, list[tuple[int, int, bool]]] = {}
    for i in range(ROWS):
        for j in columns(i):
            for (di, dj), writes in (*((x, False) for x in read), (written, True)):
                touched.setdefault((i + di, j + dj), []).append((i, j, writes))
    for skew in range(5):
        if not any(
            b[0] > a[0] and b[1] + skew * b[0] <= a[1] + skew * a[0]
            for places in touched.values()
            for a, b in product(places, repeat=2)
            if a[2] or b[2]
        ):
            return skew
    return None


def drawn(seed: int) -> tuple[list[Offset], Offset, bool]:
    rng = random.Random(seed)
    offsets = [(rng.randint(-2, 2), rng.randint(-MARGIN, MARGIN)) for _ in range(rng.randint(1, 4))]
    return offsets, (rng.randint(-1, 1), rng.randint(-1, 1)), rng.random() < 0.3


@pytest.mark.parametrize("seed", range(60))
def test_the_skew_is_the_least_that_enumeration_allows(seed: int) -> None:
    read, written, triangular = drawn(seed)
    found = sweep_at(nest(read, written, triangular).body, 0)
    wanted = least_skew(read, written, triangular)
    assert (None if found is None else found[0].skew) == wanted


def test_what_carries_a_value_along_another_way_is_no_sweep() -> None:
    plain = nest([(-1, 0)])
    set_i, loop = plain.body
    assert isinstance(loop, While)
    assert sweep_at(plain.body, 0) is not None
    index = Local("i", I64)
    behind = Store("a", (index, whole(0)), Const(1.0, F64), NOWHERE)
    assert sweep_at((*plain.body, behind), 0) is None, "the counter is read behind the loop"
    inner = loop.body[0]
    assert isinstance(inner, For)
    last = UpdateLocal("s", "add", Const(1.0, F64), NOWHERE)
    carried = replace(inner, body=(*inner.body, last))
    assert sweep_at((set_i, replace(loop, body=(carried, loop.body[1]))), 0) is None
    twice = replace(loop, body=(inner, inner, loop.body[1]))
    assert sweep_at((set_i, twice), 0) is None


@kernel(fast_math=False)
def halves(a: nd) -> None:
    t = 0.0
    while t < 10.5:
        for j in range(a.shape[0]):
            a[j] = 0.5 * a[j] + t
        t += 1.0


def test_what_counts_in_floats_is_no_sweep() -> None:
    given = (np.zeros(COLUMNS, np.float32),)
    ir = record_sequence(lambda a: halves(a), given, name="one").calls[0].ir
    assert sweep_at(ir.body, 0) is None, "it would run 10 times instead of 11"


@pytest.mark.parametrize("name", ["j", "slack", "d"])
def test_the_skew_does_not_depend_on_names_of_loops(name: str) -> None:
    plain = nest([(-1, 1), (0, -1)])
    set_i, loop = plain.body
    assert isinstance(loop, While)
    inner = loop.body[0]
    assert isinstance(inner, For)
    renamed = replace(Renaming(loops={"j": LoopIndex(name, I64)}).apply_stmt(inner), loop=name)
    found = sweep_at((set_i, replace(loop, body=(renamed, loop.body[1]))), 0)
    assert found is not None
    assert found[0].skew == 2


@pytest.mark.compiler
@pytest.mark.parametrize("cores", [1, 3])
def test_wavefronts_compute_what_the_interpreter_does(
    cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nests = [
        (nest([(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]), 2),
        (nest([(-1, -1), (-1, 0), (0, -1)], triangular=True), 1),
        *((nest(*drawn(seed)), None) for seed in (1, 4, 7)),
    ]
    rng = np.random.default_rng(1)

    def plan(ir: KernelIR, n: int, _: int) -> Plan:
        found = sweep_at(ir.body, 0)
        assert found is not None
        sweep, _ = found
        place = 0, sweep.outer
        decisions = {
            "nests": {0: ONE_BY_ONE},
            "waves": {place: "DIAGONALS" if sweep.has_chain or n == 1 else "ROWS"},
            "wave_rows": {place: str(tiles[0])},
            "wave_columns": {place: str(tiles[1])},
            "dim_kind": {(*place, OUTER): "PARALLEL" if n > 1 else "LOOP"},
        }
        return decided_plan(ir, decisions, n, 0)

    monkeypatch.setattr(building, "default_plan", plan)
    for k, (ir, skew) in enumerate(nests if cores > 1 else nests[:2]):
        found = sweep_at(ir.body, 0)
        if found is None:
            continue
        assert skew in (None, found[0].skew)
        tiles = ((4, 5), (3, 7), (16, 32), (1, 1), (2, 3))[k]
        assert lower(plan(ir, cores, 0)).functions
        engine = Engine(EngineOptions(folder=tmp_path / f"{k}", cores=cores))
        a = rng.standard_normal(ir.arrays[0].shape)
        wanted = {"a": a.copy()}
        run_kernel(ir, wanted, {})
        for _ in range(3):
            given = a.copy()
            engine.run(ir, [given], [])
            assert np.array_equal(given, wanted["a"])


def test_the_engine_runs_long_sweeps_by_wavefronts_and_leaves_short_ones() -> None:
    def steps(n: int, cores: int) -> list[Any]:
        ir = nest([(-1, 0), (0, -1)])
        _, loop = ir.body
        assert isinstance(loop, While)
        most = replace(loop, condition=Compare("lt", Local("i", I64), whole(n)))
        wide = replace(most, body=(replace(loop.body[0], extent=whole(n)), loop.body[1]))
        shape = (n + 2 * MARGIN, n + 2 * MARGIN)
        array = ArrayParam("a", F64, shape)
        made = replace(ir, arrays=(array,), body=(ir.body[0], wide))
        return list(default_plan(made, cores, 32).tasks[0].steps)

    (long,) = steps(800, 4)
    assert isinstance(long, WavePlan)
    assert long.threads == 4
    assert long.wave.along_diagonals
    assert long.wave.n_rows >= 8 * 4
    assert not any(isinstance(s, WavePlan) for s in steps(8, 4))


@kernel(fast_math=False)
def relax(a: nd) -> None:
    loop_config(serialize=True)
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            a[i, j] = (a[i - 1, j + 1] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j]) / 4.0


@kernel(fast_math=False)
def chains(seq: nd, best: nd) -> None:
    n = seq.shape[0]
    loop_config(serialize=True)
    for r in range(n):
        i = n - 1 - r
        for j in range(i + 1, n):
            most = max(best[i, j - 1], best[i + 1, j])
            if seq[i] + seq[j] > 0.0:
                most = max(most, best[i + 1, j - 1] + 1.0)
            for k in range(i + 1, j):
                most = max(most, best[i, k] + best[k + 1, j])
            best[i, j] = most


def relaxed(a, out):
    relax(a)
    doubled(a, out)


def chained(seq, best):
    chains(seq, best)


@kernel
def doubled(a: nd, out: nd) -> None:
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i, j] = 2.0 * a[i, j]


def arrays_of(fn: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    if fn is relaxed:
        return {
            "a": rng.standard_normal((37, 83)).astype(np.float32),
            "out": np.zeros((37, 83), np.float32),
        }
    return {
        "seq": rng.standard_normal(41).astype(np.float32),
        "best": np.zeros((42, 41), np.float32),
    }


@pytest.mark.compiler
@pytest.mark.parametrize(("fn", "task"), [(relaxed, 0), (chained, 0)])
def test_candidates_with_wavefronts_compute_what_the_interpreter_does(
    fn: Any, task: int, tmp_path: Path
) -> None:
    arrays = arrays_of(fn)
    recording = record_sequence(fn, tuple(arrays.values()), name="one")
    problem = normalise(recording)
    space = build_space(problem, checking.target(3, 32))
    root: Any = space.root()
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert len(inputs) > 1
    rng = np.random.default_rng(3)
    sources = []
    for order in range(len(ch.WAVES)):
        made = root.decide(space.variables.waves[task], 1 << order)
        made = checking.random_candidate(made, rng)
        with verifying():
            sources.append(checking.source_of(made))
        assert (plan_of(made).tasks[task].wave is None) == (order == ch.IN_ORDER)
    flags = ("-Wno-unused-function", "-Wno-unknown-pragmas")
    assert not checking.fault(sources, inputs, tmp_path, more_flags=flags)
