"""Loops over blocks of iterations, colour by colour: no two blocks of one colour update the same row of an array.

One thread colours the blocks greedily, in their order. A word for each row has a bit for each colour of the blocks that update it.
A block for which no colour is left waits for the end, when one thread runs all such blocks.
A kept colouring is made again if a row has changed since the call that made it, so each call finds all rows.
Other tasks, of the same launch or of later ones, may use it too.
"""

from __future__ import annotations

from dataclasses import replace

from ...kernels.analysis.updated_rows import FOUND, kept_name
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.domain import Loop
from ...kernels.ir.kernel import DType
from ..bodies.bodies import BodyWriter
from ..loops.ir import ColourBlocks, FindRows
from ..passes.storage import Buffer, ColourMemory
from ..plan.plan import Colouring, TaskPlan
from ..text import csyntax as c
from .emission import Emission
from .kept_memory import invalidate_if, keeping
from .scatter import part
from .sorted_blocks import BlockVariables, Statements

N_COLOURS = 64  # bits of a word
_NO_ROW = c.Un("-", c.Num("1"))
_ZERO, _ONE = c.Num("0"), c.Num("1")


def place_colouring(scene: Emission, task: TaskPlan, x: Colouring) -> None:
    """Finds the buffers of a task's colouring: allocates them, or takes those of the task that makes the colouring."""
    made, t = scene.workspace.colourings, task.index
    if task.colours:
        scene.colourings[t] = made[t] = _allocated(scene, task, x)
    elif x.maker in scene.launch.tasks:
        scene.colourings[t] = replace(scene.colourings[x.maker], kept={})
    else:
        scene.colourings[t] = _renamed(scene, made[x.maker])


def _renamed(scene: Emission, memory: ColourMemory) -> ColourMemory:
    """Returns the buffers of an earlier launch's colouring under new names."""

    def new(b: Buffer) -> Buffer:
        return replace(b, name=scene.w.fresh(b.name))

    kept = memory.held
    buffers = [new(b) for b in memory.buffers]
    if kept is not None:
        kept = replace(kept, buffers=tuple(buffers), base=scene.w.fresh(kept.base))
    rows, taken, colours, order, ends, *_ = buffers
    return ColourMemory(rows, taken, colours, order, ends, held=kept)


