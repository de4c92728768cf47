"""Problems to check generated programs on: the library's sequences at odd sizes, and random sequences of kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ..kernels.frontend.recorder import Recording, record_sequence
from ..kernels.ir.task import Problem
from ..kernels.library import load, names
from ..kernels.tasks.pipeline import normalise
from .generator.features import INTEGERS, MIXED, OPEN, PRODUCTS
from .generator.sequences import program

SIZES = ((1, 1, 1), (2, 3, 5), (7, 13, 4), (17, 1, 31), (37, 53, 29), (64, 48, 16), (61, 130, 9))
_CORPORA = (OPEN, MIXED, MIXED, PRODUCTS, INTEGERS)
_MOST_OF_A_SEED = 1_000_000  # programs


@dataclass(frozen=True)
class Case:
    """A problem with arguments."""

    name: str
    recording: Recording
    problem: Problem
    arrays: dict[str, Any]
    scalars: dict[str, Any]


def library_cases(first: int = 0, only: Collection[str] = ()) -> Iterator[Case]:
    """Every library sequence (or those named) at small odd sizes, f32 and f64, for ever; sizes begin with those of that number."""
    rng = np.random.default_rng(0)
    for at in count(first):
        sizes = SIZES[at % len(SIZES)]
        for k, name in enumerate(names()):
            if only and name not in only:
                continue
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
    """Random sequences of kernels on dense arrays, for ever; other ones for another seed."""
    for k in count(seed * _MOST_OF_A_SEED):
        drawn = program(_CORPORA[k % len(_CORPORA)], k)
        name = f"{drawn.features.name} {k}"
        yield Case(name, drawn.recording, drawn.problem, drawn.arrays, drawn.scalars)
