"""Circles of imports, counting late ones and those of types alone: import-linter sees neither where a layer ignores them."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PRODUCT = (
    "kernels",
    "program",
    "space",
    "search",
    "codegen",
    "runtime",
    "explorer",
    "report",
    "compat",
    "cli",
)
# Circles that are left: fields make one another.
LEFT = {"kernels.fields": 12}

Graph = dict[str, set[str]]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_of(p): p for folder in PRODUCT for p in sorted((ROOT / folder).rglob("*.py"))}


@cache
def imports() -> Graph:
    """The modules that each module imports from, anywhere in it."""
    graph: Graph = {name: set() for name in modules()}
    for name, path in modules().items():
        package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            whole = ".".join(x for x in base if x)
            for alias in node.names:
                inner = f"{whole}.{alias.name}".lstrip(".")
                graph[name].add(inner if inner in modules() else whole)
    return {name: {x for x in found if x in graph and x != name} for name, found in graph.items()}


def circles(graph: Graph) -> list[list[str]]:
    """The strongly connected parts of more than one node (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(part) > 1:
                found.append(sorted(part))

    for v in graph:
        if v not in index:
            visit(v)
    return found


@cache
def with_rooms() -> set[Path]:
    """The folders that have modules in folders below them."""
    return {folder for path in modules().values() for folder in [*path.parents][1:]}


def room_of(name: str) -> str:
    """The folder of a module; a module beside folders is a room of its own."""
    folder = modules()[name].parent
    return name if folder in with_rooms() else ".".join(folder.relative_to(ROOT).parts)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str](), "e": {"e"}}
    assert circles(graph) == [["b", "c"]]


def test_no_circle_of_files_but_those_that_are_left() -> None:
    for circle in circles(imports()):
        (folder,) = {name.rpartition(".")[0] for name in circle}
        assert len(circle) <= LEFT.get(folder, 0), circle


def test_no_circle_of_folders() -> None:
    rooms: Graph = defaultdict(set)
    for name, found in imports().items():
        rooms[room_of(name)] |= {room_of(x) for x in found}
    assert circles({room: found - {room} for room, found in rooms.items()}) == []


@pytest.mark.parametrize("folder", sorted(LEFT))
def test_what_is_left_is_still_there(folder: str) -> None:
    """A circle that is gone is forbidden from then on."""
    sizes = [len(c) for c in circles(imports()) if c[0].rpartition(".")[0] == folder]
    assert max(sizes, default=0) == LEFT[folder]
