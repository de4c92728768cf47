"""Baseline strategies: random, bound-first, beam, exhaustive.

Steps, events and statuses are as those of mcts.
"""

from __future__ import annotations

import math

from ...space.candidate import DeadEnd
from ..asking import Asking
from ..candidate import SearchCandidate
from ..events import Tag
from ..node import CLOSED_EXHAUSTED, OPEN, Node
from .expansion import expand, live_children
from .exploration import AbstractStrategy, Exploration


class RandomSampling(AbstractStrategy):
    """Random search: independent random completions of the root, each implementation once. It proves nothing."""

    def __init__(self) -> None:
        self._n_fruitless = 0

    def step(self, exploration: Exploration) -> Asking[bool]:
        if (
            exploration.tree.is_closed
            or self._n_fruitless >= exploration.options.limits.random_patience
        ):
            return False
        exploration.tally.rollouts += 1
        self._n_fruitless += 1
        candidate = exploration.root.random_completion(exploration.rng)
        if isinstance(candidate, DeadEnd):
            exploration.meet_dead_end(None, -1, "R", candidate.why)
            return True
        bound_ns = max(exploration.root_bound_ns, float(exploration.oracle.bound(candidate)))
        if bound_ns >= exploration.cut_ns:
            exploration.tally.rollout_bound += 1
            return True
        if not exploration.ledger.is_settled(exploration.ledger.key(candidate)):
            self._n_fruitless = 0
        yield from exploration.submit(candidate, bound_ns, "R", None)
        return True


class BoundFirst(AbstractStrategy):
    """Best-first search: always opens the node with the least bound.

    No strategy proves an optimum with fewer expansions, and none finds good times later.
    """

    def step(self, exploration: Exploration) -> Asking[bool]:
        node = exploration.tree.least_open()
        if node is None:
            return False
        yield from _visit(exploration, node, "D")
        return True


class Exhaustive(AbstractStrategy):
    """Depth-first search through the whole tree, least bound first among siblings.

    With `prune`, only below the cut.
    """

    def __init__(self) -> None:
        self._stack: list[Node] = []
        self._is_begun = False

    def step(self, exploration: Exploration) -> Asking[bool]:
        if not self._is_begun:
            self._is_begun = True
            self._stack.append(exploration.tree.root)
        while self._stack:
            node = self._stack.pop()
            if node.state != OPEN:  # closed meanwhile by a better cut
                continue
            children = yield from _visit(exploration, node, "M")
            self._stack.extend(sorted(children, key=lambda n: (n.bound_ns, n.value), reverse=True))
            return True
        # A lowered bound scale may have reopened nodes behind the stack.
        node_left = exploration.tree.least_open()
        if node_left is None:
            return False
        self._stack.append(node_left)
        return True


class Beam(AbstractStrategy):
    """Beam search: level by level, the `beam_width` candidates with the least bounds, ties in random order.

    Each pass doubles the width. A pass that dropped no candidate has explored everything, and
    closes the tree.
    """

    def __init__(self) -> None:
        self._width = 0
        self._level: list[tuple[float, SearchCandidate]] = []
        self._is_cut_short = True

    def step(self, exploration: Exploration) -> Asking[bool]:
        if exploration.tree.is_closed:
            return False
        if not self._level:
            if not self._is_cut_short:
                yield from exploration.flush()
                if not exploration.tree.is_closed:
                    exploration.tree.close(exploration.tree.root, CLOSED_EXHAUSTED)
                return False
            self._width = 2 * self._width or exploration.options.limits.beam_width
            self._is_cut_short = False
            self._level = [(exploration.root_bound_ns, exploration.root)]
        reached: list[tuple[float, float, SearchCandidate]] = []
        for depth_bound_ns, candidate in self._level:
            if depth_bound_ns >= exploration.cut_ns:
                exploration.pruning.note(depth_bound_ns, None)
            elif candidate.is_complete:
                yield from exploration.submit(candidate, depth_bound_ns, "D", None)
            else:
                reached.extend(self._children(exploration, candidate, depth_bound_ns))
        reached.sort(key=lambda entry: entry[:2])
        self._is_cut_short |= len(reached) > self._width
        self._level = [(bound_ns, child) for bound_ns, _, child in reached[: self._width]]
        return True

    @staticmethod
    def _children(
        exploration: Exploration, candidate: SearchCandidate, bound_ns: float
    ) -> list[tuple[float, float, SearchCandidate]]:
        live = live_children(exploration, candidate, bound_ns)
        exploration.tally.explored += 1
        if live.cut_floor_ns < math.inf:
            exploration.pruning.note(live.cut_floor_ns, None)
        elif not live.candidates:
            exploration.meet_dead_end(None, -1, "D", live.why)
        return [
            (child_ns, float(exploration.rng.random()), child)
            for child_ns, child in zip(live.bounds_ns, live.candidates, strict=True)
        ]


def _visit(exploration: Exploration, node: Node, tag: Tag) -> Asking[list[Node]]:
    """Submits a complete node for measurement (returns []), or opens an incomplete one and returns its live children."""
    if exploration.tree.candidate(node).is_complete:
        yield from exploration.submit_leaf(node, tag)
        return []
    return expand(exploration, node, tag)
