"""Strongly connected components of a graph (Tarjan, 1972)."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def strong_components(graph: Mapping[str, Collection[str]]) -> dict[str, int]:
    """Returns for each node of a graph the number of its strongly connected component.

    `graph`: the successors of each node.
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    found: dict[str, int] = {}
    waiting: list[str] = []
    for root in graph:
        if root in order:
            continue
        path = [(root, iter(graph[root]))]
        order[root] = low[root] = len(order)
        waiting.append(root)
        while path:
            node, left = path[-1]
            for x in left:
                if x not in graph or x in found:
                    continue
                if x in order:
                    low[node] = min(low[node], order[x])
                    continue
                order[x] = low[x] = len(order)
                waiting.append(x)
                path.append((x, iter(graph[x])))
                break
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == order[node]:
                    while node not in found:
                        found[waiting.pop()] = order[node]
    return found
