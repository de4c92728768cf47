"""Tables about the bound: small rows are made, and their pages hold them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kernelscape.experiments import admissible, correctness, paper_rows, pruning, rank
from kernelscape.experiments.rows import Job
from kernelscape.search.predict import NO_FACTORS


def test_a_row_of_pruning_counts_bounds_and_nodes() -> None:
    job = Job("axpydot", {"n": 1 << 20})
    made = pruning.make_row(job, pruning.PruningOptions(sample=8, depth=3, descents=20, tight=2))
    assert 1 <= made["distinct"] <= made["sampled"] <= 8
    assert all(0 <= kept["mean"] <= 1 for kept in made["kept"])
    assert 0 <= made["tight"] <= 1
    page = pruning.report({"rows": [{"status": "ok", **job._asdict(), **made}]})
    assert "| axpydot 2^20 |" in page


def test_a_row_of_counts_is_above_none() -> None:
    job = Job("axpy", {"n": 5000})
    made = admissible.make_row(job, admissible.AdmissibleOptions(sample=2))
    assert (made["checked"] > 0, made["above"], made["fallen"]) == (True, 0, 0)
    assert admissible.missed([{"status": "ok", **job._asdict(), **made, "above": 1}]) != []


def test_rows_a_power_of_two_apart_are_judged_with_the_sets_of_a_cache() -> None:
    """Kind: a judge whose sizes leave the term of sets at nothing."""
    keys = [job.key for job in admissible.JOBS]
    assert len(keys) == len(set(keys))
    job = Job("bicgk", {"m": 32, "n": 64})
    made = admissible.make_row(job, admissible.AdmissibleOptions(sample=6))
    assert (made["by_sets"] > 0, made["above"], made["fallen"]) == (True, 0, 0)
    assert made["most"]["sets"] > 0
    assert json.loads(json.dumps(made)) == made


def test_bounds_are_judged_in_pieces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kind: a piece that ends well whatever it found."""
    monkeypatch.setattr(admissible, "JOBS", [Job("axpy", {"n": 5000})])
    assert correctness.main(["--bounds", "3", "5", "-o", str(tmp_path)]) == 0
    assert "descents 3 to 5: 12 terms, 0 wrong" in capsys.readouterr().out
    monkeypatch.setattr(admissible, "_SLACK", 0.0)
    assert correctness.main(["--bounds", "7", "8", "-o", str(tmp_path)]) == 1
    assert "7, axpy: loads are" in capsys.readouterr().out


def test_first_implementations_are_predicted_from_other_sequences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"status": "ok", "name": name, "parts": [], "times_ns": [k]}
        for k, name in enumerate(("axpy", "atax", "atax", "heat"))
    ]
    monkeypatch.setattr(paper_rows, "read_results", lambda name: {"rows": rows})
    monkeypatch.setattr(rank, "factors_of", lambda made: [r["times_ns"][0] for r in made])
    assert paper_rows.factors_of_others(Job("atax", {"m": 8})) == [0, 3]


def test_equal_bounds_share_a_rank() -> None:
    assert rank.rank_correlation([1.0, 1.0, 2.0], [5.0, 7.0, 9.0]) == pytest.approx(0.866, abs=1e-3)
    assert rank.rank_correlation([1.0, 1.0], [5.0, 7.0]) is None
    assert len(set(rank.rounded([100.0, 101.0, 110.0]))) == 2


def test_predictions_are_fitted_to_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a model that is judged by what it was fitted to."""
    fits: list[set[float]] = []

    def fitted(parts: Any, times_ns: Any) -> tuple[float, ...]:
        assert len(parts) == len(times_ns)
        fits.append(set(times_ns))
        return NO_FACTORS

    monkeypatch.setattr(rank, "fitted", fitted)
    rest = [0.0] * (len(NO_FACTORS) - 1)
    parts = [[1.0, *rest], [2.0, *rest]]
    rows = [{"parts": parts, "times_ns": [k, k + 0.5]} for k in (1.0, 2.0, 3.0)]
    made = rank.with_predictions([{"status": "ok", **r} for r in rows])
    assert fits == [{2.0, 2.5}, {1.0, 1.5, 3.0, 3.5}, {2.0, 2.5}]
    assert [r["by_prediction"] for r in made] == pytest.approx([1.0] * 3)
