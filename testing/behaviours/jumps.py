"""While, break and continue."""

import taichi as ti

from .seeing import refused


def while_loops_run_while_their_condition_holds():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        i = 0
        s = 0
        while i < n:
            s += i
            i += 2
        return s

    return [f(0), f(1), f(9)]


def while_true_ends_by_break():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        k = 0
        while True:
            if k * k > n:
                break
            k += 1
        return k

    return [f(0), f(10), f(100)]


def continue_skips_the_rest_of_a_while_loop():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        i = 0
        s = 0
        while i < n:
            i += 1
            if i % 2:
                continue
            s += i
        return s

    return f(10)


def while_loops_in_parallel_loops():
    x = ti.field(ti.i32, shape=12)

    @ti.kernel
    def f():
        for i in x:
            n = i + 1
            while n != 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                x[i] += 1

    f()
    return x.to_numpy()


def while_loops_in_while_loops():
    @ti.kernel
    def f() -> ti.i32:
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

    return f()


def continue_in_a_parallel_loop():
    x = ti.field(ti.i32, shape=10)

    @ti.kernel
    def f():
        for i in range(10):
            if i % 2 == 0:
                continue
            x[i] = i

    f()
    return x.to_numpy()


def continue_without_condition():
    x = ti.field(ti.i32, shape=4)

    @ti.kernel
    def f():
        for i in x:
            x[i] = 1
            continue
            x[i] = 2

    f()
    return x.to_numpy()


def continue_in_nested_branches():
    x = ti.field(ti.i32, shape=12)

    @ti.kernel
    def f():
        for i in x:
            if i > 2:
                if i < 9:
                    if i % 2 == 0:
                        continue
                    x[i] += 10
                x[i] += 100
            x[i] += 1

    f()
    return x.to_numpy()


def continue_in_both_branches():
    x = ti.field(ti.i32, shape=6)

    @ti.kernel
    def f():
        for i in x:
            if i < 3:
                x[i] = 1
                continue
            x[i] = 2
            continue
            x[i] = 3

    f()
    return x.to_numpy()


def continue_in_loops_over_fields():
    x = ti.field(ti.i32, shape=(4, 4))

    @ti.kernel
    def f():
        for i, j in x:
            if i == j:
                continue
            x[i, j] = 1

    f()
    return x.to_numpy()


def continue_of_ndrange_goes_to_the_next_pair():
    x = ti.field(ti.i32, shape=(3, 3))

    @ti.kernel
    def f():
        for k in range(1):
            for i, j in ti.ndrange(3, 3):
                if j == 1:
                    continue
                x[i, j] = 1 + k

    f()
    return x.to_numpy()


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


def break_and_continue_in_one_loop():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for _ in range(1):
            for i in range(100):
                if i % 3 == 0:
                    continue
                if i > n:
                    break
                s += i
        return s

    return [f(0), f(7), f(50)]


def statements_after_a_break_in_a_branch():
    @ti.kernel
    def f() -> ti.i32:
        a = 0
        for _ in range(1):
            for i in range(5):
                a += 10
                if i == 2:
                    a += 1
                    break
                a += 100
        return a

    return f()


def a_store_after_a_loop_with_a_break():
    x = ti.field(ti.i32, shape=5)

    @ti.kernel
    def f():
        for i in range(5):
            last = -1
            for j in range(10):
                if j > i:
                    break
                last = j
            x[i] = last

    f()
    return x.to_numpy()


def while_else_is_an_error():
    @ti.kernel
    def f():
        i = 0
        while i < 3:
            i += 1
        else:
            i = 9

    return refused(f)


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


def static_loops_may_be_left_statically():
    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i in ti.static(range(10)):
            if ti.static(i == 4):
                break
            if ti.static(i % 2 == 0):
                continue
            s += i
        return s

    return f()


def a_break_in_a_static_loop_needs_a_static_condition():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for i in ti.static(range(10)):
            if i == n:
                break
            s += i
        return s

    return refused(lambda: f(3))


def escape_times_of_a_fractal():
    x = ti.field(ti.i32, shape=(8, 8))

    @ti.kernel
    def f():
        for i, j in x:
            c = ti.Vector([i / 4 - 1.3, j / 4 - 1.1])
            z = ti.Vector([0.0, 0.0])
            n = 0
            while z.norm() < 2 and n < 30:
                z = ti.Vector([z[0] ** 2 - z[1] ** 2, z[0] * z[1] * 2]) + c
                n += 1
            x[i, j] = n

    f()
    return x.to_numpy()
