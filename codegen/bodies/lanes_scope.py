"""Emission context around a loop that runs in lanes (codegen/bodies/lanes.py)."""

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
    """Order of a loop's iterations and places of their updates, if these differ from the loop's own.

    `order`: an array with the numbers (i32) of the iterations, which then are not consecutive; `kept`: arrays with the values of
    locals, by number. `is_shared`: True for updates that are atomic. `tiles`: arrays of which a part is elsewhere. `in_any_order`:
    True if sums of floats may be reordered. `loads_rows`: True if neighbouring elements are loaded at once.
    """

    order: c.CExpr | None = None
    kept: Mapping[str, c.CExpr] = field(default_factory=dict)
    is_shared: Callable[[ir.Update], bool] = lambda update: False
    tiles: Mapping[str, TilePlace] = field(default_factory=dict)
    in_any_order: bool = False
    loads_rows: bool = True


@dataclass(frozen=True)
class LaneScope:
    """Emission context around a loop that runs in lanes.

    `array_of`: the C expression of an array's first element. `loops`, `locals`: the values of loop indices and locals from outside,
    which are uniform; `extents` are the lengths of loops, the one in lanes too, if they are constants. `sums`: locals from outside
    that the loop reduces into and does not read. `ulp`: the permitted error of functions, see LaneMasks.
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
