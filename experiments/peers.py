"""Is what the search finds level with expert C, and ahead of every library? One table, at the sizes of the bars.

    python -m kernelscape.experiments.peers [--seconds 60] [--only bicgk gemver:n=4096:f64] [--again] [--quick]

Rows that are in the results already are kept unless --again is given, so that the table can be made in pieces; --quick makes small
rows with short searches, to see that everything works, and writes to a folder of its own unless one is given. Writes
experiments/results/peers.md after every row. The exit status is 1 when a bar is missed. Libraries that are not installed
are left out: pip install '.[peers]' has them all.

Everything timed runs in children that are fresh for the row: one for each compiler (the expert's C uses OpenMP, and two such
libraries in one process would hold each other's cores), where ours and the expert's alternate sample by sample, and one for each
library, so that no library's threads inherit the binding of another's.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.text.source import Source
from ..explorer.workload import Options, Workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import FINAL, Protocol
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.probe import calibrate
from ..runtime.records.replay import dialect_of, rebuild
from ..runtime.worker.channel import available_cores
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.worker import Worker, WorkerOptions
from . import row
from .conditions import stamp
from .expert import VARIANTS, can_build, expert_source, names
from .measuring import built, median, spread, time_ns
from .peers_bars import COMPILERS, LIBRARIES, UNSTRIDED, Library, missed_bars, report, verdict
from .question import Question, asked
from .row import Times
from .rows import Job, Row

DTYPES = ("f32", "f64")
_UNSTRIDED_OF = {"matmul_strided": "matmul"}
_LIBRARY_S = 180.0  # for the first call, which compiles
# Of private memory: compilers inside libraries reserve much and use little.
_LIBRARY_BYTES = 16 << 30

# Of sequences with so many sizes, and of some that differ.
Extents = tuple[tuple[int, ...], ...]
_F32: dict[int, Extents] = {
    1: ((2**26,), (2**20,), (2**15,), (1009 * 1013,)),
    2: ((8192, 8192), (4096, 4096), (1024, 1024), (256, 256), (1009, 4093)),
    3: ((256, 256, 32), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 999, 1001)),
}
_F32_OF: dict[str, Extents] = {
    "madd": ((8192, 8192), (1024, 1024), (256, 256), (1009, 1013)),
    "matmul_strided": ((1024, 1024, 1024),),
}
_F64: dict[int, Extents] = {1: ((2**25,),), 2: ((4096, 4096),), 3: ((1024, 1024, 1024),)}
_QUICK = ("axpydot:n=2^15", "gemver:n=256", "sgemvt:n=256:f64", "matmul:m=256,n=256,k=32")


def all_jobs() -> list[Job]:
    """The whole table, small sizes first: a mistake shows early."""
    jobs = [
        Job(name, sizes, dtype)
        for name in names()
        for dtype in DTYPES
        for sizes in _sizes(name, dtype)
    ]
    return sorted(jobs, key=lambda job: job.volume)


def _sizes(name: str, dtype: str) -> list[dict[str, int]]:
    keys = tuple(load(name).sizes)
    single = _F32_OF.get(name, _F32[len(keys)])
    extents = single if dtype == "f32" else _F64[len(keys)]
    return [dict(zip(keys, e, strict=True)) for e in extents]


@dataclass(frozen=True)
class PeerOptions:
    """Options of one row."""

    seconds: float = asked(60.0, "of each search (3 when quick)")
    rounds: int = asked(7, "of the comparison (2 when quick)")
    seed: int = asked(1, least=0)
    budget_ms: float = asked(150.0, "of timed work, a competitor and round (20 when quick)")
    calibrate: bool = asked(True)
    evaluations: int | None = None  # end the search, too


def make_row(job: Job, options: PeerOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found or an expert program fails."""
    devices = usable_devices()
    first = next(iter(devices.values()))
    if options.calibrate:
        calibrate(first)
    workload = row.workload_of(job, options.seed)
    found, _, ours = _search(workload, devices, options)
    input_sets = row.inputs_of(workload, options.seed)
    protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
    quick = replace(protocol, budget_ns=min(3e7, protocol.budget_ns))
    chosen = {
        key: choose(device, workload, input_sets, ours, quick) for key, device in devices.items()
    }
    beside = {}
    if job.name in _UNSTRIDED_OF:
        plain = row.workload_of(job._replace(name=_UNSTRIDED_OF[job.name]), options.seed)
        _, device, source = _search(plain, devices, options)
        unstrided = Beside(device, row.inputs_of(plain, options.seed), built(device, source))
        beside[UNSTRIDED] = unstrided
    times, absent, memory = _compare(
        workload, devices, input_sets, chosen, beside, protocol, options.rounds
    )
    return {
        "search": found,
        "variants": {key: c.variant for key, c in chosen.items()},
        "variants_ns": {key: c.times_ns for key, c in chosen.items()},
        "compilers": {key: d.builder.compiler.version for key, d in devices.items()},
        "versions": {x.package: version(x.package) for x in LIBRARIES if x.key not in absent},
        "level": row.level_name(workload, first),
        "rounds_ns": times,
        "absent": absent,
        "memory": memory,
        "stamp": stamp(first, median(memory)),
        **summary(times),
    }


