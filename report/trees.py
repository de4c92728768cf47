"""Search trees prepared for drawing: the best time below each node, and compact columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runtime.records.record import EvaluationRecord
from ..runtime.records.tree_file import FORBIDDEN, StoredTree

NO_NAME = 65535  # in columns of names; spaces have some thousands


@dataclass(frozen=True)
class Below:
    """Evaluations placed in a search tree.

    `best_ns` [n_nodes]: best time measured below each node, inf if none. `row` [n_evaluations]: deepest node on the path of each.
    """

    best_ns: npt.NDArray[np.float64]
    row: npt.NDArray[np.int64]


def find_below(tree: StoredTree, evaluations: Sequence[EvaluationRecord]) -> Below:
    """Follows the decisions of each evaluation down the tree, even if the evaluation was made elsewhere."""
    first, n_children = _children(tree)
    best_ns = np.full(len(tree), np.inf)
    rows = np.zeros(len(evaluations), np.int64)
    numbers = {name: k for k, name in enumerate(tree.names)}
    for k, r in enumerate(evaluations):
        decided = dict(r.decisions)
        row = 0
        while True:
            if r.time_ns is not None:
                best_ns[row] = min(best_ns[row], r.time_ns)
            rows[k] = row
            asked = tree.choice[row]
            value = numbers.get(decided.get(tree.names[asked], ""), -1) if asked >= 0 else -1
            children = range(first[row], first[row] + n_children[row])
            row = next((c for c in children if tree.value[c] == value), -1)
            if row < 0:
                break
    return Below(best_ns, rows)


def _children(tree: StoredTree) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns [n_nodes] the first child of each node, and the number of its children, which are contiguous."""
    parent = tree.array("parent")[1:]
    first = np.zeros(len(tree), np.int64)
    first[parent[::-1]] = np.arange(len(tree) - 1, 0, -1)
    return first, np.bincount(parent, minlength=len(tree)).astype(np.int64)


def columns_of(tree: StoredTree, below: Below) -> dict[str, npt.NDArray[Any]]:
    """Returns the columns that the page draws.

    `name` is the choice by which a node was expanded, or the reason why it is forbidden.
    """
    choice, state = tree.array("choice"), tree.array("state")
    name = np.where(choice >= 0, choice, np.where(state == FORBIDDEN, tree.array("why"), -1))
    best = np.where(np.isfinite(below.best_ns), below.best_ns, 0.0)
    return {
        "parent": np.maximum(tree.array("parent"), 0).astype(np.uint32),
        "value": _short(tree.array("value")),
        "name": _short(name),
        "state": state.astype(np.uint8),
        "tag": tree.array("tag").astype(np.uint8),
        "bound": tree.array("bound_ns").astype(np.float32),
        "best": best.astype(np.float32),
        "cut": tree.array("cut_ns").astype(np.float32),
    }


def _short(names: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    return np.where((names < 0) | (names > NO_NAME), NO_NAME, names).astype(np.uint16)


def depths(tree: StoredTree) -> npt.NDArray[np.int64]:
    """Returns [n_nodes] the number of decisions above each node."""
    found = np.zeros(len(tree), np.int64)
    for row, parent in enumerate(tree.parent[1:], 1):
        found[row] = found[parent] + 1
    return found


def widths(tree: StoredTree) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns [n_nodes] left edge and width of each node in a picture of width 1, by its number of leaves."""
    parent = tree.array("parent")
    has_children = np.zeros(len(tree), bool)
    has_children[parent[1:]] = True
    leaves = np.where(has_children, 0.0, 1.0)
    for row in range(len(tree) - 1, 0, -1):
        leaves[parent[row]] += leaves[row]
    left = np.zeros(len(tree))
    free = np.zeros(len(tree))
    for row in range(1, len(tree)):
        p = parent[row]
        left[row] = left[p] + free[p]
        free[p] += leaves[row]
    return left / leaves[0], leaves / leaves[0]
