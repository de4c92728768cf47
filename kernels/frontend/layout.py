"""Memory layout of views: affine maps from the indices of a view to the array that contains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.kernel import DType, Expr
from ..ir.simplify import binary, const

READ_ONLY = "which is read-only"
BROADCAST = "whose elements are one and the same along an axis"


@dataclass(frozen=True)
class ViewLayout:
    """Affine layout of a view: element `i` is at `offsets[m] + sum(strides[m][k] * i[k])` along each axis m of an array.

    That array is the parameter `memory` of the kernel, of shape `extents`. `shape` is that of the view. `fixed` is the reason why
    elements cannot be written, "" where they can.
    """

    shape: tuple[int, ...]
    memory: str
    extents: tuple[int, ...]
    offsets: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    fixed: str = ""

    def place(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices in memory of the view's element at `indices`."""
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
