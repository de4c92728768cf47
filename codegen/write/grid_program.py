"""Lowers a plan for a GPU to a program: its kernels in order, each with its launch grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...kernels.ir.domain import Loop
from ...kernels.ir.repeats import repeats_of, with_steps
from ..bodies.cuda_memory import CudaMemory
from ..bodies.cuda_vectors import CudaHelpers
from ..bodies.emitter import Builder
from ..bodies.vectors import Prelude
from ..loops.ir import Launch
from ..passes.map_grid import blocks_along, partial_blocks
from ..passes.nests import nests
from ..passes.pipeline import PASSES, Passes, run
from ..passes.storage import Workspace, place_temporaries
from ..plan.plan import Plan, TaskPlan
from ..plan.summary import decisions, named_in, sentence
from ..text import csyntax as c
from ..text.free_variables import (
    identifiers,
    parameters,
    thread_parameters,
    threads_meet,
    without_unused,
)
from ..text.names import RESERVED_CUDA, c_names
from ..text.source import KernelLaunch
from ..text.types import type_name
from .emission import Emission
from .grid_compaction import steps_of as compaction_steps
from .grid_emission import BlockCounters, KernelScene
from .grid_settling import steps_of as settling_steps
from .grid_writer import GridKernel, KernelWriter
from .program_text import LoweredProgram, arguments_of

_RESTRICT = "__restrict__ "
_INT_LIMIT = (1 << 31) - (1 << 24)  # elements that an int can count, with room for a tile more


def _n_results(task: TaskPlan) -> int:
    return prod(p.loop.extent for p in task.loops if not p.loop.is_reduction)


class _Kernels:
    def __init__(self, plan: Plan, passes: Passes) -> None:
        self.plan = plan
        self.prelude = Prelude(CudaHelpers())
        self.workspace = Workspace(1)
        placed = place_temporaries(self.plan, self.workspace)
        self.offsets = {array.name: offset for array, offset in placed}
        self.loops = [run(passes.loops, nests(plan, roots), plan) for roots in plan.launches]
        self.counters = BlockCounters.of(plan, self.loops, self.workspace)
        self.workspace.hold()
        problem = self.plan.problem
        self.names = c_names(named_in(problem), RESERVED_CUDA)
        placed_arrays = (a for a in problem.arrays if a.role != "temp" or a.name in self.offsets)
        sizes = [a.size_bytes // a.dtype.size_bytes for a in placed_arrays]
        sizes += [p.loop.extent + p.n_blocks * p.tile for t in plan.tasks for p in t.loops]
        in_bands = ([p for p in t.loops if p.is_parallel] for t in plan.tasks if t.band > 1)
        sizes += [prod(map(blocks_along, loops)) for loops in in_bands]  # of the numbers of blocks
        sizes += [partial_blocks(t) * _n_results(t) for t in plan.tasks if t.partials]
        self.index_type = "int" if max(sizes, default=0) < _INT_LIMIT else "long long"
        self.functions: list[c.Function] = []
        self.configured: list[tuple[str, GridKernel, tuple[str, ...], tuple[int, ...]]] = []
        self.around: list[tuple[Loop, ...]] = []  # of each kernel the loops that repeat it
        self.owners: list[int] = []  # and the component

    def program(self) -> LoweredProgram:
        if self.counters.buffer is not None:
            self.add_emptied_counters(self.loops[0])
        for launch in self.loops:
            tasks = [self.plan.tasks[t] for t in launch.tasks]
            n_before = len(self.functions)
            if any(task.is_of_grid for task in tasks):
                (task,) = tasks
                self.add_steps(launch, task)
            else:
                self.add_launch(launch, tasks)
            self.workspace.release()
            n_added = len(self.functions) - n_before
            self.around += [tasks[0].task.repeats] * n_added
            self.owners += [self.plan.component_of(tasks[0].index)] * n_added
        return LoweredProgram(
            problem=self.plan.problem,
            functions=tuple(self.functions),
            calls=(),
            temporaries=(),
            workspace_bytes=self.workspace.size_bytes,
            prelude=self.prelude.text(),
            streams=False,
            intrinsics=False,
            n_threads=max((kernel.n_threads for _, kernel, *_ in self.configured), default=1),
            decisions=decisions(self.plan, "blocks"),
            names=self.names,
            has_entry=False,
            launches=self.launches(),
            index_type=self.index_type,
        )

    def add_emptied_counters(self, first: Launch) -> None:
        """Adds the kernel that empties the counters of blocks, once and before all steps."""
        self.add(self.writer(first).emptying(), "empties the counters of blocks")
        self.around.append(())
        self.owners.append(self.plan.component_of(first.tasks[0]))

    def add_launch(self, launch: Launch, tasks: Sequence[TaskPlan]) -> None:
        """Adds the kernel of a launch, with those that begin and end its sums over blocks."""
        writer = self.writer(launch)
        kernel = writer.main()
        for task in tasks:
            if task.is_atomic and not writer.kernel.is_set_already(task):
                started = self.writer(launch).starting(task, writer.kernel)
                self.add(started, f"{task.task.name}: sets what the blocks add to")
        comment = "; ".join(sentence(self.plan, t) for t in launch.tasks)
        self.add(kernel, comment, tuple(launch.tasks))
        for task in tasks:
            is_left = task.is_split and not task.by_last_block
            if is_left and not writer.kernel.adds_to_result(task):
                combined = self.writer(launch).combining(task, writer.kernel)
                self.add(combined, f"{task.task.name}: combines what the blocks left")

    def add_steps(self, launch: Launch, task: TaskPlan) -> None:
        """Adds the kernels of a task whose lists are made, or whose pools are reclaimed, by many threads."""
        steps_of = settling_steps if task.settling == "ALL_BLOCKS" else compaction_steps
        for step, what in steps_of(task):
            kernel = self.writer(launch).stepping(step)
            comment = f"{task.task.name}: {what}" if what else sentence(self.plan, task.index)
            self.add(kernel, comment, () if what else (task.index,))

    def writer(self, launch: Launch) -> KernelWriter:
        w = Builder(self.prelude, self.names, CudaMemory())
        scene = Emission(self.plan, launch, self.workspace, w)
        return KernelWriter(KernelScene(scene, self.index_type, self.counters))

    def add(self, kernel: GridKernel, comment: str, tasks: tuple[int, ...] = ()) -> None:
        """Adds a kernel that computes `tasks`. Temporary arrays become pointers into the workspace."""
        name = f"launch_{len(self.functions)}"
        body = without_unused(kernel.body)
        seen, stored = identifiers(body)
        # Behind a barrier a thread finds what others wrote, but where one assignment is all there is, whose elements are a thread's
        # own. A compiler that takes such a pointer for the only one reads before the barrier.
        plans = [self.plan.tasks[t] for t in tasks]
        in_helper = kernel.stays or any(t.by_last_block for t in plans)
        is_one = len(plans) <= 1 and all(t.task.is_structured for t in plans)
        meet = in_helper or (threads_meet(body) and not is_one)
        opening = []
        for a in self.plan.problem.arrays:
            own = self.names[a.name]
            if a.name in self.offsets and own in seen:
                kind = type_name(a.dtype, 0)
                place = c.Bin("+", c.Id("workspace"), c.number(self.offsets[a.name]))
                const = "" if own in stored else "const "
                restrict = "" if own in stored and meet else _RESTRICT
                start = c.CastTo(f"{kind} *", place)
                opening.append(c.Declare(f"{const}{kind} *{restrict}", own, start))
        body = (*opening, *body)
        temporary = {self.names[name] for name in self.offsets}
        find = thread_parameters if meet else parameters
        found = find(self.plan.problem, body, self.names, _RESTRICT)
        named = tuple(p for p in found if p.name not in temporary)
        comment = f"{comment}; {_configuration(kernel)}"
        self.functions.append(
            c.Function(name, named, body, False, comment, block_threads=kernel.n_threads)
        )
        self.configured.append((name, kernel, tuple(p.name for p in named), tasks))

    def launches(self) -> tuple[KernelLaunch, ...]:
        """Returns all kernel launches in order of execution. A repeated kernel occurs several times."""
        once, repeats = self.launches_once(), repeats_of(self.around)
        found = []
        for k, steps in with_steps(len(once), repeats):
            given = {self.names[name]: step for name, step in steps.items()}
            names = self.configured[k][2]
            found.append(replace(once[k], steps=tuple(given[p] for p in names if p in given)))
        return tuple(found)

    def launches_once(self) -> tuple[KernelLaunch, ...]:
        found = arguments_of(self.plan.problem, self.workspace.size_bytes)
        place = {self.names.get(a.name, a.name): k for k, a in enumerate(found)}
        return tuple(
            KernelLaunch(
                kernel=name,
                grid=kernel.grid,
                block=kernel.block,
                shared_bytes=kernel.shared_bytes,
                arguments=tuple(place[p] for p in names if p in place),
                tasks=tasks,
                component=owner,
                stays=kernel.stays,
            )
            for (name, kernel, names, tasks), owner in zip(
                self.configured, self.owners, strict=True
            )
        )


def _configuration(kernel: GridKernel) -> str:
    """Returns the launch configuration of a kernel in CUDA's terms: grid, block, bytes of shared memory."""
    shared = f", {kernel.shared_bytes} bytes of shared memory" if kernel.shared_bytes else ""
    return f"grid {kernel.grid}, block {kernel.block}{shared}"


def grid_program(plan: Plan, passes: Passes | None = None) -> LoweredProgram:
    """Returns the program of a plan for a GPU.

    `passes`: the passes over its loop IR, by default those of GPUs.
    """
    return _Kernels(plan, passes or PASSES[plan.target.kind]).program()
