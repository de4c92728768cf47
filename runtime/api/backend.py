"""Interface of a backend: four small classes, and the arrays and modules that they provide.

| interface | provides | used by |
|---|---|---|
| `AbstractMachine` | the speed of the machine, and its measurement | the space, the bound, calibration |
| `AbstractBuilder` | the dialect of its source text, and builds | code generation, the queue of compilers |
| `AbstractRunner` | loading, arguments and timing of artifacts | the child of a worker, calls of tuned functions |
| `AbstractReporter` | names and reports of compilers | records, logs, registers |

`AbstractDevice` has one of each; a caller gets only the one that it needs. Only abstract methods have to be written.
"""

from __future__ import annotations

import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...codegen.text.dialect import Dialect
from ...codegen.text.source import Source
from ...kernels.fields.device_memory import CPU
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import Param
from ...space.targets.target import Target
from .artifact import Artifact, BuildReport
from .calibration import Calibration
from .errors import DeviceError
from .outcome import Failure, Measurement, Protocol

if TYPE_CHECKING:
    from ...codegen.bodies.index_checks import IndexChecks

Array = NDArray[Any]


class RunError(Exception):
    """Raised if a run of a module failed without ending this process. If `is_lost`, nothing else can run in it."""

    def __init__(self, failure: Failure, *, is_lost: bool = False) -> None:
        super().__init__(failure.advice)
        self.failure = failure
        self.is_lost = is_lost


class AbstractArray(ABC):
    """An array in a device's memory, between guard zones that show writes out of bounds."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def span(self) -> tuple[int, int] | None:
        """Address range of the contents (first, last plus one); None if this process cannot address them."""
        return None

    @property
    def lendable(self) -> tuple[int, tuple[int, int]] | None:
        """Address of the contents, and the device that has it, as DLPack numbers devices (kind, number).

        None if no other library can use the memory.
        """
        return None if self.span is None else (self.span[0], (CPU, 0))

    @abstractmethod
    def upload(self, values: Array) -> None:
        """Copies `values`, of the array's shape and dtype, into the array. Undoes `freeze`."""

    @abstractmethod
    def download(self) -> Array:
        """Returns the contents on the host: without a copy if host and device share memory."""

    def hold(self, n_first: int) -> None:  # noqa: B027  # most hold all from the begin
        """Gives memory, of zeros, to the first `n_first` elements of each row; elements that have it keep it.

        The address stays. Raises MemoryError if the device has too little left.
        """

    def upload_first(self, values: Array, n_first: int) -> None:
        """Copies the first `n_first` elements of each row of `values`, of the array's shape and dtype, into the array."""
        whole = np.array(self.download())
        whole[..., :n_first] = values[..., :n_first]
        self.upload(whole)

    def download_first(self, host: Array, n_first: int) -> None:
        """Copies the first `n_first` elements of each row to `host`, of the array's shape and dtype."""
        host[..., :n_first] = self.download()[..., :n_first]

    @abstractmethod
    def poison(self) -> None:
        """Fills the array with a value no kernel computes: NaN in floats, a large negative number in integers.

        Repairs the guard zones, too.
        """

    @abstractmethod
    def freeze(self) -> None:
        """Makes later writes by kernels detectable: a write crashes, or `trespass` reports it."""

    def keep(self, n_first: int) -> bool:
        """Makes later writes to the first `n_first` elements of each row end the run at once.

        The protection lasts until contents are uploaded again. Returns True if the device can protect elements. If only whole
        pages can be protected, elements that share a page with writable ones stay unprotected.
        """
        return False

    @abstractmethod
    def trespass(self) -> str | None:
        """Returns the place of a write around the array or, if it is frozen, inside it; None if there was none.

        The place is "before it", "behind it" or, if writes inside do not crash, "inside a read-only input".
        """


