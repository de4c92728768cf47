"""The shape of a search tree under a decision order: nodes by depth with and without the cut of a
bound, how large what is left is, and how fast the bound rises (Telamon, sections 5.4 and 5.5).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..search.bound.bounder import Bounder
from ..search.tree.estimate import NORMAL_95, Interval, interval
from ..search.tree.ordering import NextChoice
from ..space.candidate import Candidate, Space

Choose = Callable[[Candidate], int]


@dataclass(frozen=True)
class Levels:
    """`n_nodes[d]` candidates are d decisions below the root; on the way to `n_kept[d]` of them no
    bound reached the cut, and `kept` are those of the last level. Not `is_whole`: a level was too
    large, and the one before it is the last.
    """

    n_nodes: tuple[int, ...]
    n_kept: tuple[int, ...]
    kept: tuple[Candidate, ...]
    is_whole: bool

    @property
    def depth(self) -> int:
        return len(self.n_nodes) - 1

    @property
    def reduction(self) -> float:
        """How many times fewer nodes the tree has down to the last level; inf if none is left."""
        kept = sum(self.n_kept)
        return sum(self.n_nodes) / kept if kept else float("inf")


def walk_levels(
    space: Space,
    choose: Choose,
    cut_ns: float,
    *,
    depth: int | None = None,
    enough: int | None = None,
    limit: int,
) -> Levels:
    """Level by level down to `depth`, or to the first level with at least `enough` nodes, never to
    one of more than `limit`. Complete candidates have no children.
    """
    bounder = Bounder(space)
    root = space.root()
    assert isinstance(root, Candidate)
    root_ns = bounder.ns(root)
    level = [(root, root_ns, root_ns < cut_ns)]
    n_nodes, n_kept = [1], [int(root_ns < cut_ns)]
    while (depth is None or len(n_nodes) <= depth) and (enough is None or n_nodes[-1] < enough):
        below = []
        for candidate, bound_ns, is_kept in level:
            for child in _children(candidate, choose):
                child_ns = bounder.ns(child, bound_ns) if is_kept else bound_ns
                below.append((child, child_ns, is_kept and child_ns < cut_ns))
            if len(below) > limit:
                return Levels(tuple(n_nodes), tuple(n_kept), _kept(level), False)
        if not below:
            break
        level = below
        n_nodes.append(len(level))
        n_kept.append(sum(is_kept for _, _, is_kept in level))
    return Levels(tuple(n_nodes), tuple(n_kept), _kept(level), True)


def _kept(level: list[tuple[Candidate, float, bool]]) -> tuple[Candidate, ...]:
    return tuple(candidate for candidate, _, is_kept in level if is_kept)


def _children(candidate: Candidate, choose: Choose) -> list[Candidate]:
    if candidate.is_complete:
        return []
    children = (child for _, child in candidate.expand(choose(candidate)))
    return [child for child in children if isinstance(child, Candidate)]


def estimate_below(
    nodes: tuple[Candidate, ...], choose: Choose, rng: np.random.Generator, n_descents: int
) -> Interval:
    """Implementations below all of `nodes`: Knuth's estimate of a node drawn at random, times their
    number.
    """
    if not nodes:
        return Interval(0.0, 0.0, 0.0)
    products = np.empty(n_descents)
    for descent in range(n_descents):
        at, product = nodes[int(rng.integers(len(nodes)))], float(len(nodes))
        while not at.is_complete:
            children = _children(at, choose)
            product *= len(children)
            if not children:
                break
            at = children[int(rng.integers(len(children)))]
        products[descent] = product
    return interval(products)


@dataclass(frozen=True)
class Drawn:
    """A random node: `weight` is the product of the numbers of children above it, zero at a dead end."""

    weight: float
    node: Candidate
    bound_ns: float


def drawn_nodes(
    space: Space, choose: Choose, rng: np.random.Generator, *, depth: int, n: int
) -> list[Drawn]:
    """`n` random nodes `depth` decisions below the root, complete ones above them included (Knuth 1975)."""
    bounder, root = Bounder(space), space.root()
    assert isinstance(root, Candidate)
    return [_draw(root, choose, bounder, rng, depth) for _ in range(n)]


def _draw(
    root: Candidate, choose: Choose, bounder: Bounder, rng: np.random.Generator, depth: int
) -> Drawn:
    at, weight, bound_ns = root, 1.0, bounder.ns(root)
    for _ in range(depth):
        if at.is_complete:
            break
        children = _children(at, choose)
        weight *= len(children)
        if not children:
            break
        at = children[int(rng.integers(len(children)))]
        bound_ns = bounder.ns(at, bound_ns)
    return Drawn(weight, at, bound_ns)


def share_kept(drawn: Sequence[Drawn], cut_ns: float) -> Interval:
    """The share of nodes whose bound is below a cut, with its 95 % interval: a ratio of two means."""
    weights = np.array([x.weight for x in drawn])
    is_kept = np.array([x.bound_ns < cut_ns for x in drawn])
    share = float((weights * is_kept).sum() / weights.sum())
    error = (weights * (is_kept - share)).std() / weights.mean() / len(weights) ** 0.5
    half = NORMAL_95 * float(error)
    return Interval(share, max(0.0, share - half), min(1.0, share + half))


def share_tight(
    drawn: Sequence[Drawn],
    cut_ns: float,
    choose: Choose,
    rng: np.random.Generator,
    *,
    n: int,
    most_expansions: int,
) -> float:
    """The share of kept nodes above an implementation that the cut keeps too, of `n` nodes; nan if none is kept."""
    kept = [x for x in drawn if x.weight and x.bound_ns < cut_ns]
    if not kept:
        return float("nan")
    weights = np.array([x.weight for x in kept])
    chosen = rng.choice(len(kept), size=n, p=weights / weights.sum())
    rises = [raise_bound(kept[k].node, choose, most_expansions) for k in chosen]
    return sum(x.is_settled and x.bound_ns < cut_ns for x in rises) / n


@dataclass(frozen=True)
class Rise:
    """What the global lower bound came to after `n_expansions` of the node of least bound. It cannot
    rise further where `is_settled`: an implementation has it.
    """

    bound_ns: float
    n_expansions: int
    is_settled: bool


def raise_bound(start: Candidate, choose: Choose, most_expansions: int) -> Rise:
    """Expand the node of least bound below `start`, of equals the newest, until it is an implementation."""
    bounder = Bounder(start.space)
    number = 0
    heap = [(bounder.ns(start), number, start)]
    for n_expansions in range(most_expansions):
        bound_ns, _, candidate = heap[0]
        if candidate.is_complete:
            return Rise(bound_ns, n_expansions, True)
        heapq.heappop(heap)
        for child in _children(candidate, choose):
            number -= 1
            heapq.heappush(heap, (bounder.ns(child, bound_ns), number, child))
        if not heap:  # dead ends alone
            return Rise(float("inf"), n_expansions + 1, False)
    return Rise(heap[0][0], most_expansions, heap[0][2].is_complete)


def orders(space: Space, n_random: int, seed: int) -> list[tuple[str, NextChoice]]:
    """Ours, Telamon's, ours reversed, and random ones."""
    named = [
        (label, NextChoice(space, name))
        for label, name in (("ours", "default"), ("sizes first", "size_first"))
    ]
    named.append(("ours reversed", NextChoice(space, "reverse")))
    for k in range(n_random):
        shuffled = NextChoice(space)
        shuffled.in_order = np.random.default_rng([seed, k]).permutation(shuffled.in_order)
        named.append((f"random {k + 1}", shuffled))
    return named
