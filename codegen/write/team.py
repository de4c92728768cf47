"""Launches of a CPU team as C syntax: their buffers, and the C expressions of their threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from math import prod

from ...space.backbone import Flow
from ..bodies.emitter import Builder
from ..bodies.memory import CMemory
from ..bodies.vectors import Prelude
from ..loops.ir import (
    ColourBlocks,
    CopyPhase,
    FindRows,
    Loop,
    Owner,
    PackPhase,
    ScatterPhase,
    SortByLength,
    Strips,
    SumPhase,
)
from ..passes import storage
from ..passes.nests import nests
from ..passes.pipeline import PASSES, Passes, run
from ..plan.plan import Plan, PlannedNode, TaskPlan, tasks_of
from ..plan.summary import sentence
from ..text import csyntax as c
from ..text.free_variables import parameters, thread_parameters, without_unused
from ..text.types import type_name
from .accumulators import Accumulators
from .coloured_blocks import place_colouring, write_colouring
from .context import Context
from .emission import Emission
from .kept_memory import opened, release, take, validate
from .launch_writer import LaunchWriter
from .length_order import place_length_order, write_length_order
from .pack_phases import PackWriter
from .packed import PackedOperands
from .planned_values import Values
from .program_text import Launches
from .register_sums import update
from .scatter import allocate_scatters, write_scatter
from .sums import SumWriter
from .threads import Statements, Threads


class TeamThreads(Threads):
    """Writer of what the threads of a CPU team do in a launch: their shares of loops, sums, scatters and packed copies."""

    index_type = "long"

    def __init__(self, scene: Emission, operands: PackedOperands, sums: Accumulators) -> None:
        self.scene, self.operands, self.sums = scene, operands, sums

    def is_among(self, n_threads: int) -> c.CExpr:
        assert n_threads == 1, "of a team one thread is alone"
        return c.Bin("==", c.Id("tid"), c.Num("0"))

    def block_along(self, loop: Loop) -> c.CExpr:
        raise AssertionError("a CPU has no blocks of threads")

    def meet_grid(self) -> None:
        raise AssertionError("a CPU has no blocks of threads")

    @contextmanager
    def inside(
        self, loop: Loop, variable: c.CExpr, ctx: Context
    ) -> Iterator[tuple[Statements, Context]]:
        yield (), ctx

    def update(self, task: TaskPlan, ctx: Context) -> None:
        update(self.sums, task, ctx)

    def phase(
        self,
        phase: SumPhase | PackPhase | CopyPhase | ScatterPhase | SortByLength,
        task: TaskPlan,
        ctx: Context,
    ) -> None:
        if isinstance(phase, SumPhase):
            SumWriter(self.sums).write(phase, task, ctx)
        elif isinstance(phase, FindRows | ColourBlocks):
            write_colouring(self.scene, phase, task)
        elif isinstance(phase, ScatterPhase):
            write_scatter(self.scene, phase, task)
        elif isinstance(phase, SortByLength):
            write_length_order(self.scene, task)
        else:
            PackWriter(self.operands).write(phase, task, ctx)

    def ahead(self, loop: Loop, written: c.For) -> Statements:
        raise AssertionError("threads of a team load nothing ahead into registers")

    def at_strip(self, strips: Strips, n_strips: int, ctx: Context) -> None:
        PackWriter(self.operands).at_strip(strips, n_strips, ctx)


def team_launches(
    plan: Plan, prelude: Prelude, names: dict[str, str], passes: Passes | None
) -> Launches:
    """Returns the lowered launches of a CPU plan: runs the passes (by default those of CPUs), then writes each launch."""
    passes = passes or PASSES[plan.target.kind]
    workspace = storage.Workspace(plan.cores, passes.apart_bytes)
    temporaries = storage.place_temporaries(plan, workspace)
    workspace.hold()
    found = written_launches(plan, plan.launches, prelude, names, passes, workspace)
    return replace(found, temporaries=temporaries)


def written_launches(
    plan: Plan,
    launches: Sequence[tuple[PlannedNode, ...]],
    prelude: Prelude,
    names: dict[str, str],
    passes: Passes,
    workspace: storage.Workspace,
) -> Launches:
    """Returns some launches of a plan, numbered from 0.

    Their functions have the problem's temporary arrays as parameters.
    """
    functions, calls = [], []
    last_uses = _last_uses(plan, launches)
    for k, roots in enumerate(launches):
        launch = run(passes.loops, nests(plan, roots), plan)
        name = f"launch_{k}"
        w = Builder(prelude, names, CMemory(), knows_alignment=launch.is_parallel)
        writer = team_writer(Emission(plan, launch, workspace, w), name)
        body, after = written(writer)
        sorts = _kept_sorts(writer.scene)
        made = {t: x.held for t, x in workspace.colourings.items() if x.held is not None}
        taken = (*sorts, *(made[t] for t in launch.tasks if t in made))
        left = (*sorts, *(x for t, x in made.items() if last_uses[t] == k))
        before = (*set_counters(writer.scene), *chain.from_iterable(map(take, taken)))
        filled = (x.held for x in writer.scene.length_orders.values() if x.held is not None)
        after = (*after, *chain.from_iterable(map(validate, filled)))
        after = (*after, *chain.from_iterable(map(release, left)))
        named = parameters(plan.problem, (*before, *body, *after), names)
        functions.extend(writer.closed)
        comment = "; ".join(sentence(plan, t) for t in launch.tasks)
        own = thread_parameters(plan.problem, body, names) if launch.is_parallel else ()
        for make in passes.syntax:
            body = make(body, own if launch.is_parallel else named)
            after = make(after, named)
        functions.append(
            c.Function(
                name,
                named,
                body,
                launch.is_parallel,
                comment,
                after=after,
                thread_parameters=own,
                aligned=tuple(w.aligned),
                vector_bytes=max(w.aligned.values(), default=0),
                before=before,
            )
        )
        calls.append((name, tuple(p.name for p in named)))
        if any(t in workspace.colourings and last_uses[t] > k for t in launch.tasks):
            workspace.hold()
        workspace.release()
    return Launches(tuple(functions), tuple(calls), workspace_bytes=workspace.size_bytes)


def _last_uses(plan: Plan, launches: Sequence[tuple[PlannedNode, ...]]) -> dict[int, int]:
    """Returns, for each task that makes a colouring, the number of the last launch that uses it."""
    last: dict[int, int] = {}
    for k, roots in enumerate(launches):
        found = (plan.tasks[t].colouring for root in roots for t in tasks_of(root))
        last |= {x.maker: k for x in found if x is not None}
    return last


def _kept_sorts(scene: Emission) -> tuple[storage.KeptMemory, ...]:
    """Returns the memory of the launch's sorts that later calls use again."""
    sorts = (*(x.sort for x in scene.scatters.values()), *scene.length_orders.values())
    return tuple(x.held for x in sorts if x is not None and x.held is not None)


