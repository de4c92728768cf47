"""Functions."""

import taichi as ti

from .seeing import raised, refused, refuses, value


def functions_return_values():
    @ti.func
    def add(a, b):
        return a + b

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return add(add(a, 1), add(a, 2))

    return f(3)


def functions_without_values():
    x = ti.field(ti.i32, shape=())

    @ti.func
    def put(v):
        x[None] = v

    @ti.kernel
    def f():
        put(5)

    f()
    return x[None]


def arguments_of_functions_are_copies():
    @ti.func
    def change(a):
        a += 10
        return a

    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        a = n
        b = change(a)
        return a * 100 + b

    return f(1)


def vectors_as_arguments_are_copies():
    @ti.func
    def change(v):
        v[0] = 99
        return v.sum()

    @ti.kernel
    def f() -> ti.i32:
        v = ti.Vector([1, 2])
        s = change(v)
        return v[0] * 1000 + s

    return f()


def functions_have_default_arguments():
    @ti.func
    def g(a, b=3, c=4):
        return a * 100 + b * 10 + c

    @ti.kernel
    def f() -> ti.i32:
        return g(1) + g(2, c=0) * 1000

    return f()


def functions_return_several_values():
    @ti.func
    def divide(a, b):
        return a // b, a % b

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        q, r = divide(a, 7)
        return q * 100 + r

    return f(45)


def functions_return_vectors_and_numbers():
    @ti.func
    def g(a):
        return ti.Vector([a, a * 2]), a * 3

    @ti.kernel
    def f() -> ti.i32:
        v, n = g(2)
        return v[1] * 10 + n

    return f()


def functions_return_in_static_branches():
    @ti.func
    def g(a, kind: ti.template()):
        if ti.static(kind == 0):
            return a + 1
        return a * 10

    @ti.kernel
    def f() -> ti.i32:
        return g(2, 0) * 100 + g(2, 1)

    return f()


def early_returns_of_functions():
    @ti.func
    def g(a):
        if a > 3:
            return 1
        return 0

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return g(a)

    return refused(lambda: f(5)) if refused(lambda: f(5)) != "runs" else [f(5), f(2)]


def arguments_of_functions_may_have_types():
    @ti.func
    def g(a: ti.i32, b: ti.f32):
        return a + b

    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return g(a, a)

    return f(2.5)


def results_of_functions_may_have_types():
    @ti.func
    def g(a: ti.f32) -> ti.i32:
        return a

    @ti.kernel
    def f(a: ti.f32) -> ti.f32:
        return g(a)

    return f(1.5)


def functions_call_functions():
    @ti.func
    def a(x):
        return x + 1

    @ti.func
    def b(x):
        return a(x) * a(x + 1)

    @ti.func
    def c(x):
        return b(a(x)) - x

    @ti.kernel
    def f(x: ti.i32) -> ti.i32:
        return c(x)

    return [f(0), f(3)]


def functions_have_loops_and_branches():
    @ti.func
    def power(x, n):
        r = 1.0
        for _ in range(n):
            r *= x
        if n > 3:
            r += 0.5
        return r

    @ti.kernel
    def f() -> ti.f32:
        return power(2.0, 3) + power(1.5, 4)

    return f()


def recursion_of_functions_is_an_error():
    @ti.func
    def g(n):
        return g(n - 1)

    @ti.kernel
    def f() -> ti.i32:
        return g(3)

    return refused(f) != "runs"


def kernels_do_not_call_kernels():
    @ti.kernel
    def g():
        pass

    @ti.kernel
    def f():
        g()

    return refused(f)


def functions_are_not_called_from_python():
    @ti.func
    def g(a):
        return a

    return refused(lambda: g(3)) != "runs"


def python_functions_of_both_scopes():
    @ti.pyfunc
    def g(a, b):
        return a * b + 1

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return g(a, 2)

    return [f(3), g(3, 2)]


def plain_functions_are_inlined():
    def g(a, b):
        return a * b + 1

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return g(a, 2) + g(3, 4)

    return f(3)


def plain_functions_of_constants():
    def table(k):
        return [k * k, k + 1]

    @ti.kernel
    def f() -> ti.i32:
        return ti.static(table(4))[0] + ti.static(sum(table(2)))

    return f()


def missing_arguments_of_functions_are_an_error():
    @ti.func
    def g(a, b):
        return a + b

    @ti.kernel
    def few() -> ti.i32:
        return g(1)

    @ti.kernel
    def many() -> ti.i32:
        return g(1, 2, 3)

    @ti.kernel
    def wrong() -> ti.i32:
        return g(1, c=2)

    return [refused(few) != "runs", refused(many) != "runs", refused(wrong) != "runs"]


