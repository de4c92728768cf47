"""Contexts of a launch's writers: loop variables in scope, partial register tiles, vectors carried between iterations."""

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

    `variables`: the C variables in scope, by (task, loop, level).
    `status`: by (task, loop) with a register tile: True if the tile is full here, False if it is
    partial.
    Loops without a status: with `by_rows` loops that are not vectors run one by one. With `is_slow`
    all do, and no loop body is written in two versions any more.
    `is_team`: all threads of the launch run this code.
    `inside`: tasks whose iterations are all within their cuts (iteration-domain constraints) here.
    `decided`: the cuts that surely hold here.
    `ends`: the ends of loops that run over the iterations of one block, by (task, loop).
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
    """A loop from `start` to `end` over a partial register tile.

    Without a variable: a test that its one element exists.
    """

    variable: str
    start: c.CExpr
    end: c.CExpr
    step: int = 1


@dataclass
class Carried:
    """Loop-carried register reuse: a task's loop along rows keeps vectors in registers from one iteration to the next.

    `lo`: begin of the loop. `before`: declarations of the carried vectors, in front of the loop.
    `names`: their C variables, by key.
    """

    task: int
    lo: c.CExpr
    before: list[c.CStmt] = field(default_factory=list)
    names: dict[Hashable, c.Id] = field(default_factory=dict)

    def start(self, lanes: int) -> LoopIndexAt:
        """Returns the loop index of the first iteration, as a vector of `lanes` lanes."""
        terms, offset = c.flatten(self.lo)
        return LoopIndexAt(c.linear(tuple(terms), 0) if terms else None, offset, lanes)

    def vector(self, w: Builder, key: Hashable, stem: str, first: Value) -> Value:
        """Returns the vector carried from the previous iteration under `key`.

        In the first iteration it is `first`.
        """
        if key not in self.names:
            self.names[key] = c.Id(w.fresh(f"{stem}_before"))
            kind = type_name(first.dtype, first.lanes)
            self.before.append(c.Declare(kind, self.names[key].name, first.x))
        return Value(self.names[key], first.dtype, first.lanes)
