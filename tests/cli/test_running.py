"""`explore run`, and what can be done with what it leaves: its log, its folder, replay and resume."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .command import SMALL, USER_FILE, evaluations, objects, start


@pytest.mark.compiler
def test_run_replay_codegen(explore, tmp_path: Path) -> None:
    code, out, err = explore("run", *SMALL, "--max-evals", 3, "--json")
    assert code == 0
    told = objects(out)
    result = told[-1]
    assert [told[0]["event"], result["event"]] == ["start", "result"]
    assert "Src" in err
    assert result["status"] == "eval_limit"
    assert result["verified"] is True
    assert result["evaluations"] == 3
    assert result["run_dir"] == "runs/axpydot-cpu-n1000-001"
    for name in ("best_ns", "baseline_ns", "numpy_ns"):
        assert result[name] > 0
    assert {p.name for p in Path(result["run_dir"]).iterdir()} == {
        "run.json",
        "journal.jsonl",
        "best.json",
        "best.so",
        "kernel.c",
        "tree.jsonl",
    }

    code, out, err = explore("replay", result["run_dir"], "--tolerance", "1000%")
    assert (code, err) == (0, "")
    assert "verified on 3 input sets" in out

    code, out, _ = explore("codegen", f"{result['run_dir']}/best.json", "-o", tmp_path / "c")
    text = (tmp_path / "c" / "kernel.c").read_text()
    assert text == Path(result["run_dir"], "kernel.c").read_text()
    assert "-w" not in out.split()
    command = [*out.split(), "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.compiler
def test_concurrent_runs_have_their_own_folders() -> None:
    given = (*SMALL, "--target", "fake", "--max-evals", 2, "--json")
    running = [start("run", *given) for _ in range(2)]
    results = [objects(r.communicate()[0])[-1] for r in running]
    assert [r.returncode for r in running] == [0, 0]
    folders = {r["run_dir"] for r in results}
    assert folders == {"runs/axpydot-fake-n1000-001", "runs/axpydot-fake-n1000-002"}
    for folder in folders:
        assert len(evaluations(Path(folder))) == 2


@pytest.mark.compiler
def test_a_users_own_file(explore, tmp_path: Path) -> None:
    Path("mine.py").write_text(USER_FILE)
    code, out, _ = explore("run", "mine.py:both", "--size", "n=100", "--max-evals", 1, "--json")
    result = objects(out)[-1]
    assert code == 0
    assert result["run_dir"] == "runs/both-cpu-n100-001"
    assert result["numpy_ns"] > 0
    Path("mine.py").unlink()
    assert explore("replay", result["run_dir"], "--tolerance", "1000%")[0] == 0
    assert explore("resume", result["run_dir"], "--max-evals", 1)[0] == 0


@pytest.mark.compiler
def test_choices_are_fixed_upfront(explore) -> None:
    fixing = ("--fix", "fused=SEPARATE", "--fix", "size(*.mid)=1")
    _, out, _ = explore("show", *SMALL, "-v", "--json", "--descents", 0, *fixing)
    shown = objects(out)[0]
    assert len(shown["fixed"]) == 3
    assert "dim_kind(dot0.i.inner)" in shown["open_choices"]
    assert not shown["open_choices"].keys() & shown["fixed"].keys()


OVERWRITTEN = """
import numpy as np
import kernelscape as ks

@ks.kernel
def clear(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = 0.0

@ks.kernel
def turn(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = x[x.shape[0] - 1 - i] + 1.0

def both(x, y):
    clear(x, y)
    turn(x, y)

def make_arguments(sizes, dtype, rng):
    return rng.random(64).astype(dtype), np.zeros(64, dtype)
"""


@pytest.mark.compiler
def test_a_search_leaves_out_a_rewrite(explore) -> None:
    Path("mine.py").write_text(OVERWRITTEN)
    tasks = []
    for without in ((), ("--without", "dead_stores")):
        _, out, _ = explore("show", "mine.py:both", "--json", "--descents", 0, *without)
        tasks.append(len(objects(out)[0]["tasks"]))
    assert tasks == [1, 2]
    code, out, _ = explore("run", "mine.py:both", "--max-evals", 1, *without)
    assert code == 0 and "given: max_evals=1 without=dead_stores" in out
    run = "runs/both-cpu-d064-001"
    assert explore("replay", run, "--tolerance", "1000%")[0] == 0
    assert explore("resume", run, "--max-evals", 1)[0] == 0
    note = "searched without rewrites: dead_stores are left as the calls have them"
    assert note in explore("explain", run)[1]
    assert explore("store", "list")[1].endswith("  0 rows\n")
