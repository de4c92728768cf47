"""Register tiles: values that have names in C."""

from __future__ import annotations

from dataclasses import dataclass

from ...kernels.ir.kernel import DType
from ..text import csyntax as c


@dataclass(frozen=True)
class EmittedTile:
    """A register tile: `full` loops have one name per copy, `slow` loops are dims of a small array.

    `lanes` is 0 for scalars.
    """

    name: str
    dtype: DType
    lanes: int
    full: tuple[tuple[str, int], ...]
    slow: tuple[tuple[str, int], ...]

    def ref(self, copies: dict[str, int], indices: dict[str, c.CExpr]) -> c.CExpr:
        """The element at the copy of each full loop and the index of each slow loop."""
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
        """The names of all copies, in order."""
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
