"""Does the bound prune nodes, and tell implementations apart?

    python -m kernelscape.experiments.pruning [--only matmul:m=256,n=256,k=32] [--sample 300] [--again]

Nothing is measured: the machine is one of round numbers, and the cut stands at the bound of the root over a share. So a loose bound
of the root and nodes whose bound does not rise show apart. Writes experiments/results/pruning.md after every row.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
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
from .tree_shape import drawn_nodes, share_kept, share_tight
from .writing import time_text

PROTOCOL = """A machine of round numbers: two cores, AVX-512, 3 GHz; one core alone has half of the memory's rate.
Bounds of random complete candidates, rounded to 3 %: how many are distinct, the share within 3 % of the root's, and the
median over the root's. Then the nodes ten decisions deep that are kept, with the cut at the bound of the root over 0.95, 0.8,
0.6 and 0.4. Candidates that are complete before count among them. Shares are of random descents, weighted by their numbers
of children; with their 95 % errors. "Tight": of the nodes that are kept at 0.95, the share that is above a complete candidate
which is kept, too: no bound made of these terms prunes them."""
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
        CacheLevel(name="L1", capacity_bytes=2 * (32 << 10), read_bytes_per_ns=2 * 384.0, ways=8),
        CacheLevel(name="L2", capacity_bytes=2 * (1 << 20), read_bytes_per_ns=2 * 150.0),
        CacheLevel(name="L3", capacity_bytes=32 << 20, read_bytes_per_ns=80.0),
    ),
    memory_read_bytes_per_ns=25.0,
    memory_write_bytes_per_ns=20.0,
    memory_mixed_bytes_per_ns=30.0,
    f32_flops_per_ns=2 * 3.0 * 64,
    f64_flops_per_ns=2 * 3.0 * 32,
    scalar_f32_flops_per_ns=2 * 3.0 * 4,
    scalar_f64_flops_per_ns=2 * 3.0 * 4,
    f32_mixed_flops_per_ns=1.5 * 3.0 * 64,
    f64_mixed_flops_per_ns=1.5 * 3.0 * 32,
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
    depth: int = asked(10, "decisions above the counted nodes")
    descents: int = asked(4000, "random descents of a row")
    tight: int = asked(50, "kept nodes below which a candidate is looked for")
    expansions: int = asked(400, "nodes that are expanded below each of them")
    seed: int = asked(1, "of the random candidates", least=0)


def make_row(job: Job, options: PruningOptions) -> dict[str, Any]:
    """Distinct bounds and kept nodes of one sequence."""
    space = build_space(row.workload_of(job, options.seed).problem, MACHINE)
    root_ns = Bounder(space).ns(root_of(space))
    over_root = _over_root(space, root_ns, options)
    choose, rng = NextChoice(space), np.random.default_rng([options.seed, 1])
    drawn = drawn_nodes(space, choose, rng, depth=options.depth, n=options.descents)
    cuts_ns = [root_ns / share for share in SHARES]
    effort = {"n": options.tight, "most_expansions": options.expansions}
    rounded = np.round(np.log(over_root) / _ROUNDED)
    return {
        "root_ns": root_ns,
        "sampled": len(over_root),
        "distinct": len(set(rounded.tolist())),
        "at_root": float(np.mean(rounded == 0)),
        "median": float(np.median(over_root)),
        "kept": [asdict(share_kept(drawn, cut_ns)) for cut_ns in cuts_ns],
        "tight": share_tight(drawn, cuts_ns[0], choose, rng, **effort),
        "stamp": stamp(),
    }


def _over_root(space: Space, root_ns: float, options: PruningOptions) -> np.ndarray[Any, Any]:
    """Bounds of random complete candidates over that of the root."""
    bounder, root, rng = Bounder(space), root_of(space), np.random.default_rng(options.seed)
    drawn = (root.random_completion(rng) for _ in range(options.sample))
    return np.array([bounder.ns(c) / root_ns for c in drawn if isinstance(c, Candidate)])


def _kept(k: int) -> Any:
    return lambda r: kept_text(r["kept"][k])


def kept_text(share: Row) -> str:
    """A share with its error."""
    return f"{share['mean']:.1%} ± {(share['high'] - share['low']) / 2:.1%}"


COLUMNS: Columns = {
    "sequence": title,
    "root": lambda r: time_text(r["root_ns"]),
    "distinct": lambda r: f"{r['distinct']} of {r['sampled']}",
    "at the root's": lambda r: f"{r['at_root']:.0%}",
    "median / root": lambda r: f"{r['median']:.2f}",
    **{f"kept, {share}": _kept(k) for k, share in enumerate(SHARES)},
    "tight": lambda r: f"{r['tight']:.0%}",
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("What the bound prunes", PROTOCOL, COLUMNS, made["rows"])


def said(r: Row) -> str:
    """A row in a few words."""
    return (
        f"{r['distinct']} bounds, {r['at_root']:.0%} at the root's, kept {kept_text(r['kept'][0])}"
    )


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
