"""Sparse lowering of a recorded call, with the decisions about its loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ..ir.kernel import Stmt
from ..ir.logical import FieldPlace, LogicalCall
from ..ir.structure import StructureTree
from .layout import Layout, layout_of
from .lower import lower_trees
from .lowered import Lowered

_MOST_KEPT = 64  # layouts of the trees of a sequence: all of its calls have the same


@dataclass(frozen=True)
class LoweredCall:
    """A lowered kernel, with the array of the sequence for each of its arrays.

    Its statements are the `settling` of pools and the `body`, without lists that are reused.
    """

    lowered: Lowered
    arrays: Mapping[str, str]
    settling: tuple[Stmt, ...]
    body: tuple[Stmt, ...]


def lower_call(
    call: LogicalCall, staged: frozenset[tuple[int, str]] = frozenset(), *, in_each: bool = False
) -> LoweredCall | None:
    """Lowers the kernel of a call. None if it needs an array that the sequence does not have.

    `staged`: fields that a loop reads out of tiles, with the loop's number at top level. `in_each`: all activations are made, in
    each iteration.
    """
    none = frozenset[int]()
    demoted, once = (none, none) if in_each else (call.demoted, call.once)
    lowered = lower_trees(call.ir, _layouts(call.trees), call.fields, demoted, staged, once)
    added = {name: (tree, key) for name, tree, key in lowered.sections}
    if not set(added.values()) <= call.sections.keys():
        return None
    arrays = {name: call.sections[section] for name, section in added.items()}
    reused = {k for k, top, tree, n in lowered.lists if (tree, n) in call.reused[top]}
    body, first = lowered.ir.body, lowered.n_settling
    kept = (k for k in range(first, len(body) - lowered.n_claiming) if k not in reused)
    return LoweredCall(
        lowered, {**call.arrays, **arrays}, body[:first], tuple(body[k] for k in kept)
    )


@lru_cache(maxsize=_MOST_KEPT)
def _layouts(
    trees: tuple[tuple[StructureTree, tuple[FieldPlace, ...]], ...],
) -> dict[str, Layout]:
    return {tree.name: layout_of(tree, fields) for tree, fields in trees}
