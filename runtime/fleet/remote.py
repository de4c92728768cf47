"""A device of a fleet as its driver uses it: facts of slots, builds by builders, requests to sites."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..api import backend
from ..api.artifact import Artifact
from ..api.errors import DeviceError
from ..api.outcome import Failure
from ..device import DeviceOptions, cache_folder, open_device
from ..forked import Stopped
from ..host import cpu_key
from ..measure.calibration import at_best
from ..measure.conditions import Conditions
from ..worker.channel import AbstractChannel, Answer, Death
from ..worker.messages import Request, request_body
from . import messages
from .contents import CHUNK_BYTES, PROBE, SentFiles, of_artifact, renamed
from .fleet import AbstractFleet, AbstractSlot, SlotLostError
from .messages import (
    Answer as SiteAnswer,
)

if TYPE_CHECKING:
    from ...codegen.text.dialect import Dialect
    from ...codegen.text.source import Source
    from ...space.targets.target import Target

_TRIES = 3  # of a build whose builder is lost
_LIBRARIES = "fleet"  # folder of those that were built elsewhere, in the cache of builds


class RemoteChannel(AbstractChannel):
    """Channel to the process of this driver's session on a slot. Thread-safe: one request at a time."""

    def __init__(self, slot: AbstractSlot, session: str, files: SentFiles) -> None:
        super().__init__()
        self._slot = slot
        self._session = session
        self._files = files
        self._is_alive = False
        self._lock = threading.RLock()

    @property
    def is_alive(self) -> bool:
        return self._is_alive

    def start(self) -> None:
        """No effect: the first request starts the process."""

    def kill(self) -> None:
        self._is_alive = False
        self._slot.end()

    def ask(self, request: Request, deadline_s: float) -> Answer:
        """Sends a request and returns the answer, as `Channel.ask` for a child of this process.

        Raises SlotLostError, too.
        """
        named = renamed(request, lambda path: Path(path).name)
        run = messages.Forwarded(self._session, request_body(named), deadline_s)
        with self._lock:
            try:
                return self._read(self._answer(run))
            except Stopped:
                self.kill()
                raise

    def _read(self, answer: SiteAnswer) -> Answer:
        match answer:
            case messages.Answered():
                self._is_alive = answer.is_alive
                if answer.bug:
                    raise RuntimeError(answer.bug)
                found = answer.reply if answer.death is None else answer.death
                assert found is not None
                return found
            case messages.Gone(why=why):
                self._is_alive = False
                return Death(why, "", is_foreign=True)
            case messages.CallRefused(why=why):
                raise SlotLostError(f"{self._slot.facts.name} refuses: {why}")
            case _:
                raise SlotLostError(f"{self._slot.facts.name} answers another question")

    def _answer(self, run: messages.Forwarded) -> SiteAnswer:
        while True:
            answer = self._call(run)
            if not isinstance(answer, messages.Missing):
                return answer
            for name in answer.names:
                refused = self._put(name)
                if refused is not None:
                    return refused

    def _put(self, name: str) -> SiteAnswer | None:
        """Sends a file in chunks. Returns None, or the site's answer if it refused a chunk."""
        content = memoryview(self._files.read(name))
        for at in range(0, max(1, len(content)), CHUNK_BYTES):
            chunk = bytes(content[at : at + CHUNK_BYTES])
            answer = self._call(messages.Put(name, at, len(content), chunk))
            if not isinstance(answer, messages.Stored):
                return answer
        return None

    def _call(self, call: messages.Call) -> SiteAnswer:
        try:
            return messages.decode_answer(self._slot.call(messages.encode_call(call), self.is_over))
        except msgspec.DecodeError as e:
            name = self._slot.facts.name
            raise SlotLostError(f"{name} answers what this version cannot read: {e}") from e


