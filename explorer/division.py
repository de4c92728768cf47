"""Division of a session's sequence into components: search inputs for each, joined candidates of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from ..runtime.api.backend import AbstractDevice
from ..runtime.records.record import Decisions, EvaluationRecord
from ..runtime.records.replay import restore_complete
from ..search.bound.bounder import Bounder
from ..search.components.component_inputs import UNIT_NS, ComponentInputs, Coupling, Division
from ..search.components.fewest import fewest_launches
from ..search.events import Outcome
from ..search.incumbent import BoundScale
from ..search.inputs import Guidance, History, Oracle
from ..search.learn.neighbourhood import Neighbourhood
from ..search.learn.surrogate import KernelRidge
from ..search.tree.ordering import NextChoice
from ..space.candidate import Candidate, Elsewhere, PartOf, Space
from ..space.component_space import Alike, component_spaces
from ..space.components import component_name, coupling_of
from .evaluation import SearchEvaluator
from .predicting import predictor_of


@dataclass(frozen=True)
class Earlier:
    """Measurements of one component by earlier sessions.

    `outcomes`: by key of the component's text. `times_ns`: decisions of the whole sequence, with the component's ns.
    """

    outcomes: dict[bytes, Outcome]
    times_ns: tuple[tuple[Decisions, float], ...]

    @staticmethod
    def of(places: Sequence[int], evaluations: Sequence[EvaluationRecord]) -> Earlier:
        """Returns the measurements in `evaluations` of the component that occurs at `places` (component numbers).

        The first outcome of each text is used.
        """
        outcomes: dict[bytes, Outcome] = {}
        times_ns: dict[str, tuple[Decisions, float]] = {}
        for r in evaluations:
            if r.components is UNSET:
                continue
            rows = [r.components[k] for k in places]
            if len({row.text for row in rows}) > 1:  # equal components, of which each was another
                continue
            ns = sum(row.time_ns for row in rows)
            is_by_ratio = r.ratio is not UNSET
            told = Outcome("ok", ns, r.spread, is_by_ratio=is_by_ratio)
            outcomes.setdefault(rows[0].text.encode(), told)
            times_ns.setdefault(rows[0].key, (r.decisions, ns / r.slowness))
        return Earlier(outcomes, tuple(times_ns.values()))


@dataclass(frozen=True)
class PartCandidates:
    """Converts between candidates of components and candidates of the sequence.

    Choices that belong to no component (`tied`) have the values of `default`.
    """

    default: Candidate
    alike: tuple[Alike, ...]
    tied: npt.NDArray[np.int64]  # positions of choices that no component has

    def join(self, parts: Sequence[Candidate]) -> Candidate:
        """Returns the candidate of the sequence made of `parts`, one per class of equal components (`alike`)."""
        domains = self.default.domains.copy()
        for same, part in zip(self.alike, parts, strict=True):
            for own in same.choices:
                domains[own] = part.domains[same.choices[0]]
        made = self.default.space.candidate(domains)
        assert isinstance(made, Candidate), f"parts of components exclude each other: {made}"
        return made

    def part(self, candidate: Candidate, k: int) -> Candidate | None:
        """Returns component `k` of a candidate of the sequence, as a candidate of the component's space.

        None if equal components have different decisions, or if the tied choices differ from `default`.
        """
        same = self.alike[k]
        own = candidate.domains[same.choices[0]]
        if (candidate.domains[self.tied] != self.default.domains[self.tied]).any():
            return None
        if any((candidate.domains[place] != own).any() for place in same.choices[1:]):
            return None
        return self._at_first(candidate, k)

    def distinct(self, candidates: Iterable[Candidate], k: int) -> list[Candidate]:
        """Returns the distinct candidates of component `k` in `candidates`, whatever their other choices are."""
        parts = (self._at_first(candidate, k) for candidate in candidates)
        return list({part.key: part for part in parts}.values())

    def _at_first(self, candidate: Candidate, k: int) -> Candidate:
        """Returns the candidate of component `k` with the decisions at the component's first occurrence."""
        same = self.alike[k]
        root = same.space.root()
        assert isinstance(root, Candidate)
        domains = root.domains.copy()
        domains[same.choices[0]] = candidate.domains[same.choices[0]]
        return Candidate(same.space, domains)

    def applied(self, candidate: Candidate, other: Candidate) -> Candidate:
        """Returns `candidate` with the choices that belong to no component taken from `other`."""
        domains = candidate.domains.copy()
        domains[self.tied] = other.domains[self.tied]
        made = candidate.space.candidate(domains)
        assert isinstance(made, Candidate), f"layouts and components exclude each other: {made}"
        return made


