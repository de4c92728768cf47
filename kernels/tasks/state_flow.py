"""State-flow graph of tasks: reads and writes of versions of states (Hu et al., AsyncTaichi, section 4).

Dense arrays have value states only; nodes of sparse fields have masks, lists and allocators (kernels/sparse/states.py). A list is
up to date if its maker read the present masks, and an activation is needless if masks have not shrunk since an earlier one. A task
that overwrites a state only in part also reads it: the rest flows through. Versions count the writers of a state, which every
topological order keeps in order, so the graph is rebuilt identically from any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ..analysis.effects import overwrites
from ..ir.access import State
from ..ir.repeats import Repeat
from ..ir.task import Problem, Task
from ..sparse.states import named_effects
from .dependence import carried_flows

EdgeKind = Literal["flow", "anti", "output"]


@dataclass(frozen=True)
class TaskNode:
    """Node of the graph: a task with the states that it reads and writes. `task` is its number in the problem."""

    task: int
    name: str
    reads: tuple[State, ...]
    writes: tuple[State, ...]


@dataclass(frozen=True, order=True)
class Edge:
    """Edge of the graph: task `sink` comes after task `source` because of `version` of `state`.

    flow: the sink reads the version that the source wrote. anti: the sink replaces the version that the source read. output: the
    sink replaces the version that the source wrote, without a read between.
    """

    source: int
    sink: int
    state: State
    version: int
    kind: EdgeKind


@dataclass(frozen=True)
class StateFlowGraph:
    """State-flow graph: `nodes` by number of the task, and sorted `edges`.

    `read_versions` and `written_versions` hold (task, state, version), sorted.
    Version 0 of a state are its contents before the sequence. Tasks in `repeats` run several iterations: versions are those of the
    first one, and `carried` are flows of values to the next.
    """

    nodes: tuple[TaskNode, ...]
    edges: tuple[Edge, ...]
    read_versions: tuple[tuple[int, State, int], ...]
    written_versions: tuple[tuple[int, State, int], ...]
    repeats: tuple[Repeat, ...] = ()
    carried: tuple[Edge, ...] = ()


def build_graph(problem: Problem) -> StateFlowGraph:
    """Returns the state-flow graph of the tasks in program order."""
    nodes = []
    for k, task in enumerate(problem.tasks):
        read, written = named_effects(task, problem.parts)
        reads = {*read, *(s for s in written if not _replaces(task, s, problem))}
        nodes.append(TaskNode(k, task.name, tuple(sorted(reads)), tuple(sorted(written))))
    graph = connect(nodes)
    written_by = {(t, s): version for t, s, version in graph.written_versions}
    carried = set()
    for d in carried_flows(problem):
        for state in _states_in(d.array, nodes[d.source], nodes[d.sink], problem):
            carried.add(Edge(d.source, d.sink, state, written_by[d.source, state], "flow"))
    return replace(graph, repeats=problem.repeats, carried=tuple(sorted(carried)))


def _replaces(task: Task, state: State, problem: Problem) -> bool:
    """True if a task surely overwrites all of a state. It never does for masks, lists and allocators."""
    is_value = state.kind == "value"
    return is_value and overwrites(task, state.name, problem.array(state.name).shape)


def _states_in(array: str, source: TaskNode, sink: TaskNode, problem: Problem) -> Iterator[State]:
    """Yields the states in an array that task `source` writes and task `sink` reads."""
    node = next((x for x in problem.parts.states if x.array == array), None)
    for state in source.writes:
        is_there = state == State("value", array) if node is None else state in node
        if is_there and state in sink.reads:
            yield state


def connect(nodes: Iterable[TaskNode]) -> StateFlowGraph:
    """Returns the state-flow graph of `nodes` executed in the order given."""
    version: dict[State, int] = {}
    owner: dict[State, int] = {}
    readers: dict[State, list[int]] = {}
    edges: set[Edge] = set()
    read: list[tuple[int, State, int]] = []
    written: list[tuple[int, State, int]] = []
    placed: list[TaskNode] = []
    for node in nodes:
        placed.append(node)
        for state in node.reads:
            now = version.get(state, 0)
            read.append((node.task, state, now))
            if state in owner:
                edges.add(Edge(owner[state], node.task, state, now, "flow"))
            readers.setdefault(state, []).append(node.task)
        for state in node.writes:
            now = version.get(state, 0)
            others = [r for r in readers.get(state, []) if r != node.task]
            edges.update(Edge(r, node.task, state, now, "anti") for r in others)
            if state in owner and not readers.get(state):
                edges.add(Edge(owner[state], node.task, state, now, "output"))
            version[state], owner[state], readers[state] = now + 1, node.task, []
            written.append((node.task, state, now + 1))
    placed.sort(key=lambda n: n.task)
    return StateFlowGraph(
        tuple(placed), tuple(sorted(edges)), tuple(sorted(read)), tuple(sorted(written))
    )


def rebuild(graph: StateFlowGraph, order: Iterable[int]) -> StateFlowGraph:
    """Returns the graph built anew from its tasks in `order`.

    It is equal to `graph` for every topological order of `graph`.
    Raises ValueError if `order` is not a permutation of the tasks.
    """
    chosen = list(order)
    if sorted(chosen) != [n.task for n in graph.nodes]:
        raise ValueError(f"{chosen} is not an order of the {len(graph.nodes)} tasks of the graph")
    by_task = {n.task: n for n in graph.nodes}
    rebuilt = connect(by_task[k] for k in chosen)
    return replace(rebuilt, repeats=graph.repeats, carried=graph.carried)


def show_graph(graph: StateFlowGraph) -> str:
    """Returns the graph as stable text: a line a task with the versions it reads and writes, then the edges."""
    lines = []
    for node in graph.nodes:
        reads = ", ".join(f"{s}@{v}" for t, s, v in graph.read_versions if t == node.task)
        writes = ", ".join(f"{s}@{v}" for t, s, v in graph.written_versions if t == node.task)
        lines.append(f"{node.name}: reads {reads or '-'}; writes {writes or '-'}")
    names = {n.task: n.name for n in graph.nodes}
    for e in graph.edges:
        lines.append(f"  {names[e.source]} -> {names[e.sink]}  {e.kind} {e.state}@{e.version}")
    for r in graph.repeats:
        first, last = names[r.first], names[r.stop - 1]
        until = f" until {r.until}" if r.until else ""
        lines.append(
            f"repeat {r.index}<{r.count}{until}: {first}" + f" to {last}" * (first != last)
        )
    for e in graph.carried:
        lines.append(f"  {names[e.source]} => {names[e.sink]}  next step {e.state}@{e.version}")
    return "\n".join(lines) + "\n"
