"""Do terms of the bound ever exceed what a candidate does, by the counts of its loop IR?

    python -m kernelscape.experiments.admissible [--only gemver:m=72,n=72] [--sample 200] [--again]

Nothing is measured. Writes experiments/results/admissible.md after every row; the exit status is 1 where a term is too high.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kernels.ir.task import Problem
from ..search.bound.bounder import Bounder
from ..search.bound.columns import Floats
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..space.targets.target import CacheLevel
from ..testing.checking import random_candidate
from ..testing.machines import IdealMachine, root_of, round_target
from ..testing.port_counts import count_barriers, count_ports
from . import row
from .conditions import stamp
from .question import Question, asked, failures
from .rows import Columns, Job, Row, page, title

PROTOCOL = """Random descents, choice by choice, on a machine with vectors of four lanes. The bound's loads and stores of the
complete candidate are compared with those that its loop IR has on a machine with all registers (testing/port_counts.py), what
partial register tiles add to its operations with what they add there, the bytes of its tiles with those that a simulated machine
with a cache of 16 lines reads (testing/machines.py), and the barriers of another random candidate for two cores with those of its
loop IR: the median and the largest share of the count. "Sets" are the bytes of tiles for a cache of 32 lines in sets of two. "By
sets": candidates for which they are more than without sets. "Not monotone": decisions after which a term fell."""
_SLACK = 1.001  # what registers hold between two loop nests
_WAYS = 2
_CACHES = {"bytes": (16, 1), "sets": (32, 32 // _WAYS)}  # lines and sets of the simulated ones


def _past(n_lines: int, ways: int = 0) -> dict[str, Any]:
    """Returns a machine on which all that takes time are the bytes that cross into a cache."""
    level = CacheLevel(name="L1", capacity_bytes=64 * n_lines, read_bytes_per_ns=1e9, ways=ways)
    rates = {"memory_read_bytes_per_ns": 1.0, "memory_mixed_bytes_per_ns": 1.0}
    return {"levels": (level,), **rates}


_TERMS: dict[str, dict[str, Any]] = {
    "loads": {"loads_per_ns": 1.0},
    "stores": {"loads_per_ns": 1e12, "stores_per_ns": 1.0},
    "tails": {"f32_flops_per_ns": 2.0},
    "bytes": _past(16),
    "sets": _past(32, _WAYS),
}
_GROUPS = (
    ("loads", "stores", "tails"),
    tuple(_CACHES),
)  # of terms whose machines have equal spaces
_TEAM = {"cores": 2, "barrier_ns": 1.0, "launch_ns": 0.0, "call_ns": 0.0}
COUNTED = (*_TERMS, "barriers")

JOBS = [
    *(Job(name, {"n": 5000}) for name in ("axpy", "axpydot", "waxpby", "vadd", "sscal")),
    *(Job(name, {"m": 72, "n": 80}) for name in ("sgemv", "gesummv", "bicgk", "atax", "sgemvt")),
    *(Job(name, {"m": 72, "n": 72}) for name in ("gemver", "madd", "heat")),
    *(Job(name, {"m": 40, "n": 24, "k": 40}) for name in ("matmul", "matmul_strided")),
    # Rows a power of two apart.
    *(Job(name, {"m": 72, "n": 64}) for name in ("sgemv", "gesummv", "bicgk", "atax", "sgemvt")),
    *(Job(name, {"m": 72, "n": 64}) for name in ("gemver", "madd", "heat")),
    *(Job(name, {"m": 24, "n": 64, "k": 32}) for name in ("matmul", "matmul_strided")),
]


@dataclass(frozen=True)
class AdmissibleOptions:
    sample: int = asked(200, "random descents of a row")
    seed: int = asked(1, "of the descents", least=0)


def make_row(job: Job, options: AdmissibleOptions) -> dict[str, Any]:
    """Shares of counts, and what is wrong, of one sequence."""
    descents, rng = Descents(job, options.seed), np.random.default_rng(options.seed)
    shares: dict[str, list[float]] = {name: [] for name in COUNTED}
    n_fallen = 0
    for k in range(options.sample):
        found, fallen = descents.one(rng, by_steps=k % 2 == 0)
        n_fallen += fallen
        for name, share in found:
            shares[name].append(share)
    return {
        "checked": len(shares["loads"]),
        "above": sum(is_above(x) for each in shares.values() for x in each),
        "fallen": n_fallen,
        "by_sets": descents.n_by_sets,
        "median": {name: float(np.median(each)) for name, each in shares.items() if each},
        "most": {name: max(each) for name, each in shares.items() if each},
        "stamp": stamp(),
    }


def is_above(share: float) -> bool:
    """True if a term that is this share of a count exceeds it."""
    return share > _SLACK


class Descents:
    """Random candidates of a sequence on the machines of each term."""

    def __init__(self, job: Job, seed: int) -> None:
        problem = row.workload_of(job, seed).problem
        self._groups = [{name: _bounder(problem, _TERMS[name]) for name in x} for x in _GROUPS]
        self._team = _bounder(problem, _TEAM)
        self._whole = _bounder(problem, _past(32))
        self.n_by_sets = (
            0  # candidates for which the bytes of tiles are more with sets than without
        )

    def one(
        self, rng: np.random.Generator, *, by_steps: bool
    ) -> tuple[list[tuple[str, float]], int]:
        """Returns the shares that the terms of one candidate are of their counts, and how many terms fell on the way to it."""
        shares: list[tuple[str, float]] = []
        n_fallen = 0
        for group in self._groups:
            made = (
                descended(group, rng) if by_steps else random_candidate(root_of(_space(group)), rng)
            )
            if isinstance(made, int):
                n_fallen += made
            elif isinstance(made, Candidate):
                terms = {name: float(_ns(name, group, made).max()) for name in group}
                if "sets" in terms:
                    self.n_by_sets += int(terms["sets"] > self._whole.tiles_ns(made).max())
                for name, n in _counts(group, made).items():
                    shares.append((name, terms[name] / max(n, 1)))
        shared = random_candidate(root_of(self._team.space), rng)
        if isinstance(shared, Candidate):
            ns = float(self._team.terms(shared)[self._team.names.index("launches")])
            shares.append(("barriers", ns / max(count_barriers(shared), 1)))
        return shares, n_fallen


def descended(bounders: dict[str, Bounder], rng: np.random.Generator) -> Candidate | int | None:
    """Returns the end of a random descent, None where it is a dead end; how many terms fell on the way, where any did."""
    at: Candidate = root_of(_space(bounders))
    before = {name: _ns(name, bounders, at) for name in bounders}
    n_fallen = 0
    while not at.is_complete:
        var = int(rng.choice(at.open_choices()))
        children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            return None
        at = children[int(rng.integers(len(children)))]
        after = {name: _ns(name, bounders, at) for name in bounders}
        n_fallen += sum(bool((after[x] < before[x] * (1 - 1e-9)).any()) for x in after)
        before = after
    return n_fallen or at


def _bounder(problem: Problem, facts: dict[str, Any]) -> Bounder:
    machine = {"cores": 1, "vector_bytes": 16, "vector_registers": 16, **facts}
    return Bounder(build_space(problem, round_target(**machine)))


def _space(bounders: dict[str, Bounder]) -> Space:
    return next(iter(bounders.values())).space


def _counts(names: Iterable[str], made: Candidate) -> dict[str, float]:
    """Returns the counts of a complete candidate by term; {} where its loops have nodes that are not counted."""
    if "bytes" in names:
        return {x: IdealMachine(made, *n).traffic(calls=1)[0] for x, n in _CACHES.items()}
    found = count_ports(made)
    counts = {"loads": found.loads, "stores": found.stores, "tails": found.added_ns}
    return counts if found.is_whole else {}


def _ns(name: str, bounders: dict[str, Bounder], candidate: Candidate) -> Floats:
    """The ns of a term: of ports and partial register tiles of all tasks, of tiles of each task alone."""
    bounder = bounders[name]
    if name in _CACHES:
        return bounder.tiles_ns(candidate).copy()
    term = "tails" if name == "tails" else "ports"
    return bounder.terms(candidate)[[bounder.names.index(term)]]


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, terms that are too high, and terms that fell."""
    good = [r for r in made if r["status"] == "ok"]
    above = [f"{title(r)}: {r['above']} above their count" for r in good if r["above"]]
    fallen = [f"{title(r)}: {r['fallen']} fell" for r in good if r["fallen"]]
    return failures(made) + above + fallen


def _share(what: str, name: str) -> Any:
    return lambda r: f"{r[what][name]:.1%}" if name in r[what] else "-"


COLUMNS: Columns = {
    "sequence": title,
    "candidates": lambda r: str(r["checked"]),
    **{f"{name}, {what}": _share(what, name) for name in COUNTED for what in ("median", "most")},
    "by sets": lambda r: str(r.get("by_sets", "-")),
    "above": lambda r: str(r["above"]),
    "not monotone": lambda r: str(r["fallen"]),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("Terms of the bound against counts", PROTOCOL, COLUMNS, made["rows"])


QUESTION = Question(
    file="admissible",
    doc=__doc__,
    order=JOBS,
    options=AdmissibleOptions,
    make=make_row,
    report=report,
    say=lambda r: f"{r['checked']} candidates, {r['above']} above",
    missed=missed,
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
