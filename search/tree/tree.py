"""Search tree: one decision per level, a bound per node, and the frontier, whose least bound is the global lower bound."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from ...space.candidate import DeadEnd
from ..candidate import SearchCandidate
from ..node import CLOSED_EXHAUSTED, EXPANDED, IN_FLIGHT, OPEN, UNCLOSED, Node


class SearchTree:
    """Nodes of a search, their states, and a heap of the frontier (open nodes).

    It holds at most about `max_held` candidates. The candidate of any other node is rebuilt by
    repeating its decisions from the nearest ancestor that holds one, which is cheap beside a
    measurement.
    """

    def __init__(
        self, root: SearchCandidate, bound_ns: float, *, n_times: int = 10, max_held: int = 5_000
    ) -> None:
        self.root = Node(0, None, -1, -1, bound_ns, root)
        self.n_times = n_times
        self.max_held = max_held
        self.n_open = 1  # OPEN and IN_FLIGHT nodes
        self._n_nodes = 1
        self._n_held = 1
        self._heap: list[tuple[float, int, Node]] = [(bound_ns, 0, self.root)]

    @property
    def is_closed(self) -> bool:
        return self.root.state not in UNCLOSED

    def new_id(self) -> int:
        node_id = self._n_nodes
        self._n_nodes += 1
        return node_id

    def candidate(self, node: Node) -> SearchCandidate:
        """Returns the candidate of `node`, rebuilt from an ancestor if it is not held."""
        path: list[Node] = []
        at = node
        while at.candidate is None:
            path.append(at)
            assert at.parent is not None, "the root always holds its candidate"
            at = at.parent
        candidate = at.candidate
        for step in reversed(path):
            child = candidate.decide(step.choice, 1 << step.value)
            assert not isinstance(child, DeadEnd), "a decision that succeeded once succeeds again"
            candidate = child
        return candidate

    def attach(
        self, parent: Node, children: Iterable[tuple[int, float, SearchCandidate, int]], choice: int
    ) -> list[Node]:
        """Adds open children (value, bound, candidate, node id) of a frontier node, which leaves the frontier."""
        self.n_open -= 1
        parent.state = EXPANDED
        for value, bound_ns, candidate, node_id in children:
            keep = self._n_held < self.max_held
            node = Node(node_id, parent, choice, value, bound_ns, candidate if keep else None)
            self._n_held += keep
            parent.children.append(node)
            self._push(node)
        self._release(parent)
        parent.n_unclosed = len(parent.children)
        self._compact()
        return parent.children

    def close(self, node: Node, state: str) -> None:
        """Closes `node`, and upwards every ancestor that has no open child left."""
        at: Node | None = node
        while at is not None:
            if at.state in (OPEN, IN_FLIGHT):
                self.n_open -= 1
            at.state = state
            self._release(at)
            at.children = []
            at = at.parent
            if at is None:
                return
            at.n_unclosed -= 1
            if at.n_unclosed:
                return
            state = CLOSED_EXHAUSTED

    def reopen(self, node: Node) -> None:
        """Puts a closed node back on the frontier, and makes its closed ancestors selectable again."""
        self._push(node)
        child, at = node, node.parent
        while at is not None:
            if child not in at.children:
                at.children.append(child)
            at.n_unclosed += 1
            if at.state in UNCLOSED:
                return
            at.state = EXPANDED
            child, at = at, at.parent

    def least_open(self) -> Node | None:
        """Returns the open node with the least bound, the deepest among equals; None if there is none."""
        waiting = []
        found = None
        while self._heap:
            node = self._heap[0][2]
            if node.state == OPEN:
                found = node
                break
            entry = heapq.heappop(self._heap)
            if node.state == IN_FLIGHT:
                waiting.append(entry)
        for entry in waiting:
            heapq.heappush(self._heap, entry)
        return found

    def rebound_root(self, bound_ns: float) -> None:
        """Sets the bound of a root that is never expanded, since other trees explore its completions."""
        if self.root.state == OPEN:
            self.root.bound_ns = bound_ns
            self._heap = [(bound_ns, 0, self.root)]

    def open_bound_ns(self) -> float:
        """Least bound of the frontier, leaves in flight included; inf if the tree is closed."""
        while self._heap and self._heap[0][2].state not in (OPEN, IN_FLIGHT):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def at_or_above(self, cut_ns: float) -> list[Node]:
        """Returns the open frontier nodes with bounds not below the cut, in order of their ids."""
        return sorted({n for b, _, n in self._heap if b >= cut_ns and n.state == OPEN})

    def _push(self, node: Node) -> None:
        node.state = OPEN
        self.n_open += 1
        heapq.heappush(self._heap, (node.bound_ns, -node.depth, node))

    def _release(self, node: Node) -> None:
        if node.candidate is not None and node.parent is not None:
            node.candidate = None
            self._n_held -= 1

    def _compact(self) -> None:
        """Removes closed nodes from the heap once they are most of it."""
        if len(self._heap) > 64 and len(self._heap) > 2 * self.n_open:
            self._heap = [e for e in self._heap if e[2].state in (OPEN, IN_FLIGHT)]
            heapq.heapify(self._heap)
