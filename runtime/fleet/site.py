"""Site: server of one device, which answers calls of drivers; each session has its own process for programs.

A site is a process itself (`python -P -m kernelscape.runtime.fleet.site IN_FD OUT_FD OPTIONS`). It runs on the cores of its
device, and ends when the other end of its pipes is closed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from ..api.backend import AbstractDevice
from ..api.errors import DeviceError
from ..api.outcome import Failure
from ..device import DeviceOptions, open_device
from ..files import read_own
from ..host import cpu_key, read_machine
from ..measure.conditions import take_conditions
from ..scratch import Scratch
from ..worker import messages
from ..worker.channel import AbstractChannel, Channel, Death
from ..worker.channel import Answer as Reply
from ..worker.child import SCRATCH_PREFIX, die_with_parent
from ..worker.worker import AbstractWorker, Outcome
from .contents import PROBE, SiteFiles, name_of, of_artifact, renamed
from .messages import (
    Answer,
    Answered,
    Build,
    CallRefused,
    End,
    Forwarded,
    Libraries,
    Missing,
    Put,
    SlotFacts,
    Stored,
    decode_call,
    encode_answer,
    own_version,
)

_BEGUN_ANEW = Death("the site has begun anew", "", is_foreign=True)


class SiteOptions(msgspec.Struct, frozen=True):
    """Options of a site's process. `cpus` are those of its device, () for all."""

    name: str
    backend: str
    arrays: str
    libraries: str
    cpus: tuple[int, ...] = ()


class DeviceSite:
    """Server of one device: executes calls of drivers, one at a time."""

    def __init__(self, name: str, device: AbstractDevice, store: SiteFiles) -> None:
        self.name = name
        self._device = device
        self._store = store
        self._sessions: dict[str, _Session] = {}

    def facts(self) -> SlotFacts:
        """Returns the description of the slot. Raises DeviceError if its device cannot run programs."""
        self._device.runner.check()
        return facts_of(self.name, self._device)

    def answer(self, message: bytes) -> bytes:
        """Executes a call and returns the answer."""
        return encode_answer(self._answer(message))

    def end(self, session: str) -> None:
        """Ends the process of the session called `session`."""
        found = self._sessions.pop(session, None)
        if found is not None:
            found.close()

    @property
    def is_idle(self) -> bool:
        """True if no session has a process."""
        return not self._sessions

    def close(self) -> None:
        """Ends the processes of all sessions."""
        for session in list(self._sessions):
            self.end(session)

    def _answer(self, message: bytes) -> Answer:
        try:
            match decode_call(message):
                case Put() as put:
                    self._store.put(put.name, put.at, put.n_bytes, put.chunk)
                    return Stored()
                case Forwarded() as run:
                    return self._run(run)
                case End(session=session):
                    self.end(session)
                    return Stored()
                case Build() as build:
                    return build_for(self._device, build)
                case refused:
                    return refused
        except (ValueError, OSError, DeviceError, msgspec.DecodeError) as e:
            return CallRefused(str(e))

    def _run(self, run: Forwarded) -> Missing | Answered:
        missing: list[str] = []

        def found(name: str) -> str:
            if name == PROBE:
                return str(self._device.machine.probe_libraries()[0])
            if not self._store.has(name):
                missing.append(name)
            return str(self._store.path(name))

        request = renamed(messages.decode_request(run.request), found)
        if missing:
            return Missing(list(dict.fromkeys(missing)))
        session = self._sessions.get(run.session)
        if session is None:
            session = self._sessions[run.session] = _Session(self._device)
        return session.run(request, run.deadline_s)


class _Session:
    """One driver's session on a site, with its process."""

    def __init__(self, device: AbstractDevice) -> None:
        self._device = device
        self._scratch: Scratch | None = None
        self._is_prepared = False
        own = device.worker()
        if own is None:
            library = device.runner.child_library()
            self._scratch = Scratch(SCRATCH_PREFIX)
            self._channel: AbstractChannel = Channel(device.name, library, self._scratch.path)
        else:
            assert isinstance(own, AbstractWorker)
            self._channel = _InThisProcess(own)

    def run(self, request: messages.Request, deadline_s: float) -> Answered:
        needs_inputs = isinstance(request, messages.Evaluate | messages.Interleave)
        if needs_inputs and not (self._is_prepared and self._channel.is_alive):
            return Answered(False, death=_BEGUN_ANEW)
        if not self._channel.is_alive:
            self._is_prepared = False
            self._channel.library = self._device.runner.child_library()
        try:
            reply = self._channel.ask(request, deadline_s)
        except RuntimeError as e:
            return Answered(self._channel.is_alive, bug=str(e))
        if isinstance(request, messages.Prepare):
            self._is_prepared = isinstance(reply, messages.Ready)
        is_alive = self._channel.is_alive and (self._is_prepared or not needs_inputs)
        if isinstance(reply, Death):
            return Answered(is_alive, death=reply)
        return Answered(is_alive, reply)

    def close(self) -> None:
        self._channel.kill()
        if self._scratch is not None:
            self._scratch.close()


