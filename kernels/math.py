"""`ks.math`: functions and types of vectors for programs, as in GLSL and Taichi.

They are written in the kernel language and take numbers or vectors, component by component. A complex number is a vector (real,
imaginary). Outside kernels they run as Python on numbers and values of `ks.Matrix`.
"""

from __future__ import annotations

from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from .fields.compound import matrix, vector
from .fields.matrix import Matrix
from .fields.program import uint
from .frontend.functions import (
    acos,
    asin,
    atan2,
    ceil,
    clz,
    cos,
    exp,
    exp2,
    floor,
    isinf,
    isnan,
    log,
    log2,
    popcnt,
    pow,  # noqa: A004
    round,  # noqa: A004
    sin,
    sqrt,
    tan,
    tanh,
)
from .frontend.intrinsics import max, min, select, template  # noqa: A004
from .frontend.kernel import func

__all__ = [
    "acos",
    "asin",
    "atan2",
    "cconj",
    "cdiv",
    "ceil",
    "cexp",
    "cinv",
    "clamp",
    "clog",
    "clz",
    "cmul",
    "cos",
    "cpow",
    "cross",
    "csqrt",
    "degrees",
    "determinant",
    "distance",
    "dot",
    "e",
    "exp",
    "exp2",
    "eye",
    "floor",
    "fract",
    "inf",
    "inverse",
    "isinf",
    "isnan",
    "ivec2",
    "ivec3",
    "ivec4",
    "length",
    "log",
    "log2",
    "mat2",
    "mat3",
    "mat4",
    "max",
    "min",
    "mix",
    "mod",
    "nan",
    "normalize",
    "pi",
    "popcnt",
    "pow",
    "radians",
    "reflect",
    "refract",
    "rot_by_axis",
    "rot_yaw_pitch_roll",
    "rotation2d",
    "rotation3d",
    "round",
    "scale",
    "sign",
    "sin",
    "smoothstep",
    "sqrt",
    "step",
    "tan",
    "tanh",
    "translate",
    "uvec2",
    "uvec3",
    "uvec4",
    "vdir",
    "vec2",
    "vec3",
    "vec4",
]

if TYPE_CHECKING:  # a type that is made by a call annotates nothing
    from .static_types import (
        ivec2,
        ivec3,
        ivec4,
        mat2,
        mat3,
        mat4,
        uvec2,
        uvec3,
        uvec4,
        vec2,
        vec3,
        vec4,
    )
else:
    vec2, vec3, vec4 = vector(2, float), vector(3, float), vector(4, float)
    ivec2, ivec3, ivec4 = vector(2, int), vector(3, int), vector(4, int)
    uvec2, uvec3, uvec4 = vector(2, uint), vector(3, uint), vector(4, uint)
    mat2, mat3, mat4 = matrix(2, 2, float), matrix(3, 3, float), matrix(4, 4, float)

# --- component by component


@func
def mix(x: Any, y: Any, a: Any) -> Any:
    """Linear interpolation: x at a = 0, y at a = 1."""
    return x * (1.0 - a) + y * a


@func
def clamp(x: Any, low: Any, high: Any) -> Any:
    """x limited to the range from `low` to `high`."""
    return min(max(x, low), high)


@func
def step(edge: Any, x: Any) -> Any:
    """0.0 where x is below `edge`, else 1.0."""
    return select(x < edge, 0.0, 1.0)


