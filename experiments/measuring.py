"""What rows of several tables have in common: artifacts and times, or why there are none; spreads; where the arrays are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike

from ..codegen.text.source import Source
from ..kernels.ir.task import Problem
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import Failure, Measurement
from ..runtime.building.queue import build_many
from ..space.targets.target import CacheLevel, Target


def built(device: AbstractDevice, source: Source) -> Artifact:
    """Raises RuntimeError where it does not compile."""
    made = device.builder.build(source)
    if isinstance(made, Failure):
        raise RuntimeError(failure_text(made))
    return made


def all_built(device: AbstractDevice, sources: Sequence[Source]) -> list[Artifact]:
    """As `built`, several in one run of a compiler, which is sooner."""
    made = build_many(device.builder, sources, os.cpu_count() or 1)
    if failures := [m for m in made if isinstance(m, Failure)]:
        raise RuntimeError(failure_text(failures[0]))
    return [m for m in made if isinstance(m, Artifact)]


def time_ns(outcome: Measurement | Failure) -> float:
    """Raises RuntimeError where nothing was measured."""
    if isinstance(outcome, Failure):
        raise RuntimeError(failure_text(outcome))
    return outcome.time_ns


def failure_text(failure: Failure) -> str:
    """One sentence, and the end of what the tool said."""
    return f"{failure.kind}: {failure.advice} {failure.log[-500:]}".strip()


def spread(values: ArrayLike) -> float:
    """Half the inter-quartile range over the median."""
    low, middle, high = np.quantile(np.asarray(values), [0.25, 0.5, 0.75])
    return float((high - low) / 2 / middle)


def median(values: ArrayLike) -> float:
    return float(np.median(np.asarray(values)))


def level_of(problem: Problem, target: Target) -> CacheLevel | None:
    """The innermost cache that holds all arguments; None where they are in memory."""
    footprint = sum(a.size_bytes for a in problem.arrays if a.role != "temp")
    return next((x for x in target.levels if footprint <= x.capacity_bytes), None)


@contextmanager
def busy_processes(n: int) -> Iterator[None]:
    """While n other processes do nothing but compute."""
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(n)]
    time.sleep(0.1)  # they have begun
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
