"""Contexts of the writers of a launch: loop variables in force, partial register tiles, and vectors kept between iterations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ...kernels.analysis.domain_bounds import Cut
from ..bodies.emitter import Builder
from ..bodies.iteration_point import LoopIndexAt
from ..bodies.memory import Value
from ..text import csyntax as c
from ..text.types import type_name


@dataclass(frozen=True)
class Context:
    """State of emission at one place of the loop tree.

    `variables`: the loop variables in force, by (task, loop, level). `status`: for loops with register tiles, True if the tile is
    full here. Loops without a status: under `by_rows` loops without vectors run one by one; under `is_slow` all do, and nothing is
    written twice any more. `is_team`: all threads of the launch run this place. `inside`: tasks whose iterations are all inside
    their cuts here; `decided`: the cuts within which they are. `ends`: the ends of loops whose iterations are those of a block, by
    (task, loop).
    """

    variables: dict[tuple[int, str, int], c.CExpr] = field(default_factory=dict)
    status: dict[tuple[int, str], bool] = field(default_factory=dict)
    by_rows: bool = False
    is_slow: bool = False
    is_team: bool = False
    inside: frozenset[int] = frozenset()
    ends: dict[tuple[int, str], c.CExpr] = field(default_factory=dict)
    decided: frozenset[tuple[int, Cut]] = frozenset()


@dataclass(frozen=True)
class PartialLoop:
    """A loop over a partial register tile. Without a variable, a test that its one element exists."""

    variable: str
    start: c.CExpr
    end: c.CExpr
    step: int = 1


@dataclass
class Carried:
    """Loop-carried register reuse in a task's loop along rows of vectors, which begins at `lo`.

    `before` declares, in front of the loop, the vectors passed from iteration to iteration; `names` are their variables, by key.
    """

    task: int
    lo: c.CExpr
    before: list[c.CStmt] = field(default_factory=list)
    names: dict[Hashable, c.Id] = field(default_factory=dict)

    def start(self, lanes: int) -> LoopIndexAt:
        """Returns the first iteration, as the first lane of a vector."""
        terms, offset = c.flatten(self.lo)
        return LoopIndexAt(c.linear(tuple(terms), 0) if terms else None, offset, lanes)

    def vector(self, w: Builder, key: Hashable, stem: str, first: Value) -> Value:
        """Returns the vector passed on by the previous iteration. For the first one it is `first`, known in front of the loop."""
        if key not in self.names:
            self.names[key] = c.Id(w.fresh(f"{stem}_before"))
            kind = type_name(first.dtype, first.lanes)
            self.before.append(c.Declare(kind, self.names[key].name, first.x))
        return Value(self.names[key], first.dtype, first.lanes)
