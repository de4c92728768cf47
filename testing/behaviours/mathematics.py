"""The module math, and swizzles."""

import taichi as ti
from taichi.math import mat2, vec2, vec3, vec4

from .seeing import each, leaves, refused, returns, vectors


@returns()
def types_of_vectors_are_constructors() -> vec4:
    a = vec2(1, 2)
    b = vec3(a, 3)
    c = vec4(b, 4)
    return c + vec4(0.5)


def constructors_in_python():
    return [
        vec3(1, 2, 3).to_numpy(),
        vec4(vec2(1, 2), 3, 4).to_numpy(),
        mat2(1, 2, 3, 4).to_numpy(),
    ]


@each(0.1, 0.4, 0.9)
def mix_clamp_and_steps(x: ti.f32) -> ti.types.vector(4, ti.f32):
    return ti.Vector(
        [
            ti.math.mix(1.0, 3.0, x),
            ti.math.clamp(x, 0.25, 0.5),
            ti.math.step(0.3, x),
            ti.math.smoothstep(0.0, 1.0, x),
        ]
    )


@returns()
def mix_of_vectors() -> vec3:
    return ti.math.mix(vec3(0, 1, 2), vec3(1, 1, 4), 0.25) + ti.math.clamp(vec3(-1, 0.5, 2), 0, 1)


@returns()
def products_and_lengths() -> ti.types.vector(5, ti.f32):
    a, b = vec3(1, 2, 3), vec3(-1, 0.5, 2)
    c = ti.math.cross(a, b)
    return ti.Vector([ti.math.dot(a, b), ti.math.length(a), ti.math.distance(a, b), c.x, c.z])


@returns()
def normalised_and_reflected() -> vec3:
    n = ti.math.normalize(vec3(1, 2, 2))
    return (
        n
        + ti.math.reflect(vec3(1, -1, 0), vec3(0, 1, 0))
        + ti.math.refract(vec3(0, -1, 0), vec3(0, 1, 0), 0.5)
    )


@each(2.75, -2.75)
def fractions_and_remainders(x: ti.f32) -> ti.types.vector(4, ti.f32):
    return ti.Vector([ti.math.fract(x), ti.math.mod(x, 2.0), ti.math.sign(x), ti.math.log2(abs(x))])


@returns()
def angles() -> ti.types.vector(3, ti.f32):
    return ti.Vector([ti.math.radians(90.0), ti.math.degrees(ti.math.pi), ti.math.atan2(1.0, -1.0)])


def constants():
    @ti.kernel
    def f() -> ti.types.vector(2, ti.f32):
        return ti.Vector([ti.math.pi, ti.math.e])

    return [f().to_numpy(), ti.math.pi, str(ti.math.inf)]


@returns(0.5)
def rotations_of_two_dimensions(a: ti.f32) -> mat2:
    return ti.math.rotation2d(a)


@returns(0.5)
def rotations_of_three_dimensions(a: ti.f32) -> ti.math.mat4:
    return ti.math.rot_by_axis(vec3(0, 0, 1), a) + ti.math.rot_yaw_pitch_roll(a, 0.1, 0.2)


@returns()
def translations_and_scales() -> vec4:
    return ti.math.translate(1, 2, 3) @ ti.math.scale(2, 3, 4) @ vec4(1, 1, 1, 1)


@returns()
def complex_numbers_as_vectors() -> ti.types.vector(8, ti.f32):
    a, b = vec2(1, 2), vec2(0.5, -1)
    p, q, r, s = ti.math.cmul(a, b), ti.math.cdiv(a, b), ti.math.csqrt(a), ti.math.cexp(b)
    return ti.Vector([p.x, p.y, q.x, q.y, r.x, r.y, s.x, s.y])


@returns()
def powers_and_logs_of_complex_numbers() -> ti.types.vector(6, ti.f32):
    a = vec2(1, 2)
    p, q, r = ti.math.cpow(a, 3), ti.math.clog(a), ti.math.cinv(a)
    return ti.Vector([p.x, p.y, q.x, q.y, r.x, r.y])


@returns()
def matrices_of_math() -> mat2:
    m = mat2(1, 2, 3, 4)
    return m @ ti.math.inverse(m) + ti.math.eye(2) * ti.math.determinant(m)


@returns()
def directions_by_angle() -> vec2:
    return ti.math.vdir(0.7)


@returns()
def names_of_components() -> ti.f32:
    v = vec4(1, 2, 3, 4)
    return v.x + v.y * 10 + v.z * 100 + v.w * 1000 + v.r * 0.5 + v.a * 0.25


@returns()
def swizzles_read_components() -> ti.types.vector(7, ti.f32):
    v = vec3(1, 2, 3)
    a, b, c = v.yx, v.zzz, v.rg
    return ti.Vector([a[0], a[1], b[0], b[2], c[0], c[1], v.xyz.y])


@returns()
def swizzles_write_components() -> vec3:
    v = vec3(1, 2, 3)
    v.xz = vec2(7, 8)
    v.yx += vec2(10, 20)
    v.z *= 2
    return v


@returns()
def swizzles_exchange_components() -> vec3:
    v = vec3(1, 2, 3)
    v.xy = v.yx
    return v


@leaves("x", x=vectors(3, ti.f32, 2))
def swizzles_of_fields():
    for i in x:
        x[i].xy = vec2(i, i + 1)
        x[i].bgr += vec3(0.5, 0.25, 0.125)


def swizzles_in_python():
    v = vec3(1, 2, 3)
    v.xy = vec2(5, 6)
    return [v.zyx.to_numpy(), v.xx.to_numpy(), v.to_numpy(), v.r]


def swizzles_that_are_not_there_are_errors():
    @ti.kernel
    def f() -> ti.f32:
        return vec2(1, 2).z

    @ti.kernel
    def g() -> vec2:
        return vec3(1, 2, 3).xg

    return [refused(f), refused(g) != "runs"]


def swizzles_of_vectors_of_two_in_python_have_no_third():
    v = vec2(1, 2)
    return refused(lambda: v.z) != "runs"


@returns()
def integer_vectors() -> ti.math.ivec3:
    a = ti.math.ivec3(1, 2, 3)
    return a * 2 + ti.math.ivec3(7) // 2 + a.zyx % 2


@returns()
def unsigned_vectors() -> ti.math.uvec2:
    a = ti.math.uvec2(1, 2)
    return a - ti.math.uvec2(2, 1)


def vec3_is_of_the_default_type():
    ti.init(arch=ti.cpu, default_fp=ti.f64)

    @ti.kernel
    def f() -> ti.types.vector(3, ti.f64):
        return ti.math.vec3(0.1, 0.2, 0.3) * 3

    return f().to_numpy()
