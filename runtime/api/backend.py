"""What a backend is to the rest: four small interfaces, and the arrays and modules that they hand out.

| interface | answers | asked by |
|---|---|---|
| `AbstractMachine` | how fast is it, and how is that measured | the space, the bound, calibration |
| `AbstractBuilder` | how is text for it spelt, what is built of it | code generation, the queue of compilers |
| `AbstractRunner` | how is what was built loaded, fed and timed | the child of a worker, calls of tuned functions |
| `AbstractReporter` | what do compilers say of themselves and of code | records, logs, registers |

`AbstractDevice` holds one of each; whoever asks is handed the one that answers. Only what is abstract has to be written.
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
    """A module's run failed in a way that this process survives. `is_lost` says that nothing else can be run in it."""

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
        """First and last-plus-one address of the contents; None where this process has no address of them."""
        return None

    @abstractmethod
    def upload(self, values: Array) -> None:
        """Set the contents; `values` has the array's shape and dtype. Undoes `freeze`."""

    @abstractmethod
    def download(self) -> Array:
        """The contents on the host; where host and device share memory, a view of them and no
        copy.
        """

    @abstractmethod
    def poison(self) -> None:
        """Fill with a pattern no kernel computes: NaN in floats, a large negative number in
        integers. Repairs the guard zones.
        """

    @abstractmethod
    def freeze(self) -> None:
        """Let a later write by a kernel be found: it crashes, or shows in `trespass`."""

    def keep(self, n_first: int) -> bool:
        """Let a later write by a kernel to the first elements of each row end the run at once, until contents are set
        again; whether it can. Where only pages can be protected, elements on one page with others that are written stay free.
        """
        return False

    @abstractmethod
    def trespass(self) -> str | None:
        """Where memory around (or, frozen, inside) the array was written: "before it", "behind
        it" or None.
        """


class AbstractModule(ABC):
    """A loaded artifact."""

    @property
    @abstractmethod
    def artifact(self) -> Artifact: ...

    @abstractmethod
    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        """Call the sequence once; `values` follow `artifact.arguments`, with or without the
        workspace at the end.

        NumPy arrays are used in place. Raises TypeError naming the argument whose dtype, shape or
        layout does not fit, and RunError where the backend sees a fault of the module itself.
        """

    def pointer(self) -> Any:
        """The entry as a ctypes function. Raises TypeError where there is none."""
        raise TypeError("code for a GPU has no function that C could call")

    def check_indices(self, checks: IndexChecks) -> Failure | None:
        """From now on `run` raises IndexError, before anything is written, where an array holds an index that is out of range.

        A module that cannot look leaves it to its device what becomes of such an index.
        """
        return None

    @abstractmethod
    def close(self) -> None:
        """Unload. The module must not be run afterwards."""


class AbstractCaller(ABC):
    """A quick way to run a module from Python, in compiled code that need not derive from this class."""

    @abstractmethod
    def __call__(self, *args: Any, **named: Any) -> bool:
        """Run the module if the arguments are plainly those of the signature; else do nothing, False."""

    @abstractmethod
    def accept(self, k: int, value: Any) -> None:
        """From now on parameter k, a constant, may be this very object."""


@dataclass(frozen=True)
class CallArguments:
    """Values for one module and, for the arrays that the sequence updates in place, the contents
    to start from. Of `claims` the last row is 0 as long as calls could do all that they should.
    """

    values: tuple[AbstractArray | int | float | bool, ...]
    restore: tuple[tuple[AbstractArray, Array], ...] = ()
    claims: tuple[AbstractArray, ...] = ()

    def drifted(self) -> bool:
        """Whether repeated calls have left the states that one is timed on: a tree is full, or numbers are not ordinary."""
        if any(array.download()[-1].any() for array in self.claims):
            return True
        return any(has_extremes(array.download()) for array, _ in self.restore)


class AbstractMemoryProbe(ABC):
    """Looks at memory again and again, between samples of other things."""

    @property
    @abstractmethod
    def samples(self) -> dict[str, list[float]]:
        """Bytes a nanosecond, by way of using it, as in `Target.streams`."""

    @abstractmethod
    def step(self) -> None:
        """One more look."""

    @abstractmethod
    def close(self) -> None:
        """Give back its memory."""


class AbstractMachine(ABC):
    """The facts of what runs the code, and how they are measured."""

    times_count = True
    """Whether times may be compared with bounds: the facts are those of what runs the code."""
    calibrated_by = ""
    """The command that measures its facts; "" where they are those of a data sheet for ever."""

    @abstractmethod
    def facts(self) -> Target:
        """Calibrated ones where they were stored, optimistic guesses otherwise."""

    def accelerator(self) -> str:
        """What tells this device from others that this machine may have; "" where the machine says all. No device is opened."""
        return ""

    def calibrate(self) -> Calibration:
        """Measure the facts in a worker's child, merge them with those stored for this device, store and return them.

        Raises DeviceError where there is nothing to measure or the device is missing, WorkerError when the probe fails.
        """
        raise DeviceError("this backend has no facts that could be measured")

    def probe_library(self) -> Path | None:
        """The library that measures the machine's memory and cores in a worker's child; None where there is none."""
        return None

    def take_samples(self, library: Path | None, n_threads: int) -> dict[str, list[float]]:
        """In a worker's child, with its `probe_library`: all samples of the facts by name. Raises DeviceError."""
        raise DeviceError("this backend has no facts that could be measured")

    def look(self, library: Path, n_threads: int, whole: bool) -> dict[str, list[float]]:
        """The same of what changes while the machine runs: how fast memory is read or, `whole`, all of it."""
        raise DeviceError("this backend has no facts that could be measured")

    def learn(self, samples: dict[str, list[float]]) -> None:  # noqa: B027  # most have nothing stored
        """Keep what a `look` at the `whole` state met that is less than the stored facts say, where that may be: latencies."""

    def memory_probe(
        self, library: Path, n_threads: int, read_bytes: float, written_bytes: float
    ) -> AbstractMemoryProbe:
        """The same of memory, beside what is timed, with arrays of so many distinct bytes."""
        raise DeviceError("this backend has no facts that could be measured")


