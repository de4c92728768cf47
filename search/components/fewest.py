"""First candidate with the fewest launches: CP-SAT chooses the tasks that share one, and propagation tests the choice.

The solver has only the pairs of tasks, a master problem of about a dozen tasks. A partition that
propagation rejects becomes a clause: not all of these pairs together. So the first accepted
partition has the fewest launches of all legal ones, as far as propagation and guided completion can
tell and the solver's time suffices (logic-based Benders decomposition, Hooker and Ottosson 2003).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...space import choices as ch
from ...space.candidate import Candidate, Space
from ..learn.neighbourhood import MAX_BACKTRACKS, Neighbourhood

_MOST_PARTITIONS = 64
_EFFORT = 1.0  # about seconds of the solver for a partition; dozens of tasks would take minutes

Pair = tuple[int, int]


def fewest_launches(space: Space, near: Candidate) -> Candidate | None:
    """Returns the implementation with the fewest launches that is found, otherwise as close as possible to `near`.

    It returns None if no two tasks may share a launch, or if none is found.
    """
    root, fused = space.root(), space.variables.fused
    if not isinstance(root, Candidate) or not any(root.is_open(v) for v in fused.values()):
        return None
    from ...space.engine.cpsat import (
        fewest_classes,  # imported here, since OR-tools are slow to load
    )

    same = 1 << ch.SAME_LAUNCH
    may = [pair for pair, v in fused.items() if int(root.domains[v]) & same]
    must = [pair for pair, v in fused.items() if int(root.domains[v]) == same]
    begun_at = [pair for pair, v in fused.items() if int(near.domains[v]) == same]
    refused: list[tuple[Pair, ...]] = []
    neighbourhood = Neighbourhood(space)
    for _ in range(_MOST_PARTITIONS):
        n = len(space.problem.tasks)
        found = fewest_classes(n, may, must, refused, begun_at, _EFFORT)
        if found is None:
            return None
        together, is_proved = found
        begun = _decided(root, together)
        if isinstance(begun, Candidate):
            made = neighbourhood.completed(begun, near, MAX_BACKTRACKS)
            if isinstance(made, Candidate):
                return made
            begun = together
        if not is_proved:  # the solver has no time for another
            return None
        refused.append(tuple(begun))
    return None


def _decided(root: Candidate, together: Sequence[Pair]) -> Candidate | list[Pair]:
    """Returns the candidate in which the pairs `together`, and no others, share a launch.

    If there is none, it returns a list of pairs that cannot all share one.
    """
    at, fused = root, root.space.variables.fused
    for k, pair in enumerate(together):
        made = at.decide(fused[pair], 1 << ch.SAME_LAUNCH)
        if not isinstance(made, Candidate):
            return list(together[: k + 1])
        at = made
    for pair, v in fused.items():
        if pair not in together and at.is_open(v):
            made = at.decide(v, 1 << ch.SEPARATE)
            if not isinstance(made, Candidate):
                return list(together)
            at = made
    return at
