"""`explore` and `resume`: the search joined to the machine it runs on.

>>> run = ks.explore(sequence, a, x, y, time_limit=20)
>>> run.best.time_ns, run.bound_ns, run.gap, run.status
>>> f = run.best.compile(); f(a, x, y)
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.library import LibrarySequence, own_names
from ..kernels.library import load as load_sequence
from ..kernels.tasks.non_affine import NonAffineTasks
from ..report import Report, frame, report_of
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import UNDECIDED
from ..runtime.cpu.compiler import PLAIN
from ..runtime.files import is_there
from ..runtime.fleet.request import FleetRequest
from ..runtime.free_memory import within_free_memory
from ..runtime.records.folder import (
    HEADER,
    JOURNAL,
    check_run_folder,
    forget_run_folder,
    make_run_folder,
    run_folder,
    run_name,
)
from ..runtime.records.known_inputs import known_arrays
from ..runtime.records.loading import load_header
from ..runtime.records.record import RecordError, RunHeader
from ..runtime.records.replay import StaleError, Tuned, rebuild_problem
from ..space.decisions import DecisionError
from . import stages as st
from .progress import shown
from .result_text import TimeUnit, next_step, result_lines
from .results import Best, load
from .session import Tell
from .sitting import RECORDED, Sitting, sit
from .workload import Options, Workload, as_in_program, make_workload

__all__ = [
    "NothingFoundError",
    "Run",
    "explore",
    "explore_made",
    "explore_workload",
    "library_workload",
    "resume",
]


class NothingFoundError(RuntimeError):
    """A run has no valid implementation. The message is one sentence that says what the user can do."""


@dataclass(frozen=True)
class Run:
    """Result of an exploration.

    `status` is the reason why the search ended. `gap` is the largest share of the best time that another implementation could
    save, None if it is unknown.
    """

    ended: st.Ended
    best: Best | None
    signal: int = 0  # that interrupted it; 0: none

    @property
    def status(self) -> str:
        return self.ended.status

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences, one per reason to doubt the result: too few candidates, times that other work disturbed."""
        return self.ended.doubts

    @property
    def bound_ns(self) -> float | None:
        return self.ended.bound_ns

    @property
    def gap(self) -> float | None:
        return self.ended.gap

    @property
    def non_affine(self) -> NonAffineTasks:
        """The non-affine tasks of the sequence, each with its reason and source line; false if there are none.

        If there are some, status `optimal_open` replaces `optimal`, and `bound_ns` counts the guaranteed costs of their bodies.
        """
        return self.ended.non_affine_tasks

    @property
    def fixed(self) -> dict[str, str]:
        """Decisions fixed before the search, by name.

        Status, bound and gap hold for the space with these decisions.
        """
        return dict(self.ended.fixed)

    @property
    def bound_now_ns(self) -> float | None:
        """Lower bound in ns for the machine state during the final timing of the best; None if it is unknown."""
        return self.ended.bound_now_ns

    @property
    def gap_now(self) -> float | None:
        """Gap to `bound_now_ns`: the share that can be saved without a faster state of the machine."""
        return self.ended.gap_now

    @property
    def directory(self) -> Path:
        return Path(self.ended.run_dir)

    def compile(self, *, check_indices: bool = True) -> Tuned:
        """Returns the best implementation as a function (`Best.compile`).

        Raises NothingFoundError and StaleError.
        """
        return self._found().compile(check_indices=check_indices)

    def save(self, path: str | Path) -> Path:
        """Writes the best implementation to a best.json (`Best.save`). Raises NothingFoundError."""
        return self._found().save(path)

    def _found(self) -> Best:
        if self.best is None:
            raise NothingFoundError(f"nothing valid was found: {next_step(self.ended)}")
        return self.best

    def __str__(self) -> str:
        """Text of the result as the command prints it: status, best, bound, gaps, speed-up, failures, doubts, folder."""
        e = self.ended
        unit = TimeUnit(e.baseline_ns or e.best_ns or e.bound_ns or 1e6)
        return "\n".join(result_lines(e, unit)).strip()

    def __repr__(self) -> str:
        found = "nothing valid" if self.best is None else f"{self.best.time_ns:.0f} ns"
        return f"Run({self.ended.run_dir}: {self.status}, {found})"

    def report(self) -> Report:
        """Returns the HTML page of this run; notebooks display it, and its `save` writes it to a file."""
        return report_of(self)

    def frame(self) -> dict[str, list[Any]]:
        """Returns the evaluations of the run as columns by name: `pandas.DataFrame(run.frame())` (report/frame.py)."""
        return frame(self)


