"""What keeping the records of a search costs, and what kill -9 leaves of them.

    python -m kernelscape.experiments.journal_cost [--kills 20] [--work gemver] [--size n=4096] [--seconds 60]

One search to its end: sizes of journal and tree, evaluations and children in them, and the share of its time that keeping them took
(the record `kept`). Then another search of the same, killed at random moments and resumed each time: evaluations that were
acknowledged before a kill and are not there afterwards, and pages that were not drawn from what was left. Kills add to those of
earlier calls, so that they can be made in pieces: --kills 0 measures the cost alone, --kills-only the kills. Writes
experiments/results/journal_cost.md; the exit status is 1 when anything was lost.
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

from ..report.live import pages
from ..runtime.records.folder import HEADER, JOURNAL, TREE
from ..runtime.records.journal import read_journal
from ..runtime.records.record import EvaluationRecord, KeptRecord
from ..testing.browser import Browser, find_browser
from .conditions import stamp, stamp_text
from .kill_resume import finished, is_torn
from .writing import read_results, table, write_results

_EXPLORE = (sys.executable, "-m", "kernelscape.cli")
_WITHIN_S = 10.0  # of a session's first evaluation it is killed, at a random moment
_LATEST_S = 240.0  # where none comes: preparing large arrays takes its time


def cost(work: Sequence[str], seconds: float, folder: Path) -> dict[str, Any]:
    """One search, and what its records took."""
    command = [*_EXPLORE, "run", *work, "--time-limit", f"{seconds:g}s", "-o", str(folder), "-q"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the search ended with {done.returncode}: {done.stderr}")
    records = read_journal(folder / JOURNAL)
    (kept,) = (r for r in records if isinstance(r, KeptRecord))
    return {
        "seconds": kept.session_s,
        "evaluations": sum(isinstance(r, EvaluationRecord) for r in records),
        "records": len(records),
        "journal_bytes": (folder / JOURNAL).stat().st_size,
        "journal_s": kept.journal_s,
        "children": kept.tree_children,
        "tree_bytes": (folder / TREE).stat().st_size if (folder / TREE).exists() else 0,
        "tree_s": kept.tree_s,
    }


def killed(
    work: Sequence[str], n_kills: int, folder: Path, rng: random.Random
) -> list[dict[str, int]]:
    """Start, kill, look, resume, and so on; one row a kill."""
    executable = find_browser()
    command = ["run", *work, "--time-limit", "300s", "-o", str(folder), "-q"]
    seen: list[EvaluationRecord] = []
    rows: list[dict[str, int]] = []
    while len(rows) < n_kills:
        if not start_and_kill(command, folder, len(seen), rng.uniform(0.0, _WITHIN_S)):
            raise RuntimeError("the search ended before it was killed")
        now = finished(folder)
        lost = sum(a != b for a, b in zip(seen, now, strict=False)) + max(0, len(seen) - len(now))
        keys = [r.source_key for r in now]
        row = {
            "finished": len(now),
            "lost": lost,
            "repeated": len(keys) - len(set(keys)),
            "torn_best": is_torn(folder),
            "page": 0,
            "drawn": 0,
        }
        if (folder / HEADER).exists():
            (page,) = pages(folder)
            row["page"] = int(page.n_evaluations == len(now))
            row["drawn"] = int(executable is not None and is_drawn(executable, page.file))
            command = ["resume", str(folder), "--time-limit", "300s", "-q"]
        rows.append(row)
        print(f"{len(rows):>3}: {row}", flush=True)
        seen = now
    return rows


def start_and_kill(arguments: list[str], folder: Path, n_seen: int, after_s: float) -> bool:
    """Run a command line and kill it with signal 9 so many seconds after it has added to what was seen; whether it still ran."""
    running = subprocess.Popen(
        [*_EXPLORE, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    ends_s = time.monotonic() + _LATEST_S
    while len(finished(folder)) <= n_seen and time.monotonic() < ends_s and running.poll() is None:
        time.sleep(0.2)
    time.sleep(after_s)
    is_running = running.poll() is None
    running.kill()
    running.wait()
    return is_running


def is_drawn(executable: str, page: Path) -> bool:
    """Whether a browser draws the page without an error."""
    with Browser(executable) as browser:
        marks = browser.open(page, "drawnMs")
        return "error" not in marks and not browser.console


def report(found: dict[str, Any]) -> str:
    """Both tables as Markdown."""
    lines = ["# What keeping records costs", "", f"Search: `explore run {found['work']}`.", ""]
    if "cost" in found:
        c = found["cost"]
        per_child = c["tree_bytes"] / c["children"] if c["children"] else 0.0
        rows = [
            ["seconds", f"{c['seconds']:.1f}"],
            ["evaluations", str(c["evaluations"])],
            ["journal.jsonl, kB", f"{c['journal_bytes'] / 1e3:.0f}"],
            ["its records", str(c["records"])],
            ["its share of the time", f"{c['journal_s'] / c['seconds']:.2%}"],
            ["tree.jsonl, kB", f"{c['tree_bytes'] / 1e3:.1f}"],
            ["its children", str(c["children"])],
            ["bytes a child", f"{per_child:.1f}"],
            ["its share of the time", f"{c['tree_s'] / c['seconds']:.3%}"],
        ]
        lines += [stamp_text(found["cost_conditions"]), "", table(["", "value"], rows), ""]
    kills = found.get("kills", [])
    if kills:
        total = {
            k: sum(row[k] for row in kills)
            for k in ("lost", "repeated", "torn_best", "page", "drawn")
        }
        n_begun = sum(row["finished"] > 0 for row in kills)
        rows = [
            ["kills, with signal 9", str(len(kills))],
            ["of them after the first evaluation", str(n_begun)],
            ["finished evaluations lost", str(total["lost"])],
            ["evaluations made twice", str(total["repeated"])],
            ["torn files", str(total["torn_best"])],
            ["pages written of what was there", str(total["page"])],
            ["pages that a browser drew without an error", str(total["drawn"])],
        ]
        lines += [stamp_text(found["kill_conditions"]), "", table(["", "count"], rows), ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--kills-only", action="store_true")
    parser.add_argument("--work", default="gemver")
    parser.add_argument("--size", default="n=4096")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    work = (given.work, "--size", given.size, "--target", given.target)
    found = read_results("journal_cost", given.results)
    if found.get("work") != " ".join(work):
        found = {"work": " ".join(work)}
    with tempfile.TemporaryDirectory(prefix="kernelscape-journal-") as scratch:
        if not given.kills_only:
            found |= {
                "cost_conditions": stamp(),
                "cost": cost(work, given.seconds, Path(scratch) / "whole"),
            }
        if given.kills:
            earlier = found.get("kills", [])
            rng = random.Random(given.seed + len(earlier))
            rows = killed(work, given.kills, Path(scratch) / "killed", rng)
            found |= {"kill_conditions": stamp(), "kills": earlier + rows}
    write_results("journal_cost", report, found, given.results)
    return int(
        any(row["lost"] or row["repeated"] or row["torn_best"] for row in found.get("kills", []))
    )


if __name__ == "__main__":
    raise SystemExit(main())
