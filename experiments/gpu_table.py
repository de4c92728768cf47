"""How fast is what the search finds on a GPU? The 11 sequences and three other kernels, beside cuBLAS and torch.compile.

    python -m kernelscape.experiments.gpu_table [--seconds 60] [--only bicgk matmul:n=1024] [--again]

runs the contract tests of the CUDA backend, calibrates the GPU, then makes the table row by row. Rows that are in the results
already are kept unless --again is given, so that the table can be made in pieces; no row begins that would not end within
--minutes. Writes experiments/results/gpu_table.md after every row. With --target emulator the same goes on without a
GPU, slowly and beside nobody, into gpu_table_emulator. The exit status is 1 when a goal is missed, 3 without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.workload import Options, Workload
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import FINAL, Failure, Protocol
from ..runtime.device import open_device, requirements
from ..runtime.measure.conditions import take_conditions
from ..runtime.worker.input_sets import InputSet, InputSets
from ..runtime.worker.worker import Worker, WorkerError
from ..search.bound.bounder import Bounder, Roofline
from ..space.targets.target import Target
from . import row
from .conditions import stamp
from .gpu_goals import all_jobs
from .gpu_peers import COPIES, PEERS, Asked, Peer, PeerError
from .gpu_text import missed, report
from .measuring import failure_text, median, spread
from .question import Question, asked, options_of
from .row import Times
from .rows import Job, Row, Table, wanted_jobs
from .writing import time_text

MOST_S, LEAST_S = 120.0, 10.0  # of one search
_EXTRA_S = 35.0  # that a row takes beside its search, until rows have told
_TESTS = (
    "tests/contracts",
    "tests/explorer/test_device_executor.py",
    *(f"tests/runtime/cuda/test_cuda{part}.py" for part in ("", "_build", "_calibration")),
)
_TESTS_S = 300.0
_PACKAGES = (
    *("numba", "pycuda", "cupy-cuda13x", "cupy-cuda12x", "torch", "triton"),
    *("nvidia-cublas", "nvidia-cublas-cu12"),
)
_OPEN_S, _TIME_S = 180.0, 60.0  # for a library to start and compile; to time one program once
_SAMPLE_NS = 5e6  # the host's first launch, about 10 us, is a small share of it


@dataclass(frozen=True)
class GpuRowOptions:
    """Options of one row."""

    target: str = "cuda"
    seconds: float = 45.0  # of the search
    rounds: int = asked(7)
    seed: int = asked(1, least=0)
    budget_ms: float = asked(60.0, "of timed work, a round and program")
    evaluations: int | None = None  # end the search, too

    @property
    def protocol(self) -> Protocol:
        """How one competitor is timed in one round."""
        budget_ns = 1e6 * self.budget_ms
        return replace(FINAL, sample_ns=min(_SAMPLE_NS, budget_ns / 10), budget_ns=budget_ns)


def make_row(job: Job, options: GpuRowOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found or it no longer runs, DeviceError without a device."""
    started_s = time.monotonic()
    device = open_device(options.target)
    device.runner.check()
    told = Options(
        target=options.target,
        time_limit_s=options.seconds,
        max_evals=options.evaluations,
        seed=options.seed,
        store=False,
    )
    with ExitStack() as stack:
        copy_kind, copy_bytes = COPIES[options.target]
        peers = {k: stack.enter_context(Peer(k)) for k in (copy_kind, *PEERS[options.target])}
        workload = row.workload_of(job, options.seed)
        found, folder = stack.enter_context(row.searched(workload, told))
        for peer in peers.values():
            peer.begin(Asked(job.name, job.sizes, options.seed))
        artifacts = row.best_and_default(workload, device, folder)
        times, absent = _compare(workload, device, artifacts, peers, options)
    roof = Bounder(row.space_of(workload, device)).roofline()
    copies = [2 * copy_bytes / ns for ns in times.pop(f"{copy_kind} copy", [])]
    compared = summary(times)
    return {
        **found,
        **compared,
        **share(times["best"], copies, roof, device.machine.facts()),
        **row.beside_bound(found, compared["best_ns"]),
        "rounds_ns": times,
        "absent": absent,
        "made_s": time.monotonic() - started_s,
        "stamp": gpu_stamp(options.target),
    }


