"""Worker process of a fleet: a Dask worker for the devices and compilers of one machine; tasks take and return bytes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import dask
import msgspec
from distributed import Worker, get_worker
from distributed.security import Security

from ..api.errors import DeviceError
from ..scratch import Scratch
from .devices import NamedDevice
from .fleet_file import FleetFile, load_fleet
from .host import Host, open_host
from .messages import encode_facts, own_version

END = "kernelscape_end"  # what the scheduler sends once a driver has gone
_DEATH_S = 5.0  # without a scheduler
_LISTENING = {"tcp": "127.0.0.1", "tls": None}
CONFIG = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.diagnostics.nvml": False,
    "distributed.comm.timeouts.connect": "5s",
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
}

STATUS_ADDRESS = "127.0.0.1:0"  # of the page of numbers that each end of Dask has
logging.getLogger("distributed").setLevel(logging.WARNING)

_HOSTS: dict[int, Host] = {}  # of this process, by the identity of its Dask worker


def answer(slot: str, message: bytes) -> bytes:
    """Dask task: sends a message to a slot's site and returns its answer."""
    return _host().call(slot, message)


def build(arch: str, message: bytes) -> bytes:
    """Dask task: builds sources by the compiler with the key `arch` and returns the libraries."""
    return _host().build(arch, message)


def end(slot: str, session: str) -> bytes:
    """Dask task: ends a session's running programs on a slot."""
    _host().end_slot(slot, session)
    return b""


def describe() -> bytes:
    """Dask task: returns the version and the slots of the worker."""
    return msgspec.msgpack.encode((own_version(), encode_facts(_host().facts)))


def _host() -> Host:
    return _HOSTS[id(get_worker())]


def resource_of(kind: str, key: str) -> str:
    """Returns the name of a resource of workers: drivers of another version never ask for it."""
    return f"{kind}:{key}:{own_version()}"


def security_of(fleet: FleetFile) -> Security:
    """Returns the certificates of a fleet as a Dask object."""
    if fleet.tls is None:
        return Security()
    t = fleet.tls
    roles = ("client", "scheduler", "worker")
    files = {f"tls_{role}_cert": t.cert for role in roles}
    files |= {f"tls_{role}_key": t.key for role in roles}
    return Security(tls_ca_file=t.ca, require_encryption=True, **files)


def work(
    file: Path,
    devices: Sequence[NamedDevice],
    name: str,
    n_builders: int | None,
    tell: Callable[[Host], None],
) -> None:
    """Serves a fleet until its scheduler ends or a signal arrives. `tell` is called when serving begins.

    Raises DeviceError.
    """
    fleet = load_fleet(file)
    host = open_host(devices, n_builders, prefix=f"{name}/")
    try:
        serve(fleet, host, name, tell)
    finally:
        host.close()


def serve(fleet: FleetFile, host: Host, name: str, tell: Callable[[Host], None]) -> None:
    """Serves a fleet with an already open host until its scheduler ends or a signal arrives.

    `tell` is called when serving begins.
    """
    with Scratch("kernelscape-dask-") as folder, dask.config.set(CONFIG):
        asyncio.run(_serve(fleet, host, name, folder, tell))


async def _serve(
    fleet: FleetFile, host: Host, name: str, folder: Path, tell: Callable[[Host], None]
) -> None:
    builders = {resource_of("build", arch): host.n_builders for arch in host.archs}
    resources: dict[str, float] = dict(builders)
    for facts in host.facts:
        key = resource_of("measure", facts.key)
        resources[key] = resources.get(key, 0) + 1
    worker = Worker(
        fleet.address,
        # Each call of a slot, each build, and one call that ends another.
        nthreads=len(host.facts) + host.n_builders + 1,
        name=name,
        resources=resources,
        security=security_of(fleet),
        host=_LISTENING[fleet.address.partition("://")[0]],
        death_timeout=_DEATH_S,
        local_directory=os.fspath(folder),
        dashboard=False,
        dashboard_address=STATUS_ADDRESS,
        memory_limit=0,
    )

    async def end_session(session: str) -> None:
        await asyncio.get_running_loop().run_in_executor(None, host.end, session)

    worker.handlers[END] = end_session
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    _HOSTS[id(worker)] = host  # tasks may come as soon as it has an address
    try:
        await worker
    except (OSError, TimeoutError) as e:
        raise DeviceError(f"nobody answers at {fleet.address}: {e or 'the time is over'}") from e
    try:
        tell(host)
        waits = [asyncio.ensure_future(x) for x in (ending.wait(), worker.finished())]
        _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in left:
            wait.cancel()
    finally:
        host.end_builds()
        host.close_sites()
        await worker.close(timeout=_DEATH_S, executor_wait=False)
        del _HOSTS[id(worker)]
