"""Linear algebra of small matrices, written in the kernel language: each call in a kernel is inlined.

No function branches on numbers, and iterations have a fixed count, so a loop around a call can be vectorised. `dt` is the type of
the computation, f32 or f64; `float` is the program's default. Matrices with huge or tiny entries are scaled first, so squares
neither overflow nor vanish. Called from Python, the functions run as Python on values of `ks.Matrix`.
"""

from __future__ import annotations

from typing import Any

from .fields.matrix import Matrix
from .frontend import intrinsics
from .frontend.func import differentiated_as
from .frontend.functions import sqrt
from .frontend.kernel import func

# Cyclic Jacobi converges quadratically. Of 400,000 random, graded and nearly equal 3 x 3 matrices in f64 three sweeps left errors
# of 1e-5, four none above rounding errors (svd 9, sym_eig 19 units of the last place of the largest entry). One is spare.
SWEEPS = 5
LARGE, SMALL = (
    2.0**20,
    2.0**-20,
)  # fourth powers of entries between them are normal numbers, also in f32


@func
def svd(A: Any, dt: Any = float) -> Any:
    """U, S, V with A = U S V^T for a 2 x 2 or 3 x 3 matrix: U and V orthogonal, S diagonal and descending.

    V is a rotation. Of 2 x 2 matrices S is not negative and U has the sign of the determinant of A; of 3 x 3 matrices U is a
    rotation and the last singular value has that sign.
    """
    intrinsics.static_assert(
        A.n > 1 and A.n < 4 and A.n == A.m, "ks.svd takes matrices of 2 x 2 and 3 x 3"
    )
    if intrinsics.static(A.n == 2):
        B, size = _scaled(A.cast(dt))
        R, big, p, q = _polar(B)
        x, y = _half_angle(p, q)
        r = sqrt(p * p + q * q)
        V = Matrix([[x, -y], [y, x]])
        return R @ V, Matrix([[(big + r) * size, 0], [0, intrinsics.max(big - r, 0) * size]], dt), V
    return _svd3(A, dt)


@func
def polar_decompose(A: Any, dt: Any = float) -> Any:
    """U, P with A = U P for a 2 x 2 or 3 x 3 matrix: U orthogonal, P symmetric.

    Of 2 x 2 matrices P is positive semidefinite, so U is a reflection where A has a negative determinant; of 3 x 3 matrices U is a
    rotation, and P has a negative eigenvalue there.
    """
    intrinsics.static_assert(
        A.n > 1 and A.n < 4 and A.n == A.m, "ks.polar_decompose takes matrices of 2 x 2 and 3 x 3"
    )
    if intrinsics.static(A.n == 2):
        B, size = _scaled(A.cast(dt))
        R, big, p, q = _polar(B)
        return R, Matrix([[big + p, q], [q, big - p]]) * size
    U, S, V = _svd3(A, dt)
    return U @ V.transpose(), V @ S @ V.transpose()


@func
def eig(A: Any, dt: Any = float) -> Any:
    """Eigenvalues and eigenvectors of a real 2 x 2 matrix, complex numbers as pairs of real and imaginary part.

    Row k of the first result, shape (2, 2), is an eigenvalue: the greater first, or the one with the positive imaginary part.
    Column k of the second, shape (4, 2), is its eigenvector of length 1. A matrix that has only one eigenvector gives it twice.
    """
    B, size = _scaled(A.cast(dt))
    a, b, c, d = B[0, 0], B[0, 1], B[1, 0], B[1, 1]
    middle, k = (a + d) / 2, (a - d) / 2
    gap = k * k + b * c
    w = sqrt(abs(gap))
    is_real = gap >= 0
    # (A - l1)(A - l2) = 0: what is not zero of A - l2 is an eigenvector to l1.
    real1, real2 = _parallel(k + w, c, b, w - k), _parallel(k - w, c, b, -k - w)
    is_multiple = (abs(k) + abs(b)) + abs(c) == 0
    real1 = intrinsics.select(is_multiple, Matrix([0, 1], dt), real1)
    real2 = intrinsics.select(is_multiple, Matrix([1, 0], dt), real2)
    pair = Matrix([k, w, c, 0], dt)
    pair = pair / _or_one(pair.norm())
    x = intrinsics.select(is_real, Matrix([real1[0], 0, real1[1], 0], dt), pair)
    y = intrinsics.select(
        is_real, Matrix([real2[0], 0, real2[1], 0], dt), pair * Matrix([1, -1, 1, 1], dt)
    )
    along, across = intrinsics.select(is_real, w, 0), intrinsics.select(is_real, 0, w)
    values = Matrix([[middle + along, across], [middle - along, -across]], dt) * size
    return values, Matrix.cols([x, y])


