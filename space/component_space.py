"""Spaces of single components: the component's choices are open, all others decided.

Tasks are numbered from the component's first one. Positions of choices are those of the sequence's
space. So a candidate of a component has a domain vector of the sequence, and a complete one is an
implementation of the sequence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..kernels.analysis.effects import arrays_read, arrays_written
from ..kernels.ir.task import Problem, Task
from ..kernels.ir.text import problem_key
from .backbone import Backbone, Dim, Flow, Operand, Shift
from .candidate import Candidate, Elsewhere, PartOf, Space
from .components import Component, components_of, coupling_of
from .draft import LISTS, Variables
from .engine.declarations import Declaration


@dataclass(frozen=True)
class Alike:
    """Components that are equal up to names, and the space of the first of them.

    `places`: their component numbers. `choices`: for each, the positions of its choices.
    """

    space: Space
    places: tuple[int, ...]
    choices: tuple[
        npt.NDArray[np.int64], ...
    ]  # by place; choices of equal position in them are the same


def component_spaces(root: Candidate, default: Candidate) -> tuple[Alike, ...]:
    """Returns the spaces of all components with open choices, in program order; equal components share one.

    Choices about parts of sparse trees concern all components, and are decided as in `default`.
    """
    space = root.space
    components = components_of(space)
    tied, rules = coupling_of(space), _rules_of(space, components)
    touched = [_touched(space.problem.tasks[c.tasks.start : c.tasks.stop]) for c in components]
    found: dict[Any, list[tuple[int, npt.NDArray[np.int64]]]] = {}
    firsts: dict[Any, Space] = {}
    for k, component in enumerate(components):
        own = np.array([v for v in component.choices if v not in tied], np.int64)
        is_open = root.domains[own] & (root.domains[own] - np.uint32(1)) != 0
        if not is_open.any():
            continue
        beside = [x for j, x in enumerate(touched) if j != k]
        part = _component_space(
            root, default, replace(component, choices=tuple(own.tolist())), beside
        )
        key = _signature(part, own.tolist(), root, rules[k])
        firsts.setdefault(key, part)
        found.setdefault(key, []).append((k, own))
    return tuple(
        Alike(firsts[key], tuple(k for k, _ in same), tuple(own for _, own in same))
        for key, same in found.items()
    )


def _touched(tasks: Sequence[Task]) -> Elsewhere:
    return Elsewhere(
        frozenset(name for t in tasks for name in arrays_read(t)),
        frozenset(name for t in tasks for name in arrays_written(t)),
    )


def _component_space(
    root: Candidate, default: Candidate, component: Component, beside: Sequence[Elsewhere]
) -> Space:
    space, own = root.space, np.array(component.choices, np.int64)
    held = default.domains.copy()
    held[own] = root.domains[own]
    searchable = space.searchable[np.isin(space.searchable, own)]
    arrays = space.model.arrays._replace(searchable=searchable)
    cut = _Cut(component.tasks)
    backbone = cut.backbone(space)
    return Space(
        model=replace(space.model, arrays=arrays),
        problem=backbone.problem,
        # A call begins and ends once, whatever the number of components.
        target=replace(space.target, call_ns=0.0),
        backbone=backbone,
        variables=cut.variables(space.variables, set(component.choices)),
        fixed=space.fixed,
        whole=space.whole,
        profile=space.profile,
        part_of=PartOf(
            space,
            held,
            Elsewhere(
                frozenset().union(*(x.reads for x in beside)),
                frozenset().union(*(x.writes for x in beside)),
            ),
        ),
    )


class _Cut:
    """Cuts a run of tasks out of a sequence: its tasks are renumbered from 0, objects of other tasks are left out."""

    def __init__(self, tasks: range) -> None:
        self._tasks = tasks

    def backbone(self, space: Space) -> Backbone:
        b, tasks = space.backbone, self._tasks
        dims = tuple(self.moved(d) for d in b.dims if d.task in tasks)
        far = (f for f in (*b.flows, *b.carried) if self._is_from_elsewhere(f))
        return replace(
            b,
            problem=self._problem(space.problem),
            components=(range(len(tasks)),),
            dependences=tuple(
                replace(d, source=d.source - tasks.start, sink=d.sink - tasks.start)
                for d in b.dependences
                if d.source in tasks and d.sink in tasks
            ),
            dims=dims,
            flows=self._inside(b.flows),
            # What comes from elsewhere is in memory, as what an earlier step has left.
            carried=(*self._inside(b.carried), *map(self._from_itself, far)),
            rereads=self._inside(b.rereads),
            operands=tuple(self.moved(o) for o in b.operands if o.task in tasks),
            prefetches=tuple(
                replace(p, task=p.task - tasks.start) for p in b.prefetches if p.task in tasks
            ),
            merges=tuple(
                replace(m, a=m.a - tasks.start, b=m.b - tasks.start)
                for m in b.merges
                if m.a in tasks
            ),
            rescaled=tuple(
                replace(r, flows=self._inside(r.flows)) for r in b.rescaled if r.task in tasks
            ),
            shifts=tuple(self.moved(s) for s in b.shifts if s.producer in tasks),
            order_tasks=tuple(t - tasks.start for t in b.order_tasks),
            body_ids=b.body_ids[tasks.start : tasks.stop],
            by_loop={(d.task, d.loop.name, d.level): d for d in dims},
        )

    def variables(self, variables: Variables, chosen: set[int]) -> Variables:
        """Returns the tables of choice positions, restricted to the positions `chosen`."""
        made: dict[str, Any] = {}
        for f in fields(variables):
            given = getattr(variables, f.name)
            if f.name in LISTS:
                made[f.name] = [v for v in given if v in chosen]
            elif f.name == "universe":
                made[f.name] = {self.moved(d): x for d, x in given.items() if d.task in self._tasks}
            elif f.name == "of_trees":
                made[f.name] = defaultdict(dict)
            elif isinstance(given, defaultdict):
                tables = ((kind, self._table(x, chosen)) for kind, x in given.items())
                made[f.name] = defaultdict(dict, {kind: x for kind, x in tables if x})
            elif f.name == "wave_sizes":
                sizes = ((t - self._tasks.start, axis, v) for (t, axis), v in given.items())
                made[f.name] = {(t, axis): v for t, axis, v in sizes if v in chosen}
            else:
                made[f.name] = self._table(given, chosen)
        return Variables(**made)

    def _table(self, table: dict[Any, int], chosen: set[int]) -> dict[Any, int]:
        return {self.moved(site): v for site, v in table.items() if v in chosen}

    def moved(self, site: Any) -> Any:
        """Returns the site of a choice (backbone object, task, or tuple of these) with renumbered tasks."""
        first = self._tasks.start
        match site:
            case int():
                return site - first
            case tuple():
                return tuple(x if isinstance(x, str) else self.moved(x) for x in site)
            case Dim() | Operand():
                return replace(site, task=site.task - first)
            case Flow() | Shift():
                return replace(site, producer=site.producer - first, consumer=site.consumer - first)
        raise AssertionError(f"{site!r} is no site of a choice")

    def _inside(self, flows: Sequence[Flow]) -> tuple[Flow, ...]:
        inside = (f for f in flows if f.producer in self._tasks and f.consumer in self._tasks)
        return tuple(self.moved(f) for f in inside)

    def _is_from_elsewhere(self, f: Flow) -> bool:
        return f.consumer in self._tasks and f.producer not in self._tasks

    def _from_itself(self, f: Flow) -> Flow:
        here = f.consumer - self._tasks.start
        return replace(f, producer=here, consumer=here)

    def _problem(self, problem: Problem) -> Problem:
        tasks = problem.tasks[self._tasks.start : self._tasks.stop]
        return replace(problem, tasks=tasks, entering=(), leaving=())


def _signature(
    part: Space, own: Sequence[int], root: Candidate, rules: Sequence[Declaration]
) -> Any:
    """Returns a value that is equal for components with equal texts (up to names), constraints and remaining values."""
    model = part.model
    numbers = {v: k for k, v in enumerate(own)}
    first = min(
        (*part.backbone.body_ids, *(d.order_id for d in part.backbone.dims if d.order_id >= 0))
    )
    choices = tuple(
        (
            model.arrays.owner[v] - first if v < model.rows.n_order else -1,
            model.arrays.neighbour[v] - first if v < model.rows.n_order else -1,
            part.choices[v].kind,
            part.choices[v].values,
            int(root.domains[v]),
        )
        for v in own
    )
    sites = tuple(
        (kind, tuple(numbers[v] for v in table.values())) for kind, table in _tables(part.variables)
    )
    used = [
        (name in part.elsewhere.reads, name in part.elsewhere.writes)
        for name in _arrays_of(part.problem)
    ]
    held = tuple((type(x).__name__, tuple(numbers[v] for v in x.vars)) for x in rules)
    return _text_key(part.problem), tuple(used), _counts(part), choices, sites, held


def _counts(part: Space) -> Any:
    """Returns the counts of the space's profile, task by task, without array names."""
    known = (None if part.profile is None else part.profile.about(t) for t in part.problem.tasks)
    return tuple(
        x and (x.entered, x.holds, tuple(replace(y, array="") for y in x.touched)) for x in known
    )


