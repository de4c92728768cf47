"""Comparing what a candidate computed with a float64 reference.

Tolerance. Element i of a floating-point output is right when

    |got[i] - want[i]| <= factor * eps(dtype of got) * magnitude[i]

where `magnitude` is the reference run on absolute values (what the rounding of every partial
result is relative to) or, where none is given, max |want| over the array. `tolerance_factor`
gives the factor from the reduction length: n roundings of independent sign leave an error that
grows as sqrt(n) of the *running* sum. On inputs of mixed sign the running sum itself only grows
as sqrt(n), so relative to the magnitude (which grows as n) the error stays near one eps whatever
n is: a constant factor suffices, and it still sees a lost tile. The classical worst case, n * eps
* magnitude (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), would accept
anything at n = 2^24 in float32.

NaN is right only where NaN is wanted, infinities must be equal, integers and booleans must be
equal. Different shapes are a bug of the caller and raise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_CHUNK = 1 << 15  # elements compared at a time: three float64 buffers of it stay in L2


@dataclass(frozen=True)
class Expected:
    """What an output must hold after the run. `want` is float64 for floating-point outputs, or of
    their own dtype where that is exact; exact for the others.
    """

    want: Array
    factor: float = 16.0
    magnitude: Array | float | None = None  # same shape as `want`, or one number for all elements


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of an output, and how many elements are wrong."""

    index: tuple[int, ...]
    got: float | int
    want: float | int
    n_wrong: int
    n_elements: int

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        count = f"{self.n_wrong} of {self.n_elements} elements are wrong"
        return f"[{place}] is {self.got!r} and should be {self.want!r} ({count})"


def tolerance_factor(reduction_length: int, *, signed: bool, stages: int = 1) -> float:
    """The factor of the tolerance for results of `stages` reductions in a row over up to
    `reduction_length` elements.

    `signed` says that the inputs are of mixed sign around zero *and* that a magnitude array is
    given; otherwise partial sums may all be as large as the result, and the error grows with the
    square root of the length.
    """
    if signed:
        return 16.0 * stages
    return stages * (16.0 + 8.0 * sqrt(reduction_length))


def find_mismatch(got: Array, expected: Expected) -> Mismatch | None:
    """The first element of `got` outside the tolerance, or None. Raises ValueError on different
    shapes (a caller's bug).
    """
    want = expected.want
    if got.shape != want.shape:
        raise ValueError(f"got shape {got.shape}, wanted shape {want.shape}")
    if got.dtype.kind != "f":
        return _describe(got, want, got != want)
    if got.size == 0:
        return None
    magnitude = expected.magnitude
    if magnitude is None:
        finite = np.abs(want[np.isfinite(want)])
        magnitude = float(finite.max()) if finite.size else 0.0
    scale = expected.factor * float(np.finfo(got.dtype).eps)
    # A result may always underflow to zero, or round among denormals.
    floor = float(np.finfo(got.dtype).smallest_normal)
    if _all_close(got, want, magnitude, scale, floor):
        return None
    return _describe(got, want, ~_close(got, want, magnitude, scale, floor))


def _all_close(
    got: Array, want: Array, magnitude: Array | float, scale: float, floor: float
) -> bool:
    flat_got, flat_want = got.reshape(-1), want.reshape(-1)
    flat_magnitude = magnitude.reshape(-1) if isinstance(magnitude, np.ndarray) else None
    error = np.empty(_CHUNK, np.float64)
    for start in range(0, flat_got.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, flat_got.size))
        e = error[: part.stop - part.start]
        with np.errstate(invalid="ignore"):
            np.subtract(flat_got[part], flat_want[part], out=e)
        np.abs(e, out=e)
        if flat_magnitude is None:
            assert not isinstance(magnitude, np.ndarray)
            fine = float(e.max()) <= max(scale * magnitude, floor)
        else:
            fine = bool((e <= np.maximum(scale * flat_magnitude[part], floor)).all())
        # The plain comparison is false for NaN and infinities: look again, slowly, before calling
        # it wrong.
        if not fine:
            m = flat_magnitude[part] if flat_magnitude is not None else magnitude
            if not _close(flat_got[part], flat_want[part], m, scale, floor).all():
                return False
    return True


def _close(
    got: Array, want: Array, magnitude: Array | float, scale: float, floor: float
) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        # A want beyond the range of the type is an infinity in it.
        rounded = want.astype(got.dtype)
        near = np.abs(got.astype(np.float64) - want) <= np.maximum(
            scale * np.asarray(magnitude), floor
        )
    both_nan = np.isnan(got) & np.isnan(want)
    same_infinity = np.isinf(got) & (got == rounded)
    close: NDArray[np.bool_] = (np.isfinite(got) & near) | both_nan | same_infinity
    return close


def _describe(got: Array, want: Array, wrong: Array) -> Mismatch | None:
    n_wrong = int(np.count_nonzero(wrong))
    if n_wrong == 0:
        return None
    index = tuple(int(k) for k in np.unravel_index(int(np.argmax(wrong)), got.shape))
    return Mismatch(
        index, got[index].item(), want[index].item(), n_wrong=n_wrong, n_elements=int(got.size)
    )


def poison_value(dtype: np.dtype[Any]) -> float | int | bool:
    """What outputs hold before a verified run: NaN in floats, an unlikely number in integers,
    True in booleans.

    A reference run that starts from the same value leaves it where the sequence writes nothing,
    and so agrees there.
    """
    if dtype.kind == "f":
        return float("nan")
    if dtype.kind == "b":
        return True
    return int(np.iinfo(dtype).min) + 0x5A5A if dtype.itemsize > 2 else int(np.iinfo(dtype).min)


def has_extremes(array: Array) -> bool:
    """Whether an array holds a value whose arithmetic may take another time: not finite, or
    denormal.
    """
    if array.dtype.kind != "f" or array.size == 0:
        return False
    size = np.abs(array)
    tiny = (size > 0) & (size < np.finfo(array.dtype).smallest_normal)
    return bool(tiny.any() or not np.isfinite(size).all())


def signed_like(array: Array, rng: np.random.Generator) -> Array:
    """Random values of mixed sign with the shape and dtype of `array`: floats in [-1, 1],
    integers in [-100, 100].
    """
    if array.dtype.kind == "f":
        return rng.uniform(-1.0, 1.0, array.shape).astype(array.dtype)
    if array.dtype.kind == "b":
        return rng.integers(0, 2, array.shape).astype(array.dtype)
    return rng.integers(-100, 101, array.shape).astype(array.dtype)


def integers_like(array: Array, rng: np.random.Generator) -> Array:
    """Random small integers (-2..2) with the shape and dtype of `array`.

    Sums and products of them are exact in any order while they stay below 2^24 (float32), so that
    a candidate of a linear sequence can be held to a tolerance that sees a single lost element.
    """
    return rng.integers(-2, 3, array.shape, np.int8).astype(array.dtype)