@func
def sym_eig(A: Any, dt: Any = float) -> Any:
    """Eigenvalues (a vector) and eigenvectors (columns, orthonormal) of a symmetric 2 x 2 or 3 x 3 matrix.

    As in Taichi, two eigenvalues are descending, three ascending. Only the lower triangle of A is read.
    """
    intrinsics.static_assert(
        A.n > 1 and A.n < 4 and A.n == A.m, "ks.sym_eig takes matrices of 2 x 2 and 3 x 3"
    )
    if intrinsics.static(A.n == 2):
        return _symmetric2(A, dt)
    return _symmetric3(A, dt)


@func
def solve(A: Any, b: Any, dt: Any = float) -> Any:
    """The vector x with A x = b, by elimination with partial pivoting.

    In debug mode a singular A is an error; otherwise x is then not finite.
    """
    M, x = A.cast(dt), b.cast(dt)
    for k in intrinsics.static(range(A.n)):
        for r in intrinsics.static(range(k + 1, A.n)):
            is_larger = abs(M[r, k]) > abs(M[k, k])
            for c in intrinsics.static(range(k, A.n)):
                upper, lower = M[k, c], M[r, c]
                M[k, c] = intrinsics.select(is_larger, lower, upper)
                M[r, c] = intrinsics.select(is_larger, upper, lower)
            first, second = x[k], x[r]
            x[k] = intrinsics.select(is_larger, second, first)
            x[r] = intrinsics.select(is_larger, first, second)
        assert M[k, k] != 0, "solve: the matrix is singular"
        for r in intrinsics.static(range(k + 1, A.n)):
            factor = M[r, k] / M[k, k]
            for c in intrinsics.static(range(k + 1, A.n)):
                M[r, c] -= factor * M[k, c]
            x[r] -= factor * x[k]
    for k in intrinsics.static(range(A.n - 1, -1, -1)):
        for c in intrinsics.static(range(k + 1, A.n)):
            x[k] -= M[k, c] * x[c]
        x[k] /= M[k, k]
    return x


# --- their derivatives
#
# Each is a linear function of the change of A, which is zero and has the derivative of A: sweeps and eliminations have none (Giles,
# An extended collection of matrix derivative results, 2008). Where two values are equal, the turn of their vectors in their plane
# has no limit, and is zero. Products that do not depend on it, such as U V^T, have the right derivative.


@differentiated_as(svd)
def _svd_of_changes(A: Any, dt: Any = float) -> Any:
    B = A.cast(dt)
    u, s, v = svd(B, dt)
    U, S, V = intrinsics.stop_grad(u), intrinsics.stop_grad(s), intrinsics.stop_grad(v)
    M = U.transpose() @ (B - intrinsics.stop_grad(B)) @ V
    X, Y, T = M * 0, M * 0, S * 1
    for i in intrinsics.static(range(A.n)):
        T[i, i] += M[i, i]
        for j in intrinsics.static(range(i + 1, A.n)):
            apart = (M[i, j] - M[j, i]) * _inverse_or_zero(S[i, i] + S[j, j])
            along = (M[i, j] + M[j, i]) * _inverse_or_zero(S[j, j] - S[i, i])
            X[i, j], X[j, i] = (along + apart) / 2, -(along + apart) / 2
            Y[i, j], Y[j, i] = (along - apart) / 2, (apart - along) / 2
    return U + U @ X, T, V + V @ Y


