"""Verification of a candidate's results against a float64 reference.

Tolerance. Element i of a floating-point output is right when

    |got[i] - want[i]| <= factor * eps(dtype of got) * magnitude[i]

where `magnitude` is the reference size for the rounding of every partial result, or, where none is given, max |want| over the
array. `runtime/worker/inputs.py` makes it from two things. One is the reference run on absolute values. On inputs of mixed sign
a running sum only grows as sqrt(n). So relative to the sum of sizes (which grows as n) the error stays near one eps whatever n
is. A constant factor suffices, and it still sees a lost tile. The classical worst case, n * eps * magnitude (Higham, Accuracy
and Stability of Numerical Algorithms, section 3.1), would accept anything at n = 2^24 in float32. Where few different values
are summed, as those of whole numbers less their mean, roundings have one direction and errors do grow as n. So n is the factor
where it is far from hiding one summand of n: in float64 up to a million of them. The other is measured where that is not enough
(`runtime/worker/rounding.py`): the change of the results when every rounding of the same computation falls otherwise. It
decides about recurrences and divisions.

NaN is right only where NaN is expected, infinities must be equal, integers and booleans must be equal. An element that lies on a
branch may instead have one of the values of its `UndecidedElements`. Different shapes are a bug of the caller and raise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_FACTOR = 1024.0  # units in the last place of an array's largest value: either result was rounded on another way
_SEEN = 2**-12  # of one summand of n: what the worst case of rounding may hide
_CHUNK = 1 << 15  # elements compared at a time: three float64 buffers of it stay in L2


@dataclass(frozen=True)
class UndecidedElements:
    """Elements that lie on a branch (rounding decides their value): each may have any of its values.

    `at`: sorted indices in the flat array. `values`: one row for each, which begins with that of the program in its own types.
    `reach`: tolerance around a value. A candidate may have values other than this and the expected one at `n_allowed` of them.
    """

    at: Array
    values: Array
    reach: Array
    n_allowed: int


@dataclass(frozen=True)
class Expected:
    """Expected contents of an output array after the run, with its tolerance.

    `want` is float64 for floating-point outputs, or in their own dtype if that is exact. For all others it is exact.
    """

    want: Array
    factor: float = 16.0
    magnitude: Array | float | None = None  # same shape as `want`, or one number for all elements
    branches: UndecidedElements | None = None


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of an output, and the number of wrong elements."""

    index: tuple[int, ...]
    got: float | int
    want: float | int
    n_wrong: int
    n_elements: int
    tolerance: float = 0.0  # of this element
    n_allowed: int | None = None  # of elements on a branch, where all that are wrong lie on one

    def __str__(self) -> str:
        place = ", ".join(map(str, self.index))
        count = f"{self.n_wrong} of {self.n_elements} elements are wrong"
        if self.n_allowed is not None:
            count = (
                f"{self.n_wrong} of {self.n_elements} elements lie on a branch and took the other side, more than"
                f" {self.n_allowed}: if that is right, allow a larger share of undecided elements"
            )
        within = f" within {self.tolerance:.2g}" if self.tolerance else ""
        return f"[{place}] is {self.got!r} and should be {self.want!r}{within} ({count})"


def tolerance_factor(stages: int, n_summands: int = 1, eps: float = 1.0) -> float:
    """Returns the tolerance factor for results of `stages` successive reductions.

    Each has up to `n_summands` summands, in a dtype with machine precision `eps`.
    """
    factor = 16.0 * max(1, stages)
    is_seen = float(n_summands) ** 2 * eps <= _SEEN
    return max(factor, float(n_summands)) if is_seen else factor


def find_mismatch(got: Array, expected: Expected) -> Mismatch | None:
    """Returns the first element of `got` outside the tolerance; None if all are right.

    Raises ValueError for different shapes (a bug of the caller).
    """
    want = expected.want
    if got.shape != want.shape:
        raise ValueError(f"got shape {got.shape}, wanted shape {want.shape}")
    if got.size == 0:
        return None
    if got.dtype.kind != "f":
        return _judged(got, expected, got != want, np.zeros(()))
    if expected.magnitude is None:
        finite = np.abs(want[np.isfinite(want)])
        expected = replace(expected, magnitude=float(finite.max()) if finite.size else 0.0)
    if _all_close(got, expected):
        return None
    allowed = allowed_error(expected, got.dtype)
    return _judged(got, expected, ~_close(got, want, allowed), np.asarray(allowed))


def allowed_error(
    expected: Expected, dtype: np.dtype[Any], part: slice | None = None
) -> Array | float:
    """Returns the allowed error of each element of a floating-point output: one number, or an array.

    An array is for `part` of the flat output.
    """
    magnitude = expected.magnitude
    assert magnitude is not None
    scale = expected.factor * float(np.finfo(dtype).eps)
    # A result may always underflow to zero, or round among denormals.
    floor = float(np.finfo(dtype).smallest_normal)
    if isinstance(magnitude, np.ndarray):
        sizes = magnitude if part is None else magnitude.reshape(-1)[part]
        return np.maximum(scale * sizes, floor)
    return max(scale * magnitude, floor)


