"""One row of the comparison with peers: what a search finds, expert C and other libraries, in turn at the same moments.

Run by peers in a process of its own. Everything timed runs in children that are fresh for the row: one for each compiler (the
expert's C uses OpenMP, and two such libraries in one process would hold each other's cores), where ours and the expert's alternate
sample by sample, and one for each library, so that no library's threads inherit the binding of another's.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.text.source import Source
from ..explorer.entry import explore_workload, library_workload
from ..explorer.workload import Options, Workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.errors import DeviceError
from ..runtime.api.outcome import FINAL, Protocol
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.probe import calibrate
from ..runtime.device import DeviceOptions, open_device
from ..runtime.records.replay import dialect_of, rebuild
from ..runtime.worker.channel import available_cores
from ..runtime.worker.input_sets import InputSets
from ..runtime.worker.inputs import make_input_sets
from ..runtime.worker.worker import Worker, WorkerOptions
from .conditions import stamp
from .expert import VARIANTS, can_build, expert_source
from .measuring import built, level_of, median, spread, time_ns
from .peers_bars import UNSTRIDED
from .rows import Job, Row

COMPILERS = ("gcc", "clang")
_UNSTRIDED_OF = {"matmul_strided": "matmul"}
_LIBRARY_S = 180.0  # for the first call, which compiles
_LIBRARY_BYTES = (
    16 << 30
)  # of private memory: compilers inside libraries reserve much and use little


@dataclass(frozen=True)
class PeerOptions:
    """Options of one row."""

    seconds: float = 60.0  # of the search
    rounds: int = 7
    seed: int = 1
    budget_ms: float = 150.0  # of timed work for each competitor in each round
    calibrate: bool = True
    evaluations: int | None = None  # end the search, too


@dataclass(frozen=True)
class Library:
    """A library to compare with: the package that must be there, and the module of ours that uses it (None: the reference of the
    library sequence). `is_bound` says whether its threads are OpenMP's and are bound to cores.
    """

    key: str
    heading: str
    package: str
    module: str | None
    is_bound: bool

    def environment(self, n_threads: int) -> tuple[tuple[str, str], ...]:
        """Every setting that decides how its threads run."""
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        bound = (("OMP_PROC_BIND", "true"), ("NUMBA_THREADING_LAYER", "omp"))
        return (*((name, str(n_threads)) for name in names), *(bound if self.is_bound else ()))


LIBRARIES = (
    Library("numpy", "NumPy", "numpy", None, False),
    Library("numpy_out", "NumPy out=", "numpy", "numpy_out", False),
    Library("numba", "numba fused", "numba", "numba_fused", True),
    Library("torch", "torch.compile", "torch", "torch_compiled", True),
    Library("jax", "jax.jit", "jax", "jax_jit", False),
)

Times = dict[str, list[float]]
"""Nanoseconds of each round, by competitor: "ours gcc", "expert clang", "numpy", ..."""


def make_row(job: Job, options: PeerOptions) -> Row:
    """What is found for a row. Raises RuntimeError where nothing was found or an expert program fails."""
    devices = usable_devices()
    first = next(iter(devices.values()))
    if options.calibrate:
        calibrate(first)
    workload = library_workload(load(job.name), job.sizes, job.dtype, options.seed)
    found, _, ours = _search(workload, devices, options)
    input_sets = _input_sets(workload, options)
    protocol = replace(FINAL, budget_ns=1e6 * options.budget_ms)
    chosen = {
        key: choose(
            device,
            workload,
            input_sets,
            ours,
            replace(protocol, budget_ns=min(3e7, protocol.budget_ns)),
        )
        for key, device in devices.items()
    }
    beside = {}
    if job.name in _UNSTRIDED_OF:
        plain = library_workload(load(_UNSTRIDED_OF[job.name]), job.sizes, job.dtype, options.seed)
        _, device, source = _search(plain, devices, options)
        beside[UNSTRIDED] = Beside(device, _input_sets(plain, options), built(device, source))
    times, absent, memory = _compare(
        workload, devices, input_sets, chosen, beside, protocol, options.rounds
    )
    level = level_of(workload.problem, first.machine.facts())
    return {
        "search": found,
        "variants": {key: c.variant for key, c in chosen.items()},
        "variants_ns": {key: c.times_ns for key, c in chosen.items()},
        "compilers": {key: d.builder.compiler.version for key, d in devices.items()},
        "versions": {x.package: version(x.package) for x in LIBRARIES if x.key not in absent},
        "level": "memory" if level is None else level.name,
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
        device = _device(compiler)
        try:
            _ = device.builder.compiler
        except DeviceError:
            continue
        devices[compiler] = device
    if not devices:
        raise DeviceError("none of " + ", ".join(COMPILERS) + " works here: apt install gcc")
    return devices


def _device(compiler: str) -> CpuDevice:
    device = open_device("cpu", DeviceOptions(compiler=compiler))
    assert isinstance(device, CpuDevice)
    return device


def _input_sets(workload: Workload, options: PeerOptions) -> InputSets:
    rng = np.random.default_rng(options.seed)
    return make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)


def _search(
    workload: Workload, devices: dict[str, CpuDevice], options: PeerOptions
) -> tuple[dict[str, Any], CpuDevice, Source]:
    """Explore; what came out of it, with the compiler that did best, its device, and the source of the best."""
    explored = Options(
        time_limit_s=options.seconds,
        max_evals=options.evaluations,
        seed=options.seed,
        store=False,
    )
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-peers-"))
    try:
        run = explore_workload(workload, explored, directory=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if run.best is None:
        raise RuntimeError(f"no implementation was found: {run.ended.status}")
    saved = run.best.file
    compiler, device = built_by(saved.conditions.compiler, devices)
    best = rebuild(saved, device.machine.facts(), dialect_of(device))
    ended = run.ended
    facts = {
        "compiler": compiler,
        "status": ended.status,
        "best_ns": saved.time_ns,
        "bound_ns": ended.limits.bound_ns,
        "evaluations": ended.effort.n_evaluations,
        "elapsed_s": ended.effort.elapsed_s,
        "decisions": saved.decisions,
    }
    return facts, device, best.source


def built_by(compiler: str, devices: dict[str, CpuDevice]) -> tuple[str, CpuDevice]:
    """The compiler of that version and its device: one of `devices`, or a compiler that builds no expert program here (clang
    without OpenMP), which the search uses all the same.
    """
    others = ((key, _device(key)) for key in COMPILERS if key not in devices)
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
    devices: dict[str, CpuDevice],
    input_sets: InputSets,
    chosen: dict[str, Chosen],
    beside: dict[str, Beside],
    protocol: Protocol,
    n_rounds: int,
) -> tuple[Times, dict[str, str], list[float]]:
    """Times, which libraries are absent and why, and the rate of memory in each round.

    Rounds begin with another competitor each time, so that a change of the machine favours none.
    """
    unverified = replace(input_sets, sets=(replace(input_sets.sets[0], expected={}),))
    device = next(iter(devices.values()))
    absent: dict[str, str] = {}
    with ExitStack() as stack:
        runners: dict[str, Callable[[], dict[str, float]]] = {}
        probe = None
        for key, one in devices.items():
            worker = stack.enter_context(Worker(one))
            assert isinstance(worker, Worker)
            worker.prepare(unverified)
            probe = probe or worker.probe
            runners[key] = _Alternating(worker, key, chosen[key], protocol)
        for key, other in beside.items():
            worker = stack.enter_context(Worker(other.device))
            assert isinstance(worker, Worker)
            worker.prepare(other.input_sets)
            time_ns(worker.evaluate(other.artifact, replace(protocol, max_samples=3)))  # verified
            runners[key] = _Alone(worker, key, other.artifact, protocol)
        for library in LIBRARIES:
            if importlib.util.find_spec(library.package) is None:
                absent[library.key] = f"{library.package} is not installed"
                continue
            environment = library.environment(available_cores())
            settings = WorkerOptions(
                runs_candidates=False,
                environment=environment,
                memory_bytes=_LIBRARY_BYTES,
                run_timeout_s=_LIBRARY_S,
            )
            worker = stack.enter_context(Worker(device, settings))
            assert isinstance(worker, Worker)
            worker.prepare(unverified)
            runners[library.key] = _Foreign(worker, library, workload, protocol)
        assert probe is not None
        for runner in [r for r in runners.values() if isinstance(r, _Foreign)]:
            try:
                runner()  # compiles, starts threads, touches memory
            except RuntimeError as e:
                absent[runner.library.key] = str(e).splitlines()[0]
                del runners[runner.library.key]
        times: Times = {}
        memory = []
        names = list(runners)
        for k in range(n_rounds):
            memory.append(probe())
            at = k % len(names)
            for name in names[at:] + names[:at]:
                for column, ns in runners[name]().items():
                    times.setdefault(column, []).append(ns)
    return times, absent, memory


@dataclass(frozen=True)
class _Alternating:
    """Ours and the expert's, sample by sample in turn."""

    worker: Worker
    compiler: str
    chosen: Chosen
    protocol: Protocol

    def __call__(self) -> dict[str, float]:
        both = self.worker.interleave([self.chosen.ours, self.chosen.expert], self.protocol)
        keys = (f"ours {self.compiler}", f"expert {self.compiler}")
        return {key: time_ns(x) for key, x in zip(keys, both, strict=True)}


@dataclass(frozen=True)
class _Alone:
    """What was found for another problem."""

    worker: Worker
    key: str
    artifact: Artifact
    protocol: Protocol

    def __call__(self) -> dict[str, float]:
        [measured] = self.worker.interleave([self.artifact], self.protocol)
        return {self.key: time_ns(measured)}


@dataclass(frozen=True)
class _Foreign:
    """A library's function."""

    worker: Worker
    library: Library
    workload: Workload
    protocol: Protocol

    def __call__(self) -> dict[str, float]:
        reference = self.workload.reference
        assert reference is not None
        module, attribute = reference
        if self.library.module is not None:
            module = f"{__package__}.libraries.{self.library.module}"
            attribute = f"peers.{self.workload.sequence}"
        outcome = self.worker.time_function(module, attribute, self.protocol)
        return {self.library.key: time_ns(outcome)}


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
