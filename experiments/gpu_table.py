"""How fast is what the search finds on a GPU? The 11 sequences and three other kernels, beside cuBLAS and torch.compile.

    python -m kernelscape.experiments.gpu_table [--seconds 60] [--only bicgk matmul:n=1024] [--again]

runs the contract tests of the CUDA backend, calibrates the GPU, then makes the table row by row. Rows that are in the results
already are kept unless --again is given, so that the table can be made in pieces; no row begins that would not end within
--minutes. Writes experiments/results/gpu_table.md after every row. With --target emulator the same goes on without a
GPU, slowly and beside nobody, into gpu_table_emulator. The exit status is 1 when a goal is missed, 3 without a GPU.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from ..runtime.api.errors import DeviceError
from ..runtime.device import open_device, requirements
from ..runtime.measure.conditions import take_conditions
from ..runtime.worker.worker import WorkerError
from .gpu_goals import all_jobs
from .gpu_row import GpuRowOptions, make_row
from .gpu_text import missed, report
from .rows import Job, Row, Table, answer, table_parser, wanted_jobs
from .rows import run_row as row_of_child
from .writing import time_text

MOST_S, LEAST_S = 120.0, 10.0  # of one search
_EXTRA_S = 35.0  # that a row takes beside its search, until rows have told
_MARGIN_S = 400.0  # beyond which a row hangs
_TESTS = (
    "tests/contracts",
    *(f"tests/runtime/cuda/test_cuda{part}.py" for part in ("", "_build", "_calibration")),
)
_TESTS_S = 300.0


def search_s(
    left_s: float, n_rows: int, extra_s: Sequence[float], wanted_s: float | None = None
) -> float:
    """Seconds for the next search when `n_rows` are to be made in the time left: `wanted_s`, or as much as all of them can
    have. `extra_s` is what rows before took beside their searches. 0 when there is no time for a row.
    """
    extra = median(extra_s) if extra_s else _EXTRA_S
    if left_s < (LEAST_S if wanted_s is None else wanted_s) + extra:
        return 0.0
    return wanted_s or min(MOST_S, max(LEAST_S, left_s / n_rows - extra))


def run_tests() -> dict[str, Any]:
    """Runs the contract tests of the CUDA backend; what pytest says at its end."""
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_TESTS]
    started_s = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=_TESTS_S, check=False
        )
        said = (done.stdout.strip() or done.stderr.strip() or "no word").splitlines()
        code, failed = done.returncode, [x for x in said if x.startswith(("FAILED", "ERROR"))]
        said_last = said[-1]
    except subprocess.TimeoutExpired:
        code, failed, said_last = -1, [], f"no end within {_TESTS_S:.0f} s"
    return {
        "is_ok": code == 0,
        "said": said_last,
        "failed": failed[:20],
        "seconds": time.monotonic() - started_s,
    }


def calibrate(target: str) -> str:
    """Measures the facts that bounds rest on; what came out. Without them bounds are those of the data sheet."""
    try:
        found = open_device(target).machine.calibrate()
    except (DeviceError, WorkerError) as e:
        return f"not calibrated: {e}"
    t = found.target
    return (
        f"calibrated: memory moves {t.memory_mixed_bytes_per_ns:.0f} GB/s,"
        f" f32 computes {t.f32_flops_per_ns:.0f} GFLOP/s, a launch takes {t.launch_ns:.0f} ns"
    )


def run_row(job: Job, options: GpuRowOptions) -> Row:
    """The row, made in a child. A row that fails says why."""
    return row_of_child("gpu_table", job, options, 2 * options.seconds + _MARGIN_S)


def make_table(
    wanted: Sequence[Job],
    options: GpuRowOptions,
    again: bool,
    folder: Path | None,
    end_s: float,
    tests: dict[str, Any] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Make the rows that are missing before `end_s` of the monotonic clock, writing after each; all of the results."""
    file = "gpu_table" if options.target == "cuda" else f"gpu_table_{options.target}"
    accelerator = open_device(options.target).machine.accelerator()
    machine = take_conditions(accelerator=accelerator).machine
    results = Table(file, all_jobs(), report, folder, machine)
    missing = results.missing(wanted, again)
    left = len(missing)
    extra_s: list[float] = []

    def make(job: Job) -> Row | None:
        nonlocal left
        started_s = time.monotonic()
        budget_s = search_s(end_s - started_s, left, extra_s, seconds)
        if budget_s == 0:
            print(f"no time left for {left} rows: run this again", flush=True)
            return None
        row = run_row(job, replace(options, seconds=budget_s))
        extra_s.append(max(0.0, time.monotonic() - started_s - budget_s))
        left -= 1
        return row

    tests = tests or results.stored().get("tests")
    return results.make(missing, make, _said, tests=tests)


def _said(row: Row) -> str:
    ratio = row["over_cublas"]
    beside = "cuBLAS not timed" if ratio is None else f"{ratio:.2f} x cuBLAS"
    return f"{time_text(row['best_ns'])}, {beside}"


def why_not(target: str) -> str:
    """What is missing to make the table; "" for nothing."""
    try:
        open_device(target).runner.check()
    except DeviceError as e:
        return str(e)
    absent = [r for r in requirements(target) if r.found is None]
    return f"{absent[0].what} is missing: {absent[0].advice}" if absent else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...")
    parser.add_argument(
        "--seconds", type=float, help="of each search (default: what fits, at most 120)"
    )
    parser.add_argument("--minutes", type=float, default=19.0, help="of everything, tests included")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--budget-ms", type=float, default=60.0, help="of timing, a round and program"
    )
    parser.add_argument("--target", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--no-tests", action="store_true", help="do not run the contract tests")
    given = parser.parse_args(arguments)
    if given.child:
        return answer(given.child, GpuRowOptions, make_row)
    end_s = time.monotonic() + 60 * given.minutes
    absent = why_not(given.target)
    if absent:
        print(f"gpu_table: {absent}", file=sys.stderr)
        return 3
    wanted = wanted_jobs(parser, given.only, all_jobs())
    tests = None if given.no_tests or given.target != "cuda" else run_tests()
    if tests is not None:
        print(f"contract tests: {tests['said']}", *tests["failed"], sep="\n  ", flush=True)
    print(calibrate(given.target), flush=True)
    options = GpuRowOptions(
        target=given.target, rounds=given.rounds, seed=given.seed, budget_ms=given.budget_ms
    )
    made = make_table(wanted, options, given.again, given.results, end_s, tests, given.seconds)
    there = {Job.of(r).key for r in made["rows"]}
    lines = missed(made) + [f"{job.key} is not made" for job in wanted if job.key not in there]
    print("\n".join(f"missed: {line}" for line in lines) or "no goal missed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
