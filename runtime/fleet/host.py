"""Host: the devices of one machine, each a site in its own process, and the compilers that build for them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType

import msgspec

from ..api.backend import AbstractDevice
from ..api.errors import DeviceError
from ..device import DeviceOptions, open_device
from ..forked import Stopped
from ..worker.messages import write_message
from . import messages
from .contents import Contents, SiteFiles
from .devices import NamedDevice, spare_cores
from .site import DeviceSite, SiteOptions, build_for

_LOOK_S = 0.1  # polling interval while a site computes
_START_S = 120.0
_SLACK_S = 60.0  # of a site, beside the deadline of the program that it runs
_END_S = 5.0  # for the process of a session
_NOTHING: Mapping[str, str] = MappingProxyType({})
_FEW_BUILDERS = 2  # for devices that need none of the cores


class AbstractSite(ABC):
    """A site (the server of one device), as its host uses it."""

    facts: messages.SlotFacts

    @abstractmethod
    def call(self, message: bytes, is_over: Callable[[], bool]) -> bytes:
        """Sends a message to the site and returns the answer.

        Raises Stopped once `is_over`; then the call's program does not run any more.
        """

    @abstractmethod
    def end(self, session: str) -> None:
        """Ends a session's process on this site, also during a call."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """True if no session has a process on this site."""

    @abstractmethod
    def close(self) -> None:
        """Ends all sessions and the site."""


class SiteInThisProcess(AbstractSite):
    """A site without a process of its own, for devices whose programs always return, such as the fake one."""

    def __init__(self, site: DeviceSite) -> None:
        self._site = site
        self._lock = threading.Lock()
        self.facts = site.facts()

    def call(self, message: bytes, is_over: Callable[[], bool]) -> bytes:
        with self._lock:
            return self._site.answer(message)

    def end(self, session: str) -> None:
        with self._lock:
            self._site.end(session)

    @property
    def is_idle(self) -> bool:
        return self._site.is_idle

    def close(self) -> None:
        with self._lock:
            self._site.close()


class SiteProcess(AbstractSite):
    """A site as a child process, restarted by the next call after its end. Thread-safe: one call at a time."""

    def __init__(self, options: SiteOptions, environment: Mapping[str, str] = _NOTHING) -> None:
        """The process has these variables, too. Raises DeviceError if its device cannot be opened."""
        self._options = options
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._sessions: set[str] = set()
        self._running = (
            ""  # the session whose call it answers; none for a chunk of a file, which is short
        )
        self._is_closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._in_fd = self._out_fd = -1
        with self._lock:
            self._start()

    def call(self, message: bytes, is_over: Callable[[], bool]) -> bytes:
        call = messages.decode_call(message)
        session = getattr(call, "session", "")
        with self._lock:
            if self._is_closed:
                return messages.encode_answer(messages.Gone(f"{self._options.name} is closed"))
            try:
                self._running = session
                if self._process is None:
                    self._start()
                if session:
                    self._sessions.add(session)
                write_message(self._in_fd, message)
                limit_s = _SLACK_S + getattr(call, "deadline_s", 0.0)
                answer = self._read(is_over, limit_s)
            except (BrokenPipeError, DeviceError):
                answer = None
            except BaseException:
                self._kill()
                raise
            finally:
                self._running = ""
            if answer is None:
                self._kill()
                return messages.encode_answer(
                    messages.Gone(f"the process of {self._options.name} has ended")
                )
            return answer

    def end(self, session: str) -> None:
        """Ends a session; during a call it ends the whole process, so that other sessions restart (`Answered.death`)."""
        with self._interrupting(session):
            if session not in self._sessions or self._process is None:
                return
            self._sessions.discard(session)
            try:
                write_message(self._in_fd, messages.encode_call(messages.End(session)))
                if self._read(lambda: False, _END_S) is None:
                    self._kill()
            except BrokenPipeError:
                self._kill()

    @property
    def is_idle(self) -> bool:
        return not self._sessions

    def close(self) -> None:
        self._is_closed = True
        with self._interrupting(None):
            self._kill()

    @contextmanager
    def _interrupting(self, session: str | None) -> Iterator[None]:
        """Context with the lock held: calls of `session` (None: all) are ended, also if they begin meanwhile."""
        while not self._lock.acquire(timeout=_LOOK_S):
            if self._running and session in (None, self._running):
                self._interrupt()
        try:
            yield
        finally:
            self._lock.release()

    def _interrupt(self) -> None:
        """Ends the site's process, so that a waiting call returns."""
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _start(self) -> None:
        site_in, self._in_fd = os.pipe()
        self._out_fd, site_out = os.pipe()
        options = msgspec.json.encode(self._options).decode()
        module = f"{__package__}.site"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(site_in), str(site_out), options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(site_in, site_out),
                env={**os.environ, **self._environment},
                start_new_session=True,
            )
        finally:
            os.close(site_in)
            os.close(site_out)
        said = self._read(lambda: False, _START_S)
        name = self._options.name
        if said is None:
            self._kill()
            raise DeviceError(f"the process of the device {name} has ended while it was started")
        try:
            self.facts = msgspec.msgpack.decode(said, type=messages.SlotFacts)
        except msgspec.DecodeError:
            refused = messages.decode_answer(said)
            self._kill()
            assert isinstance(refused, messages.CallRefused)
            raise DeviceError(f"{name}: {refused.why}") from None

    def _read(self, is_over: Callable[[], bool], limit_s: float = float("inf")) -> bytes | None:
        """Returns the next answer; None if the process has ended or `limit_s` has passed. Raises Stopped."""
        head = self._read_bytes(4, is_over, limit_s)
        if head is None:
            return None
        return self._read_bytes(int.from_bytes(head, "little"), is_over, limit_s)

    def _read_bytes(
        self, n_bytes: int, is_over: Callable[[], bool], limit_s: float
    ) -> bytes | None:
        parts: list[bytes] = []
        poll = select.poll()
        poll.register(self._out_fd, select.POLLIN)
        n_looks = 0
        while n_bytes:
            if not poll.poll(_LOOK_S * 1000):
                n_looks += 1
                if is_over():
                    raise Stopped
                if n_looks * _LOOK_S > limit_s:
                    return None
                continue
            part = os.read(self._out_fd, min(n_bytes, 1 << 20))
            if not part:
                return None
            parts.append(part)
            n_bytes -= len(part)
        return b"".join(parts)

    def _kill(self) -> None:
        process, self._process = self._process, None
        self._sessions.clear()
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(self._in_fd)
        os.close(self._out_fd)
        process.wait()


