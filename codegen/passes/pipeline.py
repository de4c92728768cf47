"""Pass pipelines: the list of passes for each kind of target, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ...space.targets.target import Target
from ..loops.ir import Launch
from ..loops.verify import verify
from ..plan.plan import Plan, PlannedNode
from ..text import csyntax as c
from ..text.addresses import share_addresses
from .barriers import place_block_barriers, place_team_barriers
from .dynamic_extents import end_loops
from .grid_barriers import place_grid_barriers
from .joining import join_bodies
from .length_orders import place_length_orders
from .map_grid import map_grid, share_block
from .map_team import end_team, leave_alone, map_team, share_evenly
from .nests import nests
from .packing import place_block_copies, place_blocks
from .reductions import place_block_sums, place_sums
from .register_stages import load_ahead
from .scatters import place_scatters
from .shared_places import share_places
from .shifting import shift_late
from .storage import APART_BYTES
from .tails import cut_elements, cut_rows
from .triangles import cut_to_triangles

Pass = Callable[[Launch, Plan], Launch]
SyntaxPass = Callable[[tuple[c.CStmt, ...], tuple[c.Parameter, ...]], tuple[c.CStmt, ...]]


@dataclass(frozen=True)
class Passes:
    """A pass pipeline: passes on the loop IR, then passes on the C syntax of a function's body (with its parameters).

    `apart_bytes`: unused bytes of the workspace behind each thread's private buffers, a multiple of
    ALIGNMENT_BYTES.
    """

    loops: tuple[Pass, ...]
    syntax: tuple[SyntaxPass, ...] = ()
    apart_bytes: int = APART_BYTES

    def without(self, *left_out: Pass | SyntaxPass) -> Passes:
        """Returns the pipeline without the passes `left_out`. Programs must be correct without these."""
        loops = tuple(p for p in self.loops if p not in left_out)
        return replace(self, loops=loops, syntax=tuple(p for p in self.syntax if p not in left_out))


CPU = Passes(
    loops=(
        map_team,
        end_loops,
        share_evenly,
        place_sums,
        place_blocks,
        place_scatters,
        place_length_orders,
        place_team_barriers,
        shift_late,
        end_team,
        leave_alone,
        cut_rows,
        join_bodies,
        cut_to_triangles,
    ),
    syntax=(share_addresses,),
)
GPU = Passes(
    loops=(
        map_grid,
        end_loops,
        place_block_sums,
        place_block_copies,
        place_grid_barriers,
        share_places,
        place_block_barriers,
        share_block,
        cut_elements,
        load_ahead,
    )
)
PASSES = {"cpu": CPU, "gpu": GPU}
_verifies = False


def run(passes: Sequence[Pass], launch: Launch, plan: Plan) -> Launch:
    """Returns the launch after all passes.

    Inside the context `verifying` each pass is followed by the verifier.
    """
    for make in passes:
        launch = make(launch, plan)
        if _verifies:
            verify(launch, plan)
    return launch


def loops_of(plan: Plan, roots: tuple[PlannedNode, ...], target: Target) -> Launch:
    """Returns the loop IR of one launch of a plan after all passes of the target."""
    return run(PASSES[target.kind].loops, nests(plan, roots), plan)


def launches_of(plan: Plan, target: Target) -> tuple[Launch, ...]:
    """Returns the loop IR of all launches of a plan."""
    return tuple(loops_of(plan, roots, target) for roots in plan.launches)


@contextmanager
def verifying() -> Iterator[None]:
    """Context in which the verifier runs after every pass.

    An ill-formed tree raises an error with its first fault.
    """
    global _verifies
    before, _verifies = _verifies, True
    try:
        yield
    finally:
        _verifies = before
