"""Do terms of the bound ever exceed what a candidate does, by the counts of its loop IR?

    python -m kernelscape.experiments.admissible [--only gemver:m=72,n=72] [--sample 200] [--again]

Nothing is measured. Writes experiments/results/admissible.md after every row; the exit status is 1 where a term is too high.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..search.bound.bounder import Bounder
from ..space.build import build_space
from ..space.candidate import Candidate, Space
from ..testing.checking import random_candidate
from ..testing.machines import root_of, round_target
from ..testing.port_counts import count_ports
from . import row
from .conditions import stamp
from .question import Question, asked, failures
from .rows import Columns, Job, Row, page, title

PROTOCOL = """Random descents, choice by choice, on a machine with vectors of four lanes. The bound's loads and stores of the
complete candidate are compared with those that its loop IR has on a machine with all registers (testing/port_counts.py): the
median and the largest share of the count. "Not monotone": decisions after which a term fell."""
_SLACK = 1.001  # what registers hold between two loop nests
_PORTS = {
    "loads": {"loads_per_ns": 1.0},
    "stores": {"loads_per_ns": 1e12, "stores_per_ns": 1.0},
}

JOBS = [
    *(Job(name, {"n": 5000}) for name in ("axpy", "axpydot", "waxpby", "vadd", "sscal")),
    *(Job(name, {"m": 72, "n": 80}) for name in ("sgemv", "gesummv", "bicgk", "atax", "sgemvt")),
    *(Job(name, {"m": 72, "n": 72}) for name in ("gemver", "madd", "heat")),
    *(Job(name, {"m": 40, "n": 24, "k": 40}) for name in ("matmul", "matmul_strided")),
]


@dataclass(frozen=True)
class AdmissibleOptions:
    sample: int = asked(200, "random descents of a row")
    seed: int = asked(1, "of the descents", least=0)


def make_row(job: Job, options: AdmissibleOptions) -> dict[str, Any]:
    """Shares of counts, and what is wrong, of one sequence."""
    problem = row.workload_of(job, options.seed).problem
    bounders = {}
    for name, ports in _PORTS.items():
        target = round_target(cores=1, vector_bytes=16, vector_registers=16, **ports)
        bounders[name] = Bounder(build_space(problem, target))
    rng = np.random.default_rng(options.seed)
    shares: dict[str, list[float]] = {name: [] for name in _PORTS}
    n_fallen = 0
    for k in range(options.sample):
        space = bounders["loads"].space
        made = random_candidate(root_of(space), rng) if k % 2 else descended(bounders, rng)
        if isinstance(made, int):
            n_fallen += made
            continue
        if not isinstance(made, Candidate):
            continue
        found = count_ports(made)
        for name, n in (("loads", found.loads), ("stores", found.stores)):
            if found.is_whole:
                shares[name].append(_ns(bounders[name], made) / max(n, 1))
    return {
        "checked": len(shares["loads"]),
        "above": sum(x > _SLACK for each in shares.values() for x in each),
        "fallen": n_fallen,
        "median": {name: float(np.median(each)) for name, each in shares.items()},
        "most": {name: max(each) for name, each in shares.items()},
        "stamp": stamp(),
    }


def descended(bounders: dict[str, Bounder], rng: np.random.Generator) -> Candidate | int | None:
    """Returns the end of a random descent, None where it is a dead end; how many terms fell on the way, where any did."""
    at: Candidate = root_of(_space(bounders))
    before = {name: _ns(b, at) for name, b in bounders.items()}
    n_fallen = 0
    while not at.is_complete:
        var = int(rng.choice(at.open_choices()))
        children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            return None
        at = children[int(rng.integers(len(children)))]
        after = {name: _ns(b, at) for name, b in bounders.items()}
        n_fallen += sum(after[name] < before[name] * (1 - 1e-9) for name in after)
        before = after
    return n_fallen or at


def _space(bounders: dict[str, Bounder]) -> Space:
    return bounders["loads"].space


def _ns(bounder: Bounder, candidate: Candidate) -> float:
    return float(bounder.terms(candidate)[bounder.names.index("ports")])


def missed(made: Sequence[Row]) -> list[str]:
    """Rows that failed, terms that are too high, and terms that fell."""
    good = [r for r in made if r["status"] == "ok"]
    above = [f"{title(r)}: {r['above']} above their count" for r in good if r["above"]]
    fallen = [f"{title(r)}: {r['fallen']} fell" for r in good if r["fallen"]]
    return failures(made) + above + fallen


COLUMNS: Columns = {
    "sequence": title,
    "candidates": lambda r: str(r["checked"]),
    "loads, median": lambda r: f"{r['median']['loads']:.1%}",
    "loads, most": lambda r: f"{r['most']['loads']:.1%}",
    "stores, median": lambda r: f"{r['median']['stores']:.1%}",
    "stores, most": lambda r: f"{r['most']['stores']:.1%}",
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
