"""Bodies in lanes compute what the interpreter computes: random ones, of several types, widths and compilers, and known ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.bodies import lanes_masks
from kernelscape.codegen.bodies.lanes import Lanes
from kernelscape.codegen.plan import default_lanes
from kernelscape.codegen.plan.nest_plan import ONE_BY_ONE, NestPlan
from kernelscape.codegen.plan.plan import Plan
from kernelscape.kernels.analysis.write_rows import is_free, write_rows, written_out
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import (
    DType,
    If,
    KernelIR,
    LoopIndex,
)
from kernelscape.kernels.tasks.distribute import unique_loops
from kernelscape.runtime.engine import building, toolchain
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.runtime.engine.planning import decided_plan, default_plan
from kernelscape.space.backbone import INNER, OUTER
from kernelscape.testing.generator.features import order_free
from kernelscape.testing.generator.sequences import kernels_of

pytestmark = pytest.mark.compiler
O = LoopIndex("o")
SIZES = (79, 9, 1)


def lanes_plan(width: int, vector_bytes: int) -> Callable[..., Plan]:
    """Plans in which the outermost loop runs in lanes, whatever its body."""

    def plan(ir: KernelIR, cores: int, _: int) -> Plan:
        (loop,) = unique_loops(ir.body)
        outer, inner = ((0, loop.loop, level) for level in (OUTER, INNER))
        decisions = {
            "nests": {0: ONE_BY_ONE},
            "dim_kind": {outer: "LOOP", inner: "VECTOR"},
            "size": {inner: str(width)},
        }
        return decided_plan(ir, decisions, cores, vector_bytes)

    return plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def engine_at(folder: Path, cores: int = 1, compiler: str | None = None) -> Engine:
    """Code of other numbers of cores is other code; a loop that is not shared runs on one of them."""
    return Engine(EngineOptions(folder=folder, cores=cores, compiler=compiler))


def assert_same(engine: Engine, ir: KernelIR, arrays: dict[str, np.ndarray]) -> None:
    given = [*arrays.values()]
    wanted = {p.name: a.copy() for p, a in zip(ir.arrays, given, strict=True)}
    with np.errstate(over="ignore"):
        run_kernel(ir, wanted, {})
    engine.run(ir, given, [])
    for p, x in zip(ir.arrays, given, strict=True):
        assert np.array_equal(x, wanted[p.name]), p.name


def compile_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets a low level of optimisation, a third of the time to compile: the text has the vectors of lanes at any level."""
    assert toolchain._FLAGS[0] == "-O3"
    monkeypatch.setattr(toolchain, "_FLAGS", ("-O1", *toolchain._FLAGS[1:]))


@pytest.mark.parametrize(
    ("vector_bytes", "width", "dtype", "has_bits"),
    [
        (64, 8, "f64", True),
        (64, 16, "f32", True),
        (64, 16, "f64", True),
        (64, 16, "i32", True),
        (64, 32, "f32", True),
        (64, 16, "i16", True),
        (64, 32, "i16", True),
        (64, 64, "i8", True),
        (32, 4, "i64", True),
        (32, 8, "f32", False),
        (32, 8, "f64", False),
        (32, 16, "i32", False),
        (32, 32, "i8", False),
        (16, 2, "f64", True),
        (16, 2, "f64", False),
    ],
)
def test_random_bodies_in_lanes(vector_bytes, width, dtype, has_bits, folder, monkeypatch):
    """`has_bits`: masks have a bit a lane, where the machine knows such masks, else they are vectors."""
    compile_quickly(monkeypatch)
    if not has_bits:
        plain = lanes_masks.FEATURES.replace("#define LANES_AVX512", "")
        monkeypatch.setattr(lanes_masks, "FEATURES", plain)
    monkeypatch.setattr(building, "default_plan", lanes_plan(width, vector_bytes))
    engine = engine_at(folder / "random", 100 * width + vector_bytes)
    number = str(np.dtype(DType[dtype].numpy))
    drawn = [one for k in range(3) for one in kernels_of(order_free(SIZES[k % 3], number), [k])]
    engine.prepare([ir for ir, _ in drawn])
    for ir, arrays in drawn:
        assert_same(engine, ir, arrays)
    engine.close()


