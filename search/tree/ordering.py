"""Order in which a search decides choices: by the kind of the choice and its tile level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...space.backbone import INNER, MID, OUTER, Dim
from ...space.candidate import Space
from ...space.engine.jit import jit

__all__ = ["ORDERS", "NextChoice", "decision_order", "open_in_order"]

Priorities = npt.NDArray[np.int32]

# Choices are decided in this order, unnamed ones last.
_DEFAULT = (
    "fused",
    "order of tasks",  # outer dims and bodies of different tasks
    "inner kind",
    "inner size",
    "mid size",
    "outer kind",
    "schedule",
    "order in tasks",  # outer dims of one task
    "mid kind",
    "thread_level",
    "shift",
    "order of mid",  # whatever has a mid dim
    "mem_space",
    "staged",
    "packed_by",
    "layout",
    "reduction",
    "store",
    "cache",
    "load_cache",
    "prefetch",
    "prefetch_accumulators",
)
_SIZE_FIRST = (
    "staged",
    "packed_by",
    "layout",
    "mem_space",
    "inner size",
    "mid size",
    "outer kind",
    "inner kind",
    "mid kind",
    "thread_level",
    "fused",
    "order of tasks",
    "order in tasks",
    "order of mid",
    "shift",
    "schedule",
    "reduction",
    "store",
    "cache",
    "load_cache",
    "prefetch",
    "prefetch_accumulators",
)
ORDERS: dict[str, tuple[str, ...]] = {
    "default": _DEFAULT,  # what the bound feels first: fusion, sizes of tiles, threads
    "size_first": _SIZE_FIRST,  # Telamon's
    "reverse": _DEFAULT[::-1],  # to measure what an order is worth
}


class _Domains(Protocol):
    @property
    def domains(self) -> npt.NDArray[np.uint32]: ...


def decision_order(space: Space, name: str = "default") -> Priorities:
    """Returns [n_choices]: the priority of every choice, the smallest first.

    Raises KeyError for unknown names.
    """
    rank = {group: k for k, group in enumerate(ORDERS[name])}
    levels = _dim_levels(space)
    groups = _groups_of_orders(space, levels)
    groups += [
        _group_of_variable(choice.kind, choice.objects, levels)
        for choice in space.choices[len(groups) :]
    ]
    return np.array([rank.get(group, len(rank)) for group in groups], np.int32)


def _dim_levels(space: Space) -> dict[str, Dim]:
    return {d.name: d for d in space.backbone.dims}


def _groups_of_orders(space: Space, dims: dict[str, Dim]) -> list[str]:
    b = space.backbone
    owner = [
        (t, OUTER) for t in b.order_tasks
    ]  # (task, level) of each object; bodies count as outer
    for d in dims.values():
        if d.order_id >= 0:
            owner[d.order_id] = d.task, d.level
    return [_group_of_order(owner[x], owner[y]) for x, y in space.model.rows.pairs()]


def _group_of_order(a: tuple[int, int], b: tuple[int, int]) -> str:
    if MID in (a[1], b[1]):
        return "order of mid"
    return "order in tasks" if a[0] == b[0] else "order of tasks"


def _group_of_variable(kind: str, objects: Sequence[str], dims: dict[str, Dim]) -> str:
    if kind not in ("dim_kind", "size") or objects[0] not in dims:  # of another component
        return kind
    level = {OUTER: "outer", MID: "mid", INNER: "inner"}[dims[objects[0]].level]
    return f"{level} {'kind' if kind == 'dim_kind' else kind}"


def open_in_order(space: Space, name: str = "default") -> npt.NDArray[np.int32]:
    """Returns the positions of the searchable choices in decision order (ties by position)."""
    searchable = space.searchable
    priority = decision_order(space, name)[searchable]
    return searchable[np.argsort(priority, kind="stable")]


class NextChoice:
    """Function that gives the choice to decide next: the first open one by (priority, position)."""

    def __init__(self, space: Space, name: str = "default") -> None:
        self.name = name
        self.in_order = open_in_order(space, name)

    def __call__(self, candidate: _Domains) -> int:
        """Returns the position of the choice to decide next. Raises ValueError for a complete candidate."""
        found = int(_first_open(candidate.domains, self.in_order))
        if found < 0:
            raise ValueError("a complete candidate has nothing left to decide")
        return found


@jit
def _first_open(domains: npt.NDArray[np.uint32], in_order: npt.NDArray[np.int32]) -> int:
    for k in range(in_order.size):
        domain = domains[in_order[k]]
        if domain & (domain - np.uint32(1)):
            return int(in_order[k])
    return -1