def usable_devices() -> dict[str, CpuDevice]:
    """The CPU with each compiler that builds the expert programs here, by its name. Raises DeviceError without any."""
    devices: dict[str, CpuDevice] = {}
    for compiler in filter(can_build, COMPILERS):
        device = row.cpu(compiler=compiler)
        try:
            _ = device.builder.compiler
        except DeviceError:
            continue
        devices[compiler] = device
    if not devices:
        raise DeviceError("none of " + ", ".join(COMPILERS) + " works here: apt install gcc")
    return devices


def _search(
    workload: Workload, devices: dict[str, CpuDevice], options: PeerOptions
) -> tuple[dict[str, Any], CpuDevice, Source]:
    """Explore; what came out of it, with the compiler that did best, its device, and the source of the best."""
    told = Options(
        time_limit_s=options.seconds, max_evals=options.evaluations, seed=options.seed, store=False
    )
    with row.explored(workload, told) as (run, _):
        ended, best = run.ended, run.best
    assert best is not None
    compiler, device = built_by(best.file.conditions.compiler, devices)
    source = rebuild(best.file, device.machine.facts(), dialect_of(device)).source
    facts = {
        "compiler": compiler,
        "status": ended.status,
        "best_ns": best.file.time_ns,
        "bound_ns": ended.bound_ns,
        "evaluations": ended.evaluations,
        "elapsed_s": ended.elapsed_s,
        "decisions": best.file.decisions,
    }
    return facts, device, source


def built_by(compiler: str, devices: Mapping[str, CpuDevice]) -> tuple[str, CpuDevice]:
    """The compiler of that version and its device: one of `devices`, or a compiler that builds no expert program here (clang
    without OpenMP), which the search uses all the same.
    """
    others = ((key, row.cpu(compiler=key)) for key in COMPILERS if key not in devices)
    for key, device in chain(devices.items(), others):
        try:
            if device.reporter.version() == compiler:
                return key, device
        except DeviceError:
            continue
    raise RuntimeError(f"the best was built by {compiler!r}, which is not here")


@dataclass(frozen=True)
class Beside:
    """What was found for another problem."""

    device: CpuDevice
    input_sets: InputSets
    artifact: Artifact


@dataclass(frozen=True)
class Chosen:
    """Ours and the fastest of the expert's variants, built with one compiler."""

    ours: Artifact
    expert: Artifact
    variant: str
    times_ns: dict[str, float]  # by variant


def choose(
    device: CpuDevice, workload: Workload, input_sets: InputSets, ours: Source, protocol: Protocol
) -> Chosen:
    """Build and verify both; of the expert's variants the one that is fastest here, timed in turn."""
    name, sizes = workload.sequence, workload.sizes
    sources = {
        v: expert_source(workload.recording, sizes, v, available_cores())
        for v in ("", *VARIANTS[name])
    }
    variants = list(sources)
    theirs = device.with_all_passes()
    artifacts = [built(device, ours), *(built(theirs, s) for s in sources.values())]
    with Worker(device) as worker:
        worker.prepare(input_sets)
        for artifact in artifacts:
            time_ns(worker.evaluate(artifact, replace(protocol, max_samples=3)))
        timed = [time_ns(x) for x in worker.interleave(artifacts[1:], protocol)]
    times_ns = dict(zip(variants, timed, strict=True))
    variant = min(times_ns, key=lambda v: times_ns[v])
    return Chosen(artifacts[0], artifacts[1 + variants.index(variant)], variant, times_ns)