# --- kernels whose lanes are known

A = ks.types.ndarray


@ks.kernel
def escapes(counts: A(), x: A(), y: A()):
    for i in x:
        a, b, n = 0.0, 0.0, 0
        while a * a + b * b < 4.0 and n < 50:
            a, b = a * a - b * b + x[i], 2.0 * a * b + y[i]
            n += 1
        counts[i] = n


@ks.kernel
def ragged(out: A(), x: A(), starts: A()):
    for i in range(out.shape[0]):
        total = 0.0
        for k in range(starts[i + 1] - starts[i]):
            total += x[starts[i] + k]
        if total > 1.0:
            out[i] = total


@ks.kernel
def guarded(out: A(), x: A(), at: A()):
    for i in out:
        if at[i] >= 0 and x[at[i]] > 0.0:
            out[i] = x[at[i]]
        else:
            out[i] = -1.0


@ks.kernel
def spread(sums: A(), x: A(), at: A()):
    for i in x:
        if x[i] > 0.5:
            sums[at[i]] += x[i]


@ks.kernel
def rowed(sums: A(), others: A(), x: A(), at: A()):
    for i in x:
        for k in range(3):
            others[at[i], k + 1] += x[i] * (k + 1)
        if x[i] != 0:
            for k in ks.static(range(5)):
                sums[at[i], k] += x[i] * (5 - k)


@ks.kernel
def summed(out: A(), x: A()):
    total = 0.0
    for i in x:
        if x[i] > 0.25:
            total += x[i]
    out[0] = total


@ks.kernel
def told(out: A(), x: A(), n: A()):
    for i in x:
        if x[i] > 0.5:
            k = ks.atomic_add(n[0], 1)
            out[k] = 1.0


@ks.kernel
def repeated(out: A(), x: A()):
    for i in x:
        for k in range(20):
            out[i] += x[i] * k


@ks.kernel
def chained(x: A()):
    for i in range(x.shape[0] - 1):
        if x[i + 1] > 0.5:
            x[i] = x[i + 1] * 2.0


@ks.kernel
def since(out: A(), x: A(), at: A(), start: A()):
    for i in out:
        if at[i] > start[0]:
            out[i] = x[at[i] - start[0], 1]


@ks.kernel
def neared(out: A(), x: A(), at: A()):
    for i in out:
        if at[i] >= 0:
            k = at[i]
            out[i] = x[k, 0] * 2 + x[k, 1] + x[k, 2] * 3 + x[k, 4] - x[k + 1, 0]


@ks.kernel
def kept(out: A(), x: A()):
    for i in out:
        last = np.zeros(40, np.float32)
        for k in range(40):
            last[k] += x[i] * k
            if x[i] > 0.5:
                last[39 - k] += 1.0
        for k in range(40):
            out[i] += last[39 - k] * k


@ks.kernel
def matched(out: A(), x: A(), y: A()):
    for i in range(32):
        for j in range(32):
            s = np.float32(0)
            for k in range(40):
                s += x[i, k] * y[j, k]
            out[i, j] = s


