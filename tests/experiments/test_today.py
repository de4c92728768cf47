"""The workloads of today: what they are made of, what is compared, and what counts as missed."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.experiments.today import JOBS, PROGRAMS, are_near, missed, report, take_turns
from kernelscape.experiments.today_arrays import ROWS, arrays_of, results_of
from kernelscape.experiments.today_kernels import SEQUENCES
from kernelscape.experiments.today_peers import NUMBA
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.ir.body import Closure
from kernelscape.testing.interpreted import run_reference

# Reasons for which tasks stay non-affine: tables of the data, scans, and rows whose length is data.
NON_AFFINE = {
    "k_means": Closure.INDEX,
    "histogram": Closure.INDEX,
    "gray_scott": Closure.INDEX,  # rows and columns at the edge
    "lattice_boltzmann": Closure.INDEX,
    "prefix_sum": Closure.CARRIED,
    "selective_scan": Closure.CARRIED,
    "sparse_product": Closure.RANGE,
    "page_rank": Closure.RANGE,
    "monte_carlo": Closure.CARRIED,  # the number of the draw
}


def small(name: str) -> tuple[np.ndarray, ...]:
    sizes = {"floyd_warshall": 24, "attention": 64, "selective_scan": 3}
    return arrays_of(name, sizes.get(name, 32), np.random.default_rng(0))


def row(times: dict[str, float], name: str = "gelu") -> dict:
    stamp = {"machine": "m", "taken": "now", "cores": 2, "load_1min": 0.0, "caches": {}}
    stamp |= {"versions": {}, "cpu": "c", "kernel": "k", "huge_pages": "h", "binding": "b"}
    stamp |= {"compiler": "", "memory_bytes_per_ns": 0.0}
    values = {"times_ns": times, "medians_ns": times, "stamp": stamp}
    return {
        "options": {"seconds": 60.0},
        "name": name,
        "sizes": {"n": 8},
        "dtype": "f32",
        "status": "ok",
        **values,
    }


def test_every_row_has_a_workload_and_peers_at_two_sizes() -> None:
    works = {work for work, _ in ROWS.values()}
    assert SEQUENCES.keys() == NUMBA.keys() == works
    assert len(JOBS) == 2 * len(ROWS) == 2 * len(PROGRAMS)


@pytest.mark.parametrize("name", ROWS)
def test_workloads_are_structured_but_for_what_data_decide(name: str) -> None:
    work, _ = ROWS[name]
    workload = make_workload(SEQUENCES[work], list(small(name)), sequence=name, name=name)
    reasons = {t.body.reason.kind for t in workload.problem.tasks if t.body is not None}
    assert reasons == ({NON_AFFINE[work]} if work in NON_AFFINE else set())


@pytest.mark.parametrize("name", ["k_means", "bilateral", "selective_scan"])
def test_ours_are_what_numba_runs(name: str) -> None:
    """Interpreted beside the plain Python of numba's functions."""
    work, _ = ROWS[name]
    given = small(name)
    workload = make_workload(SEQUENCES[work], [a.copy() for a in given], sequence=name, name=name)
    names = [a.name for a in workload.recording.arrays]
    found = run_reference(workload.recording, dict(zip(names, given, strict=True)), {})
    theirs = [a.copy() for a in given]
    with np.errstate(all="ignore"):
        NUMBA[work].py_func(*theirs)  # type: ignore[attr-defined]
    wanted = results_of(name, theirs)
    ours = results_of(name, [found[x] for x in names])
    assert all(are_near(x, y) for x, y in zip(wanted, ours, strict=True))


def test_results_that_differ_end_a_row() -> None:
    given = (np.ones(8, np.float32), np.zeros(8, np.float32))

    def one(x: np.ndarray, y: np.ndarray) -> None:
        y += x

    def two(x: np.ndarray, y: np.ndarray) -> None:
        y += 1.01 * x

    assert take_turns("gelu", {"numba": one, "call": one}, given).keys() == {"numba", "call"}
    with pytest.raises(RuntimeError, match="numba and call differ in result 0"):
        take_turns("gelu", {"numba": one, "call": two}, given)


def test_few_whole_numbers_may_differ() -> None:
    x = np.arange(5000)
    y = x.copy()
    y[:5] += 1
    assert are_near(x, y)
    y[:6] += 2
    assert not are_near(x, y)


def test_what_is_missed() -> None:
    good = row({"call": 2.0, "found": 1.0, "numba": 3.0, "JAX": 2.0})
    slow = row({"call": 2.0, "found": 4.0, "numba": 1.0, "JAX": 9.0}, "softmax")
    alone = row({"call": 1.0, "numba": 2.0}, "bilateral")
    assert missed([good]) == []
    assert missed([good, slow, alone]) == [
        "softmax:n=8: 0.50 of the better peer",
        "bilateral:n=8 without JAX",
        "geometric mean 1.26",
    ]
    assert "Geometric mean of the better peer's time over ours: 2.00 of 1 rows" in report(
        {"rows": [good]}
    )
