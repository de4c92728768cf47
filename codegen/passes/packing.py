"""Packing of operand blocks: places the phases, and double-buffers blocks (one is packed while another is read).

The next block is cut into slices, and a few are packed with each register tile that uses the
current block. A slice has the elements of one register tile along one loop and a chunk of them
along the other. It is packed between two strips of the innermost loop, whose arithmetic leaves
loads and stores time to spare. Its lines are prefetched a register tile earlier: elements that are
far apart have a line each, and so many misses would stall everything behind them. Nothing is packed
inside of a strip: each iteration would have to test for work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import lcm, prod

from ...kernels.ir.access import flat_strides
from ...space.backbone import OUTER, Operand
from ...space.targets.target import LINE_BYTES
from ..loops import ir as loop_ir
from ..plan.plan import Member, Plan
from ..text.facts import PASSING_BY
from .insertion import Notes

_AT_ONCE = 8  # lines, where the loop is long enough: more would queue up
# Iterations: in shorter strips prefetching, packing and counting would take as long as computing.
_LEAST_STRIP = 8


def place_blocks(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Places the packing of operand blocks at the heads of the innermost loops that select them.

    Double-buffered operands pack the next block early.
    """
    notes, buffers = Notes(launch.tasks), {}
    strips: dict[Member, loop_ir.Strips] = {}
    for loops, t in loop_ir.paths(launch.nodes):
        task = plan.tasks[t]
        for operand in task.copies:
            k = _holder(loops, t, operand)
            beside = notes.at(loops[k])
            if task.stages[operand.site] == 1:
                beside.head.append(loop_ir.PackBlock(t, operand))
                continue
            made = double_buffer(plan, loops, k, t, operand)
            buffers[t, operand.site] = made
            beside.before.append(loop_ir.PackFirstBlock(t, operand))
            beside.head.append(loop_ir.OpenBlock(t, operand))
            beside.tail.append(loop_ir.PackRest(t, operand))
            if made.in_strips is not None:
                innermost = loops[-1].members[0]
                before = strips.get(innermost, loop_ir.Strips(made.in_strips.strip, ()))
                length = min(before.length, made.in_strips.strip)
                strips[innermost] = loop_ir.Strips(length, (*before.packs, (t, operand)))
    nodes = _stripped(notes.placed(launch.nodes), strips)
    return replace(launch, nodes=nodes, buffers=buffers)


def place_block_copies(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Places the copies of operand blocks to shared memory, by all threads of a GPU block.

    Copies with several stages are asynchronous.
    """
    notes = Notes(launch.tasks)
    travelling: dict[loop_ir.Loop, list[loop_ir.Copy]] = {}
    for loops, t in loop_ir.paths(launch.nodes):
        task = plan.tasks[t]
        for operand in task.copies:
            holder = loops[_holder(loops, t, operand)]
            stages = task.stages[operand.site]
            if stages == 1:
                notes.at(holder).head.append(loop_ir.PackBlock(t, operand))
            else:
                travelling.setdefault(holder, []).append(loop_ir.Copy(t, operand, stages))
    for holder, found in travelling.items():
        copies, header = tuple(found), replace(holder, children=())
        beside = notes.at(holder)
        beside.before.append(loop_ir.StartCopies(copies, header))
        beside.head[:0] = [
            loop_ir.AwaitCopies(copies, header),
            loop_ir.Barrier(),
            loop_ir.AdvanceCopies(copies, header),
        ]
    return replace(launch, nodes=notes.placed(launch.nodes))


def _holder(loops: Sequence[loop_ir.Loop], t: int, operand: Operand) -> int:
    """Returns the index in `loops` of the innermost loop that selects the operand's block."""
    chosen = (n.level == OUTER and loop_ir.loop_of(n, t) in operand.loops for n in loops)
    return max(k for k, here in enumerate(chosen) if here)


def _stripped(
    nodes: Sequence[loop_ir.Node], strips: Mapping[Member, loop_ir.Strips]
) -> tuple[loop_ir.Node, ...]:
    """Returns the nodes with the given strips set on their loops."""
    return tuple(
        replace(n, children=_stripped(n.children, strips), strips=strips.get(n.members[0]))
        if isinstance(n, loop_ir.Loop)
        else n
        for n in nodes
    )


def double_buffer(
    plan: Plan, nodes: Sequence[loop_ir.Loop], k: int, t: int, operand: Operand
) -> loop_ir.DoubleBuffer:
    """Returns the double buffer of an operand whose blocks are packed at the head of loop `nodes[k]`.

    `nodes`: the loops around the body of task `t`, outermost first.
    """
    task, inside = plan.tasks[t], nodes[k + 1 :]
    array = plan.problem.array(operand.access.array)
    strides = flat_strides(operand.access, array)
    innermost = loop_ir.loop_of(nodes[-1], t)
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
        # The part that is packed with a register tile (about the same for each), then the part between two strips.
        chunk = -(-columns.tile // max(1, n_tiles // rows.mid))
        by_column = _lines(chunk, strides[along] * size)
        n_parts = -(-by_column.count // max(1, _AT_ONCE // by_row.count))
        strip = max(_LEAST_STRIP, -(-n_steps // n_parts))
        chunk = -(-chunk // -(-n_steps // strip))
        whole = lcm(columns.inner, by_column.apart)  # register tiles and lines
        chunk = min(-(-chunk // whole) * whole, columns.tile)
        # Lines that have one element of a block each, where no other loop comes back to it, are read once.
        is_far = all(abs(strides[x]) * size >= LINE_BYTES for x in operand.loops)
        others = (n for n in nodes[:k] if loop_ir.loop_of(n, t) not in operand.loops)
        is_once = is_far and all(iterations(plan, n) == 1 for n in others)
        by_column = _lines(chunk, strides[along] * size)
        in_strips = loop_ir.InStrips(by_row, by_column, PASSING_BY if is_once else 2, strip)
    return loop_ir.DoubleBuffer(
        holder=loop_ir.loop_of(nodes[k], t),
        across=across,
        along=along,
        chunk=chunk,
        chunks=-(-columns.tile // chunk),
        in_strips=in_strips,
    )


def iterations(plan: Plan, node: loop_ir.Loop) -> int:
    """Number of iterations of a loop node; of a mid level, in a full tile."""
    first = node.members[0]
    p = plan.tasks[first.task].loop(first.loop)
    return -(-node.extent // node.step) if node.level == OUTER else p.mid


def _lines(n: int, stride_bytes: int) -> loop_ir.Lines:
    """Returns how many cache lines hold `n` elements `stride_bytes` apart, and how many elements lead from line to line."""
    apart = max(1, LINE_BYTES // max(1, abs(stride_bytes)))
    return loop_ir.Lines(-(-n // apart), apart)
