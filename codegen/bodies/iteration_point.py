"""Iteration points during emission: a C index for each loop of a task, or a vector of consecutive indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import Affine
from ..text import csyntax as c

_ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}
_SIGNED = {ir.DType.i32, ir.DType.i64}


@dataclass(frozen=True)
class LoopIndexAt:
    """Index of one loop: `variable + offset`.

    If `lanes` > 0, the vector of `lanes` consecutive indices from there on.
    """

    variable: c.CExpr | None
    offset: int = 0
    lanes: int = 0

    def expression(self) -> c.CExpr:
        return c.linear(((self.variable, 1),) if self.variable is not None else (), self.offset)


@dataclass(frozen=True)
class Point:
    """Iteration point of a task within a register tile.

    `copies`: number of the copy, by unrolled or vectorised loop. `indices`: index inside the
    register tile, by loop that runs one by one through a partial tile. `lane`: the lane's number,
    if the point is one lane of a vector.
    """

    index: dict[str, LoopIndexAt]
    copies: dict[str, int] = field(default_factory=dict)
    indices: dict[str, c.CExpr] = field(default_factory=dict)
    lane: int = 0

    @property
    def vector_loop(self) -> str | None:
        return next((name for name, at in self.index.items() if at.lanes), None)

    def at(self, loop: str) -> LoopIndexAt:
        """Returns the index of a loop of the task, or of an outer (time) loop around the task: see `variable_of`."""
        return self.index[loop] if loop in self.index else LoopIndexAt(c.Id(loop))

    def first_lane(self) -> Point:
        """Returns the scalar point of this vector point's first lane."""
        return replace(self, index={k: replace(at, lanes=0) for k, at in self.index.items()})

    def lanes(self) -> int:
        return max((at.lanes for at in self.index.values()), default=0)


def variable_of(loops: Mapping[str, c.CExpr], name: str) -> c.CExpr:
    """Returns the C variable of a loop; for an outer (time) loop the launch's parameter of that name."""
    return loops[name] if name in loops else c.Id(name)


def affine_at(
    axes: tuple[Affine | None, ...], strides: tuple[int, ...], point: Point
) -> tuple[c.CExpr, int]:
    """Returns the flat index of an affine access at a point (of its first lane), and the stride from lane to lane."""
    terms: dict[c.CExpr, int] = {}
    const, lane_stride = 0, 0
    for axis, stride in zip(axes, strides, strict=True):
        assert axis is not None
        const += stride * axis.const
        for loop, coefficient in axis.terms:
            at = point.at(loop)
            const += stride * coefficient * at.offset
            if at.variable is not None:
                terms[at.variable] = terms.get(at.variable, 0) + stride * coefficient
            if at.lanes:
                lane_stride += stride * coefficient
    ordered = sorted(terms.items(), key=lambda item: -abs(item[1]))
    return c.linear(tuple(ordered), const), lane_stride


def affine_offset(axes: tuple[Affine | None, ...], strides: tuple[int, ...]) -> int:
    """Returns the constant part of an affine access's flat index: its value with all loop indices 0."""
    pairs = zip(axes, strides, strict=True)
    return sum(axis.const * stride for axis, stride in pairs if axis is not None)


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the strides, in elements, of a C-ordered array, one per axis."""
    strides, n = [], 1
    for extent in reversed(shape):
        strides.append(n)
        n *= extent
    return tuple(reversed(strides))


def index_of(
    e: ir.Expr, loops: Mapping[str, c.CExpr], evaluate: Callable[[ir.Expr], c.CExpr]
) -> c.CExpr:
    """Returns index `e` as a C expression of type `long`.

    In narrower types compilers must allow for sums that wrap around, and recognise no stride. A sum
    that wraps around is out of range anyway.
    """
    match e:
        case ir.LoopIndex(loop):
            return variable_of(loops, loop)
        case ir.Const(value):
            return c.number(int(value))
        case ir.Binary("add" | "sub" | "mul" as op, a, b, dtype) if dtype in _SIGNED:
            return c.Bin(
                _ARITHMETIC[op], index_of(a, loops, evaluate), index_of(b, loops, evaluate)
            )
        case ir.Cast(x, dtype) if {dtype, x.dtype} <= _SIGNED:
            if dtype.size_bytes >= x.dtype.size_bytes:
                return index_of(x, loops, evaluate)
    found = evaluate(e)
    return found if e.dtype is ir.DType.i64 else c.CastTo("long", found)
