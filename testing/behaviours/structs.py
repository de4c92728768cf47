"""Structs and dataclasses."""

import numpy as np
import taichi as ti

from .seeing import each, leaves, refuses, returns, structs


@leaves(
    lambda: [s.a.to_numpy(), s.b.to_numpy(), s[1].a, s[2].b],
    s=structs({"a": ti.f32, "b": ti.i32}, 3),
)
def members_of_fields_are_read_and_written():
    for i in s:
        s[i].a = i + 0.5
        s[i].b += i * 2
        s[i].a *= 2


@leaves("s", s=structs({"a": ti.f32, "b": ti.i32}, 3))
def whole_structs_are_assigned():
    s[0].a = 1.5
    s[0].b = 2
    s[1] = s[0]
    t = s[1]
    t.b = 9
    s[2] = t


@returns(pair=lambda: ti.types.struct(a=ti.i32, b=ti.f32))
def struct_types_make_values() -> ti.f32:
    p = pair(1, 2.5)
    q = pair(a=3, b=4.5)
    z = pair(0)
    return p.a + p.b * 10 + q.a * 100 + q.b * 1000 + z.b


@returns(pair=lambda: ti.types.struct(a=ti.i32, b=ti.f32))
def struct_types_cast_what_they_are_given() -> ti.f32:
    p = pair(a=1.7, b=2)
    return p.a + p.b / 4


def structs_hold_vectors_and_matrices():
    p = ti.types.struct(x=ti.types.vector(3, ti.f32), m=ti.types.matrix(2, 2, ti.f32), n=ti.i32)
    s = p.field(shape=2)

    @ti.kernel
    def f():
        for i in s:
            s[i].x = [i, i + 1, i + 2]
            s[i].m = ti.Matrix([[1, 2], [3, 4]]) * i
            s[i].x[1] += 0.5
            s[i].n = s[i].x.dot(s[i].x)

    f()
    return s.to_numpy()


@leaves(
    "s",
    inner=lambda: ti.types.struct(u=ti.i32, v=ti.f32),
    outer=lambda: ti.types.struct(a=inner, b=inner),
    s=lambda: outer.field(shape=2),
)
def structs_hold_structs():
    for i in s:
        s[i].a.u = i
        s[i].b = inner(i + 10, 0.5)
        s[i].a.v = s[i].b.v + s[i].b.u


def dataclasses_are_structs():
    @ti.dataclass
    class Particle:
        pos: ti.types.vector(2, ti.f32)
        mass: ti.f32

    p = Particle.field(shape=2)

    @ti.kernel
    def f():
        for i in p:
            p[i].pos = [i, 2.0]
            p[i].mass = 3 * i

    f()
    return [p.pos.to_numpy(), p.mass.to_numpy()]


def dataclasses_have_methods():
    @ti.dataclass
    class Sphere:
        center: ti.math.vec3
        radius: ti.f32

        @ti.func
        def area(self):
            return 4 * 3.0 * self.radius**2

        @ti.func
        def grow(self, by):
            self.radius += by

        @ti.func
        def contains(self, p):
            return (p - self.center).norm() < self.radius

    @ti.kernel
    def f() -> ti.types.vector(3, ti.f32):
        s = Sphere(center=ti.math.vec3(0, 1, 0), radius=2)
        s.grow(1)
        return ti.Vector(
            [
                s.area(),
                s.contains(ti.Vector([0.0, 3.5, 0.0])),
                s.contains(ti.Vector([9.0, 9.0, 9.0])),
            ]
        )

    return f().to_numpy()


def methods_of_elements_of_fields():
    @ti.dataclass
    class Counter:
        n: ti.i32

        @ti.func
        def more(self, k):
            self.n += k
            return self.n

    c = Counter.field(shape=3)

    @ti.kernel
    def f() -> ti.i32:
        s = 0
        for i in range(3):
            s += c[i].more(i + 1)
        return s

    return [f(), f(), c.n.to_numpy()]


def dataclasses_in_dataclasses():
    @ti.dataclass
    class Ray:
        o: ti.math.vec2
        d: ti.math.vec2

    @ti.dataclass
    class Hit:
        ray: Ray
        t: ti.f32

        @ti.func
        def point(self):
            return self.ray.o + self.ray.d * self.t

    @ti.kernel
    def f() -> ti.math.vec2:
        h = Hit(ray=Ray(o=ti.math.vec2(1, 2), d=ti.math.vec2(0.5, 0)), t=4)
        return h.point()

    return f().to_numpy()


def structs_of_python_have_members():
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    p = pair(3, 0.5)
    p.a += 1
    return [p.a, p.b, p["a"], sorted(p.keys)]


def structs_of_python_become_dictionaries():
    s = ti.Struct(a=1, b=2.5)
    return s.to_dict()


