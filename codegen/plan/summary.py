"""Summary of a plan for the header of generated text: the names that occur in it, and its decisions in words."""

from __future__ import annotations

from ...kernels.ir.task import Problem
from ...kernels.ir.text import show_value
from ...space.backbone import Operand
from ...space.families import scatter
from .nest_plan import NestPlan, Step, WavePlan
from .plan import Plan, ScatterPlan, TaskPlan, tasks_of
from .schedules import Wave

_SCHEDULES = {
    "BLOCKED": [],
    "CYCLIC": ["in turn"],
    "GUIDED": ["parts of what is left"],
    "BALANCED": ["equal work of rows"],
}
_SCATTERS = {
    scatter.BY_ATOMICS: "atomically",
    scatter.PRIVATE: "by copies of it",
    scatter.SORTED: "by slabs",
    scatter.COLOUR: "by blocks",
    scatter.TILE: "by tiles",
    scatter.GREEDY: "by coloured blocks",
}


def named_in(problem: Problem) -> list[str]:
    """Returns the names of a problem's arrays, scalars and outer (time) steps, without duplicates."""
    named = [a.name for a in problem.arrays] + [p.name for p in problem.scalars]
    return named + [r.index for r in problem.repeats]


def sentence(plan: Plan, t: int) -> str:
    """Returns the formula of task `t` as text for people."""
    task = plan.tasks[t].task
    if task.value is None:
        return task.name
    return f"{task.name}: {task.target.array} {'=' if task.op is None else task.op} {show_value(task.value)}"


def decisions(plan: Plan, parallel: str = "parallel") -> tuple[str, ...]:
    """Returns the decisions of a plan in words, for the header of the text.

    `parallel`: the word for a distributed outer loop ("parallel" on a CPU). A standalone kernel is
    described statement by statement.
    """
    if plan.is_standalone:
        return tuple(_step(s) for t in plan.tasks for s in t.steps)
    from ...space.catalogue import PHRASES

    lines = []
    for r in plan.repeats:
        some = (
            f"launch {r.first}" if r.stop == r.first + 1 else f"launches {r.first} to {r.stop - 1}"
        )
        until = f" at most, until {r.until}" if r.until else ""
        lines.append(f"{some}: {r.count} times{until}")
    for told in PHRASES:
        found = plan.of_trees(told.kind)
        lines += [f"{site.name}: {told.short[x]}" for site, x in found if x in told.short]
    for k, _ in enumerate(plan.launches):
        lines.append(
            f"launch {k}: " + ", ".join(plan.tasks[t].task.name for t in launch_tasks(plan, k))
        )
    for t in plan.tasks:
        parts = []
        for p in t.loops:
            levels = [parallel if p.is_parallel else "loop"] + _SCHEDULES[p.schedule]
            levels += [f"{p.n_blocks} in turn"] * (p.n_blocks > 0)
            if p.mid > 1:
                levels.append(f"{p.mid} {'threads' if p.is_thread else 'steps'}")
            if p.inner > 1:
                levels.append(f"{'vector' if p.is_vector else 'unroll'} {p.inner}")
            parts.append(f"{p.loop.name} ({', '.join(levels)})")
        extras = [f"{_packs(o)} {o.site}{_how_packed(t, o)}" for o in t.copies]
        extras += dict.fromkeys(f"prefetches {ahead.words}" for ahead in t.prefetches)
        extras += ["prefetches its sums"] * t.asks_for_sums
        if len(t.threads) > 1:
            extras.append(f"neighbouring threads along {t.threads[0]}")
        if t.warp_tile:
            extras.append(warps_of(t))
        extras += ["adds up atomically"] * t.is_atomic
        extras += ["the last block combines"] * t.by_last_block
        extras += [said for p in PHRASES if (said := p.short.get(plan.choice(p.kind, t.index)))]
        extras += [
            f"{place} {said}"
            for p in PHRASES
            for place, value in plan.places(p.kind, t.index)
            if (said := p.short.get(value))
        ]
        extras += [f"scatters to {x.array} {_SCATTERS[x.how]}{_blocks(x)}" for x in t.scatters]
        if t.colouring is not None:
            verb = "colours" if t.colours else "takes the colours of"
            extras.append(f"{verb} blocks of {t.colouring.n_iterations}")
        extras += [f"{x.loop} in vectors of {x.width}" for x in t.ranges]
        extras += [_wavefronts(t.wave)] if t.wave is not None else []
        if t.shift is not None:
            behind = plan.tasks[t.shift.producer].task.name
            extras.append(f"one step of {t.shift.shared[1]} late, beside {behind}")
        extras += [f"keeps {f.array}" for f in t.kept]
        extras += [f"loads {array} {hint}" for array, hint in t.load_hints.items()]
        extras += ["streams"] * t.is_streamed + ["stays on chip"] * (not t.is_stored)
        lines.append(f"{t.task.name}: " + "; ".join([", ".join(parts), *extras]))
    return tuple(lines)