class AbstractModule(ABC):
    """An artifact loaded into this process, ready to run."""

    @property
    @abstractmethod
    def artifact(self) -> Artifact: ...

    @abstractmethod
    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        """Calls the sequence once; `values` follow `artifact.arguments`, with or without the workspace at the end.

        NumPy arrays are used in place. Raises TypeError naming the argument whose dtype, shape or layout does not fit, and
        RunError if the backend detects a fault of the module itself.
        """

    @property
    def component_ns(self) -> tuple[float, ...]:
        """Nanoseconds of each component in the last run, in the order of `Source.components`; () if not timed."""
        return ()

    def pointer(self) -> Any:
        """Returns the module's entry as a ctypes function. Raises TypeError if it has none."""
        raise TypeError("code for a GPU has no function that C could call")

    def check_indices(self, checks: IndexChecks) -> Failure | None:
        """Makes later runs raise IndexError, before they write, if an array holds an index out of range.

        A module without such checks leaves the effect of the index to its device. Returns a Failure if the checks cannot be
        built.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Unloads the module. It must not be run afterwards."""


class AbstractCaller(ABC):
    """Caller of a module from Python, faster than `AbstractModule.run`.

    Compiled classes need not derive from this class.
    """

    @abstractmethod
    def __call__(self, *args: Any, **named: Any) -> bool:
        """Runs the module if the arguments match the signature without conversion; else returns False without effect."""

    @abstractmethod
    def accept(self, k: int, value: Any) -> None:
        """Makes later calls accept the object `value` itself as parameter k, a constant, without comparing it."""


@dataclass(frozen=True)
class CallArguments:
    """Argument values of one module, and initial contents of the arrays that the sequence updates in place.

    `restore`: pairs of array and initial contents. `claims`: counters of sparse trees, whose last row is 0 unless a call wrote
    outside of a tree or to a full node.
    """

    values: tuple[AbstractArray | int | float | bool, ...]
    restore: tuple[tuple[AbstractArray, Array], ...] = ()
    claims: tuple[AbstractArray, ...] = ()

    def drifted(self) -> bool:
        """True if repeated calls have left the states to be timed: a tree is full, or values are extreme."""
        if any(array.download()[-1].any() for array in self.claims):
            return True
        return any(has_extremes(array.download()) for array, _ in self.restore)


class AbstractMemoryProbe(ABC):
    """Probe of memory rates, run between samples of other measurements."""

    @property
    @abstractmethod
    def samples(self) -> dict[str, list[float]]:
        """Measured bytes per ns, by name of the kind of memory access (names of `Target.streams`)."""

    @abstractmethod
    def step(self) -> None:
        """Takes one more sample of some kinds of memory access."""

    @abstractmethod
    def close(self) -> None:
        """Frees the probe's memory."""


class AbstractStoredFacts(ABC):
    """Facts in a stored calibration that later runs improve, if storing is allowed."""

    @abstractmethod
    def factors(self) -> tuple[float, ...]:
        """Returns the ratio of actual to best time for each resource of the prediction; () if unknown."""

    @abstractmethod
    def learn_factors(self, factors: tuple[float, ...]) -> None:
        """Stores the ratio of actual to best time for each resource of the prediction."""

    @abstractmethod
    def learn_latencies(self, samples: dict[str, list[float]]) -> None:
        """Stores those latencies of `samples` (of a `look` with `whole`) that are below the stored ones."""

    @abstractmethod
    def learn_alarm(self, raised: Target | None) -> None:
        """Counts a time below its bound, and stores the higher rates that explain it (None: no rates do)."""


