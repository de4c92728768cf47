"""Interface of a backend: four small classes, and the arrays and modules that they provide.

| interface | provides | used by |
|---|---|---|
| `AbstractMachine` | the speed of the machine, and its measurement | the space, the bound, calibration |
| `AbstractBuilder` | the dialect of its text, and builds | code generation, the queue of compilers |
| `AbstractRunner` | loading, arguments and timing of artifacts | the child of a worker, calls of tuned functions |
| `AbstractReporter` | names and reports of compilers | records, logs, registers |

`AbstractDevice` holds one of each; a caller gets only the one that it needs. Only abstract methods have to be written.
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
    """Raised if a module's run failed in a way that this process survives. If `is_lost`, nothing else can be run in it."""

    def __init__(self, failure: Failure, *, is_lost: bool = False) -> None:
        super().__init__(failure.advice)
        self.failure = failure
        self.is_lost = is_lost


class AbstractArray(ABC):
    """An array on a device, with guard zones around it that show writes out of bounds."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def span(self) -> tuple[int, int] | None:
        """The first and last-plus-one address of the contents; None where this process has no address of them."""
        return None

    @abstractmethod
    def upload(self, values: Array) -> None:
        """Sets the contents; `values` has the array's shape and dtype. Undoes `freeze`."""

    @abstractmethod
    def download(self) -> Array:
        """Returns the contents on the host: a view of them and no copy, where host and device share memory."""

    @abstractmethod
    def poison(self) -> None:
        """Fills the array with a pattern no kernel computes: NaN in floats, a large negative number in integers. Repairs the guard
        zones.
        """

    @abstractmethod
    def freeze(self) -> None:
        """Makes a later write by a kernel detectable: it crashes, or `trespass` reports it."""

    def keep(self, n_first: int) -> bool:
        """Makes a later write by a kernel to the first elements of each row end the run at once, until contents are set again.
        Returns True if the device can do so.

        Where only pages can be protected, elements on one page with others that are written stay free.
        """
        return False

    @abstractmethod
    def trespass(self) -> str | None:
        """Returns the place of a write around the array or, if frozen, inside it; None if there was none.

        The place is "before it", "behind it" or, where writes inside do not crash, "inside a read-only input".
        """


class AbstractModule(ABC):
    """A loaded artifact."""

    @property
    @abstractmethod
    def artifact(self) -> Artifact: ...

    @abstractmethod
    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        """Calls the sequence once; `values` follow `artifact.arguments`, with or without the workspace at the end.

        NumPy arrays are used in place. Raises TypeError naming the argument whose dtype, shape or layout does not fit, and RunError
        where the backend detects a fault of the module itself.
        """

    @property
    def component_ns(self) -> tuple[float, ...]:
        """The nanoseconds of each component in the last run, in the order of `Source.components`; () where they are not taken."""
        return ()

    def pointer(self) -> Any:
        """Returns the entry as a ctypes function. Raises TypeError where there is none."""
        raise TypeError("code for a GPU has no function that C could call")

    def check_indices(self, checks: IndexChecks) -> Failure | None:
        """Makes later runs raise IndexError, before anything is written, where an array holds an index that is out of range.

        A module without such checks leaves the effect of the index to its device.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Unloads the module. It must not be run afterwards."""


class AbstractCaller(ABC):
    """A fast way to run a module from Python, in compiled code that need not derive from this class."""

    @abstractmethod
    def __call__(self, *args: Any, **named: Any) -> bool:
        """Runs the module if the arguments are plainly those of the signature; else does nothing and returns False."""

    @abstractmethod
    def accept(self, k: int, value: Any) -> None:
        """Accepts this very object as parameter k, a constant, from now on."""


@dataclass(frozen=True)
class CallArguments:
    """Values for one module and, for the arrays that the sequence updates in place, the contents to start from.

    The last row of each array of `claims` is 0 as long as calls could do all that they should.
    """

    values: tuple[AbstractArray | int | float | bool, ...]
    restore: tuple[tuple[AbstractArray, Array], ...] = ()
    claims: tuple[AbstractArray, ...] = ()

    def drifted(self) -> bool:
        """True if repeated calls have left the states that a call is timed on: a tree is full, or numbers are not ordinary."""
        if any(array.download()[-1].any() for array in self.claims):
            return True
        return any(has_extremes(array.download()) for array, _ in self.restore)