class _Turns:
    """Alternation of compilers and timed programs on the same cores; a waiting program has priority."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_building = self._n_timing = self._n_waiting = 0

    @contextmanager
    def building(self, is_over: Callable[[], bool]) -> Iterator[None]:
        with self._changed:
            while self._n_timing or self._n_waiting:
                self._changed.wait(_LOOK_S)
                if is_over():
                    raise Stopped
            self._n_building += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_building -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self, is_over: Callable[[], bool]) -> Iterator[None]:
        with self._changed:
            self._n_waiting += 1
            try:
                while self._n_building:
                    self._changed.wait(_LOOK_S)
                    if is_over():
                        raise Stopped
            finally:
                self._n_waiting -= 1
            self._n_timing += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_timing -= 1
                self._changed.notify_all()


class Host:
    """The sites of one machine by name, and its compilers.

    Compilers run on cores that belong to no device. If there are none, they alternate with timed programs.
    """

    def __init__(
        self,
        sites: Mapping[str, AbstractSite],
        device: Callable[[str, float], AbstractDevice],
        contents: Contents,
        *,
        cores: Sequence[int] = (),
        n_builders: int,
    ) -> None:
        """`device`: function from (backend, time limit of one source in s) to a device whose builder is used.

        `cores`: cores of the compilers; () if they alternate with timed programs.
        """
        self._sites = dict(sites)
        self._device = device
        self._devices: dict[tuple[str, float], AbstractDevice] = {}
        self._contents = contents
        self._cores = tuple(cores)
        self.n_builders = n_builders
        self._turns = None if cores else _Turns()
        self._archs = {site.facts.arch: site.facts.backend for site in sites.values()}
        self._lock = threading.Lock()

    @property
    def facts(self) -> list[messages.SlotFacts]:
        """Descriptions of the host's slots."""
        return [site.facts for site in self._sites.values()]

    @property
    def has_cores(self) -> bool:
        """True if compilers have cores of their own."""
        return bool(self._cores)

    @property
    def archs(self) -> tuple[str, ...]:
        """Keys of the compilers that this host has."""
        return tuple(self._archs)

    def call(self, slot: str, message: bytes, is_over: Callable[[], bool] = lambda: False) -> bytes:
        """Sends a message to the site of a slot and returns the answer. Raises Stopped once `is_over`."""
        site = self._sites.get(slot)
        if site is None:
            return messages.encode_answer(messages.CallRefused(f"there is no slot {slot!r} here"))
        if self._turns is None:
            return site.call(message, is_over)
        with self._turns.timing(is_over):
            return site.call(message, is_over)

    def build(
        self, arch: str, message: bytes, is_over: Callable[[], bool] = lambda: False
    ) -> bytes:
        """Builds the sources of a message and returns the libraries.

        Raises Stopped if `is_over` before it begins.
        """
        call = messages.decode_call(message)
        if not isinstance(call, messages.Build):
            return messages.encode_answer(
                call
                if isinstance(call, messages.CallRefused)
                else messages.CallRefused("it builds only")
            )
        if arch not in self._archs:
            return messages.encode_answer(
                messages.CallRefused(f"there is no compiler {arch!r} here")
            )
        try:
            device = self._builder(self._archs[arch], call.timeout_s)
            if self._turns is None:
                with _on_cores(self._cores):
                    return messages.encode_answer(build_for(device, call))
            with self._turns.building(is_over):
                return messages.encode_answer(build_for(device, call))
        except DeviceError as e:
            return messages.encode_answer(messages.CallRefused(str(e)))

    def _builder(self, backend: str, timeout_s: float) -> AbstractDevice:
        with self._lock:
            if (backend, timeout_s) not in self._devices:
                self._devices[backend, timeout_s] = self._device(backend, timeout_s)
            return self._devices[backend, timeout_s]

    def end_builds(self) -> None:
        """Ends all running compilers."""
        for device in list(self._devices.values()):
            device.builder.end_builds()

    def end_slot(self, slot: str, session: str) -> None:
        """Ends a session's programs on one slot."""
        site = self._sites.get(slot)
        if site is not None:
            site.end(session)

    def close_sites(self) -> None:
        """Ends all sites; waiting calls return."""
        for site in self._sites.values():
            site.close()

    def end(self, session: str) -> None:
        """Ends a session's programs on all slots.

        Without sessions the host deletes its files; the next session sends again what it needs.
        """
        for site in self._sites.values():
            site.end(session)
        if all(site.is_idle for site in self._sites.values()):
            self._contents.clear()

    def close(self) -> None:
        """Ends all sites and compilers, and removes the host's files."""
        self.end_builds()
        self.close_sites()
        self._contents.close()