def divided(
    root: Candidate,
    firsts: Sequence[Candidate],
    evaluator: SearchEvaluator,
    device: AbstractDevice,
    scale: BoundScale,
    names: Callable[[int, int], tuple[str, str]],
    evaluations: Sequence[EvaluationRecord],
    *,
    only_least: bool,
) -> Division[Candidate]:
    """Returns the division of a sequence into components.

    `firsts`: candidates of the sequence, the default first. `evaluations`: those of earlier
    sessions. `only_least`: as in `Division`.
    """
    tied = np.array(sorted(coupling_of(root.space)), np.int64)
    parts = PartCandidates(firsts[0], component_spaces(root, firsts[0]), tied)
    linked = _linked(root.space, frozenset(tied.tolist()))
    components = [
        _inputs(
            root,
            linked,
            same,
            parts.distinct(firsts, k),
            evaluator,
            device,
            scale,
            names,
            evaluations,
        )
        for k, same in enumerate(parts.alike)
    ]

    def under(candidate: Candidate) -> Division[Candidate]:
        now = [candidate, *firsts]
        given = evaluator, device, scale, names, evaluations
        return divided(root, now, *given, only_least=only_least)

    tied_root = _tied_root(root, firsts[0], tied)
    return Division(
        components=components,
        join=parts.join,
        part=parts.part,
        bound_ns=sum,  # times of components are of CPUs, whose launches follow one another
        coupling=None
        if tied_root is None
        else Coupling(
            inputs=_inputs_of_ties(tied_root, firsts[0], names), applied=parts.applied, under=under
        ),
        only_least=only_least,
    )


def _tied_root(
    root: Candidate, default: Candidate, tied: npt.NDArray[np.int64]
) -> Candidate | None:
    """Returns `default` with all choices open that belong to no component; None if each has only one value."""
    space, held = root.space, default.domains.copy()
    held[tied] = root.domains[tied]
    if not (held & (held - np.uint32(1))).any():
        return None
    searchable = space.searchable[np.isin(space.searchable, tied)]
    arrays = space.model.arrays._replace(searchable=searchable)
    part_of = PartOf(space, held, Elsewhere())
    return Candidate(
        replace(space, model=replace(space.model, arrays=arrays), part_of=part_of), held
    )


def _inputs_of_ties(
    root: Candidate, default: Candidate, names: Callable[[int, int], tuple[str, str]]
) -> ComponentInputs[Candidate]:
    return ComponentInputs(
        name="all components",
        places=(),
        root=root,
        oracle=Oracle(bound=lambda candidate: 0.0),
        guidance=Guidance(
            next_choice=NextChoice(root.space), neighbour=Neighbourhood(root.space), names=names
        ),
        history=History(
            outcomes={default.key: Outcome("ok", UNIT_NS)},
            incumbents=[Candidate(root.space, default.domains)],
        ),
    )


def _linked(space: Space, tied: frozenset[int]) -> frozenset[int]:
    """Returns the choices that have a constraint with a choice in `tied`."""
    sets = (frozenset(x.vars) for x in space.model.declarations)
    return frozenset().union(*(x for x in sets if x & tied))


def least_ns(bounder: Bounder, places: Sequence[int], root: Candidate) -> float:
    """Returns a lower bound on the time of the component of `bounder` at all its places, in all completions of `root`.

    `root` is a candidate of the sequence. Bounds of components count nothing that depends on
    layouts of trees.
    """
    return len(places) * bounder.ns(root)


def _inputs(
    root_of_all: Candidate,
    linked: frozenset[int],
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
    predicted = _predicted(bounder, device)

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
        name=component_name(space.problem.tasks),
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
        least_ns=least_ns(bounder, same.places, root_of_all),
        holds_anywhere=not any(linked.intersection(own.tolist()) for own in same.choices),
    )


def _predicted(bounder: Bounder, device: AbstractDevice) -> Callable[[Candidate], float] | None:
    """Returns a function from a component's candidate to its predicted ns, at least 1; None without a predictor."""
    predictor = predictor_of(bounder, device)
    return None if predictor is None else lambda candidate: max(1.0, predictor.ns(candidate))


def best_of_components(space: Space, evaluations: Sequence[EvaluationRecord]) -> list[Candidate]:
    """Returns those candidates of earlier sessions in which some component had its least time."""
    fastest: dict[int, tuple[float, EvaluationRecord]] = {}
    for r in evaluations:
        for k, row in enumerate(() if r.components is UNSET else r.components):
            if k not in fastest or row.time_ns < fastest[k][0]:
                fastest[k] = row.time_ns, r
    found = {r.source_key: r for _, r in fastest.values()}
    return [restore_complete(space, r.decisions) for r in found.values()]


def _surrogate(
    root: Candidate, earlier: Earlier, predicted: Callable[[Candidate], float] | None
) -> KernelRidge:
    """Returns a surrogate of a component's time, trained on measurements of earlier sessions."""
    surrogate = KernelRidge(root.space, predicted)
    own = {root.space.choices[int(v)].name for v in root.space.searchable}
    for decisions, ns in earlier.times_ns:
        surrogate.recall(root, [(name, value) for name, value in decisions if name in own], ns)
    return surrogate


def _with_fewest(
    space: Space, default: Candidate, others: Sequence[Candidate]
) -> Iterator[Candidate]:
    """Yields the first of `others`, then the candidate with fewest launches, then the remaining ones."""
    yield from others[:1]
    found = fewest_launches(space, next(iter(others), default))
    if found is not None:
        yield found
    yield from others[1:]
