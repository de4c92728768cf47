"""Locals that nobody reads are in no text, and what else their statements do is done."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.walk import local_changed, nested_statements
from kernelscape.kernels.tasks.pipeline import normalise

nd = ks.types.ndarray()


@ks.kernel
def unread(x: nd, y: nd):
    for i in range(8):
        y[i] = x[i]
        once = x[7 - i]
        if x[i] > 0:
            inside = once + x[i]  # noqa: F841
        sum_ = 0.0
        for j in range(i):
            sum_ += x[j]


@ks.kernel
def early(x: nd, y: nd):
    for i in range(8):
        if x[i] > 0:
            continue
        y[i] = 1.0


@ks.kernel
def counted(x: nd, y: nd):
    for i in range(8):
        place = ks.atomic_add(y[i // 4], x[i])  # noqa: F841


@ks.kernel
def stored_in_vain(x: nd, y: nd):
    for i in range(8):
        square = x[i] * x[i]
        y[i] = square
        half = x[i]
        while half > 1:
            half *= 0.5
        x[i] = half


@ks.kernel
def overwritten(x: nd, y: nd):
    for i in range(8):
        y[i] = 2.0


def arguments():
    return np.arange(8.0) - 3, np.full(8, 7.0)


@pytest.mark.parametrize("kernel", [unread, early, counted], ids=lambda k: k.name)
def test_locals_that_nobody_reads_are_in_no_task(kernel):
    tasks = normalise(record_sequence(kernel, arguments())).tasks
    bodies = [t.body.statements for t in tasks if t.body is not None]
    assert not any(local_changed(s) for body in bodies for s in nested_statements(body))


@pytest.mark.parametrize("kernel", [early, counted], ids=lambda k: k.name)
def test_kernels_keep_unread_locals_for_the_checks_of_indices_alone(kernel):
    body = kernel.instantiate(*arguments()).body
    assert not any(map(local_changed, nested_statements(body)))


def test_an_index_outside_is_an_error_where_nobody_uses_the_element():
    ks.init(arch=ks.cpu)
    x, z = (ks.field(ks.i32, shape=8) for _ in range(2))

    @ks.kernel
    def straight(n: ks.i32):
        z[0] = 1
        y = x[n]  # noqa: F841

    @ks.kernel
    def loop(n: ks.i32):
        z[0] = 1
        for i in range(n):
            y = x[i]  # noqa: F841

    for kernel in (straight, loop):
        with pytest.raises(IndexError):
            kernel(99)
        assert z[0] == 0, "nothing is written before"
        kernel(7)
        assert z[0] == 1
        z[0] = 0
    ks.reset()


def test_updates_stay_without_their_results():
    x, y = arguments()
    with ks.interpret():
        counted(x, y)
    np.testing.assert_array_equal(y[:3], [7 - 3 - 2 - 1, 7 + 1 + 2 + 3 + 4, 7])


def test_locals_of_dropped_stores_go_with_them():
    def twice(x, y):
        stored_in_vain(x, y)
        overwritten(x, y)

    problem = normalise(record_sequence(twice, arguments()))
    (body,) = (t.body.statements for t in problem.tasks if t.body is not None)
    assert len({name for s in nested_statements(body) if (name := local_changed(s))}) == 1  # half


def test_elements_are_appended_where_their_number_is_not_read():
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    ks.root.dynamic(ks.i, 32, chunk_size=4).place(x)

    @ks.kernel
    def fill():
        for k in range(10):
            place = x.append(k)  # noqa: F841

    @ks.kernel
    def length() -> ks.i32:
        return x.length()

    fill()
    assert length() == 10
    ks.reset()
