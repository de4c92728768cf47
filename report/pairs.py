"""Effects of decisions: measured pairs of implementations with one or two differences, and predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np
import numpy.typing as npt

from ..runtime.records.record import EvaluationRecord
from ..runtime.records.replay import StaleError, restore_complete
from ..search.learn.neighbourhood import MAX_BACKTRACKS, Neighbourhood
from ..search.learn.surrogate import LEAST, KernelRidge
from ..search.tree.ordering import open_in_order
from ..space.candidate import Candidate, Space
from .run_data import ns_of

MOST_COMPARED = 1500  # evaluations, the fastest: pairs are half the square
MOST_DIFFERENT = 2  # decisions
_SAME_STATE = 0.02  # in logarithms of the slowness: other pairs would compare the machine
_HELD_OUT = 5  # every so many-th measurement tests the prediction from the others

Change = tuple[str, str, str]  # choice, value before, value after


@dataclass(frozen=True)
class Effect:
    """Changes of one or two decisions, and for each measured pair the time after them divided by the time before.

    `ratios` are sorted, smallest first.
    """

    changes: tuple[Change, ...]
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.ratios)


@dataclass(frozen=True)
class Prediction:
    """Predicted effect of changing one decision of the best; other decisions change only if constraints require it.

    `ratio`: time predicted by the surrogate, divided by the best's predicted time.
    """

    change: Change
    n_others: int  # decisions that had to change with it
    ratio: float


@dataclass(frozen=True)
class Predictions:
    """Predictions of the surrogate, and their `error`.

    Half of the held-out measurements were predicted within the factor `error`.
    """

    rows: tuple[Prediction, ...]
    error: float
    n_measured: int


def steady_ns(r: EvaluationRecord) -> float:
    """Returns the ns of an evaluation, corrected to the machine's speed at the beginning of the run."""
    return ns_of(r) / r.slowness


def measured_effects(evaluations: Sequence[EvaluationRecord]) -> list[Effect]:
    """Returns the effects in pairs of measured implementations with one or two differences, the largest first.

    Each change is listed in one direction: the one that improves the median.
    """
    timed = sorted((r for r in evaluations if r.time_ns is not None), key=ns_of)
    timed = timed[:MOST_COMPARED]
    slowness = np.log([r.slowness for r in timed])
    names, table, values = _table(timed)
    found: dict[tuple[Change, ...], list[float]] = defaultdict(list)
    for k in range(len(timed) - 1):
        differ = table[k + 1 :] != table[k]
        n_different = differ.sum(axis=1)
        is_near = (n_different > 0) & (n_different <= MOST_DIFFERENT)
        is_same_state = np.abs(slowness[k + 1 :] - slowness[k]) <= _SAME_STATE
        for at in np.flatnonzero(is_near & is_same_state):
            j = k + 1 + int(at)
            ratio = ns_of(timed[j]) / ns_of(timed[k])
            where = [int(c) for c in np.flatnonzero(differ[at])]
            forward = tuple(
                (names[c], values[c][table[k, c]], values[c][table[j, c]]) for c in where
            )
            back = tuple((n, b, a) for n, a, b in forward)
            if back in found:
                found[back].append(1 / ratio)
            else:
                found[forward].append(ratio)
    effects = []
    for changes, ratios in found.items():
        if median(ratios) > 1:
            changes = tuple((n, b, a) for n, a, b in changes)
            ratios = [1 / r for r in ratios]
        effects.append(Effect(changes, tuple(sorted(ratios))))
    return sorted(effects, key=lambda e: (e.median, -len(e.ratios)))


def _table(
    timed: Sequence[EvaluationRecord],
) -> tuple[list[str], npt.NDArray[np.int16], list[list[str]]]:
    """Returns the names of choices, [n, n_choices] numbers of their values (-1: not decided), and values by choice."""
    names = list(dict.fromkeys(name for r in timed for name, _ in r.decisions))
    place = {name: k for k, name in enumerate(names)}
    numbers: list[dict[str, int]] = [{} for _ in names]
    table = np.full((len(timed), len(names)), -1, np.int16)
    for row, r in enumerate(timed):
        for name, value in r.decisions:
            known = numbers[place[name]]
            table[row, place[name]] = known.setdefault(value, len(known))
    return names, table, [[*known, "(none)"] for known in numbers]


def predicted_effects(
    space: Space, best: Candidate, evaluations: Sequence[EvaluationRecord]
) -> Predictions | None:
    """Returns the surrogate's predictions for every other value of every decision of the best.

    None if too few implementations were measured.
    """
    root = space.root()
    timed = [r for r in evaluations if r.time_ns is not None]
    if len(timed) < LEAST or not isinstance(root, Candidate):
        return None
    surrogate = _fitted(space, root, evaluations)
    error = _error(space, root, timed)
    if error is None or not surrogate.is_ready:
        return None
    order = open_in_order(space)
    preference = Neighbourhood(space).preference(best)
    changed: list[tuple[Change, int, Candidate]] = []
    for v in map(int, root.open_choices()):
        choice, held = space.choices[v], best.value(v)
        for value in root.values(v):
            child = root.decide(v, 1 << value) if value != held else None
            if not isinstance(child, Candidate):
                continue
            made = child.complete(preference, order, MAX_BACKTRACKS)
            if isinstance(made, Candidate):
                n_others = int((made.domains != best.domains).sum()) - 1
                change = (choice.name, choice.values[held], choice.values[value])
                changed.append((change, n_others, made))
    expected = surrogate.expected([best, *(c for _, _, c in changed)])
    if expected is None:
        return None
    rows = [
        Prediction(change, n_others, exp(float(e - expected[0])))
        for (change, n_others, _), e in zip(changed, expected[1:], strict=True)
    ]
    return Predictions(tuple(sorted(rows, key=lambda p: p.ratio)), error, len(timed))


def _fitted(space: Space, root: Candidate, measured: Sequence[EvaluationRecord]) -> KernelRidge:
    surrogate = KernelRidge(space)
    for r in measured:
        surrogate.recall(root, r.decisions, None if r.time_ns is None else steady_ns(r))
    return surrogate


def _error(space: Space, root: Candidate, timed: Sequence[EvaluationRecord]) -> float | None:
    """Returns the median error of a surrogate, as a factor, on every fifth measurement, held out from its training.

    None if it predicts nothing, or if fewer than two are held out.
    """
    shown = [r for k, r in enumerate(timed) if k % _HELD_OUT]
    held = [r for k, r in enumerate(timed) if k % _HELD_OUT == 0]
    surrogate = _fitted(space, root, shown)
    pairs = []
    for r in held:
        with suppress(StaleError):
            pairs.append((restore_complete(space, r.decisions), log(steady_ns(r))))
    expected = surrogate.expected([c for c, _ in pairs]) if pairs else None
    if expected is None or len(pairs) < 2:
        return None
    misses = np.array([ns for _, ns in pairs]) - expected
    return exp(float(np.median(np.abs(misses - np.median(misses)))))