def _compare(
    workload: Workload,
    device: AbstractDevice,
    artifacts: Sequence[Artifact],
    peers: Mapping[str, Peer],
    options: GpuRowOptions,
) -> tuple[Times, dict[str, str]]:
    """Times, and which competitors have none and why. Best and default alternate sample by sample."""
    absent: dict[str, str] = {}
    with Worker(device) as ours:
        ours.prepare(_unverified(workload))
        runners: dict[str, Callable[[], dict[str, float]]] = {
            "ours": lambda: _ours(ours.interleave(artifacts, options.protocol), absent)
        }
        for kind, peer in peers.items():
            try:
                programs = peer.opened(_OPEN_S)
            except PeerError as e:
                absent[kind] = str(e)
                continue
            for program, why in programs.items():
                key = f"{kind} {program}"
                if why:
                    absent[key] = why
                else:
                    runners[key] = _timed(peer, program, key, options.protocol)
        times = row.in_turn(runners, options.rounds, absent, excused=(PeerError,))
    return times, absent


def _timed(
    peer: Peer, program: str, key: str, protocol: Protocol
) -> Callable[[], dict[str, float]]:
    """Times a program of another library."""
    return lambda: {key: peer.time(program, protocol, _TIME_S).time_ns}


def _ours(outcomes: list[Any], absent: dict[str, str]) -> dict[str, float]:
    """Times of best and default. The best must run, the default may be too slow for its deadline."""
    times = {}
    for key, outcome in zip(("best", "default"), outcomes, strict=True):
        if not isinstance(outcome, Failure):
            times[key] = outcome.time_ns
        elif key == "best":
            raise RuntimeError(failure_text(outcome))
        else:
            absent[key] = f"{outcome.kind}: {outcome.advice}"
    return times


def _unverified(workload: Workload) -> InputSets:
    """The arguments that the search timed on. Both texts were verified there: the float64 reference is not made again."""
    given = workload.arguments
    roles = {p.name: workload.problem.array(p.name).role for p in workload.recording.arrays}
    arrays = {name: given.arrays[name] for name in roles}
    return InputSets(roles, (InputSet(arrays, dict(given.scalars), {}),))


def summary(times: Times) -> dict[str, Any]:
    """Medians over rounds, and ratios to the best, formed inside each round. The cuBLAS sequence is that of the library
    whose calls are faster.
    """
    best = np.array(times["best"])
    calls = [k for k in times if k.endswith(" calls")]
    fastest = min(calls, key=lambda k: median(times[k]), default=None)
    values: dict[str, Any] = {
        "best_ns": median(best),
        "best_spread": spread(best),
        "cublas_by": "" if fastest is None else fastest.split()[0],
    }
    for column, key in (
        ("default", "default"),
        ("cublas", fastest),
        ("compiled", "torch compiled"),
    ):
        theirs = times.get(key or "", [])
        whole = len(theirs) == len(best)  # in every round
        ratios = np.array(theirs) / best if whole else None
        values[f"{column}_ns"] = median(theirs) if whole else None
        values |= row.with_spread(f"over_{column}", ratios)
    return values


def share(
    best_ns: list[float], copies: list[float], roof: Roofline, target: Target
) -> dict[str, Any]:
    """What is moved and computed, and the share of what limits it: the copy rate of the same round, where there is one,
    or the FP32 rate.

    Bytes are the compulsory ones: every argument counts once, however often an implementation reads it.
    """
    is_computed = (
        roof.flops / target.f32_flops_per_ns > roof.total_bytes / target.memory_mixed_bytes_per_ns
    )
    shares = None
    if is_computed:
        shares = roof.flops / np.array(best_ns) / target.f32_flops_per_ns
    elif len(copies) == len(best_ns):
        shares = roof.total_bytes / np.array(best_ns) / np.array(copies)
    return {
        "bytes": roof.total_bytes,
        "flops": roof.flops,
        "is_computed": is_computed,
        "f32_flops_per_ns": target.f32_flops_per_ns,
        "is_calibrated": target.calibrated,
        "copy_bytes_per_ns": median(copies) if copies else None,
        "copy_spread": spread(np.array(copies)) if copies else None,
        **row.with_spread("share", shares),
    }


