"""Pruning: closes nodes with bounds at or above the cut, and reopens them if the scale of bounds is lowered."""

from __future__ import annotations

import math

from .. import events as ev
from ..incumbent import BoundScale, Incumbent
from ..node import CLOSED_BOUND, CLOSED_CONSTRAINT, Node
from .tree import SearchTree


class Pruning:
    """Closes nodes that cannot beat the cut, and records the least of their bounds.

    `cut_ns` and all bounds passed in are on the scale of stored bounds. Times `factor` they are the
    bounds that the search claims.
    """

    def __init__(
        self,
        tree: SearchTree,
        incumbent: Incumbent,
        scale: BoundScale | None,
        tally: ev.Tally,
        events: list[ev.Event],
    ) -> None:
        self._tree = tree
        self._incumbent = incumbent
        self._scale = scale
        self._tally = tally
        self._events = events
        self.cut_ns = math.inf
        self.factor = 1.0 if scale is None else scale.factor
        self.floor_ns = math.inf  # least bound of what was pruned by bound
        self._lost_ns = math.inf  # the part of it that cannot be brought back
        # Only a scale can bring nodes back, so without one they are let go.
        self._pruned: list[tuple[float, Node]] = []

    def note(self, bound_ns: float, node: Node | None) -> None:
        """Records that candidates with bounds of at least `bound_ns` stay unexplored.

        Under `node`, if it is in the tree.
        """
        self.floor_ns = min(self.floor_ns, bound_ns)
        if node is None:
            self._lost_ns = min(self._lost_ns, bound_ns)
        elif self._scale is not None:
            self._pruned.append((bound_ns, node))

    def close_above(self, node: Node, bound_ns: float) -> None:
        """Closes a node of the tree below which all candidates have bounds of at least `bound_ns`."""
        self.note(bound_ns, node)
        self._close(node, CLOSED_BOUND)

    def close_explored(self, node: Node, cut_floor_ns: float) -> None:
        """Closes a node that a rollout explored completely: all candidates but dead ends had at least this bound."""
        if cut_floor_ns < math.inf:
            self.close_above(node, cut_floor_ns)
        else:
            self._close(node, CLOSED_CONSTRAINT)

    def refresh(self) -> None:
        """Applies the current cut and scale: closes nodes not below the cut, and reopens closed nodes that are below it."""
        factor = 1.0 if self._scale is None else self._scale.factor
        is_lowered = factor < self.factor
        self.factor = factor
        cut_ns = self._incumbent.cut_ns / factor
        if cut_ns == self.cut_ns:
            return
        self.cut_ns = cut_ns
        for node in self._tree.at_or_above(cut_ns):
            self.close_above(node, node.bound_ns)
        if is_lowered:
            self._reopen()

    def _close(self, node: Node, reason: str) -> None:
        if reason == CLOSED_BOUND:
            self._tally.pruned_bound += 1
        else:
            self._tally.pruned_csp += 1
        self._events.append(
            ev.Pruned(
                node=node.node_id,
                parent=-1 if node.parent is None else node.parent.node_id,
                bound_ns=node.bound_ns * self.factor,
                cut_ns=self._incumbent.cut_ns,
                reason=reason,
            )
        )
        self._tree.close(node, reason)

    def _reopen(self) -> None:
        still: list[tuple[float, Node]] = []
        for floor_ns, node in self._pruned:
            if floor_ns >= self.cut_ns:
                still.append((floor_ns, node))
                continue
            self._tree.reopen(node)
            self._tally.pruned_bound -= 1
            self._events.append(ev.Reopened(node.node_id, node.bound_ns * self.factor))
        self._pruned = still
        self.floor_ns = min((floor_ns for floor_ns, _ in still), default=math.inf)
        self.floor_ns = min(self.floor_ns, self._lost_ns)
