"""Calls of kinds that a kernel has met do what slow ones do, and hold nothing that is gone."""

from __future__ import annotations

import gc
import time
import weakref
from functools import partial

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend import kernel as kernel_module
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.interpret.executor import interpret

pytestmark = pytest.mark.usefixtures("program")


def quick_after(call, kernel, times: int = 400) -> None:
    """Calls until the quick way is there: the extension is compiled beside."""
    for _ in range(times):
        call()
        if kernel.quick._known or kernel.quick._known_twice:
            return
        time.sleep(0.05)
    raise AssertionError("no call went the quick way")


@pytest.mark.compiler
def test_calls_with_one_array_twice_are_quick(monkeypatch):
    """Kind: calls that went the slow way each time. Each way to give an array twice, read and written."""

    @ks.kernel
    def both(x: ks.types.ndarray(), y: ks.types.ndarray(), r: ks.types.ndarray(), a: ks.f32):
        for i in range(x.shape[0]):
            r[i] += a * x[i] * y[i]

    def drawn():
        return [np.arange(4, dtype=np.float32) + k for k in range(3)]

    patterns = [(0, 0, 1), (0, 1, 2), (0, 1, 0), (0, 1, 1), (0, 0, 0)]
    for given in patterns:
        arrays = drawn()
        quick_after(lambda: both(*(arrays[k] for k in given), 0.0), both)  # noqa: B023
        both(*(arrays[k] for k in given), 0.0)
    slow = []
    monkeypatch.setattr(type(both), "call_from", lambda *given: slow.append(given))
    for given in patterns:
        arrays, wanted = drawn(), drawn()
        x, y, r = (wanted[k] for k in given)
        r += 2 * x * y
        both(*(arrays[k] for k in given), 2.0)
        assert not slow
        assert np.array_equal(arrays, wanted)
    arrays = drawn()
    both(arrays[0], arrays[1], arrays[0][:], 2.0)  # another view of what is written
    assert len(slow) == 1


@pytest.mark.compiler
def test_quick_calls_do_what_slow_ones_do():
    x = ks.field(ks.f32, shape=4)
    other = ks.field(ks.f32, shape=4)

    @ks.kernel
    def add(to: ks.template(), y: ks.types.ndarray(), a: ks.f32, n: ks.i32) -> ks.f32:
        for i in to:
            to[i] += a * y[i]
        return a + n

    y = np.ones(4, np.float32)
    quick_after(lambda: add(x, y, 0.0, 0), add)
    x.fill(0)
    assert add(x, y, 1.5, 2) == 3.5
    assert add(x, y, 1, 2) == 3.0  # a whole number where a float is asked for
    assert add(x, 2 * y, 1.0, True) == 2.0
    assert add(to=x, y=y, a=0.5, n=0) == 0.5
    assert x.to_numpy().tolist() == [5.0] * 4
    add(other, y, 1.0, 0)
    assert other.to_numpy().tolist() == [1.0] * 4 and x.to_numpy().tolist() == [5.0] * 4
    add(x, np.arange(4, dtype=np.float32)[::-1], 1.0, 0)
    assert x.to_numpy().tolist() == [8.0, 7.0, 6.0, 5.0]
    with pytest.raises(LanguageError, match="2 dimensions"):
        add(x, np.ones((2, 2), np.float32), 1.0, 0)
    with pytest.raises(LanguageError, match="cannot hold"):
        add(x, y, 1.0, 2**40)
    with pytest.raises(TypeError, match="argument a must fit float32"):
        add(x, y, 10**400, 1)


@pytest.mark.compiler
def test_quick_calls_end_with_their_program():
    x = ks.field(ks.i32, shape=2)

    @ks.data_oriented
    class Counter:
        def __init__(self, step):
            self.step = step

        @ks.kernel
        def count(self):
            for i in x:
                x[i] += self.step

    one, ten = Counter(1), Counter(10)
    quick_after(one.count, Counter.__dict__["count"])
    x.fill(0)
    one.count()
    ten.count()
    one.count()
    assert x.to_numpy().tolist() == [12, 12]
    before = x
    ks.init()
    x = ks.field(ks.i32, shape=2)
    one.count()
    assert x.to_numpy().tolist() == [1, 1] and before is not x


@pytest.mark.compiler
def test_quick_calls_hold_no_fields_that_are_gone():
    y = ks.field(ks.f32)
    builder = ks.FieldsBuilder()
    builder.dense(ks.i, 4).place(y)
    tree = builder.finalize()

    @ks.kernel
    def use() -> ks.f32:
        y[0] += 1
        return y[0]

    quick_after(use, use)
    tree.destroy()
    with pytest.raises(LanguageError, match="its tree was destroyed"):
        use()


@pytest.mark.compiler
def test_quick_calls_hold_no_programs_that_have_ended():
    @ks.kernel
    def use(x: ks.template()):
        for i in x:
            x[i] += 1

    first = ks.field(ks.f32, shape=4)
    quick_after(partial(use, first), use)
    gone = weakref.ref(first)
    del first
    ks.init()
    second = ks.field(ks.f32, shape=4)
    use(second)
    quick_after(lambda: use(second), use)
    assert len(use.quick._known) == 1
    gc.collect()
    assert gone() is None


@pytest.mark.compiler
def test_templates_that_a_kernel_can_tell_apart_are_kept_apart():
    @ks.kernel
    def inverse(a: ks.template()) -> ks.f32:
        return 1.0 / a

    @ks.kernel
    def corner(m: ks.template()) -> ks.f32:
        return m[0, 1]

    @ks.kernel
    def length(v: ks.template()) -> ks.f32:
        return v.norm()

    quick_after(lambda: inverse(2.0), inverse)
    assert [inverse(z) for z in (0.0, -0.0, 0.0)] == [np.inf, -np.inf, np.inf]
    assert corner(ks.Matrix([[1, 2], [3, 4]])) == 2
    assert length(ks.Vector([3.0, 4.0])) == 5
    assert length(ks.Vector([[0.0, 0.0], [3.0, 4.0]])) == 5


def test_kernels_keep_no_object_alive():
    """Kind: caches by identity. An object that gets the identity of one that is gone is another object."""

    @ks.data_oriented
    class Adding:
        def __init__(self, k):
            self.k = k

        @ks.kernel
        def to(self, n: ks.i32) -> ks.i32:
            return n + self.k

    seen = []
    for k in range(4):
        adding = Adding(k)
        seen.append(weakref.ref(adding))
        assert [adding.to(1), adding.to(2)] == [k + 1, k + 2]
        del adding
        gc.collect()
    assert [r() for r in seen] == [None] * 4
    assert len(Adding.to._instances) == 1


def test_instances_are_forgotten_by_several_threads_at_once(monkeypatch):
    """The kind: what a thread iterates over or removes while another removes it, too."""

    @ks.kernel
    def add(x: ks.types.ndarray(), k: ks.template()):
        x[0] += k

    x = np.zeros(1)
    with interpret():
        add(x, 1)

        def another(signature):
            add._instances.pop(signature)
            return False

        monkeypatch.setattr(kernel_module, "_is_alive", another)
        add(x, 2)
    assert x[0] == 3