@returns(s=lambda: ti.Struct(a=1, b=ti.Vector([2.0, 3.0])))
def structs_of_python_are_constants_in_kernels() -> ti.f32:
    return s.a + s.b[1]


def structs_are_arguments_of_kernels():
    pair = ti.types.struct(a=ti.i32, b=ti.types.vector(2, ti.f32))

    @ti.kernel
    def f(p: pair, k: ti.i32) -> ti.f32:
        return p.a * k + p.b.sum()

    return [f(pair(2, [0.5, 1.0]), 10), f(pair(a=0, b=[1, 2]), 3)]


def structs_are_arguments_of_functions():
    pair = ti.types.struct(a=ti.i32, b=ti.f32)

    @ti.func
    def total(p):
        return p.a + p.b

    @ti.func
    def make(a):
        return pair(a, a * 0.5)

    @ti.kernel
    def f() -> ti.f32:
        return total(make(4))

    return f()


@returns(pair=lambda: ti.types.struct(a=ti.i32, b=ti.i32))
def locals_of_structs_are_copies() -> ti.i32:
    p = pair(1, 2)
    q = p
    q.a = 10
    return p.a * 100 + q.a


def struct_fields_are_filled():
    s = ti.Struct.field({"a": ti.f32, "b": ti.types.vector(2, ti.i32)}, shape=2)
    s.fill(3)
    return s.to_numpy()


def members_of_struct_fields_are_filled():
    s = ti.Struct.field({"a": ti.f32, "b": ti.i32}, shape=2)
    s.a.fill(1.5)
    s.b.fill(2)
    return s.to_numpy()


def struct_fields_from_numpy():
    s = ti.Struct.field({"a": ti.f32, "v": ti.types.vector(2, ti.i32)}, shape=2)
    s.from_numpy({"a": np.array([1.5, 2.5], np.float32), "v": np.array([[1, 2], [3, 4]], np.int32)})
    return [s[0].a, s[1].v.to_numpy(), s.to_numpy()]


def struct_fields_are_copied():
    s, t = (ti.Struct.field({"a": ti.f32, "b": ti.i32}, shape=2) for _ in range(2))
    s.a.fill(1.5)
    t.copy_from(s)
    return t.to_numpy()


def elements_are_assigned_from_python():
    pair = ti.types.struct(a=ti.i32, b=ti.types.vector(2, ti.f32))
    s = pair.field(shape=2)
    s[0] = pair(1, [2, 3])
    s[1].a = 7
    s[1].b = [0.5, 0.25]
    return s.to_numpy()


def structs_placed_in_nodes():
    pair = ti.types.struct(a=ti.i32, b=ti.f32)
    s = pair.field()
    ti.root.dense(ti.i, 4).place(s)

    @ti.kernel
    def f():
        for i in s:
            s[i].a = i

    f()
    return s.to_numpy()


@refuses(pair=lambda: ti.types.struct(a=ti.i32, b=ti.f32))
def members_that_are_not_there_are_an_error() -> ti.i32:
    p = pair(1, 2)
    return p.c


@returns()
def struct_values_from_keywords_in_kernels() -> ti.f32:
    s = ti.Struct(a=1, b=2.5)
    return s.a + s.b


@returns(flagged=lambda: ti.types.struct(a=ti.i32, on=ti.u1), s=lambda: flagged.field(shape=3))
def structs_with_bools() -> ti.i32:
    n = 0
    for i in range(3):
        s[i].on = i != 1
    for i in range(3):
        if s[i].on:
            n += 1
    return n


def structs_change_in_functions():
    pair = ti.types.struct(a=ti.i32, b=ti.i32)

    @ti.func
    def swap(p: ti.template()):
        p.a, p.b = p.b, p.a

    @ti.kernel
    def f() -> ti.i32:
        p = pair(1, 2)
        swap(p)
        return p.a * 10 + p.b

    return f()


@each(1, 5, pair=lambda: ti.types.struct(a=ti.i32, b=ti.f32))
def structs_are_chosen_by_branches(k: ti.i32) -> ti.f32:
    p = pair(1, 0.5)
    if k > 2:
        p = pair(k, 0.25)
    else:
        p.b = 8
    return p.a + p.b


@returns(pair=lambda: ti.types.struct(w=ti.types.vector(4, ti.f32), n=ti.i32))
def elements_of_structs_may_be_arrays() -> ti.f32:
    p = pair(0)
    for i in range(4):
        p.w[i] = i * i
        p.n += i
    return p.w.sum() + p.n * 100


def members_of_structs_change_places():
    pair = ti.types.struct(a=ti.i32, b=ti.i32)
    x = pair.field(shape=3)

    @ti.kernel
    def f():
        for i in x:
            x[i] = pair(a=i, b=10 + i)
        for i in x:
            x[i] = pair(a=x[i].b, b=x[i].a)

    f()
    return [x.a.to_numpy(), x.b.to_numpy()]
