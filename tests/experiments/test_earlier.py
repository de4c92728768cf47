"""Comparisons with an earlier version: both versions run as themselves, and the page has the ratio of each round."""

import os
import sys

from kernelscape.experiments import earlier
from kernelscape.experiments.conditions import stamp
from kernelscape.experiments.turns import last_said
from kernelscape.experiments.versions import ROOT

WHERE = 'import json, kernelscape; print(json.dumps({"file": kernelscape.__file__}))'


def test_each_version_has_its_turn_in_each_round(tmp_path, monkeypatch):
    package = tmp_path / "before"
    package.mkdir()
    (package / "__init__.py").write_text("")
    seen = []

    def once(folder):
        seen.append(last_said([sys.executable, "-c", WHERE], 60, {}, folder)["file"])
        return {"a": float(len(seen))}

    monkeypatch.setitem(earlier.PARTS, "calls", once)
    before = dict(os.environ)
    assert earlier.measure("calls", package, 2) == {"a": [(2.0, 1.0), (3.0, 4.0)]}
    assert dict(os.environ) == before
    ours = str(ROOT / "__init__.py")
    assert [os.path.samefile(file, ours) for file in seen] == [True, False, False, True]


def test_the_page_says_the_median_and_each_round():
    parts = {"calls": {"a": [(2.0, 1.0), (2.0, 4.0), (2.0, 2.0)]}}
    values = {"stamp": stamp(), "before": "abc", "rounds": 3, "parts": parts}
    page = earlier.report(values)
    assert "| a | 1.00 | 0.50 2.00 1.00 |" in page
    assert "those of abc" in page
