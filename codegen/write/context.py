"""Contexts of the writers of a launch: loop variables in force, partial register tiles, and vectors kept between iterations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ..bodies.emitter import Builder
from ..bodies.iteration_point import LoopIndexAt
from ..bodies.memory import Value
from ..text import csyntax as c
from ..text.types import type_name


@dataclass(frozen=True)
class Context:
    """What holds at a place of the tree.

    `variables` are the loop variables in force by (task, loop, level); `status` tells of each loop with register tiles whether they
    are full here. Of the others: `by_rows`, those without vectors run one by one; `is_slow`, all do, and nothing is written twice
    any more. `is_team`: all threads of the launch run this place. `inside`: tasks no iteration of which is outside their cuts here.
    `ends`: where loops end whose iterations are those of a block, by (task, loop).
    """

    variables: dict[tuple[int, str, int], c.CExpr] = field(default_factory=dict)
    status: dict[tuple[int, str], bool] = field(default_factory=dict)
    by_rows: bool = False
    is_slow: bool = False
    is_team: bool = False
    inside: frozenset[int] = frozenset()
    ends: dict[tuple[int, str], c.CExpr] = field(default_factory=dict)


@dataclass(frozen=True)
class PartialLoop:
    """A loop over a partial register tile; without a variable, a test whether its one element is there."""

    variable: str
    start: c.CExpr
    end: c.CExpr
    step: int = 1


@dataclass
class Carried:
    """In the loop of a task along rows of vectors, which begins at `lo`: `before` declares in front of it what goes from iteration
    to iteration, by what it stands for.
    """

    task: int
    lo: c.CExpr
    before: list[c.CStmt] = field(default_factory=list)
    names: dict[Hashable, c.Id] = field(default_factory=dict)

    def start(self, lanes: int) -> LoopIndexAt:
        """The first iteration, as the first lane of a vector."""
        terms, offset = c.flatten(self.lo)
        return LoopIndexAt(c.linear(tuple(terms), 0) if terms else None, offset, lanes)

    def vector(self, w: Builder, key: Hashable, stem: str, first: Value) -> Value:
        """What the iteration before has handed on: to the first one `first`, which is known in front of the loop."""
        if key not in self.names:
            self.names[key] = c.Id(w.fresh(f"{stem}_before"))
            kind = type_name(first.dtype, first.lanes)
            self.before.append(c.Declare(kind, self.names[key].name, first.x))
        return Value(self.names[key], first.dtype, first.lanes)
