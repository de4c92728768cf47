"""Kernels on sparse fields that several tests call in turn."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import kernelscape as ks
import pytest


@pytest.fixture(scope="module")
def p() -> Iterator[SimpleNamespace]:
    """Kernels on x, y and v in a tree, z in a coarser one, w in a bitmasked one."""
    ks.init()
    x, y, z, w, n = (ks.field(ks.i32) for _ in range(5))
    v, f, r = ks.Vector.field(2, ks.i32), ks.field(ks.f32), ks.field(ks.f32)
    block = ks.root.pointer(ks.i, 8)
    block.dense(ks.i, 4).place(x, y, v, f)
    ks.root.pointer(ks.i, 4).dense(ks.i, 4).place(z)
    bits = ks.root.bitmasked(ks.i, 32)
    bits.place(w)
    ks.root.place(n, r)

    @ks.kernel
    def fill():
        for i in range(9):
            x[i] += 1

    @ks.kernel
    def add():
        for i in x:
            y[i] += x[i]

    @ks.kernel
    def own():
        for i in x:
            x[i] += y[i]

    @ks.kernel
    def components():
        for i in x:
            v[i] += [x[i], y[i]]

    @ks.kernel
    def around():
        for i in x:
            y[i] = x[i - 1] + x[i + 1]

    @ks.kernel
    def apart():
        for i in x:
            v[i][0] = v[i][1] + 1

    @ks.kernel
    def total():
        for i in x:
            n[None] += x[i]

    @ks.kernel
    def scaled():
        for i in x:
            y[i] *= n[None]

    @ks.kernel
    def down():
        for i in x:
            z[i // 2] += x[i]

    @ks.kernel
    def coarse():
        for i in z:
            z[i] += 1

    @ks.kernel
    def some():
        for i in range(9):
            if i % 2 == 0:
                x[i + 3] = i

    @ks.kernel
    def one(k: ks.i32):
        x[k] = k

    @ks.kernel
    def thin():
        for i in x:
            if x[i] > 3:
                ks.deactivate(block, i // 4)

    @ks.kernel
    def masked():
        for i in w:
            w[i] += 1

    @ks.kernel
    def mask():
        for i in x:
            w[i] = x[i]

    yield SimpleNamespace(**locals())
    ks.reset()
