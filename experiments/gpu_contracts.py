"""Do the contract tests of the CUDA backend pass on this GPU?

    python -m kernelscape.experiments.gpu_contracts [--minutes 5] [--again]

They are not run again where they have passed with the same sources. Writes experiments/results/gpu_contracts.md. The exit status
is 1 when one fails, 3 without a GPU.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .commands import run_whole
from .gpu_stamp import device_text, gpu_machine, gpu_stamp, why_not
from .sampling import backend_hash
from .writing import parser_of, read_results, write_results

FILE = "gpu_contracts"
TESTS = (
    "tests/contracts",
    "tests/explorer/test_device_executor.py",
    *(f"tests/runtime/cuda/test_cuda{part}.py" for part in ("", "_build", "_calibration")),
)
_MOST_SAID = 20
_VERDICT = re.compile(r"\d+ (passed|failed|errors?|skipped)\b")


def run_tests(limit_s: float, tests: Sequence[str] = TESTS) -> dict[str, Any]:
    """Runs the tests; returns pytest's verdict and the tests that failed, as JSON values."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
    started_s = time.monotonic()
    ended = run_whole(command, limit_s, root)
    lines = (ended.output.strip() or ended.errors.strip() or "no word").splitlines()
    verdict = next((x for x in reversed(lines) if _VERDICT.search(x)), lines[-1]).strip()
    if ended.status is None:
        verdict = f"no end within {limit_s:.0f} s"
    return {
        "is_ok": ended.status == 0 and "passed" in verdict,
        "said": verdict,
        "failed": [x for x in lines if x.startswith(("FAILED", "ERROR"))][:_MOST_SAID],
        "seconds": time.monotonic() - started_s,
        "sources": backend_hash(),
    }


def report(values: dict[str, Any]) -> str:
    """The result of the tests as Markdown."""
    verdict = "All pass." if values["is_ok"] else "**Some fail.**"
    lines = [f"- {line}" for line in values["failed"]]
    said = f"{verdict} pytest says: {values['said']} ({values['seconds']:.0f} s)."
    parts = ["# Contract tests of the CUDA backend", "", device_text(values["stamp"]), "", said]
    return "\n".join([*parts, *(["", *lines] if lines else []), ""])


def is_passed(folder: Path | None = None) -> bool:
    """Returns whether the tests have passed on this machine with the sources as they are."""
    kept = read_results(FILE, folder, gpu_machine("cuda"))
    return bool(kept) and kept["is_ok"] and kept["sources"] == backend_hash()


def make(limit_s: float, folder: Path | None = None) -> list[str]:
    """Runs the tests and writes the page; sentences on those that failed."""
    values = run_tests(limit_s) | {"stamp": gpu_stamp("cuda")}
    write_results(FILE, report, values, folder, gpu_machine("cuda"))
    return [] if values["is_ok"] else [f"contract tests: {values['said']}", *values["failed"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="after which they are ended")
    parser.add_argument("--again", action="store_true", help="also where they have passed")
    given = parser.parse_args(arguments)
    if absent := why_not("cuda"):
        print(f"{FILE}: {absent}", file=sys.stderr)
        return 3
    if is_passed(given.results) and not given.again:
        print("the contract tests have passed with these sources")
        return 0
    failed = make(60 * given.minutes, given.results)
    print("\n".join(failed) or "the contract tests pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
