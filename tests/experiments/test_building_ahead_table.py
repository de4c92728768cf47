"""What building ahead is worth: the smallest run of the table."""

from __future__ import annotations

import json

import pytest
from kernelscape.experiments import building_ahead
from kernelscape.experiments.rows import Job


@pytest.mark.compiler
@pytest.mark.slow
def test_a_pair_of_searches_makes_a_row(tmp_path):
    """One of the two builds nothing before a batch is complete."""
    job = Job("bicgk", {"m": 64, "n": 64}, "f32")
    options = building_ahead.PairOptions(120.0, 1, evaluations=40)
    [row] = building_ahead.make_table([job], options, False, tmp_path)
    assert row["status"] == "ok", row["why"]
    [pair] = row["pairs"]
    assert pair["without"]["spent_s"]["beside"] == 0
    for found in (pair["without"], pair["with"]):
        spent_s = found["spent_s"]
        assert spent_s["compile"] + spent_s["beside"] < found["search_s"]
    assert [pair[side]["evaluations"] for side in ("without", "with")] == [40, 40]
    assert json.loads((tmp_path / "building_ahead.json").read_text())["rows"] == [row]
    assert "| bicgk 64^2 | f32 | 1 | " in (tmp_path / "building_ahead.md").read_text()


def test_the_ratio_is_formed_seed_by_seed():
    def found(n: int, beside_s: float) -> dict:
        spent_s = {"compile": 10.0 - beside_s, "beside": beside_s, "run": 5.0}
        return {"evaluations": n, "search_s": 20.0, "spent_s": spent_s}

    pairs = [
        {"seed": k, "without": found(100 * k, 0.0), "with": found(110 * k, 4.0)} for k in (1, 2, 3)
    ]
    options = {"seconds": 30.0, "seeds": 3, "first": 1}
    row = {"name": "bicgk", "sizes": {"m": 64, "n": 64}, "dtype": "f32", "options": options}
    assert building_ahead.ratios(row | {"pairs": pairs}) == pytest.approx([1.1, 1.1, 1.1])
    cells = building_ahead._cells(row | {"pairs": pairs})
    assert "1.10" in cells
    assert "200 – 220" in cells
    assert "50% – 30%" in cells
    assert "0% – 20%" in cells
