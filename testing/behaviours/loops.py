"""Loops and ndrange."""

import numpy as np
import taichi as ti

from .seeing import each, f32, i32, leaves, refuses, returns, structs, vectors


@leaves("x", 2, 6, x=i32(8))
def ranges_have_a_begin_and_an_end(a: ti.i32, b: ti.i32):
    for i in range(a, b):
        x[i] = i


@leaves("x", x=i32(8))
def ranges_with_negative_bounds():
    for i in range(-3, 4):
        x[i + 3] = i * i


@each((3, 3), (5, 2), (0, 4))
def ranges_that_are_empty(a: ti.i32, b: ti.i32) -> ti.i32:
    n = 0
    for _ in range(a, b):
        n += 1
    return n


@refuses(9)
def inner_ranges_have_steps(n: ti.i32) -> ti.i32:
    s = 0
    for _ in range(1):
        for i in range(1, n, 3):
            s = s * 10 + i
    return s


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


@leaves("x", x=i32(6))
def inner_bounds_depend_on_outer_indices():
    for i in range(6):
        for j in range(i):
            x[i] += j


@each(0, 5, 100)
def a_loop_over_an_argument(n: ti.i32) -> ti.i32:
    s = 0
    for i in range(n):
        s += i
    return s


@leaves("x y", x=i32(5), y=i32(5))
def several_loops_run_one_after_the_other():
    for i in x:
        x[i] = i
    for i in y:
        y[i] = x[4 - i] * 2
    x[0] = y[0]


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


@returns()
def the_index_keeps_its_value_in_its_iteration() -> ti.i32:
    s = 0
    for i in range(4):
        k = i
        k += 10
        s += k * (i + 1)
    return s


@returns()
def locals_before_a_loop_are_changed_in_it() -> ti.i32:
    best = -1
    for _ in range(1):
        for i in range(10):
            if i % 3 == 0:
                best = i
    return best


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


@leaves("x", 3, x=i32(8))
def break_leaves_a_loop_in_a_branch(n: ti.i32):
    if True:
        for i in range(8):
            if i == n:
                break
            x[i] = 1


@refuses()
def break_in_a_parallel_loop_is_an_error():
    for i in range(8):
        if i == 3:
            break


@leaves("x", 5, x=i32(8))
def break_leaves_a_serialised_loop(n: ti.i32):
    ti.loop_config(serialize=True)
    for i in range(8):
        if i == n:
            break
        x[i] = 1


@leaves("x", x=i32(5, 7))
def loops_of_fields_visit_each_element_once():
    for i, j in x:
        x[i, j] += i * 7 + j


@leaves("v", v=vectors(2, ti.i32, 2, 3))
def loops_of_vector_fields():
    for i, j in v:
        v[i, j] = [i, j]


@leaves("s", s=structs({"a": ti.i32, "b": ti.f32}, 4))
def loops_of_struct_fields():
    for i in s:
        s[i].a = i
        s[i].b = i * 0.5


@leaves("x", x=i32(3, 4))
def ndrange_has_an_index_for_each_bound():
    for i, j in ti.ndrange(3, 4):
        x[i, j] = i * 10 + j


@leaves("x", 2, 5, x=i32(6, 6))
def ndrange_has_begins_and_ends(a: ti.i32, b: ti.i32):
    for i, j in ti.ndrange((a, b), (1, 4)):
        x[i, j] += 1


@returns()
def ndrange_of_three_and_four() -> ti.i32:
    s = 0
    for i, j, k in ti.ndrange(2, (1, 3), 3):
        s += i * 100 + j * 10 + k
    for a, b, c, d in ti.ndrange(2, 2, 2, 2):
        s += a * b * c * d
    return s


@returns()
def ndrange_with_one_bound() -> ti.i32:
    s = 0
    for i in ti.ndrange((2, 6)):
        s += i
    return s


@returns()
def ndrange_that_ends_before_it_begins() -> ti.i32:
    n = 0
    for i, j in ti.ndrange((4, 2), 3):
        n += 1
    return n


