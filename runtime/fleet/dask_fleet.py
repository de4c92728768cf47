"""A driver's access to a fleet behind a Dask scheduler.

Messages are bytes; tasks are functions of `dask_worker`.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask
import msgspec
from distributed import Client

from ..api.errors import DeviceError
from ..files import is_there
from ..forked import Stopped
from . import dask_worker
from .dask_worker import CONFIG, resource_of, security_of
from .fleet import AbstractFleet, AbstractSlot, SlotLostError
from .fleet_file import FleetFile, check_address, check_certificates, load_fleet
from .messages import SlotFacts, decode_facts, own_version

# What it reports, with a traceback, is an error of ours or the end of a fleet.
logging.getLogger("distributed.client").setLevel(logging.CRITICAL)

_LOOK_S = 0.1  # polling interval of what waits
_WORKERS_S = 1.0  # between two looks at which workers there are
_ANSWER_S = 15.0  # of a scheduler, whose machine may do other work; then it counts as gone
_CONNECT_S = 10.0
_DESCRIBE_S = 10.0
_START_S = 30.0
_END_S = 2.0  # for what is ended before its time


def join_fleet(file: Path) -> DaskFleet:
    """Returns the fleet of a fleet file. Raises DeviceError, one sentence."""
    fleet = load_fleet(file)
    dask.config.set(CONFIG)
    try:
        client = _connected(fleet)
    except (OSError, TimeoutError) as e:
        raise DeviceError(
            f"the scheduler of {file} does not answer at {fleet.address}: start it again with explore fleet start {file}"
        ) from e
    return DaskFleet(client)


def _connected(fleet: FleetFile) -> Client:
    """Returns a client, in time: it would wait for ever for a scheduler that takes its call and says nothing."""
    made: Future[Client] = Future()

    def connect() -> None:
        try:
            security = security_of(fleet)
            client = Client(fleet.address, security=security, timeout=5, set_as_default=False)
        except BaseException as e:
            made.set_exception(e)
        else:
            made.set_result(client)

    threading.Thread(target=connect, name="fleet", daemon=True).start()
    return made.result(_CONNECT_S)


class DaskFleet(AbstractFleet):
    """Workers of a Dask scheduler. Each task requires its worker's resource, so that Dask cannot move it."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client
        self.session = client.id
        self._slots: dict[str, list[AbstractSlot]] = {}  # by address of the worker
        self._roll = _Roll(client)

    def slots(self) -> list[AbstractSlot]:
        workers = self.workers()
        for address in workers:
            if address not in self._slots:
                described = self._described(address, str(workers[address]["name"]))
                if described is not None:
                    self._slots[address] = described
        there = [s for address in self._slots if address in workers for s in self._slots[address]]
        return sorted(there, key=lambda slot: slot.facts.opened_s)

    def n_builders(self, arch: str) -> int:
        resource = resource_of("build", arch)
        return sum(int(w["resources"].get(resource, 0)) for w in self.workers().values())

    def build(self, arch: str, message: bytes, is_over: Callable[[], bool]) -> bytes:
        if not self.n_builders(arch):
            raise SlotLostError(f"no worker builds for {arch}")
        resource = resource_of("build", arch)
        return self.run(dask_worker.build, (arch, message), is_over, resource=resource)

    def end_builds(self) -> None:
        """No effect: builds on other machines end by their time limit."""

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        scheduler = self._client.scheduler
        return "" if scheduler is None else str(scheduler.address)

    def close(self) -> None:
        with suppress(OSError, TimeoutError):
            self._client.close(timeout=_END_S)

    def shut_down(self) -> None:
        """Ends the scheduler and all workers. Raises SlotLostError where it does not end in time."""
        ended = asked(self._client, "terminate")
        if not wait([ended], _ANSWER_S).done:
            raise SlotLostError(f"the scheduler at {self.address} does not end: end its process")

    def workers(self) -> dict[str, dict[str, Any]]:
        """Returns the workers by address, at most moments old. Raises SlotLostError if the scheduler cannot be reached."""
        return self._roll.workers()

    def run(
        self,
        task: Callable[..., bytes],
        given: tuple[Any, ...],
        is_over: Callable[[], bool],
        *,
        address: str = "",
        resource: str = "",
        limit_s: float = float("inf"),
    ) -> bytes:
        """Runs `task(*given)` on a worker, at `address` if given, and returns its result.

        Raises SlotLostError if the worker or the scheduler is gone or `limit_s` has passed, and Stopped once `is_over`.
        """
        if address and address not in self.workers():
            raise SlotLostError(f"the worker at {address} has gone")
        try:
            future = self._client.submit(
                task,
                *given,
                key=f"kernelscape-{uuid.uuid4().hex}",
                workers=[address] if address else None,
                resources={resource: 1} if resource else None,
                retries=0,
                pure=False,
            )
        except Exception as e:  # Dask raises many kinds where the scheduler has gone
            raise SlotLostError(f"the scheduler of the fleet has gone: {e}") from e
        fetched = in_its_loop(self._client, self._client.gather(future, asynchronous=True))
        end_s = time.monotonic() + limit_s
        # The worker may go before its result was fetched: Dask would wait for another one at its address for ever.
        while not wait([fetched], _LOOK_S).done:
            try:
                if is_over():
                    raise Stopped
                self._check(address, resource)
                if time.monotonic() > end_s:
                    raise SlotLostError(f"no answer of {address} within {limit_s:g} s")
            except BaseException:
                with suppress(Exception):  # the scheduler may have gone
                    future.cancel(reason="nobody waits for it any more")  # fetching ends with it
                raise
        try:
            found: bytes = fetched.result()
        except (Exception, CancelledError) as e:  # a lost worker, a scheduler that has gone
            raise SlotLostError(f"{type(e).__name__}: {e}") from e
        finally:
            future.release()
        return found

    def _check(self, address: str, resource: str) -> None:
        """Raises SlotLostError if the worker or the resource that a task waits for no longer exists.

        Dask would let the task wait forever.
        """
        workers = self.workers()
        if address and address not in workers:
            raise SlotLostError(f"the worker at {address} has gone")
        if not address and not any(resource in w["resources"] for w in workers.values()):
            raise SlotLostError(f"no worker has {resource} any more")

    def _described(self, address: str, name: str) -> list[AbstractSlot] | None:
        """Returns the slots of the worker `name`; None if it did not answer in time.

        A worker of another version gets no slots; its version is noted in `others`.
        """
        try:
            said = self.run(
                dask_worker.describe, (), lambda: False, address=address, limit_s=_DESCRIBE_S
            )
            version, facts = msgspec.msgpack.decode(said, type=tuple[str, bytes])
            if version != own_version():
                self.others[name] = version
                return []
            return [_DaskSlot(self, address, f) for f in decode_facts(facts)]
        except SlotLostError:
            return None
        except msgspec.DecodeError:
            return []


