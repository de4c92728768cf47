"""States of sparse fields: the mask, list and allocator of each node.

Effects of tasks on states are read from accesses of arrays.
mask(tree.n): the active cells of node n. list(tree.n): the list of these that loops use. allocator(tree.n): the slots of its pool.
allocator(tree): reports of writes that could not be made. Values of fields are states by array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from ..analysis.effects import Effects, effects
from ..ir.access import AccessSet, State, StateKind
from ..ir.task import NodeState, Task, TreeParts
from .layout import CHANGED, COUNT
from .recorded import UsedTree

_KINDS: dict[str, StateKind | Literal["counters"]] = {
    "list": "list",
    "free": "allocator",
    "freed": "allocator",
    "counters": "counters",
}


def node_states(trees: Iterable[UsedTree]) -> tuple[NodeState, ...]:
    """Returns the arrays of trees that hold masks, lists, allocators or counters, each with its state."""
    found = []
    for used in trees:
        for key, array in used.sections:
            stem = key.rstrip("0123456789")
            if stem != "field":
                kind = _KINDS.get(stem, "mask")
                node = int(key[len(stem) :] or len(used.tree.nodes))
                found.append(NodeState(array, kind, used.tree.name, node))
    return tuple(found)


def named_effects(task: Task, parts: TreeParts) -> tuple[frozenset[State], frozenset[State]]:
    """Returns the states that a task reads, and those that it writes.

    Masks, lists and allocators replace the arrays of trees.
    """
    found, known = effects(task), {x.array: x for x in parts.states}
    made = {known[s.name].name for s, _, _ in found.writes if _is_list(known.get(s.name))}
    reads, writes = set[State](), set[State]()
    for state, accesses, is_write in _accesses(found):
        node = known.get(state.name)
        if node is None:
            (writes if is_write else reads).add(state)
        elif node.kind != "counters":
            (writes if is_write else reads).add(State(node.kind, node.name))
        else:
            counter = _counter(node, accesses)
            # A task that makes a list takes the mark off that cells have changed: it has seen all changes.
            is_seen = counter.kind == "mask" and counter.name in made
            (writes if is_write and not is_seen else reads).add(counter)
    return frozenset(reads), frozenset(writes)


def _accesses(found: Effects) -> Iterator[tuple[State, AccessSet, bool]]:
    """Yields the accesses of a task as triples: state, access set, and True for a write."""
    yield from ((state, x, False) for state, x in found.reads)
    yield from ((state, x, True) for state, x, _ in found.writes)


def _is_list(x: NodeState | None) -> bool:
    return x is not None and x.kind == "list"


def _counter(x: NodeState, accesses: AccessSet) -> State:
    """Returns the state (mask, list or allocator) to which an accessed counter of a tree belongs."""
    row, column = (axis.affine.const for axis in accesses.index if axis.affine is not None)
    if row == x.node:
        return State("allocator", x.tree)
    kinds: dict[int, StateKind] = {COUNT: "list", CHANGED: "mask"}
    return State(kinds.get(column, "allocator"), f"{x.tree}.{row}")
