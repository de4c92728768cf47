"""Loops over sorted iterations: colour by colour, block by block, with tiles of the updated arrays for each block."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...kernels.ir.kernel import For, LoopIndex
from ...kernels.ir.walk import children, loads, nested_statements
from ...space.families.sorted_ahead import AHEAD_ITERATIONS
from ..bodies.bodies import BodyWriter
from ..bodies.body_values import TilePlace
from ..bodies.iteration_point import row_strides
from ..loops.ir import Loop
from ..plan.plan import ScatterPlan, TaskPlan
from ..text import csyntax as c
from .domain_cuts import maximum
from .emission import Emission
from .scatter import added, cleared

Statements = tuple[c.CStmt, ...]


@dataclass(frozen=True)
class BlockVariables:
    """C variables of a loop over one block: the block's number, begin and end in the sorted order, and the iteration.

    If several iterations run at once, `iteration` is the position in the sorted order.
    """

    block: c.Id
    begin: c.Id
    end: c.Id
    iteration: c.Id


def places(scene: Emission, loop: Loop) -> BlockVariables:
    """Returns new C variables for a loop that runs block by block."""
    w, name = scene.w, loop.members[0].loop
    stems = (f"{name}_block", f"{name}_begin", f"{name}_end", name)
    return BlockVariables(*(c.Id(w.fresh(stem)) for stem in stems))


def one_block(scene: Emission, task: TaskPlan, at: BlockVariables, body: Statements) -> Statements:
    """Returns the code of one block: clears its tiles, runs its iterations, adds the tiles to their arrays."""
    memory = scene.scatters[task.index]
    assert memory.sort is not None
    tiled = [x for x in task.scatters if x.tile]
    opening: list[c.CStmt] = []
    corners: tuple[c.CExpr, ...] = ()
    if tiled:
        opening, corners = _corners(scene, task, at)
    for x in tiled:
        buffer, origin = memory.tiles[x.array]
        opening += [_origin(x, origin, corners), cleared(scene, buffer, x)]
    k = scene.w.fresh("k")
    scene.w.used.discard(k)
    if task.vector is not None:
        asked = _asked(scene, task, at, c.add(at.iteration, c.Id(k)))
        lanes = c.number(task.vector.inner)
        ahead = (c.For(k, c.Num("0"), lanes, 1, asked),) if asked else ()
        loop = c.For(at.iteration.name, at.begin, at.end, task.vector.inner, (*ahead, *body))
    else:
        number = c.Index(c.Id(memory.sort.order.name), c.Id(k))
        own = c.Declare("long", at.iteration.name, number, constant=True)
        loop = c.For(k, at.begin, at.end, 1, (own, *_asked(scene, task, at, c.Id(k)), *body))
    return (*opening, loop, *(_flush(scene, task, x, corners) for x in tiled))


def _asked(scene: Emission, task: TaskPlan, at: BlockVariables, k: c.CExpr) -> Statements:
    """Returns prefetches of the elements that a later iteration of the sorted order reads at its own iteration number.

    Iterations that follow one another in a block have iteration numbers that are far apart.
    """
    memory, w = scene.scatters[task.index], scene.w
    distance = AHEAD_ITERATIONS[scene.plan.choice("sorted_ahead", task.index)]
    if not distance:
        return ()
    assert memory.sort is not None and task.task.body is not None
    loop = task.loops[0].loop.name
    places: dict[str, c.CExpr] = {}
    later = c.Id(w.fresh(f"{loop}_later"))
    w.used.discard(later.name)
    for s in task.task.body.sites:
        array = scene.plan.problem.array(s.state.name)
        along = [x.affine for x in s.index]
        steps = [dict(a.terms).get(loop, 0) if a is not None else 0 for a in along]
        stride = sum(n * k for n, k in zip(steps, row_strides(array.shape), strict=True))
        if stride and s.op == "load":
            index = c.Bin("*", later, c.number(stride)) if stride > 1 else later
            places.setdefault(array.name, c.Index(scene.global_array(array.name), index))
    places |= {x.name: c.Index(c.Id(x.name), later) for x in memory.sort.kept.values()}
    ahead = c.linear(((k, 1),), distance)
    last = c.Bin("-", at.end, c.Num("1"))
    number = c.Index(c.Id(memory.sort.order.name), c.minimum(ahead, last))
    calls = (c.Evaluate(c.Call(c.PREFETCH, (c.Un("&", x),))) for x in places.values())
    return (c.Declare("long", later.name, number, constant=True), *calls) if places else ()


def in_colours(
    scene: Emission, task: TaskPlan, at: BlockVariables, call: c.CStmt, is_shared: bool
) -> c.CStmt:
    """Returns the loop that makes `call` for all blocks, colour by colour.

    `is_shared`: threads share the blocks of a colour, by their iterations: a block goes to the
    thread in whose part it begins.
    """
    x, memory = task.sort, scene.scatters[task.index].sort
    assert x is not None and x.blocks is not None and memory is not None
    w, per_colour = scene.w, prod(x.blocks.halves)
    colour, first, n = (w.fresh(s) for s in ("colour", "first", "n_here"))
    w.used -= {colour, first, n}
    starts = c.Id(memory.starts.name)

    def start(k: c.CExpr) -> c.CExpr:
        return c.Index(starts, k)

    def blocks_before(k: c.CExpr) -> c.CExpr:
        return k if per_colour == 1 else c.Bin("*", k, c.number(per_colour))

    following = c.Bin("+", c.Id(colour), c.Num("1"))
    if is_shared:
        from_first = c.Bin("-", at.begin, c.Id(first))
        owner = c.Bin("/", c.Bin("*", from_first, c.Id("n_threads")), c.Id(n))
        call = c.If(c.Bin("==", owner, c.Id("tid")), (call,))
    each = (
        c.Declare("long", at.begin.name, start(at.block), constant=True),
        c.Declare("long", at.end.name, start(c.Bin("+", at.block, c.Num("1"))), constant=True),
        c.If(c.Bin("<", at.begin, at.end), (call,)),
    )
    here: Statements = (
        c.For(at.block.name, blocks_before(c.Id(colour)), blocks_before(following), 1, each),
    )
    if is_shared:
        length = c.Bin("-", start(blocks_before(following)), c.Id(first))
        meet = c.If(c.Bin(">", c.Id(colour), c.Num("0")), (c.Barrier(),))
        here = (
            *((meet,) if x.blocks.n_colours > 1 else ()),
            c.Declare("long", first, start(blocks_before(c.Id(colour))), constant=True),
            c.Declare("long", n, length, constant=True),
            *here,
        )
    return c.For(colour, c.Num("0"), c.number(x.blocks.n_colours), 1, here)


# --- tiles -----------------------------------------------------------------------------------


def _corners(
    scene: Emission, task: TaskPlan, at: BlockVariables
) -> tuple[list[c.CStmt], tuple[c.CExpr, ...]]:
    """Declares and returns the least indices that the windows of a block may access, one per moving axis of the window."""
    assert task.sort is not None and task.sort.blocks is not None
    b, w = task.sort.blocks, scene.w
    per_colour, strides = prod(b.halves), row_strides(b.halves)
    made: list[c.CStmt] = []
    corners: list[c.CExpr] = []
    for axis, (half, stride) in enumerate(zip(b.halves, strides, strict=True)):
        along: c.CExpr = c.Num("0")
        if half > 1:
            along = c.Bin("%", c.Bin("/", at.block, c.number(stride)), c.number(half))
        if axis in b.coloured:
            shift = b.coloured.index(axis)
            colour = c.Bin("/", at.block, c.number(per_colour * (1 << shift)))
            bit = c.Bin("%", colour, c.Num("2"))
            along = c.add(c.Bin("*", along, c.Num("2")), bit)
        name = w.fresh(f"corner_{axis}")
        corner = c.Bin("*", along, c.number(b.cells[axis]))
        made.append(c.Declare("long", name, corner, constant=True))
        corners.append(c.Id(name))
    return made, tuple(corners)


def _starts(x: ScatterPlan, corners: tuple[c.CExpr, ...]) -> tuple[c.CExpr, ...]:
    """Returns the index of the tile's first element along each axis of the array."""
    left = iter(corners)
    return tuple(c.number(r.least) if r.base is None else next(left) for r in x.scatter.window)


