"""Tasks: what the calls of a kernel sequence split into, in the normal form that the space, the bound and the lowering work on.

A *structured* task is one perfect loop band around one assignment

    target[..] = finish(init-free reduction over the reduction loops of value)      op is a ReduceOp
    target[..] = value                                                              op is None

with known extents and affine accesses. An *opaque* task is one composite statement under its outermost loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .kernel import DType, Expr, Load, Location, Param, ReduceOp, Stmt

NOWHERE = Location("", 0)


@dataclass(frozen=True)
class Affine:
    """`const + sum(coefficient * loop index)`; `terms` sorted by loop name, no zero coefficient."""

    const: int
    terms: tuple[tuple[str, int], ...]

    def coefficient(self, loop: str) -> int:
        return dict(self.terms).get(loop, 0)


@dataclass(frozen=True)
class Access:
    """One indexed use of an array: an affine index per axis, or None where the index is not affine (opaque tasks only)."""

    array: str
    axes: tuple[Affine | None, ...]


@dataclass(frozen=True)
class Loop:
    """A loop of a task, 0 <= index < extent. `name` is unique within the task and is what LoopIndex names."""

    name: str
    extent: int
    is_reduction: bool


class Closure(Enum):
    """What keeps a task closed."""

    BRANCH = "branch"  # control flow that depends on values
    RANGE = "range"  # a loop whose extent is no constant
    INDEX = "index"  # that is not affine in the loops
    CARRIED = "carried"  # a value from one iteration to another, and no recognised reduction
    ORDER = "order"  # of updates, which fast_math=False fixes


@dataclass(frozen=True)
class Reason:
    """Why a task is opaque: `text` has no verb ("an if around a store")."""

    kind: Closure
    text: str
    where: Location


@dataclass(frozen=True)
class OpaqueBody:
    """The statements of an opaque task, inside its outermost loop (if it has one); locals belong to one iteration."""

    body: tuple[Stmt, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    reason: Reason = field(compare=False)


@dataclass(frozen=True)
class Task:
    """One unit of execution.

    `name` is unique in the sequence, for people (`gemv0`, `gemv1.s`). `loops` are in source order, outermost first. For a
    structured task `value` may load arrays at affine indices; `finish` (reductions only) gives the stored value in terms of
    `Accumulator` and of loads indexed by the non-reduction loops; what the target held before takes part only through `finish`.
    """

    name: str
    kernel: str
    loops: tuple[Loop, ...]
    target: Access
    dtype: DType  # of the accumulator and of what is stored
    value: Expr | None
    op: ReduceOp | None = None
    finish: Expr | None = None
    opaque: OpaqueBody | None = None
    fast_math: bool = True
    where: Location = field(default=NOWHERE, compare=False)  # of the assignment

    @property
    def is_reduction(self) -> bool:
        return self.op is not None


@dataclass(frozen=True)
class ArrayInfo:
    """An array of the sequence. `role` says what outlives the sequence: temporaries do not."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: str  # "input" (only read), "output" (written before any read), "inout", "temp"

    @property
    def size_bytes(self) -> int:
        n = 1
        for extent in self.shape:
            n *= extent
        return n * self.dtype.size_bytes


@dataclass(frozen=True)
class Problem:
    """A recorded kernel sequence, normalised: what the space is built from. Depends on nothing about the machine.

    `tasks` are in program order. `key` is a stable hash over everything that decides the computation (not over names of
    files or of the sequence). `formula` is prose for people.
    """

    name: str
    arrays: tuple[ArrayInfo, ...]
    scalars: tuple[Param, ...]
    tasks: tuple[Task, ...]
    key: str
    formula: str = ""

    def array(self, name: str) -> ArrayInfo:
        return next(a for a in self.arrays if a.name == name)


__all__ = [
    "Access",
    "Affine",
    "ArrayInfo",
    "Closure",
    "Load",
    "Loop",
    "OpaqueBody",
    "Problem",
    "Reason",
    "Task",
]
