"""Scatters on a CPU: private copies of the updated array per thread, or iterations sorted by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ...kernels.ir.kernel import DType
from ...kernels.ir.on_trees import IF_OLD
from ...space import choices as ch
from ...space.backbone import OUTER
from ..bodies.bodies import BodyWriter
from ..bodies.body_values import TilePlace
from ..bodies.iteration_point import row_strides
from ..bodies.lanes import Iterations
from ..bodies.memory import Value
from ..loops.ir import (
    AddCopies,
    ClearCopies,
    CountIterations,
    ScatterPhase,
    SortIterations,
    StartBlocks,
)
from ..passes.storage import Buffer, ScatterMemory, SortMemory
from ..plan.plan import ScatterPlan, TaskPlan
from ..text import csyntax as c
from ..text.constants import neutral
from ..text.types import type_name
from .emission import Emission
from .kept_memory import invalidate_if, keeping

_CHUNK = 2048  # elements of an array that stay in a cache while the copies of all threads are added to them
_UNWANTED = c.Un("-", c.Num("1"))  # the block of an iteration that does nothing


def allocate_scatters(scene: Emission, task: TaskPlan) -> None:
    """Allocates the buffers of a task's scatters: private copies, tiles and sorts."""
    copies, tiles = {}, {}
    for x in task.scatters:
        info = scene.plan.problem.array(x.array)
        if x.how == ch.PRIVATE:
            n = prod(info.shape)
            copies[x.array] = scene.buffer(f"{x.array}_copy", info.dtype, n, is_private=True)
        if x.tile:
            is_private = scene.launch.is_parallel
            held = scene.buffer(f"{x.array}_tile", info.dtype, prod(x.tile), is_private)
            tiles[x.array] = held, scene.w.fresh(f"{x.array}_origin")
    sort = None
    if task.sort is not None:
        sort = _sort_memory(scene, task, task.sort)
    scene.scatters[task.index] = ScatterMemory(copies, tiles, sort)


def _sort_memory(scene: Emission, task: TaskPlan, x: ScatterPlan) -> SortMemory:
    assert x.blocks is not None and x.placing is not None
    n, n_blocks = task.loops[0].loop.extent, x.blocks.n_blocks
    n_threads = scene.target.cores if task.is_parallel else 1

    def of(stem: str, n_elements: int, dtype: DType = DType.i32) -> Buffer:
        return scene.buffer(f"{x.array}_{stem}", dtype, n_elements, is_private=False)

    kept = {local.name: of(f"{local.name}_kept", n, local.dtype) for local in x.placing.kept}
    made = SortMemory(
        counts=of("counts", n_threads * n_blocks),
        blocks=of("blocks", n),
        order=of("order", n),
        starts=of("starts", n_blocks + 1),
        kept=kept,
    )
    if scene.plan.choice("sorting", task.index) != IF_OLD:
        return made
    held = keeping(scene, f"{x.array}_sort", (made.blocks, made.order, made.starts))
    return replace(made, held=held, again=of("again", 1))


def body_writer(
    scene: Emission,
    task: TaskPlan,
    variables: Mapping[tuple[int, str, int], c.CExpr],
    windows: Mapping[str, TilePlace],
) -> BodyWriter:
    """Returns the writer of a task's body; `variables`: the C variables of its loops.

    Updates go to the buffers that the plan decided. `windows`: halo blocks from which neighbour
    reads are taken, by array.
    """
    if not task.scatters and not task.states and not windows:
        return BodyWriter(scene.w, scene.plan.problem, scene.global_array)
    own = iterations_of(scene, task, windows)
    array_of = partial(array_updated, scene, task)
    writer = BodyWriter(scene.w, scene.plan.problem, array_of, own.is_shared)
    writer.v.plain_indices = True
    writer.v.tiles = own.tiles
    writer.v.strong = _changing(scene, task)
    if own.kept:
        iteration = variables[task.index, task.loops[0].loop.name, OUTER]
        writer.given = {name: c.Index(kept, iteration) for name, kept in own.kept.items()}
    return writer


def _changing(scene: Emission, task: TaskPlan) -> frozenset[str]:
    """Returns the states of trees that the task's threads change and look at, and the counters that they change.

    Several threads store the same marks in counters. What they only store elsewhere is published by others.
    """
    assert task.task.body is not None
    sites = task.task.body.sites
    written = {x.state.name for x in sites if x.writes}
    counters = {x.array for x in scene.plan.problem.parts.states if x.kind == "counters"}
    return task.states & written & ({x.state.name for x in sites if x.reads} | counters)


