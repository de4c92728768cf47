"""`explore check`: verifies a user's function, times it alternately with ours, and compares it with the bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import FINAL, Failure, Measurement, Protocol
from ..runtime.building.queue import build_many
from ..runtime.device import DeviceOptions, open_device
from ..runtime.measure.conditions import take_conditions
from ..runtime.records.record import BestFile, RecordError
from ..runtime.records.replay import StaleError, dialect_of, rebuild
from ..runtime.records.store import TunedKey, TunedStore
from ..runtime.worker.channel import available_cores
from ..runtime.worker.forked_inputs import ForkedInputs
from ..runtime.worker.rounding import branch_notes
from ..runtime.worker.worker import AbstractWorker
from ..search.bound.bounder import Bounder
from ..search.incumbent import BoundScale
from ..search.starts.complete import first_candidates
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from .external_function import Function, LaunchParameters, foreign_source
from .machine import look_at, lower_to, open_worker
from .results import stored_best
from .workload import Options, Workload, threads_of_program

_FEW = Protocol(min_samples=5, max_samples=5)
_SLACK = 1e-3  # a time so little below the bound is noise of the clock


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A user's function to check: source file, function name (None: detected), flags, launch parameters of a GPU."""

    file: Path
    name: str | None = None
    flags: tuple[str, ...] = ()
    launch: LaunchParameters | None = None


@dataclass(frozen=True)
class Checked:
    """Result of `check_source`.

    `theirs` is a Failure if the function is wrong or did not run; then nothing is compared. `ours` is the time of our
    implementation, None if it could not be timed. `ours_is` describes the origin of ours in words. `bound_ns` is None if no
    bound is known. `has_times` is False if times mean nothing on this device.
    """

    workload: Workload
    function: Function
    file: Path
    n_input_sets: int
    theirs: Measurement | Failure
    ours: Measurement | None
    ours_is: str
    bound_ns: float | None
    has_times: bool
    notes: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """Largest share of the function's time that an implementation could save; None without a bound."""
        if isinstance(self.theirs, Failure) or self.bound_ns is None or not self.has_times:
            return None
        return None if self.is_below_bound else max(0.0, 1 - self.bound_ns / self.theirs.time_ns)

    @property
    def is_below_bound(self) -> bool:
        """True if the function is faster than the lower bound: the bound is wrong, or the function skips work."""
        if isinstance(self.theirs, Failure) or self.bound_ns is None or not self.has_times:
            return False
        return self.theirs.time_ns < self.bound_ns * (1 - _SLACK)


def check_source(
    foreign: Foreign, workload: Workload, options: Options, against: Path | None = None
) -> Checked:
    """Builds, verifies and times the function `foreign`.

    It is compared with the implementation of `against` (a run directory or best.json). Without `against`, with that of the tuned
    store, else with the fastest first candidate of a search.

    Raises RecordError, DeviceError, StaleError and WorkerError, each with one sentence.
    """
    device = open_device(
        options.target,
        DeviceOptions(
            compiler=options.compiler,
            compile_timeout_s=options.compile_timeout_s,
            threads=options.threads or threads_of_program(),
        ),
    )
    device.runner.check()
    target = device.machine.facts()
    has_kernels = bool(device.builder.dialect().kernel_open)
    if has_kernels != (foreign.launch is not None):
        needed = "CUDA text and needs --grid and --block" if has_kernels else "C: leave out --grid"
        raise RecordError(f"for the target {options.target} the source is {needed}")
    function, source = foreign_source(
        foreign.file,
        workload,
        name=foreign.name,
        flags=foreign.flags,
        launch=foreign.launch,
        n_threads=target.cores if foreign.launch is None else 1,
    )
    space = build_space(workload.problem, target)
    root = space.root()
    rng = np.random.default_rng(options.seed)
    input_sets = ForkedInputs(
        workload.recording, workload.problem, workload.arguments, rng, options.input_sets
    ).result(undecided=options.undecided)
    built = device.with_all_passes().builder.build(source)
    with open_worker(device) as worker:
        worker.prepare(input_sets)
        theirs = built if isinstance(built, Failure) else worker.evaluate(built, FINAL)
        found = Checked(
            workload,
            function,
            foreign.file,
            sum(bool(s.expected) for s in input_sets.sets),
            theirs,
            None,
            "",
            None,
            target.calibrated or bool(device.machine.calibrated_by),
        )
        found = replace(found, notes=branch_notes(worker.branches))
        if isinstance(theirs, Failure) or not found.has_times:
            return found
        assert isinstance(built, Artifact)
        scale = BoundScale()
        lower_to(scale, target, look_at(device, worker))
        if isinstance(root, Candidate):
            found = replace(found, bound_ns=Bounder(space).bound(root).ns * scale.factor)
        found = _beside_ours(
            found, built, space, device, worker, _chosen(workload, device, against)
        )
        if found.is_below_bound and isinstance(
            root, Candidate
        ):  # the machine may have become faster
            lower_to(scale, target, look_at(device, worker))
            found = replace(found, bound_ns=Bounder(space).bound(root).ns * scale.factor)
    return found


