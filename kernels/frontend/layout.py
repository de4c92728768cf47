"""Memory layout of array views: affine maps from indices of a view to indices of the array in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.kernel import DType, Expr
from ..ir.simplify import binary, const

READ_ONLY = "which is read-only"
BROADCAST = "whose elements are one and the same along an axis"


@dataclass(frozen=True)
class ViewLayout:
    """Affine layout of a view: along axis m of memory, element `i` is at `offsets[m] + sum(strides[m][k] * i[k])`.

    `memory`: the kernel's array parameter that contains the view, of shape `extents`. `shape`: shape of the view. `fixed`: reason
    why elements cannot be written, "" if they can.
    """

    shape: tuple[int, ...]
    memory: str
    extents: tuple[int, ...]
    offsets: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    fixed: str = ""

    def place(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Returns the indices in the memory array of the view's element at `indices`."""
        return tuple(
            _affine(o, s, indices) for o, s in zip(self.offsets, self.strides, strict=True)
        )


def _affine(offset: int, strides: Sequence[int], indices: Sequence[Expr]) -> Expr:
    terms = [
        i if s == 1 else binary("mul", i, const(s, DType.i64))
        for i, s in zip(indices, strides, strict=True)
        if s
    ]
    if not terms:
        return const(offset, DType.i64)
    total = terms[0]
    for term in terms[1:]:
        total = binary("add", total, term)
    return binary("add", total, const(offset, DType.i64)) if offset else total