class AbstractMachine(ABC):
    """Facts about the machine that runs the code, such as rates and sizes, and their measurement."""

    times_count = True
    """True if times may be compared with bounds: the facts are those of the machine that runs the code."""
    calibrated_by = ""
    """The command that measures its facts; "" where they are always those of a data sheet."""

    @abstractmethod
    def facts(self) -> Target:
        """Returns the stored calibrated facts; optimistic guesses without a calibration."""

    def accelerator(self) -> str:
        """Returns a name that distinguishes this device from others of the machine; "" for its CPU.

        No device is opened.
        """
        return ""

    def calibrate(self) -> Calibration:
        """Measures the facts in a worker's child, merges them with the stored ones, stores and returns the result.

        Raises DeviceError if there is nothing to measure or the device is missing, WorkerError if the probe fails.
        """
        raise DeviceError("this backend has no facts that could be measured")

    def probe_libraries(self, *, every: bool = False) -> tuple[Path, ...]:
        """Returns the library that measures memory and cores in a worker's child; () if there is none.

        With `every` those behind it that only a calibration needs.
        """
        return ()

    def take_samples(self, libraries: Sequence[Path], n_threads: int) -> dict[str, list[float]]:
        """Measures all facts, in a worker's child with `every` one of the `probe_libraries`, and returns the samples by name.

        Raises DeviceError.
        """
        raise DeviceError("this backend has no facts that could be measured")

    def look(self, library: Path, n_threads: int, whole: bool) -> dict[str, list[float]]:
        """Measures facts that change while the machine runs, and returns samples by name.

        These are the read rate of memory or, if `whole`, all rates and latencies that change.
        """
        raise DeviceError("this backend has no facts that could be measured")

    def stored_facts(self) -> AbstractStoredFacts | None:
        """Returns the stored calibration that later runs improve; None if there is none."""
        return None

    def memory_probe(
        self, library: Path, n_threads: int, read_bytes: float, written_bytes: float
    ) -> AbstractMemoryProbe:
        """Returns a memory probe to run between timed calls, on arrays of that many distinct bytes."""
        raise DeviceError("this backend has no facts that could be measured")


