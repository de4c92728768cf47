"""Does a search on a fleet lose, repeat or blame anything when parts of it are killed? On the fake target.

    python -m kernelscape.experiments.fleet_faults [--rounds 200] [--piece 10]

The rounds take turns with what happens (`KINDS`). Then the run is resumed, on a new fleet where its own has gone. Counts
evaluations that were lost, made twice, blamed for what happened, or made by a worker of another version or key; processes that are
alive 10 s after their driver or scheduler, and interrupts that took more than 2 s. The one candidate that hangs has to be recorded
so, any other status but "ok" is blame. Rounds are kept as they are made: `--piece MINUTES` begins none after that, and the next
call goes on. Processes are forked from this one, which has imported what they need, but for drivers that are interrupted: these are
commands, whose end is timed.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import ExitStack, suppress
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, get_args

import msgspec

from ..cli.commands import main as explore
from ..explorer import entry as _imported_before_forks  # noqa: F401
from ..runtime.records.record import EvaluationRecord
from .conditions import stamp, stamp_text
from .fleet_workers import Fate, Stage, serve
from .kill_resume import finished, n_lost
from .writing import parser_of, read_results, table, write_results

RUN_S = 0.03
EVALUATIONS = 40
_LIMIT_S = 600  # of a search
_STAGES = {f"a worker is killed while {stage}": stage for stage in get_args(Stage)[1:4]}
_HANGS = "a candidate hangs"
KINDS = (
    *("a worker is killed", *_STAGES, "a worker leaves", "a worker joins late"),
    *("a worker of another version joins", "a worker of another key joins", _HANGS),
    *("the scheduler is killed", "the driver is killed", "the driver is interrupted"),
)
_COUNTS = {
    "finished": "finished evaluations",
    "lost": "lost",
    "repeated": "made twice",
    "blamed": "blamed",
    "strange": "by another version or key",
    "alive": "processes alive 10 s later",
    "late": "interrupts that took more than 2 s",
}
_EXPLORE = (sys.executable, "-m", "kernelscape.cli")
_FORK = multiprocessing.get_context("fork")


def _forked(run: Callable[..., object], *given: Any, said: int | None = None) -> ForkProcess:
    """A process that runs a function, and writes what it says to a file, if any."""
    process = _FORK.Process(target=_apart, args=(said, run, *given))
    process.start()
    return process


def _apart(said: int | None, run: Callable[..., object], *given: Any) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number, at in ((0, nowhere), (1, said or nowhere), (2, said or nowhere)):
        os.dup2(at, number)
    run(*given)


class _Fleet:
    """A scheduler with workers, all of them processes of this one."""

    def __init__(self, scratch: Path, *fates: Fate) -> None:
        from ..runtime.fleet.dask_scheduler import SchedulerOptions
        from ..runtime.fleet.dask_scheduler import main as schedule

        self.file = scratch / f"fleet{time.monotonic_ns()}.json"
        options = msgspec.json.encode(SchedulerOptions("127.0.0.1", 0)).decode()
        self._scheduler = _forked(schedule, [str(self.file), options])
        while not self.file.exists():
            assert self._scheduler.is_alive()
            time.sleep(0.02)
        self.workers: list[ForkProcess] = []
        self._strangers: list[subprocess.Popen[bytes]] = []
        self.not_to_be_used: set[str] = set()
        """Slots of another version or key."""
        for fate in fates:
            self.add(fate)

    def add(self, fate: Fate, compiler: str = "") -> None:
        serves = _FORK.Event()
        worker = _forked(serve, self.file, RUN_S, serves.set, fate, compiler)
        self.workers.append(worker)
        assert serves.wait(60)
        if compiler:
            self.not_to_be_used.add(f"worker{worker.pid}/fake")

    def add_other_version(self, scratch: Path) -> None:
        """A worker whose package says another version."""
        told = scratch / "path" / "kernelscape-99.dist-info" / "METADATA"
        told.parent.mkdir(parents=True)
        told.write_text("Metadata-Version: 2.1\nName: kernelscape\nVersion: 99\n")
        command = [*_EXPLORE, "worker", "--device", "fake", "--name", "stranger"]
        self.not_to_be_used.add("stranger/fake")
        worker = subprocess.Popen(
            [*command, "--fleet", str(self.file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(told.parents[1])},
            start_new_session=True,
        )
        self._strangers.append(worker)
        assert worker.stderr is not None
        assert b"ends with the fleet" in worker.stderr.readline() + worker.stderr.readline()

    def kill_scheduler(self) -> None:
        self._scheduler.kill()
        self._scheduler.join()

    def end(self) -> int:
        """Ends the scheduler. Returns the number of workers that are alive 10 s later."""
        self.kill_scheduler()
        end_s = time.monotonic() + 10
        for worker in self.workers:
            worker.join(max(0.0, end_s - time.monotonic()))
        for stranger in self._strangers:
            with suppress(subprocess.TimeoutExpired):
                stranger.wait(max(0.0, end_s - time.monotonic()))
        alive = [w for w in self.workers if w.is_alive()]
        alive_strangers = [s for s in self._strangers if s.poll() is None]
        for worker in alive:
            worker.kill()
        for stranger in alive_strangers:
            stranger.kill()
        for stranger in self._strangers:
            stranger.wait()
            assert stranger.stderr is not None
            stranger.stderr.close()
        return len(alive) + len(alive_strangers)


def fate_of(kind: str, rng: random.Random) -> Fate:
    """The fate of one worker in a round; none where something else happens."""
    number = rng.randint(1, 12)
    if kind == _HANGS:
        return Fate("hanging", number)
    stage = _STAGES.get(kind)
    match stage:
        case "measuring":
            return Fate(stage, number, rng.uniform(0.0, RUN_S))
        case "building" | "answering":
            return Fate(stage, number, rng.choice((0.0, 0.001, 0.01)) * rng.random())
    return Fate()


class _Driver:
    """A search that runs: a command where it `is_command`, else a fork of this process."""

    def __init__(self, scratch: Path, given: Sequence[str], *, is_command: bool = False) -> None:
        self._file = scratch / f"said{time.monotonic_ns()}"
        self._process: subprocess.Popen[bytes] | ForkProcess
        with self._file.open("wb") as said:
            if is_command:
                self._process = subprocess.Popen([*_EXPLORE, *given], stdout=said, stderr=said)
            else:
                self._process = _forked(_explore, given, said=said.fileno())

    def said(self) -> str:
        """The end of its output."""
        return self._file.read_text(errors="replace")[-500:]

    def send(self, number: int) -> None:
        if self.code() is None and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def code(self) -> int | None:
        """Its exit code; None while it runs."""
        process = self._process
        return process.exitcode if isinstance(process, ForkProcess) else process.poll()

    def ended(self, limit_s: float) -> int | None:
        """The exit code, in time; None where it had to be killed."""
        end_s = time.monotonic() + limit_s
        while (code := self.code()) is None and time.monotonic() < end_s:
            time.sleep(0.02)
        if code is None:
            self.send(signal.SIGKILL)
        return code


def happens(kind: str, fleet: _Fleet, driver: _Driver, scratch: Path, rng: random.Random) -> None:
    """The event of a round."""
    match kind:
        case "a worker is killed":
            rng.choice(fleet.workers).kill()
        case "a worker leaves":
            rng.choice(fleet.workers).terminate()
        case "a worker joins late":
            fleet.add(Fate())
        case "a worker of another version joins":
            fleet.add_other_version(scratch)
        case "a worker of another key joins":
            fleet.add(Fate(), compiler="another compiler")
        case "the scheduler is killed":
            fleet.kill_scheduler()
        case "the driver is killed":
            driver.send(signal.SIGKILL)
        case "the driver is interrupted":
            driver.send(signal.SIGINT)


def one_round(scratch: Path, kind: str, rng: random.Random) -> dict[str, int]:
    """A run that something happens to, and its resumption."""
    with ExitStack() as ending:

        def begun(*fates: Fate) -> _Fleet:
            fleet = _Fleet(scratch, *fates)
            ending.callback(fleet.end)
            return fleet

        return _resumed(scratch, kind, rng, begun)


def _resumed(
    scratch: Path, kind: str, rng: random.Random, begun: Callable[..., _Fleet]
) -> dict[str, int]:
    folder, counts = scratch / "run", dict.fromkeys(_COUNTS, 0)
    fleet = begun(fate_of(kind, rng), Fate())
    fated, not_to_be_used = fleet.workers[0], fleet.not_to_be_used
    options = ("--target", "fake", "--max-evals", str(EVALUATIONS), "--time-limit", "600s", "-q")
    given = ("run", "axpydot", "--size", "n=64", *options, "-o", str(folder))
    is_interrupted = kind == "the driver is interrupted"
    driver = _Driver(scratch, [*given, "--fleet", str(fleet.file)], is_command=is_interrupted)
    while not finished(folder) and driver.code() is None:
        time.sleep(0.05)
    time.sleep(rng.uniform(0.0, 0.6))
    happens(kind, fleet, driver, scratch, rng)
    began_s = time.monotonic()
    counts["alive"] += driver.ended(_LIMIT_S) is None
    counts["late"] += is_interrupted and time.monotonic() - began_s > 2.0
    seen = finished(folder)
    assert seen, f"nothing was measured: {driver.said()}"
    if kind in _STAGES:
        assert fated.exitcode == -signal.SIGKILL, "nothing has happened"
    if kind == "the scheduler is killed":
        counts["alive"] += fleet.end()
        fleet = begun(Fate())
    again = ("resume", str(folder), "--max-evals", "3", "-q", "--fleet", str(fleet.file))
    resumed = _Driver(scratch, again)
    assert resumed.ended(_LIMIT_S) == 0, resumed.said()
    counts["alive"] += fleet.end()
    now = finished(folder)
    at = [r.place.slot for r in now if r.place is not None]
    counts["strange"] = sum(slot in not_to_be_used for slot in at)
    return counts | counted(seen, now, n_hanging=int(kind == _HANGS))


def numbered_round(number: int, kind: str) -> dict[str, Any]:
    """The round of this number, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="kernelscape-faults-") as scratch:
        return {"kind": kind} | one_round(Path(scratch), kind, random.Random(number))


