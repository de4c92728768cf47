"""Plan of a standalone kernel: its top-level statements in program order, each loop for one thread or for a team.

Records only; codegen/plan/steps.py reads them from decisions, and codegen/write/steps.py writes
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...kernels.analysis.inner_ranges import RowStarts
from ...kernels.ir.kernel import DType, Expr, For, Location, ReduceOp, Stmt, Update
from .schedules import BlockPrefetch, Lanes, Wave

# Values of choices about the loops of such a body, beside those that loops of tasks have, too.
ONE_BY_ONE = "ONE_BY_ONE"  # of `nests`: each top-level loop of the body has decisions of its own
ANY_ORDER = "ANY_ORDER"  # of `iterations`: a compiler may run the iterations of a loop at once
SCALAR = "SCALAR"  # of `iterations`: a compiler must not put the iterations of a loop into vectors


@dataclass(frozen=True)
class Sum:
    """A reduction of a loop into one element that no iteration reads.

    Each thread accumulates in a local of its own.
    `array`: "" for a reduction into the kernel's local `local`.
    """

    op: ReduceOp
    dtype: DType
    array: str
    indices: tuple[Expr, ...]
    local: str


@dataclass(frozen=True)
class Partition:
    """Partition of a loop's iterations among the threads of a team.

    `schedule`: value of choice `schedule`; BALANCED divides by the `rows` of iterations.
    `threads_from`: least number of iterations with which a team runs the loop.
    `unit`: threads begin at multiples of it.
    `copied`: arrays that every thread but the first adds to in a private copy; the copies are added
    to the array at the end.
    `overlap`: number of iterations at the end of a part that update elements of the next part too.
    They run after all others.
    """

    threads_from: int = 0
    unit: int = 1
    schedule: str = "BLOCKED"
    rows: RowStarts | None = None
    copied: tuple[str, ...] = ()
    overlap: int = 0


@dataclass(frozen=True)
class NestPlan:
    """Plan of a top-level loop nest.

    If `is_shared`, its outer `levels` loops are distributed to a team as one loop.
    `independent`: loops whose iterations a compiler may assume independent. `scalar`: loops that it
    must not vectorise.
    `sums`: reductions. `atomics`: updates of elements that other threads update too.
    `lanes`: the vectorised loop of the nest, if any. `ranges`: vectorised loops inside its body.
    `copies`: unroll factors, by loop; compilers decide for the others. `prefetch`: of blocks that
    later iterations access.
    """

    loop: For
    levels: int = 1
    is_shared: bool = False
    partition: Partition = Partition()
    independent: frozenset[str] = frozenset()
    scalar: frozenset[str] = frozenset()
    sums: tuple[Sum, ...] = ()
    atomics: frozenset[Update] = frozenset()
    lanes: Lanes | None = None
    copies: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[Lanes, ...] = ()
    prefetch: BlockPrefetch | None = None


@dataclass(frozen=True)
class WavePlan:
    """A sweep that runs by wavefronts on `threads` threads; `where`: its line in the user's source."""

    wave: Wave
    threads: int
    where: Location


Step = Stmt | NestPlan | WavePlan


def has_team(step: Step) -> bool:
    """True if a team of threads runs the step."""
    return (isinstance(step, NestPlan) and step.is_shared) or (
        isinstance(step, WavePlan) and step.threads > 1
    )


def nest_of(loop: For, levels: int) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """Returns the outer `levels` loops of a nest, outermost first, and the body of the last of them."""
    loops = [loop]
    while len(loops) < levels:
        (inner,) = loops[-1].body
        assert isinstance(inner, For)
        loops.append(inner)
    return tuple(loops), loops[-1].body
