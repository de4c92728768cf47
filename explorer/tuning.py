"""`explore tune`: one search per shape, and one file with the results of all shapes."""

from __future__ import annotations

import select
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import UNSET, structs

from ..runtime.device import DeviceOptions, open_device
from ..runtime.fleet.fleet import chosen
from ..runtime.fleet.request import FleetRequest
from ..runtime.forked import Forked, run_apart
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.family import SCHEMA, FamilyFile, load_family, save_family
from ..runtime.records.record import BestFile, RecordError
from ..search.budget import Interrupt
from .entry import Run, explore_workload
from .results import load
from .session import Tell
from .sitting import sit
from .stages import Ended
from .workload import Options, Workload

_LOOK_S = 0.1  # polling interval of searches that run
Sizes = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """A request of `explore tune`. `workload_of` draws the arguments of a shape just before its search."""

    shapes: Sequence[Sizes]
    workload_of: Callable[[Sizes], Workload]
    options: Options
    file: Path
    runs: Path = Path("runs")
    again: bool = False  # also what the file has already
    fleet: FleetRequest | None = None  # None: this machine alone


@dataclass(frozen=True)
class TunedShape:
    """Result for one shape: its entry in the file (None if nothing valid was found), and its `run`.

    `run` is None if the file had an up-to-date entry before.
    """

    sizes: Sizes
    entry: BestFile | None
    run: Run | None


def tune(
    tuning: Tuning,
    on_event: Tell | None = None,
    on_interrupt: Callable[[], None] | None = None,
) -> Iterator[TunedShape]:
    """Searches the shapes, and yields the result of each as it ends.

    A fleet with several slots searches as many shapes at once, one on each slot, in processes of their own; then `on_event` is not
    called. The file is written after each, so that no finished search is repeated. An interrupted search ends the tuning, with its
    best so far in the file; the next call searches that shape again. Raises as `explore`, and RecordError if the file is of another
    sequence, dtype or target.
    """
    place = run_apart(lambda: _place(tuning)) if tuning.fleet is not None else _place(tuning)
    if len(place.slots) > 1 and len(tuning.shapes) > 1:
        yield from _AtOnce(tuning, place).tuned(on_interrupt)
        return
    for sizes in tuning.shapes:
        workload = tuning.workload_of(sizes)
        known = _known(tuning, workload, place.machine)
        if known is not None:
            yield known
            continue
        run = _explored(tuning, workload, tuning.fleet, on_event, on_interrupt)
        yield _kept(tuning, workload, run)
        if run.status == "interrupted":
            return


class _AtOnce:
    """A shape a slot. Searches are forks of this process, since one that thinks would keep the others from their slots."""

    def __init__(self, tuning: Tuning, place: _Place) -> None:
        assert tuning.fleet is not None
        self._tuning, self._place, self._fleet = tuning, place, tuning.fleet
        self._waiting = deque(tuning.shapes)
        self._free = deque(place.slots)
        self._running: dict[str, tuple[Workload, Forked[tuple[Ended, int]]]] = {}
        self._is_told = False  # that they are interrupted

    def tuned(self, on_interrupt: Callable[[], None] | None) -> Iterator[TunedShape]:
        """Yields the shapes as `tune` does."""
        with sit(None, None, on_interrupt) as sitting:
            try:
                while self._running or (self._waiting and not sitting.interrupt.is_set):
                    while self._waiting and self._free and not sitting.interrupt.is_set:
                        known = self._begin(self._waiting.popleft())
                        if known is not None:
                            yield known
                    yield from self._ended(sitting.interrupt)
            finally:
                for _, search in self._running.values():
                    search.end()

    def _begin(self, sizes: Sizes) -> TunedShape | None:
        """Begins the search of a shape. Returns it where the file has it."""
        tuning, workload = self._tuning, self._tuning.workload_of(sizes)
        known = _known(tuning, workload, self._place.machine)
        if known is not None:
            return known
        slot = self._free.popleft()
        fleet = replace(self._fleet, on=self._place.key, slot=slot)

        def search() -> tuple[Ended, int]:
            run = _explored(tuning, workload, fleet)
            return run.ended, run.signal

        self._running[slot] = workload, Forked(search)
        return None

    def _ended(self, interrupt: Interrupt) -> Iterator[TunedShape]:
        """Yields the shapes whose searches have ended meanwhile. An interrupt is one for all of them."""
        poll, at = select.poll(), {}
        for slot, (_, search) in self._running.items():
            poll.register(search.fd, select.POLLIN)
            at[search.fd] = slot
        found = poll.poll(_LOOK_S * 1000)
        if not found and interrupt.is_set and not self._is_told:
            self._is_told = True
            for _, search in self._running.values():
                search.send(signal.SIGINT)
        for fd, _ in found:
            workload, search = self._running.pop(at[fd])
            ended, number = search.result()
            self._free.append(at[fd])
            best = load(Path(ended.run_dir)) if ended.verified else None
            yield _kept(self._tuning, workload, Run(ended, best, number))


