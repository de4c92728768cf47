"""The table of programs beside C by hand: every function computes what the program means, and ways are compared and kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.experiments import by_hand
from kernelscape.experiments.by_hand_ways import (
    BY_HAND,
    CALLED,
    EXPLORED,
    HAND,
    MACCORMACK,
    PLANNED,
    SEARCH,
    SORTED,
    UNSORTED,
    Asked,
    answer,
)
from kernelscape.experiments.expert import program_source
from kernelscape.experiments.rows import Job
from kernelscape.experiments.taichi_scatters import GRID, arrays_of
from kernelscape.experiments.writing import read_results
from kernelscape.runtime.worker.channel import available_cores

N, STEP = 16, np.float32(0.03)
NEAR = {way: {"usual": 2e-7, "most": 3e-7} for way in (CALLED, PLANNED, EXPLORED)}


def asked_of(way: str, name: str, n: int, threads: int, folder: Path) -> Asked:
    return Asked(way, name, n, threads, str(folder), samples=1, span_s=0.0, flags=("-O0",))


def all_are_near(found: dict[str, Any], name: str) -> bool:
    assert tuple(found["differs"]) == tuple(found["times_ns"]) == BY_HAND[name]
    assert all(wall > 0 and cpu >= 0 for wall, cpu in found["times_ns"].values())
    most = by_hand.MOST[name]
    return all(x["usual"] <= by_hand.USUAL and x["most"] <= most for x in found["differs"].values())


# --- C by hand, in processes of its own: a team of OpenMP in this one would hang in its forked children --------


def sums_of_particles(name: str, n: int) -> np.ndarray:
    """The nodes to which values of particles were added, by quadratic B-splines."""
    x, q, grid = arrays_of(name, n, seed=1)
    at = x * np.float32(GRID)
    base = (at - np.float32(0.5)).astype(int)
    f = at - base
    w = np.stack([0.5 * (1.5 - f) ** 2, 0.75 - (f - 1.0) ** 2, 0.5 * (f - 0.5) ** 2])
    for i, j, k in np.ndindex(3, 3, 3):
        weight = w[i, :, 0] * w[j, :, 1] * w[k, :, 2]
        np.add.at(grid, tuple((base + np.array([i, j, k])).T), weight[:, None] * q)
    return grid


@pytest.mark.compiler
@pytest.mark.parametrize(("name", "threads"), [(SORTED, 1), (SORTED, 3), (UNSORTED, 3)])
def test_particles_by_hand_leave_what_arrays_leave(
    name: str, threads: int, machine: None, tmp_path: Path
) -> None:
    asked = asked_of(HAND, name, 700, threads, tmp_path)
    np.save(asked.values, sums_of_particles(name, 700))
    assert all_are_near(by_hand.said(asked), name)
    if name == UNSORTED:
        np.save(asked.values, sums_of_particles(name, 701))
        assert not all_are_near(by_hand.said(asked), name)


Places = Sequence[np.ndarray]


def around(q: np.ndarray, place: Places) -> tuple[np.ndarray, Places]:
    """The values of the eight cells around places, the first axis first, and how far these are from the first cell."""
    s = [x * np.float32(N) - np.float32(0.5) for x in place]
    low = [np.floor(x) for x in s]
    at = [[np.clip(x.astype(int) + e, 0, N - 1) for e in (0, 1)] for x in low]
    values = [q[at[0][c & 1], at[1][c >> 1 & 1], at[2][c >> 2]] for c in range(8)]
    return np.stack(values), [x - y for x, y in zip(s, low, strict=True)]


def sample(q: np.ndarray, place: Places) -> np.ndarray:
    values, shares = around(q, place)
    for f in shares:
        values = values[::2] + f * (values[1::2] - values[::2])
    return values[0]


def traced(v: Places, x: Places, t: np.float32) -> Places:
    speeds = []
    for ahead in (0.0, 0.5, 0.75):
        last = speeds[-1] if speeds else x
        place = [a - np.float32(ahead) * t * b for a, b in zip(x, last, strict=True)]
        speeds.append([sample(u, place) for u in v])
    a, b, c = speeds
    shares = [np.float32(w) for w in (2 / 9, 1 / 3, 4 / 9)]
    mean = [sum(w * y for w, y in zip(shares, z, strict=True)) for z in zip(a, b, c, strict=True)]
    return [y - t * z for y, z in zip(x, mean, strict=True)]


def step_of_maccormack() -> np.ndarray:
    """The three channels after a step, from the fields that the program begins with; cells of absent blocks are zeros."""
    ticks = (np.arange(N, dtype=np.float32) + np.float32(0.5)) / np.float32(N)
    x = np.meshgrid(ticks, ticks, ticks, indexing="ij")
    a, b, c = (y - np.float32(0.5) for y in x)
    d = np.sqrt(a * a + b * b)
    is_in = (d > 0.32) & (d < 0.45) & (c > -0.45) & (c < 0.45)
    v = [np.where(is_in, y, np.float32(0)) for y in (-b, a, 0 * c)]
    dye = [np.where(is_in, np.float32(0.5) * np.sin(y) + np.float32(0.5), 0) for y in (a, b, a * b)]
    blocks = is_in.reshape(2, 8, 2, 8, 2, 8).any(axis=(1, 3, 5))
    is_there = blocks.repeat(8, 0).repeat(8, 1).repeat(8, 2)
    forth, back = (traced(v, x, t) for t in (STEP, -STEP))
    made = []
    for q in dye:
        after = np.where(is_there, sample(q, forth), np.float32(0))
        corrected = after + np.float32(0.5) * (q - sample(after, back))
        near, _ = around(q, forth)
        is_out = (corrected < near.min(0)) | (corrected > near.max(0))
        made.append(np.where(is_there, np.where(is_out, sample(q, forth), corrected), 0))
    return np.stack(made)


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 3])
def test_maccormack_by_hand_leaves_what_arrays_leave(
    threads: int, machine: None, tmp_path: Path
) -> None:
    asked = asked_of(HAND, MACCORMACK, N, threads, tmp_path)
    np.save(asked.values, step_of_maccormack())
    assert all_are_near(by_hand.said(asked), MACCORMACK)


def test_a_program_that_nobody_has_written_is_an_error() -> None:
    with pytest.raises(KeyError, match="no expert program for 'g2p'"):
        program_source("g2p", {}, 1)


# --- the table -----------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways of processes, whose times are made up: C by hand takes 5 us and more, we 20 us, and 12 us as explored."""
    ways: list[str] = []

    def said(told: Asked) -> dict[str, Any]:
        ways.append(told.way)
        if told.way == SEARCH:
            return {"status": "time_limit", "evaluations": 7, "best_ns": 9e3}
        if told.way == HAND:
            named = BY_HAND[told.name]
            times = {way: [5e3 + 1e3 * k, 8e3] for k, way in enumerate(reversed(named))}
            return {"differs": dict.fromkeys(named, NEAR[CALLED]), "times_ns": times}
        wall = 12e3 if told.way == EXPLORED else 20e3
        return {"differs": {told.way: NEAR[told.way]}, "times_ns": {told.way: [wall, 4e4]}}

    monkeypatch.setattr(by_hand, "said", said)
    return ways


