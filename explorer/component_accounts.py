"""Cost of each component in a stored best: its time, its share, and how many implementations of it were tried."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from ..runtime.records.record import ComponentRecord, Decisions, EvaluationRecord
from ..space.candidate import Space
from ..space.components import components_of
from .component_rows import name_of


class ComponentAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A component of the best, or `places` components of equal text. Times are sums over all of them, in ns.

    `least_ns` is the least time of any measured implementation of the component. `tried` counts distinct texts measured.
    """

    name: str
    places: int
    time_ns: float
    share: float
    least_ns: float
    tried: int
    decisions: dict[str, str]


def component_accounts(
    space: Space, source_key: str, decisions: Decisions, evaluations: Sequence[EvaluationRecord]
) -> tuple[ComponentAccount, ...]:
    """Returns the components of the best, longest time first; () if components were not timed.

    The best is given by its source key and its decisions.
    """
    of_best, measured = None, []
    for r in evaluations:
        if r.components is not UNSET:
            measured.append(r.components)
            of_best = r.components if r.source_key == source_key else of_best
    if of_best is None:
        return ()
    best = of_best
    sum_ns, own = sum(row.time_ns for row in best), _by_component(space, decisions)
    alike: dict[str, list[int]] = {}
    for k, row in enumerate(best):
        alike.setdefault(row.text or row.key, []).append(k)
    found, tasks, runs = [], space.problem.tasks, space.backbone.components
    for places in alike.values():
        time_ns = sum(best[k].time_ns for k in places)
        every = [[rows[k] for k in places] for rows in measured]
        found.append(
            ComponentAccount(
                name=name_of(tasks[runs[places[0]].start : runs[places[0]].stop]),
                places=len(places),
                time_ns=time_ns,
                share=time_ns / sum_ns,
                least_ns=min(sum(row.time_ns for row in rows) for rows in every),
                tried=len({_texts(rows) for rows in every}),
                decisions=own[places[0]],
            )
        )
    return tuple(sorted(found, key=lambda x: -x.time_ns))


def _texts(rows: Sequence[ComponentRecord]) -> tuple[str, ...]:
    return tuple(row.text or row.key for row in rows)


def _by_component(space: Space, decisions: Decisions) -> list[dict[str, str]]:
    """Returns for each component its decisions: values by name of the choice."""
    positions = space.model.positions
    owner = {v: k for k, x in enumerate(components_of(space)) for v in x.choices}
    found: list[dict[str, str]] = [{} for _ in space.backbone.components]
    for name, value in decisions:
        if name in positions:
            found[owner[positions[name]]][name] = value
    return found
