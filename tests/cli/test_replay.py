"""`explore replay` of a stored implementation that is slower, stale, wrong or torn."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernelscape.cli import commands as cli
from kernelscape.runtime.api.outcome import Failure

from .command import SMALL, objects


@pytest.fixture
def best(explore) -> Path:
    """A stored implementation of the fake device."""
    code, out, _ = explore("run", *SMALL, "--max-evals", 2, "--target", "fake", "--json")
    assert code == 0
    return Path(objects(out)[-1]["run_dir"]) / "best.json"


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    content["gap"] = (content["time_ns"] - content["bound_ns"]) / content["time_ns"]
    path.write_text(json.dumps(content))


def test_replay_of_a_slower_implementation(explore, best: Path) -> None:
    assert explore("replay", best)[0] == cli.Exit.OK
    edit(best, time_ns=json.loads(best.read_text())["time_ns"] / 1.5)
    code, out, _ = explore("replay", best)
    assert code == cli.Exit.SLOWER
    assert "+50.0%: slower than the tolerance of 25%" in out
    assert explore("replay", best, "--tolerance", "60%")[0] == cli.Exit.OK


def test_replay_on_a_slower_machine(explore) -> None:
    """The default tells: it is as much slower."""
    code, out, _ = explore("run", *SMALL, "--max-evals", 8, "--target", "fake", "--json")
    result = objects(out)[-1]
    assert code == 0
    assert result["best_ns"] < result["baseline_ns"]
    path = Path(result["run_dir"]) / "best.json"
    edit(path, time_ns=result["best_ns"] / 2, baseline_ns=result["baseline_ns"] / 1.8)
    code, out, _ = explore("replay", path)
    assert code == cli.Exit.OK
    assert "; the default takes 1.80 times as long as then, so +11.1%: within the tolerance" in out
    _, out, _ = explore("replay", path, "--json")
    assert objects(out)[0]["machine"] == pytest.approx(1.8)
    edit(path, baseline_ns=result["baseline_ns"])
    assert explore("replay", path)[0] == cli.Exit.SLOWER


def test_replay_of_a_stale_vector(explore, best: Path) -> None:
    edit(best, source_key="0" * 24)
    code, _, err = explore("replay", best)
    assert code == cli.Exit.STALE
    assert "another source" in err


def test_replay_of_a_wrong_answer(explore, best: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Failure("wrong", "z[3] is off")
    monkeypatch.setattr("kernelscape.explorer.results.check_again", lambda *_: (wrong, 3))
    code, out, _ = explore("replay", best, "--json")
    assert code == cli.Exit.WRONG_ANSWER
    assert objects(out)[0]["detail"] == "z[3] is off"


def test_torn_best_is_a_sentence(explore, best: Path) -> None:
    best.write_bytes(best.read_bytes()[:300])
    code, _, err = explore("replay", best)
    assert code == cli.Exit.USAGE
    assert "is torn" in err
    assert err.count("\n") == 1