@ks.kernel
def small_systems(a: A(), b: A(), x: A()):
    """Numerators of the solutions of systems of three equations: nothing lies side by side, rows are transposed."""
    for h in range(a.shape[0]):
        c0 = a[h, 1, 1] * a[h, 2, 2] - a[h, 1, 2] * a[h, 2, 1]
        c1 = a[h, 1, 2] * a[h, 2, 0] - a[h, 1, 0] * a[h, 2, 2]
        c2 = a[h, 1, 0] * a[h, 2, 1] - a[h, 1, 1] * a[h, 2, 0]
        d0 = a[h, 0, 2] * a[h, 2, 1] - a[h, 0, 1] * a[h, 2, 2]
        d1 = a[h, 0, 0] * a[h, 2, 2] - a[h, 0, 2] * a[h, 2, 0]
        d2 = a[h, 0, 1] * a[h, 2, 0] - a[h, 0, 0] * a[h, 2, 1]
        x[h, 0] = b[h, 0] * c0 + b[h, 1] * d0 + b[h, 2] * (a[h, 0, 1] * a[h, 1, 2])
        x[h, 1] = b[h, 0] * c1 + b[h, 1] * d1 + b[h, 2] * (a[h, 0, 2] * a[h, 1, 0])
        x[h, 2] = b[h, 0] * c2 + b[h, 1] * d2 + b[h, 2] * (a[h, 0, 0] * a[h, 1, 1])


@ks.kernel
def differences(x: A(), y: A()):
    """The same places with too little arithmetic for transpositions."""
    for h in range(x.shape[0]):
        y[h, 0] = x[h, 1] - x[h, 0]
        y[h, 1] = x[h, 2] - x[h, 1]


def known() -> Iterator[tuple[Any, list[np.ndarray], bool]]:
    """Kernels, arguments, and whether they run in lanes."""
    rng = np.random.default_rng(5)
    n = 1000
    x, y = rng.uniform(-2, 1, n).astype(np.float32), rng.uniform(-1, 1, n).astype(np.float32)
    unit = (rng.integers(0, 64, n) / 64).astype(np.float32)  # with exact sums
    out, at = np.zeros(n, np.float32), rng.integers(-1, 60, n)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 3, n))]) // 2
    yield escapes, [np.zeros(n, np.int32), x, y], True
    yield ragged, [out, unit, starts], False  # its range runs in vectors
    yield guarded, [out, unit, at], False
    yield spread, [np.zeros(60, np.float32), unit, np.abs(at)], False
    for dtype in (np.float32, np.float64, np.int32, np.int64, np.int16):
        many = rng.integers(-9, 9, n).astype(dtype)
        table = rng.integers(-9, 9, (61, 5)).astype(dtype)
        yield neared, [np.zeros(n, dtype), table, at], False
        yield rowed, [np.zeros((60, 5), dtype), np.zeros((60, 4), dtype), many, np.abs(at)], False
    for begin in (
        5_000_000_000,
        2_000_000_000,
    ):  # rows of what begins far away: no place of 32 bits
        later = (np.abs(at) + begin).astype(np.int64 if begin >> 31 else np.int32)
        table, start = rng.random((60, 4096), np.float32), np.array([begin], later.dtype)
        yield since, [out, table, later, start], False
    yield summed, [np.zeros(1, np.float32), unit], True
    small = [rng.integers(-9, 9, shape).astype(np.float32) for shape in ((n, 3, 3), (n, 3), (n, 3))]
    yield small_systems, small, True
    yield differences, [small[1], np.zeros((n, 2), np.float32)], False
    yield told, [out, unit, np.zeros(1, np.int64)], False
    yield repeated, [out, unit], True
    yield chained, [unit], False
    yield kept, [out, unit], True
    rows = rng.integers(0, 9, (2, 32, 40)).astype(np.float32)
    yield matched, [np.zeros((32, 32), np.float32), *rows], False  # the sum runs in vectors


