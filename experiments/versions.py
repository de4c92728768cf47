"""Is what this version makes as fast as what an earlier version made?

    python -m kernelscape.experiments.versions --before REV_OR_FOLDER [--only atax:n=256,m=256] [--seconds 20] [--again]

Each row is made of one sequence and size. The earlier version searches it; this version lowers the decisions that were found
there again, and searches for itself. The three libraries are then timed in turn, each in a process of its own, on arrays of
NumPy and on aligned ones, by one loop. Rows that are in the results already are kept unless --again is given. Writes
experiments/results/versions.md after every row. The exit status is 1 when a row fails.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.library import load as load_sequence
from ..kernels.library import names
from ..runtime.api.artifact import Artifact
from ..runtime.cpu.device import CpuDevice
from ..runtime.cpu.guarded_arrays import CpuArray
from ..runtime.cpu.runner import load_harness
from ..runtime.library import load_library
from ..runtime.records.folder import BEST
from ..runtime.records.loading import load_best
from ..runtime.records.replay import rebuild_problem, restore_older
from ..space.build import build_space
from . import row
from .conditions import stamp
from .measuring import built, median, spread
from .question import add_options, asked, failures, options_of
from .rows import Columns, Job, Row, Table, page, table_parser, title, wanted_jobs
from .writing import ratio_text, time_text

ROOT = Path(__file__).resolve().parent.parent
# Two of each size class and kind of the table of searches.
JOBS = (
    Job("axpydot", {"n": 1 << 15}),
    Job("waxpby", {"n": 1 << 15}),
    Job("atax", {"m": 256, "n": 256}),
    Job("gesummv", {"m": 256, "n": 256}),
    Job("bicgk", {"m": 1024, "n": 1024}),
    Job("gemver", {"m": 1024, "n": 1024}),
    Job("heat", {"m": 1024, "n": 1024}),
    Job("standardise", {"m": 1024, "n": 1024}),
    Job("sgemvt", {"m": 4096, "n": 4096}),
    Job("vadd", {"n": 1 << 24}),
    Job("matmul", {"m": 1024, "n": 1024, "k": 1024}),
    Job("matmul_strided", {"m": 1024, "n": 1024, "k": 1024}),
)
PLACEMENTS = ("numpy", "aligned")
_LATER = ("again", "searched")  # by this version
_SAMPLE_NS = 1.5e7  # of one sample
_REST_S = 0.003  # between samples: threads that wait spin no longer then
_LIMIT_S = 300.0  # of everything that a child does at once

PROTOCOL = """The earlier version ({before}) searches for {seconds:g} s; "again" is what it found, lowered by this version;
"searched" is what this version finds in as long. All three are built by gcc, each with its version's own flags, and run in a
process of their own; samples of 15 ms in turn, {rounds} rounds, each after a call that warms the caches. Arrays are those that
NumPy makes, which begin 16 bytes behind a line of the cache, or "aligned": at a line, and far from one another in a page. Ratios
are of times within a round (below 1: this version is faster), median and half the inter-quartile range. "Said" is the time of a
version's own result, on arrays of NumPy, over the time that the version itself printed for it."""

# Run by the earlier version: what it found, built by itself.
_BUILD_BEFORE = """
import json, sys
from kernelscape import load
try:
    from kernelscape.runtime.records.replay import dialect_of, rebuild
except ModuleNotFoundError:  # versions in which runtime/ was one folder
    from kernelscape.runtime.replay import dialect_of, rebuild
best = load(sys.argv[1])
builder = getattr(best.device, "builder", best.device)
machine = getattr(best.device, "machine", best.device)
made = builder.build(rebuild(best.file, machine.facts(), dialect_of(best.device)).source)
a = made.arguments
print(json.dumps([made.path, made.entry, [[x.name, x.kind, x.dtype, x.shape] for x in a]]))
"""


@dataclass(frozen=True)
class Built:
    """A library with what is needed to call it; `arguments` are (name, kind, dtype, shape)."""

    path: str
    entry: str
    arguments: list[tuple[str, str, str, list[int]]]

    @staticmethod
    def of(artifact: Artifact) -> Built:
        arguments = [(a.name, a.kind, a.dtype, list(a.shape)) for a in artifact.arguments]
        return Built(artifact.path, artifact.entry, arguments)


@dataclass(frozen=True)
class VersionOptions:
    """How rows are made."""

    before: str = asked("", "the earlier version: a revision, or a folder with it")
    seconds: float = asked(20.0, "of each search")
    rounds: int = asked(21, "of the timing")
    seed: int = asked(1, least=0)
    evaluations: int | None = asked(None, "at most, of each search", type=int)


@contextmanager
def checkout(before: str) -> Iterator[Path]:
    """The folder of an earlier version: one that is there already, or a revision of this repository."""
    if Path(before).is_dir():
        yield Path(before).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="kernelscape-versions-") as scratch:
        folder = Path(scratch) / "before"
        _git("worktree", "add", "--detach", str(folder), before)
        try:
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(folder))


