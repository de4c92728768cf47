"""Drawing of the state-flow graph: text for Graphviz (dot) and for Mermaid.

Tasks are boxes. States that live outside the sequence are ellipses: before it at the tasks that read their old contents, behind it
at their last writer. A line is a flow of values. A dashed line orders a writer after a reader (anti), a dotted one after a writer
(output).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..ir.access import State
from .state_flow import StateFlowGraph

_DOT_STYLES = {"flow": "solid", "anti": "dashed", "output": "dotted"}
_MERMAID_ARROWS = {"flow": "-->", "anti": "-.->", "output": "-.->"}


@dataclass(frozen=True)
class _Line:
    """Edge of the drawing between two nodes, given by their names in the text."""

    source: str
    sink: str
    label: str
    kind: str


def dot_text(graph: StateFlowGraph, name: str, temporaries: frozenset[str] = frozenset()) -> str:
    """Returns the graph as a digraph in the DOT language.

    `temporaries`: arrays that do not live outside the sequence.
    """
    lines = [f"digraph {_quoted(name)} {{", "  rankdir=TB;", "  node [shape=box];"]
    lines += [f"  t{n.task} [label={_quoted(n.name)}];" for n in graph.nodes]
    for key, state in _ends(graph, temporaries):
        lines.append(f"  {key} [label={_quoted(state.label)}, shape=ellipse];")
    for x in _lines(graph, temporaries):
        style = "" if x.kind == "flow" else f", style={_DOT_STYLES[x.kind]}"
        lines.append(f"  {x.source} -> {x.sink} [label={_quoted(x.label)}{style}];")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid_text(graph: StateFlowGraph, temporaries: frozenset[str] = frozenset()) -> str:
    """Returns the graph as a Mermaid flowchart, which GitHub and GitLab draw in Markdown.

    `temporaries`: arrays that do not live outside the sequence.
    """
    lines = ["flowchart TB"]
    lines += [f"  t{n.task}[{_entities(n.name)}]" for n in graph.nodes]
    lines += [f"  {key}([{_entities(state.label)}])" for key, state in _ends(graph, temporaries)]
    for x in _lines(graph, temporaries):
        label = x.label if x.kind == "flow" else f"{x.kind} {x.label}"
        lines.append(f"  {x.source} {_MERMAID_ARROWS[x.kind]}|{_entities(label)}| {x.sink}")
    return "\n".join(lines) + "\n"


def _outside(graph: StateFlowGraph, temporaries: frozenset[str]) -> tuple[list[State], list[State]]:
    """Returns the states that tasks read as they were before the sequence, and the states that it changes."""
    read = {s for _, s, version in graph.read_versions if version == 0}
    written = {s for _, s, _ in graph.written_versions}
    inner, outer = (sorted(s for s in x if s.name not in temporaries) for x in (read, written))
    return inner, outer


def _ends(graph: StateFlowGraph, temporaries: frozenset[str]) -> Iterator[tuple[str, State]]:
    read, written = _outside(graph, temporaries)
    yield from ((f"in{k}", s) for k, s in enumerate(read))
    yield from ((f"out{k}", s) for k, s in enumerate(written))


def _lines(graph: StateFlowGraph, temporaries: frozenset[str]) -> Iterator[_Line]:
    read, written = _outside(graph, temporaries)
    for k, state in enumerate(read):
        for task, s, version in graph.read_versions:
            if s == state and version == 0:
                yield _Line(f"in{k}", f"t{task}", _label(state, 0), "flow")
    for e in graph.edges:
        yield _Line(f"t{e.source}", f"t{e.sink}", _label(e.state, e.version), e.kind)
    for k, state in enumerate(written):
        version, task = max((v, t) for t, s, v in graph.written_versions if s == state)
        yield _Line(f"t{task}", f"out{k}", _label(state, version), "flow")


def _label(state: State, version: int) -> str:
    return f"{state.label}@{version}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def _entities(text: str) -> str:
    """Returns quoted text, with Mermaid's syntax characters as entities."""
    escaped = text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
    return f'"{escaped.replace(">", "#gt;")}"'
