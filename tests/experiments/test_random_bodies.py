"""The table of random bodies goes on where it was, and says what went wrong."""

from pathlib import Path

import pytest
from kernelscape.experiments import random_bodies
from kernelscape.experiments.writing import read_results


@pytest.mark.compiler
def test_a_run_goes_on_behind_the_last_body(tmp_path: Path) -> None:
    asked = ["--results", str(tmp_path), "--n"]
    assert random_bodies.main([*asked, "2"]) == random_bodies.main([*asked, "3"]) == 0
    (piece,) = read_results("random_bodies", tmp_path)["pieces"]
    assert (piece["way"], piece["bodies"], piece["wrong"]) == ("gcc", 3, {})
    page = (tmp_path / "random_bodies.md").read_text()
    assert "| gcc | 3 | 3 |" in page


def test_what_goes_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> list[str]:
        return ["y[0] is 1 and should be 2"]

    asked = ["--results", str(tmp_path), "--n", "1"]
    monkeypatch.setattr(random_bodies, "of_compiler", lambda _: wrong)
    assert random_bodies.main(asked) == 1
    page = tmp_path / "random_bodies.md"
    assert "| gcc | 0 | y[0] is 1 and should be 2 |" in page.read_text()
    # With other sources it may be right.
    monkeypatch.setattr(random_bodies, "of_compiler", lambda _: lambda made, *_: [""] * len(made))
    monkeypatch.setattr(random_bodies, "generator_hash", lambda: "others")
    assert random_bodies.main(asked) == 0
    (piece,) = (p for p in read_results("random_bodies", tmp_path)["pieces"] if p["bodies"])
    assert (piece["wrong"], piece["mended"]) == ({}, {"0": "y[0] is 1 and should be 2"})


def test_a_compiler_that_is_not_there_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random_bodies.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit):
        random_bodies.main(["--way", "clang"])
    assert "there is no clang on this machine" in capsys.readouterr().err