@differentiated_as(polar_decompose)
def _polar_of_changes(A: Any, dt: Any = float) -> Any:
    B = A.cast(dt)
    u, p = polar_decompose(B, dt)
    _, s, v = svd(B, dt)
    U, P, S, V = (
        intrinsics.stop_grad(u),
        intrinsics.stop_grad(p),
        intrinsics.stop_grad(s),
        intrinsics.stop_grad(v),
    )
    W = U.transpose() @ (B - intrinsics.stop_grad(B))
    X = V.transpose() @ (W - W.transpose()) @ V
    for i in intrinsics.static(range(A.n)):
        for j in intrinsics.static(range(A.n)):
            X[i, j] *= _inverse_or_zero(S[i, i] + S[j, j])
    turn = V @ X @ V.transpose()
    return U + U @ turn, P + (W - turn @ P)


@differentiated_as(sym_eig)
def _sym_eig_of_changes(A: Any, dt: Any = float) -> Any:
    B = A.cast(dt)
    for i in intrinsics.static(range(A.n)):
        for j in intrinsics.static(range(i + 1, A.n)):
            B[i, j] = B[j, i]
    eigenvalues, q = sym_eig(B, dt)
    values, Q = intrinsics.stop_grad(eigenvalues), intrinsics.stop_grad(q)
    M = Q.transpose() @ (B - intrinsics.stop_grad(B)) @ Q
    X, changed = M * 0, values * 1
    for i in intrinsics.static(range(A.n)):
        changed[i] += M[i, i]
        for j in intrinsics.static(range(A.n)):
            X[i, j] = M[i, j] * _inverse_or_zero(values[j] - values[i])
    return changed, Q + Q @ X


@differentiated_as(solve)
def _solve_of_changes(A: Any, b: Any, dt: Any = float) -> Any:
    M, r = A.cast(dt), b.cast(dt)
    x = intrinsics.stop_grad(solve(M, r, dt))
    change = (r - intrinsics.stop_grad(r)) - (M - intrinsics.stop_grad(M)) @ x
    return x + solve(intrinsics.stop_grad(M), change, dt)


@func
def _inverse_or_zero(x: Any) -> Any:
    return intrinsics.select(x == 0, 0, 1 / _or_one(x))


# --- what they are made of


@func
def _or_one(x: Any) -> Any:
    """Returns x as a divisor: 1 where x is 0."""
    return x + intrinsics.select(x == 0, 1, 0)


@func
def _scaled(A: Any) -> Any:
    """Returns A / s and s, where s is the largest entry of A if that is huge or tiny, else 1."""
    largest = abs(A).max()
    is_extreme = intrinsics.max(intrinsics.min(largest, LARGE), SMALL) != largest
    size = intrinsics.select(is_extreme, _or_one(largest), 1)
    return A / size, size


@func
def _polar(B: Any) -> Any:
    """Returns R, t, p, q with B = R [[t + p, q], [q, t - p]] for a 2 x 2 matrix, R orthogonal and t >= 0.

    Every matrix is a multiple of a rotation plus a multiple of a reflection; R is the larger one of them.
    """
    e, f = (B[0, 0] + B[1, 1]) / 2, (B[0, 0] - B[1, 1]) / 2
    g, h = (B[1, 0] + B[0, 1]) / 2, (B[1, 0] - B[0, 1]) / 2
    is_turn = B[0, 0] * B[1, 1] - B[1, 0] * B[0, 1] >= 0
    x, y = intrinsics.select(is_turn, e, f), intrinsics.select(is_turn, h, g)
    big = sqrt(x * x + y * y)
    c, s = intrinsics.select(big == 0, 1, x / _or_one(big)), y / _or_one(big)
    p = intrinsics.select(is_turn, c * f + s * g, c * e + s * h)
    q = intrinsics.select(is_turn, c * g - s * f, s * e - c * h)
    return (
        Matrix([[c, intrinsics.select(is_turn, -s, s)], [s, intrinsics.select(is_turn, c, -c)]]),
        big,
        p,
        q,
    )


