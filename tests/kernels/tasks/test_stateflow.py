"""The state-flow graph: versions, edges, and the same graph from every topological order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.access import State
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.state_flow import (
    Edge,
    StateFlowGraph,
    build_graph,
    rebuild,
    show_graph,
)
from kernelscape.testing.generator.features import LONG
from kernelscape.testing.generator.sequences import program


def graph_of(name: str) -> StateFlowGraph:
    entry = load(name)
    sizes = dict.fromkeys(entry.sizes, 6)
    args = entry.make_arguments(sizes, np.float32, np.random.default_rng(0))
    return build_graph(normalise(record_sequence(entry.sequence, args, name=name)))


@st.composite
def topological_orders(draw: Any, graph: StateFlowGraph) -> list[int]:
    left = [n.task for n in graph.nodes]
    order: list[int] = []
    while left:
        waiting = {e.sink for e in graph.edges if e.source in left}
        ready = [t for t in left if t not in waiting]
        order.append(draw(st.sampled_from(ready)))
        left.remove(order[-1])
    return order


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 60), st.data())
def test_any_topological_order_rebuilds_the_graph(number: int, data: st.DataObject) -> None:
    graph = build_graph(program(LONG, number).problem)
    order = data.draw(topological_orders(graph))
    assert rebuild(graph, order) == graph


def test_other_orders_build_other_graphs() -> None:
    graph = graph_of("waxpby")
    assert rebuild(graph, [0, 1]) == graph
    assert rebuild(graph, [1, 0]) != graph
    with pytest.raises(ValueError, match="not an order of the 2 tasks"):
        rebuild(graph, [0, 0])


def test_a_partial_write_reads_the_version_before() -> None:
    graph = graph_of("heat")
    t = State("value", "t")
    assert Edge(0, 1, t, 1, "flow") in graph.edges
    assert (1, t, 1) in graph.read_versions
    assert (1, t, 2) in graph.written_versions


def test_shown_graphs(golden: Any) -> None:
    names = ("atax", "bicgk", "gemver", "heat", "standardise")
    golden("\n".join(f"{n}\n{show_graph(graph_of(n))}" for n in names), "state_flow_graphs.txt")