def gpu_stamp(target: str) -> dict[str, Any]:
    """The host's stamp with what the backend found, the driver, and the libraries."""
    taken = stamp()
    taken["device"] = {r.what: r.found for r in requirements(target)} | _driver()
    for package in _PACKAGES:
        try:
            taken["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    return taken


def _driver() -> dict[str, str]:
    """Version and highest clocks, as NVIDIA's own tool tells them; {} where there is none."""
    what = ("driver_version", "clocks.max.sm", "clocks.max.memory", "power.limit")
    command = ["nvidia-smi", f"--query-gpu={','.join(what)}", "--format=csv,noheader", "--id=0"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = done.stdout.strip().split(", ") if done.returncode == 0 else []
    return dict(zip(what, values, strict=True)) if len(values) == len(what) else {}


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
    file = QUESTION.file if options.target == "cuda" else f"{QUESTION.file}_{options.target}"
    accelerator = open_device(options.target).machine.accelerator()
    machine = take_conditions(accelerator=accelerator).machine
    results = Table(file, QUESTION.order, report, folder, machine)
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
        made = QUESTION.child(job, replace(options, seconds=budget_s))
        extra_s.append(max(0.0, time.monotonic() - started_s - budget_s))
        left -= 1
        return made

    tests = tests or results.stored().get("tests")
    return results.make(missing, make, QUESTION.say, tests=tests)


def _said(r: Row) -> str:
    ratio = r["over_cublas"]
    beside = "cuBLAS not timed" if ratio is None else f"{ratio:.2f} x cuBLAS"
    return f"{time_text(r['best_ns'])}, {beside}"


def why_not(target: str) -> str:
    """What is missing to make the table; "" for nothing."""
    try:
        open_device(target).runner.check()
    except DeviceError as e:
        return str(e)
    absent = [r for r in requirements(target) if r.found is None]
    return f"{absent[0].what} is missing: {absent[0].advice}" if absent else ""


QUESTION = Question(
    file="gpu_table",
    doc=__doc__,
    order=all_jobs(),
    options=GpuRowOptions,
    make=make_row,
    limit_s=lambda job, options: 2 * options.seconds + 400.0,
    report=report,
    say=_said,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = QUESTION.parser()
    parser.add_argument(
        "--seconds", type=float, help="of each search (default: what fits, at most 120)"
    )
    parser.add_argument("--minutes", type=float, default=19.0, help="of everything, tests included")
    parser.add_argument("--target", choices=("cuda", "emulator"), default="cuda")
    parser.add_argument("--no-tests", action="store_true", help="do not run the contract tests")
    given = parser.parse_args(arguments)
    if given.child:
        return QUESTION.run(parser, arguments)
    end_s = time.monotonic() + 60 * given.minutes
    absent = why_not(given.target)
    if absent:
        print(f"gpu_table: {absent}", file=sys.stderr)
        return 3
    wanted = wanted_jobs(parser, given.only, QUESTION.order)
    tests = None if given.no_tests or given.target != "cuda" else run_tests()
    if tests is not None:
        print(f"contract tests: {tests['said']}", *tests["failed"], sep="\n  ", flush=True)
    print(calibrate(given.target), flush=True)
    options = replace(options_of(parser, given, GpuRowOptions), target=given.target)
    made = make_table(wanted, options, given.again, given.results, end_s, tests, given.seconds)
    there = {Job.of(r).key for r in made["rows"]}
    lines = missed(made) + [f"{job.key} is not made" for job in wanted if job.key not in there]
    print("\n".join(f"missed: {line}" for line in lines) or "no goal missed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
