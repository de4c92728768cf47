"""The search tree: one decision a level, a bound a node, and the frontier whose least bound is the
global lower bound.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Protocol, Self

import numpy as np

from ...space.engine.candidate import DeadEnd

# Node states. OPEN and EXPANDED nodes can be selected; IN_FLIGHT leaves wait for their outcome; the
# rest is closed.
OPEN = "open"
EXPANDED = "expanded"
IN_FLIGHT = "in_flight"
CLOSED_CONSTRAINT = "constraint"  # no completion satisfies the constraints
CLOSED_BOUND = "bound"  # no completion can beat the cut
CLOSED_EVALUATED = "evaluated"  # a complete candidate whose outcome is known
CLOSED_EXHAUSTED = "exhausted"  # every child is closed
SELECTABLE = frozenset((OPEN, EXPANDED))
UNCLOSED = frozenset((OPEN, EXPANDED, IN_FLIGHT))


class SearchCandidate(Protocol):
    """What the search needs of a candidate; `space.candidate.Candidate` is one."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def key(self) -> bytes:
        """Equal if and only if the domains are equal."""
        ...

    def open_choices(self) -> Sequence[int] | np.ndarray:
        """Ids of the choices with more than one value left."""
        ...

    def values(self, choice: int, /) -> tuple[int, ...]: ...

    def decide(self, choice: int, mask: int, /) -> Self | DeadEnd:
        """Narrow `choice` to the values of the bit mask `mask` and propagate; changes nothing."""
        ...

    def expand(self, choice: int, /) -> Sequence[tuple[int, Self | DeadEnd]]:
        """One (value, child) for every value `choice` still has."""
        ...

    def random_completion(self, rng: np.random.Generator, /) -> Self | DeadEnd: ...


class Node:
    """A candidate in the tree with its bound (monotone along a path) and the statistics that
    policies read.

    `times` are the best times (ns, ascending, at most the tree's `n_times`) recorded through this
    node; `visits` counts descents when they start, so that a descent whose outcome is still awaited
    lowers the score of its path.
    """

    __slots__ = (
        "bound_ns",
        "candidate",
        "children",
        "choice",
        "depth",
        "log_max",
        "log_min",
        "log_sum",
        "n_ok",
        "n_unclosed",
        "node_id",
        "parent",
        "state",
        "times",
        "value",
        "visits",
    )

    def __init__(
        self,
        node_id: int,
        parent: Node | None,
        choice: int,
        value: int,
        bound_ns: float,
        candidate: SearchCandidate | None,
    ) -> None:
        self.node_id = node_id
        self.parent = parent
        self.choice = choice  # of the parent, -1 for the root
        self.value = value
        self.bound_ns = bound_ns
        self.candidate = candidate
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.state = OPEN
        self.children: list[Node] = []
        self.n_unclosed = 0
        self.visits = 0
        self.times: list[float] = []
        self.n_ok = 0
        self.log_sum = 0.0
        self.log_min = math.inf
        self.log_max = -math.inf

    def __lt__(self, other: Node) -> bool:
        return self.node_id < other.node_id

    def record(self, time_ns: float, n_times: int) -> None:
        """Back up one time into this node and every ancestor."""
        log = math.log(time_ns)
        node: Node | None = self
        while node is not None:
            _insert(node.times, time_ns, n_times)
            node.n_ok += 1
            node.log_sum += log
            node.log_min = min(node.log_min, log)
            node.log_max = max(node.log_max, log)
            node = node.parent


def _insert(times: list[float], time_ns: float, n_times: int) -> None:
    if len(times) == n_times:
        if time_ns >= times[-1]:
            return
        times.pop()
    at = len(times)
    while at and times[at - 1] > time_ns:
        at -= 1
    times.insert(at, time_ns)


class Tree:
    """Nodes, their states, and a heap of the frontier.

    Holds at most about `max_held` candidates; the candidate of any other node is rebuilt by taking
    its decisions again from the nearest ancestor that holds one, which is cheap beside an
    evaluation.
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
        """The candidate of `node`, rebuilt from an ancestor if it is not held."""
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
        """Open children (value, bound, candidate, node id) of a frontier node, which leaves the
        frontier.
        """
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
        """Close `node`, and upwards every ancestor that has no unclosed child left."""
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
        """Put a closed node back on the frontier, and its closed ancestors back among the
        selectable.
        """
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
        """The OPEN node of least bound, deepest first among equals; None if there is none."""
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

    def open_bound_ns(self) -> float:
        """Least bound of the frontier, leaves in flight included; inf when the tree is closed."""
        while self._heap and self._heap[0][2].state not in (OPEN, IN_FLIGHT):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def at_or_above(self, cut_ns: float) -> list[Node]:
        """OPEN frontier nodes whose bound is not below the cut, in order of their ids."""
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
        """Drop closed nodes from the heap once they are most of it."""
        if len(self._heap) > 64 and len(self._heap) > 2 * self.n_open:
            self._heap = [e for e in self._heap if e[2].state in (OPEN, IN_FLIGHT)]
            heapq.heapify(self._heap)