@leaves("x", x=i32(2, 2, 3))
def ndrange_in_an_inner_loop():
    for k in range(3):
        for i, j in ti.ndrange(2, 2):
            x[i, j, k] = i + j * 10 + k * 100


@leaves("x", x=i32(2, 2, 2, 2))
def ndrange_in_ndrange():
    for i, j in ti.ndrange(2, 2):
        for k, m in ti.ndrange(2, 2):
            x[i, j, k, m] = i + j * 10 + k * 100 + m * 1000


@leaves("a", lambda: a, a=lambda: np.zeros((2, 3), np.int32))
def ndrange_takes_bounds_of_arrays(a: ti.types.ndarray(dtype=ti.i32, ndim=2)):
    for i, j in ti.ndrange(a.shape[0], a.shape[1]):
        a[i, j] = i - j


@leaves("x", shape=lambda: (2, 3), x=lambda: ti.field(ti.i32, shape=shape))
def ndrange_takes_bounds_that_are_stars():
    for i, j in ti.ndrange(*shape):
        x[i, j] = i * 10 + j


@returns(n=lambda: np.int32(3))
def ndrange_takes_integers_of_numpy() -> ti.i32:
    s = 0
    for i, j in ti.ndrange(n, (np.int64(1), n)):
        s += i * j
    return s


@refuses()
def ndrange_of_floats_is_an_error():
    for i, j in ti.ndrange(1.5, 2):
        print(i, j)


@refuses()
def ndrange_with_wrong_numbers_of_indices_is_an_error():
    for i, j, k in ti.ndrange(2, 2):
        print(i, j, k)


@returns()
def static_ndrange_is_unrolled() -> ti.i32:
    s = 0
    for i, j in ti.static(ti.ndrange(3, (1, 3))):
        s = s * 10 + i * j
    return s


@leaves("x", x=i32(4, 4))
def indices_of_ndrange_divide():
    for i, j in ti.ndrange((-4, 4), (-4, 4)):
        ti.atomic_add(x[i // 2 + 2, j // 2 + 2], 1)


@leaves("a", lambda: a, a=lambda: np.zeros((3, 2), np.float32))
def loops_over_arrays(a: ti.types.ndarray()):
    for i, j in a:
        a[i, j] = i * 10 + j


@returns(x=f32(1000))
def a_reduction_over_a_loop_returns() -> ti.f32:
    for i in x:
        x[i] = i * 0.5
    s = 0.0
    for i in x:
        s += x[i]
    return s


@leaves("x", x=i32(64))
def loop_config_says_how_a_loop_runs():
    ti.loop_config(block_dim=16)
    for i in x:
        x[i] = i
    ti.loop_config(parallelize=2)
    for i in x:
        x[i] *= 2


@returns()
def loop_indices_are_of_the_default_integer_type() -> ti.i64:
    s = ti.i64(0)
    for i in range(2, 3):
        s += (i + 2147483646) * 1
    return s


@each(1, 4, 7)
def three_loops_deep_with_carried_sums(n: ti.i32) -> ti.i32:
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


@refuses()
def for_else_is_an_error():
    for i in range(3):
        print(i)
    else:
        print(9)


@refuses(3)
def loops_over_what_is_no_range_are_an_error(n: ti.i32):
    for i in n:
        print(i)


@leaves("y", x=i32(4, 4), y=i32(4, 4))
def neighbours_are_loops_of_offsets():
    for i, j in x:
        x[i, j] = i * 4 + j
    for i, j in y:
        for di, dj in ti.ndrange((-1, 2), (-1, 2)):
            if 0 <= i + di < 4 and 0 <= j + dj < 4:
                y[i, j] += x[i + di, j + dj]


@each(0, 1, 10)
def fibonacci_in_a_serial_loop(n: ti.i32) -> ti.i32:
    a, b = 0, 1
    ti.loop_config(serialize=True)
    for _ in range(n):
        a, b = b, a + b
    return b


def arrays_of_one_number_as_bounds():
    x = ti.field(ti.i32, shape=8)
    begin, end = np.array(2), np.array(6, np.int32)

    @ti.kernel
    def f():
        for i in range(begin, end):
            x[i] = end * 10 + i

    f()
    return x.to_numpy()
