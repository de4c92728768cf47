"""`explore tune`: one search per shape, and one file with the results of all shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import UNSET, structs

from ..runtime.device import DeviceOptions, open_device
from ..runtime.fleet.fleet import chosen
from ..runtime.fleet.request import FleetRequest
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.family import SCHEMA, FamilyFile, load_family, save_family
from ..runtime.records.record import BestFile, RecordError
from .entry import Run, explore_workload
from .session import Tell
from .workload import Options, Workload

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
    """Searches each shape in turn, and yields its result.

    The file is written after each, so that no finished search is repeated. An interrupted search ends the tuning, with its best
    so far in the file; the next call searches that shape again. Raises as `explore`, and RecordError if the file is of another
    sequence, dtype or target.
    """
    o = tuning.options
    machine = _machine(tuning)
    for sizes in tuning.shapes:
        workload = tuning.workload_of(sizes)
        found = _found(tuning, workload)
        entry = next((e for e in found.entries if e.sizes == workload.sizes), None)
        if entry is not None and not tuning.again and _is_done(entry, workload, machine):
            yield TunedShape(workload.sizes, entry, None)
            continue
        run = explore_workload(
            workload,
            o,
            runs=tuning.runs,
            on_event=on_event,
            on_interrupt=on_interrupt,
            fleet=tuning.fleet,
        )
        if run.best is not None:
            # Read again: another process may have tuned another shape meanwhile.
            entry = structs.replace(run.best.file, library=UNSET)  # none lies beside this file
            save_family(tuning.file, _found(tuning, workload).with_entry(entry))
        yield TunedShape(workload.sizes, None if run.best is None else run.best.file, run)
        if run.status == "interrupted":
            return


def _machine(tuning: Tuning) -> str:
    """Returns the key of the machine whose results count as up to date. Raises DeviceError."""
    o = tuning.options
    if tuning.fleet is None:
        device = open_device(o.target, DeviceOptions(compiler=o.compiler))
        return take_conditions(accelerator=device.machine.accelerator()).machine
    fleet = tuning.fleet.join()
    try:
        return chosen(fleet, o.target, tuning.fleet.on)[0].facts.conditions.machine
    finally:
        fleet.close()


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
