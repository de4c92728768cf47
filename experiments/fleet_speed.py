"""How many evaluations a second do several slots make, beside one? On the fake target, whose evaluations sleep.

    python -m kernelscape.experiments.fleet_speed [--evaluations 60]

An evaluation sleeps 0.2 s and takes next to no core, so that pool and search are timed, also on a loaded machine. Slots are devices
of this process, and workers of a Dask scheduler. The rate counts from the first evaluation to the last.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ..explorer.entry import explore_workload, library_workload
from ..explorer.workload import Options
from ..kernels.library import load
from ..runtime.fake.device import FakeDevice
from ..runtime.fleet.fleet import AbstractFleet, LocalFleet
from ..runtime.fleet.host import host_in_this_process
from ..runtime.fleet.request import FleetRequest
from ..runtime.records.folder import JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.record import EvaluationRecord
from .conditions import stamp, stamp_text
from .fleet_workers import serve
from .writing import parser_of, table, write_results

RUN_S = 0.2
SLOTS = (1, 2, 4)
WANTED = {1: 1.0, 2: 1.8, 4: 3.5}
_WAYS = ("devices of one process", "Dask workers")


def rate(fleet: AbstractFleet, n: int) -> float:
    """Evaluations a second of a run of `n`."""
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    options = Options(target="fake", time_limit_s=None, max_evals=n, store=False)
    with tempfile.TemporaryDirectory(prefix="kernelscape-speed-") as scratch:
        explore_workload(
            workload, options, directory=Path(scratch) / "run", fleet=FleetRequest(joined=fleet)
        )
        records = read_journal(Path(scratch) / "run" / JOURNAL)
    at_s = sorted(r.at_s for r in records if isinstance(r, EvaluationRecord))
    return (len(at_s) - 1) / (at_s[-1] - at_s[0])


def local_rate(n_slots: int, n: int) -> float:
    devices = {f"slot{k}": FakeDevice(run_s=RUN_S) for k in range(n_slots)}
    return rate(LocalFleet(host_in_this_process(devices)), n)


def dask_rate(n_slots: int, n: int) -> float:
    """The same with a worker process a slot."""
    from ..runtime.fleet.dask_fleet import join_fleet, start_scheduler, stop_fleet

    with tempfile.TemporaryDirectory(prefix="kernelscape-speed-") as scratch, ExitStack() as ending:
        file = Path(scratch) / "fleet.json"
        start_scheduler(file, "127.0.0.1", 0)
        ending.callback(stop_fleet, file)
        for _ in range(n_slots):
            command = [sys.executable, "-m", __spec__.name, "--worker", str(file)]
            worker = subprocess.Popen(command, stdout=subprocess.PIPE)
            ending.callback(worker.kill)
            assert worker.stdout is not None and worker.stdout.readline()
        return rate(join_fleet(file), n)


def report(found: dict[str, Any]) -> str:
    """The rates as Markdown."""
    body = []
    for way in _WAYS:
        rates = found["rates"][way]
        one = rates["1"]
        body += [
            [way, n, f"{r:.2f}", f"{r / one:.2f}", f"{WANTED[int(n)]:.1f}"]
            for n, r in rates.items()
        ]
    return "\n".join(
        [
            "# Evaluations a second on several slots",
            "",
            f"Runs of {found['evaluations']} evaluations of the fake target, each of which sleeps {RUN_S} s:"
            " pool and search are timed. Nothing is said of real machines, where compilers want cores.",
            "",
            f"{stamp_text(found['conditions'])}\n- load before: {found['load']:.1f}",
            "",
            table(["slots are", "slots", "evaluations a second", "times one slot", "wanted"], body),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 where less than wanted was reached."""
    parser = parser_of(__doc__)
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--worker", type=Path, help="(a worker of this script)")
    given = parser.parse_args(arguments)
    if given.worker:
        serve(given.worker, RUN_S, lambda: print("serves", flush=True))
        return 0
    load_before = os.getloadavg()[0]
    rates: dict[str, dict[str, float]] = {}
    for way, make in zip(_WAYS, (local_rate, dask_rate), strict=True):
        rates[way] = {str(n): make(n, given.evaluations) for n in SLOTS}
        print(way, rates[way], flush=True)
    found = {"conditions": stamp(), "rates": rates, "load": load_before}
    found["evaluations"] = given.evaluations
    print(write_results("fleet_speed", report, found, given.results))
    ratios = [r[str(n)] / r["1"] - WANTED[n] for r in rates.values() for n in SLOTS]
    return int(min(ratios) < 0)


if __name__ == "__main__":
    sys.exit(main())
