"""Each experiment runs, with the smallest options that mean anything, and writes its results."""

from __future__ import annotations

import json

import pytest
from kernelscape.experiments import run_row, run_table, think_speed


def test_think_speed_writes_a_row_for_each_sequence(tmp_path):
    think_speed.run(["axpy", "bicgk"], 5, 10, 1, tmp_path)
    rows = json.loads((tmp_path / "think_speed.json").read_text())["rows"]
    assert [r["name"] for r in rows] == ["axpy", "bicgk"]
    assert all(r["descent_ms"]["median"] > 0 and r["n_open"] > 0 for r in rows)
    assert "| bicgk | " in (tmp_path / "think_speed.md").read_text()


@pytest.mark.compiler
@pytest.mark.slow
def test_run_table_makes_rows_keeps_them_and_survives_a_failing_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = run_row.RowOptions(seconds=1.0, rounds=2, calibrate=False)
    wanted = [("axpydot", {"n": 1000}), ("bicgk", {"nosuch": 1})]
    first = run_table.make_table(wanted, options, False, tmp_path)
    assert [r["status"] for r in first] == ["ok", "failed"]
    assert "nosuch" in first[1]["why"]
    assert first[0]["best_ns"] > 0
    assert first[0]["evaluations"] >= 1
    assert len(first[0]["rounds_ns"]) == 2
    kept = run_table.make_table(wanted[:1], options, False, tmp_path)
    assert kept[0] == first[0]
    text = (tmp_path / "run_table.md").read_text()
    assert "axpydot 1000" in text
    assert "failed: " in text


def test_rows_are_named_by_sequence_and_sizes():
    assert run_table.parse_row("axpydot:n=2^20") == [("axpydot", {"n": 1 << 20})]
    assert run_table.parse_row("bicgk:n=64") == [("bicgk", {"m": 64, "n": 64})]
    assert ("heat", {"m": 4096, "n": 4096}) not in run_table.all_rows()
    with pytest.raises(ValueError, match="no sequence"):
        run_table.parse_row("nosuch")


@pytest.mark.parametrize(
    ("read", "written", "in_place", "kind"),
    [
        (64, 1, 0, "memory_read"),
        (3, 1, 0, "memory_read3_write_nt"),
        (2, 1, 0, "memory_triad_nt"),
        (1, 1, 0, "memory_copy_nt"),
        (1, 1, 1, "memory_scale"),
        (0, 1, 0, "memory_write_nt"),
    ],
)
def test_the_roofline_has_the_mix_of_the_sequence(read, written, in_place, kind):
    assert run_row.nearest_mix(read, written, in_place) == kind