@func
def _half_angle(p: Any, q: Any) -> Any:
    """Returns cosine and sine of half the angle of the point (p, q), up to a common sign; 1 and 0 for the origin."""
    r = sqrt(p * p + q * q)
    x, y = intrinsics.select(p > 0, r + p, -q), intrinsics.select(p > 0, q, p - r)
    length = sqrt(x * x + y * y)
    return intrinsics.select(length == 0, 1, x / _or_one(length)), y / _or_one(length)


@func
def _jacobi(a: Any, b: Any, c: Any) -> Any:
    """Returns tangent, cosine, sine of the smaller rotation that diagonalises [[a, b], [b, c]].

    Golub and Van Loan, section 8.5.
    """
    d, h = c - a, 2 * b
    t = intrinsics.select(d < 0, -h, h) / _or_one(abs(d) + sqrt(d * d + h * h))
    cosine = 1 / sqrt(t * t + 1)
    return t, cosine, t * cosine


@func
def _orthogonal(a: Any, b: Any, v: Any, w: Any) -> Any:
    """Rotates the columns a, b until they are orthogonal, and the columns v, w by the same angle (Hestenes 1958).

    Returns all four.
    """
    _, c, s = _jacobi(a.dot(a), a.dot(b), b.dot(b))
    return c * a - s * b, s * a + c * b, c * v - s * w, s * v + c * w


@func
def _larger_first(a: Any, b: Any, v: Any, w: Any) -> Any:
    """Returns columns a, b with the longer one first, and columns v, w in the same order.

    An exchange changes the sign of one column, so that a rotation stays a rotation.
    """
    is_swapped = a.dot(a) < b.dot(b)
    return (
        intrinsics.select(is_swapped, b, a),
        intrinsics.select(is_swapped, -a, b),
        intrinsics.select(is_swapped, w, v),
        intrinsics.select(is_swapped, -v, w),
    )


@func
def _unit_across(b: Any, u: Any) -> Any:
    """Returns the unit vector along the part of b orthogonal to the unit vector u; any orthogonal one if that is 0.

    Two Gram-Schmidt steps: the size of the second correction shows if the first result is more than rounding errors.
    """
    w = b - u.dot(b) * u
    w = w / intrinsics.max(w.norm(), 1e-30)
    w = w - u.dot(w) * u
    length = w.norm()
    is_steep = abs(u[0]) > abs(u[2])
    other = Matrix(
        [
            intrinsics.select(is_steep, -u[1], 0),
            intrinsics.select(is_steep, u[0], -u[2]),
            intrinsics.select(is_steep, 0, u[1]),
        ]
    )
    return intrinsics.select(length > 0.5, w / _or_one(length), other / other.norm())


@func
def _svd3(A: Any, dt: Any) -> Any:
    """SVD of a 3 x 3 matrix by one-sided Jacobi, A V = U S; small singular values are as exact as A."""
    B, size = _scaled(A.cast(dt))
    a, b, c = B[:, 0], B[:, 1], B[:, 2]
    x, y, z = Matrix([1, 0, 0], dt), Matrix([0, 1, 0], dt), Matrix([0, 0, 1], dt)
    intrinsics.loop_config(serialize=True)
    for _ in range(SWEEPS):
        a, b, x, y = _orthogonal(a, b, x, y)
        a, c, x, z = _orthogonal(a, c, x, z)
        b, c, y, z = _orthogonal(b, c, y, z)
    a, b, x, y = _larger_first(a, b, x, y)
    b, c, y, z = _larger_first(b, c, y, z)
    a, b, x, y = _larger_first(a, b, x, y)
    first = a.norm()
    u = intrinsics.select(first > 0, a / _or_one(first), Matrix([1, 0, 0], dt))
    v = _unit_across(b, u)
    w = u.cross(v)
    third = intrinsics.select(w.dot(c) < 0, -c.norm(), c.norm())
    S = Matrix([[first * size, 0, 0], [0, b.norm() * size, 0], [0, 0, third * size]], dt)
    return Matrix.cols([u, v, w]), S, Matrix.cols([x, y, z])


