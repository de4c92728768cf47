"""The smallest row of the table of time limits, and what is held against a row."""

from __future__ import annotations

import pytest
from kernelscape.experiments import limits
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
@pytest.mark.slow
def test_a_row_says_how_its_limit_was_kept(tmp_path, in_this_process):
    limits.main(["--only", "endless:limit=1,load=0", "--results", str(tmp_path)])
    (row,) = read_results("limits", tmp_path)["rows"]
    assert (row["status"], row["ended"], row["candidates"]) == ("ok", "time_limit", 0)
    assert row["during"]
    assert row["after_s"] is None
    page = (tmp_path / "limits.md").read_text()
    assert f"time_limit while {row['during']}" in page
    assert limits.verdict(row) in page


@pytest.mark.parametrize(
    ("over_s", "after_s", "waited", "said"),
    [
        (4.0, None, 0.0, "kept"),
        (-1.0, 4.0, 0.0, "kept"),
        (6.0, 1.0, 0.1, "missed"),
        (1.0, 6.0, 0.1, "missed"),
        (6.0, 1.0, 0.6, "starved"),
    ],
)
def test_limits_are_held_to_a_bar(over_s, after_s, waited, said):
    assert limits.verdict({"over_s": over_s, "after_s": after_s, "waited": waited}) == said


def test_a_row_without_a_limit_is_a_usage_error(capfd):
    with pytest.raises(SystemExit) as caught:
        limits.main(["--only", "endless:n=3"])
    assert caught.value.code == 2
    assert "a row has a limit and a load" in capfd.readouterr().err
