"""Names of parts of trees in messages: pools by their node, bytes of arrays by field and slot."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from math import prod

from ..ir.structure import StructureTree
from .layout import n_shared
from .recorded import UsedTree

_SECTION = re.compile(r"([a-z]+)(\d*)")


def node_text(tree: StructureTree, node: int) -> str:
    """Text that names a node by its kind, its cells and its tree: `pointer 8 x 8 (node 0 of tree0_0)`."""
    n = tree.nodes[node]
    return f"{n.kind} {' x '.join(map(str, n.extents))} (node {node} of {tree.name})"


def inactive_written(used: UsedTree, key: str) -> str:
    """Message that a kernel wrote elements of a tree's section `key` that inactive cells share."""
    tree, array = used.tree, used.arrays[key]
    stem = key.rstrip("0123456789")
    number = int(key[len(stem) :])
    node = used.fields[number].node if stem == "field" else tree.nodes[number].parent
    what = f"field {number} of the tree"
    if stem != "field":
        what = f"the {stem} of {node_text(tree, number)}"
    called = node_text(tree, max(tree.last(node, "pool"), 0))
    return f"cells of {called} that are not active were written: {array}, {what}"


def shared_parts(trees: Iterable[UsedTree]) -> dict[str, tuple[int, str]]:
    """Returns for each array with elements that inactive cells share their number and an error message.

    The elements are the first ones of each row; the message is for a write to one of them.
    """
    found = {}
    for used in trees:
        for key, array in used.sections:
            n = n_shared(used.layout, key)
            if n:
                found[array] = n, inactive_written(used, key)
    return found


def in_terms_of_trees(trees: Iterable[UsedTree], text: str) -> str:
    """Returns a message with each array of a tree, and each byte of one, followed by its meaning."""
    for used in trees:
        for key, array in used.sections:
            pattern = rf"(?:byte (\d+) of )?\b{re.escape(array)}\b"
            text = re.sub(pattern, partial(_named, used, key), text)
    return text


def _named(used: UsedTree, key: str, found: re.Match[str]) -> str:
    section = _SECTION.fullmatch(key)
    assert section is not None
    stem, number = section[1], int(section[2] or 0)
    layout, tree = used.layout, used.tree
    if stem == "counters":
        return f"{found[0]} (the counters of {tree.name})"
    if stem != "field":
        where = f"the {stem} of {node_text(tree, number)}"
        element = int(found[1] or -1) // layout.sections[key].dtype.size_bytes
        if 0 <= element < n_shared(layout, key):
            above = node_text(tree, tree.last(tree.nodes[number].parent, "pool"))
            where += f" in the pool of {above}, slot 0, which inactive cells share"
        return f"{found[0]} ({where})"
    node = used.fields[number].node
    pool = tree.last(node, "pool")
    where = f"field {number}"
    if pool >= 0:
        where += f" in the pool of {node_text(tree, pool)}"
    if pool >= 0 and found[1]:
        values = layout.sections[key]
        item = int(found[1]) // values.dtype.size_bytes % prod(values.shape[-1:])
        slot = item // (layout.items[node] // layout.slots[pool])
        where += f", slot {slot}" + ", which inactive cells share" * (slot == 0)
    return f"{found[0]} ({where})"
