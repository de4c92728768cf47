"""Does a run that is killed lose anything? kill -9 at random moments, then resume.

    python -m kernelscape.experiments.kill_resume [ROUNDS]

Counts finished evaluations before and after, and evaluations that were made twice.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..runtime.journal import read_journal
from ..runtime.records import EvaluationRecord, RecordError, load_best
from .conditions import stamp
from .writing import RESULTS

SESSIONS = 3  # kills a round before the run may end


def main(n_rounds: int) -> int:
    rng = random.Random(1)
    rounds = []
    for k in range(n_rounds):
        with tempfile.TemporaryDirectory(prefix="kernelscape-kill-") as folder:
            rounds.append(one_round(Path(folder) / "run", rng))
        print(f"{k + 1:>3}: {rounds[-1]}", flush=True)
    lost = sum(r["lost"] for r in rounds)
    repeated = sum(r["repeated"] for r in rounds)
    torn = sum(r["torn_best"] for r in rounds)
    result = {
        "question": "does kill -9 lose a finished evaluation?",
        "conditions": stamp(),
        "kills": sum(r["kills"] for r in rounds),
        "finished_evaluations": sum(r["finished"] for r in rounds),
        "lost": lost,
        "repeated": repeated,
        "torn_best": torn,
        "rounds": rounds,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "kill_resume.json").write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{result['kills']} kills, {lost} evaluations lost, {repeated} repeated, {torn} files torn"
    )
    return 1 if lost or repeated or torn else 0


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
        if (folder / "run.json").exists():
            command = ["resume", str(folder), "--time-limit", "60s"]
    if command[0] == "resume":
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "kernelscape.cli",
                "resume",
                str(folder),
                "--max-evals",
                "4",
                "-q",
            ],
            capture_output=True,
            text=True,
        )
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
    command = [sys.executable, "-m", "kernelscape.cli", *arguments]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after_s)
    is_running = running.poll() is None
    running.kill()
    running.wait()
    return int(is_running)


def finished(folder: Path) -> list[EvaluationRecord]:
    """What the journal acknowledges."""
    path = folder / "journal.jsonl"
    if not path.exists():
        return []
    return [r for r in read_journal(path) if isinstance(r, EvaluationRecord)]


def is_torn(folder: Path) -> int:
    """1 if there is a best.json that cannot be read."""
    if not (folder / "best.json").exists():
        return 0
    try:
        load_best(folder / "best.json")
    except RecordError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