class AbstractBuilder(ABC):
    """Builder of a device: the dialect of its source texts, and their compilation."""

    makes_libraries = False
    """True if an artifact is a shared library, which a later process may `adopt`."""
    most_together = 1
    """The largest number of sources that one compiler gets at once."""
    builds_units = False
    """True if the units of a source are built one by one, and kept: `build` of the whole runs no compiler then."""

    @abstractmethod
    def dialect(self) -> Dialect:
        """Returns the dialect of source texts for this device."""

    @abstractmethod
    def build(self, source: Source) -> Artifact | Failure:
        """Compiles a source, or returns the earlier artifact of an equal source and equal flags. Thread-safe."""

    def build_together(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        """Builds sources, at most `most_together`, in one compiler run if that is faster than single ones.

        Machine code may depend on the other sources of the run. Thread-safe.
        """
        return [self.build(s) for s in sources]

    def end_builds(self) -> None:  # noqa: B027  # compilers may be quick
        """Ends running compilers of this process; their builds fail. No effect if builds are always short."""

    @property
    def can_build(self) -> bool:
        """True if the compiler is installed."""
        return True

    def adopt(self, source_key: str, library: Path) -> bool:
        """Makes later builds of the source `source_key` return `library` without a compiler; True if it can be loaded.

        The library has all rights of this process: the caller has checked its origin.
        """
        return False


class NamedParameter(typing.Protocol):
    """A parameter of a tuned sequence."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


class CallSignature(typing.Protocol):
    """The parameters of a tuned sequence, in the form that compiled callers use."""

    @property
    def parameters(self) -> Sequence[NamedParameter]: ...
    @property
    def arrays(self) -> Mapping[str, ArrayInfo]: ...
    @property
    def scalars(self) -> Mapping[str, Param]: ...
    def is_written(self, name: str) -> bool: ...


@dataclass(frozen=True)
class WindowCall:
    """A call of a module on arrays of its device; `values` follow `artifact.arguments`."""

    module: AbstractModule
    values: tuple[AbstractArray | int | float | bool, ...]


class AbstractWindows(ABC):
    """Runner of windows: calls of modules that a program has deferred, run as a whole."""

    @abstractmethod
    def run(self, calls: Sequence[WindowCall]) -> None:
        """Runs calls in order, and returns when all have run. Raises RunError."""

    def close(self) -> None:  # noqa: B027  # most keep nothing
        """Frees what was kept for windows that come again."""


class CallsInTurn(AbstractWindows):
    """Windows of a backend that has nothing faster than call behind call."""

    def run(self, calls: Sequence[WindowCall]) -> None:
        for call in calls:
            call.module.run(call.values)


class AbstractRunner(ABC):
    """Runner of a device: loads, calls and times artifacts, in a worker's child or in this process."""

    limits_memory = True
    """True if the private memory of a worker's child may be limited."""
    times_functions = False
    """True if functions of NumPy may be timed too: arrays are in the memory of this machine, and times are meaningful."""
    placement_counts = False
    """True if code may be slower on arrays that begin where NumPy puts them."""

    @abstractmethod
    def load(self, artifact: Artifact) -> AbstractModule | Failure:
        """Loads the artifact into this process; a missing symbol gives a Failure of kind "launch"."""

    @abstractmethod
    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
        grows: bool = False,
    ) -> AbstractArray:
        """Returns a new array with arbitrary contents, aligned to 64 bytes. Raises MemoryError.

        `as_numpy`: the array begins at an address as NumPy's arrays do, on devices where that affects times.
        `border`: number of the element at which a memory page begins, on devices that protect pages; alignment is then arbitrary.
        `grows`: the contents are zeros, and only elements that were passed to `AbstractArray.hold` are used.
        """

    @abstractmethod
    def time(
        self,
        calls: Sequence[tuple[AbstractModule, CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        """Times modules on arguments on which each has run once; several are interleaved, sample by sample.

        `beside` is called before each round, on devices that have a probe library.
        """

    def windows(self) -> AbstractWindows:
        """Returns a runner of whole windows."""
        return CallsInTurn()

    def check(self) -> None:  # noqa: B027  # most can run what they build
        """Raises DeviceError if code can be built but not run on this machine."""

    def caller(self, module: AbstractModule, signature: CallSignature) -> AbstractCaller | None:
        """Returns a faster way to run the module than its `run`; None if there is none."""
        return None

    def child_library(self) -> Path | None:
        """Returns the library that a worker's child loads first, and builds it if needed; None if there is none."""
        return None

    def enter_child(self, library: Path, reply_fd: int, n_threads: int) -> None:  # noqa: B027
        """Prepares this process as a worker's child: loads `library` and starts `n_threads` threads.

        Its signal handler reports faults to the descriptor `reply_fd`.
        """


class AbstractReporter(ABC):
    """Reporter of a device: its compiler, and the compiler's reports on code."""

    reports = False
    """True if the compiler reports the resources of code."""

    @abstractmethod
    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        """Returns a shell command that compiles `file`, which contains the source.

        `compiler`: the compiler of the earlier build, as named by `Conditions.compiler`.
        """

    def version(self) -> str:
        """Returns the displayed name and version of the compiler; "" without one.

        Raises DeviceError if it is missing.
        """
        return ""

    def flags(self) -> tuple[str, ...]:
        """Returns the compiler flags common to all builds, for records; () if there are none."""
        return ()

    def report(self, source: Source) -> BuildReport | Failure:
        """Builds a source and reports the resources of its launches. Raises DeviceError if the backend cannot."""
        raise DeviceError("this backend does not report what code takes")


class AbstractDevice(ABC):
    """One device: its name, machine, builder, runner and reporter."""

    name: str
    machine: AbstractMachine
    builder: AbstractBuilder
    runner: AbstractRunner
    reporter: AbstractReporter

    def worker(self) -> object | None:
        """Returns a device-specific AbstractWorker (runtime/worker/worker.py) without a child; None for the usual one."""
        return None

    def with_all_passes(self) -> AbstractDevice:
        """Returns the same device with all compiler passes on, for user-written texts; a search omits some."""
        return self

    def others(self) -> list[AbstractDevice]:
        """Returns one device per other working compiler on this machine; [] if the options name the compiler."""
        return []


def has_extremes(array: Array) -> bool:
    """True if an array holds values that may change the speed of arithmetic: denormal, infinite or NaN."""
    if array.dtype.kind != "f" or array.size == 0:
        return False
    size = np.abs(array)
    tiny = (size > 0) & (size < np.finfo(array.dtype).smallest_normal)
    return bool(tiny.any() or not np.isfinite(size).all())