class _InThisProcess(AbstractChannel):
    """Channel to a device whose worker needs no process of its own."""

    def __init__(self, worker: AbstractWorker) -> None:
        super().__init__()
        self._worker = worker
        self._is_alive = False

    @property
    def is_alive(self) -> bool:
        return self._is_alive

    def start(self) -> None:
        self._is_alive = True

    def kill(self) -> None:
        self._is_alive = False

    def ask(self, request: messages.Request, deadline_s: float) -> Reply:
        self.start()
        match request:
            case messages.Evaluate(artifact=artifact, protocol=protocol, control=None):
                found = self._worker.evaluate(artifact, protocol, verify=request.verify)
                return _outcomes([found])
            case messages.Evaluate(artifact=artifact, protocol=protocol, control=control):
                assert control is not None
                return _outcomes([self._worker.evaluate_beside(artifact, control, protocol)])
            case messages.Interleave(artifacts=artifacts, protocol=protocol):
                return _outcomes(self._worker.interleave(artifacts, protocol))
            case messages.Probe() | messages.Calibrate():
                return messages.Rates(self._worker.probe_state())
            case _:
                return messages.Ready([], 0)


def _outcomes(found: list[Outcome]) -> messages.Outcomes:
    failed = [o if isinstance(o, Failure) else None for o in found]
    return messages.Outcomes([None if isinstance(o, Failure) else o for o in found], failed)


def build_for(device: AbstractDevice, build: Build) -> Libraries:
    """Builds the sources of a request. The answer contains the libraries."""
    builder = device.builder
    made = (
        builder.build_together(build.sources)
        if build.together
        else [builder.build(source) for source in build.sources]
    )
    contents: dict[str, bytes] = {}

    def content_name(path: str) -> str:
        content = read_own(Path(path))
        name = name_of(content, Path(path).suffix)
        contents[name] = content
        return name

    renamed_each = [
        None if isinstance(one, Failure) else of_artifact(one, content_name) for one in made
    ]
    return Libraries(renamed_each, [x if isinstance(x, Failure) else None for x in made], contents)


def facts_of(name: str, device: AbstractDevice) -> SlotFacts:
    """Returns the description of a device as a slot.

    Its key distinguishes variants: model, cores, caches and memory, accelerator, compiler with flags, and whether the facts of
    its target are measured. The values of the facts are not in the key, since two calibrations of equal machines differ;
    control times detect machines that are not equal (runtime/worker/machine_state.py).
    """
    machine, reporter, builder = device.machine, device.reporter, device.builder
    target = machine.facts()
    opened_s = time.time()
    conditions = take_conditions(
        compiler=reporter.version(), flags=reporter.flags(), accelerator=machine.accelerator()
    )
    stored = machine.stored_facts()
    compiler = (reporter.version(), *reporter.flags())
    memory = read_machine().memory_bytes >> 30
    variant = _digest(conditions.machine, str(memory), str(target.calibrated), *compiler)
    return SlotFacts(
        name=name,
        version=own_version(),
        backend=device.name,
        key=f"{_plain(conditions.machine)}-{variant}",
        arch=f"{device.name}-{_digest(cpu_key(), target.architecture, *compiler)}",
        opened_s=opened_s,
        conditions=conditions,
        target=target,
        flags=list(reporter.flags()),
        factors=[] if stored is None else list(stored.factors()),
        cpu=cpu_key(),
        has_probe=bool(machine.probe_libraries()),
        times_count=machine.times_count,
        makes_libraries=builder.makes_libraries,
        most_together=builder.most_together,
        builds_units=builder.builds_units,
    )


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=4).hexdigest()


def _plain(key: str) -> str:
    """Returns the key without characters that are special on command lines and in resource names of a scheduler."""
    return "".join(x if x.isalnum() else "-" for x in key)


# --- its process ---------------------------------------------------------------------------------


def serve(request_fd: int, reply_fd: int, site: DeviceSite, say_facts: Callable[[], bytes]) -> None:
    """Answers calls until the other end of the pipe is closed. The first answer is the description of the slot."""
    messages.write_message(reply_fd, say_facts())
    while (message := messages.read_message(request_fd)) is not None:
        messages.write_message(reply_fd, site.answer(message))


def main(arguments: list[str]) -> int:
    """Opens the device and serves calls; returns the exit code."""
    request_fd, reply_fd = int(arguments[0]), int(arguments[1])
    options = msgspec.json.decode(arguments[2], type=SiteOptions)
    watcher = threading.Thread(target=partial(die_with_parent, request_fd), daemon=True)
    watcher.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.cpus:
        os.sched_setaffinity(0, options.cpus)
    store = SiteFiles(Path(options.arrays), Path(options.libraries))

    def say_facts() -> bytes:
        try:
            return msgspec.msgpack.encode(site.facts())
        except DeviceError as e:
            return encode_answer(CallRefused(str(e)))

    try:
        device = open_device(options.backend, DeviceOptions())
    except DeviceError as e:
        messages.write_message(reply_fd, encode_answer(CallRefused(str(e))))
        return 0
    site = DeviceSite(options.name, device, store)
    with suppress(BrokenPipeError):
        serve(request_fd, reply_fd, site, say_facts)
    watcher.join()  # ends this process with all that it has started
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