def array_updated(scene: Emission, task: TaskPlan, name: str) -> c.CExpr:
    """Returns the address of the array that a task updates under `name`: the array itself, or the thread's private copy."""
    memory = scene.scatters.get(task.index)
    copy = memory.copies.get(name) if memory is not None else None
    return scene.global_array(name) if copy is None else c.Id(copy.name)


def iterations_of(scene: Emission, task: TaskPlan, windows: Mapping[str, TilePlace]) -> Iterations:
    """Returns the order of a task's iterations and the targets of its updates.

    `windows`: halo blocks that it reads.
    """
    memory = scene.scatters.get(task.index, ScatterMemory({}, {}, None))
    atomic = {x.array for x in task.scatters if x.how == ch.BY_ATOMICS} | task.states
    tiles = {x.tiled: (memory.tiles[x.array], x.tile) for x in task.scatters if x.tile}
    sort, colouring = memory.sort, scene.colourings.get(task.index)
    made, ordered = sort or colouring, sort or scene.length_orders.get(task.index)
    return Iterations(
        c.Id(ordered.order.name) if ordered is not None else None,
        {name: c.Id(kept.name) for name, kept in made.kept.items()} if made is not None else {},
        lambda update: update.array in atomic,
        {
            array: TilePlace(c.Id(held.name), shape, c.Id(origin))
            for array, ((held, origin), shape) in tiles.items()
        }
        | dict(windows),
        task.task.fast_math,
    )


def write_scatter(scene: Emission, phase: ScatterPhase, task: TaskPlan) -> None:
    """Writes a phase of a scatter, before or after the loop of its task."""
    match phase:
        case ClearCopies():
            for x in (x for x in task.scatters if x.how == ch.PRIVATE):
                _fill(scene, scene.scatters[task.index].copies[x.array], x)
        case AddCopies():
            for x in (x for x in task.scatters if x.how == ch.PRIVATE):
                _add_copies(scene, scene.scatters[task.index].copies[x.array], x)
        case CountIterations():
            _count(scene, task)
        case StartBlocks():
            _start(scene, task)
        case SortIterations():
            _sort(scene, task)


def added(scene: Emission, x: ScatterPlan, place: c.CExpr, part: c.CExpr) -> c.CStmt:
    """Returns the C statement `place op= part`.

    For min and max an element without an update keeps its value, even if it is a NaN.
    """
    dtype = scene.plan.problem.array(x.array).dtype
    op = x.scatter.op
    made = c.Assign(place, scene.w.combine(op, Value(place, dtype), Value(part, dtype)).x)
    if dtype.is_float and op in ("min", "max"):
        return c.If(c.Bin("!=", part, neutral(op, dtype)), (made,))
    return made


def cleared(scene: Emission, buffer: Buffer, x: ScatterPlan) -> c.CStmt:
    """Returns a loop that sets the thread's buffer to the neutral element."""
    k = scene.w.fresh("k")
    scene.w.used.discard(k)
    zero = c.Assign(c.Index(c.Id(buffer.name), c.Id(k)), neutral(x.scatter.op, buffer.dtype))
    return c.For(k, c.Num("0"), c.number(buffer.n_elements), 1, (zero,))


def _fill(scene: Emission, buffer: Buffer, x: ScatterPlan) -> None:
    scene.w.write(cleared(scene, buffer, x))


def part(scene: Emission, n: c.CExpr, task_is_parallel: bool) -> tuple[c.CExpr, c.CExpr]:
    """Returns begin and end of this thread's part of `n` elements; all of them if the task is sequential."""
    if not task_is_parallel:
        return c.Num("0"), n
    tid, n_threads = c.Id("tid"), c.Id("n_threads")
    begin, end = scene.w.fresh("part_begin"), scene.w.fresh("part_end")
    scene.w.used -= {begin, end}
    behind = c.Bin("+", tid, c.Num("1"))
    for name, who in ((begin, tid), (end, behind)):
        place = c.Bin("/", c.Bin("*", n, who), n_threads)
        scene.w.write(c.Declare("long", name, place, constant=True))
    return c.Id(begin), c.Id(end)


