"""Copies of whole arrays become renaming: behind `x = y` the arrays exchange memory, if `y` is overwritten before it is read.

The copy is left out, as coalescing does with copies of registers (Chaitin 1982). In a repeat the arrays exchange memory in each
step. So two steps are written out, behind which each array is in its own memory again.

A copy is never better than none, so this is no choice. Each array that outlives the sequence is in its own memory at the end:
where an odd number of copies is left out, the last of them stays. Fields of one node of a tree exchange memory as dense arrays do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from ..analysis.effects import arrays_read, arrays_written, effects, region_of
from ..ir.access import State, whole
from ..ir.kernel import ArrayParam
from ..ir.repeats import Repeat, repeats_of
from ..ir.task import Task
from .coverage import ActiveStores, overwrites_active
from .non_affine import is_settling
from .whole_copies import Copy, Moved, copies_of

_MOST_TASKS = 16  # of a step that is written out twice
_LEAST_BYTES = 4096  # of an array for which it is: copies of a few numbers, as in conjugate gradients, take no time


def without_copies(
    tasks: tuple[Task, ...],
    known: Mapping[str, ArrayParam],
    temps: Collection[str],
    staying: Collection[str],
    in_trees: Collection[str],
    stores: ActiveStores,
) -> tuple[Task, ...]:
    """Returns tasks that compute the same with fewer copies of whole arrays.

    `known`: all arrays. `temps`: the temporaries, which need not hold anything at the end. `staying`: arrays that keep their
    memory. `in_trees`: the arrays of trees. `stores`: the stores to fields of trees.
    """
    renaming = _Renaming(known, frozenset(temps), frozenset(staying), frozenset(in_trees), stores)
    return renaming.in_order(renaming.in_repeats(tasks))


class _Renaming:
    def __init__(
        self,
        known: Mapping[str, ArrayParam],
        temps: frozenset[str],
        staying: frozenset[str],
        in_trees: frozenset[str],
        stores: ActiveStores,
    ) -> None:
        self._known, self._temps, self._stores = known, temps, stores
        self._staying, self._in_trees = staying, in_trees
        self._moved = Moved(frozenset(name for name, a in known.items() if a.is_list))

    def in_repeats(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        """Returns tasks without the copies in innermost repeats that are renaming in each step."""
        every = repeats_of([t.repeats for t in tasks])
        for r in reversed(every):
            if not any(x.is_inside(r) for x in every):
                tasks = (*tasks[: r.first], *self._repeated(tasks, r), *tasks[r.stop :])
        return tasks

    def _repeated(self, tasks: Sequence[Task], r: Repeat) -> Sequence[Task]:
        step = tasks[r.first : r.stop]
        loop = step[0].repeats[-1]
        is_counted = any(loop in t.steps for t in step)
        if len(step) > _MOST_TASKS or r.least < 2 or is_counted:
            return step
        copies: list[Copy] = []
        for copy in self._copies(step):
            taken = frozenset[str]().union(*(c.pair for c in copies))
            if copy.pair.isdisjoint(taken) and self._is_swapped_each_step(step, copy):
                copies.append(copy)
        if not copies:
            return step
        first, names = self._step(step, copies, {})
        second, names = self._step(step, copies, names)
        assert all(name == x for x, name in names.items())
        outer = step[0].repeats[:-1]
        around = (*outer, replace(loop, extent=r.count // 2)) if r.count > 3 else outer
        made = [replace(t, repeats=around) for t in (*first, *second)]
        behind = list(step) if r.count % 2 else [*self._caught_up(step, copies)]
        return [*made, *(replace(t, repeats=outer) for t in behind)]

    def _is_swapped_each_step(self, step: Sequence[Task], copy: Copy) -> bool:
        """True if the arrays of a copy may exchange memory in each step of a repeat."""
        a = self._known[copy.source]
        if prod(a.shape) * a.dtype.size_bytes < _LEAST_BYTES:
            return False
        behind, before = step[copy.at + 1 :], step[: copy.at + 1]
        if not self._is_overwritten(copy.source, (*behind, *before), at_end=False):
            return False
        is_kept = not any(copy.target in arrays_written(t) for t in behind if not is_settling(t))
        return is_kept or self._is_overwritten(copy.source, behind, at_end=False)

    def _step(
        self, step: Sequence[Task], copies: Sequence[Copy], names: Mapping[str, str]
    ) -> tuple[list[Task], dict[str, str]]:
        """Returns a step without `copies`, and the memory of each array behind it. `names`: that before it."""
        names, left = dict(names), {c.at: c for c in copies}
        made = []
        for k, task in enumerate(step):
            if k in left:
                _swap(names, left[k])
            else:
                made.append(self._moved.task(task, names))
        return made, names

    def _caught_up(self, step: Sequence[Task], copies: Sequence[Copy]) -> Iterable[Task]:
        """Yields copies, to be made once, for arrays that no task has overwritten behind a copy that was left out."""
        for c in copies:
            if not self._is_overwritten(c.source, step[c.at + 1 :], at_end=False):
                yield self._moved.task(step[c.at], {c.source: c.target, c.target: c.source})

    def in_order(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        """Returns tasks without the copies outside of repeats that are renaming."""
        staying = set[int]()
        while True:
            made, names, left = self._pass(tasks, staying)
            moved = {x for x, name in names.items() if name != x and x not in self._temps}
            if not moved:
                return tuple(made)
            staying.add(max(c.at for c in left if not c.pair.isdisjoint(moved)))

    def _pass(
        self, tasks: Sequence[Task], staying: Collection[int]
    ) -> tuple[list[Task], dict[str, str], list[Copy]]:
        """Returns tasks without copies but those at `staying`, the memory of each array at the end, and what was left out."""
        copies = {c.at: c for c in self._copies(tasks) if not tasks[c.at].repeats}
        names, made, left = dict[str, str](), list[Task](), list[Copy]()
        for k, task in enumerate(tasks):
            copy, later = copies.get(k), tasks[k + 1 :]
            if copy is None:
                made.append(self._moved.task(task, names))
            elif k not in staying and self._is_overwritten(copy.source, later, at_end=True):
                _swap(names, copy)
                left.append(copy)
            else:
                made.append(self._moved.task(task, names))
                if {names.get(x, x) for x in copy.pair} == copy.pair:  # both hold the same now
                    names |= {x: x for x in copy.pair}
        return made, names, left

    def _copies(self, tasks: Sequence[Task]) -> Iterable[Copy]:
        return copies_of(tasks, self._known, self._staying, self._in_trees)

    def _is_overwritten(self, array: str, later: Iterable[Task], *, at_end: bool) -> bool:
        """True if a task of `later` overwrites all of an array before any reads it.

        `at_end`: the sequence ends behind them, where nobody reads a temporary.
        """
        shape, state = self._known[array].shape, State("value", array)
        cells_stay = True  # those at which the array has values now are active
        for t in later:
            if array in arrays_read(t):
                return False
            cells_stay = cells_stay and not self._stores.may_shrink(t)
            if array in arrays_written(t) and not is_settling(t):
                if cells_stay and overwrites_active(t, array, shape):
                    return True
                sure = [x for s, x, is_sure in effects(t).writes if s == state and is_sure]
                return any(region_of(x, shape).covers(whole(shape)) for x in sure)
        return at_end and array in self._temps


def _swap(names: dict[str, str], copy: Copy) -> None:
    """Exchanges the memory of the arrays of a copy."""
    a, b = copy.source, copy.target
    names[a], names[b] = names.get(b, b), names.get(a, a)
