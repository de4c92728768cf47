"""How far is the best from the bound: as caches were credited before, as proved now, and against the machine as it is now?

    python -m kernelscape.experiments.bound_gap [--only vadd,chains] [--seconds 20]
    python -m kernelscape.experiments.bound_gap --alarms [--only vadd] [--evaluations 200] [--seed 1]

The first searches sequences of memory beyond the caches, and bounds chains of products. The second searches every library
sequence at its default sizes and counts measurements below their bound; pieces of other seeds and sequences add up. Both write
experiments/results/bound_gap.md, where rows of other pieces stay. The exit status is 1 when any bound was too high.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..explorer.entry import explore_workload, library_workload
from ..explorer.workload import Options, Workload
from ..kernels.language.kernel import kernel, types
from ..kernels.language.record import record_sequence
from ..kernels.library import load, names
from ..kernels.tasks.pipeline import normalise
from ..runtime.cpu.device import CpuDevice
from ..runtime.device import DeviceOptions
from ..search.bound.bounder import Bounder
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..space.targets.target import Target
from .conditions import stamp, stamp_text
from .writing import read_results, share_text, table, time_text, write_results

FILE = "bound_gap"
BEYOND: dict[str, dict[str, int]] = {
    "axpydot": {"n": 2**26},
    "vadd": {"n": 2**26},
    "waxpby": {"n": 2**26},
    "atax": {"m": 8192, "n": 8192},
    "bicgk": {"m": 8192, "n": 8192},
    "gesummv": {"n": 8192},
}
CHAINS = (2, 20, 50)
_CHAIN_N = 4096


@dataclass(frozen=True)
class Row:
    """One search: its best, and lower bounds of all implementations, in ns; None where nothing is claimed."""

    name: str
    sizes: dict[str, int]
    best_ns: float | None
    spread: float
    credited_ns: float  # where each phase may find the caches full of what it needs
    proved_ns: float | None
    now_ns: float | None
    evaluations: int
    alarms: int


@kernel
def _gemv(a: types.ndarray(), x: types.ndarray(), y: types.ndarray()) -> None:  # type: ignore[valid-type]
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = acc


def chain_space(n_products: int, target: Target, n: int = _CHAIN_N) -> Space:
    """The space of y = A^n x, one product after the other."""

    def powers(a: Any, x: Any, y: Any) -> None:
        for k in range(n_products):
            _gemv(a, *((x, y) if k % 2 == 0 else (y, x)))

    arrays = [np.zeros(shape, np.float32) for shape in ((n, n), n, n)]
    return build_space(normalise(record_sequence(powers, arrays)), target)


def root_ns(space: Space, target: Target) -> float:
    """The bound of a space's root on a target."""
    root = space.root()
    assert isinstance(root, Candidate)
    return Bounder(replace(space, target=target)).ns(root)


def chains(target: Target) -> dict[str, float]:
    """The bound in ns of each chain, by its length."""
    return {str(n): root_ns(chain_space(n, target), target) for n in CHAINS}


def search(workload: Workload, target: Target, options: Options) -> Row:
    """One row."""
    folder = Path(tempfile.mkdtemp(prefix="kernelscape-bound-"))
    try:
        run = explore_workload(workload, options, directory=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    credited = replace(target, streams=())
    ended = run.ended
    return Row(
        name=workload.sequence,
        sizes=workload.sizes,
        best_ns=None if ended.best is None else ended.best.time_ns,
        spread=0.0 if ended.best is None else ended.best.spread,
        credited_ns=root_ns(build_space(workload.problem, target), credited),
        proved_ns=ended.limits.bound_ns,
        now_ns=ended.limits.bound_now_ns,
        evaluations=ended.effort.n_evaluations,
        alarms=ended.limits.n_alarms,
    )


def report(results: dict[str, Any]) -> str:
    """The values as Markdown."""
    rows = [Row(**r) for r in results.get("beyond", {}).values()]
    heads = ["sequence", "best", "credited", "proved", "now", "evaluations", "alarms"]
    lines = [
        [
            f"{r.name} {' '.join(f'{k}={n}' for k, n in r.sizes.items())}",
            time_text(r.best_ns),
            *(_share(ns, r) for ns in (r.credited_ns, r.proved_ns, r.now_ns)),
            str(r.evaluations),
            str(r.alarms),
        ]
        for r in rows
    ]
    swept = [Row(**r) for r in results.get("alarms", {}).values()]
    n_evaluations, n_alarms = sum(r.evaluations for r in swept), sum(r.alarms for r in swept)
    chain_lines = [[n, time_text(ns)] for n, ns in results.get("chains", {}).items()]
    return "\n\n".join(
        [
            "# The bound against the best",
            "Shares of the best time: the bound that credits all caches in each phase, the one that is proved, and the one"
            " against the machine as it was while the best was timed for the last time, ± the spread of the best.",
            table(heads, lines),
            f"Products with one matrix of {_CHAIN_N} x {_CHAIN_N}, each of the vector before, and their bound:",
            table(["products", "bound"], chain_lines),
            f"Library sequences at default sizes: {n_alarms} of {n_evaluations} measurements were below their bound.",
            stamp_text(results["stamp"]) + "\n",
        ]
    )


def _share(ns: float | None, row: Row) -> str:
    if ns is None or row.best_ns is None:
        return "–"
    return share_text(ns / row.best_ns, row.spread)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="sequences with commas between; chains")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each search")
    parser.add_argument("--alarms", action="store_true")
    parser.add_argument("--evaluations", type=int, default=200, help="of each search for alarms")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    only = [name for name in given.only.split(",") if name]
    evaluations = given.evaluations if given.alarms else None
    return run(only, given.seconds, evaluations, given.seed)


def run(
    only: Sequence[str],
    seconds: float,
    evaluations: int | None,
    seed: int,
    folder: Path | None = None,
    works: dict[str, dict[str, int]] | None = None,
) -> int:
    """Makes the rows of one piece and writes them beside the others; the exit status. With `evaluations` those for alarms."""
    results = read_results(FILE, folder)
    device = CpuDevice(DeviceOptions())
    options = Options(time_limit_s=seconds, seed=seed, store=False)
    if evaluations is not None:
        options = replace(options, time_limit_s=None, max_evals=evaluations)
    if works is None:
        works = BEYOND if evaluations is None else {name: {} for name in names()}
    for name in [n for n in works if not only or n in only]:
        entry = load(name)
        workload = library_workload(entry, entry.complete(works[name]), "f32", seed)
        row = search(workload, device.machine.facts(), options)
        print(row, flush=True)
        part, key = ("beyond", name) if evaluations is None else ("alarms", f"{name} {seed}")
        results.setdefault(part, {})[key] = asdict(row)
    if evaluations is None and (not only or "chains" in only):
        results["chains"] = chains(device.machine.facts())
    results["stamp"] = stamp(device)
    write_results(FILE, report, results, folder)
    made = (*results.get("beyond", {}).values(), *results.get("alarms", {}).values())
    return int(any(r["alarms"] for r in made))


if __name__ == "__main__":
    sys.exit(main())
