"""How one kernel runs that is called by itself: its top-level statements in program order, each loop of them by one thread or
shared out to a team. Records only: who decides is above, and codegen/lower_kernel.py writes what was decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...kernels.analysis.inner_ranges import RowStarts
from ...kernels.ir.kernel import DType, Expr, For, KernelIR, Location, ReduceOp, Stmt, Update
from .schedules import BlockPrefetch, Lanes, Wave


@dataclass(frozen=True)
class Sum:
    """A reduction of a loop into one element that no iteration reads: each thread has a local of its own for it.

    `array` is "" where it is a reduction into a local of the kernel, which then has the name `local`.
    """

    op: ReduceOp
    dtype: DType
    array: str
    indices: tuple[Expr, ...]
    local: str


@dataclass(frozen=True)
class Share:
    """How the threads of a team share a loop out, by a value of the choice `schedule`; BALANCED: by the `rows` of its iterations.

    `threads_from`: from so many iterations on a team is asked for. `unit`: threads begin at multiples of so many of them.
    `copied`: arrays that every thread but the first adds to in a copy of its own; the copies are added to the array at the end.
    """

    threads_from: int = 0
    unit: int = 1
    schedule: str = "BLOCKED"
    rows: RowStarts | None = None
    copied: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoopStep:
    """A top-level loop. `levels` of its nest of loops, one directly in the other, are shared out as one where it `is_shared`.

    `independent`: loops of the nest whose iterations a compiler may run at once. `atomics`: updates of elements that other
    threads update. `lanes`: the loop of the nest whose iterations run several at once, if any does; `ranges`: loops inside of
    it that do. `copies`: how often the body of a loop is written out, where compilers do not decide it. `prefetch`: for what later
    iterations touch.
    """

    loop: For
    levels: int = 1
    is_shared: bool = False
    share: Share = Share()
    independent: frozenset[str] = frozenset()
    sums: tuple[Sum, ...] = ()
    atomics: frozenset[Update] = frozenset()
    lanes: Lanes | None = None
    copies: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[Lanes, ...] = ()
    prefetch: BlockPrefetch | None = None


@dataclass(frozen=True)
class WaveStep:
    """A sweep that runs by wavefronts, by as many as `threads`, and where it begins."""

    wave: Wave
    threads: int
    where: Location


@dataclass(frozen=True)
class KernelPlan:
    """What runs, in order; statements that are no loops are run by the caller. `cores`: most threads of a team."""

    ir: KernelIR
    steps: tuple[Stmt | LoopStep | WaveStep, ...]
    cores: int


def nest_of(loop: For, levels: int) -> tuple[tuple[For, ...], tuple[Stmt, ...]]:
    """The first `levels` loops of a nest, outermost first, and the statements in the last of them."""
    loops = [loop]
    while len(loops) < levels:
        (inner,) = loops[-1].body
        assert isinstance(inner, For)
        loops.append(inner)
    return tuple(loops), loops[-1].body
