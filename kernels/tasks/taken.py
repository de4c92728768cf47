"""Notes, while tasks are made, which calls use a list of active cells (`ListSite`), in the task that makes the list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace

from ..ir.kernel import If
from ..ir.on_trees import ListSite
from ..ir.task import Task
from ..ir.walk import written_in
from .parts import TakenList


@dataclass
class TakenLists:
    """State while the tasks of a sequence are made: the task that last made each list, and names in use.

    `maker`: its number by the list's array. A list that is made in a task with other statements, which have locals in common, has
    no task of its own and no choice: None.
    """

    maker: dict[str, int | None] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(self, tasks: list[Task], n_new: int, lists: Sequence[TakenList], label: str) -> None:
        """Records each use of a list by a call in the task that makes the list.

        `lists`: the lists that the call uses. Its tasks are the last `n_new` of `tasks`.
        """
        arrays = {x.array for x in lists}
        made = _made(tasks, len(tasks) - n_new, arrays)
        for x in lists:
            if not x.is_right:
                self.maker[x.array] = next(made)
            k = self.maker.get(x.array)
            if k is None:  # or the run before has made it
                continue
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


def _made(tasks: Sequence[Task], first: int, arrays: Set[str]) -> Iterator[int | None]:
    """Yields for each statement that makes one of the lists the number of its task.

    None if the task has other statements. `first`: the first task to search. `arrays`: the arrays of the lists.
    """
    for k in range(first, len(tasks)):
        body = tasks[k].body
        if body is not None and not tasks[k].loops:
            for s in body.statements:
                if isinstance(s, If) and not arrays.isdisjoint(written_in((s,))):
                    yield k if len(body.statements) == 1 else None
