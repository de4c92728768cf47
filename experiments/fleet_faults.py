"""Does a search on a fleet lose, repeat or blame anything when parts of it are killed? On the fake target.

    python -m kernelscape.experiments.fleet_faults [--rounds 200] [--piece 10]

The rounds take turns: a worker is killed (-9) at a random moment, one leaves (SIGTERM), one joins late, the scheduler is killed,
the driver is killed, the driver is interrupted (Ctrl-C). Then the run is resumed, on a new fleet where its own has gone. Counts
evaluations that were lost, made twice, or blamed for a kill, processes that are alive 10 s after their driver or scheduler, and
interrupts that took more than 2 s. Rounds are kept as they are made: `--piece MINUTES` begins none after that, and the next call
goes on.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..runtime.fake.device import FakeDevice
from ..runtime.fleet.fleet_file import FleetFile, load_fleet
from ..runtime.fleet.host import host_in_this_process
from ..runtime.records.folder import HEADER
from .conditions import stamp, stamp_text
from .kill_resume import finished, n_lost
from .writing import parser_of, read_results, table, write_results

RUN_S = 0.03
KINDS = (
    *("a worker is killed", "a worker leaves", "a worker joins late"),
    *("the scheduler is killed", "the driver is killed", "the driver is interrupted"),
)
_COUNTS = {
    "finished": "finished evaluations",
    "lost": "lost",
    "repeated": "made twice",
    "blamed": "candidates blamed",
    "alive": "processes alive 10 s later",
    "late": "interrupts that took more than 2 s",
}
_EXPLORE = (sys.executable, "-m", "kernelscape.cli")


class _Fleet:
    """A scheduler with workers, all of them processes of this one."""

    def __init__(self, scratch: Path, n_workers: int) -> None:
        from ..runtime.fleet.dask_fleet import start_scheduler

        self.file = scratch / f"fleet{time.monotonic_ns()}.json"
        self.scheduler: FleetFile = start_scheduler(self.file, "127.0.0.1", 0)
        self.workers: list[subprocess.Popen[bytes]] = []
        for _ in range(n_workers):
            self.add()

    def add(self) -> None:
        command = [sys.executable, "-m", __spec__.name, "--worker", str(self.file)]
        worker = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert worker.stdout is not None
        worker.stdout.readline()
        self.workers.append(worker)

    def kill_scheduler(self) -> None:
        os.kill(self.scheduler.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.scheduler.pid, 0)

    def end(self) -> int:
        """Ends the scheduler. Returns the number of workers that are alive 10 s later."""
        with suppress(ProcessLookupError):
            self.kill_scheduler()
        end_s = time.monotonic() + 10
        n_alive = 0
        for worker in self.workers:
            try:
                worker.wait(max(0.0, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                n_alive += 1
                worker.kill()
                worker.wait()
        return n_alive


def one_round(scratch: Path, kind: str, rng: random.Random) -> dict[str, int]:
    """A run that something happens to, and its resumption."""
    folder, counts = scratch / "run", dict.fromkeys(_COUNTS, 0)
    fleet = _Fleet(scratch, 2)
    options = ("--target", "fake", "--max-evals", "60", "-q")
    given = ("run", "axpydot", "--size", "n=64", *options, "-o", str(folder))
    driver = subprocess.Popen(
        [*_EXPLORE, *given, "--fleet", str(fleet.file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not finished(folder) and driver.poll() is None:
        time.sleep(0.05)
    time.sleep(rng.uniform(0.0, 0.6))
    match kind:
        case "a worker is killed":
            rng.choice(fleet.workers).kill()
        case "a worker leaves":
            rng.choice(fleet.workers).terminate()
        case "a worker joins late":
            fleet.add()
        case "the scheduler is killed":
            fleet.kill_scheduler()
        case "the driver is killed":
            driver.kill()
        case _:
            driver.send_signal(signal.SIGINT)
            began_s = time.monotonic()
    try:
        driver.wait(60)
    except subprocess.TimeoutExpired:
        counts["alive"] += 1
        driver.kill()
        driver.wait()
    if kind == "the driver is interrupted":
        counts["late"] += time.monotonic() - began_s > 2.0
    seen = finished(folder)
    if kind == "the scheduler is killed":
        counts["alive"] += fleet.end()
        fleet = _Fleet(scratch, 1)
    if (folder / HEADER).exists():
        again = ("resume", str(folder), "--max-evals", "3", "-q", "--fleet", str(fleet.file))
        done = subprocess.run([*_EXPLORE, *again], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    counts["alive"] += fleet.end()
    now = finished(folder)
    keys = [r.source_key for r in now]
    return counts | {
        "finished": len(now),
        "lost": n_lost(seen, now),
        "repeated": len(keys) - len(set(keys)),
        "blamed": sum(r.status != "ok" for r in now),
    }


def report(found: dict[str, Any]) -> str:
    """The counts as Markdown."""
    rounds = found["rounds"]
    kinds = Counter(r["kind"] for r in rounds)
    body = [
        [kind, str(n), *(str(sum(r[c] for r in rounds if r["kind"] == kind)) for c in _COUNTS)]
        for kind, n in kinds.items()
    ]
    body.append(["all", str(len(rounds)), *(str(sum(r[c] for r in rounds)) for c in _COUNTS)])
    return "\n".join(
        [
            "# Faults of a fleet",
            "",
            "Searches of 60 evaluations on two workers, to which something happens at a random moment; then resumed.",
            "",
            stamp_text(found["conditions"]),
            "",
            table(["what happens", "runs", *_COUNTS.values()], body),
            "",
        ]
    )


def serve(file: Path) -> None:
    """A worker whose evaluations sleep for a moment."""
    from ..runtime.fleet.dask_worker import serve as serve_host

    name = f"worker{os.getpid()}"
    host = host_in_this_process({f"{name}/fake": FakeDevice(run_s=RUN_S)})
    serve_host(load_fleet(file), host, name, lambda host: print("serves", flush=True))
    host.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 when anything was lost, made twice, blamed, left or late."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--piece", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true", help="forget the rounds that were made")
    parser.add_argument("--worker", type=Path, help="(a worker of this script)")
    given = parser.parse_args(arguments)
    if given.worker is not None:
        serve(given.worker)
        return 0
    kept = {} if given.again else read_results("fleet_faults", given.results)
    rounds: list[dict[str, Any]] = kept.get("rounds", [])
    end_s = time.monotonic() + 60 * given.piece
    while len(rounds) < given.rounds and time.monotonic() < end_s:
        kind = KINDS[len(rounds) % len(KINDS)]
        with tempfile.TemporaryDirectory(prefix="kernelscape-faults-") as scratch:
            made = one_round(Path(scratch), kind, random.Random(len(rounds)))
        rounds.append({"kind": kind} | made)
        print(f"{len(rounds):>3}: {rounds[-1]}", flush=True)
        found = {"conditions": stamp(), "rounds": rounds}
        write_results("fleet_faults", report, found, given.results)
    wrong = ("lost", "repeated", "blamed", "alive", "late")
    return int(any(r[count] for r in rounds for count in wrong))


if __name__ == "__main__":
    sys.exit(main())
