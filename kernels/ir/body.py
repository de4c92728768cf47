"""The statements of a task that is not one assignment."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .access import Access
from .kernel import Location, Stmt


class Closure(Enum):
    """What keeps a task closed."""

    BRANCH = "branch"  # control flow that depends on values
    RANGE = "range"  # a loop whose extent is no constant
    INDEX = "index"  # that is not affine in the loops
    CARRIED = "carried"  # a value from one iteration to another, and no recognised reduction
    ORDER = "order"  # of updates, which fast_math=False fixes


@dataclass(frozen=True)
class Reason:
    """Why a task is closed: `text` has no verb ("an if around a store")."""

    kind: Closure
    text: str
    where: Location


@dataclass(frozen=True)
class Body:
    """`statements` run once an iteration of the task's loops; locals belong to one iteration. `reason`: why they are no
    assignments over a band.
    """

    statements: tuple[Stmt, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    reason: Reason = field(compare=False)
