"""Other libraries beside ours on one GPU, each in a process of its own: a CUDA context each, and no library meets another's.

A process imports its library at once and touches the GPU when it is first asked, so that it can start while a search runs.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import numpy as np

from ..kernels.library import load
from ..runtime.api.outcome import Measurement, Protocol
from ..runtime.measure.timing import Sampler, measure
from .libraries.blas_calls import CALLS
from .libraries.formulas import FORMULAS, places
from .libraries.gpu import AbstractGpuLibrary

COPY_BYTES = 1 << 30  # far beyond any L2
_HOST_COPY_BYTES = 1 << 26
_TOLERANCE = 1e-3  # of the largest element: another formula is off by far more, another order of sums by less

Programs = dict[str, Sampler | str]
"""What can be timed, by name, or why it cannot be."""


@dataclass(frozen=True)
class Asked:
    """The sequence, and the arguments to run it on."""

    name: str
    sizes: Mapping[str, int]
    seed: int


class Placed:
    """The arguments of one sequence in a library's memory, and what must come out: the formula, computed by the library."""

    def __init__(self, library: AbstractGpuLibrary, asked: Asked) -> None:
        rng = np.random.default_rng(asked.seed)
        made = load(asked.name).make_arguments(asked.sizes, np.float32, rng)
        self._library = library
        self.arguments = [library.place(a) if isinstance(a, np.ndarray) else a for a in made]
        inputs, self._outputs = places(asked.name)
        self._kept = {k: library.place(made[k]) for k in self._outputs if k in inputs}
        self._want = FORMULAS[asked.name](*(self.arguments[k] for k in inputs))

    def sampler(self, call: Callable[[], None]) -> Sampler:
        """Times a verified call. Raises ArithmeticError where it computes something else."""
        for k in self._outputs:
            if k not in self._kept:
                self.arguments[k][...] = math.nan
        self._restore()
        call()
        for k, want in zip(self._outputs, self._want, strict=True):
            error, largest = _largest(self.arguments[k] - want), _largest(want)
            if not error <= _TOLERANCE * largest:  # NaN is not, either
                raise ArithmeticError(f"output {k} is off by {error:.3g} of {largest:.3g}")
        run = self._library.clock(call)
        if not self._kept:
            return Sampler(run)

        def restore() -> None:
            self._restore()
            run(1)

        return Sampler(run, restore, self._drifted)

    def _restore(self) -> None:
        for k, kept in self._kept.items():
            self._library.copy(kept, self.arguments[k])
        self._library.synchronize()

    def _drifted(self) -> bool:
        return not all(math.isfinite(_largest(self.arguments[k])) for k in self._kept)


def _largest(array: Any) -> float:
    return float(abs(array).max())


def programs_of(
    library: AbstractGpuLibrary, asked: Asked, compiled: Callable[..., None] | None = None
) -> Programs:
    """The sequence as calls of the library's BLAS and, where it compiles, compiled."""
    placed = Placed(library, asked)
    calls = CALLS[asked.name]
    ways: dict[str, Callable[[], None]] = {"calls": lambda: calls(library, *placed.arguments)}
    if compiled is not None:
        ways["compiled"] = lambda: compiled(*placed.arguments)
    programs: Programs = {}
    for key, call in ways.items():
        try:
            programs[key] = placed.sampler(call)
        except (
            Exception
        ) as e:  # whatever a library raises: its column stays empty, and the others do not
            programs[key] = _first_line(e)
    return programs


def _cupy(asked: Asked) -> Programs:
    return programs_of(import_module(".libraries.gpu_cupy", __package__).CupyLibrary(), asked)


def _torch(asked: Asked) -> Programs:
    library = import_module(".libraries.gpu_torch", __package__).TorchLibrary()
    compiles = import_module(".libraries.torch_compiled", __package__)
    return programs_of(library, asked, compiles.compiled_function(asked.name))