@dataclass(frozen=True)
class _Place:
    """The machine whose results are up to date; of a fleet the names of slots that may be used at once, and their key."""

    machine: str
    key: str | None = None
    slots: tuple[str, ...] = ()


def _place(tuning: Tuning) -> _Place:
    """Returns the place of the searches. Raises DeviceError."""
    o = tuning.options
    if tuning.fleet is None:
        device = open_device(o.target, DeviceOptions(compiler=o.compiler))
        return _Place(take_conditions(accelerator=device.machine.accelerator()).machine)
    fleet = tuning.fleet.join()
    try:
        facts = [s.facts for s in chosen(fleet, o.target, tuning.fleet.on)]
        names = tuple(f.name for f in facts) if fleet.may_be_shared else ()
        return _Place(facts[0].conditions.machine, facts[0].key, names)
    finally:
        fleet.close()


def _explored(
    tuning: Tuning,
    workload: Workload,
    fleet: FleetRequest | None,
    on_event: Tell | None = None,
    on_interrupt: Callable[[], None] | None = None,
) -> Run:
    return explore_workload(
        workload,
        tuning.options,
        runs=tuning.runs,
        on_event=on_event,
        on_interrupt=on_interrupt,
        fleet=fleet,
    )


def _known(tuning: Tuning, workload: Workload, machine: str) -> TunedShape | None:
    """Returns the shape that the file has already; None where it is to be searched."""
    entries = _found(tuning, workload).entries
    entry = next((e for e in entries if e.sizes == workload.sizes), None)
    if entry is None or tuning.again or not _is_done(entry, workload, machine):
        return None
    return TunedShape(workload.sizes, entry, None)


def _kept(tuning: Tuning, workload: Workload, run: Run) -> TunedShape:
    """Returns a shape that was searched; its best is in the file then."""
    if run.best is None:
        return TunedShape(workload.sizes, None, run)
    # Read again: another process may have tuned another shape meanwhile.
    entry = structs.replace(run.best.file, library=UNSET)  # none lies beside this file
    save_family(tuning.file, _found(tuning, workload).with_entry(entry))
    return TunedShape(workload.sizes, run.best.file, run)


def _found(tuning: Tuning, workload: Workload) -> FamilyFile:
    """Returns the content of the tuning file. Raises RecordError if it is of another sequence, dtype or target."""
    o = tuning.options
    new = FamilyFile(
        tuned_schema=SCHEMA,
        sequence=workload.sequence,
        dtype=workload.dtype,
        target=o.target,
        entries=(),
    )
    if not tuning.file.exists():
        return new
    found = load_family(tuning.file)
    if (found.sequence, found.dtype, found.target) != (new.sequence, new.dtype, new.target):
        raise RecordError(
            f"{tuning.file} is of {found.sequence} in {found.dtype} on {found.target}, not of"
            f" {new.sequence} in {new.dtype} on {new.target}: name another file"
        )
    return found


def _is_done(entry: BestFile, workload: Workload, machine: str) -> bool:
    """True if `entry` is from a finished search of the same tasks on this machine."""
    is_same = entry.problem_key == workload.problem.key and entry.conditions.machine == machine
    return is_same and entry.status not in ("interrupted", "running")
