"""Needless operations of a recorded sequence: lists still valid, activations of active cells, and dead stores, by call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..analysis.effects import arrays_written
from ..ir.kernel import Activate
from ..ir.structure import StructureTree
from ..ir.task import Task
from ..ir.walk import nested_statements
from .cleaned_calls import CleanedCalls


@dataclass(frozen=True)
class NeedlessWork:
    """Operations that calls of a sequence ask for and no task does, each with its call.

    `lists`: lists of active cells that are reused. `activations`: activations of active cells. `stores`: dead stores.
    """

    lists: tuple[str, ...]
    activations: tuple[str, ...]
    stores: tuple[str, ...]


def needless_work(cleaned: CleanedCalls) -> NeedlessWork:
    """Returns the operations of a sequence that its tasks leave out."""
    return NeedlessWork(
        tuple(dict.fromkeys(_lists(cleaned))),
        tuple(dict.fromkeys(_activations(cleaned))),
        tuple(dict.fromkeys(_stores(cleaned))),
    )


def _lists(cleaned: CleanedCalls) -> Iterator[str]:
    trees = {t.tree.name: t.tree for t in cleaned.recording.trees}
    for label, derived in zip(cleaned.calls.labels, cleaned.calls.derived, strict=True):
        for kept in derived.kept if derived is not None else ():
            yield from (f"{label}: {_node_text(trees[t], n)}" for t, n in sorted(kept))


def _activations(cleaned: CleanedCalls) -> Iterator[str]:
    trees = {t.tree.name: t.tree for t in cleaned.recording.trees}
    calls = zip(cleaned.calls.labels, cleaned.recording.calls, cleaned.calls.derived, strict=True)
    for label, call, derived in calls:
        if call.logical is None or derived is None:
            continue
        sites = [s for s in nested_statements(call.logical.ir.body) if isinstance(s, Activate)]
        for n in sorted(derived.demoted):
            yield f"{label}: {_node_text(trees[sites[n].tree], sites[n].node)}"


def _stores(cleaned: CleanedCalls) -> Iterator[str]:
    """Yields dead stores to arrays and fields: not those to temporaries that calls have themselves, nor to other parts of trees."""
    parts = {
        array
        for used in cleaned.recording.trees
        for key, array in used.sections
        if not key.startswith("field")
    }
    unnamed, labels = parts.union(t.name for t in cleaned.calls.temps), set(cleaned.calls.labels)
    for before, after in cleaned.dropped:
        left = Counter(x for task in after for x in _written(task))
        for call, array in Counter(x for task in before for x in _written(task)) - left:
            if call in labels and array not in unnamed:
                yield f"{call}: {array}"


def _written(task: Task) -> list[tuple[str, str]]:
    call = task.name.split("/")[0]
    return [(call, array) for array in arrays_written(task)]


def _node_text(tree: StructureTree, node: int) -> str:
    return f"{tree.nodes[node].kind} node {node} of {tree.name}"