def _add_copies(scene: Emission, buffer: Buffer, x: ScatterPlan) -> None:
    """Writes the addition of all private copies to the array.

    Each thread adds a part of the elements, chunk by chunk; per chunk it adds one copy after the
    other.
    """
    w, n, rest = scene.w, buffer.n_elements, buffer.n_elements
    n_shared = scene.plan.problem.parts.n_shared(x.array)
    if n_shared:
        n = scene.plan.problem.array(x.array).shape[-1]
        rest = n - n_shared
    with w.scope() as body:
        begin, end = part(scene, c.number(rest), True)
        row = w.fresh("row")
        w.used -= {row}
        first = c.linear(((c.Id(row), n),) if n < buffer.n_elements else (), n_shared)
        chunk, slot, k, copy = (w.fresh(s) for s in ("chunk", "slot", "k", f"{x.array}_part"))
        w.used -= {chunk, slot, k, copy}
        kind = type_name(buffer.dtype, 0)
        place = c.linear(((c.Id(slot), buffer.stride_bytes),), buffer.offset_bytes)
        start = c.CastTo(f"const {kind} *", c.Bin("+", c.Id("workspace"), place))
        at = c.add(first, c.Id(k)) if n_shared else c.Id(k)
        total = c.Index(scene.global_array(x.array), at)
        add = added(scene, x, total, c.Index(c.Id(copy), at))
        last = c.minimum(c.linear(((c.Id(chunk), 1),), _CHUNK), end)
        inner = c.For(k, c.Id(chunk), last, 1, (add,), independent=True)
        each = c.For(
            slot,
            c.Num("0"),
            c.Id("n_threads"),
            1,
            (c.Declare(f"const {kind} *", copy, start), inner),
        )
        chunks: c.CStmt = c.For(chunk, begin, end, _CHUNK, (each,))
        if n < buffer.n_elements:
            chunks = c.For(row, c.Num("0"), c.number(buffer.n_elements // n), 1, (chunks,))
        w.write(chunks)
    w.write(c.Scope(tuple(body.statements)))
    w.forget(x.array)


# --- the sort --------------------------------------------------------------------------------


def _count(scene: Emission, task: TaskPlan) -> None:
    """Writes the count phase of the sort: the block of each iteration in a vectorisable loop, then counts per block.

    A block that differs from an earlier call's makes the kept sort invalid.
    """
    x, memory = task.sort, scene.scatters[task.index].sort
    assert x is not None and x.blocks is not None and x.placing is not None and memory is not None
    w, loop = scene.w, task.loops[0].loop
    i, k, found, differs = (w.fresh(s) for s in (loop.name, "k", "block", "differs"))
    blocks: c.CExpr = c.Index(c.Id(memory.blocks.name), c.Id(i))
    here = blocks if memory.held is None else c.Id(found)
    writer = BodyWriter(w, scene.plan.problem, scene.global_array)
    writer.v.loops = {loop.name: c.Id(i)}
    with w.scope() as finding:
        if memory.held is not None:
            w.write(c.Declare("int32_t", found, _UNWANTED))
        elif x.placing.conditions:
            w.write(c.Assign(blocks, _UNWANTED))
        with w.scope() as inside:
            writer.declare_locals(x.placing.statements)
            writer.statements(x.placing.statements)
            for name, kept in memory.kept.items():
                w.write(c.Assign(c.Index(c.Id(kept.name), c.Id(i)), writer.v.locals[name].x))
            w.write(c.Assign(here, _block(scene, writer, x)))
        made: Sequence[c.CStmt] = inside.statements
        for condition in reversed(x.placing.conditions):
            made = [c.If(writer.v.evaluate(condition).x, tuple(made))]
        for statement in made:
            w.write(statement)
        if memory.held is not None:
            w.write(c.Assign(c.Id(differs), c.Bin("!=", blocks, here), "|"))
            w.write(c.Assign(blocks, here))
    with w.scope() as body:
        begin, end = part(scene, c.number(loop.extent), task.is_parallel)
        own = _own_counts(task, x)
        if memory.held is not None:
            w.write(c.Declare("int", differs, c.Num("0")))
        zero = c.Assign(_at(memory.counts, own, c.Id(k)), c.Num("0"))
        w.write(c.For(k, c.Num("0"), c.number(x.blocks.n_blocks), 1, (zero,)))
        w.write(c.For(i, begin, end, 1, tuple(finding.statements)))
        one: c.CStmt = c.Assign(_at(memory.counts, own, blocks), c.Num("1"), "+")
        w.write(c.For(i, begin, end, 1, (_where_wanted(x, blocks, one),)))
        if memory.held is not None:
            w.write(invalidate_if(c.Id(differs), memory.held))
    w.used -= {i, k, found, differs}
    w.write(c.Scope(tuple(body.statements)))


def _block(scene: Emission, writer: BodyWriter, x: ScatterPlan) -> c.CExpr:
    """Returns the number of the block that an iteration updates.

    Blocks of one colour have consecutive numbers.
    """
    b = x.blocks
    assert b is not None
    reaches = [r for r in x.scatter.window if r.base is not None]
    per_colour, w = prod(b.halves), scene.w
    colour: list[tuple[c.CExpr, int]] = []
    number: list[tuple[c.CExpr, int]] = []
    sides = zip(reaches, b.extents, b.cells, row_strides(b.halves), strict=True)
    for axis, (reach, n, cells, stride) in enumerate(sides):
        assert reach.base is not None
        if b.counts[axis] == 1:
            continue
        first = c.linear(((writer.v.index(reach.base), 1),), reach.least)
        place = c.Id(w.fresh(f"place_{axis}"))
        # A window may begin before the array, or behind it, where guards leave the rest of it out.
        w.write(c.Declare("long", place.name, first, constant=True))
        most = c.minimum(place, c.number(n - 1))
        inside = c.Cond(c.Bin("<", place, c.Num("0")), c.Num("0"), most)
        at = c.Id(w.fresh(f"block_{axis}"))
        w.write(c.Declare("long", at.name, c.Bin("/", inside, c.number(cells)), constant=True))
        w.used -= {place.name, at.name}
        if axis not in b.coloured:
            number.append((at, stride))
            continue
        colour.append((c.Bin("&", at, c.Num("1")), per_colour << b.coloured.index(axis)))
        number.append((c.Bin("/", at, c.Num("2")), stride))
    return c.CastTo("int32_t", c.linear((*colour, *number), 0))


def _own_counts(task: TaskPlan, x: ScatterPlan) -> c.CExpr:
    """Returns the index at which this thread's counts begin in the array of counts."""
    assert x.blocks is not None
    if not task.is_parallel:
        return c.Num("0")
    return c.Bin("*", c.Id("tid"), c.number(x.blocks.n_blocks))


def _at(buffer: Buffer, first: c.CExpr, k: c.CExpr) -> c.Index:
    return c.Index(c.Id(buffer.name), c.add(first, k))


def _where_wanted(x: ScatterPlan, block: c.CExpr, one: c.CStmt) -> c.CStmt:
    assert x.placing is not None
    return c.If(c.Bin(">=", block, c.Num("0")), (one,)) if x.placing.conditions else one


def _start(scene: Emission, task: TaskPlan) -> None:
    x, memory = task.sort, scene.scatters[task.index].sort
    assert x is not None and x.blocks is not None and memory is not None
    w, n = scene.w, x.blocks.n_blocks
    k, slot, next_, here = (w.fresh(s) for s in ("k", "slot", "next", "here"))
    w.used -= {k, slot, next_, here}
    first = c.Bin("*", c.Id(slot), c.number(n))
    count = (
        _at(memory.counts, first, c.Id(k))
        if task.is_parallel
        else _at(memory.counts, c.Num("0"), c.Id(k))
    )
    take = (
        c.Declare("int32_t", here, count, constant=True),
        c.Assign(count, c.Id(next_)),
        c.Assign(c.Id(next_), c.Id(here), "+"),
    )
    n_threads: c.CExpr = c.Id("n_threads") if task.is_parallel else c.Num("1")
    start = c.Assign(c.Index(c.Id(memory.starts.name), c.Id(k)), c.Id(next_))
    each = c.For(slot, c.Num("0"), n_threads, 1, take)
    end = c.Assign(c.Index(c.Id(memory.starts.name), c.number(n)), c.Id(next_))
    made = (
        c.Declare("int32_t", next_, c.Num("0")),
        c.For(k, c.Num("0"), c.number(n), 1, (start, each)),
        end,
    )
    if memory.held is None or memory.again is None:
        w.write(c.Scope(made))
        return
    is_valid, again = (
        c.Index(c.Id(b.name), c.Num("0")) for b in (memory.held.is_valid, memory.again)
    )
    w.write(c.Assign(again, c.Un("!", is_valid)))
    w.write(c.If(again, (*made, c.Assign(is_valid, c.Num("1")))))


def _sort(scene: Emission, task: TaskPlan) -> None:
    x, memory = task.sort, scene.scatters[task.index].sort
    assert x is not None and memory is not None
    w, loop = scene.w, task.loops[0].loop
    with w.scope() as body:
        begin, end = part(scene, c.number(loop.extent), task.is_parallel)
        i = w.fresh(loop.name)
        w.used.discard(i)
        block = c.Index(c.Id(memory.blocks.name), c.Id(i))
        count = _at(memory.counts, _own_counts(task, x), block)
        put = c.Assign(c.Index(c.Id(memory.order.name), count), c.CastTo("int32_t", c.Id(i)))
        both = (put, c.Assign(count, c.Num("1"), "+"))
        one: c.CStmt = c.Scope(both)
        w.write(c.For(i, begin, end, 1, (_where_wanted(x, block, one),)))
    if memory.again is None:
        w.write(c.Scope(tuple(body.statements)))
    else:
        w.write(c.If(c.Index(c.Id(memory.again.name), c.Num("0")), tuple(body.statements)))
