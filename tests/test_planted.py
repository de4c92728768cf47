"""The table of planted faults fits the code, and the runner tells what is caught from what is not."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest
from kernelscape.testing.planted import ROOT, Copy, PlantedError, judge, place_of
from kernelscape.testing.planted_faults import FAULTS, Fault


def test_each_fault_can_be_planted() -> None:
    """Kind: a table that names code which is gone."""
    assert len(FAULTS) >= 30 and len({f.old for f in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert place_of(fault).is_relative_to(ROOT / fault.room)
        assert fault.new != fault.old and fault.kind
        assert fault.tests and all((ROOT / t.partition("::")[0]).exists() for t in fault.tests)


def test_a_text_that_stands_nowhere_or_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room/a.py").write_text("x = 1\ny = 1\n")
    for text, n in (("= 2", 0), ("= 1", 2)):
        with pytest.raises(PlantedError, match=f"^{n} places in room have the text"):
            place_of(Fault("any", "room", text, "", ()), tmp_path)


def test_faults_are_caught_or_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """A fault that a test sees, one that none sees, one that ends the tests before they run; the file is as it was behind each."""
    (tmp_path / "room").mkdir()
    code = tmp_path / "room/a.py"
    code.write_text("def f():\n    return 2  # of two\n")

    def run(copy: Copy, tests: Sequence[str]) -> int:
        """The status that pytest would have for a test that asks for 2."""
        try:
            return 0 if runpy.run_path(str(code))["f"]() == 2 else 1
        except SyntaxError:
            return 2

    monkeypatch.setattr(Copy, "run", run)
    monkeypatch.setattr("kernelscape.testing.planted.ROOT", tmp_path)
    news = ("return 3", "return 2 + 0", "return )")
    faults = [Fault("a number", "room", "return 2", new, ("test_a.py",)) for new in news]
    assert not judge(faults, Copy(tmp_path))
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["caught", "MISSED", "NOT", "1"]
    assert code.read_text() == "def f():\n    return 2  # of two\n"
    assert judge(faults[:1], Copy(tmp_path))
    code.write_text("def f():\n    return 3  # return 2\n")
    with pytest.raises(PlantedError, match="without any fault pytest ends with 1"):
        judge(faults, Copy(tmp_path))
