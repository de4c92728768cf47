"""Does the bound rank implementations as their times do, and does the prediction?

    python -m kernelscape.experiments.rank [--only bicgk:m=1024,n=1024] [--sample 100] [--again]

Writes experiments/results/rank.md after every row. A row takes a few minutes, on a machine without other work.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs

from ..explorer.predicting import measured
from ..explorer.workload import Options
from ..search.bound.bounder import Bounder
from ..search.predict import FACTORS, Predictor, fitted, predicted
from . import row
from .conditions import stamp
from .question import Question, asked
from .rows import Columns, Job, Row, page, title
from .writing import time_text

PROTOCOL = """Random complete candidates, none chosen by a bound, each built, verified and timed; times are as they were
measured. Rank correlations (Spearman) of their times with the bound and with the prediction; bounds are rounded to 3 % first.
The factors of the prediction are fitted to the other half of the rows, both ways. "Proved worse": the share whose bound is
above the time of the best."""
_ROUNDED = np.log(1.03)
_SEARCH_S = 600.0

JOBS = [
    Job(name, sizes)
    for name, sizes in (
        ("axpy", {"n": 1 << 24}),
        ("axpydot", {"n": 1 << 16}),
        ("axpydot", {"n": 1 << 24}),
        ("bicgk", {"m": 1024, "n": 1024}),
        ("bicgk", {"m": 4096, "n": 4096}),
        ("atax", {"m": 1024, "n": 1024}),
        ("gesummv", {"m": 1024, "n": 1024}),
        ("gemver", {"m": 4096, "n": 4096}),
        ("matmul", {"m": 256, "n": 256, "k": 256}),
        ("matmul", {"m": 1024, "n": 1024, "k": 1024}),
        ("heat", {"m": 2048, "n": 2048}),
    )
]


@dataclass(frozen=True)
class RankOptions:
    sample: int = asked(100, "random candidates of a row")
    seed: int = asked(1, "of the candidates and inputs", least=0)


def make_row(job: Job, options: RankOptions) -> dict[str, Any]:
    """Bounds, terms and times of random candidates of one sequence."""
    workload, device = row.workload_of(job, options.seed), row.cpu()
    space = row.space_of(workload, device)
    told = Options(
        strategy="random",
        time_limit_s=_SEARCH_S,
        max_evals=options.sample,
        seed=options.seed,
        input_sets=1,
        store=False,
    )
    with row.explored(workload, told) as (run, folder):
        records = [
            structs.replace(r, slowness=1.0)
            for r in row.evaluations_in(folder)
            if r.time_ns is not None
        ]
    parts, times_ns = measured(Predictor(Bounder(space)), records)
    fastest = sorted(records, key=lambda r: r.time_ns or 0.0)  # as `measured` has them
    return {
        "bounds_ns": [r.bound_ns for r in fastest[: len(times_ns)]],
        "times_ns": times_ns.tolist(),
        "parts": parts.tolist(),
        "alarms": run.ended.alarms,
        "stamp": stamp(),
    }


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's correlation, equal values with their mean rank; None where one of them has a single value."""
    x, y = _ranks(np.array(a)), _ranks(np.array(b))
    if x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: np.ndarray[Any, Any] = (last - (counts - 1) / 2)[which]
    return ranks


def rounded(bounds_ns: Sequence[float]) -> list[float]:
    """Bounds in steps of 3 %."""
    return [float(x) for x in np.round(np.log(np.array(bounds_ns)) / _ROUNDED)]


def factors_of(made: Sequence[Row]) -> Sequence[float]:
    """Factors of the prediction, fitted to the candidates of rows; 1 without rows."""
    parts = np.array([p for x in made for p in x["parts"]]).reshape(-1, len(FACTORS))
    return fitted(parts, np.array([t for x in made for t in x["times_ns"]]))


def with_predictions(made: Sequence[Row]) -> list[Row]:
    """The good rows with the rank correlation of predictions whose factors are fitted to every other row."""
    good = [r for r in made if r["status"] == "ok"]
    found = []
    for k, r in enumerate(good):
        factors = factors_of([x for j, x in enumerate(good) if j % 2 != k % 2])
        foreseen = predicted(np.array(r["parts"]), np.array(factors))
        found.append({**r, "by_prediction": rank_correlation(foreseen.tolist(), r["times_ns"])})
    return found


def _text(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


COLUMNS: Columns = {
    "sequence": title,
    "candidates": lambda r: str(len(r["times_ns"])),
    "bounds": lambda r: str(len(set(rounded(r["bounds_ns"])))),
    "rank of bound": lambda r: _text(rank_correlation(rounded(r["bounds_ns"]), r["times_ns"])),
    "rank of prediction": lambda r: _text(r["by_prediction"]),
    "proved worse": lambda r: f"{np.mean(np.array(r['bounds_ns']) > min(r['times_ns'])):.0%}",
    "best": lambda r: time_text(min(r["times_ns"])),
    "bound / best": lambda r: f"{r['bounds_ns'][0] / r['times_ns'][0]:.0%}",
    "below": lambda r: str(r["alarms"]),
}


def report(made: dict[str, Any]) -> str:
    """The table as Markdown."""
    return page("What bound and prediction rank", PROTOCOL, COLUMNS, with_predictions(made["rows"]))


QUESTION = Question(
    file="rank",
    doc=__doc__,
    order=JOBS,
    options=RankOptions,
    make=make_row,
    report=report,
    say=lambda r: f"rank {_text(rank_correlation(rounded(r['bounds_ns']), r['times_ns']))}",
)
main = QUESTION.main

if __name__ == "__main__":
    sys.exit(main())
