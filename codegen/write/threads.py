"""Interface of a launch's parallel threads: those of a CPU team, or the threads and blocks of a GPU grid."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from ..loops.ir import CopyPhase, Loop, PackPhase, ScatterPhase, SortByLength, Strips, SumPhase
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from .context import Context

Statements = tuple[c.CStmt, ...]


class Threads(ABC):
    """Threads of a launch: C expressions of their numbers, and the code of their collective phases."""

    index_type: str  # of loop variables

    @abstractmethod
    def is_among(self, n_threads: int) -> c.CExpr:
        """Returns a C condition: this thread is one of the first `n_threads` of its team or block."""

    @abstractmethod
    def block_along(self, loop: Loop) -> c.CExpr:
        """Returns this block's index along a loop of the grid."""

    @abstractmethod
    def meet_grid(self) -> None:
        """Writes a barrier of all blocks of the grid."""

    @abstractmethod
    def inside(
        self, loop: Loop, variable: c.CExpr, ctx: Context
    ) -> AbstractContextManager[tuple[Statements, Context]]:
        """Yields the first statements of a loop's body, and the context inside the loop.

        If several threads share a tile, these statements declare the index of each thread.
        """

    @abstractmethod
    def update(self, task: TaskPlan, ctx: Context) -> None:
        """Writes the reduction of one register tile into its accumulators."""

    @abstractmethod
    def phase(
        self,
        phase: SumPhase | PackPhase | CopyPhase | ScatterPhase | SortByLength,
        task: TaskPlan,
        ctx: Context,
    ) -> None:
        """Writes a phase of a task: of its reduction, of its operand blocks, of its scatters, or of its order."""

    @abstractmethod
    def ahead(self, loop: Loop, written: c.For) -> Statements:
        """Returns a loop, as written, whose iterations load operands of the next one (`Loop.loads_ahead`)."""

    @abstractmethod
    def at_strip(self, strips: Strips, n_strips: int, ctx: Context) -> None:
        """Writes the packing (of a slice of the next operand block) before each of the `n_strips` strips of a loop."""
