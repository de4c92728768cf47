"""Indices that are clamped as floats: they stay what they are, also for NaN they are inside, and no call looks at them."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelscape.codegen.bodies.index_checks import index_checks
from kernelscape.codegen.write.program_text import arguments_of
from kernelscape.kernels.frontend.clamping import clamped_indices
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.kernel import run_kernel
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.walk import walk
from kernelscape.kernels.tasks.pipeline import normalise

nd: Any = ks.types.ndarray()


@ks.func
def sample(q, x):
    inside = ks.min(ks.max(x, 0.0), q.shape[0] - 1.001)
    i = ks.cast(inside, ks.i32)
    rest = inside - i
    return q[i] * (1.0 - rest) + q[i + 1] * rest


@ks.kernel
def traced(q: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        y[k] = sample(q, x[k])


@ks.kernel
def floored(q: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        y[k] = q[ks.cast(ks.floor(ks.min(ks.max(x[k] * 0.5, -1.0), 6.5) + 1.0), ks.i32)]


@ks.kernel
def as_whole_numbers(q: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        i = ks.min(ks.max(ks.cast(x[k], ks.i32), 0), 6)
        y[k] = q[i] + q[i + 1]


@ks.kernel
def at_both_ends(q: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        inside = ks.min(ks.max(x[k], 0.0), 7.0)
        i = ks.cast(inside, ks.i32)
        y[k] = q[i + 1]


@ks.kernel
def at_one_end(q: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        y[k] = q[ks.cast(ks.max(x[k], 0.0), ks.i32)]


@ks.kernel
def set_twice(q: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        t = ks.min(ks.max(x[k], 0.0), 7.0)
        if x[k] > 5.0:
            t = x[k]
        y[k] = q[ks.cast(t, ks.i32)]


def arguments() -> list[np.ndarray[Any, Any]]:
    x = np.array([-3.0, 0.0, 2.5, 6.999, 7.0, 9.0], np.float32)
    return [np.arange(8, dtype=np.float32), x, np.zeros(6, np.float32)]


def is_looked_at(kernel: Any) -> bool:
    recording = record_sequence(kernel, arguments())
    return index_checks(recording, arguments_of(normalise(recording), 0)) is not None


@pytest.mark.parametrize("kernel", [traced, floored, as_whole_numbers])
def test_what_is_inside_for_sure_is_not_looked_at(kernel: Any) -> None:
    assert not is_looked_at(kernel)
    q, x, y = arguments()
    kernel(q, x, y)
    x[:] = np.nan, -np.inf, np.inf, np.nan, 1e30, -1e30
    kernel(q, x, y)  # an index outside would be an error here


@pytest.mark.parametrize("kernel", [at_both_ends, at_one_end, set_twice])
def test_what_may_be_outside_is(kernel: Any) -> None:
    assert is_looked_at(kernel)
    q, x, y = arguments()
    with pytest.raises(IndexError):
        kernel(q, x, y)


def test_results_are_those_of_the_program() -> None:
    q, x, y = arguments()
    traced(q, x, y)
    np.testing.assert_allclose(y, np.clip(x, 0, 6.999), rtol=1e-6)


FLOATS = {ir.DType.f32: st.floats(width=32), ir.DType.f64: st.floats(width=64)}


@given(
    st.data(),
    st.sampled_from([ir.DType.f32, ir.DType.f64]),
    st.sampled_from([ir.DType.i32, ir.DType.i64]),
)
def test_a_number_stays_what_it_is(data: st.DataObject, kind: ir.DType, whole: ir.DType) -> None:
    """Whatever the ends are, and what is computed between the clamp and the cast."""
    ends = st.floats(-1e6, 1e6, width=32)
    low, high = sorted((data.draw(ends), data.draw(ends)))
    more = data.draw(st.sampled_from(["add", "sub", "mul"]))
    by = ir.Const(data.draw(st.floats(-100, 100, width=32)), kind)
    x = ir.Load("x", (ir.Const(0, ir.DType.i64),), kind)
    inside = ir.Binary(
        "min", ir.Binary("max", x, ir.Const(low, kind), kind), ir.Const(high, kind), kind
    )
    cast = ir.Cast(ir.Binary(more, inside, by, kind), whole)
    index = ir.Binary(
        "mod", cast, ir.Const(1, whole), whole
    )  # inside of an array of one element in any case
    read = ir.Load("q", (ir.Cast(index, ir.DType.i64),), kind)
    (store,) = clamped_indices((ir.Store("y", (ir.Const(0, ir.DType.i64),), read, ir.NOWHERE),))
    assert isinstance(store, ir.Store) and isinstance(store.value, ir.Load)
    (made,) = store.value.indices
    clamps = [e for e in walk(made) if isinstance(e, ir.Binary) and e.op in ("min", "max")]
    assert len(clamps) == 4  # two of floats, two of whole numbers
    value = data.draw(FLOATS[kind].filter(lambda v: not np.isnan(v)))
    found = [evaluated(e, kind, whole, value) for e in (cast, clamps[0])]
    assert found[0] == found[1]


def evaluated(e: Any, kind: ir.DType, whole: ir.DType, value: float) -> int:
    """A whole number that depends on x[0]."""
    body = (ir.Store("out", (ir.Const(0, ir.DType.i64),), e, ir.NOWHERE),)
    arrays = (ir.ArrayParam("x", kind, (1,)), ir.ArrayParam("out", whole, (1,)))
    given = {"x": np.array([value], kind.numpy), "out": np.zeros(1, whole.numpy)}
    run_kernel(ir.KernelIR("one", arrays, (), body, ir.NOWHERE), given, {})
    return int(given["out"][0])