@pytest.mark.compiler
def test_ways_take_turns_behind_the_search(
    asked: list[str], in_this_process: None, tmp_path: Path
) -> None:
    given = ["--only", "maccormack:n=16,threads=1", "--rounds", "2", "-o", str(tmp_path)]
    assert by_hand.main(given) == 1  # explored takes 2.4 times the C, and 2 are wanted
    first = [SEARCH, CALLED, PLANNED, EXPLORED, HAND]
    assert asked == [*first, PLANNED, EXPLORED, HAND, CALLED]
    page = (tmp_path / "by_hand.md").read_text()
    assert (
        "| maccormack 16 | 1 | 20 us (40 us) | 12 us (40 us) | 20 us (40 us) | 5 us (8 us) | loads |"
        in page
    )
    assert "| 4.00 ± 0 % | 5.00 ± 0 % | 2.40 ± 0 % | 5.00 ± 0 % | 2.0 | 7 | 2.0e-07 |" in page
    assert "| maccormack 16 | 1 | gathers | 6 us (8 us) |" in page
    assert by_hand.main(given) == 1  # what is there is not made again
    assert len(asked) == 9
    [row] = read_results("by_hand", tmp_path)["rows"]
    assert by_hand.missed([row]) == ["maccormack:n=16,threads=1 takes 2.40 times the C by hand"]


@pytest.mark.compiler
def test_without_a_search_there_is_the_default_plan_or_none(
    asked: list[str], machine: None
) -> None:
    options = by_hand.ByHandOptions(seconds=0, rounds=1)
    for job, ways in (
        (Job(MACCORMACK, {"n": 16, "threads": 1}), [CALLED, PLANNED, HAND]),
        (Job(UNSORTED, {"n": 90, "threads": 1}), [CALLED, HAND]),
    ):
        asked.clear()
        made = by_hand.make_row(job, options)
        assert asked == ways
        assert by_hand.best_way(made) == ways[-2]


@pytest.mark.compiler
def test_a_row_whose_values_differ_fails(
    asked: list[str], machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(NEAR, CALLED, {"usual": 2e-7, "most": 3e-4})
    options = by_hand.ByHandOptions(seconds=0, rounds=1)
    by_hand.make_row(Job(MACCORMACK, {"n": 16, "threads": 1}), options)  # an element may
    with pytest.raises(RuntimeError, match=r"called differs by 2\.0e-07, at most 3\.0e-04"):
        by_hand.make_row(Job(SORTED, {"n": 90, "threads": 1}), options)


def test_rows_are_of_one_thread_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert {job.sizes["threads"] for job in by_hand.JOBS} == {1, available_cores()}
    for text, said in (
        ("maccormack:n=100", "n is one of 16, 32, 64, 128, not 100"),
        ("p2g_sorted:n=9,threads=0", f"threads are 1 to {available_cores()} here, not 0"),
        ("p2g_sorted:m=9", "the sizes are n and threads, both at least 1"),
    ):
        with pytest.raises(SystemExit):
            by_hand.main(["--only", text])
        assert said in capsys.readouterr().err


@pytest.mark.compiler
@pytest.mark.slow
def test_a_small_row_is_searched_and_compared(
    machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in this process, where the search is compiled, but for C with a team of OpenMP."""
    said = by_hand.said
    monkeypatch.setattr(
        by_hand, "said", lambda told: said(told) if told.way == HAND else answer(told)
    )
    options = by_hand.ByHandOptions(seconds=20, rounds=1, evaluations=1)
    made = by_hand.make_row(Job(UNSORTED, {"n": 300, "threads": 1}), options)
    assert set(made["runs"]) == {CALLED, EXPLORED, *BY_HAND[UNSORTED]}
    assert made["found"]["evaluations"] >= 1
