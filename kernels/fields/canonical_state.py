"""Canonical state of sparse trees, which does not depend on slot numbers: results of sequences are compared in it.

Active cells are their coordinates in the order of the tree. Fields are their values at these cells. The state that a program cannot
observe is checked for soundness. No slot is used twice, used while free, or lost. The zeros that inactive cells share are still
zeros. Lists marked as current are the set of these cells. The order of appended cells is undefined, so the contents of such a list
of cells are compared as a multiset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sparse.layout import CHANGED, COUNT, FREE, FREED, FRESH, TAKEN, TreeLayout, n_shared, nowhere
from ..sparse.naming import inactive_written, node_text
from ..sparse.recorded import UsedTree
from .storage import TOP, TreeStorage

Array = NDArray[Any]
SOUND = "sound"


def canonical(trees: Iterable[UsedTree], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the arrays of a sequence, with the arrays of trees replaced by their canonical form.

    `TREE.cellsN`: coordinates of the active cells of node N (axes of the node, cells). `TREE.sound`: counts of errors, all 0 in a
    sound state. Elements of fields are in the order of the cells.
    """
    return inspected(trees, arrays)[0]


def unsound(trees: Iterable[UsedTree], arrays: Mapping[str, Array]) -> str:
    """Returns a message on the first error in the hidden state of trees, with pool and field; "" without errors."""
    return inspected(trees, arrays)[1]


def inspected(
    trees: Iterable[UsedTree], arrays: Mapping[str, Array]
) -> tuple[dict[str, Array], str]:
    """Returns the canonical form of a sequence's arrays, and a message on the first error in the hidden state of its trees.

    Each tree is walked once. Values are as of `canonical` and `unsound`.
    """
    found, wrong = dict(arrays), ""
    for used in trees:
        for _, name in used.sections:
            found.pop(name, None)
        seen = _seen(used, arrays)
        found |= seen.found
        found[f"{used.tree.name}.{SOUND}"] = np.array([n for _, n in seen.wrong], np.int64)
        wrong = wrong or next((text for text, n in seen.wrong if n), "")
    return found, wrong


@dataclass
class _Seen:
    """Canonical arrays of a tree by name (`found`), and the number of each kind of error in it (`wrong`)."""

    found: dict[str, Array] = field(default_factory=dict)
    wrong: list[tuple[str, int]] = field(default_factory=list)


def _seen(used: UsedTree, arrays: Mapping[str, Array]) -> _Seen:
    tree, name = used.tree, used.tree.name
    here = {key: arrays[array] for key, array in used.sections if array in arrays}
    storage = TreeStorage(used.layout, here)
    seen = _Seen()
    cells: dict[int, tuple[Array, dict[int, Array]]] = {-1: TOP}  # in the order of the tree
    for node in range(len(tree.nodes)):
        if not _is_known(used, node, here):
            continue
        above = cells[tree.nodes[node].parent]
        if not tree.nodes[node].has.is_sparse and not tree.nodes_in(node):
            # Most cells are those of dense leaves, and nothing asks for their indices.
            cells[node] = storage.items_in(node, above[0]), {}
            continue
        items, at = storage.active_in(node, *above)
        cells[node] = items[_free_order(used, node, here, above[0], items)], at
        if tree.nodes[node].has.is_sparse:
            indices = np.array([at[a] for a in tree.axes(node)], np.int64)
            seen.found[f"{name}.cells{node}"] = indices
            own, called = (above[0], items), node_text(tree, node)
            twice = _bad_slots(storage, here, node, own)
            seen.wrong += [
                (f"a slot of {called} is in use twice, or free and in use", twice),
                (f"slots of {called} are lost", _lost_slots(storage, here, node, own)),
                (
                    f"the list of {called} claims to be new and has other cells",
                    _bad_list(here, node, indices, items),
                ),
            ]
    for number, f in enumerate(used.fields):
        key = f"field{number}"
        if key in here and f.node in cells:
            seen.found[used.arrays[key]] = here[key][..., cells[f.node][0]]
            shared = here[key][..., : n_shared(used.layout, key)]
            seen.wrong.append((inactive_written(used, key), int(np.count_nonzero(shared))))
        elif key in here:
            seen.found[used.arrays[key]] = here[key]
    return seen


def _free_order(
    used: UsedTree, node: int, here: Mapping[str, Array], containers: Array, items: Array
) -> Array:
    """Returns the order in which the cells of a node are compared.

    Where the order of appends is undefined, cells are sorted by their values within each container. Cells with nodes below stay in
    the order of their appends.
    """
    order = np.arange(len(items))
    if node not in used.appended or used.tree.nodes_in(node):
        return order
    n_cells = np.minimum(here[f"length{node}"][containers], used.tree.nodes[node].cells)
    rank = np.repeat(np.arange(len(containers)), n_cells)
    if len(rank) != len(items):
        return order  # a cell has no slot, which is told elsewhere
    values = [
        row
        for k, f in enumerate(used.fields)
        if f.node == node and f"field{k}" in here
        for row in here[f"field{k}"].reshape(-1, here[f"field{k}"].shape[-1])[:, items]
    ]
    # Floats last: they may be rounded otherwise.
    values.sort(key=lambda row: row.dtype.kind == "f")
    found: Array = np.lexsort((*reversed(values), rank))
    return found


def _is_known(used: UsedTree, node: int, here: Mapping[str, Array]) -> bool:
    """True if the kernels have the arrays that define which cells of a node are active."""
    kinds = (
        ("pool", "table"),
        ("mask", "mask"),
        ("length", "length"),
        ("directory", "keys"),
        ("directory", "at"),
    )
    return all(
        f"{stem}{k}" in here
        for k in used.tree.path(node)
        for kind, stem in kinds
        if getattr(used.tree.nodes[k].has, kind)
    )


