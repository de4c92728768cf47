"""Node expansion: propagates, bounds and prunes children, for nodes of the tree and for candidates below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...space.candidate import DeadEnd
from .. import events as ev
from ..candidate import SearchCandidate
from ..node import CLOSED_BOUND, CLOSED_CONSTRAINT, CLOSED_EXHAUSTED, Node
from .exploration import Exploration


@dataclass(frozen=True, slots=True)
class Live:
    """Children below the cut, as parallel lists.

    `cut_floor_ns`: least bound of the children at or above the cut; inf if there are none.
    """

    bounds_ns: list[float]
    prices_ns: list[float]  # the same, and more where more is expected: what rollouts weigh them by
    candidates: list[SearchCandidate]
    cut_floor_ns: float
    why: str  # of a dead end among them
    is_partial: bool = False  # values were left untried


def live_children(
    exploration: Exploration, candidate: SearchCandidate, bound_ns: float, limit: int | None = None
) -> Live:
    """Returns the bounded children below the cut of a candidate outside the tree; pruned ones are only counted.

    `limit`: number of values to try; more are tried only while none of them is live.
    """
    choice = exploration.guidance.next_choice(candidate)
    if limit is None:
        return _sift(exploration, candidate.expand(choice), bound_ns)
    values = exploration.rng.permutation(np.asarray(candidate.values(choice))).tolist()
    live = Live([], [], [], math.inf, "")
    floor_ns = math.inf
    while values and not live.candidates:
        some, values = values[:limit], values[limit:]
        live = _sift(exploration, [(v, candidate.decide(choice, 1 << v)) for v in some], bound_ns)
        floor_ns = min(floor_ns, live.cut_floor_ns)
    return replace(live, cut_floor_ns=floor_ns, is_partial=bool(values))


def _sift(
    exploration: Exploration,
    children: Sequence[tuple[int, SearchCandidate | DeadEnd]],
    bound_ns: float,
) -> Live:
    bounds_ns: list[float] = []
    prices_ns: list[float] = []
    candidates: list[SearchCandidate] = []
    bound, cut_ns = exploration.oracle.bound, exploration.cut_ns
    floor_ns, why = math.inf, ""
    for _, child in children:
        if isinstance(child, DeadEnd):
            exploration.tally.rollout_csp += 1
            why = child.why
            exploration.tally.refused[why] += 1
            continue
        child_ns = bound(child)
        if child_ns < bound_ns:
            child_ns = bound_ns  # monotone along the path
        if child_ns < cut_ns:
            bounds_ns.append(child_ns)
            prices_ns.append(
                child_ns
                if exploration.guidance.expected is None
                else _price_ns(exploration, child, child_ns)
            )
            candidates.append(child)
        else:
            exploration.tally.rollout_bound += 1
            floor_ns = min(floor_ns, child_ns)
    return Live(bounds_ns, prices_ns, candidates, floor_ns, why)


def _price_ns(exploration: Exploration, child: SearchCandidate, bound_ns: float) -> float:
    """Returns the expected time of a child, at most half way from its bound to the cut: a prediction must exclude nothing."""
    assert exploration.guidance.expected is not None
    dear_ns = 0.5 * (bound_ns + exploration.cut_ns)
    return max(bound_ns, min(exploration.guidance.expected(child), dear_ns))


def expand(exploration: Exploration, node: Node, tag: ev.Tag) -> list[Node]:
    """Opens the children of a frontier node of the tree, and returns the live ones.

    The node is closed if none is live.
    """
    candidate = exploration.tree.candidate(node)
    choice = exploration.guidance.next_choice(candidate)
    opened: list[tuple[int, float, SearchCandidate, int]] = []
    listed: list[ev.Child] = []
    choice_name = ""
    for value, child in candidate.expand(choice):
        node_id = exploration.tree.new_id()
        choice_name, name = exploration.guidance.names(choice, value)
        if isinstance(child, DeadEnd):
            exploration.tally.pruned_csp += 1
            why = child.why
            exploration.tally.refused[why] += 1
            listed.append(ev.Child(node_id, name, None, CLOSED_CONSTRAINT, why))
            continue
        bound_ns = max(node.bound_ns, float(exploration.oracle.bound(child)))
        pruned = bound_ns >= exploration.cut_ns
        listed.append(
            ev.Child(
                node_id,
                name,
                bound_ns * exploration.pruning.factor,
                CLOSED_BOUND if pruned else "",
                "",
            )
        )
        if pruned:
            exploration.tally.pruned_bound += 1
            exploration.pruning.note(bound_ns, Node(node_id, node, choice, value, bound_ns, None))
        else:
            opened.append((value, bound_ns, child, node_id))
    exploration.tally.explored += 1
    exploration.last_tag = tag
    parent_id = -1 if node.parent is None else node.parent.node_id
    exploration.events.append(
        ev.NodeExpanded(
            node.node_id,
            parent_id,
            node.depth,
            node.bound_ns * exploration.pruning.factor,
            choice_name,
            tuple(listed),
            tag,
        )
    )
    if opened:
        return list(exploration.tree.attach(node, opened, choice))
    if all(child.pruned == CLOSED_CONSTRAINT for child in listed):
        why = listed[-1].why if listed else ""
        exploration.meet_dead_end(node, node.depth, tag, why)
    exploration.tree.close(node, CLOSED_EXHAUSTED)
    return []