def made_rounds(
    before: Sequence[dict[str, Any]], n_rounds: int, n_at_once: int, limit_s: float
) -> Iterator[dict[str, Any]]:
    """Yields rounds as they are made, until there are `n_rounds` with those before. After the limit none begins."""
    end_s = time.monotonic() + limit_s
    begun = Counter(r["kind"] for r in before)
    running: set[Future[dict[str, Any]]] = set()
    with ProcessPoolExecutor(n_at_once, mp_context=_FORK) as pool:
        while True:
            while (
                len(running) < n_at_once and begun.total() < n_rounds and time.monotonic() < end_s
            ):
                kind = min(KINDS, key=lambda k: begun[k])
                running.add(pool.submit(numbered_round, begun.total(), kind))
                begun[kind] += 1
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                yield one.result()


def _explore(arguments: Sequence[str]) -> None:
    explore(list(arguments))


def counted(
    seen: Sequence[EvaluationRecord], now: Sequence[EvaluationRecord], n_hanging: int
) -> dict[str, int]:
    """The counts of a journal, which was `seen` before the run was resumed."""
    keys = [r.source_key for r in now]
    n_hung = sum(r.status == "timeout" for r in now)
    return {
        "finished": len(now),
        "lost": n_lost(seen, now),
        "repeated": len(keys) - len(set(keys)),
        "blamed": sum(r.status not in ("ok", "timeout") for r in now) + abs(n_hung - n_hanging),
    }


