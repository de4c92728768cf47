"""Does a run that is killed lose anything? kill -9 at random moments, then resume.

    python -m kernelscape.experiments.kill_resume [ROUNDS]

Counts finished evaluations before and after, evaluations that were made twice, and files that cannot be read; writes
experiments/results/kill_resume.md. The exit status is 1 when anything was lost, made twice or torn.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..runtime.records.folder import BEST, HEADER, JOURNAL
from ..runtime.records.journal import read_journal
from ..runtime.records.loading import load_best
from ..runtime.records.record import EvaluationRecord, RecordError
from .conditions import stamp, stamp_text
from .writing import table, write_results

_EXPLORE = (sys.executable, "-m", "kernelscape.cli")
SESSIONS = 3  # kills a round before the run may end
_COUNTS = {
    "kills": "kills",
    "finished": "finished evaluations",
    "lost": "lost",
    "repeated": "made twice",
    "torn_best": "torn files",
}


def run(n_rounds: int, seed: int, folder: Path | None) -> int:
    """Make the rounds and write what came of them; the exit status."""
    rng = random.Random(seed)
    rounds = []
    for k in range(n_rounds):
        with tempfile.TemporaryDirectory(prefix="kernelscape-kill-") as scratch:
            rounds.append(one_round(Path(scratch) / "run", rng))
        print(f"{k + 1:>3}: {rounds[-1]}", flush=True)
    total = {count: sum(r[count] for r in rounds) for count in _COUNTS}
    found = {"conditions": stamp(), **total, "rounds": rounds}
    write_results("kill_resume", report, found, folder)
    print(", ".join(f"{total[count]} {name}" for count, name in _COUNTS.items()))
    return 1 if total["lost"] or total["repeated"] or total["torn_best"] else 0


def report(found: dict[str, Any]) -> str:
    """The counts as Markdown."""
    body = [[name, str(found[count])] for count, name in _COUNTS.items()]
    return "\n".join(
        [
            "# What kill -9 costs",
            "",
            f"{len(found['rounds'])} runs, each killed at {SESSIONS} random moments, resumed after each, and let end.",
            "",
            stamp_text(found["conditions"]),
            "",
            table(["", "count"], body),
            "",
        ]
    )


def one_round(folder: Path, rng: random.Random) -> dict[str, int]:
    """Start a run, kill it, resume it and kill it again; then let it end."""
    command = ["run", "axpydot", "--size", "n=4096", "--time-limit", "60s", "-o", str(folder)]
    lost = kills = torn = 0
    seen: list[EvaluationRecord] = []
    for _ in range(SESSIONS):
        kills += start_and_kill(command, rng.uniform(1.0, 5.0))
        now = finished(folder)
        lost += sum(a != b for a, b in zip(seen, now, strict=False)) + max(0, len(seen) - len(now))
        torn += is_torn(folder)
        seen = now
        if (folder / HEADER).exists():
            command = ["resume", str(folder), "--time-limit", "60s"]
    if command[0] == "resume":
        last = [*_EXPLORE, "resume", str(folder), "--max-evals", "4", "-q"]
        done = subprocess.run(last, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    now = finished(folder)
    lost += sum(a != b for a, b in zip(seen, now, strict=False)) + max(0, len(seen) - len(now))
    keys = [r.source_key for r in now]
    return {
        "kills": kills,
        "finished": len(now),
        "lost": lost,
        "repeated": len(keys) - len(set(keys)),
        "torn_best": torn,
    }


def start_and_kill(arguments: list[str], after_s: float) -> int:
    """Run a command line and kill it with signal 9; 1 if it was still running."""
    running = subprocess.Popen(
        [*_EXPLORE, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(after_s)
    is_running = running.poll() is None
    running.kill()
    running.wait()
    return int(is_running)


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    return run(given.rounds, given.seed, given.results)


if __name__ == "__main__":
    sys.exit(main())
