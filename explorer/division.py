"""Division of a session's sequence into components: inputs of a tree for each, and candidates of the sequence made of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..runtime.api.backend import AbstractDevice
from ..runtime.worker.worker import AbstractWorker
from ..search.bound.bounder import Bounder
from ..search.components.fewest import fewest_launches
from ..search.components.inputs import ComponentInputs, Division
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


def is_divided(space: Space, worker: AbstractWorker) -> bool:
    """True if a search goes by components: there are several, and the worker times each."""
    return worker.times_components and len(space.backbone.components) > 1


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
) -> Division[Candidate]:
    """Returns the division of a sequence. `firsts` are candidates of it, the default first."""
    tied = np.array(sorted(coupling_of(root.space)), np.int64)
    parts = Parts(firsts[0], component_spaces(root, firsts[0]), tied)
    components = [
        _inputs(same, parts.distinct(firsts, k), evaluator, device, scale, names)
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
) -> ComponentInputs[Candidate]:
    space, n = same.space, len(same.places)
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

    return ComponentInputs(
        name=name_of(space),
        places=same.places,
        root=root,
        oracle=Oracle(bound=bound_ns, key=evaluator.component_key, scale=scale),
        guidance=Guidance(
            next_choice=NextChoice(space),
            neighbour=Neighbourhood(space),
            expected=None if predicted is None else expected_ns,
            surrogate=KernelRidge(space, predicted),
            names=names,
        ),
        history=History(incumbents=[default], warm_starts=_with_fewest(space, default, others)),
    )


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
