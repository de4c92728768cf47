"""Steps of repeats in tasks: names of time loops, and of the sites of steps that are written out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ..ir.affine import Affine, rename
from ..ir.domain import Loop
from ..ir.kernel import LoopIndex
from ..ir.logical import LogicalLoop
from ..ir.on_trees import ListSite, TileSite
from ..ir.task import Task
from ..ir.walk import rewrite

_Site = TypeVar("_Site", ListSite, TileSite)


def named_steps(tasks: tuple[Task, ...], taken: set[str]) -> tuple[Task, ...]:
    """Returns tasks with time loops named t, t2 and so on, different from all names in `taken` and loops."""
    every = dict.fromkeys(loop.name for t in tasks for loop in t.repeats)
    taken = taken | {loop.name for t in tasks for loop in t.loops}
    taken |= {
        site.name for t in tasks if t.body is not None for s in t.body.sites for site in s.loops
    }
    free = (n for k in itertools.count(1) if (n := f"t{k}" if k > 1 else "t") not in taken)
    names = dict(zip(every, free, strict=False))
    return tuple(with_steps(t, names) for t in tasks)


def with_steps(task: Task, names: Mapping[str, str]) -> Task:
    """Returns the task with its time loops renamed. `names`: the new names by the old ones."""

    def change(x: Any) -> Any:
        match x:
            case Loop(name=name) if x.is_step:
                return replace(x, name=names.get(name, name))
            case LoopIndex(loop=name):
                return replace(x, loop=names.get(name, name))
            case Affine():
                return rename(x, names)
        return x

    repeats = tuple(map(change, task.repeats))
    named = replace(task, logical=None)
    named = replace(rewrite(named, change) if task.steps else named, repeats=repeats)
    return named if task.logical is None else replace(named, logical=_renamed(task.logical, change))


def _renamed(loop: LogicalLoop, change: Callable[[Any], Any]) -> LogicalLoop:
    """Returns a loop on sparse fields with `change` applied to the scalar arguments of its call."""
    scalars = {name: rewrite(x, change) for name, x in loop.call.scalars.items()}
    if scalars == loop.call.scalars:
        return loop  # tasks of one call share its lowerings
    return replace(loop, call=replace(loop.call, scalars=scalars))


def with_own_sites(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Returns tasks in which no two uses of lists, and no two staged fields, have one name.

    Steps that are written out several times have them so often.
    """
    taken = set[str]()

    def named(sites: tuple[_Site, ...]) -> tuple[_Site, ...]:
        made = []
        for site in sites:
            names = (f"{site.name}_{n}" if n > 1 else site.name for n in itertools.count(1))
            name = next(x for x in names if x not in taken)
            taken.add(name)
            made.append(site if name == site.name else replace(site, name=name))
        return tuple(made)

    def with_own(task: Task) -> Task:
        if task.body is None:
            return task
        trees = task.body.trees
        lists, tiles = named(trees.lists), named(trees.tiles)
        if (lists, tiles) == (trees.lists, trees.tiles):
            return task
        return replace(
            task, body=replace(task.body, trees=replace(trees, lists=lists, tiles=tiles))
        )

    return tuple(map(with_own, tasks))
