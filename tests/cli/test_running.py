"""`explore run`, and what can be done with what it leaves: its log, its folder, replay and resume."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .command import SMALL, USER_FILE, evaluations, objects, start


@pytest.mark.compiler
def test_run_replay_codegen(explore, tmp_path: Path) -> None:
    code, out, err = explore("run", *SMALL, "--max-evals", 6, "--json")
    assert code == 0
    told = objects(out)
    result = told[-1]
    assert [told[0]["event"], result["event"]] == ["start", "result"]
    assert "Src" in err
    assert result["status"] == "eval_limit"
    assert result["verified"] is True
    assert result["evaluations"] == 6
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
def test_log_is_a_table(explore) -> None:
    code, out, err = explore("run", *SMALL, "--max-evals", 3, "--target", "fake")
    assert (code, err) == (0, "")
    for part in (
        "Problem ",
        "Space ",
        "Root bound ",
        " Src  |",
        "*W  ",
        "Status ",
        "Bound ",
        "% proved",
        "Saved ",
        " | seed 1 | given: max_evals=3 target=fake\n",
    ):
        assert part in out
    code, out, _ = explore("run", *SMALL, "--max-evals", 3, "--target", "fake", "-q")
    assert " Src  |" not in out
    assert "Status " in out


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
    code, out, _ = explore("run", "mine.py:both", "--size", "n=100", "--max-evals", 3, "--json")
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
    code, out, err = explore("run", *SMALL, "--max-evals", 2, "--target", "fake", *fixing)
    assert (code, err) == (0, "")
    assert "Upfront    3 choices fixed: fused(subtract_scaled0,dot0) = SEPARATE, size(" in out
    assert "bound and gap are of the space with that" in out
    assert "default with what is fixed" in out
    bound = next(line for line in out.splitlines() if line.startswith("Bound "))
    assert "with 3 choices fixed" in bound
    code, out, _ = explore("show", *SMALL, "-v", "--json", "--descents", 0, *fixing)
    shown = objects(out)[0]
    assert len(shown["fixed"]) == 3
    assert "dim_kind(dot0.i.inner)" in shown["open_choices"]
    assert not shown["open_choices"].keys() & shown["fixed"].keys()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("fused", "--fix: 'fused' is not CHOICE=VALUE"),
        ("fussed=SEPARATE", "there is no choice 'fussed'; near it are fused"),
        ("dim_kind(dot0.i.mid)=VECTOR", "dim_kind(dot0.i.mid) cannot be VECTOR here: it is LOOP"),
    ],
)
def test_what_cannot_be_fixed_is_one_sentence(explore, given: str, sentence: str) -> None:
    for command in ("show", "run"):
        code, out, err = explore(command, *SMALL, "--target", "fake", "--fix", given)
        assert (code, out) == (2, "")
        assert err.startswith(f"explore: {sentence}")
