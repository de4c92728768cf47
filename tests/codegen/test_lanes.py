"""Bodies in lanes compute what the interpreter computes: random ones, of several types, widths and compilers, and known ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.c.lanes import Lanes
from kernelscape.codegen.kernel_plan import KernelPlan, LoopStep
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Const,
    DType,
    KernelIR,
    Load,
    LoopIndex,
    Store,
    Update,
)
from kernelscape.kernels.ir.walk import rewrite
from kernelscape.kernels.offload.distribute import unique_loops
from kernelscape.runtime.engine import building
from kernelscape.runtime.engine.engine import Engine, EngineOptions
from kernelscape.testing import statements

pytestmark = pytest.mark.compiler
O = LoopIndex("o")
SIZES = (37, 9, 1)


def with_own_rows(ir: KernelIR) -> KernelIR:
    """The kernel with what it updates in `v` stored to a row of each iteration's own, which its loads of `v` read."""

    def change(x: Any) -> Any:
        match x:
            case Update("v", indices, _, value, where):
                return Store("own", (O, *indices), value, where)
            case Load("v_in", indices, dtype):
                return Load("own", (O, *indices), dtype)
        return x

    side = next(p.shape[0] for p in ir.arrays if p.name == "v")
    own = ArrayParam("own", DType.f64, (max(1, extent_of(ir)), side))
    kept = [p for p in ir.arrays if p.name not in ("v", "v_in")]
    return replace(ir, arrays=(*kept, own), body=rewrite(ir.body, change))


def extent_of(ir: KernelIR) -> int:
    (loop,) = ir.body
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)


def of_type(ir: KernelIR, dtype: DType) -> KernelIR:
    """The kernel with numbers of another type in place of f64."""

    def change(x: Any) -> Any:
        if isinstance(x, Const) and x.dtype is DType.f64:
            value = dtype.wrapped(int(x.value)) if dtype.is_integer else x.value
            return Const(value, dtype)
        return dtype if x is DType.f64 else x

    return rewrite(ir, change)


def lanes_plan(width: int, vector_bytes: int) -> Callable[..., KernelPlan]:
    """Plans in which the outermost loop runs in lanes, whatever its body."""

    def plan(ir: KernelIR, cores: int, _: int) -> KernelPlan:
        (loop,) = unique_loops(ir.body)
        return KernelPlan(ir, (LoopStep(loop, lanes=Lanes(loop.loop, width, vector_bytes)),), cores)

    return plan


def engine_at(folder: Any, compiler: str | None = None) -> Engine:
    return Engine(EngineOptions(folder=folder / "kernels", cores=1, compiler=compiler))


def assert_same(engine: Engine, ir: KernelIR) -> None:
    given = list(statements.arrays_of(ir).values())
    wanted = {p.name: a.copy() for p, a in zip(ir.arrays, given, strict=True)}
    with np.errstate(over="ignore"):
        run_kernel(ir, wanted, {})
    engine.run(ir, given, [])
    for p, x in zip(ir.arrays, given, strict=True):
        assert np.array_equal(x, wanted[p.name]), p.name


@pytest.mark.parametrize(
    ("vector_bytes", "width", "dtype"),
    [
        (64, 8, "f64"),
        (64, 16, "f32"),
        (64, 16, "f64"),
        (64, 16, "i32"),
        (32, 8, "f32"),
        (32, 4, "i64"),
        (64, 16, "i16"),
    ],
)
def test_random_bodies_in_lanes(vector_bytes, width, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "default_plan", lanes_plan(width, vector_bytes))
    engine = engine_at(tmp_path)
    irs = [
        of_type(with_own_rows(statements.in_any_order(ir, SIZES[k % 3])), DType[dtype])
        for k, ir in enumerate(statements.drawn(6))
    ]
    engine.prepare(irs)
    for ir in irs:
        assert_same(engine, ir)
    engine.close()
