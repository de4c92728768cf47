"""Strongly connected components, beside the pairs of nodes that reach one another."""

from __future__ import annotations

import random
from itertools import product

from kernelscape.kernels.analysis.cycles import strong_components


def reached(graph: dict[str, list[str]], node: str) -> set[str]:
    found, left = set[str](), [node]
    while left:
        more = set(graph.get(left.pop(), ())) - found
        found |= more
        left += more
    return found


def test_nodes_of_one_component_reach_one_another() -> None:
    """Also beside successors that are no nodes."""
    rng = random.Random(1)
    for _ in range(300):
        names = [f"n{k}" for k in range(rng.randint(1, 9))]
        graph = {x: [y for y in [*names, "other"] if rng.random() < 0.25] for x in names}
        numbers = strong_components(graph)
        below = {x: reached(graph, x) for x in names}
        assert numbers.keys() == graph.keys()
        for a, b in product(names, names):
            is_one = a == b or (a in below[b] and b in below[a])
            assert (numbers[a] == numbers[b]) == is_one, (graph, a, b)


def test_a_long_chain_needs_no_recursion() -> None:
    graph = {str(k): [str(k + 1)] for k in range(20_000)}
    assert len(set(strong_components(graph).values())) == len(graph)