@contextmanager
def _on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Context manager in which this thread, and its child processes, run on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def open_host(
    devices: Sequence[NamedDevice],
    n_builders: int | None = None,
    prefix: str = "",
    only: str | None = None,
) -> Host:
    """Opens the devices of this machine, with `n_builders` compilers at once (default: one per free core).

    `prefix` precedes the names of slots. `only` is the name of one device: others are opened by processes beside this one,
    which share the cores for compilers. Raises DeviceError.
    """
    contents = Contents()
    sites: dict[str, AbstractSite] = {}
    try:
        arrays, libraries = contents.folders
        for device in devices:
            if only not in (None, device.name):
                continue
            name = f"{prefix}{device.name}"
            options = SiteOptions(name, device.backend, str(arrays), str(libraries), device.cpus)
            sites[name] = SiteProcess(options, device.environment)
    except BaseException:
        for site in sites.values():
            site.close()
        contents.close()
        raise
    cores = spare_cores(devices)
    if n_builders is None:
        n_cores = len(cores) or max(1, len(os.sched_getaffinity(0)) - 1)
        n_builders = n_cores if any(d.backend == "cpu" for d in devices) else _FEW_BUILDERS
        n_builders = max(1, n_builders * len(sites) // len(devices))

    def opened(backend: str, timeout_s: float) -> AbstractDevice:
        return open_device(backend, DeviceOptions(compile_timeout_s=timeout_s))

    return Host(sites, opened, contents, cores=cores, n_builders=n_builders)


def host_in_this_process(devices: Mapping[str, AbstractDevice], n_builders: int = 2) -> Host:
    """Returns a host of devices whose programs always return; each is a slot with the device's name."""
    contents = Contents()
    sites = {
        name: SiteInThisProcess(DeviceSite(name, device, SiteFiles(*contents.folders)))
        for name, device in devices.items()
    }
    building = {device.name: device for device in devices.values()}
    cores = tuple(os.sched_getaffinity(0))

    def same(backend: str, timeout_s: float) -> AbstractDevice:
        return building[backend]

    return Host(sites, same, contents, cores=cores, n_builders=n_builders)
