"""Node of the search tree: its bound, its state, and statistics of the measurements below it."""

from __future__ import annotations

import math

from .candidate import SearchCandidate

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


class Node:
    """A candidate in the search tree, with its bound (monotone along a path) and the statistics that policies read.

    `times`: the best times (ns, ascending, at most the tree's `n_times`) measured below this node.
    `visits`: number of descents that started through it, so that a descent without an outcome yet
    lowers the score of its path. `n_in_flight`: number of candidates below it that several machines
    measure now; each lowers the score once more, a virtual loss (Chaslot, Winands and van den
    Herik, 2008).
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
        "n_in_flight",
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
        self.n_in_flight = 0
        self.times: list[float] = []
        self.n_ok = 0
        self.log_sum = 0.0
        self.log_min = math.inf
        self.log_max = -math.inf

    def __lt__(self, other: Node) -> bool:
        return self.node_id < other.node_id

    def weigh(self, n: int) -> None:
        """Adds `n` candidates in flight to this node and to every ancestor."""
        node: Node | None = self
        while node is not None:
            node.n_in_flight += n
            node = node.parent

    def record(self, time_ns: float, n_times: int) -> None:
        """Adds one measured time to this node and to every ancestor."""
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