@func
def _parallel(a: Any, c: Any, b: Any, d: Any) -> Any:
    """Returns the unit vector along the longer column of a singular [[a, b], [c, d]], with the sign of the first."""
    is_second = b * b + d * d > a * a + c * c
    sign = intrinsics.select(is_second and a * b + c * d < 0, -1, 1)
    longer = Matrix([intrinsics.select(is_second, b, a), intrinsics.select(is_second, d, c)]) * sign
    return longer / _or_one(longer.norm())


@func
def _symmetric2(A: Any, dt: Any) -> Any:
    B, size = _scaled(A.cast(dt))
    middle, k, b = (B[0, 0] + B[1, 1]) / 2, (B[0, 0] - B[1, 1]) / 2, B[1, 0]
    r = sqrt(k * k + b * b)
    x, y = _half_angle(k, b)
    sign = intrinsics.select(
        x < 0 or (x == 0 and y < 0), -1, 1
    )  # the first component of an eigenvector, as in Taichi
    x, y = x * sign, y * sign
    side = intrinsics.select(y < 0, -1, 1)
    values = Matrix([(middle + r) * size, (middle - r) * size], dt)
    return values, Matrix([[x, -y * side], [y, x * side]], dt)


@func
def _turned(pp: Any, pq: Any, qq: Any, rp: Any, rq: Any, v: Any, w: Any) -> Any:
    """Rotates the plane of axes p, q of a symmetric 3 x 3 matrix so that its entry pq becomes zero.

    Returns the entries pp, qq, rp, rq (r: the third axis), and the columns v, w of eigenvectors.
    """
    t, c, s = _jacobi(pp, pq, qq)
    return pp - t * pq, qq + t * pq, c * rp - s * rq, s * rp + c * rq, c * v - s * w, s * v + c * w


@func
def _smaller_first(a: Any, b: Any, v: Any, w: Any) -> Any:
    is_swapped = b < a
    return (
        intrinsics.min(a, b),
        intrinsics.max(a, b),
        intrinsics.select(is_swapped, w, v),
        intrinsics.select(is_swapped, -v, w),
    )


@func
def _symmetric3(A: Any, dt: Any) -> Any:
    """Returns eigenvalues and eigenvectors of a symmetric 3 x 3 matrix, by cyclic Jacobi rotations."""
    B, size = _scaled(A.cast(dt))
    a, b, c = B[0, 0], B[1, 1], B[2, 2]
    f, g, h = B[2, 1], B[2, 0], B[1, 0]
    x, y, z = Matrix([1, 0, 0], dt), Matrix([0, 1, 0], dt), Matrix([0, 0, 1], dt)
    intrinsics.loop_config(serialize=True)
    for _ in range(SWEEPS):
        a, b, g, f, x, y = _turned(a, h, b, g, f, x, y)
        a, c, h, f, x, z = _turned(a, g, c, 0 * a, f, x, z)
        b, c, h, g, y, z = _turned(b, f, c, h, 0 * a, y, z)
        f = 0 * a
    a, b, x, y = _smaller_first(a, b, x, y)
    b, c, y, z = _smaller_first(b, c, y, z)
    a, b, x, y = _smaller_first(a, b, x, y)
    return Matrix([a * size, b * size, c * size], dt), Matrix.cols([x, y, z])
