"""Packs of arguments."""

import numpy as np
import taichi as ti

from .seeing import printed, refused, value

vec3 = ti.types.vector(3, ti.f32)


def packs_hold_numbers():
    kind = ti.types.argpack(a=ti.i32, b=ti.f32)

    @ti.kernel
    def f(p: kind) -> ti.f32:
        return p.a + p.b

    return [f(kind(a=1, b=2.5)), f(kind(a=-3, b=0.25))]


def packs_hold_truth_values():
    kind = ti.types.argpack(yes=bool, a=ti.i32)

    @ti.kernel
    def f(p: kind) -> ti.i32:
        r = 0
        if p.yes:
            r = p.a
        return r

    return [f(kind(yes=True, a=4)), f(kind(yes=False, a=4))]


def packs_hold_vectors():
    kind = ti.types.argpack(v=vec3, a=ti.f32)

    @ti.kernel
    def f(p: kind) -> vec3:
        return p.v * p.a

    return value(f(kind(v=[1, 2, 3], a=0.5)))


def packs_hold_matrices():
    kind = ti.types.argpack(m=ti.types.matrix(2, 2, ti.f32))

    @ti.kernel
    def f(p: kind) -> ti.f32:
        return p.m[0, 1] - p.m[1, 0] + p.m.trace()

    return f(kind(m=ti.Matrix([[1.0, 2.0], [5.0, 8.0]])))


def packs_hold_structs():
    pair = ti.types.struct(x=ti.i32, y=ti.f32)
    kind = ti.types.argpack(p=pair, k=ti.i32)

    @ti.kernel
    def f(q: kind) -> ti.f32:
        return q.p.x * q.k + q.p.y

    return f(kind(p=pair(x=2, y=0.5), k=3))


def packs_hold_arrays():
    kind = ti.types.argpack(x=ti.types.ndarray(dtype=ti.i32, ndim=1), k=ti.i32)
    x = ti.ndarray(ti.i32, shape=4)

    @ti.kernel
    def f(p: kind):
        for i in range(4):
            p.x[i] += i * p.k

    pack = kind(x=x, k=3)
    f(pack)
    f(pack)
    return x.to_numpy()


def packs_hold_arrays_of_vectors():
    kind = ti.types.argpack(x=ti.types.ndarray(dtype=vec3, ndim=1))
    x = ti.ndarray(vec3, shape=2)
    x.fill(1.5)

    @ti.kernel
    def f(p: kind) -> vec3:
        p.x[0] *= 2
        return p.x[0] + p.x[1]

    return [value(f(kind(x=x))), x.to_numpy()]


def packs_hold_packs():
    inner = ti.types.argpack(a=ti.i32, b=ti.i32)
    kind = ti.types.argpack(first=inner, second=inner, k=ti.i32)

    @ti.kernel
    def f(p: kind) -> ti.i32:
        return p.first.a * p.second.b + p.first.b * p.second.a + p.k

    return f(kind(first=inner(a=1, b=2), second=inner(a=30, b=40), k=1000))


def several_packs_and_other_arguments():
    one = ti.types.argpack(a=ti.i32)
    two = ti.types.argpack(a=ti.i32, x=ti.types.ndarray(dtype=ti.f32, ndim=1))
    x = ti.ndarray(ti.f32, shape=3)

    @ti.kernel
    def f(p: one, k: ti.i32, q: two) -> ti.i32:
        for i in q.x:
            q.x[i] = p.a + k * q.a
        return p.a - q.a

    return [f(one(a=1), 10, two(a=2, x=x)), x.to_numpy()]


def members_of_packs_are_read_from_python():
    kind = ti.types.argpack(a=ti.i32, v=vec3)
    pack = kind(a=3, v=[1, 2, 3])
    return [pack.a, pack["a"], list(pack.keys), float(pack.v[1])]


def packs_with_other_members_are_refused():
    kind = ti.types.argpack(a=ti.i32, b=ti.i32)
    return [refused(lambda: kind(a=1)), refused(lambda: kind(a=1, b=2, c=3))]


def packs_of_another_type_are_refused():
    kind, other = ti.types.argpack(a=ti.i32), ti.types.argpack(b=ti.i32)

    @ti.kernel
    def f(p: kind) -> ti.i32:
        return p.a

    return [refused(lambda: f(other(b=1))), refused(lambda: f(1))]


def packs_are_printed_member_by_member():
    kind = ti.types.argpack(a=ti.i32)

    @ti.kernel
    def f(p: kind):
        print(p.a)

    return printed(lambda: f(kind(a=5)))


def packs_of_data_oriented_classes():
    kind = ti.types.argpack(a=ti.i32)

    @ti.data_oriented
    class Scaled:
        def __init__(self, k):
            self.k = k

        @ti.kernel
        def of(self, p: kind) -> ti.i32:
            return self.k * p.a

    return [Scaled(2).of(kind(a=4)), Scaled(3).of(kind(a=5))]


def packs_take_numbers_of_numpy():
    kind = ti.types.argpack(a=ti.i32, b=ti.f32)

    @ti.kernel
    def f(p: kind) -> ti.f32:
        return p.a + p.b

    return f(kind(a=int(np.int32(2)), b=float(np.float32(0.5))))


def members_of_packs_are_assigned():
    kind = ti.types.argpack(a=ti.i32, v=vec3)

    @ti.kernel
    def f(p: kind) -> ti.f32:
        return p.a * 100 + p.v[1]

    pack = kind(a=1, v=[1, 2, 3])
    found = [f(pack)]
    pack.a = 5
    found += [f(pack), pack.a]
    pack["v"] = vec3(4, 5, 6)
    return [*found, f(pack), len(pack)]


def packs_take_members_in_order():
    kind = ti.types.argpack(a=ti.i32, b=ti.f32)
    return [kind(1, 2.5).b, kind(1, b=2.5).a]


p_a = 77


def packs_beside_names_like_those_of_their_members():
    kind = ti.types.argpack(a=ti.i32)
    inner = ti.types.argpack(b=ti.i32)
    outer = ti.types.argpack(a=inner, a_b=ti.i32)

    @ti.kernel
    def argument(p: kind, p_a: ti.i32) -> ti.i32:
        return p.a * 100 + p_a

    @ti.kernel
    def member(p: outer) -> ti.i32:
        return p.a.b * 100 + p.a_b

    @ti.kernel
    def name_of_the_module(p: kind) -> ti.i32:
        return p.a * 100 + p_a

    @ti.kernel
    def local(p: kind) -> ti.i32:
        p_a = 5
        p_a += 1
        return p.a * 100 + p_a

    return [
        argument(kind(a=1), 2),
        member(outer(a=inner(b=1), a_b=2)),
        name_of_the_module(kind(a=1)),
        local(kind(a=1)),
    ]
