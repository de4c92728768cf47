"""Division of a session's sequence into components: inputs of a tree for each, and candidates of the sequence made of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from ..runtime.api.backend import AbstractDevice
from ..runtime.records.record import Decisions, EvaluationRecord
from ..runtime.records.replay import restore_complete
from ..search.bound.bounder import Bounder
from ..search.components.fewest import fewest_launches
from ..search.components.inputs import ComponentInputs, Division
from ..search.events import Outcome
from ..search.incumbent import BoundScale
from ..search.inputs import Guidance, History, Oracle
from ..search.learn.neighbourhood import Neighbourhood
from ..search.learn.surrogate import KernelRidge
from ..search.tree.ordering import NextChoice
from ..space.candidate import Candidate, Space
from ..space.component_space import Alike, component_spaces
from ..space.components import coupling_of
from .evaluation import SearchEvaluator
from .predicting import predictor_of


@dataclass(frozen=True)
class Earlier:
    """What earlier sessions have measured of a component: outcomes by key of its text, and decisions of the sequence with times."""

    outcomes: dict[bytes, Outcome]
    times_ns: tuple[tuple[Decisions, float], ...]

    @staticmethod
    def of(places: Sequence[int], evaluations: Sequence[EvaluationRecord]) -> Earlier:
        """Returns what these evaluations tell of the component at these places. The first outcome of a text counts."""
        outcomes: dict[bytes, Outcome] = {}
        times_ns: dict[str, tuple[Decisions, float]] = {}
        for r in evaluations:
            if r.components is UNSET:
                continue
            rows = [r.components[k] for k in places]
            ns = sum(row.time_ns for row in rows)
            is_by_ratio = r.ratio is not UNSET
            told = Outcome("ok", ns, r.spread, is_by_ratio=is_by_ratio)
            outcomes.setdefault(rows[0].text.encode(), told)
            times_ns.setdefault(rows[0].key, (r.decisions, ns / r.slowness))
        return Earlier(outcomes, tuple(times_ns.values()))


@dataclass(frozen=True)
class Parts:
    """Candidates of components and of the sequence, made of each other. Choices that no component has are those of `default`."""

    default: Candidate
    alike: tuple[Alike, ...]
    tied: npt.NDArray[np.int64]  # positions of choices that no component has

    def join(self, parts: Sequence[Candidate]) -> Candidate:
        """Returns the candidate of the sequence that has these parts, one for each of `alike`, at all places."""
        domains = self.default.domains.copy()
        for same, part in zip(self.alike, parts, strict=True):
            for own in same.choices:
                domains[own] = part.domains[same.choices[0]]
        made = self.default.space.candidate(domains)
        assert isinstance(made, Candidate), f"parts of components exclude each other: {made}"
        return made

    def part(self, candidate: Candidate, k: int) -> Candidate | None:
        """Returns the part of a candidate of the sequence; None where equal components differ, or where other choices do."""
        same = self.alike[k]
        own = candidate.domains[same.choices[0]]
        if (candidate.domains[self.tied] != self.default.domains[self.tied]).any():
            return None
        if any((candidate.domains[place] != own).any() for place in same.choices[1:]):
            return None
        root = same.space.root()
        assert isinstance(root, Candidate)
        domains = root.domains.copy()
        domains[same.choices[0]] = own
        return Candidate(same.space, domains)

    def distinct(self, candidates: Iterable[Candidate], k: int) -> list[Candidate]:
        """Returns the different parts of these candidates."""
        parts = (self.part(candidate, k) for candidate in candidates)
        return list({part.key: part for part in parts if part is not None}.values())


def divided(
    root: Candidate,
    firsts: Sequence[Candidate],
    evaluator: SearchEvaluator,
    device: AbstractDevice,
    scale: BoundScale,
    names: Callable[[int, int], tuple[str, str]],
    evaluations: Sequence[EvaluationRecord],
) -> Division[Candidate]:
    """Returns the division of a sequence. `firsts` are candidates of it, the default first; `evaluations` those of earlier
    sessions.
    """
    tied = np.array(sorted(coupling_of(root.space)), np.int64)
    parts = Parts(firsts[0], component_spaces(root, firsts[0]), tied)
    components = [
        _inputs(same, parts.distinct(firsts, k), evaluator, device, scale, names, evaluations)
        for k, same in enumerate(parts.alike)
    ]
    return Division(components=components, join=parts.join, part=parts.part, bound_ns=sum)


def _inputs(
    same: Alike,
    firsts: Sequence[Candidate],
    evaluator: SearchEvaluator,
    device: AbstractDevice,
    scale: BoundScale,
    names: Callable[[int, int], tuple[str, str]],
    evaluations: Sequence[EvaluationRecord],
) -> ComponentInputs[Candidate]:
    space, n = same.space, len(same.places)
    earlier = Earlier.of(same.places, evaluations)
    root, (default, *others) = space.root(), firsts
    assert isinstance(root, Candidate)
    bounder = Bounder(space)
    predictor = predictor_of(bounder, device)
    predicted = None if predictor is None else predictor.ns

    def bound_ns(candidate: Candidate) -> float:
        return n * bounder.ns(candidate)

    def expected_ns(candidate: Candidate) -> float:
        assert predicted is not None
        return n * predicted(candidate)

    def key(candidate: Candidate) -> bytes | None:
        assert space.part_of is not None
        whole = Candidate(space.part_of.sequence, candidate.domains)
        return evaluator.component_key(whole, same.places[0])

    return ComponentInputs(
        name=name_of(space),
        places=same.places,
        root=root,
        oracle=Oracle(bound=bound_ns, key=key, scale=scale),
        guidance=Guidance(
            next_choice=NextChoice(space),
            neighbour=Neighbourhood(space),
            expected=None if predicted is None else expected_ns,
            surrogate=_surrogate(root, earlier, predicted),
            names=names,
        ),
        history=History(
            outcomes=earlier.outcomes,
            incumbents=[default],
            warm_starts=_with_fewest(space, default, others),
        ),
    )


def best_of_components(space: Space, evaluations: Sequence[EvaluationRecord]) -> list[Candidate]:
    """Returns the candidates of earlier sessions in which some component took the least time."""
    timed = [r for r in evaluations if r.components is not UNSET]
    n = len(space.backbone.components)
    best = [min(timed, key=lambda r: r.components[k].time_ns) for k in range(n if timed else 0)]
    fastest = {r.source_key: r for r in best}
    return [restore_complete(space, r.decisions) for r in fastest.values()]


def _surrogate(
    root: Candidate, earlier: Earlier, predicted: Callable[[Candidate], float] | None
) -> KernelRidge:
    """Returns a surrogate that has learned from earlier sessions."""
    surrogate = KernelRidge(root.space, predicted)
    own = {root.space.choices[int(v)].name for v in root.space.searchable}
    for decisions, ns in earlier.times_ns:
        surrogate.recall(root, [(name, value) for name, value in decisions if name in own], ns)
    return surrogate


def name_of(space: Space) -> str:
    """Returns the names of the first and the last task of a component."""
    first, last = (space.problem.tasks[k].name for k in (0, -1))
    return first if first == last else f"{first} to {last}"


def _with_fewest(
    space: Space, default: Candidate, others: Sequence[Candidate]
) -> Iterator[Candidate]:
    """Yields the first of the other candidates, the one of fewest launches, and the rest."""
    yield from others[:1]
    found = fewest_launches(space, next(iter(others), default))
    if found is not None:
        yield found
    yield from others[1:]
