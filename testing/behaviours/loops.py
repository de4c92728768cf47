"""Loops and ndrange."""

import numpy as np
import taichi as ti

from .seeing import refused


def ranges_have_a_begin_and_an_end():
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f(a: ti.i32, b: ti.i32):
        for i in range(a, b):
            x[i] = i

    f(2, 6)
    return x.to_numpy()


def ranges_with_negative_bounds():
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f():
        for i in range(-3, 4):
            x[i + 3] = i * i

    f()
    return x.to_numpy()


def ranges_that_are_empty():
    @ti.kernel
    def f(a: ti.i32, b: ti.i32) -> ti.i32:
        n = 0
        for _ in range(a, b):
            n += 1
        return n

    return [f(3, 3), f(5, 2), f(0, 4)]


def inner_ranges_have_steps():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for _ in range(1):
            for i in range(1, n, 3):
                s = s * 10 + i
        return s

    return refused(lambda: f(9))


def the_bound_of_a_loop_comes_from_a_field():
    n = ti.field(ti.i32, shape=())
    x = ti.field(ti.i32, shape=10)
    n[None] = 6

    @ti.kernel
    def f():
        for i in range(n[None]):
            x[i] = i + 1

    f()
    return x.to_numpy()


def inner_bounds_depend_on_outer_indices():
    x = ti.field(ti.i32, shape=6)

    @ti.kernel
    def f():
        for i in range(6):
            for j in range(i):
                x[i] += j

    f()
    return x.to_numpy()


def a_loop_over_an_argument():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for i in range(n):
            s += i
        return s

    return [f(0), f(5), f(100)]


def several_loops_run_one_after_the_other():
    x, y = ti.field(ti.i32, shape=5), ti.field(ti.i32, shape=5)

    @ti.kernel
    def f():
        for i in x:
            x[i] = i
        for i in y:
            y[i] = x[4 - i] * 2
        x[0] = y[0]

    f()
    return [x.to_numpy(), y.to_numpy()]


def statements_stand_between_loops():
    x = ti.field(ti.i32, shape=5)

    @ti.kernel
    def f() -> ti.i32:
        a = 2
        for i in x:
            x[i] = i * a
        a += x[3]
        for i in x:
            x[i] += a
        return a

    return [f(), x.to_numpy()]


def the_index_keeps_its_value_in_its_iteration():
    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i in range(4):
            k = i
            k += 10
            s += k * (i + 1)
        return s

    return f()


def locals_before_a_loop_are_changed_in_it():
    @ti.kernel
    def f() -> ti.i32:
        best = -1
        for _ in range(1):
            for i in range(10):
                if i % 3 == 0:
                    best = i
        return best

    return f()


def a_loop_in_a_branch_is_serial():
    x = ti.field(ti.i32, shape=5)

    @ti.kernel
    def f(flag: ti.i32):
        if flag:
            for i in range(5):
                x[i] = i if i == 0 else x[i - 1] + i

    f(0)
    first = x.to_numpy()
    f(1)
    return [first, x.to_numpy()]


def break_leaves_a_loop_in_a_branch():
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f(n: ti.i32):
        if True:
            for i in range(8):
                if i == n:
                    break
                x[i] = 1

    f(3)
    return x.to_numpy()


def break_in_a_parallel_loop_is_an_error():
    @ti.kernel
    def f():
        for i in range(8):
            if i == 3:
                break

    return refused(f)


def break_leaves_a_serialised_loop():
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f(n: ti.i32):
        ti.loop_config(serialize=True)
        for i in range(8):
            if i == n:
                break
            x[i] = 1

    f(5)
    return x.to_numpy()


def loops_of_fields_visit_each_element_once():
    x = ti.field(ti.i32, shape=(5, 7))

    @ti.kernel
    def f():
        for i, j in x:
            x[i, j] += i * 7 + j

    f()
    return x.to_numpy()


def loops_of_vector_fields():
    v = ti.Vector.field(2, ti.i32, shape=(2, 3))

    @ti.kernel
    def f():
        for i, j in v:
            v[i, j] = [i, j]

    f()
    return v.to_numpy()


def loops_of_struct_fields():
    s = ti.Struct.field({"a": ti.i32, "b": ti.f32}, shape=4)

    @ti.kernel
    def f():
        for i in s:
            s[i].a = i
            s[i].b = i * 0.5

    f()
    return s.to_numpy()


def ndrange_has_an_index_for_each_bound():
    x = ti.field(ti.i32, shape=(3, 4))

    @ti.kernel
    def f():
        for i, j in ti.ndrange(3, 4):
            x[i, j] = i * 10 + j

    f()
    return x.to_numpy()


def ndrange_has_begins_and_ends():
    x = ti.field(ti.i32, shape=(6, 6))

    @ti.kernel
    def f(a: ti.i32, b: ti.i32):
        for i, j in ti.ndrange((a, b), (1, 4)):
            x[i, j] += 1

    f(2, 5)
    return x.to_numpy()


def ndrange_of_three_and_four():
    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i, j, k in ti.ndrange(2, (1, 3), 3):
            s += i * 100 + j * 10 + k
        for a, b, c, d in ti.ndrange(2, 2, 2, 2):
            s += a * b * c * d
        return s

    return f()


