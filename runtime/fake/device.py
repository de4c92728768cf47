"""The fake device and its worker, for tests of search and records."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..api import backend
from ..api.artifact import Artifact
from ..api.outcome import Failure, FailureKind, Measurement, Protocol
from ..cpu.dialect import C_TEAM
from ..worker.input_sets import InputSets
from ..worker.verify import poison_value
from ..worker.worker import AbstractWorker, Outcome

if TYPE_CHECKING:
    from ...codegen.text.dialect import Dialect
    from ...codegen.text.source import Source
    from ...space.targets.target import Target

Array = NDArray[Any]


class FakeArray(backend.AbstractArray):
    """A NumPy array without guard zones: `trespass` finds no writes."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._host: Array = np.zeros(shape, dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._host.dtype

    def upload(self, values: Array) -> None:
        np.copyto(self._host, values, casting="no")

    def download(self) -> Array:
        return self._host

    def poison(self) -> None:
        self._host.fill(poison_value(self._host.dtype))

    def freeze(self) -> None:
        return

    def trespass(self) -> str | None:
        return None


class FakeModule(backend.AbstractModule):
    """A module whose runs have no effect."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    def run(self, values: Sequence[backend.AbstractArray | Array | int | float | bool]) -> None:
        n_given, arguments = len(values), self._artifact.arguments
        if n_given not in (len(arguments), len([a for a in arguments if a.kind != "workspace"])):
            raise TypeError(f"{len(arguments)} arguments are needed, {n_given} given")

    def close(self) -> None:
        return


class FakeMachine(backend.AbstractMachine):
    """Invented facts of a machine that does not exist."""

    def facts(self) -> Target:
        from ...space.targets.target import CacheLevel, Target

        caches = (("L1", 64 << 10, 400.0), ("L2", 1 << 20, 200.0), ("L3", 16 << 20, 100.0))
        return Target(
            backend="fake",
            name="a machine that is not there",
            cores=2,
            vector_bytes=32,
            vector_registers=16,
            levels=tuple(
                CacheLevel(name=n, capacity_bytes=c, read_bytes_per_ns=r) for n, c, r in caches
            ),
            memory_read_bytes_per_ns=50.0,
            memory_write_bytes_per_ns=30.0,
            memory_mixed_bytes_per_ns=60.0,
            f32_flops_per_ns=200.0,
            f64_flops_per_ns=100.0,
            f32_mixed_flops_per_ns=150.0,
            f64_mixed_flops_per_ns=75.0,
            launch_ns=400.0,
            barrier_ns=200.0,
            call_ns=1.0,
            calibrated=True,
        )


class FakeBuilder(backend.AbstractBuilder):
    """Builds without compiling.

    Sources that contain "#error" fail to compile, and so do sources scripted to fail.
    """

    def __init__(self, script: Mapping[str, FailureKind] | None = None) -> None:
        self._script = dict(script or {})

    def dialect(self) -> Dialect:
        return C_TEAM

    def build(self, source: Source) -> Artifact | Failure:
        if "#error" in source.text or self._script.get(source.key) == "compile":
            return Failure("compile", "the fake compiler was told to refuse it")
        return Artifact(
            key=f"fake-{source.key}-{source.entry}",
            source_key=source.key,
            path="",
            entry=source.entry,
            arguments=source.arguments,
            n_threads=source.n_threads,
            build_ns=0,
            components=source.components,
        )


class FakeRunner(backend.AbstractRunner):
    """Runner whose times are given by functions: `time_ns` of a source key, `component_ns` of a component's key.

    By default both are hashes of the key, 1 to 10 us. Then a program of several components takes the sum of their times.
    """

    def __init__(
        self,
        time_ns: Callable[[str], float] | None = None,
        script: Mapping[str, FailureKind] | None = None,
        wrong_later: Collection[str] = (),
        component_ns: Callable[[str], float] | None = None,
    ) -> None:
        self._time_ns = time_ns
        self._component_ns = component_ns or _hashed_ns
        self._script = dict(script or {})
        self._wrong_later = frozenset(wrong_later)

    def load(self, artifact: Artifact) -> FakeModule | Failure:
        if self._script.get(artifact.source_key) == "launch":
            return Failure("launch", "the fake loader was told to refuse it")
        return FakeModule(artifact)

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        as_numpy: bool = False,
        border: int | None = None,
        grows: bool = False,
    ) -> FakeArray:
        return FakeArray(shape, dtype)

    def time(
        self,
        calls: Sequence[tuple[backend.AbstractModule, backend.CallArguments]],
        protocol: Protocol,
        beside: Callable[[], None] | None = None,
    ) -> list[Measurement]:
        return [self.measurement(module.artifact) for module, _ in calls]

    def measurement(self, artifact: Artifact) -> Measurement:
        """Returns the fixed measurement of this artifact, with the times of its components."""
        component_ns = tuple(map(self._component_ns, artifact.components))
        if self._time_ns is not None:
            time_ns = self._time_ns(artifact.source_key)
        else:
            time_ns = sum(component_ns) or _hashed_ns(artifact.source_key)
        spread = (0.0,) * len(component_ns)
        return Measurement(
            time_ns, 0.0, time_ns, 1, 1, 0, component_ns=component_ns, component_spread=spread
        )

    def outcome(self, artifact: Artifact) -> Outcome:
        """Returns the scripted failure of this artifact on the timed input set, else its measurement."""
        kind = self._script.get(artifact.source_key)
        if kind is not None:
            return Failure(kind, f"scripted: {kind}")
        return self.measurement(artifact)

    def wrong_later(self, artifact: Artifact) -> Failure | None:
        """Returns the scripted failure of this artifact on another input set; None if none is scripted."""
        if artifact.source_key not in self._wrong_later:
            return None
        return Failure("wrong", "input set 1: scripted: wrong")


class FakeReporter(backend.AbstractReporter):
    """Reporter of a compiler that does not exist."""

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        return f"fake {file}"


class FakeDevice(backend.AbstractDevice):
    """A device with scripted results: `time_ns` of a source key, and failures by source key in `script`.

    `wrong_later` has the keys of sources that are wrong on another input set than the timed one. `component_ns` gives the time of
    a component by the key of its text. Each verified evaluation sleeps `run_s` seconds.
    """

    name = "fake"

    def __init__(
        self,
        time_ns: Callable[[str], float] | None = None,
        script: Mapping[str, FailureKind] | None = None,
        wrong_later: Collection[str] = (),
        component_ns: Callable[[str], float] | None = None,
        run_s: float = 0.0,
    ) -> None:
        self.run_s = run_s
        self.machine: backend.AbstractMachine = FakeMachine()
        self.builder: backend.AbstractBuilder = FakeBuilder(script)
        self.runner: FakeRunner = FakeRunner(time_ns, script, wrong_later, component_ns)
        self.reporter: backend.AbstractReporter = FakeReporter()

    def worker(self) -> FakeWorker:
        return FakeWorker(self)


class FakeWorker(AbstractWorker):
    """Worker that evaluates on the fake device, in this process."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__()
        self._device = device
        self.n_evaluations = 0

    def prepare(self, input_sets: InputSets) -> None:
        return

    def end_when(self, is_over: Callable[[], bool]) -> None:
        """No effect: this worker never waits."""

    def prepare_as(self, other: AbstractWorker) -> None:
        return

    def evaluate(self, artifact: Artifact, protocol: Protocol, *, verify: bool = True) -> Outcome:
        self.n_evaluations += 1
        if verify and self._device.run_s:
            time.sleep(self._device.run_s)
        found = self._device.runner.outcome(artifact)
        if isinstance(found, Failure):
            return found
        if not protocol.times_components:
            found = replace(found, component_ns=(), component_spread=())
        if not verify:
            return found
        if protocol.claims_below_ns is not None and found.time_ns >= protocol.claims_below_ns:
            return replace(found, is_partly_verified=True)
        return self._device.runner.wrong_later(artifact) or found

    def evaluate_beside(self, artifact: Artifact, control: Artifact, protocol: Protocol) -> Outcome:
        found = self.evaluate(artifact, protocol)
        if isinstance(found, Failure) or protocol.control_ns is None:
            return found
        ratio = found.time_ns / self._device.runner.measurement(control).time_ns
        time_ns = ratio * protocol.control_ns
        component_ns = tuple(x * time_ns / found.time_ns for x in found.component_ns)
        return replace(found, time_ns=time_ns, ratio=ratio, component_ns=component_ns)

    def interleave(self, artifacts: Sequence[Artifact], protocol: Protocol) -> list[Outcome]:
        return [self._device.runner.outcome(a) for a in artifacts]

    def probe(self) -> float:
        return self._device.machine.facts().memory_read_bytes_per_ns

    def probe_state(self) -> dict[str, list[float]]:
        return {}

    def close(self) -> None:
        return


def _hashed_ns(source_key: str) -> float:
    digest = hashlib.blake2b(source_key.encode(), digest_size=8).digest()
    return 1000.0 + 9000.0 * int.from_bytes(digest, "little") / 2**64