class AbstractMemoryProbe(ABC):
    """Probe that measures memory repeatedly, between samples of other things."""

    @property
    @abstractmethod
    def samples(self) -> dict[str, list[float]]:
        """The measured bytes a nanosecond, by way of use, as in `Target.streams`."""

    @abstractmethod
    def step(self) -> None:
        """Takes one more measurement."""

    @abstractmethod
    def close(self) -> None:
        """Frees the probe's memory."""


class AbstractStoredFacts(ABC):
    """Facts of a calibration that later runs improve. They are stored where that is allowed."""

    @abstractmethod
    def factors(self) -> tuple[float, ...]:
        """Returns the factors by which resources take longer than at their best; () where none are known."""

    @abstractmethod
    def learn_factors(self, factors: tuple[float, ...]) -> None:
        """Stores such factors."""

    @abstractmethod
    def learn_latencies(self, samples: dict[str, list[float]]) -> None:
        """Stores the latencies of a `look` at the `whole` state that are below the stored ones."""

    @abstractmethod
    def learn_alarm(self, raised: Target | None) -> None:
        """Counts a measurement below its bound, and stores the rates that explain it (None: none do)."""


class AbstractMachine(ABC):
    """Facts of the machine that runs the code, and their measurement."""

    times_count = True
    """True if times may be compared with bounds: the facts are those of the machine that runs the code."""
    calibrated_by = ""
    """The command that measures its facts; "" where they are always those of a data sheet."""

    @abstractmethod
    def facts(self) -> Target:
        """Returns calibrated facts where they were stored, optimistic guesses otherwise."""

    def accelerator(self) -> str:
        """Returns the name that distinguishes this device from others of the machine; "" where the machine alone determines the
        device. No device is opened.
        """
        return ""

    def calibrate(self) -> Calibration:
        """Measures the facts in a worker's child, merges them with those stored for this device, stores and returns them.

        Raises DeviceError where there is nothing to measure or the device is missing, WorkerError when the probe fails.
        """
        raise DeviceError("this backend has no facts that could be measured")

    def probe_library(self) -> Path | None:
        """Returns the library that measures the machine's memory and cores in a worker's child; None where there is none."""
        return None

    def take_samples(self, library: Path | None, n_threads: int) -> dict[str, list[float]]:
        """Returns all samples of the facts by name, in a worker's child with its `probe_library`. Raises DeviceError."""
        raise DeviceError("this backend has no facts that could be measured")

    def look(self, library: Path, n_threads: int, whole: bool) -> dict[str, list[float]]:
        """Returns samples of the facts that change while the machine runs: the read rate of memory or, if `whole`, all of them."""
        raise DeviceError("this backend has no facts that could be measured")

    def stored_facts(self) -> AbstractStoredFacts | None:
        """Returns the facts of a calibration that later runs improve; None where there are none."""
        return None

    def memory_probe(
        self, library: Path, n_threads: int, read_bytes: float, written_bytes: float
    ) -> AbstractMemoryProbe:
        """Returns a probe of memory to run between timed calls, with arrays of so many distinct bytes."""
        raise DeviceError("this backend has no facts that could be measured")


