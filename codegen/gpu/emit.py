"""Writes one kernel down: loop IR to C syntax, run by all threads of a block.

What loops and tests depend on is the same for all threads of a block, but for the tests around straight-line code: so barriers are
always met by all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ...space.backbone import MID, OUTER
from ...space.targets.target import Target
from ..bodies import BodyWriter
from ..c import csyntax as c
from ..emit import LaunchWriter
from ..loops.ir import Launch, Loop, Node, last_loop_plan
from ..passes.map_grid import AXES
from ..plan import Plan, TaskPlan
from ..scopes import Context
from ..storage import Workspace
from ..vectors import Prelude
from .reductions import GpuReductions
from .scene import GpuScene
from .values import GpuValues


@dataclass(frozen=True)
class Kernel:
    """A kernel's body with its launch configuration."""

    body: tuple[c.CStmt, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0  # that its launch asks for

    @property
    def n_threads(self) -> int:
        """Threads of a block."""
        return prod(self.block)


class KernelWriter(LaunchWriter):
    """Writes one kernel: a launch, or what combines the partial results that a task of it left."""

    scene: GpuScene
    values: GpuValues
    reductions: GpuReductions

    def __init__(
        self,
        plan: Plan,
        launch: Launch,
        target: Target,
        workspace: Workspace,
        prelude: Prelude,
        names: Mapping[str, str],
        index_type: str,
    ) -> None:
        self.may_outline = False
        self.scene = GpuScene(plan, launch, target, workspace, prelude, names, index_type)
        self.values = GpuValues(self.scene)
        self.reductions = GpuReductions(self.scene, self.values)
        self.axes: list[Loop] = []  # loops over blocks

    def kernel(self) -> Kernel:
        """The kernel of the launch."""
        scene = self.scene
        for t in scene.launch.tasks:
            scene.allocate(scene.plan.tasks[t])
        scene.order_threads()
        self.axes = self.block_axes(scene.launch.nodes)
        with scene.w.scope() as body:
            self.children(scene.launch.nodes, Context(is_team=True))
        return Kernel(
            self.opened(tuple(body.statements)),
            _along_axes(-(-n.extent // n.step) for n in reversed(self.axes)),
            _along_axes(scene.shape),
            scene.asks_for_bytes,
        )

    def combining(self, task: TaskPlan, buffers: GpuScene) -> Kernel:
        """The kernel that combines the partial results that `buffers` knows of."""
        self.take_over(task, buffers)
        with self.scene.w.scope() as body:
            blocks = self.reductions.combine_launch(task)
        return self.beside(tuple(body.statements), blocks)

    def starting(self, task: TaskPlan, buffers: GpuScene) -> Kernel:
        """The kernel that sets what blocks add to."""
        self.take_over(task, buffers)
        with self.scene.w.scope() as body:
            blocks = self.reductions.start_launch(task)
        return self.beside(tuple(body.statements), blocks)

    def beside(self, body: tuple[c.CStmt, ...], blocks: int) -> Kernel:
        """A kernel that comes before or after that of the launch."""
        return Kernel(self.opened(body), _along_axes([blocks]), _along_axes(self.scene.shape))

    def take_over(self, task: TaskPlan, buffers: GpuScene) -> None:
        """Knows where a kernel of this launch leaves a task's sums."""
        scene, found = self.scene, buffers.accumulators[task.index]
        scene.accumulators[task.index] = found
        if not scene.adds_to_result(task):
            scene.opened.append(found[0])
            scene.w.used.add(found[0].name)

    def opened(self, body: tuple[c.CStmt, ...]) -> tuple[c.CStmt, ...]:
        """A body after the declarations of what it uses."""
        scene = self.scene
        opening: list[c.CStmt] = [*scene.shared_declarations()]
        opening += [scene.open_buffer(b) for b in scene.opened]
        return (*opening, *scene.thread_declarations(), *body)

    def block_axes(self, nodes: Sequence[Node]) -> list[Loop]:
        """The loops over blocks, outermost first."""
        found = []
        for n in nodes:
            if isinstance(n, Loop) and n.is_parallel:
                found += [n, *self.block_axes(n.children)]
        return found

    def is_among(self, n_threads: int) -> c.CExpr:
        self.scene.uses_tid = True
        return c.Bin("<", c.Id("tid"), c.number(n_threads))

    def loop(self, node: Loop, ctx: Context) -> None:
        """A loop; of blocks, the index of the tile of this one."""
        first = node.members[0]
        if not node.is_parallel:
            super().loop(node, ctx)
            return
        w = self.scene.w
        place = self.axes.index(node)
        axis = AXES[len(self.axes) - 1 - place]
        number = c.CastTo(self.scene.index_type, c.Id(f"blockIdx.{axis}"))
        name = w.fresh(first.loop if node.step == 1 else f"{first.loop}{node.level}")
        w.multiples[name] = node.step
        w.write(
            c.Declare(
                self.scene.index_type, name, c.linear(((number, node.step),), 0), constant=True
            )
        )
        variable = c.Id(name)
        for m in node.members:
            self.scene.blocks[m.task, m.loop] = number
        bound = {(m.task, m.loop, m.level): variable for m in node.members}
        versions = self.versions(node, variable, replace(ctx, variables={**ctx.variables, **bound}))
        for statement in self.tested(node, variable, *versions):
            w.write(statement)

    def inside(self, node: Loop, variable: c.CExpr, ctx: Context) -> None:
        """Where threads share a tile that starts here, each begins at an index of its own."""
        w = self.scene.w
        variables = dict(ctx.variables)
        begun: dict[c.CExpr, c.Id] = {}
        for m in node.members:
            task = self.scene.plan.tasks[m.task]
            p = last_loop_plan(node, self.scene.plan.tasks, m)
            if p is None or not p.is_thread:
                continue
            is_vector = p.is_vector and self.scene.is_full(task, p, ctx)
            step = self.scene.lanes(task) if is_vector else 1
            digit = self.scene.digits[m.task, m.loop][0]
            start = c.linear(((variable, 1), (digit, step)), 0)
            if start not in begun:
                begun[start] = c.Id(w.fresh(m.loop))
                w.multiples[begun[start].name] = step
                name = begun[start].name
                w.write(c.Declare(self.scene.index_type, name, start, constant=True))
            variables[m.task, m.loop, MID] = begun[start]
        self.children(node.children, replace(ctx, variables=variables))
        for x in begun.values():
            w.used.discard(x.name)

    def body(self, task: TaskPlan, ctx: Context) -> None:
        if task.task.is_structured:
            super().body(task, ctx)
            return
        with self.scene.over(task, list(task.loops), ctx) as inner:
            writer = BodyWriter(self.scene.w, self.scene.plan.problem, self.scene.global_array)
            own = {k: x for k, x in inner.variables.items() if k[0] != task.index or k[2] == OUTER}
            for p in task.loops:
                if p.is_thread:
                    own[task.index, p.loop.name, OUTER] = self.scene.start(task, p, inner)
            writer.write(task, own)


def _along_axes(sizes: Iterable[int]) -> tuple[int, int, int]:
    x, y, z = [*sizes, 1, 1, 1][:3]
    return x, y, z
