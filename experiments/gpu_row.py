"""One row of the GPU table: explore one sequence at one size, then compare with other libraries at the same moment.

Run by gpu_table in a process of its own, so that what a row does to its process ends with it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import library_workload
from ..explorer.workload import Options, Workload
from ..kernels.library import load
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import FINAL, Failure, Protocol
from ..runtime.device import open_device, requirements
from ..runtime.worker.input_sets import InputSet, InputSets
from ..runtime.worker.worker import Worker
from ..search.bound.bounder import Bounder, Roofline
from ..space.build import build_space
from ..space.targets.target import Target
from .conditions import stamp
from .gpu_peers import COPIES, PEERS, Asked, Peer, PeerError
from .measuring import failure_text, median, spread
from .rows import Job, Row
from .run_row import SLACK, best_and_default, search

_PACKAGES = (
    *("numba", "pycuda", "cupy-cuda13x", "cupy-cuda12x", "torch", "triton"),
    *("nvidia-cublas", "nvidia-cublas-cu12"),
)
_OPEN_S, _TIME_S = 180.0, 60.0  # for a library to start and compile; to time one program once
_SAMPLE_NS = 5e6  # the host's first launch, about 10 us, is a small share of it

Times = dict[str, list[float]]
"""Nanoseconds of each round, by competitor: "best", "default", "cupy calls", "torch compiled", ..."""


@dataclass(frozen=True)
class GpuRowOptions:
    """Options of one row."""

    target: str = "cuda"
    seconds: float = 45.0  # of the search
    rounds: int = 7
    seed: int = 1
    budget_ms: float = 60.0  # of timed work for each competitor in each round
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
    with ExitStack() as stack:
        copy_kind, copy_bytes = COPIES[options.target]
        peers = {k: stack.enter_context(Peer(k)) for k in (copy_kind, *PEERS[options.target])}
        folder = Path(tempfile.mkdtemp(prefix="kernelscape-gpu-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        workload = library_workload(load(job.name), job.sizes, job.dtype, options.seed)
        explored = Options(
            target=options.target,
            time_limit_s=options.seconds,
            max_evals=options.evaluations,
            seed=options.seed,
            store=False,
        )
        found = search(workload, explored, folder)
        for peer in peers.values():
            peer.begin(Asked(job.name, job.sizes, options.seed))
        artifacts = best_and_default(workload, device, folder)
        times, absent = _compare(workload, device, artifacts, peers, options)
    target = device.machine.facts()
    roof = Bounder(build_space(workload.problem, target)).roofline()
    copies = [2 * copy_bytes / ns for ns in times.pop(f"{copy_kind} copy", [])]
    values = found | summary(times) | share(times["best"], copies, roof, target)
    bound_ns = found["bound_ns"]
    values["below_bound"] += bound_ns is not None and values["best_ns"] < bound_ns * (1 - SLACK)
    values["gap"] = None if bound_ns is None else max(0.0, 1 - bound_ns / values["best_ns"])
    return {
        **values,
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
    """Times, and which competitors have none and why.

    Best and default alternate sample by sample; rounds begin with another competitor each time, so that a change of the
    GPU's clocks favours none.
    """
    times: Times = {}
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
                    runners[key] = _Timed(peer, program, key, options.protocol)
        for k in range(options.rounds):
            keys = list(runners)
            at = k % len(keys)
            for key in keys[at:] + keys[:at]:
                try:
                    measured = runners[key]()
                except PeerError as e:
                    absent[key] = str(e)
                    times.pop(key, None)
                    del runners[key]
                    continue
                for column, ns in measured.items():
                    times.setdefault(column, []).append(ns)
    return times, absent


@dataclass(frozen=True)
class _Timed:
    """A program of another library, ready to be timed."""

    peer: Peer
    program: str
    key: str
    protocol: Protocol

    def __call__(self) -> dict[str, float]:
        return {self.key: self.peer.time(self.program, self.protocol, _TIME_S).time_ns}


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
        values[f"over_{column}"] = None if ratios is None else median(ratios)
        values[f"over_{column}_spread"] = None if ratios is None else spread(ratios)
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
        "share": None if shares is None else median(shares),
        "share_spread": None if shares is None else spread(shares),
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
