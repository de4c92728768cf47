"""Does the bound prune nodes, and tell implementations apart?

    python -m kernelscape.experiments.pruning [--only matmul:m=256,n=256,k=32] [--sample 300] [--again]

Nothing is measured: the machine is one of round numbers, and the cut stands at the bound of the root over a share. So a loose bound
of the root and nodes whose bound does not rise show apart. Writes experiments/results/pruning.md after every row.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..search.bound.bounder import Bounder
from ..search.tree.ordering import NextChoice
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..space.targets.target import CacheLevel, StreamCurve, Target
from ..testing.machines import root_of
from . import row
from .conditions import stamp
from .question import Question, asked
from .rows import Columns, Job, Row, page, title
from .tree_shape import walk_levels
from .writing import time_text

PROTOCOL = """A machine of round numbers: two cores, AVX-512, 3 GHz; one core alone has half of the memory's rate.
Bounds of random complete candidates, rounded to 3 %: how many are distinct, the share within 3 % of the root's, and the
median over the root's. Then the nodes of the last of the first levels that are kept, with the cut at the bound of the
root over 0.95, 0.8, 0.6 and 0.4."""
SHARES = (0.95, 0.8, 0.6, 0.4)
_ROUNDED = np.log(1.03)


def _curve(kind: str, cores: int, reads: int, writes: int, rate: float) -> StreamCurve:
    """Arrays of 1 MiB to 1 GiB beside a last cache of 32 MiB: four times the memory's rate in caches."""
    sizes = tuple(1 << k for k in range(20, 31, 2))
    rates = tuple(4 * rate if n <= 16 << 20 else rate for n in sizes)
    read, written = (tuple(n * x // (reads + writes) for n in sizes) for x in (reads, writes))
    return StreamCurve(
        kind=kind, cores=cores, read_bytes=read, written_bytes=written, bytes_per_ns=rates
    )


_MIXES = (("read", 1, 0, 25.0), ("write", 0, 1, 20.0), ("scale", 1, 1, 30.0))
MACHINE = Target(
    backend="cpu",
    name="round numbers, two cores of AVX-512",
    cores=2,
    vector_bytes=64,
    vector_registers=32,
    levels=(
        CacheLevel(name="L1", capacity_bytes=2 * (32 << 10), read_bytes_per_ns=2 * 384.0),
        CacheLevel(name="L2", capacity_bytes=2 * (1 << 20), read_bytes_per_ns=2 * 150.0),
        CacheLevel(name="L3", capacity_bytes=32 << 20, read_bytes_per_ns=80.0),
    ),
    memory_read_bytes_per_ns=25.0,
    memory_write_bytes_per_ns=20.0,
    memory_mixed_bytes_per_ns=30.0,
    f32_flops_per_ns=2 * 3.0 * 64,
    f64_flops_per_ns=2 * 3.0 * 32,
    launch_ns=600.0,
    barrier_ns=200.0,
    call_ns=30.0,
    add_latency_ns=1.3,
    loads_per_ns=2 * 3.0 * 2,
    vector_loads_per_ns=2 * 3.0 * 2,
    stores_per_ns=2 * 3.0 * 2,
    vector_stores_per_ns=2 * 3.0,
    streams=tuple(
        _curve(kind, n, reads, writes, rate * n / 2)
        for n in (1, 2)
        for kind, reads, writes, rate in _MIXES
    ),
)

JOBS = [
    Job("matmul", {"m": 1024, "n": 1024, "k": 1024}),
    Job("matmul", {"m": 256, "n": 256, "k": 32}),
    Job("bicgk", {"m": 4096, "n": 4096}),
    Job("atax", {"m": 4096, "n": 4096}),
    Job("gesummv", {"m": 1024, "n": 1024}),
    Job("gemver", {"m": 4096, "n": 4096}),
    Job("axpydot", {"n": 1 << 24}),
    Job("axpy", {"n": 1 << 24}),
]


@dataclass(frozen=True)
class PruningOptions:
    sample: int = asked(300, "random complete candidates of a row")
    depth: int = asked(10, "levels of the tree")
    nodes: int = asked(20_000, "nodes of a level; beyond, the level before it is the last")
    seed: int = asked(1, "of the random candidates", least=0)


def make_row(job: Job, options: PruningOptions) -> dict[str, Any]:
    """Distinct bounds and kept nodes of one sequence."""
    space = build_space(row.workload_of(job, options.seed).problem, MACHINE)
    root_ns = Bounder(space).ns(root_of(space))
    over_root = _over_root(space, root_ns, options)
    kept, depth = [], 0
    for share in SHARES:
        choose = NextChoice(space)
        levels = walk_levels(
            space, choose, root_ns / share, depth=options.depth, limit=options.nodes
        )
        kept.append(levels.n_kept[-1] / levels.n_nodes[-1])
        depth = levels.depth
    rounded = np.round(np.log(over_root) / _ROUNDED)
    return {
        "root_ns": root_ns,
        "sampled": len(over_root),
        "distinct": len(set(rounded.tolist())),
        "at_root": float(np.mean(rounded == 0)),
        "median": float(np.median(over_root)),
        "depth": depth,
        "kept": kept,
        "stamp": stamp(),
    }


def _over_root(space: Space, root_ns: float, options: PruningOptions) -> np.ndarray[Any, Any]:
    """Bounds of random complete candidates over that of the root."""
    bounder, root, rng = Bounder(space), root_of(space), np.random.default_rng(options.seed)
    drawn = (root.random_completion(rng) for _ in range(options.sample))
    return np.array([bounder.ns(c) / root_ns for c in drawn if isinstance(c, Candidate)])


def _kept(k: int) -> Any:
    return lambda r: f"{r['kept'][k]:.1%}"


COLUMNS: Columns = {
    "sequence": title,
    "root": lambda r: time_text(r["root_ns"]),
    "distinct": lambda r: f"{r['distinct']} of {r['sampled']}",
    "at the root's": lambda r: f"{r['at_root']:.0%}",
    "median / root": lambda r: f"{r['median']:.2f}",
    "levels": lambda r: str(r["depth"]),
    **{f"kept, {share}": _kept(k) for k, share in enumerate(SHARES)},
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("What the bound prunes", PROTOCOL, COLUMNS, made["rows"])


def said(r: Row) -> str:
    """A row in a few words."""
    return f"{r['distinct']} bounds, {r['at_root']:.0%} at the root's, kept {r['kept'][0]:.1%}"


QUESTION = Question(
    file="pruning",
    doc=__doc__,
    order=JOBS,
    options=PruningOptions,
    make=make_row,
    report=report,
    say=said,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
