"""Worker: one child process that runs candidates, killed and replaced when it crashes or hangs.

The parent never loads generated code. Input arrays are transferred once, as .npy files in memory that a new child maps again.
So a crash costs a restart (about 0.2 s) and one copy of the inputs. Files in memory are freed with the parent, also when it is
killed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from numpy.typing import NDArray

from ..api.artifact import Artifact
from ..api.backend import AbstractDevice
from ..api.outcome import FINAL, Disagreement, Failure, Measurement, Protocol
from ..scratch import Scratch
from . import messages
from .channel import AbstractChannel, Answer, Channel, Death
from .child import SCRATCH_PREFIX
from .crash_reasons import explain
from .input_sets import InputSets
from .memory_files import AbstractFiles, MemoryFiles, write_expected, write_set
from .rounding import branch_sentences
from .verify import Expected

Array = NDArray[Any]
_TRIES = 3  # of a request, if other processes kill the child
_PROBE_S = 30.0  # for the memory probes between candidates, and the allocation of their memory
Outcome = Measurement | Failure


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Resource limits and environment of a worker's child."""

    run_timeout_s: float | None = None  # None: from the cut, see `Worker.deadline_s`
    memory_bytes: int | None = None  # beyond the arrays; None: 512 MiB + twice the arrays
    runs_candidates: bool = True  # off only to time other people's libraries
    environment: tuple[tuple[str, str], ...] = ()  # variables of the child, over all others


class WorkerError(Exception):
    """The child cannot work (no memory for the arrays, no interpreter). The message is one sentence."""


class AbstractWorker(ABC):
    """Evaluates artifacts on prepared inputs. `n_restarts` counts replacements of a dead child."""

    n_restarts: int = 0

    def __init__(self) -> None:
        self.branches: dict[int, tuple[str, ...]] = {}
        """Sentences on elements that lie on a branch, by the number of the input set, for the sets that were analysed."""
        self.on_measured: Callable[[int], None] = lambda number: None
        """Called with the number of an input set once the effect of rounding on its results was measured."""

    def start(self) -> None:  # noqa: B027  # there may be nothing to start
        """Starts the evaluating process in the background."""

    @abstractmethod
    def prepare(self, input_sets: InputSets) -> None:
        """Loads the input sets. Raises WorkerError if they do not fit."""

    @abstractmethod
    def prepare_as(self, other: AbstractWorker) -> None:
        """Loads the input sets of `other`, a worker of the same class that is closed later. Raises WorkerError."""

    @abstractmethod
    def evaluate(self, artifact: Artifact, protocol: Protocol, *, verify: bool = True) -> Outcome:
        """Verifies an artifact, then times it.

        If the protocol has `claims_below_ns`, the artifact is verified on the timed input set first, and on the others only if
        it is that fast.
        """

    def evaluate_beside(self, artifact: Artifact, control: Artifact, protocol: Protocol) -> Outcome:
        """Verifies as `evaluate`, then times alternately with the verified `control`.

        The resulting time is the ratio of both times, multiplied by the protocol's `control_ns`. A worker without this ability
        evaluates the artifact alone.
        """
        return self.evaluate(artifact, replace(protocol, control_ns=None))

    @abstractmethod
    def interleave(self, artifacts: Sequence[Artifact], protocol: Protocol) -> list[Outcome]:
        """Verifies again and times alternately, in one process; outcomes in the order of the artifacts."""

    def interleave_beside(
        self,
        artifacts: Sequence[Artifact],
        protocol: Protocol,
        read_bytes: float,
        written_bytes: float,
    ) -> tuple[list[Outcome], dict[str, list[float]]]:
        """Returns the outcomes of `interleave`, and memory rates from the same rounds.

        Rates are in bytes per ns, by kind of memory access (keys of `Target.streams`), for arrays of that many distinct bytes; {}
        without a probe.
        """
        return self.interleave(artifacts, protocol), {}

    @abstractmethod
    def probe(self) -> float:
        """Returns the current memory bandwidth of all cores, in bytes per ns."""

    @abstractmethod
    def probe_state(self) -> dict[str, list[float]]:
        """Returns current samples of the machine's variable state, by name; {} if it is unknown.

        These are rates of each kind of memory access in bytes per ns, and ns of a launch and of a barrier.
        """

    @abstractmethod
    def end_when(self, is_over: Callable[[], bool]) -> None:
        """Makes all later waits for an answer raise Stopped once `is_over`."""

    @abstractmethod
    def close(self) -> None:
        """Ends the child and removes its temporary folder. Safe to call twice."""

    def __enter__(self) -> AbstractWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()


