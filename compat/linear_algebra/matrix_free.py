"""Solvers of linear systems whose matrix is a kernel: conjugate gradients and BiCGSTAB on fields.

Sums are of f64, whatever the type of the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from typing import Any, Final

from ...kernels.fields import tree
from ...kernels.fields.caller_location import fail
from ...kernels.fields.element_fields import ScalarField
from ...kernels.fields.factories import field
from ...kernels.fields.fields_builder import FieldsBuilder
from ...kernels.frontend.kernel import f32, f64, grouped, kernel, types
from ...kernels.ir.errors import ProgramRuntimeError, ProgramTypeError

_AXES: Final = (tree.i, tree.ij, tree.ijk)


class LinearOperator:
    """Matrix as a kernel: `matvec_kernel(x, Ax)` stores the product with the field `x` in the field `Ax`."""

    def __init__(self, matvec_kernel: Any) -> None:
        self._matvec = matvec_kernel

    def matvec(self, x: Any, Ax: Any) -> None:  # noqa: N803
        """Stores the product with `x` in `Ax`."""
        if x.shape != Ax.shape:
            fail(
                f"matvec takes two fields of one shape, not {x.shape} and {Ax.shape}",
                ProgramRuntimeError,
            )
        self._matvec(x, Ax)


@kernel
def _dot(x: types.template(), y: types.template()) -> f64:  # type: ignore[valid-type]
    total = f64(0.0)
    for at in grouped(x):
        total += f64(x[at]) * f64(y[at])
    return total  # type: ignore[no-any-return]


@kernel
def _combine(
    to: types.template(),  # type: ignore[valid-type]
    x: types.template(),  # type: ignore[valid-type]
    a: f64,  # type: ignore[valid-type]
    y: types.template(),  # type: ignore[valid-type]
) -> None:
    """Stores `x + a y`."""
    for at in grouped(to):
        to[at] = x[at] + a * y[at]


@contextmanager
def _fields(like: Any, n: int, what: str) -> Iterator[list[Any]]:
    """`n` fields of the type and the shape of another one, freed behind the block."""
    if len(like.shape) not in range(1, len(_AXES) + 1):
        fail(
            f"{what} takes fields of one to three axes, not {len(like.shape)}", ProgramRuntimeError
        )
    builder = FieldsBuilder()
    made = [field(like.dtype) for _ in range(n)]
    builder.dense(_AXES[len(like.shape) - 1], like.shape).place(*made, offset=like.offset or None)
    fields = builder.finalize()
    try:
        yield made
    finally:
        fields.destroy()


def _check(A: Any, b: Any, x: Any, what: str) -> None:  # noqa: N803
    if not isinstance(A, LinearOperator):
        fail(f"{what} takes a LinearOperator, not {type(A).__name__}", ProgramTypeError)
    for each in (b, x):
        if not isinstance(each, ScalarField) or each.dtype not in (f32, f64):
            fail(f"{what} takes fields of numbers of type f32 or f64", ProgramTypeError)
    if b.dtype is not x.dtype:
        fail(
            f"{what} takes fields of one type, not {b.dtype.name} and {x.dtype.name}",
            ProgramTypeError,
        )
    if b.shape != x.shape:
        fail(f"{what} takes fields of one shape, not {b.shape} and {x.shape}", ProgramRuntimeError)


def _begin(A: LinearOperator, b: Any, x: Any, image: Any, *residuals: Any) -> float:  # noqa: N803
    """Stores the residual b - A x in each of `residuals`, and A x in `image`. Returns the square of the residual's length."""
    A.matvec(x, image)
    for r in residuals:
        _combine(r, b, -1.0, image)
    return float(_dot(residuals[0], residuals[0]))


class _Progress:
    """Residual of a solver after each iteration, printed unless it is quiet."""

    def __init__(self, what: str, tol: float, is_quiet: bool) -> None:
        self._what, self._tol, self._is_quiet = what, tol, is_quiet
        self._residual = 0.0

    def begins(self, square: float) -> None:
        self._residual = sqrt(square)
        self._say(f"Initial residual = {square:e}")

    def has_ended(self, iteration: int, square: float) -> bool:
        """True if this iteration is the last."""
        self._residual = sqrt(square)
        self._say(f"Iter = {iteration + 1:4}, Residual = {self._residual:e}")
        return self.is_converged

    def stops(self, why: str) -> None:
        self._say(f"{self._what} stopped: {why}")

    @property
    def is_converged(self) -> bool:
        return self._residual < self._tol

    def end(self) -> bool:
        """Says how it ended: True where it converged."""
        ended = "converged" if self.is_converged else "failed to converge"
        self._say(f"{self._what} {ended}: Residual = {self._residual:e}")
        return self.is_converged

    def _say(self, text: str) -> None:
        if not self._is_quiet:
            print(f">>> {text}")


def MatrixFreeCG(
    A: Any,  # noqa: N803
    b: Any,
    x: Any,
    tol: float = 1e-6,
    maxiter: int = 5000,
    quiet: bool = True,
) -> bool:
    """Solves A x = b by conjugate gradients, from the contents of `x` on, for a symmetric, positive definite operator.

    Returns True if the residual became shorter than `tol`.
    """
    _check(A, b, x, "MatrixFreeCG")
    progress = _Progress("Conjugate Gradient method", tol, quiet)
    with _fields(x, 3, "MatrixFreeCG") as (p, r, image):
        square = _begin(A, b, x, image, r, p)
        progress.begins(square)
        for iteration in range(0 if progress.is_converged else maxiter):
            A.matvec(p, image)
            curvature = _dot(p, image)
            if curvature == 0:
                progress.stops("its direction is zero")
                break
            alpha = square / curvature
            _combine(x, x, alpha, p)
            _combine(r, r, -alpha, image)
            before, square = square, _dot(r, r)
            if progress.has_ended(iteration, square):
                break
            _combine(p, r, square / before, p)
    return progress.end()


def MatrixFreeBICGSTAB(
    A: Any,  # noqa: N803
    b: Any,
    x: Any,
    tol: float = 1e-6,
    maxiter: int = 5000,
    quiet: bool = True,
) -> bool:
    """Solves A x = b by stabilised biconjugate gradients, from the contents of `x` on, for any operator.

    Returns True if the residual became shorter than `tol`.
    """
    _check(A, b, x, "MatrixFreeBICGSTAB")
    progress = _Progress("BICGSTAB method", tol, quiet)
    with _fields(x, 6, "MatrixFreeBICGSTAB") as (p, r, shadow, image, s, second):
        rho = square = _begin(A, b, x, image, r, p, shadow)
        progress.begins(square)
        for iteration in range(0 if progress.is_converged else maxiter):
            A.matvec(p, image)
            curvature = _dot(shadow, image)
            if rho == 0 or curvature == 0:
                progress.stops("its direction is orthogonal to the residual")
                break
            alpha = rho / curvature
            _combine(s, r, -alpha, image)
            A.matvec(s, second)
            length = _dot(second, second)
            omega = _dot(second, s) / length if length else 0.0
            _combine(x, x, alpha, p)
            _combine(x, x, omega, s)
            _combine(r, s, -omega, second)
            before, rho, square = rho, _dot(r, shadow), _dot(r, r)
            if progress.has_ended(iteration, square) or omega == 0:
                break
            _combine(p, p, -omega, image)
            _combine(p, r, rho / before * alpha / omega, p)
    return progress.end()
