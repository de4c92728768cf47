"""Coverage: a later task surely overwrites all that an earlier one has stored to an array.

This one relation serves boxes, bodies and trees. It follows from access sets (`effects.covers`), or from a loop over active cells:
every store to a sparse field is to a cell that is active then. A loop over the field's node that stores to its current cell, on
each way through its body, covers all of these cells, as long as no cell was deactivated between: masks may have grown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from ..analysis.effects import arrays_written, covers, effects
from ..ir.access import State
from ..ir.kernel import ArrayParam, Const, Deactivate, ForActive, Placed, Store
from ..ir.logical import LogicalLoop
from ..ir.per_object import per_object
from ..ir.structure import StructureTree
from ..ir.task import Task
from ..ir.walk import nested_statements
from ..sparse.current_cell import own_of
from ..sparse.recorded import UsedTree
from ..sparse.states import node_states
from .non_affine import is_settling


@dataclass(frozen=True)
class ActiveStores:
    """Facts on the stores of a sequence to active cells.

    `masks`: the arrays that hold the masks of nodes (which cells are active). `are_kept`: dead stores are not removed, so no task
    counts as one that overwrites what another has stored.
    """

    masks: frozenset[str]
    are_kept: bool = False

    @staticmethod
    def of(trees: Iterable[UsedTree], *, are_kept: bool = False) -> ActiveStores:
        masks = frozenset(x.array for x in node_states(trees) if x.kind == "mask")
        return ActiveStores(masks, are_kept)

    def may_shrink(self, task: Task) -> bool:
        """True if a task may deactivate cells.

        A task that writes masks and has no form before sparse lowering (`logical`) counts as one that may.
        """
        if self.masks.isdisjoint(arrays_written(task)):
            return False
        if task.logical is None:
            return True
        every = nested_statements(task.logical.call.kernel.ir.body)
        return any(isinstance(s, Deactivate) for s in every)

    def are_to_active(self, task: Task) -> bool:
        """True if the cells to whose fields a task has stored are active behind it.

        A task that reclaims a pool stores zeros to slots that no cell has: cells that take them later are inactive until then.
        """
        return not (self.may_shrink(task) or is_settling(task))

    def covers(self, other: Task, task: Task, array: ArrayParam, *, are_active: bool) -> bool:
        """True if a later task `other` surely overwrites all elements of an array that `task` has written.

        `are_active`: the cells to which `task` has stored are active when `other` runs.
        """
        if self.are_kept or array.name not in arrays_written(other):
            return False
        if are_active and overwrites_active(other, array.name, array.shape):
            return True
        state = State("value", array.name)
        # Writes whose place depends on the step cover nothing: `other` may run in a later step.
        sure = [x for s, x, is_sure in effects(other).writes if s == state and is_sure]
        whole = [x for x in sure if not x.moves]
        written = (x for s, x, _ in effects(task).writes if s == state)
        return all(any(covers(x, a, array.shape) for x in whole) for a in written)


def overwrites_active(task: Task, array: str, shape: tuple[int, ...]) -> bool:
    """True if a task stores to all components of every active cell of a field.

    `array` and `shape`: the field's array, its last axis numbers the cells.
    """
    if task.logical is None:
        return False
    return len(_stored(task.logical).get(array, ())) == prod(shape[:-1])


@per_object
def _stored(loop: LogicalLoop) -> dict[str, set[tuple[int, ...]]]:
    """Returns by array of the sequence the components of the current cell that every iteration of a loop stores."""
    s, kernel = loop.statement, loop.call.kernel
    if not isinstance(s, ForActive):
        return {}
    tree = next(t for t, _ in kernel.trees if t.name == s.tree)
    found: dict[str, set[tuple[int, ...]]] = {}
    for array, components in stored_by(s, tree, {p.array: p for p in kernel.ir.placed}).items():
        section = s.tree, f"field{kernel.fields[array]}"
        found.setdefault(loop.call.sections[section], set()).update(components)
    return found


def stored_by(
    s: ForActive, tree: StructureTree, placed: Mapping[str, Placed]
) -> dict[str, set[tuple[int, ...]]]:
    """Returns by field of its tree the components of the current cell that every iteration of a loop stores."""
    own = own_of(s, tree)
    found: dict[str, set[tuple[int, ...]]] = {}
    for x in s.body:
        p = placed.get(x.array) if isinstance(x, Store) else None
        if p is None or not isinstance(x, Store) or p.tree != s.tree or not own.lies_alike(p.node):
            continue
        n = len(x.indices) - len(s.loops)
        component = [int(i.value) for i in x.indices[:n] if isinstance(i, Const)]
        if len(component) == n and own.item(p.tree, p.node, x.indices[n:]) is not None:
            found.setdefault(x.array, set()).add(tuple(component))
    return found
