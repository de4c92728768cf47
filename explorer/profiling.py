"""Execution profile of a session: execution counts of the sequence's bodies on the arguments that are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path

import msgspec
import numpy as np

from ..kernels.tasks.execution_counts import Counting, counting
from ..kernels.tasks.profile import Profile
from ..runtime.forked import Stopped, over_after, run_apart
from ..runtime.records.folder import HEADER
from ..runtime.records.loading import load_header
from ..runtime.reference import Reference
from .workload import Workload

_SHARE, _MOST_S = 0.15, 20.0  # of the time limit: most is the compiling of what counts
_MOST_MORE = 2  # runs after the first


def known_profile(folder: Path) -> Profile | None:
    """Returns the stored profile of a resumed run, so that its bounds stay comparable. Raises RecordError."""
    header = load_header(folder / HEADER)
    return None if isinstance(header.profile, msgspec.UnsetType) else header.profile


def take_profile(
    workload: Workload, limit_s: float | None, is_interrupted: Callable[[], bool]
) -> Profile | None:
    """Returns execution counts of reference runs: one on the first arguments and, if that is untypical, a second.

    On trees a third one may follow: in the second call of a sequence pools take fresh slots, later the slots that were given back.
    Each run begins with the results of the one before. None if control flow does not depend on values, or if counting takes too
    long: the bound then counts work that bodies do on any arguments. Raises Stopped after an interrupt.
    """
    made = counting(workload.problem, workload.recording.trees)
    if made is None:
        return None
    is_late = over_after(_MOST_S if limit_s is None else min(_MOST_S, _SHARE * limit_s))
    # Loops over lists are expected to run over all cells that a tree has room for: only the run itself tells how long they are.
    if not made.trees and Reference().expected_ns(made.recording) > _MOST_S * 1e9:
        return None
    try:
        return run_apart(
            lambda: _counted(made, workload, is_late), lambda: is_interrupted() or is_late()
        )
    except Stopped:
        if is_interrupted():
            raise
    except (IndexError, AssertionError, MemoryError):
        pass  # the input sets report the errors of such arguments
    return None


def _counted(made: Counting, workload: Workload, is_late: Callable[[], bool]) -> Profile:
    reference, scalars = Reference(), workload.arguments.scalars
    arrays = {**workload.arguments.arrays, **made.arrays()}
    with np.errstate(all="ignore"):
        found = reference.run(made.recording, arrays, scalars, wide=False)
        runs = [made.read(arrays, found)]
        for _ in range(_MOST_MORE if made.trees else 1):
            if combined(runs).is_settled or is_late():
                break
            # A first call may do work that later calls need not repeat.
            arrays = {**found, **made.arrays()}
            found = reference.run(made.recording, arrays, scalars, wide=False)
            runs.append(made.read(arrays, found))
    return combined(runs)


def combined(runs: Sequence[Profile]) -> Profile:
    """Returns the profile of calls in a row: for each task the least of all counts up to the call by which they hold."""
    return reduce(lambda later, earlier: earlier.and_then(later), reversed(runs))
