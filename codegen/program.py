"""Program: what a complete candidate means, before it is printed, and what both kinds of lowering say in one way."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels.ir.effects import arrays_written
from ..kernels.ir.task import ArrayInfo, Problem
from ..kernels.ir.text import show_value
from ..space.backbone import Operand
from .c import csyntax as c
from .c.source import Argument, KernelLaunch
from .passes.storage import ALIGNMENT_BYTES, Workspace
from .plan import Plan, TaskPlan, tasks_of


@dataclass(frozen=True)
class Program:
    """What a complete candidate means: functions in the order in which they run, helpers, and the workspace they share."""

    problem: Problem
    functions: tuple[c.Function, ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...]
    temporaries: tuple[tuple[ArrayInfo, int], ...]  # with their offsets in the workspace
    workspace_bytes: int
    prelude: str
    streams: bool
    intrinsics: bool
    n_threads: int
    decisions: tuple[str, ...]
    names: dict[str, str]  # identifiers of arrays and scalars
    defined: tuple[str, ...] = ()  # names that C text of it defines for its file
    has_entry: bool = True  # a function that runs all others; kernels are launched from outside
    launches: tuple[KernelLaunch, ...] = ()  # of kernels
    index_type: str = "long"  # of loop variables
    may_fail: bool = False  # its statements may assert something


def arguments(program: Program) -> tuple[Argument, ...]:
    """The argument vector of a program."""
    return arguments_of(program.problem, program.workspace_bytes)


def arguments_of(problem: Problem, workspace_bytes: int) -> tuple[Argument, ...]:
    """The user's arrays, the scalars, and a workspace where one is needed."""
    found = [
        Argument(a.name, "array", a.dtype.value, a.shape)
        for a in problem.arrays
        if a.role != "temp"
    ]
    found += [Argument(s.name, "scalar", s.dtype.value, ()) for s in problem.scalars]
    if workspace_bytes:
        size = workspace_bytes + ALIGNMENT_BYTES
        found.append(Argument("workspace", "workspace", "uint8", (size,)))
    return tuple(found)


def _is_in_memory(plan: Plan, array: ArrayInfo) -> bool:
    """Whether a temporary is stored by some task, or filled by a body."""
    return any(
        array.name in arrays_written(t.task) and (t.is_stored or not t.task.is_structured)
        for t in plan.tasks
    )


def place_temporaries(plan: Plan, workspace: Workspace) -> tuple[tuple[ArrayInfo, int], ...]:
    """The temporaries that are in memory, each with its offset in the workspace."""
    placed = []
    for array in plan.problem.arrays:
        if array.role == "temp" and _is_in_memory(plan, array):
            n = array.size_bytes // array.dtype.size_bytes
            buffer = workspace.allocate(array.name, array.dtype, n, is_private=False)
            placed.append((array, buffer.offset_bytes))
    return tuple(placed)


def sentence(plan: Plan, t: int) -> str:
    """What a task computes, for people."""
    task = plan.tasks[t].task
    if task.value is None:
        return task.name
    return f"{task.name}: {task.target.array} {'=' if task.op is None else task.op} {show_value(task.value)}"


def decisions(plan: Plan, parallel: str = "parallel") -> tuple[str, ...]:
    """The decisions in words, for the header of the text; `parallel` is the word for outer dims that are shared out."""
    lines = []
    for k, _ in enumerate(plan.launches):
        lines.append(
            f"launch {k}: " + ", ".join(plan.tasks[t].task.name for t in launch_tasks(plan, k))
        )
    for t in plan.tasks:
        parts = []
        for p in t.loops:
            levels = [parallel if p.is_parallel else "loop"] + ["in turn"] * p.is_cyclic
            if p.mid > 1:
                levels.append(f"{p.mid} {'threads' if p.is_thread else 'steps'}")
            if p.inner > 1:
                levels.append(f"{'vector' if p.is_vector else 'unroll'} {p.inner}")
            parts.append(f"{p.loop.name} ({', '.join(levels)})")
        extras = [f"packs {o.access.array}{_how_packed(t, o)}" for o in t.copies]
        extras += dict.fromkeys(f"prefetches {ahead.words}" for ahead in t.prefetches)
        extras += ["prefetches its sums"] * t.asks_for_sums
        if len(t.threads) > 1:
            extras.append(f"neighbouring threads along {t.threads[0]}")
        extras += ["adds up atomically"] * t.is_atomic
        if t.shift is not None:
            behind = plan.tasks[t.shift.producer].task.name
            extras.append(f"one step of {t.shift.shared[1]} late, beside {behind}")
        extras += [f"keeps {f.array}" for f in t.kept]
        extras += [f"loads {array} {hint}" for array, hint in t.load_hints.items()]
        extras += ["streams"] * t.is_streamed + ["stays on chip"] * (not t.is_stored)
        lines.append(f"{t.task.name}: " + "; ".join([", ".join(parts), *extras]))
    return tuple(lines)


def _how_packed(task: TaskPlan, o: Operand) -> str:
    n, layout = task.stages[o.access.array], task.layouts.get(o.access.array, "PLAIN")
    stages = f" in {n} stages" if n > 1 else ""
    team = " by all threads together" if o.access.array in task.by_team else ""
    return stages + team + (f" ({layout})" if layout != "PLAIN" else "")


def launch_tasks(plan: Plan, k: int) -> list[int]:
    """Tasks of a launch, in order."""
    return [t for root in plan.launches[k] for t in tasks_of(root)]
