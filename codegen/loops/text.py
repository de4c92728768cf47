"""Text form of the loop IR: one line per node, in order of execution; stable, since golden files hold it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...kernels.ir.text import show_value
from ...space.backbone import LEVEL_NAMES, Operand
from ..plan.plan import Member, Plan
from . import ir as loop_ir


def show_launch(launch: loop_ir.Launch, plan: Plan) -> str:
    """Returns the text of a launch: its executor, its accumulators, its nodes."""
    who = {
        loop_ir.Runs.ONE_THREAD: "one thread",
        loop_ir.Runs.TEAM: "a team",
        loop_ir.Runs.GRID: "a grid",
    }
    lines = [f"launch of {who[launch.runs]}"]
    for t, sums in launch.accumulators.items():
        live = ", ".join(f"{name} {n}" for name, n in sums.extents.items())
        place = "the result" if sums.in_result else sums.owner.name.lower()
        lines.append(f"  sums of {_task(plan, t)} in {place}" + (f": {live}" if live else ""))
    for (t, site), b in launch.buffers.items():
        slices = f"{b.chunks} slices of {b.chunk} {b.along} for each tile of {b.across}"
        lines.append(f"  two blocks of {site} of {_task(plan, t)} along {b.holder}: {slices}")
    lines += _lines(plan, launch.nodes, 1)
    if launch.after:
        lines += ["  when the team is done", *_lines(plan, launch.after, 2)]
    return "\n".join(lines) + "\n"


def _lines(plan: Plan, nodes: Sequence[loop_ir.Node], depth: int) -> Iterator[str]:
    for n in nodes:
        yield "  " * depth + _line(plan, n)
        if isinstance(n, loop_ir.Loop | loop_ir.Late | loop_ir.Alone | loop_ir.InBlocks):
            yield from _lines(plan, n.children, depth + 1)


def _line(plan: Plan, node: loop_ir.Node) -> str:
    match node:
        case loop_ir.Loop():
            return _loop(plan, node)
        case loop_ir.Late(loop):
            return f"for the iteration of {_member(plan, loop.members[0])} before"
        case loop_ir.InBlocks(task, n_colours):
            return f"blocks of {_task(plan, task)}, {n_colours or 'few'} colours"
        case loop_ir.Alone(n_threads):
            return "one thread alone" if n_threads == 1 else f"{n_threads} threads"
        case loop_ir.Barrier():
            return "barrier"
        case loop_ir.GridBarrier():
            return "barrier of the grid"
        case loop_ir.TileBody(task):
            return f"body of {_task(plan, task)}"
        case loop_ir.JoinedBodies(tasks):
            return f"one body of {', '.join(_task(plan, t) for t in tasks)}"
        case (
            loop_ir.PackBlock(t, o)
            | loop_ir.PackFirstBlock(t, o)
            | loop_ir.OpenBlock(t, o)
            | loop_ir.PackRest(t, o)
        ):
            return f"{_words(node)} {_operand(plan, t, o)}"
        case (
            loop_ir.StartCopies(copies)
            | loop_ir.AwaitCopies(copies)
            | loop_ir.AdvanceCopies(copies)
        ):
            return f"{_words(node)} {', '.join(_copy(plan, x) for x in copies)}"
        case _:
            return f"{_words(node)} of {_task(plan, node.task)}"


def _loop(plan: Plan, n: loop_ir.Loop) -> str:
    names = " = ".join(_member(plan, m) for m in n.members)
    words = [] if n.schedule is loop_ir.Schedule.SEQUENTIAL else [n.schedule.name.lower()]
    words += [f"{n.n_blocks} blocks"] * (n.n_blocks > 0)
    words += [f"in bands of {n.band}"] * (n.band > 1)
    words += ["loads a step ahead"] * n.loads_ahead
    words += [f"units of {n.unit}"] * (n.unit not in (0, n.step))
    words += [f"to {show_value(x)} at most" for x in n.ends]
    words += ["the last iteration"] * n.is_last
    words += ["within its triangle"] * (n.within is not None)
    if n.strips is not None:
        packed = ", ".join(_operand(plan, t, o) for t, o in n.strips.packs)
        words.append(f"in strips of {n.strips.length}, packs a slice of {packed} before each")
    inside = "" if n.level == 0 else "inside "
    return ", ".join([f"for {names} {inside}{n.extent} by {n.step}", *words])


def _words(node: loop_ir.Node) -> str:
    """Returns the name of a phase in words, for its line."""
    name = type(node).__name__
    return "".join(f" {x.lower()}" if x.isupper() else x for x in name).strip()


def _task(plan: Plan, t: int) -> str:
    return plan.tasks[t].task.name


def _member(plan: Plan, m: Member) -> str:
    return f"{_task(plan, m.task)}.{m.loop}.{LEVEL_NAMES[m.level]}"


def _operand(plan: Plan, t: int, operand: Operand) -> str:
    return f"{operand.site} of {_task(plan, t)}"


def _copy(plan: Plan, x: loop_ir.Copy) -> str:
    return f"{_operand(plan, x.task, x.operand)} in {x.stages} stages"