def real_functions_return_numbers():
    @ti.real_func
    def g(a: ti.i32, b: ti.f32) -> ti.f32:
        return a * b

    @ti.kernel
    def f(a: ti.i32) -> ti.f32:
        return g(a, 0.5) + g(a + 1, 2.0)

    return f(3)


def real_functions_return_early():
    @ti.real_func
    def g(a: ti.i32) -> ti.i32:
        if a > 10:
            return 1
        for i in range(a):
            if i == 4:
                return 100 + i
        return -1

    @ti.kernel
    def f(a: ti.i32) -> ti.i32:
        return g(a)

    return [f(20), f(3), f(7)]


def real_functions_call_themselves():
    @ti.real_func
    def fib(n: ti.i32) -> ti.i32:
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        return fib(n)

    return [f(1), f(10)]


def real_functions_call_themselves_for_elements_of_a_field():
    x, y = ti.field(ti.i32, shape=16), ti.field(ti.i32, shape=4)

    @ti.real_func
    def total(x: ti.template(), low: ti.i32, high: ti.i32) -> ti.i32:
        if low == high:
            return x[low]
        return total(x, low, (low + high) // 2) + total(x, (low + high) // 2 + 1, high)

    @ti.kernel
    def f():
        for i in x:
            x[i] = i * i
        for i in y:
            y[i] = total(x, i, 3 * i + 3)

    f()
    return y.to_numpy()


def real_functions_call_themselves_in_loops():
    @ti.real_func
    def trees(n: ti.i32) -> ti.i32:
        found = 1
        for k in range(n):
            found += k * trees(k)
        return found

    @ti.real_func
    def halves(n: ti.i32) -> ti.i32:
        found, left = 0, n
        while left > 1:
            left //= 2
            if left == 5:
                continue
            found += left + halves(left)
        return found

    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        return trees(n) * 1000 + halves(11 * n)

    return [f(1), f(4), f(6)]


def real_functions_call_themselves_with_vectors():
    vec2 = ti.types.vector(2, ti.f32)

    @ti.real_func
    def turned(v: vec2, n: ti.i32) -> vec2:
        w = v * 0.5
        if n > 0:
            w += turned(vec2(-v.y, v.x), n - 1)
        return w + v

    @ti.kernel
    def f(n: ti.i32) -> vec2:
        return turned(vec2(1.0, 2.0), n)

    return [value(f(0)), value(f(1)), value(f(6))]


def real_functions_call_themselves_without_values():
    x = ti.field(ti.i32, shape=8)

    @ti.real_func
    def visit(k: ti.i32, depth: ti.i32):
        x[k] += depth
        if 2 * k + 1 < 8:
            visit(2 * k + 1, depth + 1)
        if 2 * k + 2 < 8:
            visit(2 * k + 2, depth + 1)
        x[k] += 10 * k

    @ti.kernel
    def f():
        visit(0, 1)

    f()
    return x.to_numpy()


def functions_that_call_themselves_are_refused():
    @ti.func
    def total(n: ti.i32) -> ti.i32:
        found = 0
        if n > 0:
            found = n + total(n - 1)
        return found

    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        return total(n)

    return refused(lambda: f(3))


def real_functions_take_vectors_and_structs():
    pair = ti.types.struct(a=ti.i32, b=ti.f32)

    @ti.real_func
    def g(v: ti.types.vector(2, ti.f32), p: pair) -> ti.types.vector(2, ti.f32):
        return v * p.b + p.a

    @ti.kernel
    def f() -> ti.types.vector(2, ti.f32):
        return g(ti.Vector([1.0, 2.0]), pair(3, 0.5))

    return f().to_numpy()


def real_functions_without_values():
    x = ti.field(ti.i32, shape=3)

    @ti.real_func
    def put(i: ti.i32, v: ti.i32):
        if v > 5:
            x[i] = v

    @ti.kernel
    def f():
        for i in range(3):
            put(i, i * 4)

    f()
    return x.to_numpy()


def real_functions_break_and_continue():
    @ti.real_func
    def g(n: ti.i32) -> ti.i32:
        s = 0
        for i in range(100):
            if i == n:
                break
            if i % 2 == 0:
                continue
            s += i
        return s

    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        return g(n)

    return [f(0), f(9)]


def functions_use_names_of_their_own():
    @ti.func
    def g(a):
        b = a * 2
        return b

    @ti.kernel
    def f() -> ti.i32:
        b = 1
        c = g(10)
        return b + c

    return f()


@refuses()
def functions_defined_in_kernels_are_an_error():
    def g(a):
        return a

    print(g(1))


def real_functions_without_types_are_refused():
    def of_parameters():
        @ti.real_func
        def add(a, b: ti.i32) -> ti.i32:
            return a + b

    def of_the_result():
        @ti.real_func
        def add(a: ti.i32, b: ti.i32):
            return a + b

        @ti.kernel
        def f():
            add(1, 2)

        f()

    return [raised(of_parameters), raised(of_the_result)]
