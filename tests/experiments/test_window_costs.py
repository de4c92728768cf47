"""Costs of windows: what is measured runs, ways take turns, goals are judged by medians, and one compiler runs at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.experiments import window_costs, window_parts
from kernelscape.experiments.program_texts import TEXTS
from kernelscape.experiments.programs import HEAD
from kernelscape.experiments.writing import read_results

CALLS = {
    "called": {"held": 1.2, "held_number": 1.4, "last": 1.2, "period": 9.6, "whole": 10.0},
    "planned": {"held": 0.5, "held_number": 0.9, "last": 2.5, "period": 6.0, "whole": 7.0},
}
BROKEN = {"called": {"new": 12.0, "known": 12.0, "read": 14.0}}
BROKEN["planned"] = {"new": 24.0, "known": 12.0, "read": 14.0}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Processes that were asked for, which say made-up values."""
    found: list[tuple[str, ...]] = []

    def last_said(command: list[str], *_: object) -> dict[str, Any]:
        part, name, *_ = command[3:]
        found.append((part, name))
        if part == "calls":
            return CALLS[name] | BROKEN[name] | {"code": 1.5}
        return {"recorded": 0.5, "space": 1.0, "root": 1.25, "calls": 9, "tasks": 8, "choices": 7}

    def run_text(_: str, text: str, *given: Any, **environment: str) -> dict[str, Any]:
        way = given[2]
        if "append" in text:
            found.append(("emptied", way))
            return {"wall_us": 60.0 if way == "taichi" else 90.0, "cpu_us": 100.0, "result": 120}
        is_one = "PATH" in environment
        found.append(("first", "one" if is_one else "two"))
        return {"first_s": 3.0 if is_one else 2.0, "compilers_s": 2.5}

    monkeypatch.setattr(window_costs, "last_said", last_said)
    monkeypatch.setattr(window_costs, "run_text", run_text)
    monkeypatch.setattr(window_costs, "pythons_of", lambda *_: ({}, {"taichi": "1.7.4"}))
    monkeypatch.setattr(window_costs, "FIRST", ("texture",))
    return found


