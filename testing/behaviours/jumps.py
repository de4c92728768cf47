"""While, break and continue."""

import taichi as ti

from .seeing import each, i32, leaves, refused, refuses, returns


@each(0, 1, 9)
def while_loops_run_while_their_condition_holds(n: ti.i32) -> ti.i32:
    i = 0
    s = 0
    while i < n:
        s += i
        i += 2
    return s


@each(0, 10, 100)
def while_true_ends_by_break(n: ti.i32) -> ti.i32:
    k = 0
    while True:
        if k * k > n:
            break
        k += 1
    return k


@returns(10)
def continue_skips_the_rest_of_a_while_loop(n: ti.i32) -> ti.i32:
    i = 0
    s = 0
    while i < n:
        i += 1
        if i % 2:
            continue
        s += i
    return s


@leaves("x", x=i32(12))
def while_loops_in_parallel_loops():
    for i in x:
        n = i + 1
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            x[i] += 1


@returns()
def while_loops_in_while_loops() -> ti.i32:
    i = 0
    s = 0
    while i < 5:
        j = 0
        while j < i:
            if j == 3:
                break
            s += 1
            j += 1
        i += 1
    return s


@leaves("x", x=i32(10))
def continue_in_a_parallel_loop():
    for i in range(10):
        if i % 2 == 0:
            continue
        x[i] = i


@leaves("x", x=i32(4))
def continue_without_condition():
    for i in x:
        x[i] = 1
        continue
        x[i] = 2


@leaves("x", x=i32(12))
def continue_in_nested_branches():
    for i in x:
        if i > 2:
            if i < 9:
                if i % 2 == 0:
                    continue
                x[i] += 10
            x[i] += 100
        x[i] += 1


@leaves("x", x=i32(6))
def continue_in_both_branches():
    for i in x:
        if i < 3:
            x[i] = 1
            continue
        x[i] = 2
        continue
        x[i] = 3


@leaves("x", x=i32(4, 4))
def continue_in_loops_over_fields():
    for i, j in x:
        if i == j:
            continue
        x[i, j] = 1


@leaves("x", x=i32(3, 3))
def continue_of_ndrange_goes_to_the_next_pair():
    for k in range(1):
        for i, j in ti.ndrange(3, 3):
            if j == 1:
                continue
            x[i, j] = 1 + k


def break_of_an_inner_ndrange_leaves_all_of_it():
    x = ti.field(ti.i32, shape=(3, 3))

    @ti.kernel
    def f():
        for _ in range(1):
            for i, j in ti.ndrange(3, 3):
                if i == 1 and j == 1:
                    break
                x[i, j] = 1

    return refused(f) if refused(f) != "runs" else x.to_numpy()


@each(0, 7, 50)
def break_and_continue_in_one_loop(n: ti.i32) -> ti.i32:
    s = 0
    for _ in range(1):
        for i in range(100):
            if i % 3 == 0:
                continue
            if i > n:
                break
            s += i
    return s


@returns()
def statements_after_a_break_in_a_branch() -> ti.i32:
    a = 0
    for _ in range(1):
        for i in range(5):
            a += 10
            if i == 2:
                a += 1
                break
            a += 100
    return a


@leaves("x", x=i32(5))
def a_store_after_a_loop_with_a_break():
    for i in range(5):
        last = -1
        for j in range(10):
            if j > i:
                break
            last = j
        x[i] = last


@refuses()
def while_else_is_an_error():
    i = 0
    while i < 3:
        i += 1
    else:
        i = 9


def returns_in_while_loops_are_an_error():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        while n > 0:
            return n
        return -n

    return [refused(lambda: f(3)), f(3), f(-4)] if refused(lambda: f(3)) == "runs" else "refused"


def conditions_of_while_are_evaluated_each_time():
    count = ti.field(ti.i32, shape=())

    @ti.func
    def more(limit):
        count[None] += 1
        return count[None] < limit

    @ti.kernel
    def f() -> ti.i32:
        k = 0
        while more(5):
            k += 1
        return k

    return [f(), count[None]]


@returns()
def static_loops_may_be_left_statically() -> ti.i32:
    s = 0
    for i in ti.static(range(10)):
        if ti.static(i == 4):
            break
        if ti.static(i % 2 == 0):
            continue
        s += i
    return s


@refuses(3)
def a_break_in_a_static_loop_needs_a_static_condition(n: ti.i32) -> ti.i32:
    s = 0
    for i in ti.static(range(10)):
        if i == n:
            break
        s += i
    return s


@leaves("x", x=i32(8, 8))
def escape_times_of_a_fractal():
    for i, j in x:
        c = ti.Vector([i / 4 - 1.3, j / 4 - 1.1])
        z = ti.Vector([0.0, 0.0])
        n = 0
        while z.norm() < 2 and n < 30:
            z = ti.Vector([z[0] ** 2 - z[1] ** 2, z[0] * z[1] * 2]) + c
            n += 1
        x[i, j] = n