def _bad_slots(
    storage: TreeStorage, here: Mapping[str, Array], node: int, cells: tuple[Array, Array]
) -> int:
    """Returns the number of slots of a pool that two cells share, or that are both used and free.

    `cells`: container of each cell of the node, and its item (number in memory).
    """
    if not storage.tree.nodes[node].has.pool or f"free{node}" not in here:
        return 0
    slots = _slots_in(storage, here, node, cells)
    row = here["counters"][node]
    free, taken, n_freed = int(row[FREE]), int(row[TAKEN]), int(row[FREED])
    end = int(row[FRESH]) + max(taken - free, 0)
    idle = [here[f"free{node}"][: max(free - taken, 0)], here[f"freed{node}"][:n_freed]]
    in_use = np.isin(np.concatenate(idle), slots, assume_unique=False)
    twice = np.count_nonzero(slots[1:] == slots[:-1])
    return int(twice + np.count_nonzero(slots >= end) + np.count_nonzero(in_use))


def _lost_slots(
    storage: TreeStorage, here: Mapping[str, Array], node: int, cells: tuple[Array, Array]
) -> int:
    """Returns the number of slots of a pool that are neither free nor used by a cell, or the excess of used ones.

    `cells`: container of each cell of the node, and its item (number in memory).
    """
    if not storage.tree.nodes[node].has.pool or f"free{node}" not in here:
        return 0
    row = here["counters"][node]
    free, taken, n_freed = int(row[FREE]), int(row[TAKEN]), int(row[FREED])
    end = min(int(row[FRESH]) + max(taken - free, 0), storage.layout.slots[node])
    n_used = len(np.unique(_slots_in(storage, here, node, cells)))
    return abs(end - 1 - max(free - taken, 0) - n_freed - n_used)


def _slots_in(
    storage: TreeStorage, here: Mapping[str, Array], node: int, cells: tuple[Array, Array]
) -> Array:
    """Returns the slots of a node's cells. `cells`: container of each cell, and its item (number in memory)."""
    node_k = storage.tree.nodes[node]
    containers, slots = cells
    if not node_k.has.directory:
        entries = containers[:, None] * node_k.entries + np.arange(node_k.entries)
        slots = here[f"table{node}"][entries.ravel()]
    return np.sort(slots[slots != 0])


def _bad_list(here: Mapping[str, Array], node: int, at: Array, items: Array) -> int:
    """Returns 1 if the node's list of active cells is marked as current but differs from `items`, else 0."""
    key = f"list{node}"
    if key not in here or "counters" not in here or int(here["counters"][node, CHANGED]) > 0:
        return 0
    kept = here[key][:, : int(here["counters"][node, COUNT])].astype(np.int64)
    wanted = np.concatenate([items[None], at])
    if kept.shape != wanted.shape or np.array_equal(kept, wanted):
        return int(kept.shape != wanted.shape)
    in_order = [x[:, np.lexsort(x)] for x in (kept, wanted)]
    return int(not np.array_equal(in_order[0], in_order[1]))


def without_inactive(trees: Iterable[UsedTree], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the arrays with zeros wherever a sparse field has no active cell.

    These are free slots of pools, and the item that all inactive cells share.
    """
    found = dict(arrays)
    for used in trees:
        here = {key: arrays[array] for key, array in used.sections}
        storage = TreeStorage(used.layout, here)
        for number, f in enumerate(used.fields):
            key = f"field{number}"
            if key not in here or not _is_known(used, f.node, here):
                continue
            items, at = TOP
            for k in used.tree.path(f.node):
                items, at = storage.active_in(k, items, at)
            kept = np.zeros_like(here[key])
            kept[..., items] = here[key][..., items]
            found[used.arrays[key]] = kept
    return found


def _is_within(rows: Array, ends: Sequence[int]) -> bool:
    """True if all numbers in row k are from 0 to `ends[k] - 1`."""
    pairs = zip(rows, ends, strict=True)
    return all(not row.size or 0 <= row.min() <= row.max() < n for row, n in pairs)


def is_sound(layout: TreeLayout, here: Mapping[str, Array]) -> bool:
    """True if all slots, lengths, list entries and counters of a tree's state are within their arrays."""
    counters = here.get("counters")
    for k, node in enumerate(layout.tree.nodes):
        n_slots, n_items = layout.slots[k], layout.items[k]
        limits = {"table": n_slots, "free": n_slots, "freed": n_slots, "length": node.cells + 1}
        for stem, end in limits.items():
            array = here.get(f"{stem}{k}")
            if (
                array is not None
                and array.size
                and not 0 <= int(array.min()) <= int(array.max()) < end
            ):
                return False
        listed, at = here.get(f"list{k}"), here.get(f"at{k}")
        shape = layout.tree.shape(k)
        if at is not None and not _is_within(at, (nowhere(n_slots) + 1, *shape)):
            return False
        if listed is not None and not _is_within(listed, (n_items, *shape)):
            return False
        if counters is not None:
            row = counters[k]
            # A flag of changes may be a mark, of any sign (runtime/engine/tree_marks.py).
            if (
                np.delete(row, CHANGED).min() < 0
                or max(row[FREE], row[FREED], row[TAKEN], row[FRESH]) > n_slots + 1
            ):
                return False
            if listed is not None and row[COUNT] > listed.shape[1]:
                return False
    return True
