"""Inputs of a vectorised loop's writer (codegen/bodies/lanes.py): loops, locals and arrays from outside, and iteration order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...kernels.analysis.contraction import ExactRounding
from ...kernels.ir import kernel as ir
from ...kernels.ir.task import Problem
from ..text import csyntax as c
from .body_values import TilePlace
from .memory import Value
from .vector_functions import ULP4

_FREE = ExactRounding(False)


@dataclass(frozen=True)
class Iterations:
    """Order of a vectorised loop's iterations and targets of its updates, where they differ from the default.

    `order`: C array of iteration numbers (i32), in the order to run; without it they are
    consecutive.
    `kept`: C arrays with values of locals computed before, indexed by iteration number.
    `is_shared`: True for updates that must be atomic.
    `tiles`: copies of a part of an array, by array, which accesses use in place of the array.
    `in_any_order`: True if floating-point sums may be reordered.
    `loads_rows`, `stores_rows`: True if contiguous loads, or stores, of a lane are grouped.
    """

    order: c.CExpr | None = None
    kept: Mapping[str, c.CExpr] = field(default_factory=dict)
    is_shared: Callable[[ir.Update], bool] = lambda update: False
    tiles: Mapping[str, TilePlace] = field(default_factory=dict)
    in_any_order: bool = False
    loads_rows: bool = True
    stores_rows: bool = True


@dataclass(frozen=True)
class LaneScope:
    """Inputs of a vectorised loop's writer from the code around the loop.

    `array_of`: the C expression of an array's first element.
    `loops`, `locals`: uniform values of outer loop indices and locals.
    `extents`: constant numbers of iterations, by loop; the vectorised loop may be among them.
    `sums`: outer locals that the loop only reduces into, with the operators.
    `ulp`: permitted error of functions, see LaneMasks.
    `kept`: C arrays, with an element a lane, in which the loop leaves the values of locals.
    """

    problem: Problem
    array_of: Callable[[str], c.CExpr]
    loops: Mapping[str, c.CExpr]
    locals: Mapping[str, Value]
    extents: Mapping[str, int]
    sums: Mapping[str, ir.ReduceOp] = field(default_factory=dict)
    iterations: Iterations = Iterations()
    ulp: float | None = ULP4
    rounding: ExactRounding = _FREE
    kept: Mapping[str, Value] = field(default_factory=dict)