def _allocated(scene: Emission, task: TaskPlan, x: Colouring) -> ColourMemory:
    """Allocates the buffers of a colouring, one behind the other."""
    extent = task.loops[0].loop.extent
    n_blocks = -(-extent // x.n_iterations)

    def of(stem: str, n_elements: int, dtype: DType = DType.i32) -> Buffer:
        return scene.buffer(f"{task.task.name}_{stem}", dtype, n_elements, is_private=False)

    made = ColourMemory(
        rows=of("rows", extent * x.rows_per_iteration),
        taken=of("taken", x.n_rows, DType.u64),
        colours=of("colours", n_blocks),
        order=of("order", n_blocks),
        ends=of("ends", N_COLOURS + 2),
    )
    kept = {v.name: of(f"{v.name}_kept", extent, v.dtype) for v in x.inspector.kept}
    made = replace(made, kept=kept)
    if not x.is_kept:
        return made
    return replace(made, held=keeping(scene, task.task.name, made.buffers))


# --- phases and loops ------------------------------------------------------------------------


def write_colouring(scene: Emission, phase: FindRows | ColourBlocks, task: TaskPlan) -> None:
    """Writes a phase of a colouring, before the loop of its task."""
    memory = scene.colourings[task.index]
    assert task.colouring is not None
    if isinstance(phase, FindRows):
        _find_rows(scene, task, task.colouring, memory)
    else:
        made = _coloured(scene, task, task.colouring, memory)
        if memory.held is None:
            scene.w.write(c.Scope(made))
            return
        is_valid = c.Index(c.Id(memory.held.is_valid.name), _ZERO)
        scene.w.write(c.If(c.Un("!", is_valid), (*made, c.Assign(is_valid, _ONE))))


def one_block(task: TaskPlan, at: BlockVariables, body: Statements) -> Statements:
    """Returns the code of one block: its iterations one by one, or a vector of them at once."""
    step = task.vector.inner if task.vector is not None else 1
    assert isinstance(at.iteration, c.Id)
    return (c.For(at.iteration.name, at.begin, at.end, step, body),)


def in_colours(scene: Emission, task: TaskPlan, at: BlockVariables, call: c.CStmt) -> c.CStmt:
    """Returns the loop that makes `call` for all blocks, colour by colour. Threads share the blocks of a colour evenly."""
    x, memory, w = task.colouring, scene.colourings[task.index], scene.w
    assert x is not None
    colour, first, n, k = (w.fresh(s) for s in ("colour", "first", "n_here", "k"))
    w.used -= {colour, first, n, k}
    before = _ends(memory, c.Bin("-", c.Id(colour), _ONE))
    starts = c.Cond(c.Bin(">", c.Id(colour), _ZERO), before, _ZERO)
    begin = c.Bin("*", c.Id(at.block.name), c.number(x.n_iterations))
    behind = c.linear(((at.begin, 1),), x.n_iterations)
    extent = c.number(task.loops[0].loop.extent)
    each = (
        c.Declare("long", at.block.name, c.Index(c.Id(memory.order.name), c.Id(k)), constant=True),
        c.Declare("long", at.begin.name, begin, constant=True),
        c.Declare("long", at.end.name, c.minimum(behind, extent), constant=True),
        call,
    )
    here = (
        c.If(c.Bin(">", c.Id(colour), _ZERO), (c.Barrier(),)),
        c.Declare("long", first, starts, constant=True),
        c.Declare("long", n, c.Bin("-", _ends(memory, c.Id(colour)), c.Id(first)), constant=True),
        c.For(
            k,
            c.Bin("+", c.Id(first), _share(c.Id(colour), c.Id(n), c.Id("tid"))),
            c.Bin("+", c.Id(first), _share(c.Id(colour), c.Id(n), c.Bin("+", c.Id("tid"), _ONE))),
            1,
            each,
        ),
    )
    return c.For(colour, _ZERO, _ends(memory, c.number(N_COLOURS + 1)), 1, here)


def _share(colour: c.CExpr, n: c.CExpr, thread: c.CExpr) -> c.CExpr:
    """Returns the place, among the `n` blocks of a colour, where a thread's blocks begin. Thread 0 has all that have no colour."""
    even = c.Bin("/", c.Bin("*", n, thread), c.Id("n_threads"))
    alone = c.Cond(c.Bin(">", thread, _ZERO), n, _ZERO)
    return c.Cond(c.Bin("<", colour, c.number(N_COLOURS)), even, alone)


def _ends(memory: ColourMemory, at: c.CExpr) -> c.CExpr:
    """Returns the end of a colour in the order of blocks. The last element is the number of colours."""
    return c.Index(c.Id(memory.ends.name), at)


# --- rows ------------------------------------------------------------------------------------


def _find_rows(scene: Emission, task: TaskPlan, x: Colouring, memory: ColourMemory) -> None:
    """Writes the computation of all rows. One that differs from an earlier call's makes the kept colouring invalid."""
    w, loop, n = scene.w, task.loops[0].loop, x.rows_per_iteration
    i, k, differs = w.fresh(loop.name), w.fresh("k"), w.fresh("differs")
    with w.scope() as each:
        found, changed = _inspected(scene, x, loop, c.Id(i), memory)
        rest = c.Index(
            c.Id(memory.rows.name), c.Bin("+", c.Bin("*", c.Id(i), c.number(n)), c.Id(k))
        )
        clear: Statements = (c.Assign(rest, _NO_ROW),)
        if memory.held is not None:
            w.write(c.Assign(c.Id(differs), c.Bin("!=", changed, _ZERO), "|"))
            clear = (c.Assign(c.Id(differs), c.Bin("!=", rest, _NO_ROW), "|"), *clear)
        w.write(c.For(k, found, c.number(n), 1, clear))
    with w.scope() as body:
        begin, end = part(scene, c.number(loop.extent), task.is_parallel)
        if memory.held is not None:
            w.write(c.Declare("int", differs, _ZERO))
        w.write(c.For(i, begin, end, 1, tuple(each.statements)))
        if memory.held is not None:
            w.write(invalidate_if(c.Id(differs), memory.held))
    w.used -= {i, k, differs}
    w.write(c.Scope(tuple(body.statements)))


def _inspected(
    scene: Emission, x: Colouring, loop: Loop, i: c.CExpr, memory: ColourMemory
) -> tuple[c.CExpr, c.CExpr]:
    """Writes the inspector of an iteration; returns the number of its rows, and whether one has changed."""

    own = {kept_name(v): memory.kept[v.name] for v in x.inspector.kept} | {FOUND: memory.rows}

    def array_of(name: str) -> c.CExpr:
        return c.Id(own[name].name) if name in own else scene.global_array(name)

    problem, shape = scene.plan.problem, (loop.extent, x.rows_per_iteration)
    stored = [ArrayInfo(FOUND, DType.i32, shape, "temp")]
    stored += [ArrayInfo(kept_name(v), v.dtype, (loop.extent,), "temp") for v in x.inspector.kept]
    writer = BodyWriter(scene.w, replace(problem, arrays=(*problem.arrays, *stored)), array_of)
    writer.v.plain_indices = True
    writer.v.loops = {loop.name: i}
    writer.declare_locals(x.inspector.statements)
    writer.statements(x.inspector.statements)
    found = writer.v.locals
    return found[x.inspector.n_found].x, found[x.inspector.changed].x


# --- colours ---------------------------------------------------------------------------------


def _coloured(scene: Emission, task: TaskPlan, x: Colouring, memory: ColourMemory) -> Statements:
    """Returns the code that colours all blocks, and orders them by colour."""
    w, extent = scene.w, task.loops[0].loop.extent
    n_blocks, n = -(-extent // x.n_iterations), x.rows_per_iteration
    names = [w.fresh(s) for s in ("block", "colour", "next", "here", "k")]
    w.used -= {*names}
    block, colour, following, here, k = map(c.Id, names)
    ends, taken = c.Id(memory.ends.name), c.Index(c.Id(memory.taken.name), k)
    own = c.Index(c.Id(memory.colours.name), block)
    last = c.Index(ends, c.number(N_COLOURS + 1))
    count = c.Index(ends, colour)
    order = c.Index(c.Id(memory.order.name), c.Index(ends, own))
    start = (
        c.Declare("int32_t", here.name, count, constant=True),
        c.Assign(count, following),
        c.Assign(following, here, "+"),
        c.If(c.Bin(">", here, _ZERO), (c.Assign(last, c.Bin("+", colour, _ONE)),)),
    )
    return (
        c.For(k.name, _ZERO, c.number(x.n_rows), 1, (c.Assign(taken, _ZERO),)),
        c.For(k.name, _ZERO, c.number(N_COLOURS + 2), 1, (c.Assign(c.Index(ends, k), _ZERO),)),
        c.For(
            block.name,
            _ZERO,
            c.number(n_blocks),
            1,
            _one_coloured(scene, x, memory, block, n, extent),
        ),
        c.Declare("int32_t", following.name, _ZERO),
        c.For(colour.name, _ZERO, c.number(N_COLOURS + 1), 1, start),
        c.For(
            block.name,
            _ZERO,
            c.number(n_blocks),
            1,
            (c.Assign(order, c.CastTo("int32_t", block)), c.Assign(c.Index(ends, own), _ONE, "+")),
        ),
    )


def _one_coloured(
    scene: Emission, x: Colouring, memory: ColourMemory, block: c.Id, n: int, extent: int
) -> Statements:
    """Returns the code that gives a block the first colour that no block before it has on any of its rows."""
    w = scene.w
    names = [w.fresh(s) for s in ("seen", "free", "k", "first", "end", "own")]
    w.used -= {*names}
    seen, free, k, first, end, own = map(c.Id, names)
    row = c.Index(c.Id(memory.rows.name), k)
    word = c.Index(c.Id(memory.taken.name), row)
    size = x.n_iterations * n
    behind = c.minimum(c.linear(((first, 1),), size), c.number(extent * n))

    def each(change: c.CStmt) -> c.CStmt:
        is_row = c.Bin("<", c.CastTo("uint32_t", row), c.CastTo("uint32_t", c.number(x.n_rows)))
        return c.For(k.name, first, end, 1, (c.If(is_row, (change,)),))

    bit = c.Bin("&", free, c.Bin("+", c.Un("~", free), _ONE))
    found = c.Cond(free, c.Call("__builtin_ctzll", (free,)), c.number(N_COLOURS))
    return (
        c.Declare("long", first.name, c.Bin("*", block, c.number(size)), constant=True),
        c.Declare("long", end.name, behind, constant=True),
        c.Declare("uint64_t", seen.name, _ZERO),
        each(c.Assign(seen, word, "|")),
        c.Declare("uint64_t", free.name, c.Un("~", seen), constant=True),
        each(c.Assign(word, bit, "|")),
        c.Declare("int32_t", own.name, found, constant=True),
        c.Assign(c.Index(c.Id(memory.colours.name), block), own),
        c.Assign(c.Index(c.Id(memory.ends.name), own), _ONE, "+"),
    )
