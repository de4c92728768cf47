"""Clean-up of a recorded sequence: its calls as tasks, without copies, initialisers and stores that nobody needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ir.kernel import ArrayParam
from ..ir.rewrites import COPIES, DEAD_STORES
from ..ir.task import Task
from .copies import without_copies
from .coverage import ActiveStores
from .initialisers import absorb_initialisers, drop_dead, fix_orders, zero_temporaries
from .last_steps import with_last_steps
from .recorded_calls import RecordedCalls, calls_of
from .residues import by_residue

if TYPE_CHECKING:
    from ..frontend.recorder import Recording

_Tasks = tuple[Task, ...]


@dataclass(frozen=True)
class CleanedCalls:
    """Calls of a recording as tasks, before and after the clean-up. A task is named `call/array`.

    `recording`: the recording with short repeats unfolded. `temporaries`: all temporaries by name. `stores`: the stores to trees.
    `dropped`: the tasks before and after each removal of dead stores.
    """

    recording: Recording
    calls: RecordedCalls
    temporaries: Mapping[str, ArrayParam]
    stores: ActiveStores
    tasks: _Tasks
    dropped: tuple[tuple[_Tasks, _Tasks], ...]


def cleaned_calls(recording: Recording) -> CleanedCalls:
    """Returns the calls of a recording as tasks, before and after the clean-up, which makes the rewrites that are not left out."""
    recording, calls = calls_of(by_residue(recording))
    known = calls.known
    temporaries = {t.name: t for t in (*recording.temps, *calls.temps)}
    in_trees = {array for used in recording.trees for _, array in used.sections}
    stores = ActiveStores.of(recording.trees, are_kept=DEAD_STORES in recording.left_out)
    every = zero_temporaries(tuple(calls.tasks), recording.temps)
    if COPIES not in recording.left_out:
        every = without_copies(every, known, temporaries, recording.ending, in_trees, stores)
    live = drop_dead(every, known, temporaries, stores)
    apart = with_last_steps(live, known, temporaries, stores)
    left = live if apart is live else drop_dead(apart, known, temporaries, stores)
    joined = fix_orders(absorb_initialisers(left), known)
    done = drop_dead(joined, known, temporaries, stores)
    dropped = (every, live), (apart, left), (joined, done)
    return CleanedCalls(recording, calls, temporaries, stores, done, dropped)
