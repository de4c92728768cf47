"""Functions of NumPy and Python that are no IR operation, defined in the kernel language."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .func import Func
from .functions import function
from .intrinsics import one, select, zero

exp, isinf, isnan, log, log1p = map(function, ("exp", "isinf", "isnan", "log", "log1p"))
rint = function("rint")
signbit, LOG_2 = np.signbit, math.log(2)


def _square(x: Any) -> Any:
    return x * x


def _reciprocal(x: Any) -> Any:
    return 1 / x


def _sign(x: Any) -> Any:
    return select(x > 0, one(x), select(x < 0, -one(x), x))


def _cbrt(x: Any) -> Any:
    """The cube root: a power, followed by a step of Newton's method that corrects the power's last digits."""
    size = abs(x)
    root = size ** (1 / 3)
    better = root - (root * root * root - size) / (3 * root * root)
    return select(size > 0 and not isinf(size), select(x < 0, -better, better), x)


def _radians(x: Any) -> Any:
    return x * (math.pi / 180)


def _degrees(x: Any) -> Any:
    return x * (180 / math.pi)


def _isfinite(x: Any) -> Any:
    return not (isnan(x) or isinf(x))


def _copysign(x: Any, y: Any) -> Any:
    return select(signbit(y), -abs(x), abs(x))


def _heaviside(x: Any, half: Any) -> Any:
    return select(x == 0, half, select(x < 0, zero(x), select(x > 0, one(x), x)))


def _fmax(a: Any, b: Any) -> Any:
    return select(a != a, b, select(b != b, a, max(a, b)))


def _fmin(a: Any, b: Any) -> Any:
    return select(a != a, b, select(b != b, a, min(a, b)))


def _logaddexp(a: Any, b: Any) -> Any:
    return select(a == b, a + LOG_2, max(a, b) + log1p(exp(-abs(a - b))))


def _clip(x: Any, low: Any, high: Any) -> Any:
    return min(max(x, low), high)


def _gcd(a: Any, b: Any) -> Any:
    x = abs(a)
    y = abs(b)
    while y != 0:
        rest = x % y
        x = y
        y = rest
    return x


def _lcm(a: Any, b: Any) -> Any:
    x = abs(a)
    y = abs(b)
    product = x * y
    while y != 0:
        rest = x % y
        x = y
        y = rest
    return product // max(x, 1)


def _isclose(a: Any, b: Any) -> Any:
    return a == b or (abs(a - b) <= 1e-9 * max(abs(a), abs(b)) and not isinf(a - b))


def _divmod(a: Any, b: Any) -> Any:
    return a // b, a % b


def _round_to(x: Any, digits: Any) -> Any:
    return rint(x * 10.0**digits) / 10.0**digits


def _log(x: Any, base: Any) -> Any:
    return log(x) / log(base)


_DEFINED: dict[Any, Callable[..., Any]] = {
    np.square: _square,
    np.reciprocal: _reciprocal,
    np.sign: _sign,
    np.cbrt: _cbrt,
    math.cbrt: _cbrt,
    np.radians: _radians,
    np.deg2rad: _radians,
    math.radians: _radians,
    np.degrees: _degrees,
    np.rad2deg: _degrees,
    math.degrees: _degrees,
    np.isfinite: _isfinite,
    math.isfinite: _isfinite,
    np.copysign: _copysign,
    math.copysign: _copysign,
    np.heaviside: _heaviside,
    np.fmax: _fmax,
    np.fmin: _fmin,
    np.logaddexp: _logaddexp,
    np.clip: _clip,
    np.gcd: _gcd,
    math.gcd: _gcd,
    np.lcm: _lcm,
    math.lcm: _lcm,
    math.isclose: _isclose,
    builtins.divmod: _divmod,
}


@functools.cache
def definition_of(callee: Any, n_arguments: int) -> Func | None:
    """Returns the `ks.func` that defines a function of NumPy or Python in kernels; None if there is none."""
    if callee is math.log and n_arguments == 2:
        return Func(_log)
    if callee in (round, np.round, np.around) and n_arguments == 2:
        return Func(_round_to)
    found = _DEFINED.get(callee)
    return None if found is None else Func(found)