def _origin(x: ScatterPlan, name: str, corners: tuple[c.CExpr, ...]) -> c.CStmt:
    """Returns the declaration of variable `name`: the flat index of the tile's first element, in the tile's strides.

    Index 0 stands for the array's first element.
    """
    terms = zip(_starts(x, corners), row_strides(x.tile), strict=True)
    whole: c.CExpr = c.Num("0")
    for start, stride in terms:
        if start != c.Num("0"):
            whole = c.add(whole, start if stride == 1 else c.Bin("*", start, c.number(stride)))
    return c.Declare("long", name, whole, constant=True)


def _flush(
    scene: Emission, task: TaskPlan, x: ScatterPlan, corners: tuple[c.CExpr, ...]
) -> c.CStmt:
    """Returns the loop that adds a tile to its array.

    It leaves out elements outside of the array, and the cell that all inactive cells share.
    """
    if x.adding is not None:
        return _look_up_and_add(scene, task, x, x.adding, corners)
    w, array = scene.w, scene.plan.problem.array(x.array)
    buffer, _ = scene.scatters[task.index].tiles[x.array]
    names = [w.fresh(f"at_{axis}") for axis in range(len(x.tile))]
    w.used -= set(names)
    there: c.CExpr = c.Num("0")
    here: c.CExpr = c.Num("0")
    starts = _starts(x, corners)
    for name, start, own, stride in zip(
        names, starts, row_strides(x.tile), row_strides(array.shape), strict=True
    ):
        here = c.add(here, _times(c.Id(name), own))
        there = c.add(there, _times(c.add(start, c.Id(name)), stride))
    place = c.Index(scene.global_array(x.array), there)
    body: c.CStmt = added(scene, x, place, c.Index(c.Id(buffer.name), here))
    n_shared = scene.plan.problem.parts.n_shared(x.array)
    for axis in reversed(range(len(names))):
        n, most = c.number(x.tile[axis]), array.shape[axis]
        is_inside = x.scatter.window[axis].base is None
        end = n if is_inside else c.minimum(n, c.Bin("-", c.number(most), starts[axis]))
        begin: c.CExpr = c.Num("0")
        if n_shared and axis == len(names) - 1:
            begin = maximum(begin, c.Bin("-", c.number(n_shared), starts[axis]))
        body = c.For(names[axis], begin, end, 1, (body,))
    return body


