"""Cost of each component in a stored best: its time and share, its bound, and how many implementations of it were tried."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from ..runtime.records.record import ComponentRecord, Decisions, EvaluationRecord
from ..search.bound.bounder import Bounder
from ..space.candidate import Candidate, Space
from ..space.component_space import component_spaces
from ..space.components import component_name, components_of


class ComponentAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A component of the best, or `places` components of equal text. Times are sums over all of them, in ns.

    `bound_ns`: lower bound on the time of this implementation; null where none is known, as where no choice is open.
    `least_ns`: the least time of any measured implementation of the component.
    `tried`: the number of distinct texts measured.
    """

    name: str
    places: int
    time_ns: float
    share: float
    bound_ns: float | None
    least_ns: float
    tried: int
    decisions: dict[str, str]


def component_accounts(
    best: Candidate,
    source_key: str,
    decisions: Decisions,
    evaluations: Sequence[EvaluationRecord],
    scale: float,
) -> tuple[ComponentAccount, ...]:
    """Returns the components of the best, longest time first; () if components were not timed.

    `source_key`, `decisions`: of the best, as stored. `scale`: factor from bounds of this version to those of the run.
    """
    of_best, measured = None, []
    runs = best.space.backbone.components
    for r in evaluations:
        # Of an older version the space may be divided in another way.
        if r.components is not UNSET and len(r.components) == len(runs):
            measured.append(r.components)
            of_best = r.components if r.source_key == source_key else of_best
    if of_best is None:
        return ()
    timed, space = of_best, best.space
    sum_ns, own = sum(row.time_ns for row in timed), _by_component(space, decisions)
    bounds_ns = _bounds_ns(best)
    alike: dict[str, list[int]] = {}
    for k, row in enumerate(timed):
        alike.setdefault(row.text or row.key, []).append(k)
    found, tasks = [], space.problem.tasks
    for places in alike.values():
        time_ns = sum(timed[k].time_ns for k in places)
        every = [[rows[k] for k in places] for rows in measured]
        found.append(
            ComponentAccount(
                name=component_name(tasks[runs[places[0]].start : runs[places[0]].stop]),
                places=len(places),
                time_ns=time_ns,
                share=time_ns / sum_ns,
                bound_ns=scale * sum(bounds_ns.get(k, 0.0) for k in places) or None,
                least_ns=min(sum(row.time_ns for row in rows) for rows in every),
                tried=len({_texts(rows) for rows in every}),
                decisions=own[places[0]],
            )
        )
    return tuple(sorted(found, key=lambda x: -x.time_ns))


def _texts(rows: Sequence[ComponentRecord]) -> tuple[str, ...]:
    return tuple(row.text or row.key for row in rows)


def _bounds_ns(best: Candidate) -> dict[int, float]:
    """Returns, by component, the lower bound in ns on its implementation in `best`; components without open choices are missing."""
    root = best.space.root()
    assert isinstance(root, Candidate)  # the best is in it
    found = {}
    for same in component_spaces(root, best):
        bounder, part = Bounder(same.space), same.space.root()
        assert isinstance(part, Candidate)
        domains = part.domains.copy()
        for k, own in zip(same.places, same.choices, strict=True):
            domains[same.choices[0]] = best.domains[own]
            found[k] = bounder.ns(domains)
    return found


def _by_component(space: Space, decisions: Decisions) -> list[dict[str, str]]:
    """Returns for each component its decisions: values by name of the choice."""
    positions = space.model.positions
    owner = {v: k for k, x in enumerate(components_of(space)) for v in x.choices}
    found: list[dict[str, str]] = [{} for _ in space.backbone.components]
    for name, value in decisions:
        if name in positions:
            found[owner[positions[name]]][name] = value
    return found