def _copy(asked: Asked) -> Programs:
    """A copy from one array of the GPU's memory to another, by the driver."""
    cuda: Any = import_module("pycuda.driver")
    cuda.init()
    context = cuda.Device(0).make_context()
    stream, start, end = cuda.Stream(), cuda.Event(), cuda.Event()
    source, target = (cuda.mem_alloc(COPY_BYTES) for _ in range(2))
    cuda.memset_d32(source, 0x3F9E0419, COPY_BYTES // 4)
    context.synchronize()

    def run(n: int) -> float:
        start.record(stream)
        for _ in range(n):
            cuda.memcpy_dtod_async(target, source, COPY_BYTES, stream)
        end.record(stream)
        end.synchronize()
        return float(start.time_till(end)) * 1e6

    return {"copy": Sampler(run)}


def _host_copy(asked: Asked) -> Programs:
    """The same on the host, whose memory the emulator uses."""
    source, target = (np.ones(_HOST_COPY_BYTES, np.uint8) for _ in range(2))

    def run(n: int) -> float:
        started_ns = time.perf_counter_ns()
        for _ in range(n):
            np.copyto(target, source)
        return float(time.perf_counter_ns() - started_ns)

    return {"copy": Sampler(run)}


# By kind: what opens it, and the module that takes long to import.
_KINDS: dict[str, tuple[Callable[[Asked], Programs], str]] = {
    "copy": (_copy, "pycuda.driver"),
    "host copy": (_host_copy, "numpy"),
    "cupy": (_cupy, "cupy"),
    "torch": (_torch, "torch"),
}
# Of each target: what measures copies, and whom it is compared with.
COPIES = {"cuda": ("copy", COPY_BYTES), "emulator": ("host copy", _HOST_COPY_BYTES)}
PEERS = {"cuda": ("cupy", "torch"), "emulator": ()}


def _serve(connection: Connection, kind: str) -> None:
    """The process: answers until the other end is closed."""
    os.dup2(2, 1)  # stdout is the table's own
    os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no pool of processes that outlives this one
    open_programs, slow = _KINDS[kind]
    with suppress(Exception):  # said again when it is asked
        import_module(slow)
    programs: Programs = {}
    with suppress(EOFError, BrokenPipeError):
        while True:
            asked = connection.recv()
            try:
                if isinstance(asked, Asked):
                    programs = open_programs(asked)
                    said = {k: p if isinstance(p, str) else "" for k, p in programs.items()}
                    connection.send(said)
                else:
                    key, protocol = asked
                    sampler = programs[key]
                    assert isinstance(sampler, Sampler)
                    connection.send(measure(sampler, protocol))
            except Exception as e:
                connection.send(_first_line(e))


def _first_line(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0] if said else 'no word'}"[:200]


class PeerError(Exception):
    """A library gave no time; one sentence."""


class Peer:
    """The process of one library."""

    def __init__(self, kind: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, kind))
        self._process.start()
        theirs.close()
        self._kind = kind

    def begin(self, asked: Asked) -> None:
        """Have it place the arguments and compile; `opened` waits for that."""
        with suppress(OSError):  # `opened` says that it ended
            self._connection.send(asked)

    def opened(self, limit_s: float) -> dict[str, str]:
        """The programs there are, each with why it cannot be timed ("": it can). Raises PeerError."""
        programs = self._receive(limit_s)
        assert isinstance(programs, dict)
        return programs

    def time(self, program: str, protocol: Protocol, limit_s: float) -> Measurement:
        """Raises PeerError."""
        with suppress(OSError):
            self._connection.send((program, protocol))
        measured = self._receive(limit_s)
        assert isinstance(measured, Measurement)
        return measured

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, t: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, limit_s: float) -> Any:
        try:
            if not self._connection.poll(limit_s):
                self._process.kill()  # or it would answer the next question with this answer
                raise PeerError(f"{self._kind}: no answer within {limit_s:.0f} s")
            answer = self._connection.recv()
        except (EOFError, OSError):
            raise PeerError(f"{self._kind}: its process ended") from None
        if isinstance(answer, str):
            raise PeerError(f"{self._kind}: {answer}")
        return answer
