"""What of a problem is not opened: tasks whose bodies run as they were written, of which bound and search know nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from ..ir.body import Reason
from ..ir.task import Problem

_NAMED = 3  # reasons in a sentence


@dataclass(frozen=True)
class ClosedTask:
    """A task of a problem that is not opened, and why."""

    task: str
    reason: Reason

    def __str__(self) -> str:
        """`an if around a store, line 12 of relu.py`."""
        where = self.reason.where
        place = f", line {where.line} of {PurePath(where.file).name}" if where.line else ""
        return f"{self.reason.text}{place}"


@dataclass(frozen=True)
class Closed:
    """The tasks of a problem that are not opened; false where all are open."""

    tasks: tuple[ClosedTask, ...]
    n_tasks: int  # of the whole problem

    def __bool__(self) -> bool:
        return bool(self.tasks)

    def __str__(self) -> str:
        """`1 of 2 tasks is closed: an if around a store, line 12 of relu.py`; "" where none is."""
        if not self.tasks:
            return ""
        n = len(self.tasks)
        reasons = list(dict.fromkeys(map(str, self.tasks)))
        named = "; ".join(reasons[:_NAMED])
        more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
        verb = "is" if n == 1 else "are"
        return f"{n} of {self.n_tasks} tasks {verb} closed: {named}{more}"


NOTHING_CLOSED = Closed((), 0)


def closed_tasks(problem: Problem) -> Closed:
    """What of a problem is not opened, in program order."""
    found = tuple(ClosedTask(t.name, t.body.reason) for t in problem.tasks if t.body is not None)
    return Closed(found, len(problem.tasks))