def warps_of(task: TaskPlan) -> str:
    """Returns the description of warps that are rectangles of threads."""
    sizes, names = map(str, task.warp_tile.values()), list(task.warp_tile)
    return f"warps of {' x '.join(sizes)} threads along {' and '.join(names)}"


def _step(step: Step) -> str:
    """Returns the description of one statement of a standalone kernel."""
    if isinstance(step, WavePlan):
        skewed = f"{_wavefronts(step.wave)}, skewed by {step.wave.sweep.skew}"
        return f"line {step.where.line}: {_who(step.threads > 1)}, {skewed}"
    if not isinstance(step, NestPlan):
        return f"line {step.where.line}: {_who(False)}"
    parts = [_who(step.is_shared)]
    if step.levels > 1:
        parts.append(f"{step.levels} loops as one")
    parts += _SCHEDULES[step.partition.schedule]
    parts += [f"{s.op} into {s.array or s.local} by thread" for s in step.sums]
    parts += ["atomic updates"] * bool(step.atomics)
    parts += [f"updates of {array} in copies of threads" for array in step.partition.copied]
    parts += [
        f"the last {n} iterations of a part at the end" for n in [step.partition.overlap] if n
    ]
    parts += [f"{x.loop} in vectors of {x.width}" for x in step.ranges]
    if step.prefetch is not None:
        parts.append(f"prefetches blocks {step.prefetch.distance} ahead")
    if step.lanes is not None:
        parts.append(f"{step.lanes.loop} in {step.lanes.width} lanes")
    return f"line {step.loop.where.line}: {', '.join(parts)}"


def _who(is_shared: bool) -> str:
    return "threads" if is_shared else "one thread"


def _blocks(x: ScatterPlan) -> str:
    return "" if x.blocks is None else f" of {' x '.join(map(str, x.blocks.cells))}"


def _wavefronts(wave: Wave) -> str:
    order = "diagonals" if wave.along_diagonals else "rows"
    return f"wavefronts of tiles of {wave.rows} x {wave.columns} in {order}"


def _packs(o: Operand) -> str:
    return "copies borders of" if o.is_window else "packs"


def _how_packed(task: TaskPlan, o: Operand) -> str:
    n, layout = task.stages[o.site], task.layouts.get(o.site, "PLAIN")
    stages = f" in {n} stages" if n > 1 else ""
    team = " by all threads together" if o.site in task.by_team else ""
    vectors = f", read in vectors of {task.fragments[o.site]}" if o.site in task.fragments else ""
    return stages + team + (f" ({layout})" if layout != "PLAIN" else "") + vectors


def launch_tasks(plan: Plan, k: int) -> list[int]:
    """Returns the tasks of launch number `k`, in order of execution."""
    return [t for root in plan.launches[k] for t in tasks_of(root)]
