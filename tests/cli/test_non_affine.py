"""Non-affine tasks are named wherever something is claimed of the rest: log, JSON, show, explain, and in Python."""

from __future__ import annotations

import importlib
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.runtime.records.loading import load_best

from .command import SMALL, objects

HALVING = """
import numpy as np
import kernelscape as ks

@ks.kernel
def positive(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        t = x[i]
        while t > 0.5:
            t = t * 0.5
        y[i] = t

def sequence(x, y):
    positive(x, y)

def make_arguments(sizes, dtype, rng):
    return rng.random(8).astype(dtype), np.zeros(8, dtype)
"""
SENTENCE = "1 of 1 tasks is non-affine: a while loop around the variable t, line 9 of halving.py"


def write() -> str:
    Path("halving.py").write_text(HALVING)
    return "halving.py:sequence"


def test_a_run_claims_nothing_of_non_affine_tasks(explore) -> None:
    code, out, _ = explore("run", write(), "--target", "fake", "--json", "-q")
    assert code == 0
    result = objects(out)[-1]
    assert result["status"] == "optimal_open"
    (task,) = result["non_affine"]
    assert (task["task"], task["kind"], task["line"]) == ("positive0", "branch", 9)
    assert task["reason"] == "a while loop around the variable t"
    assert task["file"].endswith("halving.py")
    # The best is no bound: what the non-affine body does is counted, not proved.
    assert result["bound_ns"] < result["best_ns"]
    assert result["gap"] == (result["best_ns"] - result["bound_ns"]) / result["best_ns"]
    rows = [o for o in objects(out) if o["event"] == "row"]
    assert rows
    assert all(o["bound_ns"] == result["bound_ns"] for o in rows)
    best = load_best(Path(result["run_dir"], "best.json"))
    assert (best.status, best.gap > 0) == ("optimal_open", True)

    code, out, _ = explore("explain", result["run_dir"], "--json")
    assert (code, objects(out)[-1]["non_affine"]) == (0, [task])
    code, out, _ = explore("show", write(), "--descents", 0, "--json")
    assert (code, objects(out)[-1]["non_affine"]) == (0, [task])


def test_where_all_is_affine_optimal_stands_for_all(explore) -> None:
    code, out, err = explore("run", *SMALL, "--target", "fake", "--max-evals", 3, "--json", "-v")
    assert (code, objects(out)[-1]["non_affine"], "on-affine" in err) == (0, [], False)


def test_python_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("halving.py").write_text(HALVING)
    monkeypatch.syspath_prepend(tmp_path)
    sequence = importlib.import_module("halving").sequence
    x = np.ones(64, np.float32)
    run = ks.explore(sequence, x, x.copy(), target="fake", directory=tmp_path / "run")
    assert run.status == "optimal_open"
    assert run.non_affine
    assert str(run.non_affine) == SENTENCE
