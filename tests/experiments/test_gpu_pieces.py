"""The pieces of `make gpu`, but for the GPU: what is made first, what is kept, and rows made on the emulator."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from kernelscape.experiments import (
    gpu,
    gpu_contracts,
    gpu_sanitizer,
    gpu_sparse,
    gpu_telamon,
    rows,
)
from kernelscape.experiments.commands import run_whole
from kernelscape.experiments.conditions import stamp
from kernelscape.experiments.gpu_goals import all_jobs
from kernelscape.experiments.gpu_stamp import why_not
from kernelscape.experiments.rows import Job
from kernelscape.experiments.sampling import generator_hash

NO_EMULATOR = why_not("emulator")
CUBE = Job("matmul", {"m": 1024, "n": 1024, "k": 1024})


def made(job, over_cublas=None, share=None, generator="others", **changed):
    """A row of the table as far as pieces look at it."""
    row = {
        "status": "ok", "below_bound": 0, "alarms": 0, "options": {"target": "cuda"}, "share": share,
        "over_cublas": over_cublas, "generator": generator,
    }  # fmt: skip
    return {**job._asdict(), **row, **changed}


def keys(jobs):
    return [job.key for job in jobs]


def test_what_missed_comes_first_and_what_is_new_is_not_made_again():
    missed, met = made(CUBE, 0.5), made(all_jobs()[0], 3.0, 0.99)
    assert keys(gpu.missed_jobs([missed, met], [])) == [CUBE.key]
    assert gpu.missed_jobs([made(CUBE, 0.5, generator=generator_hash())], []) == []
    failed = {**CUBE._asdict(), "status": "failed", "why": "no word", "options": {}}
    assert keys(gpu.missed_jobs([failed], [])) == [CUBE.key]


def test_where_a_machine_has_no_row_another_says_what_missed():
    assert keys(gpu.missed_jobs([], [made(CUBE, 0.5)])) == [CUBE.key]
    assert gpu.missed_jobs([made(CUBE, 0.95)], [made(CUBE, 0.5)]) == []


def test_the_rest_is_what_is_not_there_then_what_is_of_other_sources():
    there = [made(job, 3.0, 0.99, generator_hash()) for job in all_jobs()]
    assert gpu.other_jobs(there) == []
    there[3]["generator"] = "others"
    del there[8]
    assert keys(gpu.other_jobs(there)) == [all_jobs()[8].key, all_jobs()[3].key]


def test_a_piece_that_there_is_not_is_a_usage_error(capfd):
    with pytest.raises(SystemExit) as caught:
        gpu.main(["nosuch"])
    assert caught.value.code == 2
    assert "there is no piece nosuch: there are contracts, missed," in capfd.readouterr().err


@pytest.mark.skipif(not why_not("cuda"), reason="there is a GPU")
@pytest.mark.parametrize("script", [gpu, gpu_contracts, gpu_sparse, gpu_telamon, gpu_sanitizer])
def test_without_a_gpu_it_ends_with_one_sentence(script, capfd):
    assert script.main([]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1


TEST_FILES = {
    "passes": ("def test_one(): pass\n", True, "1 passed"),
    "fails": ("def test_one(): assert False\n", False, "1 failed"),
    "hangs": ("import time\ndef test_one(): time.sleep(60)\n", False, "no end within 3 s"),
}


@pytest.mark.parametrize("kind", TEST_FILES)
def test_contract_tests_pass_fail_or_are_ended(kind, tmp_path):
    text, is_ok, said = TEST_FILES[kind]
    file = tmp_path / "test_it.py"
    file.write_text(text)
    found = gpu_contracts.run_tests(3.0 if kind == "hangs" else 60.0, [str(file)])
    assert found["is_ok"] is is_ok
    assert said in found["said"]
    assert len(found["failed"]) == (kind == "fails")


def test_tests_that_passed_are_run_again_when_sources_change(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_contracts, "gpu_machine", lambda target: "a GPU")
    monkeypatch.setattr(gpu_contracts, "gpu_stamp", lambda target: stamp_of_a_gpu())
    passed = {"is_ok": True, "said": "3 passed", "failed": [], "seconds": 1.0, "sources": gpu_contracts.backend_hash()}  # fmt: skip
    monkeypatch.setattr(gpu_contracts, "run_tests", lambda limit_s: passed)
    assert not gpu_contracts.is_passed(tmp_path)
    assert gpu_contracts.make(9.0, tmp_path) == []
    assert gpu_contracts.is_passed(tmp_path)
    assert "All pass." in (tmp_path / "gpu_contracts.md").read_text()
    monkeypatch.setattr(gpu_contracts, "backend_hash", lambda: "others")
    assert not gpu_contracts.is_passed(tmp_path)
    failed = passed | {"is_ok": False, "said": "1 failed", "failed": ["FAILED x"]}
    monkeypatch.setattr(gpu_contracts, "run_tests", lambda limit_s: failed)
    assert gpu_contracts.make(9.0, tmp_path) == ["contract tests: 1 failed", "FAILED x"]


def stamp_of_a_gpu():
    return stamp() | {"device": {"gpu": "a GPU"}}


def test_a_command_ends_with_all_that_it_has_started():
    """Kind: what a killed command started goes on, and holds the GPU under the next piece."""
    sleeps = "import subprocess, time; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); time.sleep(60)"
    ended = run_whole([sys.executable, "-c", sleeps], 2.0)
    assert ended.status is None
    status = Path(f"/proc/{int(ended.output)}/status")
    end_s = time.monotonic() + 20  # a killed process takes a moment to end
    while runs(status) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not runs(status)


def runs(status: Path) -> bool:
    """True if the process with this file is there, and is no zombie."""
    try:
        return "State:\tZ" not in status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_was_left_unchecked_is_said():
    assert gpu._checked("bodies", 400, 0) == []
    assert gpu._checked("bodies", 3, 1) == [
        "1 bodies are wrong",
        "only 3 of 400 bodies were checked",
    ]


TOOL = """#!{python}
import json, sys
from pathlib import Path
log = sys.argv[sys.argv.index("--log-file") + 1]
for p, text in {logs!r}.items():
    Path(log.replace("%p", p)).write_text(text)
{more}
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A stand-in for compute-sanitizer, which writes such logs."""

    def made(logs, more=""):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / "compute-sanitizer"
        path.write_text(TOOL.format(python=sys.executable, logs=logs, more=more))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return made


def test_errors_that_the_sanitizer_names_are_counted(tool):
    first = "========= Invalid __global__ read of size 4\n========= ERROR SUMMARY: 2 errors\n"
    tool({"1": first, "2": "========= ERROR SUMMARY: 1 error\n"})
    found = gpu_sanitizer.run(5, "memcheck", 60.0)
    assert (found["errors"], found["is_heard"]) == (3, True)
    assert found["said"] == ["Invalid __global__ read of size 4"]
    assert gpu_sanitizer.missed(found) == ["memcheck found 3 errors"]


def test_a_sanitizer_that_finds_nothing_or_says_nothing_is_told_apart(tool):
    tool({"1": "========= ERROR SUMMARY: 0 errors\n"})
    assert gpu_sanitizer.missed(gpu_sanitizer.run(5, "memcheck", 60.0)) == []
    tool({}, "sys.exit('no device')")
    found = gpu_sanitizer.run(5, "memcheck", 60.0)
    assert "said nothing" in gpu_sanitizer.missed(found)[0]
    tool({}, "import time; time.sleep(60)")
    found = gpu_sanitizer.run(5, "memcheck", 2.0)
    assert "no end within 2 s" in gpu_sanitizer.missed(found)[0]


TASKS = {"loops": 2, "lists": 0}
SEARCHED = {
    "status": "time_limit", "evaluations": 3, "tasks": TASKS, "best_ns": 2e3, "default_ns": 4e3, "failures": {}, "alarms": 0,
}  # fmt: skip


@pytest.fixture
def measured(monkeypatch):
    """A stand-in for the processes of programs on sparse fields; the architectures that were asked for."""
    asked = []

    def measure(peers, name, program, rounds, given, arch="cpu"):
        asked.append(arch)
        runs = {"kernelscape": [{"wall_us": 8.0, "result": 2.0}] * rounds}
        return {"explored": SEARCHED if given[2] else None, "runs": runs}

    monkeypatch.setattr(gpu_sparse, "measure", measure)
    monkeypatch.setattr(gpu_sparse, "gpu_machine", lambda target: "a GPU")
    monkeypatch.setattr(gpu_sparse, "gpu_stamp", lambda target: stamp_of_a_gpu())
    return asked


def test_sequences_on_sparse_fields_are_kept_while_sources_are_the_same(
    tmp_path, capfd, measured, monkeypatch
):
    options, names = gpu_sparse.SparseOptions(), ["sparse_saxpy", "multires"]
    assert gpu_sparse.make(names, options, time.monotonic(), tmp_path) == []
    assert "no time left for 2 programs" in capfd.readouterr().out
    assert gpu_sparse.make(names, options, time.monotonic() + 600.0, tmp_path) == []
    assert measured == ["cpu", "cuda"] * 2
    text = (tmp_path / "gpu_sparse.md").read_text()
    assert "| sparse_saxpy | 2 | 0 | 2 us | 4 us | 8 us (4.0x) | 3 | none | 0 | 0.0e+00 |" in text
    assert gpu_sparse.missing("cuda", names, tmp_path, again=False) == []
    monkeypatch.setattr(gpu_sparse, "backend_hash", lambda: "others")
    assert gpu_sparse.missing("cuda", names, tmp_path, again=False) == names


def test_a_sequence_without_a_valid_candidate_is_a_sentence(tmp_path, measured, monkeypatch):
    nothing = SEARCHED | {"best_ns": None, "failures": {"wrong": 2}}
    monkeypatch.setitem(globals(), "SEARCHED", nothing)
    failed = gpu_sparse.make(
        ["multires"], gpu_sparse.SparseOptions(), time.monotonic() + 600.0, tmp_path
    )
    assert failed == ["multires failed: nothing valid was found (2 wrong)"]
    assert gpu_sparse.missing("cuda", ["multires"], tmp_path, again=False) == ["multires"]


@pytest.mark.skipif(bool(NO_EMULATOR), reason=NO_EMULATOR)
def test_tables_of_telamon_go_on_run_by_run(tmp_path, monkeypatch):
    """Explorations are made up; the space is counted with the cut at their mean."""
    asked = []

    def run_row(module, job, options, limit_s):
        asked.append(options.seed)
        row = made(job, 2.0, generator=generator_hash(), best_ns=1e3 * options.seed, cublas_ns=4e3)
        return row | {"options": asdict(options), "evaluations": 5}

    monkeypatch.setattr(rows, "run_row", run_row)
    options = gpu_telamon.TelamonOptions("emulator", 20.0, seeds=2)
    jobs = [Job("matmul", {"m": 16, "n": 16, "k": 8})]
    tables = gpu_telamon.Tables(options, tmp_path, jobs)
    tables.make(time.monotonic())  # no time for any
    assert len(tables.missing()) == 2
    tables.make(time.monotonic() + 600.0)
    assert asked == [1, 2]
    again = gpu_telamon.Tables(options, tmp_path, jobs)
    assert again.failed() == again.missing() == []
    assert again.is_counted()
    text = (tmp_path / "gpu_telamon_emulator.md").read_text()
    assert text.count("| matmul 16x16x8 |") == 2
    assert "1.5 us" in text
    monkeypatch.setattr(gpu_telamon, "generator_hash", lambda: "others")
    assert len(again.missing()) == 2
