"""Classes."""

import taichi as ti

from .seeing import refused


def methods_are_kernels():
    @ti.data_oriented
    class Array:
        def __init__(self, n, k):
            self.n, self.k = n, k
            self.x = ti.field(ti.i32, shape=n)

        @ti.kernel
        def fill(self):
            for i in self.x:
                self.x[i] = i * self.k

        @ti.kernel
        def total(self, scale: ti.i32) -> ti.i32:
            s = 0
            for i in range(self.n):
                s += self.x[i] * scale
            return s

    a, b = Array(4, 2), Array(5, 3)
    a.fill()
    b.fill()
    return [a.total(1), b.total(10), a.x.to_numpy()]


def methods_are_functions():
    @ti.data_oriented
    class Solver:
        def __init__(self):
            self.x = ti.field(ti.f32, shape=4)
            self.dt = 0.5

        @ti.func
        def step(self, v):
            return v + self.dt

        @ti.func
        def twice(self, v):
            return self.step(self.step(v))

        @ti.kernel
        def run(self):
            for i in self.x:
                self.x[i] = self.twice(i)

    s = Solver()
    s.run()
    return s.x.to_numpy()


def attributes_are_constants_when_first_called():
    @ti.data_oriented
    class Box:
        def __init__(self):
            self.k = 1

        @ti.kernel
        def value(self) -> ti.i32:
            return self.k

    b = Box()
    first = b.value()
    b.k = 5
    return [first, b.value()]


def methods_are_inherited():
    @ti.data_oriented
    class Base:
        def __init__(self, n):
            self.n = n

        @ti.func
        def scale(self, x):
            return x * self.n

        @ti.kernel
        def value(self, x: ti.i32) -> ti.i32:
            return self.scale(x)

    @ti.data_oriented
    class Derived(Base):
        def __init__(self, n):
            super().__init__(n)

        @ti.func
        def scale(self, x):
            return x * self.n + 1

    return [Base(3).value(5), Derived(3).value(5)]


def classes_without_the_decorator_are_an_error():
    class Plain:
        @ti.kernel
        def f(self) -> ti.i32:
            return 1

    return refused(lambda: Plain().f())


def static_methods_are_functions():
    @ti.data_oriented
    class Tools:
        def __init__(self):
            self.k = 1

        @staticmethod
        @ti.func
        def add(a, b):
            return a + b

        @ti.kernel
        def total(self, n: ti.i32) -> ti.i32:
            return self.add(n, self.k)

    return Tools().total(4)


def objects_hold_objects():
    @ti.data_oriented
    class Inner:
        def __init__(self, k):
            self.k = k

        @ti.func
        def times(self, x):
            return x * self.k

    @ti.data_oriented
    class Outer:
        def __init__(self):
            self.a, self.b = Inner(2), Inner(5)

        @ti.kernel
        def run(self, x: ti.i32) -> ti.i32:
            return self.a.times(x) * 100 + self.b.times(x)

    return Outer().run(3)


def objects_are_templates():
    @ti.data_oriented
    class Grid:
        def __init__(self, n):
            self.x = ti.field(ti.i32, shape=n)

        @ti.func
        def put(self, i, v):
            self.x[i] = v

    @ti.kernel
    def f(g: ti.template()):
        for i in g.x:
            g.put(i, i * 7)

    a, b = Grid(3), Grid(2)
    f(a)
    f(b)
    return [a.x.to_numpy(), b.x.to_numpy()]


def methods_take_templates():
    @ti.data_oriented
    class Copier:
        @ti.kernel
        def copy(self, a: ti.template(), b: ti.template()):
            for i in a:
                b[i] = a[i] + 1

    x, y = ti.field(ti.i32, shape=3), ti.field(ti.i32, shape=3)
    c = Copier()
    c.copy(x, y)
    c.copy(y, x)
    return [x.to_numpy(), y.to_numpy()]


def methods_change_elements_of_lists_of_fields():
    @ti.data_oriented
    class Levels:
        def __init__(self):
            self.x = [ti.field(ti.i32, shape=2**k) for k in range(1, 4)]

        @ti.kernel
        def coarsen(self, k: ti.template()):
            for i in self.x[k]:
                self.x[k][i] = self.x[k + 1][2 * i] + self.x[k + 1][2 * i + 1]

    levels = Levels()
    levels.x[2].fill(1)
    levels.coarsen(1)
    levels.coarsen(0)
    return [x.to_numpy() for x in levels.x]


def properties_are_constants():
    @ti.data_oriented
    class Box:
        @property
        def size(self):
            return 7

        @ti.kernel
        def f(self) -> ti.i32:
            return self.size * 2

    return Box().f()


def class_attributes_are_constants():
    @ti.data_oriented
    class Box:
        size = 6

        @ti.kernel
        def f(self) -> ti.i32:
            return self.size + Box.size

    return Box().f()


def methods_called_with_keywords():
    @ti.data_oriented
    class Box:
        @ti.func
        def f(self, a, b=10):
            return a * 100 + b

        @ti.kernel
        def g(self) -> ti.i32:
            return self.f(b=2, a=1) + self.f(3)

    return Box().g()


def fields_are_made_by_methods():
    @ti.data_oriented
    class Lazy:
        def make(self):
            self.v = ti.Vector.field(2, ti.f32)
            ti.root.dense(ti.i, 3).place(self.v)

        @ti.kernel
        def run(self):
            for i in self.v:
                self.v[i] = [i, 1]

    lazy = Lazy()
    lazy.make()
    lazy.run()
    return lazy.v.to_numpy()


def swaps_of_fields_between_calls():
    class Pair:
        def __init__(self):
            self.cur, self.nxt = ti.field(ti.i32, shape=3), ti.field(ti.i32, shape=3)

        def swap(self):
            self.cur, self.nxt = self.nxt, self.cur

    @ti.kernel
    def step(a: ti.template(), b: ti.template()):
        for i in a:
            b[i] = a[i] + i

    p = Pair()
    for _ in range(3):
        step(p.cur, p.nxt)
        p.swap()
    return p.cur.to_numpy()
