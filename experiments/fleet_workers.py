"""Workers of a fleet for experiments: their evaluations sleep on the fake target, and something may happen to them at a stage."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..codegen.text.dialect import Dialect
from ..codegen.text.source import Source
from ..runtime.api import backend
from ..runtime.api.artifact import Artifact
from ..runtime.api.outcome import Failure, Protocol
from ..runtime.fake.device import FakeDevice, FakeReporter
from ..runtime.fleet.fleet_file import load_fleet
from ..runtime.fleet.host import host_in_this_process
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.worker import AbstractWorker, Outcome

Stage = Literal["", "building", "measuring", "answering", "hanging"]
HANG_S = 2.0  # after which a program that hangs is ended


@dataclass(frozen=True)
class Fate:
    """The worker is killed (-9) at its `number`-th program, `delay_s` after that program came to the stage.

    At the stage "hanging" the program hangs, and the worker goes on. Without a stage nothing happens.
    """

    stage: Stage = ""
    number: int = 0
    delay_s: float = 0.0


class FatedDevice(backend.AbstractDevice):
    """The fake device with a fate. A `compiler` of another name makes it one of another key."""

    def __init__(self, run_s: float, fate: Fate, compiler: str = "") -> None:
        fake = FakeDevice(run_s=run_s)
        self.name = fake.name
        self.machine = fake.machine
        self.builder = _FatedBuilder(fake.builder, fate)
        self.runner = fake.runner
        self.reporter = _NamedReporter(compiler)
        self._worker = _FatedWorker(fake.worker(), fate)

    def worker(self) -> AbstractWorker:
        return self._worker


class _NamedReporter(backend.AbstractReporter):
    def __init__(self, compiler: str) -> None:
        self._compiler = compiler

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        return FakeReporter().command_line(source, file, compiler)

    def version(self) -> str:
        return self._compiler


class _FatedBuilder(backend.AbstractBuilder):
    def __init__(self, builder: backend.AbstractBuilder, fate: Fate) -> None:
        self._builder, self._fate = builder, fate
        self._seen: set[str] = set()

    def dialect(self) -> Dialect:
        return self._builder.dialect()

    def build(self, source: Source) -> Artifact | Failure:
        self._seen.add(source.key)
        if self._fate.stage == "building" and len(self._seen) == self._fate.number:
            _die(self._fate.delay_s)
        return self._builder.build(source)


class _FatedWorker(AbstractWorker):
    def __init__(self, worker: AbstractWorker, fate: Fate) -> None:
        super().__init__()
        self._worker, self._fate = worker, fate
        self._seen: list[str] = []
        """Keys of the programs that were evaluated, in their order."""

    def prepare(self, input_sets: InputSets) -> None:
        self._worker.prepare(input_sets)

    def prepare_as(self, other: AbstractWorker) -> None:
        self._worker.prepare_as(other)

    def evaluate(self, artifact: Artifact, protocol: Protocol, *, verify: bool = True) -> Outcome:
        return self._fated(
            artifact, lambda: self._worker.evaluate(artifact, protocol, verify=verify)
        )

    def evaluate_beside(self, artifact: Artifact, control: Artifact, protocol: Protocol) -> Outcome:
        return self._fated(
            artifact, lambda: self._worker.evaluate_beside(artifact, control, protocol)
        )

    def interleave(self, artifacts: Sequence[Artifact], protocol: Protocol) -> list[Outcome]:
        return self._worker.interleave(artifacts, protocol)

    def probe(self) -> float:
        return self._worker.probe()

    def probe_state(self) -> dict[str, list[float]]:
        return self._worker.probe_state()

    def end_when(self, is_over: Callable[[], bool]) -> None:
        self._worker.end_when(is_over)

    def close(self) -> None:
        self._worker.close()

    def _fated(self, artifact: Artifact, evaluate: Callable[[], Outcome]) -> Outcome:
        if artifact.source_key not in self._seen:
            self._seen.append(artifact.source_key)
        if self._seen.index(artifact.source_key) != self._fate.number - 1:
            return evaluate()
        match self._fate.stage:
            case "hanging":
                time.sleep(HANG_S)
                return Failure("timeout", f"it was ended after {HANG_S} s")
            case "measuring":
                _die(self._fate.delay_s)
        found = evaluate()
        if self._fate.stage == "answering":
            threading.Thread(target=_die, args=(self._fate.delay_s,)).start()
        return found


def _die(delay_s: float) -> None:
    time.sleep(delay_s)
    os.kill(os.getpid(), signal.SIGKILL)


def serve(
    file: Path,
    run_s: float,
    tell: Callable[[], None],
    fate: Fate = Fate(),
    compiler: str = "",
) -> None:
    """Serves a fleet until its scheduler has gone. `tell` is called once it does."""
    from ..runtime.fleet.dask_worker import serve as serve_host

    name = f"worker{os.getpid()}"
    host = host_in_this_process({f"{name}/fake": FatedDevice(run_s, fate, compiler)})
    serve_host(load_fleet(file), host, name, lambda host: tell())
    host.close()
