"""Templates and static values."""

import numpy as np
import taichi as ti

from .seeing import each, i32, refused, returns


def a_template_takes_any_field():
    @ti.kernel
    def f(x: ti.template(), k: ti.i32):
        for i in x:
            x[i] = i * k

    a, b = ti.field(ti.i32, shape=3), ti.field(ti.f32, shape=2)
    f(a, 2)
    f(b, 5)
    return [a.to_numpy(), b.to_numpy()]


@each(3, 6, 0)
def a_template_takes_numbers_as_constants(n: ti.template()) -> ti.i32:
    s = 0
    for i in ti.static(range(n)):
        s += i
    return s


def a_template_takes_functions():
    @ti.func
    def square(x):
        return x * x

    @ti.func
    def half(x):
        return x / 2

    @ti.kernel
    def f(g: ti.template(), x: ti.f32) -> ti.f32:
        return g(x) + 1

    return [f(square, 3.0), f(half, 3.0)]


def a_template_takes_types():
    @ti.kernel
    def f(t: ti.template(), x: ti.f32) -> ti.f32:
        return ti.cast(x, t)

    return [f(ti.i32, 2.7), f(ti.f32, 2.5)]


def templates_of_functions_are_references():
    @ti.func
    def set_to(x: ti.template(), v):
        x = v

    @ti.func
    def without(x, v):
        x = v

    @ti.kernel
    def f() -> ti.i32:
        a, b = 1, 1
        set_to(a, 7)
        without(b, 7)
        return a * 10 + b

    return f()


def templates_of_functions_are_elements():
    x = ti.field(ti.i32, shape=3)

    @ti.func
    def add(place: ti.template(), v):
        place += v

    @ti.kernel
    def f():
        for i in range(3):
            add(x[i], i * 2)

    f()
    return x.to_numpy()


def several_fields_are_templates():
    @ti.kernel
    def f(a: ti.template(), b: ti.template(), c: ti.template()):
        for I in ti.grouped(a):
            c[I] = a[I] + b[I]

    x, y, z = (ti.field(ti.f32, shape=(2, 2)) for _ in range(3))
    x.fill(1)
    y.fill(2)
    f(x, y, z)
    f(z, y, x)
    return [x.to_numpy(), z.to_numpy()]


@returns(flag=lambda: True)
def static_branches_choose_when_compiled() -> ti.i32:
    r = 0
    if ti.static(flag):
        r = 1
    else:
        r = undefined_name
    return r


@returns(2.0, kind=lambda: "fast")
def static_ternaries(x: ti.f32) -> ti.f32:
    return (x * 2) if ti.static(kind == "fast") else (x * 3)


@returns(weights=lambda: [0.25, 0.5, 0.125])
def static_loops_index_lists() -> ti.f32:
    s = 0.0
    for k in ti.static(range(3)):
        s += weights[k] * (k + 1)
    return s


@returns(pairs=lambda: [(1, 2), (3, 4)])
def static_loops_over_lists() -> ti.i32:
    s = 0
    for a, b in ti.static(pairs):
        s += a * b
    for x in ti.static([5, 6]):
        s += x * 100
    return s


@returns(x=i32(3, 2))
def static_names_are_constants() -> ti.i32:
    n, m = ti.static(x.shape)
    y = ti.static(x)
    y[1, 1] = 5
    return n * 100 + m * 10 + x[1, 1]


@returns(a=lambda: [1, 2, 3], b=lambda: [4, 5, 6])
def static_loops_over_enumerate_and_zip() -> ti.i32:
    s = 0
    for i, x in ti.static(enumerate(a)):
        s += i * x
    for x, y in ti.static(zip(a, b)):
        s += x * y * 100
    return s


def python_globals_are_read_when_compiled():
    k = 3

    @ti.kernel
    def f() -> ti.i32:
        return k

    first = f()
    k = 4
    return [first, f()]