def _compare(
    workload: Workload,
    devices: Mapping[str, CpuDevice],
    input_sets: InputSets,
    chosen: Mapping[str, Chosen],
    beside: Mapping[str, Beside],
    protocol: Protocol,
    n_rounds: int,
) -> tuple[Times, dict[str, str], list[float]]:
    """Times, which libraries are absent and why, and the rate of memory in each round."""
    unverified = replace(input_sets, sets=(replace(input_sets.sets[0], expected={}),))
    absent: dict[str, str] = {}
    runners: dict[str, Callable[[], dict[str, float]]] = {}
    memory: list[float] = []
    with ExitStack() as stack:

        def worker_of(
            device: CpuDevice, inputs: InputSets, options: WorkerOptions | None = None
        ) -> Worker:
            worker = stack.enter_context(Worker(device, options or WorkerOptions()))
            assert isinstance(worker, Worker)
            worker.prepare(inputs)
            return worker

        workers = {key: worker_of(device, unverified) for key, device in devices.items()}
        for key, worker in workers.items():
            both = {f"ours {key}": chosen[key].ours, f"expert {key}": chosen[key].expert}
            runners[key] = _alternating(worker, both, protocol)
        for key, other in beside.items():
            worker = worker_of(other.device, other.input_sets)
            time_ns(worker.evaluate(other.artifact, replace(protocol, max_samples=3)))  # verified
            runners[key] = _alternating(worker, {key: other.artifact}, protocol)
        first = next(iter(workers))
        for library in LIBRARIES:
            if importlib.util.find_spec(library.package) is None:
                absent[library.key] = f"{library.package} is not installed"
                continue
            settings = WorkerOptions(
                runs_candidates=False,
                environment=library.environment(available_cores()),
                memory_bytes=_LIBRARY_BYTES,
                run_timeout_s=_LIBRARY_S,
            )
            worker = worker_of(devices[first], unverified, settings)
            runner = _foreign(worker, library, workload, protocol)
            try:
                runner()  # compiles, starts threads, touches memory
            except RuntimeError as e:
                absent[library.key] = str(e).splitlines()[0]
            else:
                runners[library.key] = runner
        probe = workers[first].probe
        times = row.in_turn(runners, n_rounds, absent, before=lambda: memory.append(probe()))
    return times, absent, memory


def _alternating(
    worker: Worker, artifacts: Mapping[str, Artifact], protocol: Protocol
) -> Callable[[], dict[str, float]]:
    """Times artifacts of ours, sample by sample in turn."""

    def run() -> dict[str, float]:
        outcomes = worker.interleave(list(artifacts.values()), protocol)
        return {key: time_ns(x) for key, x in zip(artifacts, outcomes, strict=True)}

    return run


def _foreign(
    worker: Worker, library: Library, workload: Workload, protocol: Protocol
) -> Callable[[], dict[str, float]]:
    """Times the function of a library: of a module of ours that uses it, or the reference of the sequence."""
    assert workload.reference is not None
    module, attribute = workload.reference
    if library.module is not None:
        module = f"{__package__}.libraries.{library.module}"
        attribute = f"peers.{workload.sequence}"
    return lambda: {library.key: time_ns(worker.time_function(module, attribute, protocol))}


def summary(times: Times) -> dict[str, Any]:
    """The expert of the row (of the faster compiler), and all medians and ratios to it, formed inside each round."""
    experts = [key for key in times if key.startswith("expert ")]
    expert = min(experts, key=lambda key: median(times[key]))
    base = np.array(times[expert])
    ratios = {key: np.array(ns) / base for key, ns in times.items()}
    return {
        "expert": expert,
        "median_ns": {key: median(ns) for key, ns in times.items()},
        "spread": {key: spread(ns) for key, ns in times.items()},
        "ratio": {key: median(r) for key, r in ratios.items()},
        "ratio_spread": {key: spread(r) for key, r in ratios.items()},
    }


QUESTION = Question(
    file="peers",
    doc=__doc__,
    order=all_jobs(),
    options=PeerOptions,
    make=make_row,
    # Libraries compile, and arrays of the largest size are copied to every child.
    limit_s=lambda job, options: 4 * options.seconds + 900.0,
    report=report,
    say=lambda r: f"{verdict(r)}, expert {r['expert']}",
    missed=missed_bars,
    dtypes=DTYPES,
    works={name: load(name) for name in names()},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = QUESTION.parser()
    parser.add_argument("--quick", action="store_true", help="small rows, short searches")
    given = parser.parse_args(arguments)
    if given.quick:
        parser.set_defaults(seconds=3.0, rounds=2, budget_ms=20.0, calibrate=False, only=_QUICK)
        if given.results is None:
            parser.set_defaults(results=Path(tempfile.mkdtemp(prefix="kernelscape-peers-")))
    return QUESTION.run(parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
