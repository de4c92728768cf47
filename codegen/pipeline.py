"""How an operand is packed ahead: the next block of it is cut into slices, and a few are packed with each register tile that uses
the present block.

A slice has the elements of one register tile along one loop and a chunk of them along the other. It is packed between two strips of
the innermost loop, whose arithmetic leaves loads and stores time to spare, and its lines are asked for a register tile earlier:
where elements are far apart each is a line of its own, and so many loads that miss would hold up everything behind them. Inside of
a strip there is no place for it: it would ask in each iteration whether there is something to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, prod

from ..kernels.ir.access import flat_strides
from ..space.backbone import OUTER, Operand
from ..space.targets.target import LINE_BYTES
from .block import PASSING_BY
from .plan import Plan
from .tree import LoopNode, loop_of

_AT_ONCE = 8  # lines, where the loop is long enough: more would wait for one another
# Iterations: what shorter ones ask, pack and count would take as long as what they compute.
_LEAST_STRIP = 8


@dataclass(frozen=True)
class Lines:
    """Lines of a slice along one loop: so many, a number of iterations apart."""

    count: int
    apart: int


@dataclass(frozen=True)
class InStrips:
    """The lines of a slice and for which cache they are asked, and the iterations of the innermost loop in a strip."""

    across: Lines
    along: Lines
    cache: int
    strip: int


@dataclass(frozen=True)
class Pipeline:
    """An operand of two loops that is packed ahead, a block for each iteration of the outer dim of `holder`.

    A block has `chunks` slices for each register tile of `across`; each has `chunk` iterations of `along`. `in_strips` is None
    where there is no loop around an innermost one: then the next block is packed when the present one has been used.
    """

    holder: str
    across: str
    along: str
    chunk: int
    chunks: int
    in_strips: InStrips | None


def pipeline(plan: Plan, nodes: Sequence[LoopNode], k: int, t: int, operand: Operand) -> Pipeline:
    """For the loop `nodes[k]`, at whose head blocks are packed, of the loops around the body of task `t`."""
    task, inside = plan.tasks[t], nodes[k + 1 :]
    array = plan.problem.array(operand.access.array)
    strides = flat_strides(operand.access, array)
    innermost = loop_of(nodes[-1], t)
    along = (
        innermost if innermost in operand.loops else min(operand.loops, key=lambda x: strides[x])
    )
    (across,) = (name for name in operand.loops if name != along)
    rows, columns = task.loop(across), task.loop(along)
    chunk, in_strips = columns.tile, None
    if len(inside) > 1:
        n_tiles = prod(iterations(plan, n) for n in inside[:-1])
        n_steps = iterations(plan, nodes[-1])
        size = array.dtype.size_bytes
        by_row = _lines(rows.inner, strides[across] * size)
        # What is packed with a register tile, so that each has about as much to do, and then what is packed between two strips.
        chunk = -(-columns.tile // max(1, n_tiles // rows.mid))
        by_column = _lines(chunk, strides[along] * size)
        n_parts = -(-by_column.count // max(1, _AT_ONCE // by_row.count))
        strip = max(_LEAST_STRIP, -(-n_steps // n_parts))
        chunk = -(-chunk // -(-n_steps // strip))
        whole = lcm(columns.inner, by_column.apart)  # register tiles and lines
        chunk = min(-(-chunk // whole) * whole, columns.tile)
        # Lines that have one element of a block each, where no other loop comes back to it, are read once.
        is_far = all(abs(strides[x]) * size >= LINE_BYTES for x in operand.loops)
        others = (n for n in nodes[:k] if loop_of(n, t) not in operand.loops)
        is_once = is_far and all(iterations(plan, n) == 1 for n in others)
        by_column = _lines(chunk, strides[along] * size)
        in_strips = InStrips(by_row, by_column, PASSING_BY if is_once else 2, strip)
    return Pipeline(
        holder=loop_of(nodes[k], t),
        across=across,
        along=along,
        chunk=chunk,
        chunks=-(-columns.tile // chunk),
        in_strips=in_strips,
    )


def iterations(plan: Plan, node: LoopNode) -> int:
    """How many iterations a loop has in a whole tile."""
    first = node.members[0]
    p = plan.tasks[first.task].loop(first.loop)
    return -(-node.extent // node.step) if node.level == OUTER else p.mid


def _lines(n: int, stride_bytes: int) -> Lines:
    """The lines of `n` elements that are so many bytes apart."""
    apart = max(1, LINE_BYTES // max(1, abs(stride_bytes)))
    return Lines(-(-n // apart), apart)
