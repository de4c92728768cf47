"""Counts, for one call of an implementation, its launches, its starts of thread teams, and its barriers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..space.backbone import MID
from ..space.candidate import Candidate
from ..space.targets.kind import CPU, GPU
from .loops.ir import Barrier, GridBarrier, InBlocks, Launch, Loop, Node, Schedule, has_parallel
from .lower import lower
from .passes.pipeline import launches_of
from .plan.candidates import plan_of
from .plan.nest_plan import has_team
from .plan.plan import Plan


class Starts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of launches, of launches that a team runs, and of barriers inside launches, in one call.

    A barrier counts as often as threads of a team or block synchronise there. Barriers inside a
    tree over warps do not count.
    """

    n_launches: int
    n_teams: int | None  # None on a GPU, where every launch is a grid of blocks
    n_barriers: int


def count_starts(candidate: Candidate) -> Starts:
    """Returns the numbers of launches, teams and barriers in one call of a complete candidate."""
    plan = plan_of(candidate)
    if plan.is_standalone:
        runs = [t.task.n_runs for t in plan.tasks]
        teams = (n * sum(map(has_team, t.steps)) for n, t in zip(runs, plan.tasks, strict=True))
        return Starts(sum(runs), sum(teams), 0)
    launches = launches_of(plan, plan.target)
    n_launches, n_teams = _STARTS[plan.target.kind](plan, launches)
    n_barriers = sum(_runs(plan, x) * _meetings(plan, x.nodes) for x in launches)
    return Starts(n_launches, n_teams, n_barriers)


def _teams(plan: Plan, launches: Sequence[Launch]) -> tuple[int, int | None]:
    runs = [_runs(plan, x) for x in launches]
    return sum(runs), sum(n * x.is_parallel for n, x in zip(runs, launches, strict=True))


def _grids(plan: Plan, _: Sequence[Launch]) -> tuple[int, int | None]:
    """Returns the number of launches on a GPU, and None for teams.

    Kernels that initialise or combine results count too.
    """
    return len(lower(plan).launches), None


def _runs(plan: Plan, launch: Launch) -> int:
    """Number of times that one call runs a launch."""
    return plan.tasks[launch.tasks[0]].task.n_runs


def _meetings(plan: Plan, nodes: Sequence[Node]) -> int:
    n = 0
    for node in nodes:
        if isinstance(node, Barrier | GridBarrier):
            n += 1
        elif isinstance(node, InBlocks):
            n += max(0, node.n_colours - 1) * has_parallel(node)
        elif isinstance(node, Loop):
            n += _trips(plan, node) * _meetings(plan, node.children)
    return n


def _trips(plan: Plan, node: Loop) -> int:
    """Number of iterations of a loop node per visit, in a full tile."""
    first = node.members[0]
    if node.level == MID:
        return plan.tasks[first.task].loop(first.loop).mid
    if node.schedule is Schedule.GRID:
        return 1  # each block runs one
    n_tiles = -(-node.extent // node.step)
    return -(-n_tiles // max(1, node.n_blocks))


_STARTS: Mapping[str, Callable[[Plan, Sequence[Launch]], tuple[int, int | None]]] = {
    CPU: _teams,
    GPU: _grids,
}
