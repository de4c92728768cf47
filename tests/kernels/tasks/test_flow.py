"""What flows into what in a sequence."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.tasks.flow import flow_of

nd = ks.types.ndarray()
F64 = np.zeros(4)
F32 = np.zeros(4, np.float32)
I64 = np.zeros(4, np.int64)


@ks.kernel
def divide(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        z[i] = x[i] / (y[i] + 2.0)


@ks.kernel
def gather(i: nd, x: nd, y: nd, alpha: float):
    for k in range(y.shape[0]):
        y[k] = alpha * x[i[k]]


@ks.kernel
def branch(c: nd, x: nd, y: nd):
    for k in range(y.shape[0]):
        t = c[k] * 2.0
        if t > 1.0:
            y[k] = x[k]


@ks.kernel
def in_order(x: nd, y: nd):
    for _ in range(1):
        for i in range(1, y.shape[0]):
            y[i] = 0.5 * y[i - 1] + x[i]


@ks.kernel
def add_to(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] += x[i] * x[i]


@ks.kernel
def root(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = ks.sqrt(x[i] * x[i])


@pytest.mark.parametrize(
    ("kernel", "args", "steering", "sensitive"),
    [
        (divide, (F64, F64, F64), {"y"}, {"z"}),
        (gather, (I64, F64, F64, 0.5), {"i"}, set()),
        (branch, (F64, F64, F64), {"c"}, set()),
        (in_order, (F64, F64), set(), {"y"}),
        (add_to, (F64, F64), set(), set()),
        (root, (F64, F64), {"x"}, set()),
    ],
)
def test_what_steers_and_what_feeds_itself(kernel, args, steering, sensitive):
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    found = flow_of(record_sequence(kernel, copies))
    assert found.steering == steering
    assert found.sensitive == sensitive


def test_it_flows_through_temporaries_and_calls():
    def sequence(x, y, z, w):
        t = ks.ndarray(ks.f64, (4,), name="t")
        add_to(x, t)
        divide(z, t, y)
        add_to(y, w)

    found = flow_of(record_sequence(sequence, [F64.copy() for _ in range(4)]))
    assert found.steering == {"t", "x"}
    assert found.sensitive == {"y", "w"}


def test_single_precision_on_the_way_is_seen():
    @ks.kernel
    def narrow(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = ks.cast(x[i] * x[i], ks.f64)

    @ks.kernel
    def wide(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] = ks.cast(x[i], ks.f64) * 2.0

    for kernel, coarsest in ((narrow, DType.f32), (wide, DType.f64)):
        found = flow_of(record_sequence(kernel, (F32.copy(), F64.copy())))
        assert found.coarsest["y"] is coarsest
