"""First candidates from a store that several machines share: results of one machine start searches on others."""

from __future__ import annotations

from pathlib import Path

from ..runtime.records.record import RecordError
from ..runtime.records.store import TunedKey, TunedStore, store_address
from ..search.starts.transfer import complete_near
from ..space.candidate import Candidate, Space
from .run_writer import RunWriter
from .workload import Workload


def shared_starts(space: Space, workload: Workload, writer: RunWriter) -> list[Candidate]:
    """Returns the candidate of `space` that is closest to the best result of the shared store; [] without one.

    Its origin is noted in the journal. The user's own store suggests components alone (component_starts.py).
    """
    key = TunedKey(workload.sequence, workload.dtype, tuple(workload.sizes.values()), writer.device)
    try:
        address = store_address()
        if isinstance(address, Path):
            return []
        with TunedStore(address) as store:
            match = store.lookup(key)
    except (RecordError, OSError) as e:
        writer.note("store", str(e))
        return []
    found = None if match is None else complete_near(space, match.best.decisions)
    if match is None or found is None:
        return []
    sizes = ", ".join(f"{n}={x}" for n, x in match.best.sizes.items())
    writer.note(
        "store",
        f"a first candidate ({match.level}) is that of {sizes} on {match.best.conditions.machine}",
    )
    return [found]
