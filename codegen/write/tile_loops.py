"""Register tiles: values held in named C variables."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.ir.kernel import DType
from ..text import csyntax as c


@dataclass(frozen=True)
class EmittedTile:
    """A register tile: along `full` loops each copy is a C variable, `slow` loops are dimensions of a small array.

    Both list loops with extents. `lanes`: length of the elements' vectors, 0 for scalars.
    """

    name: str
    dtype: DType
    lanes: int
    full: tuple[tuple[str, int], ...]
    slow: tuple[tuple[str, int], ...]

    def ref(self, copies: dict[str, int], indices: dict[str, c.CExpr]) -> c.CExpr:
        """Returns the tile's element with these copy numbers along full loops, and these indices along slow loops."""
        x: c.CExpr = c.Id(self.member([copies.get(name, 0) for name, _ in self.full]))
        if not self.slow:
            return x
        terms, step = [], 1
        for name, extent in reversed(self.slow):
            terms.append((indices[name], step))
            step *= extent
        return c.Index(x, c.linear(tuple(reversed(terms)), 0))

    def member(self, copies: list[int]) -> str:
        return "_".join(
            [self.name, *(str(k) for k, (_, n) in zip(copies, self.full, strict=True) if n > 1)]
        )

    def members(self) -> list[str]:
        """Returns the names of all C variables of the tile, in order."""
        names: list[list[int]] = [[]]
        for _, n in self.full:
            names = [[*prefix, k] for prefix in names for k in range(n)]
        return [self.member(copies) for copies in names]

    @property
    def array_extent(self) -> int | None:
        if not self.slow:
            return None
        n = 1
        for _, extent in self.slow:
            n *= extent
        return n
