"""The sequences as calls of a BLAS, with outputs and temporaries allocated beforehand: what there is to beat without fusion.

The interface of the BLAS updates its last argument in place, so that results elsewhere cost a copy first (arXiv:1305.1183,
section 5).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class AbstractBlas(ABC):
    """The BLAS of one library, on that library's arrays. Matrices are C-contiguous; the last argument is updated."""

    @abstractmethod
    def scratch(self, shape: tuple[int, ...]) -> Any:
        """A float32 array of this shape, the same one every time."""

    @abstractmethod
    def copy(self, x: Any, y: Any) -> None:
        """y = x; x may have strides."""

    @abstractmethod
    def scal(self, alpha: float, x: Any) -> None:
        """x = alpha x."""

    @abstractmethod
    def axpy(self, alpha: float, x: Any, y: Any) -> None:
        """y = alpha x + y, also of matrices."""

    @abstractmethod
    def dot(self, x: Any, y: Any, r: Any) -> None:
        """r[0] = x'y."""

    @abstractmethod
    def gemv(self, alpha: float, a: Any, x: Any, beta: float, y: Any, *, turned: bool) -> None:
        """y = alpha A x + beta y, or with A' where `turned`; y is not read when beta is 0."""

    @abstractmethod
    def ger(self, alpha: float, x: Any, y: Any, a: Any) -> None:
        """A = alpha x y' + A."""

    @abstractmethod
    def gemm(self, a: Any, b: Any, c: Any) -> None:
        """C = A B in float32, without TF32."""


def atax(blas: AbstractBlas, a: Any, x: Any, y: Any) -> None:
    t = blas.scratch((a.shape[0],))
    blas.gemv(1.0, a, x, 0.0, t, turned=False)
    blas.gemv(1.0, a, t, 0.0, y, turned=True)


def axpy(blas: AbstractBlas, x: Any, y: Any, z: Any, alpha: float) -> None:
    blas.copy(y, z)
    blas.axpy(alpha, x, z)


def axpydot(blas: AbstractBlas, w: Any, v: Any, u: Any, z: Any, r: Any, alpha: float) -> None:
    blas.copy(w, z)
    blas.axpy(-alpha, v, z)
    blas.dot(z, u, r)


def bicgk(blas: AbstractBlas, a: Any, p: Any, r: Any, q: Any, s: Any) -> None:
    blas.gemv(1.0, a, p, 0.0, q, turned=False)
    blas.gemv(1.0, a, r, 0.0, s, turned=True)


def gemver(
    blas: AbstractBlas,
    a: Any,
    u1: Any,
    v1: Any,
    u2: Any,
    v2: Any,
    y: Any,
    z: Any,
    b: Any,
    x: Any,
    w: Any,
    alpha: float,
    beta: float,
) -> None:
    blas.copy(a, b)
    blas.ger(1.0, u1, v1, b)
    blas.ger(1.0, u2, v2, b)
    blas.copy(z, x)
    blas.gemv(beta, b, y, 1.0, x, turned=True)
    blas.gemv(alpha, b, x, 0.0, w, turned=False)


def gesummv(blas: AbstractBlas, a: Any, b: Any, x: Any, y: Any, alpha: float, beta: float) -> None:
    blas.gemv(alpha, a, x, 0.0, y, turned=False)
    blas.gemv(beta, b, x, 1.0, y, turned=False)


def madd(blas: AbstractBlas, a: Any, b: Any, c: Any) -> None:
    blas.copy(a, c)
    blas.axpy(1.0, b, c)


def matmul(blas: AbstractBlas, a: Any, b: Any, c: Any) -> None:
    blas.gemm(a, b, c)


def matmul_strided(blas: AbstractBlas, a: Any, b: Any, c: Any) -> None:
    packed = blas.scratch((a.shape[0], b.shape[0]))  # no BLAS takes elements that lie apart
    blas.copy(a[:, ::32], packed)
    blas.gemm(packed, b, c)


def sgemv(blas: AbstractBlas, a: Any, x: Any, y: Any, z: Any, alpha: float, beta: float) -> None:
    blas.copy(y, z)
    blas.gemv(alpha, a, x, beta, z, turned=False)


def sgemvt(
    blas: AbstractBlas, a: Any, y: Any, z: Any, x: Any, w: Any, alpha: float, beta: float
) -> None:
    blas.copy(z, x)
    blas.gemv(beta, a, y, 1.0, x, turned=True)
    blas.gemv(alpha, a, x, 0.0, w, turned=False)


def sscal(blas: AbstractBlas, x: Any, alpha: float) -> None:
    blas.scal(alpha, x)


def vadd(blas: AbstractBlas, w: Any, y: Any, z: Any, x: Any) -> None:
    blas.copy(w, x)
    blas.axpy(1.0, y, x)
    blas.axpy(1.0, z, x)


def waxpby(blas: AbstractBlas, x: Any, y: Any, w: Any, alpha: float, beta: float) -> None:
    blas.copy(x, w)
    blas.scal(alpha, w)
    blas.axpy(beta, y, w)


CALLS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        *(atax, axpy, axpydot, bicgk, gemver, gesummv, madd),
        *(matmul, matmul_strided, sgemv, sgemvt, sscal, vadd, waxpby),
    )
}
