"""`ks.math`: the same values in kernels as from Python, and those of the formulas."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Iterator
from typing import Any

import kernelscape as ks
import numpy as np
import pytest

tm = ks.math


@pytest.fixture(autouse=True)
def _program() -> Iterator[None]:
    ks.init(default_fp=ks.f64)
    yield
    ks.reset()


NUMBERS = np.array([-2.5, -1.0, -0.3, 0.0, 0.2, 0.9, 1.0, 3.7])

# A function, its arguments before and after x, and what it gives.
SCALAR: dict[str, tuple[tuple[float, ...], tuple[float, ...], Callable[[Any], Any]]] = {
    "mix": ((), (5.0, 0.25), lambda x: 0.75 * x + 1.25),
    "clamp": ((), (-1.0, 0.5), lambda x: np.clip(x, -1, 0.5)),
    "step": ((0.2,), (), lambda x: np.where(x >= 0.2, 1, 0)),
    "smoothstep": (
        (-1.0, 1.0),
        (),
        lambda x: np.polyval([-2, 3, 0, 0], np.clip((x + 1) / 2, 0, 1)),
    ),
    "sign": ((), (), np.sign),
    "fract": ((), (), lambda x: x % 1),
    "mod": ((), (0.7,), lambda x: x % 0.7),
    "radians": ((), (), np.radians),
    "degrees": ((), (), np.degrees),
    "exp2": ((), (), np.exp2),
}


@pytest.mark.parametrize("name", SCALAR)
def test_functions_of_numbers_work_on_each_component(name: str) -> None:
    before, after, known = SCALAR[name]
    f = getattr(tm, name)
    x, y = ks.field(ks.f64, shape=8), ks.field(ks.f64, shape=8)
    v, w = ks.Vector.field(2, ks.f64, shape=4), ks.Vector.field(2, ks.f64, shape=4)
    x.from_numpy(NUMBERS)
    v.from_numpy(NUMBERS.reshape(4, 2))

    @ks.kernel
    def run():
        for i in x:
            y[i] = f(*before, x[i], *after)
        for i in v:
            w[i] = f(*before, v[i], *after)

    run()
    assert np.allclose(y.to_numpy(), known(NUMBERS), atol=1e-12)
    assert np.allclose(w.to_numpy().ravel(), known(NUMBERS), atol=1e-12)
    assert np.allclose([f(*before, n, *after) for n in NUMBERS], known(NUMBERS), atol=1e-12)
    outside = f(*before, ks.Vector(NUMBERS), *after)
    assert isinstance(outside, ks.Matrix)
    assert np.allclose(outside, known(NUMBERS), atol=1e-12)


def test_what_is_no_number_and_what_is_infinite() -> None:
    x = ks.field(ks.f64, shape=3)
    out = ks.Vector.field(2, ks.i32, shape=3)
    x.from_numpy(np.array([1.0, np.inf, np.nan]))

    @ks.kernel
    def run():
        for i in x:
            out[i] = ks.Vector([tm.isnan(x[i]), tm.isinf(x[i])])

    run()
    assert out.to_numpy().tolist() == [[0, 0], [0, 1], [1, 0]]


def both(f: Any, *vectors: list[float]) -> np.ndarray:
    """What a function of one or two vectors gives in a kernel; it gives the same from Python."""
    outside = np.asarray(f(*(ks.Vector(v, ks.f64) for v in vectors)))
    fields = [ks.Vector.field(len(v), ks.f64, shape=()) for v in vectors]
    for field, v in zip(fields, vectors, strict=True):
        field[None] = v
    a, b = fields[0], fields[-1]
    is_single, is_number = len(fields) == 1, outside.ndim == 0
    out = ks.field(ks.f64, shape=outside.shape or (1,))
    indices = list(np.ndindex(*out.shape))

    @ks.func
    def store(result):
        if ks.static(is_number):
            out[0] = result
        else:
            for index in ks.static(indices):
                out[index] = result[index]

    @ks.kernel
    def run():
        if ks.static(is_single):
            store(f(a[None]))
        else:
            store(f(a[None], b[None]))

    run()
    assert np.allclose(out.to_numpy(), outside.reshape(out.shape), atol=1e-12)
    return outside


# --- functions that take apart what `both` gives


@ks.func
def mirrored(x, n):
    return tm.reflect(x, tm.normalize(n))


@ks.func
def directed(x):
    return tm.vdir(x[0])


@ks.func
def into_glass(x):
    return tm.refract(tm.normalize(x), tm.vec2(0, 1), 0.8)


@ks.func
def out_of_glass(x):
    return tm.refract(tm.normalize(x), tm.vec2(0, 1), 1.5)


@ks.func
def turned(x):
    return tm.rotation2d(x[0])


@ks.func
def turned_around(x):
    return tm.rot_by_axis(x, 0.4)


@ks.func
def by_angles(x):
    return tm.rot_yaw_pitch_roll(x[0], x[1], x[2])


@ks.func
def by_axes(x):
    return tm.rotation3d(x[1], x[2], x[0])


@ks.func
def moved(x):
    return tm.translate(x[0], x[1], x[2]) @ tm.scale(2, 3, 4)


@ks.func
def inverted(x):
    return tm.inverse(tm.mat2(x, 3, 4))


@ks.func
def measured(x):
    return tm.determinant(tm.mat2(x, 3, 4))


@ks.func
def identity(x):
    return x[0] * tm.eye(3)


@ks.func
def power(z):
    return tm.cpow(z, 2.5)


@ks.func
def of_zero(z):
    return tm.cpow(z - z, 2.5) + tm.csqrt(z - z)


A, B = [1.0, 2.0, -0.5], [0.3, -1.0, 2.0]


def test_vectors() -> None:
    a, b = np.array(A), np.array(B)
    n = b / np.linalg.norm(b)
    assert np.allclose(both(tm.dot, A, B), a @ b)
    assert np.allclose(both(tm.cross, A, B), np.cross(a, b))
    assert np.allclose(both(tm.cross, A[:2], B[:2]), -1.6)
    assert np.allclose(both(tm.distance, A, B), np.linalg.norm(a - b))
    assert np.allclose(both(tm.length, A), np.linalg.norm(a))
    assert np.allclose(both(tm.normalize, B), n)
    assert np.allclose(both(mirrored, A, B), a - 2 * (a @ n) * n)
    assert np.allclose(both(directed, A), [np.cos(1), np.sin(1)])


def test_refraction_obeys_the_law_of_sines() -> None:
    result = both(into_glass, [1.0, -1.0])
    assert np.linalg.norm(result) == pytest.approx(1)
    assert result[0] == pytest.approx(0.8 * np.sqrt(0.5))
    assert result[1] < 0
    assert np.array_equal(both(out_of_glass, [1.0, -0.1]), [0, 0])


def test_rotations() -> None:
    assert np.allclose(both(turned, A) @ [1, 0], [np.cos(1), np.sin(1)])
    turn = both(turned_around, A)
    u = np.array(A) / np.linalg.norm(A)
    assert np.allclose(np.append(u, 1) @ turn, np.append(u, 1))
    v = np.cross(u, [0, 0, 1])
    assert np.allclose(v @ turn[:3, :3], np.cos(0.4) * v + np.sin(0.4) * np.cross(u, v))
    angles = both(by_angles, A)
    yaw, pitch, roll = (
        np.asarray(tm.rot_by_axis(ks.Vector(axis), angle))
        for axis, angle in zip(np.eye(3)[[1, 0, 2]], A, strict=True)
    )
    assert np.allclose(angles, roll @ pitch @ yaw)
    assert np.allclose(both(by_axes, A), angles)


def test_matrices() -> None:
    assert np.allclose(both(moved, A) @ [1, 1, 1, 1], [3, 5, 3.5, 1])
    assert np.allclose(both(inverted, A[:2]), [[-2, 1], [1.5, -0.5]])
    assert both(measured, A[:2]) == pytest.approx(-2)
    assert np.array_equal(both(identity, A), np.eye(3))


Z, W = [-0.5, 0.3], [1.0, 2.0]
z, w = complex(*Z), complex(*W)
COMPLEX: dict[str, tuple[Any, complex]] = {
    "cconj": (tm.cconj, z.conjugate()),
    "cinv": (tm.cinv, 1 / z),
    "csqrt": (tm.csqrt, cmath.sqrt(z)),
    "cpow": (power, z**2.5),
    "cexp": (tm.cexp, cmath.exp(z)),
    "clog": (tm.clog, cmath.log(z)),
    "of zero": (of_zero, 0j),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_pairs(name: str) -> None:
    ours, known = COMPLEX[name]
    assert complex(*both(ours, Z)) == pytest.approx(known)


def test_products_of_complex_numbers() -> None:
    assert complex(*both(tm.cmul, Z, W)) == pytest.approx(z * w)
    assert complex(*both(tm.cdiv, Z, W)) == pytest.approx(z / w)


def test_bits_are_counted() -> None:
    out = ks.field(ks.i32, shape=2)

    @ks.kernel
    def run(x: ks.i32):
        out[0] = tm.popcnt(x)
        out[1] = tm.clz(x)

    run(0b1011000)
    assert out.to_numpy().tolist() == [3, 25]


def test_types_have_the_numbers_of_the_program() -> None:
    ks.init()
    assert tm.vec3.dtype is ks.f32
    assert tm.ivec2.dtype is ks.i32
    assert tm.uvec4.dtype is ks.u32
    assert tm.mat3(1).get_shape() == (3, 3)
    ks.init(default_fp=ks.f64, default_ip=ks.i64)
    assert tm.vec3.dtype is ks.f64
    assert tm.ivec2.dtype is ks.i64
    assert all(v.dtype is ks.u64 for v in (tm.uvec2, tm.uvec3, tm.uvec4))
    assert tm.uvec2.field(shape=2).to_numpy().dtype == np.uint64
    whole = ks.field(ks.u64, shape=3)

    @ks.kernel
    def run(v: tm.uvec2):
        u = tm.uvec3(-1, v.x, 0)
        whole[0], whole[1], whole[2] = u[0], 4 * u[1], v.y

    run(tm.uvec2(2**63 + 1, 7))
    assert whole.to_numpy().tolist() == [2**64 - 1, 4, 7]


def test_what_only_shapes_decide_is_static() -> None:
    """`ks.static` knows the shape of a vector whose numbers are known at run time."""
    v = ks.Vector.field(3, ks.f64, shape=2)

    @ks.func
    def ramp(x):
        for k in ks.static(range(x.n)):
            x[k] = k + x.m + len(x)
        return x

    @ks.kernel
    def run():
        for i in v:
            v[i] = ramp(v[i]) + ramp(ks.Vector([1, 2, 3]))

    run()
    assert v.to_numpy().tolist() == [[8, 10, 12]] * 2
