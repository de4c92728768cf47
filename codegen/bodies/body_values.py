"""C expressions for the values of a body of statements, in scalar code: one iteration of its outermost loop at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...kernels.ir import kernel as ir
from ...kernels.ir.task import Problem
from ..text import csyntax as c
from ..text.types import type_name
from .emitter import Builder
from .iteration_point import index_of, row_strides, variable_of
from .memory import Value


@dataclass(frozen=True)
class TilePlace:
    """Copy of a part of an array: stored at `base`, with extents `shape`.

    `origin`: flat index within the copy at which the array's element 0 would be.
    """

    base: c.CExpr
    shape: tuple[int, ...]
    origin: c.CExpr


class BodyValues:
    """Translates a body's expressions to C, given the C values of loop indices (`loops`) and of locals (`locals`)."""

    def __init__(
        self,
        w: Builder,
        problem: Problem,
        array_of: Callable[[str], c.CExpr],
        plain_indices: bool = False,
    ) -> None:
        """`plain_indices`: True if array indices are computed in C's type long (`index_of`), without wrap-around."""
        self.w, self.problem, self.array_of = w, problem, array_of
        self.plain_indices = plain_indices
        self.tiles: Mapping[str, TilePlace] = {}  # arrays of which a part is elsewhere
        self.strong: frozenset[str] = frozenset()  # arrays that other threads change meanwhile
        self.loops: dict[str, c.CExpr] = {}
        self.locals: dict[str, Value] = {}

    def declare(self, name: str, dtype: ir.DType, variable: str = "") -> None:
        """Declares a C variable for local `name`, initialised to 0, unless the local has a variable already."""
        if name not in self.locals:
            place = c.Id(self.w.fresh(variable or name))
            self.locals[name] = Value(place, dtype)
            self.w.write(c.Declare(type_name(dtype, 0), place.name, c.Num("0")))

    def updated(self, place: Value, op: str, value: Value) -> c.CStmt:
        """Returns the C statement `place = place op value`."""
        value = self.w.converted(value, place.dtype)
        return c.Assign(place.x, self.w.combine(op, place, value).x)

    def element(self, array: str, indices: tuple[ir.Expr, ...]) -> Value:
        info = self.problem.array(array)
        tile = self.tiles.get(array)
        flat: c.CExpr = c.Num("0")
        for index, stride in zip(
            indices, row_strides(tile.shape if tile else info.shape), strict=True
        ):
            x = self.index(index) if self.plain_indices else self.evaluate(index).x
            flat = c.add(flat, x if stride == 1 else c.Bin("*", x, c.number(stride)))
        if tile is not None:
            return Value(c.Index(tile.base, c.Bin("-", flat, tile.origin)), info.dtype)
        return Value(c.Index(self.array_of(array), flat), info.dtype)

    def local_element(self, name: str, index: ir.Expr) -> Value:
        held = self.locals[name]
        at = self.index(index) if self.plain_indices else self.evaluate(index).x
        return Value(c.Index(held.x, at), held.dtype)

    def index(self, e: ir.Expr) -> c.CExpr:
        """Returns an array index as a C expression of type long; see `index_of`."""
        return index_of(e, self.loops, lambda x: self.evaluate(x).x)

    def evaluate(self, e: ir.Expr) -> Value:
        def leaf(x: ir.Expr) -> Value:
            match x:
                case ir.Load(array, indices) if array in self.strong:
                    place = self.element(array, indices)
                    return Value(self.w.memory.strong_load(self.w, place.x), place.dtype)
                case ir.Load(array, indices):
                    return self.element(array, indices)
                case ir.LoopIndex(loop, dtype):
                    return Value(
                        c.CastTo(type_name(dtype, 0), variable_of(self.loops, loop)), dtype
                    )
                case ir.Local(name):
                    return self.locals[name]
                case ir.LocalElement(name, index):
                    return self.local_element(name, index)
            raise AssertionError(x)

        return self.w.evaluate(e, leaf)