class AbstractBuilder(ABC):
    """Builder of a device: the dialect of its texts, and their compilation."""

    makes_libraries = False
    """True if an artifact is a shared library, which a later process may `adopt`."""
    most_together = 1
    """The largest number of sources that one compiler gets at once."""
    builds_units = False
    """True if the units of a source are built one by one, and kept: `build` of the whole runs no compiler then."""

    @abstractmethod
    def dialect(self) -> Dialect:
        """Returns the dialect of texts for this device."""

    @abstractmethod
    def build(self, source: Source) -> Artifact | Failure:
        """Compiles a source; equal sources under equal flags give the same artifact without compiling again. Thread-safe."""

    def build_together(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        """Builds each source, at most `most_together`, in one compilation where that is faster than one after the other.

        Machine code may depend on the other sources of a compilation. Thread-safe.
        """
        return [self.build(s) for s in sources]

    def end_builds(self) -> None:  # noqa: B027  # compilers may be quick
        """Ends compilers that run for this process, where they may run long: their builds fail."""

    @property
    def can_build(self) -> bool:
        """True if the compiler is installed."""
        return True

    def adopt(self, source_key: str, library: Path) -> bool:
        """Makes later builds of that source return this library without a compiler. Returns True if it can be loaded.

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
    """The parameters of a tuned sequence, as compiled calls read them."""

    @property
    def parameters(self) -> Sequence[NamedParameter]: ...
    @property
    def arrays(self) -> Mapping[str, ArrayInfo]: ...
    @property
    def scalars(self) -> Mapping[str, Param]: ...
    def is_written(self, name: str) -> bool: ...


class AbstractRunner(ABC):
    """Runner of a device: loads, calls and times artifacts, in the child of a worker or in this process."""

    limits_memory = True
    """True if the private memory of a worker's child may be limited."""
    times_functions = False
    """True if functions of NumPy may be timed too: arrays are in the memory of this machine, and times are meaningful."""
    placement_counts = False
    """True if code may be slower on arrays that begin where NumPy puts them."""

    @abstractmethod
    def load(self, artifact: Artifact) -> AbstractModule | Failure:
        """Loads the artifact into *this* process; a missing symbol is a Failure "launch"."""

    @abstractmethod
    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
    ) -> AbstractArray:
        """Returns a new array, contents arbitrary, aligned to 64 bytes. Raises MemoryError.

        With `as_numpy`, where placement counts, it begins where an array of NumPy's would. With `border`, where pages can be
        protected, a page begins at this element, whatever the alignment is then.
        """

    @abstractmethod
    def time(
        self,
        calls: Sequence[tuple[AbstractModule, CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        """Times modules on arguments that each was already run on once; several are interleaved, sample by sample.

        `beside` is called before each round, on devices that have a probe library.
        """

    def check(self) -> None:  # noqa: B027  # most can run what they build
        """Raises DeviceError with a sentence when code can be built but not run here."""

    def caller(self, module: AbstractModule, signature: CallSignature) -> AbstractCaller | None:
        """Returns a faster way to run a module of this device than `run`; None where there is none."""
        return None

    def child_library(self) -> Path | None:
        """Returns the library that a child of a worker loads first, built here; None where it needs none."""
        return None

    def enter_child(self, library: Path, reply_fd: int, n_threads: int) -> None:  # noqa: B027
        """Makes this process the child of a worker: loads that library, reports faults to `reply_fd`, starts `n_threads`."""


class AbstractReporter(ABC):
    """Reporter of a device: its compiler, and the compiler's reports on code."""

    reports = False
    """True if the compiler reports the resources of code."""

    @abstractmethod
    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        """Returns the shell command that compiles `file`, which holds the source. `compiler` is the one that built it before, as
        `Conditions.compiler` names it.
        """

    def version(self) -> str:
        """Returns the name of the compiler, for people; "" where there is none. Raises DeviceError where it is missing."""
        return ""

    def flags(self) -> tuple[str, ...]:
        """Returns the flags of every build, as records store them; () where there are none to report."""
        return ()

    def report(self, source: Source) -> BuildReport | Failure:
        """Builds a source and reports the resources of its launches. Raises DeviceError where the backend cannot report them."""
        raise DeviceError("this backend does not report what code takes")


class AbstractDevice(ABC):
    """One device: its name, machine, builder, runner and reporter."""

    name: str
    machine: AbstractMachine
    builder: AbstractBuilder
    runner: AbstractRunner
    reporter: AbstractReporter

    def worker(self) -> object | None:
        """Returns an AbstractWorker (runtime/worker/worker.py) that evaluates without a child; None if a child evaluates."""
        return None

    def with_all_passes(self) -> AbstractDevice:
        """Returns the same device with all passes of its compiler, for texts that others wrote. A search leaves some out."""
        return self

    def others(self) -> list[AbstractDevice]:
        """Returns the same device with each other compiler that works here; none where the options name the compiler."""
        return []


def has_extremes(array: Array) -> bool:
    """True if an array holds a value whose arithmetic may take another time: not finite, or denormal."""
    if array.dtype.kind != "f" or array.size == 0:
        return False
    size = np.abs(array)
    tiny = (size > 0) & (size < np.finfo(array.dtype).smallest_normal)
    return bool(tiny.any() or not np.isfinite(size).all())