class Worker(AbstractWorker):
    """The worker for all backends that run code, with a child process.

    Its child starts in 0.4 s because nothing that it imports brings numba, which alone takes longer, or LLVM.
    """

    def __init__(
        self,
        device: AbstractDevice,
        options: WorkerOptions | None = None,
        *,
        channel: AbstractChannel | None = None,
        files: Callable[[], AbstractFiles] = MemoryFiles,
    ) -> None:
        """`channel`: connection to the process that runs requests (default: a child of this process).

        `files`: creates the object that transfers arrays to that process.
        """
        super().__init__()
        self._device = device
        self._options = options or WorkerOptions()
        self._input_sets: InputSets | None = None
        self._prepare: messages.Prepare | None = None
        self._ready = messages.Ready([], 0)
        self._levels: dict[int, int] = {}  # of the rounding of input sets, where it was measured
        self._make_files = files
        self._files = files()
        self.n_restarts = 0
        self._scratch: Scratch | None = None
        self._channel = channel or self._own_channel()

    def _own_channel(self) -> Channel:
        library = self._library()
        self._scratch = Scratch(SCRATCH_PREFIX)
        given = dict(self._options.environment)
        return Channel(self._device.name, library, self._scratch.path, environment=given)

    def _library(self) -> Path | None:
        """The device's own library for the child, built if needed; None if the device has none."""
        return self._device.runner.child_library() if self._options.runs_candidates else None

    def start(self) -> None:
        self._channel.start()

    def prepare(self, input_sets: InputSets) -> None:
        if self._prepare is not None:
            self._channel.kill()  # it maps the files of the inputs before
        self._files.close()
        self._files = self._make_files()
        sets = [write_set(self._files, s, input_sets.roles) for s in input_sets.sets]
        allowance_bytes = self._options.memory_bytes
        if allowance_bytes is None:
            allowance_bytes = (512 << 20) + 2 * input_sets.size_bytes
        self._input_sets, self._levels = input_sets, {}
        self.branches.clear()
        self._prepare = messages.Prepare(
            dict(input_sets.roles), sets, allowance_bytes, input_sets.trees
        )
        self._send_prepare()

    def prepare_as(self, other: AbstractWorker, n_sets: int | None = None) -> None:
        """Loads the input sets of the other worker, or only its first `n_sets`."""
        assert isinstance(other, Worker)
        assert other._prepare is not None, "the other is prepared first"
        if self._prepare is not None:
            self._channel.kill()
        assert other._input_sets is not None
        prepared, self._levels = other._prepare, dict(other._levels)
        self.branches.update(other.branches)
        self._input_sets = replace(other._input_sets, sets=other._input_sets.sets[:n_sets])
        self._prepare = messages.Prepare(
            prepared.roles, prepared.sets[:n_sets], prepared.allowance_bytes, prepared.trees
        )
        self._send_prepare()

    def evaluate(self, artifact: Artifact, protocol: Protocol, *, verify: bool = True) -> Outcome:
        n_runs = self._ready.n_verified if verify else 0
        deadline_s = self.deadline_s(protocol, n_runs, artifact.workspace_bytes)
        return self._evaluated(messages.Evaluate(artifact, protocol, verify), deadline_s)

    def evaluate_beside(self, artifact: Artifact, control: Artifact, protocol: Protocol) -> Outcome:
        n_bytes = artifact.workspace_bytes + control.workspace_bytes
        deadline_s = 2 * self.deadline_s(protocol, self._ready.n_verified, n_bytes)
        return self._evaluated(messages.Evaluate(artifact, protocol, True, control), deadline_s)

    def _evaluated(self, request: messages.Evaluate, deadline_s: float) -> Outcome:
        while True:
            found = self._outcomes(request, deadline_s)[0]
            if not self._measures_rounding([found]):
                return found
            n_right = found.n_right if isinstance(found, Failure) else None
            request = msgspec.structs.replace(request, n_right=n_right)

    def interleave(
        self, artifacts: Sequence[Artifact], protocol: Protocol = FINAL
    ) -> list[Outcome]:
        if not artifacts:
            return []
        deadline_s = self._interleave_deadline_s(artifacts, protocol)
        while True:
            outcomes = self._outcomes(messages.Interleave(list(artifacts), protocol), deadline_s)
            if not self._measures_rounding(outcomes):
                return self._all_of(artifacts, outcomes, protocol)

    def interleave_beside(
        self,
        artifacts: Sequence[Artifact],
        protocol: Protocol,
        read_bytes: float,
        written_bytes: float,
    ) -> tuple[list[Outcome], dict[str, list[float]]]:
        libraries = self._device.machine.probe_libraries()
        if not libraries or not artifacts:
            return self.interleave(artifacts, protocol), {}
        beside = messages.MemoryProbe(str(libraries[0]), read_bytes, written_bytes)
        deadline_s = _PROBE_S + self._interleave_deadline_s(artifacts, protocol)
        while True:
            answer = self._ask(messages.Interleave(list(artifacts), protocol, beside), deadline_s)
            outcomes = self._read(answer)
            if not self._measures_rounding(outcomes):
                rates = answer.rates if isinstance(answer, messages.Outcomes) else {}
                return self._all_of(artifacts, outcomes, protocol), rates

    def _measures_rounding(self, outcomes: Sequence[Outcome]) -> bool:
        """Analyses rounding for disagreements in `outcomes`. True if expected results have changed.

        Results must then be compared again. Raises Stopped.
        """
        places = [o.at for o in outcomes if isinstance(o, Failure) and o.at is not None]
        places.sort(key=lambda at: at.n_wrong)
        return any(self._measure_rounding(at) for at in places)

    def _measure_rounding(self, at: Disagreement) -> bool:
        """Analyses an input set at the next level that adds information; True if there was one."""
        rounding = self._prepared.sets[at.input_set].rounding
        level = self._levels.get(at.input_set, 0) + 1
        while rounding is not None and rounding.is_worth(level, at):
            before, found = rounding.expected(level - 1), rounding.expected(level)
            self._levels[at.input_set] = level
            if any(found[name] is not before[name] for name in found):
                self._expect(at.input_set, found)
                return True
            level += 1
        return False

    def _expect(self, number: int, expected: Mapping[str, Expected]) -> None:
        """Replaces the expected results of input set `number` in the child."""
        assert self._prepare is not None
        sets = list(self._prepare.sets)
        wanted = {name: e.want for name, e in sets[number].expected.items()}
        new = write_expected(self._files, expected, wanted)
        sets[number] = msgspec.structs.replace(sets[number], expected=new)
        self._prepare = msgspec.structs.replace(self._prepare, sets=sets)
        self._send_prepare()
        self.branches[number] = branch_sentences(expected)
        self.on_measured(number)

    def _all_of(
        self, artifacts: Sequence[Artifact], outcomes: list[Outcome], protocol: Protocol
    ) -> list[Outcome]:
        if len(outcomes) == len(artifacts):
            return outcomes
        # The child died and which candidate did it is unknown: each alone, then.
        return [self.evaluate(a, protocol) for a in artifacts]

    def _interleave_deadline_s(self, artifacts: Sequence[Artifact], protocol: Protocol) -> float:
        workspace_bytes = max(a.workspace_bytes for a in artifacts)
        n_timed = 2 * len(artifacts)  # each on two placements of the arrays
        return self.deadline_s(protocol, 1, workspace_bytes) * n_timed

    def probe(self) -> float:
        libraries = self._device.machine.probe_libraries()
        if not libraries:
            return self._device.machine.facts().memory_read_bytes_per_ns
        return max(self._rates(messages.Probe(str(libraries[0])), 30.0)["memory_read"])

    def probe_state(self) -> dict[str, list[float]]:
        """Returns samples by name (memory_read, memory_copy_nt, ..., launch_ns, barrier_ns).

        Bytes are counted as a program accesses them.
        """
        libraries = self._device.machine.probe_libraries()
        return self._rates(messages.Probe(str(libraries[0]), True), 30.0) if libraries else {}

    def calibrate(self) -> dict[str, list[float]]:
        """Returns all calibration samples by name (the probe.py of a backend interprets them); takes about 5 s."""
        libraries = self._device.machine.probe_libraries(every=True)
        return self._rates(messages.Calibrate(tuple(map(str, libraries))), 120.0)

    def time_function(self, module: str, attribute: str, protocol: Protocol = FINAL) -> Outcome:
        """Times an importable Python function `attribute` (dots allowed) of `module` on input set 0.

        Its arguments are the arrays, then the scalars. For baselines such as NumPy. Use a worker with `runs_candidates=False`:
        libraries bring their own threads, which would inherit the binding of the thread that starts them.
        """
        request = messages.TimeFunction(module, attribute, protocol)
        copied_s = 4e-9 * self._prepared.size_bytes
        return self._outcomes(request, copied_s + self.deadline_s(protocol, 3))[0]

    def end_when(self, is_over: Callable[[], bool]) -> None:
        self._channel.is_over = is_over

    def close(self) -> None:
        with ExitStack() as last_first:  # all of it, also where a deadline cuts in
            if self._scratch is not None:
                last_first.callback(self._scratch.close)
            last_first.callback(self._files.close)
            self._channel.kill()

    def deadline_s(self, protocol: Protocol, n_verified: int, workspace_bytes: int = 0) -> float:
        """Returns the seconds after which an evaluation counts as failed.

        The runs themselves may take ten times the cut each (at least a second together), or the run timeout that was set.
        Restoring and comparing written arrays is allowed 4 ns per byte, far above their actual cost.
        """
        n_bytes = self._prepared.written_bytes + workspace_bytes
        arrays_s = 4e-9 * n_bytes * (n_verified + protocol.max_samples // 4)
        run_s = self._options.run_timeout_s
        if run_s is None:
            cut_ns = protocol.cut_ns
            n_runs = n_verified + 5
            run_s = 30.0 if cut_ns is None else max(1.0, 10 * n_runs * cut_ns * 1e-9)
        return 2.0 + run_s + arrays_s + 4 * protocol.budget_ns * 1e-9

    @property
    def _prepared(self) -> InputSets:
        assert self._input_sets is not None, "prepare() comes first"
        return self._input_sets

    def _send_prepare(self) -> None:
        assert self._prepare is not None
        assert self._input_sets is not None
        deadline_s = 30.0 + 2e-8 * self._input_sets.size_bytes * len(self._input_sets.sets)
        answer = self._ask_child(self._prepare, deadline_s)
        if isinstance(answer, Death):
            raise WorkerError(f"the worker's child could not take the arrays: {answer.what}")
        assert isinstance(answer, messages.Ready)
        self._ready = answer

    def _ask(self, request: messages.Request, deadline_s: float) -> Answer:
        return self._ask_child(request, deadline_s, self._revive)

    def _revive(self) -> None:
        """Starts another child in place of a dead one, and sends it the same preparation."""
        if not self._channel.is_alive:
            self.n_restarts += 1
            self._channel.library = self._library()  # somebody may have removed the folder
            if self._prepare is not None:
                self._send_prepare()

    def _ask_child(
        self,
        request: messages.Request,
        deadline_s: float,
        before: Callable[[], None] = lambda: None,
    ) -> Answer:
        """Sends a request and returns the answer; repeats it in a new child if another process killed the child.

        Raises WorkerError after several were killed.
        """
        what = ""
        for _ in range(_TRIES):
            before()
            answer = self._channel.ask(request, deadline_s)
            if not isinstance(answer, Death) or not answer.is_foreign:
                return answer
            what = answer.what
        raise WorkerError(
            f"somebody kills the process that runs candidates: {what}, {_TRIES} times in a row"
        )

    def _rates(
        self, request: messages.Probe | messages.Calibrate, deadline_s: float
    ) -> dict[str, list[float]]:
        answer = self._ask(request, deadline_s)
        if isinstance(answer, Death):
            raise WorkerError(f"the machine probe failed: {answer.what}")
        if isinstance(answer, messages.Outcomes):
            why = "; ".join(f.advice for f in answer.failed if f is not None)
            raise WorkerError(f"the machine probe failed: {why}")
        assert isinstance(answer, messages.Rates)
        return answer.samples

    def _outcomes(self, request: messages.Request, deadline_s: float) -> list[Outcome]:
        return self._read(self._ask(request, deadline_s))

    def _read(self, answer: Answer) -> list[Outcome]:
        if isinstance(answer, Death):
            return [explain(answer, self._ready)]
        assert isinstance(answer, messages.Outcomes)
        both = zip(answer.measured, answer.failed, strict=True)
        return [o for pair in both for o in pair if o is not None]
