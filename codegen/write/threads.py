"""What those that run a launch together do: threads of a team, or the threads and blocks of a grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from ..loops.ir import CopyPhase, Loop, PackPhase, ScatterPhase, Strips, SumPhase
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .context import Context

Statements = tuple[c.CStmt, ...]


class Threads(ABC):
    """How C says which threads and blocks run what, and what is written for what they do together."""

    index_type: str  # of loop variables

    @abstractmethod
    def is_among(self, n_threads: int) -> c.CExpr:
        """Whether this is one of the first threads of those that run a launch together."""

    @abstractmethod
    def block_along(self, loop: Loop) -> c.CExpr:
        """The number of this block along a loop of the grid."""

    @abstractmethod
    def inside(
        self, loop: Loop, variable: c.CExpr, ctx: Context
    ) -> AbstractContextManager[tuple[Statements, Context]]:
        """What a loop begins with and what holds inside: of a tile that is shared, each thread has its own index."""

    @abstractmethod
    def update(self, task: TaskPlan, ctx: Context) -> None:
        """Writes how one register tile is added to its accumulators."""

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
        """Writes what is packed at the head of each of so many strips of a loop."""