def test_ways_take_turns_rows_are_kept_and_goals_that_are_missed_are_said(
    asked: list[tuple[str, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--peer", "taichi=python", "--rounds", "2", "-o", str(tmp_path)]
    assert window_costs.main(given) == 1
    assert asked[:4] == [("calls", "called"), ("calls", "planned")] * 2
    assert asked[4:7] == [("emptied", way) for way in ("called", "planned", "taichi")]
    assert asked[10:14] == [("first", "one"), ("first", "two")] * 2
    assert [name for _, name in asked[14:17]] == ["distinct", "distinct", "mgpcg_2d"]
    said = capsys.readouterr().out
    lines = [x.removeprefix("missed: ") for x in said.splitlines() if x.startswith("missed: ")]
    assert lines == [
        "calls, a call with another number each period: 0.90 ± 0.00, at most 0.70 wanted",
        "calls, broken by a new call: 2.00 ± 0.00, at most 1.50 wanted",
        "emptied, called: 1.50 ± 0.00, at most 1.00 wanted",
        "emptied, planned: 1.50 ± 0.00, at most 1.00 wanted",
        "compilers, texture: 1.50 ± 0.00, at least 1.60 wanted",
        "roots, 100 distinct kernels: 2.8 ± 0, at most 2 wanted",
        "roots, an iteration of MGPCG: 2.8 ± 0, at most 2 wanted",
    ]
    page = (tmp_path / "window_costs.md").read_text()
    assert "| the last call beside its code | – | 0.50 ± 0.00 us | – | at most 1.00 |" in page
    assert "| taichi | 60.00 ± 0.00 us | 100.00 ± 0.00 us | 120 | – | – |" in page
    assert "- beside taichi 1.7.4" in page
    n = len(asked)
    assert window_costs.main(given) == 1  # what is there is not made again
    assert window_costs.main([*given, "--again", "--piece", "0"]) == 1  # no time for a row
    assert len(asked) == n


def test_a_part_that_fails_is_a_row_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_said(*_: object) -> dict[str, Any]:
        raise RuntimeError("no end within 9 s")

    monkeypatch.setattr(window_costs, "last_said", last_said)
    assert window_costs.main(["--only", "roots", "-o", str(tmp_path)]) == 1
    [row] = read_results("window_costs", tmp_path)["rows"]
    assert (row["status"], row["why"]) == ("failed", "no end within 9 s")
    assert "- failed: no end within 9 s" in (tmp_path / "window_costs.md").read_text()


def test_a_goal_is_judged_by_the_median() -> None:
    assert not window_costs.Goal([0.5, 0.6, 9.0], 0.7, ".1f").is_missed
    assert window_costs.Goal([0.5, 0.8, 0.9], 0.7, ".1f").is_missed
    assert window_costs.Goal([1.5], 1.6, ".1f", is_least=True).is_missed
    assert not window_costs.Goal([1.7], 1.6, ".1f", is_least=True).is_missed


@pytest.mark.compiler
@pytest.mark.parametrize("way", ["called", "planned"])
def test_calls_are_timed_and_periods_run_by_plans(way: str) -> None:
    found = window_parts.calls(way, 20, 3)
    keys = {"held", "last", "period", "held_number", "last_number", "whole", "new", "known", "read"}
    assert found.keys() == keys | ({"code"} if way == "planned" else set())
    assert all(x > 0 for x in found.values())
    ks.reset()


@pytest.mark.compiler
def test_held_calls_run_with_the_last_one_of_a_period() -> None:
    """Kind: a held call that has run already, or a period that ran without its plan."""
    window_parts.begin("planned")
    small = window_parts.SmallProgram()
    small.settle("planned")
    before = ks.engine.stats()
    *first, last = small.period
    for a, b in first:
        small.move(a, b)
    assert ks.engine.stats().n_windows == before.n_windows
    small.move(*last)
    after = ks.engine.stats()
    assert (after.n_windows - before.n_windows, after.n_planned - before.n_planned) == (1, 8)
    ks.reset()


def test_distinct_kernels_are_a_window_at_the_root_of_its_space() -> None:
    found = window_parts.root("distinct", 5)
    assert (found["calls"], found["tasks"]) == (5, 5) and found["choices"] > 0
    assert all(found[step] > 0 for step in window_parts.STEPS)


def test_no_two_kernels_of_a_long_window_are_alike() -> None:
    texts = window_parts.distinct_text(250).split("@ks.kernel\n")[1:]
    bodies = {text.partition("\n")[2] for text in texts}
    assert len(bodies) == 250


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("called", window_costs.EMPTIED),
        ("planned", window_costs.EMPTIED),
        ("called", window_costs.FIRST_HEAD + TEXTS["increments"] + window_costs.FIRST_TAIL),
    ],
)
def test_a_program_says_what_it_took(
    way: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "program.py"  # kernels are read from a file
    file.write_text(HEAD + text)
    monkeypatch.setattr(sys, "argv", [str(file), way, "100", "", "0", "[{}, []]", "[]"])
    exec(compile(HEAD + text, file, "exec"), {"__name__": "__main__"})
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said.get("result", 120) == 120
    assert said["first_s" if "first_s" in said else "wall_us"] > 0
    ks.reset()


def test_one_compiler_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that finds another one at work says so."""
    real, held = tmp_path / "real", tmp_path / "held"
    real.mkdir()
    log, script = tmp_path / "log", real / "gcc"
    script.write_text(
        f"#!/bin/sh\nmkdir '{held}' || echo two >>'{log}'\necho \"$1\" >>'{log}'\nrmdir '{held}'\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(real), prepend=":")
    environment = window_costs.one_at_a_time(tmp_path)
    monkeypatch.setenv("PATH", environment["PATH"])
    with ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(subprocess.run, ["gcc", f"file {k}"], check=True) for k in range(8)]
        for run in runs:
            run.result()
    assert sorted(log.read_text().splitlines()) == [f"file {k}" for k in range(8)]
