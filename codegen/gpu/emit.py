"""Writes one kernel down: loop tree to C syntax, run by all threads of a block.

What loops and tests depend on is the same for all threads of a block, but for the tests around straight-line code: so barriers are
always met by all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from ...space.backbone import MID, OUTER
from ...space.targets.target import Target
from ..bodies import BodyWriter
from ..c import csyntax as c
from ..emit import LaunchWriter
from ..plan import Plan, TaskPlan
from ..scopes import Context
from ..storage import Workspace
from ..tree import Launch, LoopNode, Meet, Phase, TreeNode, last_loop_plan
from ..vectors import Prelude
from .nest import Transfer
from .reductions import GpuReductions
from .scene import AXES, GpuScene
from .values import GpuValues

ALL, ANY = -1, 0  # threads of a node: all of the block, or any that need it


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
        self.axes: list[LoopNode] = []  # loops over blocks

    def kernel(self) -> Kernel:
        """The kernel of the launch."""
        scene = self.scene
        for t in scene.launch.tasks:
            scene.allocate(scene.plan.tasks[t])
        scene.order_threads()
        self.axes = self.block_axes(scene.launch.roots)
        with scene.w.scope() as body:
            self.children(scene.launch.roots, Context(is_team=True))
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

    def block_axes(self, nodes: list[TreeNode]) -> list[LoopNode]:
        """The loops over blocks, outermost first."""
        found = []
        for n in nodes:
            if isinstance(n, LoopNode) and n.is_parallel:
                found += [n, *self.block_axes(n.children)]
        return found

    # --- which threads run what ---

    def children(self, nodes: list[TreeNode], ctx: Context) -> None:
        """Nodes in order; runs of nodes for which a block has more threads than their tasks are put under a test."""
        k = 0
        while k < len(nodes):
            n = self.threads_of(nodes[k])
            end = k + 1
            if not ctx.is_team or n in (ALL, ANY, self.scene.n_threads):
                self.node(nodes[k], ctx)
            else:
                while end < len(nodes) and self.threads_of(nodes[end]) == n:
                    end += 1
                self.some(nodes[k:end], n, ctx)
            k = end

    def some(self, nodes: list[TreeNode], n_threads: int, ctx: Context) -> None:
        """The first threads of the block run these; register tiles are declared for all, since nodes that follow may use them."""
        self.scene.hoisted = []
        with self.scene.w.scope() as body:
            for n in nodes:
                self.node(n, replace(ctx, is_team=False))
        hoisted, self.scene.hoisted = self.scene.hoisted, None
        for declaration in hoisted:
            self.scene.w.write(declaration)
        self.scene.uses_tid = True
        test = c.Bin("<", c.Id("tid"), c.number(n_threads))
        self.scene.w.write(c.If(test, tuple(body.statements)))

    def threads_of(self, node: TreeNode) -> int:
        if isinstance(node, Meet):
            return ALL
        if isinstance(node, Phase):
            if node.kind in ("copy", "tree") or isinstance(node, Transfer):
                return ALL
            return ANY if node.kind == "reset" else self.scene.plan.tasks[node.task].n_threads
        assert isinstance(node, LoopNode), "no task of a GPU is late"
        if node.is_parallel:
            return ALL
        inside = {self.threads_of(n) for n in node.children} - {ANY}
        return inside.pop() if len(inside) == 1 else ALL

    # --- nodes ---

    def node(self, node: TreeNode, ctx: Context) -> None:
        if isinstance(node, Phase) and node.kind == "tree":
            self.reductions.tree(self.scene.plan.tasks[node.task], ctx)
        elif isinstance(node, Transfer):
            self.values.transfer(node, ctx)
        else:
            super().node(node, ctx)

    def loop(self, node: LoopNode, ctx: Context) -> None:
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

    def inside(self, node: LoopNode, variable: c.CExpr, ctx: Context) -> None:
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
