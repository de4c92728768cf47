"""Load grouping in vectorised loops: each lane loads a row of contiguous elements at once.

A transposition in registers then makes vectors over lanes. This replaces a gather per element. A
live lane reads only between the first and the last element that its iteration reads, any other lane
the begin of the array: nothing outside the array. See kernels/analysis/neighbour_loads.py and
codegen/bodies/lanes_rows.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ...kernels.analysis.neighbour_loads import LoadGroup, Near, near_loads, row_length
from ...kernels.ir import kernel as ir
from ...kernels.ir.kernel import DType
from ..text import csyntax as c
from .lanes_values import LaneAddress, LaneValues

_Elements = Mapping[ir.Load, tuple[Near, int]]


class NearLoads:
    """Grouped loads of the statements of one block, which are written in their order."""

    def __init__(self, v: LaneValues, body: Sequence[ir.Stmt]) -> None:
        self.v, around = v, v.scope.iterations
        self.of: Sequence[_Elements] = ({},) * len(body)
        if around.loads_rows:
            self.of = near_loads(body, self._shape, self._may, row_length, around.kept)
        self._places: dict[int, c.CExpr] = {}  # by their numbers
        self._held: dict[Near, c.CExpr] = {}

    def before(self, at: int) -> None:
        """Writes the grouped loads of statement number `at` of the block. Later statements reuse them."""
        found: dict[ir.Load, c.CExpr] = {}
        for load, (near, k) in self.of[at].items():
            if near not in self._held:
                self._held[near] = self._loaded(near)
            found[load] = c.Index(self._held[near], c.number(k))
        self.v.near = found

    def _shape(self, array: str) -> tuple[int, ...]:
        return self.v.scope.problem.array(array).shape

    def _dtype(self, array: str) -> DType:
        return self.v.scope.problem.array(array).dtype

    def _may(self, load: ir.Load) -> bool:
        """True if a load would become a gather, and its array is stored in one piece (not as a tile)."""
        shape, dtype = self._shape(load.array), self._dtype(load.array)
        if load.array in self.v.scope.iterations.tiles or prod(shape) < row_length(dtype):
            return False
        if not (self.v.rows.can_load(dtype) and any(map(self.v.varies, load.indices))):
            return False
        place = self.v.place(load.array, load.indices)
        return place.offsets is not None or place.stride not in (0, 1)

    def _loaded(self, near: Near) -> c.CExpr:
        """Returns a C array of vectors over lanes, one per element of `near`; compilers hold it in registers."""
        if near.group.place not in self._places:
            self._places[near.group.place] = self._placed(near.group)
        array, dtype = near.group.load.array, self._dtype(near.group.load.array)
        name = c.Id(self.v.w.fresh("row"))
        self.v.w.write(c.Declare(self.v.m.type(dtype), name.name, None, near.length))
        at = self.v.address(array, LaneAddress(c.number(near.start), 0, None))
        function = self.v.rows.load(dtype, near.length)
        self.v.w.write(c.Evaluate(c.Call(function, (at, self._places[near.group.place], name))))
        return name

    def _placed(self, group: LoadGroup) -> c.CExpr:
        """Returns a C array (int64_t) with the flat index of the first element of each lane's group.

        It is 0 for lanes that are not live.
        """
        name = c.Id(self.v.w.fresh("at"))
        self.v.w.write(c.Declare("int64_t", name.name, None, self.v.lanes.width))
        first = self.v.flat_offsets(group.load.array, group.load.indices, -group.before)
        function = self.v.rows.places()
        self.v.w.write(c.Evaluate(c.Call(function, (self.v.mask, first, name))))
        return name