def _git(*arguments: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def imports(package: Path) -> dict[str, str]:
    """Environment variables with which a Python imports `kernelscape` from a folder; empty for this version."""
    if package == ROOT:
        return {}
    # As `make check` does it: always the same path, for which numba keeps what it compiled.
    place = package / ".types"
    place.mkdir(exist_ok=True)
    if not (place / "kernelscape").exists():
        (place / "kernelscape").symlink_to("..", target_is_directory=True)
    # Calibrations of earlier versions have less in them, and would replace those of this one.
    return {"PYTHONPATH": str(place), "XDG_CACHE_HOME": str(place / "cache")}


def _run(package: Path, scratch: Path, *arguments: str) -> str:
    """Returns the output of a Python in which `kernelscape` is the package of that folder. Raises RuntimeError.

    Its tuned store is empty: a search does not begin with what another version found.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    environment |= imports(package)
    environment["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="data-", dir=scratch)
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=scratch, timeout=_LIMIT_S
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no word"]
        raise RuntimeError(f"{package.name}: exit {done.returncode}: {lines[-1]}")
    return done.stdout


def _search(package: Path, scratch: Path, job: Job, options: VersionOptions) -> Path:
    """The run directory of a search by the version in `package`."""
    run = Path(tempfile.mkdtemp(prefix="run-", dir=scratch))
    sizes = ",".join(f"{k}={v}" for k, v in job.sizes.items())
    given = ["--size", sizes, "--dtype", job.dtype, "--time-limit", f"{options.seconds:g}s"]
    given += ["--compiler", "gcc", "--seed", str(options.seed), "-o", str(run)]
    if options.evaluations is not None:
        given += ["--max-evals", str(options.evaluations)]
    _run(package, scratch, "-m", "kernelscape.cli", "run", job.name, *given, "--quiet")
    return run


def make_row(job: Job, package: Path, options: VersionOptions) -> Row:
    """Three libraries, timed in turn. Raises RuntimeError where one cannot be had."""
    device = row.cpu(compiler="gcc")
    with tempfile.TemporaryDirectory(prefix="kernelscape-versions-") as place:
        scratch = Path(place)
        earlier, later = (_search(p, scratch, job, options) for p in (package, ROOT))
        path, entry, arguments = json.loads(
            _run(package, scratch, "-c", _BUILD_BEFORE, str(earlier)).splitlines()[-1]
        )
        libraries = {
            "before": Built(path, entry, arguments),
            "again": _lowered_again(earlier, device),
            "searched": _lowered_again(later, device),
        }
        said = {"before": earlier, "searched": later}
        said_ns = {
            name: json.loads((run / BEST).read_text())["time_ns"] for name, run in said.items()
        }
        times = _time(libraries, job, device, options)
    return {"times_ns": times, "said_ns": said_ns, "stamp": stamp(device)}


def _lowered_again(run: Path, device: CpuDevice) -> Built:
    """What a run found, lowered and built by this version, whatever the text was then."""
    best = load_best(run / BEST)
    _, problem = rebuild_problem(best.stored, best.problem_key)
    candidate = restore_older(build_space(problem, device.machine.facts()), best.decisions)
    return Built.of(built(device, row.text_of(candidate, device)))


def _time(
    libraries: dict[str, Built], job: Job, device: CpuDevice, options: VersionOptions
) -> dict[str, dict[str, list[float]]]:
    """Nanoseconds of a call in every round, by placement and library; each round in the other direction than the last."""
    harness = str(device.builder.build_harness())
    children = {
        name: _Child(library, job, harness, options.seed) for name, library in libraries.items()
    }
    times: dict[str, dict[str, list[float]]] = {
        placement: {name: [] for name in libraries} for placement in PLACEMENTS
    }
    try:
        for k in range(options.rounds + 1):
            order = list(children)[:: 1 if k % 2 else -1]
            for placement, name in product(PLACEMENTS, order):
                ns = children[name].sample(placement)
                time.sleep(_REST_S)
                if k:  # the first round finds out how many calls a sample takes
                    times[placement][name].append(ns)
    finally:
        for child in children.values():
            child.close()
    return times


class _Child:
    """A process that calls one library."""

    def __init__(self, library: Built, job: Job, harness: str, seed: int) -> None:
        wanted = {
            "library": asdict(library),
            "job": job._asdict(),
            "harness": harness,
            "seed": seed,
        }
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "OPENBLAS_"))
        }
        # As workers of versions whose teams are OpenMP's run them.
        environment |= {"OMP_PROC_BIND": "true"}
        command = [sys.executable, "-m", f"{__package__}.versions", "--child", json.dumps(wanted)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def sample(self, placement: str) -> float:
        """Nanoseconds of a call on arrays that begin there. Raises RuntimeError when the process ended."""
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(f"{placement}\n")
        self._child.stdin.flush()
        said = self._child.stdout.readline()
        if not said:
            raise RuntimeError("the process that called a library ended")
        return float(said)

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()


def _serve(wanted: dict[str, Any]) -> int:
    """The other end of `_Child`: one time for each line, which names a placement."""
    library, job = Built(**wanted["library"]), Job(**wanted["job"])
    harness = load_harness(Path(wanted["harness"]))
    entry = getattr(load_library(library.path), library.entry)
    sequence = load_sequence(job.name)
    given = sequence.make_arguments(
        sequence.complete(job.sizes), job.numpy, np.random.default_rng(wanted["seed"])
    )
    placed = {placement: _Placed(library, given, placement) for placement in PLACEMENTS}
    n = 0
    for line in sys.stdin:
        arguments = placed[line.strip()]
        arguments.restore()
        entry(arguments.pointers)
        if not n:
            took_ns = harness.ks_run(entry, arguments.pointers, 3) / 3
            n = max(1, round(_SAMPLE_NS / max(took_ns, 1.0)))
        print(harness.ks_run(entry, arguments.pointers, n) / n, flush=True)
    return 0


class _Placed:
    """Arguments of a library at one placement."""

    def __init__(self, library: Built, given: Sequence[Any], placement: str) -> None:
        arrays: list[Any] = [x for x in given if isinstance(x, np.ndarray)]
        values = iter([*arrays, *(x for x in given if not isinstance(x, np.ndarray))])
        held: list[np.ndarray[Any, Any]] = []
        self._restored: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for k, (_, kind, dtype, shape) in enumerate(library.arguments):
            if kind == "scalar":
                held.append(np.array(next(values), dtype))
                continue
            is_aligned = placement == "aligned" or kind == "workspace"
            array = (
                CpuArray(tuple(shape), np.dtype(dtype), stagger=17 * (k + 1)).host
                if is_aligned
                else np.empty(tuple(shape), dtype)
            )
            if kind == "array":
                self._restored.append((array, next(values)))
            held.append(array)
        self._held = held
        self.pointers = (ctypes.c_void_p * len(held))(*(x.ctypes.data for x in held))

    def restore(self) -> None:
        """Contents as they were before any call."""
        for array, contents in self._restored:
            array[...] = contents


def _ratios(r: Row, placement: str, name: str) -> np.ndarray[Any, Any]:
    times = r["times_ns"][placement]
    ratios: np.ndarray[Any, Any] = np.array(times[name]) / times["before"]
    return ratios


def _median(name: str) -> Callable[[Row], str]:
    return lambda r: time_text(median(r["times_ns"]["numpy"][name]))


def _ratio(placement: str, name: str) -> Callable[[Row], str]:
    def cell(r: Row) -> str:
        ratios = _ratios(r, placement, name)
        return ratio_text(median(ratios), spread(ratios))

    return cell


def _over_said(name: str) -> Callable[[Row], str]:
    return lambda r: f"{median(r['times_ns']['numpy'][name]) / r['said_ns'][name]:.2f}"


COLUMNS: Columns = {
    "sequence": title,
    "type": lambda r: r["dtype"],
    **{name: _median(name) for name in ("before", *_LATER)},
    **{f"{name} / before": _ratio("numpy", name) for name in _LATER},
    **{f"{name} / before, aligned": _ratio("aligned", name) for name in _LATER},
    "said before": _over_said("before"),
    "said": _over_said("searched"),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    good = [r for r in made["rows"] if r["status"] == "ok"]
    heading, protocol = "Is this version as fast as an earlier one?", PROTOCOL.format(**made["how"])
    parts = []
    for placement, name in product(PLACEMENTS, _LATER) if good else ():
        ratios = [median(_ratios(r, placement, name)) for r in good]
        mean = float(np.exp(np.mean(np.log(ratios))))
        parts.append(f"- {name}, {placement}: geometric mean {mean:.3f}, largest {max(ratios):.2f}")
    return page(heading, protocol, COLUMNS, made["rows"]) + "\n".join([*parts, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = table_parser(__doc__, "NAME or NAME:n=2^20,...[:f64]")
    add_options(parser, VersionOptions)
    given = parser.parse_args(arguments)
    if given.child:
        return _serve(json.loads(given.child))
    if not given.before:
        parser.error("--before names the version to compare with")
    wanted = wanted_jobs(parser, given.only, JOBS, known=names(), dtypes=("f32", "f64"))
    results = Table("versions", JOBS, report, given.results)
    with checkout(given.before) as package:
        revision = _git("rev-parse", "--short", "HEAD", folder=package)
        options = replace(options_of(parser, given, VersionOptions), before=revision)

        def make(job: Job) -> Row:
            about = job._asdict() | {"options": asdict(options)}
            try:
                return {"status": "ok", **about, **make_row(job, package, options)}
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                return {"status": "failed", **about, "why": str(e)}

        def say(r: Row) -> str:
            return ", ".join(f"{k} {median(_ratios(r, 'numpy', k)):.2f}" for k in _LATER)

        missing = results.missing(wanted, given.again)
        rows = results.make(missing, make, say, how=asdict(options))["rows"]
    return 1 if failures(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