def _chosen(
    workload: Workload, device: AbstractDevice, against: Path | None
) -> tuple[BestFile | None, str]:
    """Returns the stored implementation to compare with (None: none) and its origin in words.

    Raises RecordError if `against` is of another problem.
    """
    if against is not None:
        best = stored_best(against)
        if best.problem_key != workload.problem.key:
            sizes = ", ".join(f"{n}={x}" for n, x in best.sizes.items())
            raise RecordError(
                f"{against} is of {best.sequence} ({sizes}, {best.dtype}): not the same"
            )
        return best, str(against)
    machine = take_conditions(accelerator=device.machine.accelerator()).machine
    key = TunedKey(workload.sequence, workload.dtype, tuple(workload.sizes.values()), machine)
    with TunedStore() as store:
        match = store.lookup(key)
    is_same = match is not None and match.best.problem_key == workload.problem.key
    if match is None or not is_same:
        return None, ""
    elsewhere = f", tuned on {match.best.conditions.machine}" * (match.level == "elsewhere")
    return match.best, f"the tuned store{elsewhere}"


def _beside_ours(
    found: Checked,
    theirs: Artifact,
    space: Space,
    device: AbstractDevice,
    worker: AbstractWorker,
    chosen: tuple[BestFile | None, str],
) -> Checked:
    """Returns `found` with the times of both implementations, theirs and ours, measured alternately."""
    best, where = chosen
    ours: Artifact | Failure | None = None
    if best is not None:
        try:
            ours = device.builder.build(
                rebuild(best, device.machine.facts(), dialect_of(device)).source
            )
        except StaleError as e:
            found = replace(found, notes=(*found.notes, f"of {where} nothing is compared: {e}"))
    words = f"tuned, from {where}"
    if not isinstance(ours, Artifact):
        tag, ours = _first(space, device, worker)
        words = f"the first candidate {tag!r}, without a search"
    if ours is None:
        return found
    outcomes = worker.interleave([theirs, ours], FINAL)
    mine, other = outcomes[1], outcomes[0]
    if isinstance(mine, Failure) or isinstance(other, Failure):
        return replace(found, theirs=other)
    return replace(found, theirs=other, ours=mine, ours_is=words)


def _first(
    space: Space, device: AbstractDevice, worker: AbstractWorker
) -> tuple[str, Artifact | None]:
    """Returns the fastest of a search's first candidates: its origin in words, and its artifact (None: none ran)."""
    firsts = first_candidates(space)
    sources = [print_source(lower(plan_of(c)), dialect_of(device)) for _, c in firsts]
    built = build_many(device.builder, sources, min(max(2, available_cores()), 8))
    best: tuple[float, str, Artifact] | None = None
    for (tag, _), artifact in zip(firsts, built, strict=True):
        cut_ns = None if best is None else best[0]
        if isinstance(artifact, Failure):
            continue
        outcome = worker.evaluate(artifact, _FEW.with_cut(cut_ns))
        if isinstance(outcome, Measurement) and (best is None or outcome.time_ns < best[0]):
            best = outcome.time_ns, tag, artifact
    return ("", None) if best is None else best[1:]