def team_writer(scene: Emission, name: str) -> LaunchWriter:
    """Returns the writer of a CPU launch whose C function is called `name`. Allocates the launch's buffers."""
    for t in scene.launch.tasks:
        allocate(scene, scene.plan.tasks[t])
    operands = PackedOperands(scene)
    values = Values(scene, operands)
    threads = TeamThreads(scene, operands, Accumulators(scene, values))
    return LaunchWriter(scene, values, threads, name)


def written(writer: LaunchWriter) -> tuple[tuple[c.CStmt, ...], tuple[c.CStmt, ...]]:
    """Returns the body of a launch's function, and the statements that run once its team is done."""
    scene = writer.scene
    context = Context(is_team=scene.launch.is_parallel)
    with scene.w.scope() as body:
        writer.children(scene.launch.nodes, context)
    colourings = {m.order.name: m for m in scene.colourings.values()}  # each once
    held = [
        (m.buffers if m.order in scene.opened else (m.order, m.ends), m.held)
        for m in colourings.values()
    ]
    held += [(x.buffers, x) for x in _kept_sorts(scene)]
    apart = {b.name for buffers, _ in held for b in buffers}
    opening = [open_buffer(scene, b) for b in scene.opened if b.name not in apart]
    opening += chain.from_iterable(opened(*x) for x in held)
    whole = (*opening, *scene.partition_declarations(), *body.statements)
    scene.w.knows_alignment = False
    with scene.w.scope() as after:
        writer.children(scene.launch.after, Context(is_team=False))
    return without_unused(whole), without_unused(tuple(after.statements))