def ndrange_with_one_bound():
    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i in ti.ndrange((2, 6)):
            s += i
        return s

    return f()


def ndrange_that_ends_before_it_begins():
    @ti.kernel
    def f() -> ti.i32:
        n = 0
        for i, j in ti.ndrange((4, 2), 3):
            n += 1
        return n

    return f()


def ndrange_in_an_inner_loop():
    x = ti.field(ti.i32, shape=(2, 2, 3))

    @ti.kernel
    def f():
        for k in range(3):
            for i, j in ti.ndrange(2, 2):
                x[i, j, k] = i + j * 10 + k * 100

    f()
    return x.to_numpy()


def ndrange_in_ndrange():
    x = ti.field(ti.i32, shape=(2, 2, 2, 2))

    @ti.kernel
    def f():
        for i, j in ti.ndrange(2, 2):
            for k, m in ti.ndrange(2, 2):
                x[i, j, k, m] = i + j * 10 + k * 100 + m * 1000

    f()
    return x.to_numpy()


def ndrange_takes_bounds_of_arrays():
    @ti.kernel
    def f(a: ti.types.ndarray(dtype=ti.i32, ndim=2)):
        for i, j in ti.ndrange(a.shape[0], a.shape[1]):
            a[i, j] = i - j

    a = np.zeros((2, 3), np.int32)
    f(a)
    return a


def ndrange_takes_bounds_that_are_stars():
    shape = (2, 3)
    x = ti.field(ti.i32, shape=shape)

    @ti.kernel
    def f():
        for i, j in ti.ndrange(*shape):
            x[i, j] = i * 10 + j

    f()
    return x.to_numpy()


def ndrange_takes_integers_of_numpy():
    n = np.int32(3)

    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i, j in ti.ndrange(n, (np.int64(1), n)):
            s += i * j
        return s

    return f()


def ndrange_of_floats_is_an_error():
    @ti.kernel
    def f():
        for i, j in ti.ndrange(1.5, 2):
            print(i, j)

    return refused(f)


def ndrange_with_wrong_numbers_of_indices_is_an_error():
    @ti.kernel
    def f():
        for i, j, k in ti.ndrange(2, 2):
            print(i, j, k)

    return refused(f)


def static_ndrange_is_unrolled():
    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i, j in ti.static(ti.ndrange(3, (1, 3))):
            s = s * 10 + i * j
        return s

    return f()


def indices_of_ndrange_divide():
    x = ti.field(ti.i32, shape=(4, 4))

    @ti.kernel
    def f():
        for i, j in ti.ndrange((-4, 4), (-4, 4)):
            ti.atomic_add(x[i // 2 + 2, j // 2 + 2], 1)

    f()
    return x.to_numpy()


def loops_over_arrays():
    @ti.kernel
    def f(a: ti.types.ndarray()):
        for i, j in a:
            a[i, j] = i * 10 + j

    a = np.zeros((3, 2), np.float32)
    f(a)
    return a


def a_reduction_over_a_loop_returns():
    x = ti.field(ti.f32, shape=1000)

    @ti.kernel
    def f() -> ti.f32:
        for i in x:
            x[i] = i * 0.5
        s = 0.0
        for i in x:
            s += x[i]
        return s

    return f()


def loop_config_says_how_a_loop_runs():
    x = ti.field(ti.i32, shape=64)

    @ti.kernel
    def f():
        ti.loop_config(block_dim=16)
        for i in x:
            x[i] = i
        ti.loop_config(parallelize=2)
        for i in x:
            x[i] *= 2

    f()
    return x.to_numpy()


def loop_indices_are_of_the_default_integer_type():
    @ti.kernel
    def f() -> ti.i64:
        s = ti.i64(0)
        for i in range(2, 3):
            s += (i + 2147483646) * 1
        return s

    return f()


def three_loops_deep_with_carried_sums():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        total = 0
        for i in range(n):
            row = 0
            for j in range(n):
                cell = 0
                for k in range(j + 1):
                    cell += k
                row += cell * (i + 1)
            total += row
        return total

    return [f(1), f(4), f(7)]


def for_else_is_an_error():
    @ti.kernel
    def f():
        for i in range(3):
            print(i)
        else:
            print(9)

    return refused(f)


def loops_over_what_is_no_range_are_an_error():
    @ti.kernel
    def f(n: ti.i32):
        for i in n:
            print(i)

    return refused(lambda: f(3))


def neighbours_are_loops_of_offsets():
    x, y = ti.field(ti.i32, shape=(4, 4)), ti.field(ti.i32, shape=(4, 4))

    @ti.kernel
    def f():
        for i, j in x:
            x[i, j] = i * 4 + j
        for i, j in y:
            for di, dj in ti.ndrange((-1, 2), (-1, 2)):
                if 0 <= i + di < 4 and 0 <= j + dj < 4:
                    y[i, j] += x[i + di, j + dj]

    f()
    return y.to_numpy()


def fibonacci_in_a_serial_loop():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        a, b = 0, 1
        ti.loop_config(serialize=True)
        for _ in range(n):
            a, b = b, a + b
        return b

    return [f(0), f(1), f(10)]