def lanes_of(ir: KernelIR) -> list[Lanes]:
    steps = default_plan(ir, 1, 64).tasks[0].steps
    return [s.lanes for s in steps if isinstance(s, NestPlan) and s.lanes is not None]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_known_kernels_in_lanes(compiler, folder, monkeypatch):
    """With gcc compiled as users' are."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    if compiler != "gcc":
        compile_quickly(monkeypatch)
    monkeypatch.setattr(default_lanes, "_pays", lambda loop, problem: True)
    monkeypatch.setattr(
        default_lanes, "_looks_up", lambda body: False
    )  # nothing runs along a range
    monkeypatch.setattr(building, "vector_bytes", lambda: 64)
    engine = engine_at(folder / compiler, 1, compiler)
    calls = [(fn.instantiate(*args), args) for fn, args, _ in known()]
    engine.prepare(ir for ir, _ in calls)
    for ir, args in calls:
        assert bool(lanes_of(ir)) == (ir.name not in ("chained", "told"))
        wanted = {p.name: a.copy() for p, a in zip(ir.arrays, args, strict=True)}
        run_kernel(ir, wanted, {})
        found = [a.copy() for a in args]
        engine.run(ir, found, [])
        for p, x in zip(ir.arrays, found, strict=True):
            assert np.array_equal(x, wanted[p.name]), (ir.name, p.name)
    engine.close()


def test_elements_beside_one_another_are_updated_at_once():
    """Three of a loop, and five as a row of four and one, or as two rows of two, where a vector has so many."""
    n_updates = {np.float32: (1, 2), np.int32: (1, 2), np.float64: (2, 3), np.int16: (1, 5)}
    for dtype, (of_loop, of_branch) in n_updates.items():
        known = dict.fromkeys(("sums", "others"), DType(np.dtype(dtype).name))
        given = [np.zeros(shape, dtype) for shape in ((60, 5), (60, 4), (100,))]
        (loop,) = rowed.instantiate(*given, np.zeros(100, np.int64)).body
        block, branch = loop.body[:1], next(s for s in loop.body if isinstance(s, If))
        lengths = []
        for body in (block, branch.then):
            may = is_free(loop.body)
            body = written_out(body, may, known.__getitem__)
            rows = write_rows(body, may, known.__getitem__)
            lengths.append(len(body) - len(rows) + len({id(r) for r in rows.values()}))
        assert tuple(lengths) == (of_loop, of_branch), dtype


def test_loops_run_in_lanes_where_it_pays():
    for fn, args, is_expected in known():
        assert bool(lanes_of(fn.instantiate(*args))) == is_expected, fn.name


@ks.kernel
def functions(out: A(), x: A(), y: A()):
    for i in x:
        out[0, i] = ks.sin(x[i])
        out[1, i] = ks.cos(x[i])
        out[2, i] = ks.exp(x[i])
        out[3, i] = ks.log(y[i])
        out[4, i] = ks.pow(y[i], x[i])
        out[5, i] = ks.atan2(y[i], x[i])
        out[6, i] = ks.tanh(x[i])
        out[7, i] = ks.tan(x[i])


strict_functions = ks.kernel(fast_math=False)(functions.fn)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_vectors_are_within_four_ulp(dtype, folder, monkeypatch):
    monkeypatch.setattr(building, "vector_bytes", lambda: 64)
    rng = np.random.default_rng(2)
    x, y = rng.uniform(-6, 6, 999).astype(dtype), rng.uniform(0.01, 9, 999).astype(dtype)
    wide, of_y = x.astype(np.longdouble), y.astype(np.longdouble)
    wanted = [np.sin(wide), np.cos(wide), np.exp(wide), np.log(of_y), of_y**wide]
    wanted += [np.arctan2(of_y, wide), np.tanh(wide), np.tan(wide)]
    engine = engine_at(folder)
    out = np.zeros((8, len(x)), dtype)
    ir, strict = (fn.instantiate(out, x, y) for fn in (functions, strict_functions))
    assert lanes_of(ir) and lanes_of(strict)
    engine.prepare([ir, strict])
    engine.run(ir, [out, x, y], [])
    for row, want in zip(out, wanted, strict=True):
        spacing = np.spacing(np.abs(want).astype(dtype))
        assert (np.abs(row - want) <= 4.5 * spacing).all()
    engine.run(strict, [out, x, y], [])
    engine.close()
    monkeypatch.setattr(building, "vector_bytes", lambda: 0)
    scalar = engine_at(folder, 2)
    by_one = np.zeros_like(out)
    scalar.run(strict, [by_one, x, y], [])
    scalar.close()
    assert np.array_equal(out, by_one)
