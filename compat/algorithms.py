"""Taichi's `ti.algorithms`: in-place sorting and prefix sums of fields with one axis, as sequences of kernels."""

from __future__ import annotations

from typing import Any, final

from ..kernels.fields.caller_location import fail
from ..kernels.fields.element_fields import ScalarField
from ..kernels.frontend.kernel import i32, kernel, loop_config, static, types
from ..kernels.ir.errors import ProgramRuntimeError, ProgramTypeError


@kernel
def _order_pairs(
    keys: types.template(),  # type: ignore[valid-type]
    values: types.template(),  # type: ignore[valid-type]
    begins: types.template(),  # type: ignore[valid-type]
    n_pairs: int,
    merged: int,
    distance: int,
) -> None:
    """Step of a merge sort: exchanges two keys, and their values, if they are in descending order.

    The pairs are `distance` apart, and within one block of 2 `merged` keys.
    `begins`: the first index of the field of keys, and of that of values.
    """
    for pair in range(n_pairs):
        low = distance % merged + pair // distance * (2 * distance) + pair % distance
        high = low + distance
        if high < keys.shape[0] and low // (2 * merged) == high // (2 * merged):
            a, b = keys[begins[0] + low], keys[begins[0] + high]
            if b < a:
                keys[begins[0] + low] = b
                keys[begins[0] + high] = a
                if static(values is not None):
                    x, y = values[begins[1] + low], values[begins[1] + high]
                    values[begins[1] + low] = y
                    values[begins[1] + high] = x


def parallel_sort(keys: Any, values: Any = None) -> None:
    """Sorts the elements of `keys` in place, and moves those of `values` with them: Batcher's odd-even merge sort.

    Each stage is a kernel, so log^2(n) kernels run. Equal keys come in any order.
    """
    for x in (keys,) if values is None else (keys, values):
        _check(x, "parallel_sort")
    if values is not None and values.shape != keys.shape:
        fail(
            f"parallel_sort takes keys and values of one length, not {keys.shape} and {values.shape}"
        )
    n, merged = keys.shape[0], 1
    begins = _begin(keys), 0 if values is None else _begin(values)
    while merged < n:
        distance = merged
        while distance:
            rounds = -(-(n - distance % merged) // (2 * distance))
            _order_pairs(keys, values, begins, rounds * distance, merged, distance)
            distance //= 2
        merged *= 2


@kernel
def _add_previous(x: types.template(), begin: int) -> None:  # type: ignore[valid-type]
    loop_config(serialize=True)
    for i in range(1, x.shape[0]):
        x[begin + i] += x[begin + i - 1]


@final
class PrefixSumExecutor:
    """Computes prefix sums of fields of `length` elements of type i32."""

    def __init__(self, length: int) -> None:
        self.length = length

    def run(self, input_arr: Any) -> None:
        """Replaces each element of a field by the sum of all elements up to it, itself included."""
        _check(input_arr, "PrefixSumExecutor.run")
        if input_arr.dtype is not i32:
            fail("PrefixSumExecutor.run takes a field of type ks.i32", ProgramRuntimeError)
        if input_arr.shape[0] != self.length:
            fail(f"PrefixSumExecutor({self.length}) is given {input_arr.shape[0]} elements")
        _add_previous(input_arr, _begin(input_arr))


def _check(x: Any, what: str) -> None:
    if not isinstance(x, ScalarField) or len(x.shape) != 1:
        fail(f"{what} takes fields of numbers with one axis, not {x!r}", ProgramTypeError)


def _begin(x: ScalarField) -> int:
    """Returns the first index of a field with one axis."""
    return x.offset[0] if x.offset else 0
