"""The sequences as expressions on whole arrays, for libraries that compile those: from inputs to outputs, both in the order of the
sequence.

Transposed products are written `v @ A`, which libraries compute several times faster than `A.T @ v`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...kernels.library import load


def atax(a: Any, x: Any) -> Any:
    return ((a @ x) @ a,)


def axpy(x: Any, y: Any, alpha: Any) -> Any:
    return (alpha * x + y,)


def axpydot(w: Any, v: Any, u: Any, alpha: Any) -> Any:
    z = w - alpha * v
    return z, (z @ u).reshape(1)


def bicgk(a: Any, p: Any, r: Any) -> Any:
    return a @ p, r @ a


def gemver(
    a: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any, alpha: Any, beta: Any
) -> Any:
    b = a + u1[:, None] * v1 + u2[:, None] * v2
    x = beta * (y @ b) + z
    return b, x, alpha * (b @ x)


def gesummv(a: Any, b: Any, x: Any, alpha: Any, beta: Any) -> Any:
    return (alpha * (a @ x) + beta * (b @ x),)


def madd(a: Any, b: Any) -> Any:
    return (a + b,)


def matmul(a: Any, b: Any) -> Any:
    return (a @ b,)


def matmul_strided(a: Any, b: Any) -> Any:
    return (a[:, ::32] @ b,)


def sgemv(a: Any, x: Any, y: Any, alpha: Any, beta: Any) -> Any:
    return (alpha * (a @ x) + beta * y,)


def sgemvt(a: Any, y: Any, z: Any, alpha: Any, beta: Any) -> Any:
    x = beta * (y @ a) + z
    return x, alpha * (a @ x)


def sscal(x: Any, alpha: Any) -> Any:
    return (alpha * x,)


def vadd(w: Any, y: Any, z: Any) -> Any:
    return (w + y + z,)


def waxpby(x: Any, y: Any, alpha: Any, beta: Any) -> Any:
    return (alpha * x + beta * y,)


FORMULAS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        *(atax, axpy, axpydot, bicgk, gemver, gesummv, madd),
        *(matmul, matmul_strided, sgemv, sgemvt, sscal, vadd, waxpby),
    )
}


def places(name: str) -> tuple[list[int], list[int]]:
    """Positions of the formula's inputs, and of its outputs, among the arguments of a sequence."""
    arguments = list(inspect.signature(load(name).sequence).parameters)
    inputs = [arguments.index(p) for p in inspect.signature(FORMULAS[name]).parameters]
    outputs = [k for k in range(len(arguments)) if k not in inputs]
    return inputs, outputs or [0]  # without one of its own, the first is updated in place
