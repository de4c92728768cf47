"""Kernels mean what Python means: what is read once, evaluated once, typed by all that is returned, bound when it is needed."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError

i = 7  # the name of a static loop's index in kernels below


# --- bounds of loops


def test_a_start_is_read_before_its_loop(program):
    c = ks.field(ks.i32, shape=2)

    @ks.func
    def count():
        c[0] += 1

    @ks.func
    def more(a: ks.template()):
        a += 1

    @ks.kernel
    def by_local() -> ks.i32:
        n = 0
        for _z in range(1):
            s = 0
            for k in range(s, 5):
                s += 1  # noqa: SIM113
                n += k
        return n

    @ks.kernel
    def by_template() -> ks.i32:
        n = 0
        for _z in range(1):
            s = c[1] - 5
            for k in range(s, 5):
                more(s)
                n += k
        return n

    @ks.kernel
    def by_element() -> ks.i32:
        n = 0
        for _z in range(1):
            for k in range(c[0], c[1]):
                c[0] += 1
                n += k
        return n

    @ks.kernel
    def by_function() -> ks.i32:
        n = 0
        for _z in range(1):
            for k in range(c[0], c[1]):
                count()
                n += k
        return n

    @ks.kernel
    def left_early() -> ks.i32:
        n = 0
        for _z in range(1):
            s = 0
            for k in range(s, 5):
                s += 1  # noqa: SIM113
                n += k
                if n > 100:
                    break
        return n

    for kernel in (by_local, by_template, by_element, by_function, left_early):
        c.from_numpy(np.array([0, 5], np.int32))
        assert kernel() == 10


def test_bounds_of_a_nest_are_read_before_its_first_loop(program):
    c = ks.field(ks.i32, shape=2)

    @ks.kernel
    def nest() -> ks.i32:
        n = 0
        for _z in range(1):
            for a, b in ks.ndrange(3, (c[0], c[1])):
                c[0] += 1
                c[1] += 1
                n += 10 * a + b
        return n

    c.from_numpy(np.array([0, 2], np.int32))
    assert nest() == sum(10 * a + b for a in range(3) for b in range(2))


def test_bounds_that_nothing_changes_stay_in_the_index():
    @ks.kernel
    def rows(y: ks.types.ndarray(), start: ks.types.ndarray(), x: ks.types.ndarray()):
        for r in range(3):
            for k in range(start[r], start[r + 1]):
                y[r] += x[k]

    ints = np.zeros(4, np.int32)
    ir = rows.instantiate(np.zeros(3, np.float32), ints, np.zeros(9, np.float32))
    assert "_start" not in repr(ir)


# --- what is evaluated once


def test_an_operand_is_evaluated_once(program):
    x = ks.field(ks.f32, shape=2)

    @ks.kernel
    def right() -> ks.f32:
        acc = 0
        acc = acc + ks.atomic_add(x[0], 1.5)
        return x[0] + acc

    @ks.kernel
    def left() -> ks.f32:
        acc = 7
        acc = ks.atomic_add(x[0], 1.5) + acc
        return x[0] + acc

    @ks.kernel
    def greatest() -> ks.f32:
        acc = 7
        acc = max(acc, ks.atomic_add(x[0], 1.5))
        return x[0] + acc

    @ks.kernel
    def several() -> ks.f32:
        a = b = ks.atomic_add(x[0], 1.5)
        return x[0] + a + b

    for kernel, wanted in ((right, 1.5), (left, 8.5), (greatest, 8.5), (several, 1.5)):
        x.fill(0)
        assert kernel() == wanted


def test_names_assigned_at_once_have_one_value(program):
    @ks.kernel
    def both(n: ks.i32) -> ks.i32:
        a = n
        a = b = a + 1
        return 10 * a + b

    assert both(1) == 22


def test_what_is_read_on_the_left_is_not_changed_on_the_right(program):
    @ks.func
    def more(a: ks.template()):
        a += 1
        return a

    @ks.kernel
    def named(n: ks.i32) -> ks.i32:
        q = n
        q = q + (q := 5)
        return q  # noqa: RET504

    @ks.kernel
    def passed(n: ks.i32) -> ks.i32:
        q = n
        q = q + more(q)
        return q  # noqa: RET504

    assert named(2) == 7
    assert passed(2) == 5


def test_an_owner_and_starred_arguments_are_evaluated_once(program):
    c = ks.field(ks.i32, shape=1)
    vectors = ks.Vector.field(2, ks.f32, shape=4)

    @ks.func
    def pair():
        c[0] += 1
        return ks.Vector([1, 2])

    @ks.func
    def add(a, b):
        return a + b

    @ks.kernel
    def filled():
        vectors[ks.atomic_add(c[0], 1)].fill(3.0)

    @ks.kernel
    def starred() -> ks.i32:
        return add(*pair())

    @ks.kernel
    def doubled(a: ks.f32) -> ks.f32:
        v = ks.Vector([1.0, a])
        return (v := v * 2.0).dot(ks.Vector([1.0, 1.0]))

    filled()
    assert c[0] == 1
    assert vectors.to_numpy().tolist() == [[3, 3], [0, 0], [0, 0], [0, 0]]
    assert starred() == 3
    assert c[0] == 2
    assert doubled(0.0) == 2


def test_fill_takes_a_number(program):
    c = ks.field(ks.i32, shape=4)

    @ks.kernel
    def wrong():
        c.fill("a")

    with pytest.raises(LanguageError, match=r"`c.fill\('a'\)` fills an array with something"):
        wrong()


# --- what is decided when the kernel is compiled


def test_an_index_of_a_static_loop_is_no_global_name(program):
    c = ks.field(ks.i32, shape=4)

    @ks.kernel
    def returns(a: ks.i32) -> ks.i32:
        for i in ks.static(range(3)):
            if ks.static(i == 1):  # noqa: SIM102
                if a > 0:
                    return 5
        c[3] += 1
        return 9

    @ks.func
    def broken(a):
        for i in ks.static(range(3)):
            if ks.static(i == 0):  # noqa: SIM102
                if a > 0:
                    break
            c[i] = 1

    @ks.kernel
    def breaks(a: ks.i32):
        broken(a)

    @ks.kernel
    def nested(a: ks.i32):
        for i in ks.static(range(2)):
            for i in ks.static(range(2)):
                if ks.static(i == 0):  # noqa: SIM102
                    if a > 0:
                        break
                c[i] += 1

    assert (returns(1), c[3]) == (5, 0)
    assert (returns(0), c[3]) == (9, 1)
    breaks(1)
    assert c.to_numpy().tolist() == [0, 0, 0, 1]
    breaks(0)
    assert c.to_numpy().tolist() == [1, 1, 1, 1]
    nested(1)
    assert c.to_numpy().tolist() == [1, 1, 1, 1]


def test_rounds_behind_a_break_are_not_refused_for_an_index_that_they_may_not_reach():
    @ks.kernel
    def filled(a: ks.types.ndarray(), n: ks.i32):
        for k in ks.static(range(5)):
            a[k] = 1.0
            if n <= k + 1:
                break

    a = np.zeros(3, np.float32)
    assert filled.instantiate(a, 2).arrays[0].shape == (3,)
    with pytest.raises(LanguageError, match="reaches 0"):
        filled.instantiate(np.zeros(0, np.float32), 2)


def test_a_method_of_a_name_that_is_bound_in_the_loop_is_no_static_condition(program):
    @ks.dataclass
    class Ray:
        length: ks.f32

        @ks.func
        def reaches(self, far):
            return self.length > far

    rays = Ray.field(shape=4)
    rays[1].length = 3.0

    @ks.kernel
    def short() -> ks.i32:
        n = 0
        for k in range(4):
            r = rays[k]
            if r.reaches(2.0):
                continue
            n += 1
        return n

    assert short() == 3


def test_serialized_loops_run_in_order():
    """Iterations that write one element through an index: side by side they would lose some."""
    ks.init(arch=ks.cpu)
    n = 1 << 18
    x, at = ks.field(ks.i64, shape=4), ks.field(ks.i32, shape=n)

    @ks.kernel
    def fold():
        ks.loop_config(serialize=True)
        for k, c in ks.ndrange(n // 2, 2):
            x[at[2 * k + c]] = (x[at[2 * k + c]] * 3 + 2 * k + c) % 1000003

    expected = 0
    for k in range(n):
        expected = (expected * 3 + k) % 1000003
    for _ in range(3):
        x.fill(0)
        fold()
        assert x[0] == expected
    ks.reset()


def test_loop_config_is_of_one_loop(program):
    x = ks.field(ks.i32, shape=4)

    @ks.kernel
    def first():
        ks.loop_config(serialize=True)
        for k in range(3):
            if x[k] > 5:
                break
            x[k] = 1

    @ks.kernel
    def second():
        ks.loop_config(serialize=True)
        for k in range(3):
            x[k] = 1
        for k in range(3):
            if x[k] > 5:
                break

    first()
    assert x.to_numpy().tolist() == [1, 1, 1, 0]
    with pytest.raises(LanguageError, match="cannot be left by break"):
        second()


# --- what is returned


def test_a_result_has_one_type_over_all_returns():
    @ks.func
    def early(a):
        if a < 0:
            return 0
        return a * 0.5

    @ks.func
    def pair(a):
        if a < 0:
            return ks.Vector([0, 1])
        return ks.Vector([a, a * 0.5])

    @ks.kernel
    def of_function(a: ks.types.ndarray()):
        a[1] = early(a[0])
        a[2] = pair(a[0])[1]

    @ks.kernel
    def of_kernel(a: ks.f32) -> (ks.f32, ks.f32):
        if a < 0:
            return 0, a
        return a * 0.5, 1

    @ks.kernel
    def wider(k: ks.i32, x: ks.f64) -> ks.f64:
        if k < 0:
            return k
        if k == 0:
            return 0
        return x

    for start in (None, ks.cpu):
        if start is not None:
            ks.init(arch=start)
        a = np.full(3, 3.0, np.float32)
        of_function(a)
        assert a.tolist() == [3.0, 1.5, 1.5]
        assert of_kernel(3.0) == (1.5, 1.0)
        assert of_kernel(-2.0) == (0.0, -2.0)
        assert [wider(k, 0.1) for k in (-3, 0, 1)] == [-3.0, 0.0, 0.1]
        ks.reset()


# --- parameters


def test_a_template_changes_a_local_that_starts_as_a_constant(program):
    @ks.func
    def inc(b: ks.template()):
        b += 1

    @ks.func
    def twice(b: ks.template()):
        inc(b)
        inc(b)

    @ks.func
    def own(b):
        inc(b)
        return b

    @ks.func
    def rounds(n: ks.template()):
        s = 0
        for k in ks.static(range(n)):
            s += k
        return s

    @ks.kernel
    def run() -> ks.i32:
        q = 5
        inc(q)
        p = 1
        twice(b=p)
        n = 3
        return q * 1000 + p * 100 + own(4) * 10 + rounds(n)

    assert run() == 6000 + 300 + 50 + 3


def test_a_method_changes_locals_that_start_as_constants(program):
    @ks.dataclass
    class Grain:
        size: ks.f32

        @ks.func
        def grow(self, total: ks.template()):
            self.size += 1
            total += self.size

        @ks.func
        def more(self, by):
            return self.size + by

    @ks.kernel
    def grown() -> ks.f32:
        before = 1.0
        grain = Grain(size=2.0)
        after = 1.0
        grain.grow(before)
        grain.grow(after)
        return before * 100 + after * 10 + grain.size

    @ks.kernel
    def summed(a: ks.f32) -> ks.f32:
        return a + sum([g.more(1.0) for g in (Grain(size=1.0), Grain(size=a))])

    assert grown() == 400 + 50 + 4
    assert summed(2.0) == 2 + 2 + 3


def test_an_argument_is_read_before_the_function_changes_it(program):
    c = ks.field(ks.i32, shape=1)

    @ks.func
    def change(a, b: ks.template()):
        b += 1
        return a

    @ks.func
    def count():
        c[0] += 1
        return 0

    @ks.func
    def counted(a):
        return count() + a

    @ks.kernel
    def local(n: ks.i32) -> ks.i32:
        q = n
        q += 5
        return change(q, q)

    @ks.kernel
    def element() -> ks.i32:
        return counted(c[0])

    assert local(0) == 5
    assert element() == 0
    assert c[0] == 1