class AbstractBuilder(ABC):
    """How texts are spelt, and what is built of them."""

    makes_libraries = False
    """Whether an artifact is a shared library, which a later process may `adopt`."""
    most_together = 1
    """Sources that one compiler is given at once."""

    @abstractmethod
    def dialect(self) -> Dialect:
        """How texts for this device are spelt."""

    @abstractmethod
    def build(self, source: Source) -> Artifact | Failure:
        """Compile; equal sources under equal flags give the same artifact without compiling
        again. Thread-safe.
        """

    def build_together(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        """`build` of each, at most `most_together`, where that is quicker than one after the other. Machine code may differ by
        the company that a source was built in. Thread-safe.
        """
        return [self.build(s) for s in sources]

    def end_builds(self) -> None:  # noqa: B027  # compilers may be quick
        """End compilers that run for this process, where they may run long: their builds fail."""

    @property
    def can_build(self) -> bool:
        """Whether the compiler is here."""
        return True

    def adopt(self, source_key: str, library: Path) -> bool:
        """From now on `build` of that source gives this library, and takes no compiler; whether it can be loaded. It has all rights
        of this process: the caller has looked where it is from.
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
    """How artifacts are loaded, fed and timed, in the child of a worker or in this process."""

    limits_memory = True
    """Whether the private memory of a worker's child may be limited."""
    times_functions = False
    """Whether functions of NumPy may be timed beside: arrays are in the memory of this machine, and times mean something."""
    placement_counts = False
    """Whether code may be slower on arrays that begin where NumPy puts them."""

    @abstractmethod
    def load(self, artifact: Artifact) -> AbstractModule | Failure:
        """Load the artifact into *this* process; a missing symbol is a Failure "launch"."""

    @abstractmethod
    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
    ) -> AbstractArray:
        """A new array, contents arbitrary, aligned to 64 bytes; `as_numpy`, where placement counts, it begins where an array
        of NumPy's would; `border`, where pages can be protected, one begins at this element, whatever the alignment is then.
        Raises MemoryError.
        """

    @abstractmethod
    def time(
        self,
        calls: Sequence[tuple[AbstractModule, CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        """Time modules on arguments that each was already run on once; several are interleaved,
        sample by sample. `beside` is called before each round, on devices that have a probe library.
        """

    def check(self) -> None:  # noqa: B027  # most can run what they build
        """Raises DeviceError with a sentence when code can be built but not run here."""

    def caller(self, module: AbstractModule, signature: CallSignature) -> AbstractCaller | None:
        """A quicker way to run a module of this device than `run`; None where there is none."""
        return None

    def child_library(self) -> Path | None:
        """What a child of a worker is given to load first, built here; None where it needs nothing."""
        return None

    def enter_child(self, library: Path, reply_fd: int, n_threads: int) -> None:  # noqa: B027
        """Make this process the child of a worker: load that library, report faults to `reply_fd`,
        start `n_threads`.
        """


class AbstractReporter(ABC):
    """What compilers say of themselves, and of the code that they are given."""

    reports = False
    """Whether the compiler says what code takes."""

    @abstractmethod
    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        """What a shell compiles `file`, which holds the source, with; `compiler` is what built it before, as
        `Conditions.compiler` says it.
        """

    def version(self) -> str:
        """The compiler, for people; "" where there is none. Raises DeviceError where it is missing."""
        return ""

    def flags(self) -> tuple[str, ...]:
        """Those of every build, as records keep them; () where they say nothing."""
        return ()

    def report(self, source: Source) -> BuildReport | Failure:
        """Build, and say what the launches take of the device. Raises DeviceError where the backend cannot say."""
        raise DeviceError("this backend does not report what code takes")


class AbstractDevice(ABC):
    """One device: its name and its four sides."""

    name: str
    machine: AbstractMachine
    builder: AbstractBuilder
    runner: AbstractRunner
    reporter: AbstractReporter

    def worker(self) -> object | None:
        """An AbstractWorker (runtime/worker/worker.py) that evaluates without a child; None: a child does."""
        return None

    def with_all_passes(self) -> AbstractDevice:
        """The same device with all passes of its compiler, of which a search spares some: for texts that others wrote."""
        return self

    def others(self) -> list[AbstractDevice]:
        """The same device with each other compiler that works here; none where the options name the one to take."""
        return []


def has_extremes(array: Array) -> bool:
    """Whether an array holds a value whose arithmetic may take another time: not finite, or
    denormal.
    """
    if array.dtype.kind != "f" or array.size == 0:
        return False
    size = np.abs(array)
    tiny = (size > 0) & (size < np.finfo(array.dtype).smallest_normal)
    return bool(tiny.any() or not np.isfinite(size).all())