def report(found: dict[str, Any]) -> str:
    """The counts as Markdown."""
    rounds = found["rounds"]
    kinds = Counter(r["kind"] for r in rounds)
    body = [[kind, *_sums([r for r in rounds if r["kind"] == kind])] for kind in kinds]
    body.append(["all", *_sums(rounds)])
    return "\n".join(
        [
            "# Faults of a fleet",
            "",
            "Searches on two workers, to which something happens; then resumed."
            " Interrupts are timed by the clock, whatever else the machine does.",
            "",
            stamp_text(found["conditions"]),
            "",
            table(["what happens", "runs", *_COUNTS.values()], body),
            "",
        ]
    )


def _sums(rounds: Sequence[dict[str, Any]]) -> list[str]:
    return [str(len(rounds)), *(str(sum(r.get(c, 0) for r in rounds)) for c in _COUNTS)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 when anything was lost, made twice, blamed, left or late."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--piece", type=float, default=float("inf"), help="minutes")
    parser.add_argument("--at-once", type=int, default=1, help="rounds at a time")
    parser.add_argument("--again", action="store_true", help="forget the rounds that were made")
    given = parser.parse_args(arguments)
    kept = {} if given.again else read_results("fleet_faults", given.results)
    rounds: list[dict[str, Any]] = kept.get("rounds", [])
    for made in made_rounds(rounds, given.rounds, given.at_once, 60 * given.piece):
        rounds.append(made)
        print(f"{len(rounds):>3}: {made}", flush=True)
        found = {"conditions": stamp(), "rounds": rounds}
        write_results("fleet_faults", report, found, given.results)
    wrong = tuple(_COUNTS)[1:]
    return int(any(r.get(count, 0) for r in rounds for count in wrong))


if __name__ == "__main__":
    sys.exit(main())