def allocate(scene: Emission, task: TaskPlan) -> None:
    """Allocates a task's buffers: accumulators in memory, operand blocks, and thread arrays for readers of its value."""
    t = task.index
    array = scene.plan.problem.array(task.task.target.array)
    acc = scene.launch.accumulators.get(t)
    if acc is not None and acc.owner is not Owner.REGISTERS:
        layout = storage.AccumulatorLayout.of(task, acc, array)
        private = acc.owner in (Owner.THREAD, Owner.PARTIALS) and scene.launch.is_parallel
        if acc.in_result:
            buffer = storage.Buffer(
                scene.w.names[array.name], array.dtype, prod(array.shape), 0, False
            )
        else:
            stem = f"{array.name}_sum"
            buffer = scene.buffer(stem, task.task.dtype, layout.n_elements, private)
        scene.accumulators[t] = (buffer, layout)
    if task.shared:
        scene.shared[t] = own_array(scene, task, task.shared, f"{array.name}_row")
    for name in dict.fromkeys(f.array for f in task.kept):
        flows = tuple(f for f in task.kept if f.array == name)
        scene.kept[t, name] = own_array(scene, task, flows, f"{name}_kept")
    for operand in task.copies:
        source = scene.plan.problem.array(operand.access.array)
        if operand.is_window:
            window = storage.WindowLayout.of(task, operand, source)
            stem, private = f"{source.name}_halo", scene.launch.is_parallel
            buffer = scene.buffer(stem, source.dtype, window.n_elements, private)
            scene.windows[t, operand.site] = buffer, window
            continue
        packed = storage.CopyLayout.of(task, operand, scene.nest_order(task, operand))
        buffer = scene.buffer(
            f"{source.name}_packed",
            source.dtype,
            packed.n_elements * task.stages[operand.site],
            scene.launch.is_parallel and operand.site not in task.by_team,
        )
        scene.copies[t, operand.site] = (buffer, packed)
    if task.scatters:
        allocate_scatters(scene, task)
    if task.colouring is not None:
        place_colouring(scene, task, task.colouring)
    if task.by_length is not None:
        place_length_order(scene, task, task.by_length)


def own_array(
    scene: Emission, task: TaskPlan, flows: tuple[Flow, ...], stem: str
) -> tuple[storage.Buffer, storage.SharedLayout]:
    """Returns an array in which each thread stores values for the readers of `flows`, and its layout."""
    array = scene.plan.problem.array(flows[0].array)
    layout = storage.SharedLayout.of(task, flows, array, scene.merged)
    private = scene.launch.is_parallel
    return scene.buffer(stem, array.dtype, layout.n_elements, private), layout


def set_counters(scene: Emission) -> tuple[c.CStmt, ...]:
    """Returns statements that reset the counters of a launch before its team starts."""
    made: list[c.CStmt] = []
    for b in scene.counters:
        place = c.Bin("+", c.Id("workspace"), c.number(b.offset_bytes))
        first = c.Index(c.CastTo(f"{type_name(b.dtype, 0)} *", place), c.Num("0"))
        made.append(c.Assign(first, c.Num("0")))
    return tuple(made)


def open_buffer(scene: Emission, b: storage.Buffer) -> c.CStmt:
    place = c.number(b.offset_bytes)
    if b.is_private:
        place = c.linear(((c.Id("tid"), b.stride_bytes),), b.offset_bytes)
    # Other threads too write partial results and what a team packs: no pointer to these may claim to be the only one.
    is_partial = any(
        b is held and scene.launch.accumulators[t].owner is Owner.PARTIALS
        for t, (held, _) in scene.accumulators.items()
    )
    is_of_team = any(
        b is held and site in scene.plan.tasks[t].by_team
        for (t, site), (held, _) in scene.copies.items()
    )
    is_of_team |= b in scene.counters
    kind = type_name(b.dtype, 0)
    start = c.CastTo(f"{kind} *", c.Bin("+", c.Id("workspace"), place))
    is_looked_at = any(b is held for m in scene.scatters.values() for held in m.shared)
    is_looked_at |= any(b in (m.lengths, m.order) for m in scene.length_orders.values())
    is_sole = not (is_partial or is_of_team or is_looked_at)
    return c.Declare(f"{kind} *{'restrict ' if is_sole else ''}", b.name, start)