def _look_up_and_add(
    scene: Emission, task: TaskPlan, x: ScatterPlan, adding: For, corners: tuple[c.CExpr, ...]
) -> c.CStmt:
    """Returns the loops `adding`, cut to the cells of the domain that a tile has: an active one gets what the tile holds for it."""
    w, (buffer, origin) = scene.w, scene.scatters[task.index].tiles[x.array]
    writer = BodyWriter(w, scene.plan.problem, scene.global_array)
    writer.v.plain_indices = True
    writer.v.tiles = {x.sums: TilePlace(c.Id(buffer.name), x.tile, c.Id(origin))}
    writer.begin((adding,), task.task.fast_math)
    left, starts = _axes(adding, x.sums), _starts(x, corners)

    def nest(s: For) -> c.CStmt:
        axis, name = left.pop(s.loop), w.fresh(s.loop)
        writer.v.loops[s.loop] = c.Id(name)
        inner = s.body[0]
        if isinstance(inner, For) and inner.loop in left:
            made: Statements = (nest(inner),)
        else:
            made = writer.iteration(s.body)
        w.used.discard(name)
        reach, start = x.scatter.window[axis], starts[axis]
        end: c.CExpr = c.number(reach.largest + 1)
        if reach.base is not None:
            behind = c.linear(((start, 1),), x.tile[axis])
            end = c.minimum(behind, c.number(x.scatter.extents[axis]))
        return c.For(name, start, end, 1, made)

    return nest(adding)


def _axes(adding: For, sums: str) -> dict[str, int]:
    """Returns, by loop, the axis of array `sums` along which the loops `adding` run."""
    every = (e for s in nested_statements((adding,)) for e in children(s))
    found = next(y for e in every for y in loads(e) if y.array == sums)
    return {i.loop: axis for axis, i in enumerate(found.indices) if isinstance(i, LoopIndex)}


def _times(e: c.CExpr, stride: int) -> c.CExpr:
    return e if stride == 1 else c.Bin("*", e, c.number(stride))
