"""Triangular domains: loops of a CPU skip the tiles in which a task has no iterations (kernels/analysis/domain_bounds.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...kernels.analysis.domain_bounds import Cut, branch_cuts, cuts_of
from ..loops import ir as loop_ir
from ..plan.plan import Plan

_CUT = (loop_ir.Schedule.SEQUENTIAL, loop_ir.Schedule.BLOCKED, loop_ir.Schedule.CYCLIC)


def cut_to_triangles(launch: loop_ir.Launch, plan: Plan) -> loop_ir.Launch:
    """Restricts the loops of each triangular task to tiles with iterations.

    A parallel loop is restricted before it is distributed, by constraints on its own index and on
    outer (time) steps only. Loops around barriers are left alone: barrier placement assumes that a
    loop runs at least once. So are the loops of a task whose operands are packed ahead: each
    iteration packs a part that another one needs.
    """
    cuts = {t: cuts_of(plan.tasks[t].task) for t in launch.tasks}
    ahead = {t for t, _ in launch.buffers}
    able = {t: found for t, found in cuts.items() if found and t not in ahead}
    if not able:
        return launch
    return replace(launch, nodes=_cut(launch.nodes, frozenset(), able, plan))


def _cut(
    nodes: Sequence[loop_ir.Node],
    above: frozenset[str],
    able: dict[int, tuple[Cut, ...]],
    plan: Plan,
) -> tuple[loop_ir.Node, ...]:
    made: list[loop_ir.Node] = []
    for n in nodes:
        if not isinstance(n, loop_ir.Loop):
            made.append(n)
            continue
        tasks = {p.task for p in loop_ir.phases_of(n)}
        t = next(iter(tasks), -1)
        within, name = None, loop_ir.loop_of(n, t)
        if len(tasks) == 1 and t in able and name:
            within = _within(n, name, t, above, able[t], plan)
        inside = above | {name} if len(tasks) == 1 else above
        if len(tasks) > 1:
            inside = above | {m.loop for m in n.members}
        made.append(replace(n, within=within, children=_cut(n.children, inside, able, plan)))
    return tuple(made)


def _within(
    n: loop_ir.Loop, name: str, t: int, above: frozenset[str], cuts: tuple[Cut, ...], plan: Plan
) -> loop_ir.Within | None:
    task = plan.tasks[t].task
    steps = frozenset(loop.name for loop in task.steps)
    if n.schedule not in _CUT or n.is_last or n.strips is not None:
        return None
    if any(isinstance(x, loop_ir.Loop) and loop_ir.has_parallel(x) for x in n.children) or _meets(
        n.children
    ):
        return None
    if n.is_parallel:
        if task.is_reduction:  # sums of a team are where all of the loop is shared out
            return None
        cuts, above = tuple(c for c in cuts if c.loops <= steps | {name}), steps
    else:
        above = above | steps
    # A result without any term is stored, too: a loop of results leaves out only what is no term of reductions above it.
    summed = {x.name for x in task.loops if x.is_reduction}
    unknown = summed - above - {name} if name not in summed else set()
    here = tuple(
        c
        for c in cuts
        if abs(c.affine.coefficient(name)) == 1 and above & c.loops and not unknown & c.loops
    )
    if not here:
        return None
    branch = branch_cuts(task)
    inner = {loop_ir.loop_of(x, t) for x in loop_ir.loops_in(n.children)}
    splits = tuple(c for c in branch if c in cuts and not c.loops & inner and name in c.loops)
    return loop_ir.Within(here, splits if _are_decided(n, t, above, branch) else ())


def _are_decided(n: loop_ir.Loop, t: int, above: frozenset[str], branch: Sequence[Cut]) -> bool:
    """True if each constraint of a branch can be tested at the innermost loop of the nest that it contains.

    `n`: the outermost loop of the nest. `above`: loops around it, which have split their own
    constraints already.
    """
    inside = [(loop_ir.loop_of(x, t), x) for x in (n, *loop_ir.loops_in(n.children))]
    for c in branch:
        own = [(name, x) for name, x in inside if name in c.loops]
        name, loop = own[-1] if own else ("", n)
        is_able = loop.schedule in _CUT and not loop.is_last and loop.strips is None
        if own and not (is_able and abs(c.affine.coefficient(name)) == 1):
            return False
        if not own and len(c.loops - above) > 0:
            return False
    return True


def _meets(nodes: Sequence[loop_ir.Node]) -> bool:
    """True if the nodes contain a barrier, or run for a previous iteration (`Late`)."""
    return any(
        isinstance(n, loop_ir.Barrier | loop_ir.Late)
        or (isinstance(n, loop_ir.Loop | loop_ir.Alone) and _meets(n.children))
        for n in nodes
    )
