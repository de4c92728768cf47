"""The programs of NPBench: ours are NumPy's, in both types of floats; what counts as missed; what rows say."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.experiments.contestants import are_near, check_agreement, noise_of, results_by
from kernelscape.experiments.npbench import JOBS, missed, report
from kernelscape.experiments.npbench_programs import PROGRAMS, Arrays
from kernelscape.experiments.rows import Job

WIDE = {"f": np.float64, "c": np.complex128}


def small(name: str, dtype: str = "") -> Arrays:
    program = PROGRAMS[name]
    return program.arrays(program.small, np.random.default_rng(0), dtype)


def results(name: str, form: str, given: Arrays) -> Arrays:
    program, arrays = PROGRAMS[name], tuple(a.copy() for a in given)
    program.forms(program.small)[form](*arrays)
    return program.of(arrays)


def wide(arrays: Arrays) -> Arrays:
    return tuple(a.astype(WIDE.get(a.dtype.kind, a.dtype)) for a in arrays)


@pytest.mark.parametrize("name", PROGRAMS)
def test_ours_are_what_numpy_computes(name: str) -> None:
    given = small(name)
    with ks.interpret():
        ours = results(name, "call", given)
    assert all(map(PROGRAMS[name].agrees, results(name, "NumPy", given), ours))


@pytest.mark.parametrize("name", PROGRAMS)
def test_ours_in_f32_are_as_near_as_numpys(name: str) -> None:
    """To what NumPy computes in f64 of the same numbers."""
    given = small(name, "f32")
    with ks.interpret():
        ours = results(name, "call", given)
    theirs, exact = results(name, "NumPy", given), results(name, "NumPy", wide(given))
    for mine, other, right in zip(ours, theirs, exact, strict=True):
        off = np.abs(other - right).max()
        allowed = 8 * off + 1e-5 * np.abs(right).max()
        assert np.abs(mine - right).max() <= allowed


def test_results_are_no_inputs() -> None:
    """Each program changes what it is compared by."""
    for name, program in PROGRAMS.items():
        given = small(name)
        for before, after in zip(program.of(given), results(name, "NumPy", given), strict=True):
            assert not np.array_equal(before, after), name


def test_sizes_are_checked() -> None:
    assert PROGRAMS["symm"].complete({"n": 3, "m": 2}) == {"m": 2, "n": 3}
    for sizes in ({"n": 3}, {"m": 0, "n": 3}):
        with pytest.raises(ValueError, match=r"the sizes of symm are m, n, each at least 1"):
            PROGRAMS["symm"].complete(sizes)


def row(job: Job, times: dict[str, float], **more: object) -> dict[str, object]:
    stamp = {"machine": "m", "taken": "now", "cores": 2, "load_1min": 0.0, "caches": {}}
    stamp |= {"versions": {}, "cpu": "c", "kernel": "k", "huge_pages": "h", "binding": "b"}
    stamp |= {"compiler": "", "memory_bytes_per_ns": 0.0}
    values = {"times_ns": times, "medians_ns": times, "stamp": stamp, "options": {"seconds": 15.0}}
    return {**job._asdict(), "status": "ok", **values, **more}


def test_what_is_missed() -> None:
    first, second, third, *_ = JOBS
    good = row(first, {"call": 2.0, "found": 1.0, "NumPy": 3.0, "numba": 4.0}, candidates=9)
    nothing = row(second, {"call": 2.0, "NumPy": 3.0, "numba": 4.0}, candidates=0)
    slow = row(third, {"call": 2.0, "NumPy": 1.0, "numba": 4.0})  # nothing was searched
    assert missed([good]) == []
    assert missed([good, nothing, slow]) == [
        f"{second.key}: nothing valid was found",
        f"{third.key}: 0.50 of the better peer",
    ]
    text = report({"rows": [good, nothing, slow]})
    assert "numba: 2 of 3 rows" in text and "searches that found nothing: 1" in text


@pytest.mark.parametrize(
    ("is_chaotic", "off", "is_near"),
    [(True, 1e-6, True), (True, 1e-3, False), (False, 1e-6, False)],
)
def test_results_that_amplify_each_rounding_may_differ_by_that(
    is_chaotic: bool, off: float, is_near: bool
) -> None:
    def orbit(x: Any) -> None:
        for _ in range(34 if is_chaotic else 1):
            x[:] = 3.9 * x * (1.0 - x)

    given = (np.linspace(0.3, 0.31, 50),)
    noise = noise_of(orbit, given, lambda arrays: arrays)
    first = results_by({"NumPy": orbit}, given, lambda arrays: arrays)
    both = {**first, "call": (first["NumPy"][0] + off,)}
    if is_near:
        check_agreement(both, are_near, noise)
    else:
        with pytest.raises(RuntimeError, match="call differ in result 0"):
            check_agreement(both, are_near, noise)