def _rules_of(space: Space, components: Sequence[Component]) -> list[list[Declaration]]:
    """Returns the constraints of each component."""
    owner = {v: k for k, c in enumerate(components) for v in c.choices}
    found: list[list[Declaration]] = [[] for _ in components]
    for declaration in space.model.declarations:
        owners = {owner[v] for v in declaration.vars}
        assert len(owners) == 1, f"{declaration.name} spans components"
        found[owners.pop()].append(declaration)
    return found


def _tables(variables: Variables) -> Iterator[tuple[str, dict[Any, int]]]:
    for f in fields(variables):
        given = getattr(variables, f.name)
        if isinstance(given, defaultdict):
            yield from ((f"{f.name} {kind}", given[kind]) for kind in sorted(given))
        elif isinstance(given, dict) and f.name != "universe":
            yield f.name, given


def _text_key(problem: Problem) -> str:
    """Returns the key of a problem reduced to the arrays of its tasks, in the order of first access."""
    arrays = tuple(problem.array(name) for name in _arrays_of(problem))
    return problem_key(replace(problem, arrays=arrays))


def _arrays_of(problem: Problem) -> tuple[str, ...]:
    touched = (name for t in problem.tasks for name in (*arrays_read(t), *arrays_written(t)))
    return tuple(dict.fromkeys(touched))