def explore(
    sequence: Callable[..., Any] | LibrarySequence,
    *args: Any,
    time_limit: float | None = 60.0,
    max_evals: int | None = None,
    gap: float = 0.0,
    seed: int = 1,
    strategy: str = "mcts",
    target: str = "cpu",
    directory: str | Path | None = None,
    reference: Callable[..., Any] | None = None,
    decisions: Mapping[str, object] | None = None,
    undecided: float = UNDECIDED,
    deterministic: bool = False,
    unseen: Sequence[str] = (),
    without: Sequence[str] = (),
    fleet: str | Path | None = None,
    devices: Sequence[str] = (),
    on: str | None = None,
    progress: bool | None = None,
    on_event: Tell | None = None,
) -> Run:
    """Searches the implementations of a sequence of kernels, called with `args`, which are not changed.

    `sequence` is any function that calls kernels, or a library sequence (then `args` may be left out).
    `time_limit` is in seconds. `directory` is where the run is stored (default: a new folder under runs/).
    `reference` computes the same in NumPy, in place: it is compared with the kernels, and timed.
    `decisions` fix choices before the search: names as in `run.best.decisions`, kinds or patterns, to values
    (`{"fused": "SEPARATE", "size(dot0.i.inner)": 8}`); bound and gap are then of the space with these.
    `undecided` is the share of an array's elements that may lie on a branch: rounding decides there, and either side is right.
    `deterministic`: nothing depends on the order of threads, so two calls of the result give equal bytes.
    `unseen` names arrays and fields that nobody reads after the sequence: the result does not write them.
    `without` names derived rewrites to leave out, which shows their worth: dead_stores, copies, lists, activations.
    `fleet` is the file of a fleet (`explore fleet start`) whose devices run candidates; `on` is the key of these devices.
    `devices` names devices of this machine, `("cpu:0-3", "cpu:4-7")`: each is a slot.
    `progress` shows one line that is rewritten in place, by default in terminals and notebooks only.
    `on_event` receives every event. Ctrl-C ends the search and returns the best so far.

    Raises ValueError (DecisionError for impossible decisions), LanguageError, DeviceError, WorkerError, RecordError,
    WrongReferenceError and FailedReferenceError, each with one sentence.
    """
    options = Options(
        time_limit_s=time_limit,
        max_evals=max_evals,
        gap=gap,
        seed=seed,
        strategy=strategy,
        target=target,
        fixed=_decided(decisions),
        undecided=undecided,
        deterministic=deterministic,
    )

    def make() -> Workload:
        if isinstance(sequence, LibrarySequence) and not args:
            return library_workload(sequence, sequence.sizes, "f32", seed, unseen, without)
        made = _user_workload(sequence, args, reference, unseen, without)
        if made.begins_with_zeros:
            said = "all fields that the sequence reads are zero: call what fills them before ks.explore"
            logging.getLogger("kernelscape").warning(said)
        return made

    asked = fleet_of(fleet, devices, on)
    heard = shown(progress, on_event)
    return explore_made(make, options, directory=directory, on_event=heard, fleet=asked)


def fleet_of(
    file: str | Path | None, devices: Sequence[str], on: str | None = None
) -> FleetRequest | None:
    """Returns the request for a fleet of devices.

    None if the caller names no fleet file, no devices and no key of devices. Raises DeviceError.
    """
    if file is None and not devices:
        if on is not None:
            raise DeviceError(f"on={on!r} is a device of a fleet: give fleet or devices, too")
        return None
    place = None if file is None else Path(file)
    return FleetRequest(devices=tuple(devices), file=place, on=on)


