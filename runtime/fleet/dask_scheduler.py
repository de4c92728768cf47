"""Scheduler process of a fleet: `python -P -m kernelscape.runtime.fleet.dask_scheduler FILE OPTIONS`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import dask
import msgspec
from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from ..scratch import Scratch
from .dask_worker import CONFIG, END, STATUS_ADDRESS, security_of
from .fleet_file import FleetFile, TlsFiles, check_address, save_fleet
from .messages import own_version


class SchedulerOptions(msgspec.Struct, frozen=True):
    host: str
    port: int
    tls: TlsFiles | None = None


class _Farewell(SchedulerPlugin):
    """Plugin that notifies workers when a driver has disconnected, so that they end its programs."""

    def __init__(self) -> None:
        self._telling: set[asyncio.Task[object]] = set()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        message = {"op": END, "session": client}
        telling = asyncio.ensure_future(scheduler.broadcast(msg=message, on_error="ignore"))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)


async def schedule(file: Path, options: SchedulerOptions) -> None:
    """Runs the scheduler until a stop request or a signal. The fleet file exists while it runs."""
    protocol = "tcp" if options.tls is None else "tls"
    fleet = FleetFile(address="", version=own_version(), pid=os.getpid(), tls=options.tls)
    check_address(f"{protocol}://{options.host}:{options.port}", has_tls=options.tls is not None)
    scheduler = Scheduler(
        host=options.host,
        port=options.port,
        protocol=f"{protocol}://",
        security=security_of(fleet),
        dashboard=False,
        dashboard_address=STATUS_ADDRESS,
        plugins=[_Farewell()],
    )
    loop, ending = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.set)
    async with scheduler:
        save_fleet(file, msgspec.structs.replace(fleet, address=scheduler.address))
        try:
            waits = [asyncio.ensure_future(x) for x in (ending.wait(), scheduler.finished())]
            _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in left:
                wait.cancel()
        finally:
            file.unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    options = msgspec.json.decode(arguments[1], type=SchedulerOptions)
    with (
        Scratch("kernelscape-dask-") as folder,
        dask.config.set({**CONFIG, "temporary-directory": os.fspath(folder)}),
    ):
        asyncio.run(schedule(Path(arguments[0]), options))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
