"""Does compute-sanitizer find an access out of bounds, or a race, in random candidates?

    python -m kernelscape.experiments.gpu_sanitizer [--n 200] [--tool memcheck] [--minutes 5]

The candidates are of the bodies of `experiments.random_bodies --way cuda`, run under NVIDIA's tool (memcheck, racecheck,
synccheck), which comes with the CUDA toolkit. Writes experiments/results/gpu_sanitizer.md. The exit status is 1 when it finds
something, 3 without a GPU or the tool.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import random_bodies
from .commands import Ended, run_whole
from .gpu_stamp import device_text, gpu_machine, gpu_stamp, why_not
from .sampling import generator_hash
from .writing import parser_of, read_results, write_results

FILE = "gpu_sanitizer"
BODIES = random_bodies.FILE
TOOLS = ("memcheck", "racecheck", "synccheck")
_PROGRAM = "compute-sanitizer"
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
_MOST_SAID, _GRACE_S = 20, 20.0


def absent() -> str:
    """Returns what is missing, "" for nothing."""
    if why := why_not("cuda"):
        return why
    if shutil.which(_PROGRAM) is None:
        return f"{_PROGRAM} is missing: put the bin folder of a CUDA toolkit in PATH"
    return ""


def run(
    n: int, tool: str, limit_s: float, before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Runs `n` bodies under a tool, or as many as there is time for; returns its findings as JSON values.

    It goes on behind what it found `before`, with the same sources.
    """
    known = before or {"checked": {}, "errors": 0, "said": [], "seconds": 0.0}
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelscape-sanitizer-") as name:
        scratch = Path(name)
        log = scratch / "log.%p"
        asked = ("--way", "cuda", "--n", str(n), "--seconds", str(max(1.0, limit_s - _GRACE_S)))
        command = [
            *(_PROGRAM, "--tool", tool, "--target-processes", "all", "--log-file", str(log)),
            *(sys.executable, "-m", f"{__package__}.{BODIES}", *asked, "--results", name),
        ]
        if known["checked"]:
            write_results(BODIES, random_bodies.report, known["checked"], scratch)
        ended = _why(run_whole(command, limit_s), limit_s)
        checked = read_results(BODIES, scratch)
        pieces = checked.get("pieces", [])
        said = [path.read_text(errors="replace") for path in sorted(scratch.glob("log.*"))]
    found = [int(k) for text in said for k in _SUMMARY.findall(text)]
    lines = [
        x for text in said for x in text.splitlines() if "=========" in x and "SUMMARY" not in x
    ]
    return {
        "tool": tool,
        "bodies": sum(p["bodies"] for p in pieces),
        "wrong": [f"{k}: {what}" for p in pieces for k, what in p["wrong"].items()][:_MOST_SAID],
        "checked": checked,
        "errors": known["errors"] + sum(found),
        "said": [*known["said"], *(x.replace("=", "").strip() for x in lines if sum(found))][
            :_MOST_SAID
        ],
        "is_heard": bool(found),  # else the tool has said nothing, and nothing was checked
        "ended": ended,
        "seconds": known["seconds"] + time.monotonic() - started_s,
        "sources": generator_hash(),
    }


def _why(ended: Ended, limit_s: float) -> str:
    """Returns why a run did not end by itself with all bodies right or some wrong; "" where it did."""
    if ended.status is None:
        return f"no end within {limit_s:.0f} s"
    return "" if ended.status in (0, 1) else (ended.errors.strip().splitlines() or ["no word"])[-1]


def missed(found: dict[str, Any]) -> list[str]:
    """Returns a sentence for each finding."""
    lines = [f"{found['tool']} found {found['errors']} errors"] if found["errors"] else []
    lines += [f"a wrong body under {found['tool']}: {what}" for what in found["wrong"]]
    if not found["is_heard"]:
        lines.append(f"{found['tool']} said nothing: {found['ended'] or 'no summary in its log'}")
    return lines


def report(values: dict[str, Any]) -> str:
    """The findings of each tool as Markdown."""
    parts = ["# Random candidates under compute-sanitizer", "", device_text(values["stamp"]), ""]
    for found in values["found"].values():
        parts.append(
            f"- {found['tool']}: {found['bodies']} bodies, {found['errors']} errors,"
            f" {len(found['wrong'])} wrong ({found['seconds']:.0f} s, sources {found['sources']})"
        )
        parts += [f"  - {line}" for line in (*missed(found), *found["said"])]
    return "\n".join(parts) + "\n"


def is_done(n: int, tool: str, folder: Path | None = None) -> bool:
    """Returns whether so many bodies of these sources were checked, and nothing was found."""
    found = read_results(FILE, folder, gpu_machine("cuda")).get("found", {}).get(tool)
    return bool(found) and (
        found["sources"] == generator_hash() and found["bodies"] >= n and not missed(found)
    )


def make(n: int, tool: str, limit_s: float, folder: Path | None = None) -> list[str]:
    """Runs a tool and writes the page; returns a sentence for each finding, and for bodies that are left."""
    machine = gpu_machine("cuda")
    kept = read_results(FILE, folder, machine).get("found", {})
    before = kept.get(tool)
    found = run(
        n, tool, limit_s, before if before and before["sources"] == generator_hash() else None
    )
    values = {"found": kept | {tool: found}, "stamp": gpu_stamp("cuda")}
    write_results(FILE, report, values, folder, machine)
    few = [f"only {found['bodies']} of {n} bodies were sanitized"] if found["bodies"] < n else []
    return missed(found) + few


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=200, help="bodies")
    parser.add_argument("--tool", choices=TOOLS, default=TOOLS[0])
    parser.add_argument("--minutes", type=float, default=5.0, help="after which it is ended")
    given = parser.parse_args(arguments)
    if min(given.n, given.minutes) <= 0:
        parser.error("--n and --minutes must be positive")
    if why := absent():
        print(f"{FILE}: {why}", file=sys.stderr)
        return 3
    lines = make(given.n, given.tool, 60 * given.minutes, given.results)
    print("\n".join(lines) or "nothing was found")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
