"""How fast is what the search finds on a GPU? The 11 sequences and three other kernels, beside cuBLAS and torch.compile.

    python -m kernelscape.experiments.gpu_table [--seconds 60] [--only bicgk matmul:n=1024] [--again]

calibrates the GPU, then makes the table row by row. Rows that are in the results already are kept unless --again is given, so that
the table can be made in pieces; no row begins that would not end within --minutes. Writes experiments/results/gpu_table.md after
every row. With --target emulator the same goes on without a GPU, slowly and beside nobody, into gpu_table_emulator. The exit
status is 1 when a goal is missed, 3 without a GPU. `experiments.gpu` makes this and all else that a GPU is asked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.workload import Options, Workload
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import FINAL, Failure, Protocol
from ..runtime.device import open_device
from ..runtime.worker.input_sets import InputSet, InputSets
from ..runtime.worker.worker import Worker, WorkerError
from ..search.bound.bounder import Bounder, Roofline
from ..space.targets.target import Target
from . import row
from .gpu_goals import all_jobs
from .gpu_peers import COPIES, PEERS, Asked, Peer, PeerError
from .gpu_stamp import gpu_machine, gpu_stamp, why_not
from .gpu_text import missed, report
from .measuring import failure_text, median, spread
from .question import Question, asked, options_of
from .row import Times
from .rows import Job, Row, Table, wanted_jobs
from .sampling import generator_hash
from .writing import time_text

MOST_S, LEAST_S = 120.0, 10.0  # of one search
_EXTRA_S = 35.0  # that a row takes beside its search, until rows have told
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
        "generator": generator_hash(),
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


def table_of(target: str, folder: Path | None = None) -> Table:
    """The rows that this machine has on a target."""
    file = QUESTION.file if target == "cuda" else f"{QUESTION.file}_{target}"
    return Table(file, QUESTION.order, report, folder, gpu_machine(target))


def make_table(
    table: Table,
    missing: Sequence[Job],
    options: GpuRowOptions,
    end_s: float,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Make rows that are missing before `end_s` of the monotonic clock, writing after each; all of the results."""
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

    return table.make(missing, make, QUESTION.say)


def _said(r: Row) -> str:
    ratio = r["over_cublas"]
    beside = "cuBLAS not timed" if ratio is None else f"{ratio:.2f} x cuBLAS"
    return f"{time_text(r['best_ns'])}, {beside}"


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
    parser.add_argument("--minutes", type=float, default=19.0, help="of everything")
    parser.add_argument("--target", choices=("cuda", "emulator"), default="cuda")
    given = parser.parse_args(arguments)
    if given.child:
        return QUESTION.run(parser, arguments)
    end_s = time.monotonic() + 60 * given.minutes
    absent = why_not(given.target)
    if absent:
        print(f"gpu_table: {absent}", file=sys.stderr)
        return 3
    wanted = wanted_jobs(parser, given.only, QUESTION.order)
    print(calibrate(given.target), flush=True)
    options = replace(options_of(parser, given, GpuRowOptions), target=given.target)
    kept = table_of(given.target, given.results)
    made = make_table(kept, kept.missing(wanted, given.again), options, end_s, given.seconds)
    there = {Job.of(r).key for r in made["rows"]}
    lines = missed(made) + [f"{job.key} is not made" for job in wanted if job.key not in there]
    print("\n".join(f"missed: {line}" for line in lines) or "no goal missed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
