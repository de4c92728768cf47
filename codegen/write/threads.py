"""Interface of the parallel threads of a launch: those of a team, or the threads and blocks of a grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from ..loops.ir import CopyPhase, Loop, PackPhase, ScatterPhase, Strips, SumPhase
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .context import Context

Statements = tuple[c.CStmt, ...]


class Threads(ABC):
    """Threads of a launch: their numbers as C expressions, and the code of their collective phases."""

    index_type: str  # of loop variables

    @abstractmethod
    def is_among(self, n_threads: int) -> c.CExpr:
        """Returns a test that a thread is one of the first `n_threads` of a team or block."""

    @abstractmethod
    def block_along(self, loop: Loop) -> c.CExpr:
        """Returns the number of this block along a loop of the grid."""

    @abstractmethod
    def inside(
        self, loop: Loop, variable: c.CExpr, ctx: Context
    ) -> AbstractContextManager[tuple[Statements, Context]]:
        """Yields the first statements of a loop's body, and the context inside.

        If threads share a tile, each has its own index.
        """

    @abstractmethod
    def update(self, task: TaskPlan, ctx: Context) -> None:
        """Writes the addition of one register tile to its accumulators."""

    @abstractmethod
    def phase(
        self,
        phase: SumPhase | PackPhase | CopyPhase | ScatterPhase,
        task: TaskPlan,
        ctx: Context,
    ) -> None:
        """Writes a phase of sums, of blocks of operands, or of scatters."""

    @abstractmethod
    def at_strip(self, strips: Strips, n_strips: int, ctx: Context) -> None:
        """Writes the packing at the head of each of `n_strips` strips of a loop."""