def static_assertions():
    @ti.kernel
    def good():
        ti.static_assert(1 + 1 == 2, "numbers")

    @ti.kernel
    def bad():
        ti.static_assert(1 + 1 == 3, "numbers")

    return [refused(good), refused(bad) != "runs"]


def closures_keep_what_they_name():
    def make(k):
        @ti.func
        def times(x):
            return x * k

        @ti.kernel
        def f(x: ti.i32) -> ti.i32:
            return times(x) + k

        return f

    a, b = make(2), make(5)
    return [a(10), b(10), a(1)]


@each(1, 2, 3, kinds=lambda: (1, 3, 5))
def membership_in_static_tuples(n: ti.template()) -> ti.i32:
    r = 0
    if ti.static(n in kinds):
        r = 1
    if ti.static(n not in (2, 4)):
        r += 10
    return r


@returns()
def list_comprehensions_are_vectors() -> ti.types.vector(4, ti.i32):
    return ti.Vector([i * i for i in range(4)])


@returns()
def list_comprehensions_have_conditions() -> ti.types.vector(2, ti.i32):
    return ti.Vector([i for i in range(4) if i % 2 == 1])


@returns()
def list_comprehensions_are_nested() -> ti.types.matrix(2, 3, ti.i32):
    return ti.Matrix([[i * 10 + j for j in range(3)] for i in range(2)])


@returns()
def list_comprehensions_have_several_loops() -> ti.i32:
    s = 0
    values = [i * 10 + j for i in range(3) for j in range(i)]
    for v in ti.static(values):
        s = s * 100 + v
    return s


@returns(4)
def dictionaries_are_constant_tables(x: ti.i32) -> ti.i32:
    d = {"a": x, "b": x * 2, 3: 7}
    return d["a"] + d["b"] * 10 + d[3] * 100


@returns(table=lambda: {"dt": 0.5, "n": 4})
def dictionaries_of_python_are_read() -> ti.f32:
    return table["dt"] * table["n"]


@returns(2)
def dictionary_comprehensions(n: ti.i32) -> ti.i32:
    d = {i: i * n for i in range(4) if i != 2}
    return d[0] + d[1] * 10 + d[3] * 100


def dictionaries_have_no_other_keys():
    @ti.kernel
    def f() -> ti.i32:
        d = {1: 2}
        return d[3]

    return refused(f) != "runs"


def lists_of_functions_are_called_statically():
    @ti.func
    def one(x):
        return x + 1

    @ti.func
    def two(x):
        return x * 2

    fs = [one, two]

    @ti.kernel
    def f(x: ti.i32) -> ti.i32:
        r = x
        for g in ti.static(fs):
            r = g(r)
        return r

    return f(5)


@each(np.zeros((2, 3), np.float32), np.zeros((5, 7), np.float32))
def sizes_of_arrays_are_static(a: ti.types.ndarray()) -> ti.i32:
    return a.shape[0] * 100 + a.shape[1]


def static_needs_what_is_known():
    @ti.kernel
    def f(n: ti.i32) -> ti.i32:
        s = 0
        for i in ti.static(range(n)):
            s += i
        return s

    return refused(lambda: f(3)) != "runs"


def small_arrays_of_python_are_vectors():
    n, m = np.array([3, 4]), np.array([[1.0, 2.0], [3.0, 4.0]])

    @ti.kernel
    def f() -> ti.f32:
        total = 0.0
        for I in ti.grouped(ti.ndrange(*(n - 1))):
            total += I[0] * n[1] + (m @ (I + n))[1]
        return total

    return f()


def dicts_of_elements():
    x = ti.field(ti.i32, shape=8)

    @ti.kernel
    def f() -> ti.i32:
        found = {x[j]: x[j] + j for j in range(8) if j > 2 if j < 6}
        return sum(found.values()) * 10 + len(found.keys())

    x.from_numpy(np.arange(8, dtype=np.int32) ** 2)
    return f()