class RemoteBuilder(backend.AbstractBuilder):
    """The compilers of a fleet with one compiler key (`arch`). Built libraries are stored here by content."""

    def __init__(
        self, fleet: AbstractFleet, facts: messages.SlotFacts, files: SentFiles, timeout_s: float
    ) -> None:
        self._fleet = fleet
        self._arch = facts.arch
        self._files = files
        self._timeout_s = timeout_s
        self._dialect = open_device(facts.backend, DeviceOptions()).builder.dialect()
        # Libraries of other instructions are of no use beside results.
        self.makes_libraries = facts.makes_libraries and facts.cpu == cpu_key()
        self.most_together = facts.most_together
        self.builds_units = facts.builds_units
        self._is_ended = False

    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def n_at_once(self) -> int:
        """Number of compilers that build at once; at least 1."""
        return max(1, self._fleet.n_builders(self._arch))

    def build(self, source: Source) -> Artifact | Failure:
        return self._built([source], together=False)[0]

    def build_together(self, sources: Sequence[Source]) -> list[Artifact | Failure]:
        return self._built(list(sources), together=True)

    def end_builds(self) -> None:
        self._is_ended = True
        self._fleet.end_builds()

    def begin(self) -> None:
        """Allows builds again, after `end_builds`."""
        self._is_ended = False

    def _built(self, sources: list[Source], *, together: bool) -> list[Artifact | Failure]:
        message = messages.encode_call(messages.Build(sources, together, self._timeout_s))
        why = ""
        for _ in range(_TRIES):
            try:
                answer = messages.decode_answer(
                    self._fleet.build(self._arch, message, lambda: self._is_ended)
                )
            except SlotLostError as e:
                why = str(e)
                continue
            except Stopped:
                return [Failure("compile", "nobody waits for it any more")] * len(sources)
            if isinstance(answer, messages.Libraries):
                return self._kept(answer)
            if isinstance(answer, messages.CallRefused):
                raise DeviceError(f"a builder of the fleet refuses: {answer.why}")
        raise DeviceError(f"nothing of the fleet builds for {self._arch}: {why}")

    def _kept(self, built: messages.Libraries) -> list[Artifact | Failure]:
        paths = {
            name: str(self._files.keep_library(name, content))
            for name, content in built.contents.items()
        }
        both = zip(built.artifacts, built.failures, strict=True)
        made = [of_artifact(x, paths.__getitem__) if x is not None else y for x, y in both]
        return [one for one in made if one is not None]


class GivenFacts(backend.AbstractStoredFacts):
    """Facts in the calibrations of other machines; this driver stores nothing in them."""

    def __init__(self, factors: tuple[float, ...]) -> None:
        self._factors = factors

    def factors(self) -> tuple[float, ...]:
        return self._factors

    def learn_factors(self, factors: tuple[float, ...]) -> None:
        """No effect."""

    def learn_latencies(self, samples: dict[str, list[float]]) -> None:
        """No effect."""

    def learn_alarm(self, raised: Target | None) -> None:
        """No effect."""


class RemoteMachine(backend.AbstractMachine):
    """Facts of all slots with one device key: the best value of each, so that bounds hold on every slot."""

    calibrated_by = "explore calibrate there"

    def __init__(self, facts: Sequence[messages.SlotFacts], threads: int) -> None:
        self._target = reduce(at_best, (f.target for f in facts)).of_threads(threads)
        self._first = facts[0]
        self.times_count = facts[0].times_count

    def facts(self) -> Target:
        return self._target

    def probe_libraries(self, *, every: bool = False) -> tuple[Path, ...]:
        return (Path(PROBE),) if self._first.has_probe else ()

    def stored_facts(self) -> backend.AbstractStoredFacts:
        return GivenFacts(tuple(self._first.factors))


class RemoteRunner(backend.AbstractRunner):
    """Runner of a fleet's device in a driver, which can run nothing in this process: its methods fail."""

    def load(self, artifact: Artifact) -> backend.AbstractModule | Failure:
        return Failure("launch", "a program for a fleet is run there")

    def allocate(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        *,
        as_numpy: bool = False,
        border: int | None = None,
        grows: bool = False,
    ) -> backend.AbstractArray:
        raise DeviceError("a program for a fleet has its arrays there")

    def time(self, calls: Any, protocol: Any, beside: Any = None) -> list[Any]:
        raise DeviceError("a program for a fleet is timed there")


class RemoteReporter(backend.AbstractReporter):
    """Compilers of a fleet, reported by name."""

    def __init__(self, facts: messages.SlotFacts) -> None:
        self._facts = facts

    def command_line(self, source: Source, file: Path, compiler: str) -> str:
        """Raises DeviceError, since `explore codegen` prints the command of a stored result."""
        raise DeviceError("explore codegen prints the command of a stored result")

    def version(self) -> str:
        return self._facts.conditions.compiler

    def flags(self) -> tuple[str, ...]:
        return tuple(self._facts.flags)


class RemoteDevice(backend.AbstractDevice):
    """A device that stands for all slots of a fleet with one device key."""

    def __init__(
        self,
        fleet: AbstractFleet,
        facts: Sequence[messages.SlotFacts],
        *,
        threads: int = 0,
        compile_timeout_s: float = 60.0,
    ) -> None:
        first = facts[0]
        self._first = first
        self.name = first.backend
        self.key = first.key
        self.files = SentFiles(cache_folder("build") / _LIBRARIES)
        self.machine = RemoteMachine(facts, threads)
        self.builder: RemoteBuilder = RemoteBuilder(fleet, first, self.files, compile_timeout_s)
        self.runner = RemoteRunner()
        self.reporter = RemoteReporter(first)

    def conditions(self, memory_bytes_per_ns: float) -> Conditions:
        """Returns the current conditions of the first slot."""
        return msgspec.structs.replace(
            self._first.conditions,
            taken=datetime.now(UTC).isoformat(timespec="seconds"),
            memory_bytes_per_ns=memory_bytes_per_ns,
        )