class _Roll:
    """The workers of a scheduler, as it has said last. Nobody waits for it but the first who asks. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, dict[str, Any]] | None = None
        self._asked: Future[Any] | None = None
        self._asked_s = -1e9
        self._lock = threading.Lock()

    def workers(self) -> dict[str, dict[str, Any]]:
        """Returns the workers by address. Raises SlotLostError where the scheduler has gone, or is silent for too long."""
        with self._lock:
            if self._client.status != "running":
                raise SlotLostError("the scheduler of the fleet has gone")
            if self._asked is None and time.monotonic() - self._asked_s > _WORKERS_S:
                self._asked = asked(self._client, "identity", n_workers=-1)
                self._asked_s = time.monotonic()
            if self._asked is not None and self._known is None:
                wait([self._asked], _ANSWER_S)
            if self._asked is not None and self._asked.done():
                self._take(self._asked)
            elif time.monotonic() - self._asked_s > _ANSWER_S + _WORKERS_S or self._known is None:
                raise SlotLostError(
                    f"the scheduler of the fleet has said nothing for {_ANSWER_S:g} s"
                )
            return self._known or {}

    def _take(self, answer: Future[Any]) -> None:
        self._asked = None
        try:
            self._known = dict(answer.result()["workers"])
        except (Exception, CancelledError) as e:  # Dask raises many kinds
            raise SlotLostError("the scheduler of the fleet has gone") from e


def asked(client: Client, operation: str, **given: Any) -> Future[Any]:
    """Returns the answer of a scheduler, once there is one."""
    return in_its_loop(client, getattr(client.scheduler, operation)(**given))


def in_its_loop(client: Client, asking: Coroutine[Any, Any, Any]) -> Future[Any]:
    """Returns the result of a coroutine in the thread of a client."""
    loop: Any = client.loop  # tornado's, which has no types for it
    return asyncio.run_coroutine_threadsafe(asking, loop.asyncio_loop)


class _DaskSlot(AbstractSlot):
    def __init__(self, fleet: DaskFleet, address: str, facts: SlotFacts) -> None:
        self._fleet, self._address, self.facts = fleet, address, facts

    def call(self, message: bytes, is_over: Callable[[], bool]) -> bytes:
        resource = resource_of("measure", self.facts.key)
        given = (self.facts.name, message)
        return self._fleet.run(
            dask_worker.answer, given, is_over, address=self._address, resource=resource
        )

    def end(self) -> None:
        given = (self.facts.name, self._fleet.session)
        with suppress(SlotLostError):
            self._fleet.run(
                dask_worker.end, given, lambda: False, address=self._address, limit_s=_END_S
            )


# --- starting and stopping -----------------------------------------------------------------------


def start_scheduler(file: Path, host: str, port: int, tls: Any = None) -> FleetFile:
    """Starts a scheduler process that outlives this one, and returns its fleet. Raises DeviceError."""
    if is_there(file):
        load_fleet(file)
        if _answers(file):
            raise DeviceError(f"{file} is there already: explore fleet stop {file} ends that fleet")
        file.unlink()  # its scheduler has gone
    check_address(f"{'tcp' if tls is None else 'tls'}://{host}:{port}", has_tls=tls is not None)
    if tls is not None:
        check_certificates(tls)
    from .dask_scheduler import SchedulerOptions

    options = msgspec.json.encode(SchedulerOptions(host, port, tls)).decode()
    module = f"{__package__}.dask_scheduler"
    log = file.with_name(f"{file.name}.log")
    with open(log, "wb") as said:
        running = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(file.absolute()), options],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    end_s = time.monotonic() + _START_S
    while not file.exists():
        if running.poll() is not None or time.monotonic() > end_s:
            running.kill()
            running.wait()
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise DeviceError(f"the scheduler did not start: {' '.join(last) or 'it says nothing'}")
        time.sleep(_LOOK_S)
    log.unlink(missing_ok=True)
    running.returncode = 0  # it is nobody's child any more
    return load_fleet(file)


def _answers(file: Path) -> bool:
    """True if the scheduler of a fleet file can be reached."""
    try:
        join_fleet(file).close()
    except DeviceError:
        return False
    return True


def stop_fleet(file: Path) -> int:
    """Ends the scheduler of a fleet and its workers. Returns the number of workers. Raises DeviceError."""
    fleet = join_fleet(file)
    try:
        n = len(fleet.workers())
        fleet.shut_down()
    finally:
        fleet.close()
    return n