@func
def smoothstep(edge0: Any, edge1: Any, x: Any) -> Any:
    """0 for x up to `edge0`, 1 from `edge1` on, and a cubic polynomial between them."""
    t = clamp((x - edge0) / (edge1 - edge0), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


@func
def sign(x: Any) -> Any:
    """The sign of x: -1.0, 0.0 or 1.0."""
    return select(x > 0, 1.0, select(x < 0, -1.0, 0.0))


@func
def fract(x: Any) -> Any:
    """The fractional part: x minus the greatest integer not above it."""
    return x - floor(x)


@func
def mod(x: Any, y: Any) -> Any:
    """x minus the greatest multiple of y not above it; it has the sign of y."""
    return x - y * floor(x / y)


@func
def radians(x: Any) -> Any:
    """Converts degrees to radians."""
    return x * pi / 180.0


@func
def degrees(x: Any) -> Any:
    """Converts radians to degrees."""
    return x * 180.0 / pi


# --- vectors and matrices


@func
def dot(x: Any, y: Any) -> Any:
    """The dot product: the sum of the products of corresponding components."""
    return x.dot(y)


@func
def cross(x: Any, y: Any) -> Any:
    """The vector orthogonal to two vectors of three components; for two components, the determinant."""
    return x.cross(y)


@func
def length(x: Any) -> Any:
    """The Euclidean norm of a vector."""
    return x.norm()


@func
def distance(x: Any, y: Any) -> Any:
    """The Euclidean norm of the difference x - y."""
    return (x - y).norm()


@func
def normalize(v: Any) -> Any:
    """The vector divided by its length; for length 0 the result is not finite."""
    return v / v.norm()


@func
def reflect(x: Any, n: Any) -> Any:
    """The direction x after reflection at a mirror with the unit normal n."""
    return x - 2.0 * x.dot(n) * n


@func
def refract(x: Any, n: Any, eta: Any) -> Any:
    """The unit direction x after refraction at a surface with the unit normal n (Snell); 0 for total reflection.

    `eta` is the index of refraction on the side of x over that on the other side.
    """
    along = x.dot(n)
    k = 1.0 - eta * eta * (1.0 - along * along)
    bent = eta * x - (eta * along + sqrt(max(k, 0.0))) * n
    return select(k < 0.0, 0.0, 1.0) * bent


@func
def determinant(m: Any) -> Any:
    """The determinant of a square matrix of up to four rows."""
    return m.determinant()


@func
def inverse(m: Any) -> Any:
    """The inverse of a square matrix of up to four rows."""
    return m.inverse()


@func
def eye(n: template()) -> Any:  # type: ignore[valid-type]
    """The identity matrix of n rows."""
    return Matrix.identity(float, n)


@func
def vdir(angle: Any) -> Any:
    """The unit vector at an angle to the first axis, in radians."""
    return Matrix([cos(angle), sin(angle)])


@func
def rotation2d(angle: Any) -> Any:
    """The 2 x 2 matrix that rotates a vector by an angle in radians."""
    c, s = cos(angle), sin(angle)
    return Matrix([[c, -s], [s, c]])


@func
def rot_yaw_pitch_roll(yaw: Any, pitch: Any, roll: Any) -> Any:
    """The 4 x 4 rotation by roll around z, then pitch around x, then yaw around y; angles in radians.

    It multiplies row vectors from the right.
    """
    cy, sy, cp, sp, cr, sr = cos(yaw), sin(yaw), cos(pitch), sin(pitch), cos(roll), sin(roll)
    return Matrix(
        [
            [cy * cr + sy * sp * sr, sr * cp, cy * sp * sr - sy * cr, 0.0],
            [sy * sp * cr - cy * sr, cr * cp, sr * sy + cy * sp * cr, 0.0],
            [sy * cp, -sp, cy * cp, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


@func
def rotation3d(angle_x: Any, angle_y: Any, angle_z: Any) -> Any:
    """The 4 x 4 rotation by angles around three axes, in radians.

    It is composed as by Taichi: `angle_z` is the yaw, `angle_x` the pitch, `angle_y` the roll of `rot_yaw_pitch_roll`.
    """
    return rot_yaw_pitch_roll(angle_z, angle_x, angle_y)


@func
def rot_by_axis(axis: Any, angle: Any) -> Any:
    """The 4 x 4 rotation around an axis by an angle in radians (Rodrigues).

    It multiplies row vectors from the right.
    """
    u, c, s = axis / axis.norm(), cos(angle), sin(angle)
    x, y, z = u * (1.0 - c)
    return Matrix(
        [
            [x * u[0] + c, x * u[1] + s * u[2], x * u[2] - s * u[1], 0.0],
            [y * u[0] - s * u[2], y * u[1] + c, y * u[2] + s * u[0], 0.0],
            [z * u[0] + s * u[1], z * u[1] - s * u[0], z * u[2] + c, 0.0],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


@func
def translate(dx: Any, dy: Any, dz: Any) -> Any:
    """The 4 x 4 matrix that moves a point (x, y, z, 1) by (dx, dy, dz)."""
    return mat4(1.0, 0.0, 0.0, dx, 0.0, 1.0, 0.0, dy, 0.0, 0.0, 1.0, dz, 0.0, 0.0, 0.0, 1.0)


@func
def scale(sx: Any, sy: Any, sz: Any) -> Any:
    """The 4 x 4 matrix that scales along the three axes by sx, sy, sz."""
    return mat4(sx, 0.0, 0.0, 0.0, 0.0, sy, 0.0, 0.0, 0.0, 0.0, sz, 0.0, 0.0, 0.0, 0.0, 1.0)


# --- complex numbers


@func
def cmul(z: Any, w: Any) -> Any:
    """The product of two complex numbers."""
    return Matrix([z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]])


@func
def cconj(z: Any) -> Any:
    """The complex conjugate."""
    return Matrix([z[0], -z[1]])


@func
def cdiv(z: Any, w: Any) -> Any:
    """The quotient of two complex numbers."""
    return cmul(z, cconj(w)) / w.dot(w)


@func
def cinv(z: Any) -> Any:
    """The reciprocal of a complex number z."""
    return cconj(z) / z.dot(z)


@func
def csqrt(z: Any) -> Any:
    """The complex square root whose real part is not negative."""
    return sqrt(z.norm()) * vdir(atan2(z[1], z[0]) * 0.5)


@func
def cpow(z: Any, n: Any) -> Any:
    """A complex number z to a real power n; 0 for z = 0."""
    r = z.norm()
    is_zero = r == 0.0
    return select(is_zero, 0.0, pow(select(is_zero, 1.0, r), n)) * vdir(atan2(z[1], z[0]) * n)


@func
def cexp(z: Any) -> Any:
    """e to the complex power z."""
    return exp(z[0]) * vdir(z[1])


@func
def clog(z: Any) -> Any:
    """The complex logarithm, whose imaginary part is the angle of z."""
    return Matrix([log(z.norm()), atan2(z[1], z[0])])