def _decided(decisions: Mapping[str, object] | None) -> tuple[tuple[str, str], ...]:
    """Returns fixed decisions as pairs (name, value) of text. Raises DecisionError."""
    given = {} if decisions is None else decisions
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise DecisionError(
            f'decisions is {decisions!r:.60}: it must be a dict of names and values, such as {{"fused": "SEPARATE"}}'
        )
    return tuple((name, str(value)) for name, value in given.items())


def library_workload(
    entry: LibrarySequence,
    sizes: Mapping[str, int],
    dtype: str,
    seed: int,
    unseen: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Workload:
    """Returns a library sequence with generated arguments.

    Raises ValueError for unknown sizes, MemoryError for too large ones.
    """
    complete = entry.complete(sizes)
    numpy_type = {"f32": np.float32, "f64": np.float64}[dtype]
    with within_free_memory():
        arguments = entry.make_arguments(complete, numpy_type, np.random.default_rng(seed))
    is_ours = entry.name in own_names() and load_sequence(entry.name) is entry
    module = str(getattr(entry.sequence, "__module__", ""))
    return make_workload(
        entry.sequence,
        arguments,
        sequence=entry.name if is_ours else f"{module}:{entry.name}",
        name=entry.name,
        sizes=complete,
        formula=entry.formula,
        # What a child can import is the library's, and takes all arrays; another sequence brings its own, whatever its name.
        reference=_reference_of(entry.name) if is_ours and not unseen else entry.reference,
        unseen=unseen,
        without=without,
    )


def _user_workload(
    sequence: Callable[..., Any] | LibrarySequence,
    args: tuple[Any, ...],
    reference: Callable[..., Any] | None,
    unseen: Sequence[str],
    without: Sequence[str],
) -> Workload:
    fn = sequence.sequence if isinstance(sequence, LibrarySequence) else sequence
    if reference is None and isinstance(sequence, LibrarySequence):
        reference = sequence.reference
    name = str(getattr(fn, "__name__", "sequence"))
    module = str(getattr(fn, "__module__", "") or "")
    return make_workload(
        fn,
        args,
        sequence=f"{module}:{name}",
        name=name,
        reference=reference,
        unseen=unseen,
        without=without,
    )


def explore_workload(
    workload: Workload,
    options: Options,
    *,
    directory: str | Path | None = None,
    runs: Path = Path("runs"),
    on_event: Tell | None = None,
    on_interrupt: Callable[[], None] | None = None,
    fleet: FleetRequest | None = None,
) -> Run:
    """Runs the first session of a new run on an existing workload; the other arguments are as for `explore_made`."""
    return explore_made(
        lambda: workload,
        options,
        directory=directory,
        runs=runs,
        on_event=on_event,
        on_interrupt=on_interrupt,
        fleet=fleet,
    )


def explore_made(
    make: Callable[[], Workload],
    options: Options,
    *,
    directory: str | Path | None = None,
    runs: Path = Path("runs"),
    on_event: Tell | None = None,
    on_interrupt: Callable[[], None] | None = None,
    fleet: FleetRequest | None = None,
) -> Run:
    """Runs the first session of a new run, on the workload that `make` returns.

    The run is stored in `directory`, else in a new folder under `runs`, which is removed if the run does not begin. The time
    limit includes the time of `make`. Without a number of threads, implementations use as many as kernels of the program
    (`cpu_max_num_threads`).
    """
    with sit(options.time_limit_s, on_event, on_interrupt, fleet) as sitting:
        workload = sitting.within(RECORDED, make)
        if workload is None:
            return _run(sitting, None, options, Path(directory or runs))
        options = as_in_program(options)
        if directory is not None:
            folder = Path(directory)
            folder.mkdir(parents=True, exist_ok=True)
            if is_there(folder / HEADER):
                raise RecordError(
                    f"{folder} holds a run already: resume it, or name another folder"
                )
            return _run(sitting, workload, options, folder)
        name = run_name(workload.problem.name, options.target, workload.sizes)
        folder = make_run_folder(runs, name)
        try:
            return _run(sitting, workload, options, folder)
        finally:
            if not is_there(folder / HEADER):
                forget_run_folder(folder)


def resume(
    directory: str | Path,
    *,
    time_limit: float | None = None,
    max_evals: int | None = None,
    gap: float | None = None,
    compiler: str | None = None,
    inputs: Path | None = None,
    on_event: Tell | None = None,
    on_interrupt: Callable[[], None] | None = None,
    fleet: FleetRequest | None = None,
) -> Run:
    """Resumes a run from its journal: finished evaluations are reused and not repeated.

    The limits apply to this session; if none is given, the limits of the first session apply again. So does its `compiler`, if
    that is the name gcc or clang: a file must not choose an arbitrary program to be run. Arrays are taken from the .npz file
    `inputs`, else as stored by the run; the remaining ones are drawn. Raises as `explore`, and StaleError if the run is from
    another machine or another version of its space.
    """
    folder = run_folder(Path(directory))
    header = load_header(folder / HEADER)
    if not is_there(folder / JOURNAL):  # it is there before the header, and is never removed
        raise RecordError(f"{folder / JOURNAL} is gone: begin another run in another folder")
    options = _options_of(header, folder, compiler)
    changed: dict[str, Any] = {}
    if time_limit is not None or max_evals is not None or gap is not None:
        changed = {"time_limit_s": time_limit, "max_evals": max_evals, "gap": gap or 0.0}
    options = replace(options, fixed=header.fixed, **changed)
    with sit(options.time_limit_s, on_event, on_interrupt, fleet) as sitting:
        workload = sitting.within(
            "the run was read", lambda: _stored_workload(header, folder, inputs)
        )
        try:
            return _run(sitting, workload, options, folder)
        except DecisionError as e:
            raise StaleError(f"the fixed decisions of {folder} do not fit the space: {e}") from e


def _stored_workload(header: RunHeader, folder: Path, inputs: Path | None) -> Workload:
    """Returns the workload stored in a run, with arrays of the .npz file `inputs`.

    Raises StaleError and RecordError.
    """
    recording, problem = rebuild_problem(header.stored, header.problem_key)
    known = known_arrays(header.stored, recording, problem, folder / HEADER, inputs)
    return Workload(
        sequence=header.sequence,
        sizes=header.sizes,
        dtype=header.dtype,
        recording=recording,
        problem=problem,
        stored=header.stored,
        arguments=header.stored.draw(recording, np.random.default_rng(header.seed), known),
        reference=_reference_of(header.sequence) if header.sequence in own_names() else None,
    )


def _options_of(header: RunHeader, folder: Path, compiler: str | None) -> Options:
    """Returns the options stored in a run, with `compiler` in place of the stored one if given.

    Raises RecordError.
    """
    try:
        options = Options(**dict[str, Any](header.options))
    except (TypeError, ValueError) as e:
        raise RecordError(f"{folder / HEADER} has options that no run has: {e}") from e
    if (options.target, options.seed) != (header.target, header.seed):
        raise RecordError(f"{folder / HEADER} was changed by hand: its options are of another run")
    if compiler is not None:
        return replace(options, compiler=compiler)
    if options.compiler is not None and not PLAIN.fullmatch(options.compiler):
        raise RecordError(
            f"{folder / HEADER} asks for the compiler {options.compiler!r}: confirm it with"
            f" KERNELSCAPE_COMPILER={shlex.quote(options.compiler)}, since a file may choose none but gcc and clang by name"
        )
    return options


def _run(sitting: Sitting, workload: Workload | None, options: Options, folder: Path) -> Run:
    """Runs one session of a workload. The workload is None if the time limit passed while it was made."""
    if workload is None:
        return Run(sitting.end_before(folder), None)
    check_run_folder(folder)
    if workload.recording.left_out:
        options = replace(options, store=False)  # what it finds is no best of these calls
    ended = sitting.session(workload, options, folder)
    best = load(folder) if ended.verified else None
    return Run(ended, best, sitting.signal)


def _reference_of(name: str) -> tuple[str, str]:
    return f"{LibrarySequence.__module__}.{name}", "ENTRY.reference"
