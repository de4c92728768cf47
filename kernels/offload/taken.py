"""The lists that loops of a sequence take, noted in the tasks that make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..ir.on_trees import ListSite
from ..ir.task import Task
from .parts import TakenList


@dataclass
class TakenLists:
    """What is known while the tasks of a sequence are made: the task that last made each list, by array, and names in use."""

    maker: dict[str, int] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(self, tasks: list[Task], n_new: int, lists: Sequence[TakenList], label: str) -> None:
        """Notes the lists that a call takes, of which the last tasks are."""
        arrays = {x.array for x in lists}
        made = iter(
            k
            for k in range(len(tasks) - n_new, len(tasks))
            if tasks[k].target.array in arrays and tasks[k].body is not None
        )
        for x in lists:
            if not x.is_right:
                self.maker[x.array] = next(made)
            k = self.maker[x.array]
            body = tasks[k].body
            assert body is not None and tasks[k].target.array == x.array
            site = ListSite(self._name(f"{label}.{x.array}"), x.has_flag, x.is_right)
            noted = replace(body.trees, lists=(*body.trees.lists, site))
            tasks[k] = replace(tasks[k], body=replace(body, trees=noted))

    def _name(self, stem: str) -> str:
        n, name = 1, stem
        while name in self.names:
            n += 1
            name = f"{stem}_{n}"
        self.names.add(name)
        return name
