"""The table of alarms: rows are made, kept and written, a planted alarm is counted by name, and states have jobs of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kernelscape.experiments import alarms, rows, sparse_sequences
from kernelscape.experiments.alarms import AlarmOptions
from kernelscape.experiments.conditions import stamp
from kernelscape.experiments.rows import Job, Row
from kernelscape.explorer.workload import Options
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.cpu import probe
from kernelscape.runtime.cpu.compiler import Compiler

FEW = AlarmOptions(seconds=60.0, evaluations=2, calibrate=False)
SMALL = Job("axpy", {"n": 1000, "beside": 0, "seed": 1})


def made(name: str = "axpy", busy: int = 0, **changed: Any) -> Row:
    """A row of a work with no alarm by any compiler."""
    found = {"evaluations": 5, "judged": 3, "alarms": [], "ended": "time_limit"}
    row = {
        "status": "ok", "kind": alarms.LIBRARY, "level": "L1", "calibrated": True, "absent": ["clang"],
        "found": {"gcc": found}, "stamp": stamp(), "options": {},
    }  # fmt: skip
    return {**Job(name, {"n": 1 << 15, "beside": busy, "seed": 1})._asdict(), **row, **changed}


def doubted(**alarm: Any) -> dict[str, Any]:
    """Evaluations of one compiler, with an alarm."""
    told = {"candidate": "c0ffee", "time_ns": 10.0, "bound_ns": 12.0, "decisions": {}, **alarm}
    return {"evaluations": 7, "judged": 7, "alarms": [told], "ended": "max_evals"}


@pytest.mark.compiler
@pytest.mark.slow
def test_rows_are_made_kept_and_written(tmp_path: Path, in_this_process: None) -> None:
    wanted = [SMALL, Job("bicgk", {"nosuch": 1, "beside": 0, "seed": 1})]
    question = alarms.question_of(alarms.ALONE)
    good, failed = question.table(wanted, FEW, folder=tmp_path)
    assert good["found"]["gcc"]["evaluations"] >= good["found"]["gcc"]["judged"] >= 1
    assert good["found"]["gcc"]["alarms"] == []
    assert "nosuch" in failed["why"]
    assert question.table([SMALL], FEW, folder=tmp_path)[0] == good
    text = (tmp_path / "alarms.md").read_text()
    assert "axpy 1000 | library | L1 | alone | 1 | gcc |" in text
    assert "bicgk:nosuch=1,beside=0,seed=1 failed: " in text


@pytest.mark.compiler
@pytest.mark.slow
def test_a_planted_alarm_is_counted_by_name(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a count of alarms that is always nothing."""
    slow = replace(probe.guess_target(), call_ns=1e9, calibrated=True)
    monkeypatch.setattr(probe, "load_target", lambda: slow)
    row = {"status": "ok", **SMALL._asdict(), **alarms.make_row(SMALL, FEW)}
    alarm, *_ = row["found"]["gcc"]["alarms"]
    assert 0 < alarm["time_ns"] < alarm["bound_ns"]
    assert alarm["decisions"]
    assert any(alarm["candidate"] in line for line in alarms.missed([row]))
    assert f"| {alarm['candidate']} | axpy 1000 | alone | gcc |" in alarms.report({"rows": [row]})


@pytest.mark.parametrize("name", sparse_sequences.PROGRAMS)
def test_a_sparse_program_is_a_workload_of_lists(name: str) -> None:
    workload = alarms.WORKS[name].workload(Job(name, {"shrink": 8}), 1)
    assert workload.problem.tasks
    assert any("list" in a.name for a in workload.problem.arrays)


def test_sums_are_by_kind_state_and_compiler() -> None:
    both = made("vadd", found={"gcc": doubted(), "clang": doubted(time_ns=None)})
    failed = made("sscal") | {"status": "failed", "why": "no word"}
    found = list(alarms.sums([made(), both, made(busy=2), failed]))
    said = [[*(f"{r[k]}" for k in alarms.SUMS)] for r in found]
    assert said == [
        ["library", "alone", "clang", "1", "7", "7", "1"],
        ["library", "alone", "gcc", "2", "12", "10", "1"],
        ["library", "beside 2", "gcc", "1", "5", "3", "0"],
        ["all", "", "", "2", "24", "20", "2"],
    ]
    assert alarms.missed([made(), both, failed]) == [
        "sscal:n=32768,beside=0,seed=1 failed: no word",
        "vadd 2^15 alone, gcc: c0ffee below its bound",
        "vadd 2^15 alone, clang: c0ffee below its bound",
    ]
    text = alarms.report({"rows": [made(), both, failed]})
    assert "| c0ffee | vadd 2^15 | alone | gcc | 10 ns | 12 ns |" in text
    assert "- clang: not found on this machine" in text
    assert "None." in alarms.report({"rows": [made()]})


def test_the_table_has_all_kinds_early_and_sizes_beyond_caches() -> None:
    jobs = alarms.all_jobs(2, 1)
    assert len({job.key for job in jobs}) == len(jobs)
    assert {job.name for job in jobs} == set(alarms.WORKS)
    assert {alarms.WORKS[job.name].kind for job in jobs[:3]} == {"library", "body", "sparse"}
    axpy = [job.sizes["n"] for job in jobs if job.name == "axpy"]
    assert axpy == [1 << 15, 1 << 20, 1 << 24]
    assert {job.sizes["beside"] for job in jobs} == {2}


@pytest.mark.parametrize(("state", "busy"), [("alone", 0), ("beside", alarms.available_cores())])
def test_a_state_has_rows_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, busy: int
) -> None:
    """Kind: a row beside busy processes that takes the place of one alone."""
    asked: list[Job] = []

    def run_row(file: str, job: Job, options: AlarmOptions, limit_s: float) -> Row:
        asked.append(job)
        return made(**job._asdict() | {"options": {}})

    def made(**row: Any) -> Row:
        return {"status": "failed", "why": "not asked", **row}

    monkeypatch.setattr(rows, "run_row", run_row)
    given = ["--only", "walls", "multires:shrink=4", "--no-calibrate", "--results", str(tmp_path)]
    assert alarms.main(["--state", state, "--seed", "3", *given]) == 1
    assert asked == [
        Job("walls", {"n": 1024, "beside": busy, "seed": 3}),
        Job("multires", {"shrink": 4, "beside": busy, "seed": 3}),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--state", "asleep"], "invalid choice: 'asleep'"),
        (["--only", "nosuch"], "no sequence 'nosuch'"),
        (["--only", "multires:shrink=0"], "the size is shrink, at least 1"),
        (["--seconds", "0"], "--seconds must be positive"),
    ],
)
def test_mistakes_are_one_sentence(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        alarms.main(given)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_each_compiler_that_works_explores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a table by gcc alone where there is a clang from PyPI."""
    asked: list[Any] = []

    def find(name: str) -> Compiler:
        if name == "clang":
            raise DeviceError("not here")
        return Compiler(f"/{name}", name, ())

    monkeypatch.setattr(alarms, "find_compiler", find)
    assert alarms.compilers() == {"gcc": "/gcc", "clang": "/zig"}

    def explored(workload: Any, options: Options) -> Any:
        asked.append(options.compiler)
        raise RuntimeError("no time")

    monkeypatch.setattr(alarms.row, "explored", explored)
    with pytest.raises(RuntimeError, match="no time"):
        alarms.make_row(SMALL, FEW)
    assert asked == ["/gcc"]