def _judged(
    got: Array, expected: Expected, wrong: NDArray[np.bool_], allowed: Array
) -> Mismatch | None:
    """Returns the mismatch that remains after elements on branches are accepted; None if none remains.

    `wrong`: mask of elements outside the plain tolerance. `allowed`: their allowed errors.
    """
    branches, n_allowed = expected.branches, None
    if branches is not None:
        at = branches.at[wrong.reshape(-1)[branches.at]]
        n_other, is_other = _on_another_side(got, branches, wrong, allowed)
        rest = wrong.copy()
        rest.reshape(-1)[at[is_other]] = False
        if rest.any():
            wrong = rest
        elif n_other <= branches.n_allowed:
            return None
        else:
            n_allowed = branches.n_allowed
    found = _describe(got, expected.want, wrong)
    if found is None:
        return None
    tolerance = float(np.broadcast_to(allowed, got.shape)[found.index])
    return replace(found, tolerance=tolerance, n_allowed=n_allowed)


def _on_another_side(
    got: Array, branches: UndecidedElements, wrong: NDArray[np.bool_], allowed: Array
) -> tuple[int, NDArray[np.bool_]]:
    """Returns the number of elements on branches that have values of perturbed runs only, and a mask of those with any value."""
    is_wrong = wrong.reshape(-1)[branches.at]
    at, values = branches.at[is_wrong], branches.values[is_wrong]
    mine = got.reshape(-1)[at][:, None]
    error = np.broadcast_to(allowed, got.shape).reshape(-1)[at]
    error = np.maximum(error, branches.reach[is_wrong])[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(mine.astype(np.float64) - values.astype(np.float64)) <= error
    same = (mine == values) | (np.isfinite(mine) & near) | (np.isnan(mine) & np.isnan(values))
    found: NDArray[np.bool_] = same.any(axis=1)
    return int(np.count_nonzero(found & ~same[:, 0])), found


def _all_close(got: Array, expected: Expected) -> bool:
    flat_got, flat_want = got.reshape(-1), expected.want.reshape(-1)
    error = np.empty(_CHUNK, np.float64)
    for start in range(0, flat_got.size, _CHUNK):
        part = slice(start, min(start + _CHUNK, flat_got.size))
        e = error[: part.stop - part.start]
        with np.errstate(invalid="ignore"):
            np.subtract(flat_got[part], flat_want[part], out=e)
        np.abs(e, out=e)
        most = allowed_error(expected, got.dtype, part)
        # The plain comparison is false for NaN and infinities: look again, slowly, before calling
        # it wrong.
        if not (e <= most).all() and not _close(flat_got[part], flat_want[part], most).all():
            return False
    return True


def _close(got: Array, want: Array, allowed: Array | float) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore", over="ignore"):
        # A want beyond the range of the type is an infinity in it.
        rounded = want.astype(got.dtype)
        near = np.abs(got.astype(np.float64) - want) <= allowed
    both_nan = np.isnan(got) & np.isnan(want)
    same_infinity = np.isinf(got) & (got == rounded)
    # Where rounding alone says whether it is finite in its type.
    is_free = np.asarray(allowed) > np.finfo(got.dtype).max
    close: NDArray[np.bool_] = (np.isfinite(got) & near) | both_nan | same_infinity | is_free
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
    """Returns the initial content of outputs before a verified run: NaN, an unlikely integer, or True.

    A reference run that starts from the same value leaves it where the sequence writes nothing, and so agrees there.
    """
    if dtype.kind == "f":
        return float("nan")
    if dtype.kind == "b":
        return True
    if dtype.kind == "u":
        return int(np.iinfo(dtype).max) - 0x5A
    return int(np.iinfo(dtype).min) + 0x5A5A if dtype.itemsize > 2 else int(np.iinfo(dtype).min)


def signed_like(array: Array, rng: np.random.Generator) -> Array:
    """Returns random values of mixed sign with the shape and dtype of `array`.

    Floats are in [-1, 1], integers in [-100, 100], or from 0 for unsigned dtypes.
    """
    if array.dtype.kind == "f":
        return rng.uniform(-1.0, 1.0, array.shape).astype(array.dtype)
    if array.dtype.kind == "b":
        return rng.integers(0, 2, array.shape).astype(array.dtype)
    return rng.integers(-100 if array.dtype.kind == "i" else 0, 101, array.shape).astype(
        array.dtype
    )


def near(array: Array, change: float, rng: np.random.Generator) -> Array:
    """Returns floats changed at random by up to the relative `change`.

    Zeros stay, as do values that would overflow.
    """
    factors = rng.uniform(-change, change, array.shape)
    with np.errstate(over="ignore"):
        changed: Array = (array * (1.0 + factors)).astype(array.dtype)
    return np.where(np.isfinite(changed), changed, array)


def integers_like(array: Array, rng: np.random.Generator) -> Array:
    """Returns random small integers (-2..2, or 0..4 for unsigned dtypes) with the shape and dtype of `array`.

    Sums and products of them are exact in any order while they stay below 2^24 (float32), so that
    a candidate of a linear sequence can be held to a tolerance that sees a single lost element.
    """
    least = 0 if array.dtype.kind == "u" else -2
    return rng.integers(least, least + 5, array.shape, np.int8).astype(array.dtype)


def first_difference(got: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Returns a sentence on the first array of `got` that differs from `wanted` by more than rounding; "" if all agree."""
    for name, want in wanted.items():
        exact = want.astype(np.float64) if want.dtype.kind == "f" else want
        mismatch = find_mismatch(got[name], Expected(exact, factor=_FACTOR))
        if mismatch is not None:
            return f"{name}{mismatch}"
    return ""
