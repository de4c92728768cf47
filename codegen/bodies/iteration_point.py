"""Points of a task's iteration space during emission: an index per loop, some of them vectors of neighbours."""

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
    """`variable + offset`, or, if `lanes` > 0, the vector of that and its following neighbours."""

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

    def at(self, loop: str) -> LoopIndexAt:
        """Returns the index of a loop of the task, or of an outer (time) loop around it: see `variable_of`."""
        return self.index[loop] if loop in self.index else LoopIndexAt(c.Id(loop))

    def first_lane(self) -> Point:
        """The same point for its first lane only."""
        return replace(self, index={k: replace(at, lanes=0) for k, at in self.index.items()})

    def lanes(self) -> int:
        return max((at.lanes for at in self.index.values()), default=0)


def variable_of(loops: Mapping[str, c.CExpr], name: str) -> c.CExpr:
    """Returns the index of a loop: its known variable, else the outer (time) step, which a launch receives by its name."""
    return loops[name] if name in loops else c.Id(name)


def affine_at(
    axes: tuple[Affine | None, ...], strides: tuple[int, ...], point: Point
) -> tuple[c.CExpr, int]:
    """Returns the flat index of an affine access at a point (its first lane), and the stride from lane to lane."""
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
    """Returns the flat index of an affine access with all loops at 0."""
    pairs = zip(axes, strides, strict=True)
    return sum(axis.const * stride for axis, stride in pairs if axis is not None)


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a C-ordered array."""
    strides, n = [], 1
    for extent in reversed(shape):
        strides.append(n)
        n *= extent
    return tuple(reversed(strides))


def index_of(
    e: ir.Expr, loops: Mapping[str, c.CExpr], evaluate: Callable[[ir.Expr], c.CExpr]
) -> c.CExpr:
    """Returns an index as a `long`.

    With narrower types compilers must consider sums that wrap around, and find no stride. Such a sum is no index of any array.
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
