"""Does a run that is killed lose anything? kill -9 at random moments, of the command or of what it has started, then resume.

    python -m kernelscape.experiments.kill_resume [ROUNDS]

The rounds take turns: `run` and `resume` are killed, one of their children is, `report --live` is beside them, and `tune` is.
Counts finished evaluations before and after, evaluations that were made twice, candidates that were blamed for a kill, and files
that cannot be read; writes experiments/results/kill_resume.md. The exit status is 1 when anything was lost, made twice, blamed or
torn.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..runtime.records.family import load_family
from ..runtime.records.folder import BEST, HEADER, JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_best
from ..runtime.records.record import EvaluationRecord, RecordError
from .conditions import stamp, stamp_text
from .writing import parser_of, table, write_results

_EXPLORE = (sys.executable, "-m", "kernelscape.cli")
SESSIONS = 3  # kills a round before the run may end
_COUNTS = {
    "kills": "kills",
    "finished": "finished evaluations",
    "lost": "lost",
    "repeated": "made twice",
    "blamed": "candidates blamed for a kill",
    "torn": "torn files",
}
KINDS = ("the command", "a child", "report --live", "tune")


def run(n_rounds: int, seed: int, folder: Path | None) -> int:
    """Make the rounds and write what came of them; the exit status."""
    rng = random.Random(seed)
    rounds: list[dict[str, Any]] = []
    for k in range(n_rounds):
        kind = KINDS[k % len(KINDS)]
        with tempfile.TemporaryDirectory(prefix="kernelscape-kill-") as scratch:
            make = tune_round if kind == "tune" else run_round
            rounds.append({"kind": kind} | make(Path(scratch), kind, rng))
        print(f"{k + 1:>3}: {rounds[-1]}", flush=True)
    total = {count: sum(r[count] for r in rounds) for count in _COUNTS}
    found = {"conditions": stamp(), **total, "rounds": rounds}
    write_results("kill_resume", report, found, folder)
    print(", ".join(f"{total[count]} {name}" for count, name in _COUNTS.items()))
    return int(any(total[count] for count in ("lost", "repeated", "blamed", "torn")))


def report(found: dict[str, Any]) -> str:
    """The counts as Markdown."""
    kinds = Counter(r["kind"] for r in found["rounds"])
    body = [
        [
            kind,
            str(n),
            *(str(sum(r[c] for r in found["rounds"] if r["kind"] == kind)) for c in _COUNTS),
        ]
        for kind, n in kinds.items()
    ]
    body.append(["all", str(len(found["rounds"])), *(str(found[count]) for count in _COUNTS)])
    return "\n".join(
        [
            "# What kill -9 costs",
            "",
            f"Runs, each killed at {SESSIONS} random moments, resumed after each, and let end.",
            "",
            stamp_text(found["conditions"]),
            "",
            table(["killed", "runs", *_COUNTS.values()], body),
            "",
        ]
    )


def run_round(scratch: Path, kind: str, rng: random.Random) -> dict[str, int]:
    """Start a run, kill what `kind` says, resume it and kill again; then let it end."""
    folder = scratch / "run"
    command = ["run", "axpydot", "--size", "n=4096", "--time-limit", "60s", "-o", str(folder)]
    counts = dict.fromkeys(_COUNTS, 0)
    seen: list[EvaluationRecord] = []
    for _ in range(SESSIONS):
        with started(command) as running:
            if kind == "a child":
                counts["kills"] += sum(kill_a_child(running, rng) for _ in range(2))
            if kind == "report --live" and (folder / HEADER).exists():
                with started(
                    ["report", str(folder), "--live", "-o", str(scratch / "page.html")]
                ) as page:
                    counts["kills"] += kill(page, rng.uniform(0.5, 2.0))
            counts["kills"] += kill(running, rng.uniform(1.0, 5.0))
        now = finished(folder)
        counts["lost"] += n_lost(seen, now)
        counts["torn"] += is_torn(folder)
        seen = now
        if (folder / HEADER).exists():
            command = ["resume", str(folder), "--time-limit", "60s"]
    if command[0] == "resume":
        last = [*_EXPLORE, "resume", str(folder), "--max-evals", "4", "-q"]
        done = subprocess.run(last, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    now = finished(folder)
    keys = [r.source_key for r in now]
    return counts | {
        "lost": counts["lost"] + n_lost(seen, now),
        "finished": len(now),
        "repeated": len(keys) - len(set(keys)),
        "blamed": sum(r.status == "crash" for r in now),
    }


def tune_round(scratch: Path, kind: str, rng: random.Random) -> dict[str, int]:
    """Start to tune for two shapes and kill it; what the file had it has afterwards, and the last run adds to it."""
    file, counts, seen = scratch / "tuned.json", dict.fromkeys(_COUNTS, 0), 0
    command = ["tune", "axpydot", "--sizes", "n=1024,n=4096", "--max-evals", "6", "-o", str(file)]
    for _ in range(SESSIONS):
        with started(command) as running:
            counts["kills"] += kill(running, rng.uniform(2.0, 8.0))
        n_shapes = tuned_shapes(file)
        counts["torn"] += n_shapes is None
        counts["lost"] += max(0, seen - (n_shapes or 0))
        seen = n_shapes or 0
    done = subprocess.run([*_EXPLORE, *command, "-q"], capture_output=True, text=True, cwd=scratch)
    assert done.returncode == 0, done.stderr
    counts["finished"] = tuned_shapes(file) or 0
    return counts


def tuned_shapes(file: Path) -> int | None:
    """The shapes of a tuned file; 0 where there is none, None where it cannot be read."""
    if not file.exists():
        return 0
    try:
        return len(load_family(file).entries)
    except RecordError:
        return None


@contextmanager
def started(arguments: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command of ours that runs, and that is gone afterwards."""
    running = subprocess.Popen(
        [*_EXPLORE, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def kill(running: subprocess.Popen[bytes], after_s: float) -> int:
    """End a process with signal 9; 1 if it was still running."""
    time.sleep(after_s)
    is_running = running.poll() is None
    running.kill()
    running.wait()
    return int(is_running)


def kill_a_child(running: subprocess.Popen[bytes], rng: random.Random) -> int:
    """End one of the processes that a command has started, at a random moment; 1 if there was one."""
    time.sleep(rng.uniform(0.5, 3.0))
    children = descendants(running.pid)
    if not children:
        return 0
    with suppress(ProcessLookupError):
        os.kill(rng.choice(children), signal.SIGKILL)
        return 1
    return 0


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            found += [int(child), *descendants(int(child))]
    return found


def n_lost(before: Sequence[EvaluationRecord], now: Sequence[EvaluationRecord]) -> int:
    """Records that are gone, or other ones than they were."""
    changed = sum(a != b for a, b in zip(before, now, strict=False))
    return changed + max(0, len(before) - len(now))


def finished(folder: Path) -> list[EvaluationRecord]:
    """What the journal acknowledges."""
    path = folder / JOURNAL
    if not path.exists():
        return []
    return [r for r in read_journal(path) if isinstance(r, EvaluationRecord)]


def is_torn(folder: Path) -> int:
    """1 if there is a best.json that cannot be read."""
    if not (folder / BEST).exists():
        return 0
    try:
        load_best(folder / BEST)
    except RecordError:
        return 1
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    return run(given.rounds, given.seed, given.results)


if __name__ == "__main__":
    sys.exit(main())
