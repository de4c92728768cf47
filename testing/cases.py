"""Problems to check generated programs on: the library's sequences at odd sizes, and random sequences of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ..kernels.ir.task import Problem
from ..kernels.language.record import Recording, record_sequence
from ..kernels.library import load, names
from ..kernels.tasks.pipeline import normalise

SIZES = ((1, 1, 1), (2, 3, 5), (7, 13, 4), (17, 1, 31), (37, 53, 29), (64, 48, 16), (61, 130, 9))
_SPREAD = 5  # Hypothesis varies what it drew before: only each so manyth example is taken
_AT_ONCE = 20  # random problems of one seed of Hypothesis
_MOST_SEEDS = 10_000  # of Hypothesis, for one seed here


@dataclass(frozen=True)
class Case:
    """A problem with arguments."""

    name: str
    recording: Recording
    problem: Problem
    arrays: dict[str, Any]
    scalars: dict[str, Any]


def library_cases(first: int = 0) -> Iterator[Case]:
    """Every library sequence at small odd sizes, f32 and f64, for ever; beginning with the sizes of that number."""
    rng = np.random.default_rng(0)
    for at in count(first):
        sizes = SIZES[at % len(SIZES)]
        for k, name in enumerate(names()):
            entry = load(name)
            dtype = np.float32 if (k + sizes[0]) % 3 else np.float64
            chosen = entry.complete(dict(zip(entry.sizes, sizes, strict=False)))
            args = entry.make_arguments(chosen, np.dtype(dtype), rng)
            recording = record_sequence(entry.sequence, args, name)
            given = [a for a in args if isinstance(a, np.ndarray)]
            numbers = [a for a in args if not isinstance(a, np.ndarray)]
            yield Case(
                f"{name} {chosen}",
                recording,
                normalise(recording),
                dict(zip((a.name for a in recording.arrays), given, strict=True)),
                dict(zip((s.name for s in recording.scalars), numbers, strict=True)),
            )


def random_cases(seed: int) -> Iterator[Case]:
    """Random sequences of the kernels of templates.py, for ever; other ones for another seed."""
    for k in count(seed * _MOST_SEEDS):
        for example in _drawn(k):
            problem = normalise(example.recording)
            yield Case(repr(example), example.recording, problem, example.arrays, example.scalars)


def _drawn(seed: int) -> list[Any]:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    from .templates import any_sequence

    drawn: list[Any] = []

    @seeded(seed)
    @settings(
        max_examples=_AT_ONCE * _SPREAD,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(any_sequence())
    def collect(example: Any) -> None:
        drawn.append(example)

    collect()
    return drawn[::_SPREAD]
