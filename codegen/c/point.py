"""Points of a task's iteration space as the emitter sees them: an index per loop, some of them vectors of neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...kernels.ir.affine import Affine
from . import csyntax as c


@dataclass(frozen=True)
class LoopIndexAt:
    """`variable + offset`, or, where `lanes` > 0, the vector of that and its following neighbours."""

    variable: c.CExpr | None
    offset: int = 0
    lanes: int = 0

    def expression(self) -> c.CExpr:
        return c.linear(((self.variable, 1),) if self.variable is not None else (), self.offset)


@dataclass(frozen=True)
class Point:
    """One register-tile copy of a task.

    `copies` numbers the copy of each unrolled or vector loop, `indices` is the position inside the register tile of each loop that
    runs through a partial tile one by one. `lane` is the place in a vector of a point that is one lane of it.
    """

    index: dict[str, LoopIndexAt]
    copies: dict[str, int] = field(default_factory=dict)
    indices: dict[str, c.CExpr] = field(default_factory=dict)
    lane: int = 0

    @property
    def vector_loop(self) -> str | None:
        return next((name for name, at in self.index.items() if at.lanes), None)

    def first_lane(self) -> Point:
        """The same point for its first lane only."""
        return replace(self, index={k: replace(at, lanes=0) for k, at in self.index.items()})

    def lanes(self) -> int:
        return max((at.lanes for at in self.index.values()), default=0)


def affine_at(
    axes: tuple[Affine | None, ...], strides: tuple[int, ...], point: Point
) -> tuple[c.CExpr, int]:
    """The flat index of an affine access at a point (its first lane), and the stride from lane to lane."""
    terms: dict[c.CExpr, int] = {}
    const, lane_stride = 0, 0
    for axis, stride in zip(axes, strides, strict=True):
        assert axis is not None
        const += stride * axis.const
        for loop, coefficient in axis.terms:
            at = point.index[loop]
            const += stride * coefficient * at.offset
            if at.variable is not None:
                terms[at.variable] = terms.get(at.variable, 0) + stride * coefficient
            if at.lanes:
                lane_stride += stride * coefficient
    ordered = sorted(terms.items(), key=lambda item: -abs(item[1]))
    return c.linear(tuple(ordered), const), lane_stride


def affine_offset(axes: tuple[Affine | None, ...], strides: tuple[int, ...]) -> int:
    """The flat index of an affine access where all loops are at 0."""
    pairs = zip(axes, strides, strict=True)
    return sum(axis.const * stride for axis, stride in pairs if axis is not None)


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a C-ordered array."""
    strides, n = [], 1
    for extent in reversed(shape):
        strides.append(n)
        n *= extent
    return tuple(reversed(strides))
