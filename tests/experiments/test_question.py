"""Questions: options become arguments, rows are made by children and kept, and what is missed is the exit status."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from kernelscape.experiments import rows
from kernelscape.experiments.question import Question, asked
from kernelscape.experiments.rows import Job, Row, page

ORDER = [Job("axpy", {"n": 8}), Job("vadd", {"n": 8})]


@dataclass(frozen=True)
class Options:
    """One field of each kind."""

    seconds: float = asked(2.0, "of each search")
    rounds: int = asked(3)
    first: int = asked(1, least=0, option="--seed")
    tags: tuple[str, ...] = asked((), "only these")
    calibrate: bool = asked(True)
    former: str | None = asked(None, type=str.upper)
    kept: int = 7


def report(made: dict[str, Any]) -> str:
    columns = {"sequence": rows.title, "of": lambda r: r["of"], "of ": lambda r: r["of"]}
    stamped = [r | {"stamp": STAMP} for r in made["rows"]]
    return page("Some", "How.", columns, stamped, notes=lambda good: [f"- {len(good)} good"])


STAMP = {
    "taken": "now", "load_1min": 0.0, "cpu": "a CPU", "cores": 2, "caches": {}, "kernel": "", "huge_pages": "", "binding": "",
    "versions": {}, "compiler": "", "memory_bytes_per_ns": 0.0,
}  # fmt: skip


def question(**changed: Any) -> Question[Options]:
    given: dict[str, Any] = {
        "file": "some",
        "doc": None,
        "order": ORDER,
        "options": Options,
        "make": lambda job, options: {"of": f"{job.key} {options.seconds:g}"},
        "report": report,
        "say": lambda r: r["of"],
    }
    return Question(**given | changed)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[Options]:
    """Children are run here; what options they had."""
    had = []

    def run_row(file: str, job: Job, options: Options, limit_s: float) -> Row:
        had.append(options)
        told = json.dumps(job._asdict() | {"options": vars(options)})
        assert question().main(["--child", told]) == 0
        made: Row = json.loads(capsys.readouterr().out.splitlines()[-1])
        return made

    monkeypatch.setattr(rows, "run_row", run_row)
    return had


def test_options_are_arguments_and_rows_are_kept(tmp_path, children):
    few = ["--only", "axpy", "--results", str(tmp_path)]
    more = [
        "--seconds",
        "1.5",
        "--seed",
        "0",
        "--tags",
        "a",
        "b",
        "--no-calibrate",
        "--former",
        "x",
    ]
    assert question().main([*few, *more]) == 0
    assert children == [Options(1.5, 3, 0, ["a", "b"], False, "X", 7)]
    text = (tmp_path / "some.md").read_text()
    assert "| axpy 2^3 | axpy:n=8 1.5 | axpy:n=8 1.5 |" in text
    assert "| sequence | of | of |" in text and "- 1 good" in text
    assert question().main(few) == 0
    assert len(children) == 1
    assert question().main([*few, "--again"]) == 0
    assert children[1:] == [Options()]


def test_a_page_is_made_in_pieces(tmp_path, children):
    """Kind: pages that take longer than a machine is quiet. The next call goes on with what is missing, or oldest."""
    whole = ["--results", str(tmp_path)]
    assert question().main([*whole, "--piece", "0"]) == 0
    assert children == []
    assert question().main([*whole, "--piece", "1"]) == 0
    assert len(children) == len(ORDER)


def test_what_is_missed_is_the_exit_status(tmp_path, children, capsys):
    asked_for = ["--results", str(tmp_path)]
    assert question(missed=lambda made: [f"{len(made)} are few"]).main(asked_for) == 1
    assert "missed: 2 are few" in capsys.readouterr().out
    failing = {"status": "failed", **ORDER[0]._asdict(), "why": "no luck"}
    assert question(row=lambda job, options: failing).main([*asked_for, "--again"]) == 1
    assert "missed: axpy:n=8 failed: no luck" in capsys.readouterr().out
    assert "- axpy 2^3 failed: no luck" in (tmp_path / "some.md").read_text()


@pytest.mark.parametrize(
    ("few", "said"),
    [
        (["--rounds", "0"], "--rounds must be positive, not 0"),
        (["--seconds", "-1"], "--seconds must be positive, not -1.0"),
        (["--seed", "-1"], "--seed must be at least 0, not -1"),
        (["--only", "nosuch"], "no sequence 'nosuch'"),
        (["--only", "axpy:n=8:f64"], "'f64' is not f32"),
    ],
)
def test_a_number_or_a_row_that_means_nothing_is_a_usage_error(few, said, capsys):
    with pytest.raises(SystemExit) as caught:
        question().main(few)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_results_hold_the_last_part_of_a_path(tmp_path, children):
    """The kind: the interpreter of a peer, whose folder is a machine's own."""
    given = ["--only", "axpy", "--results", str(tmp_path), "--former", "/opt/peer/bin/python"]
    assert question().main(given) == 0
    assert children[0].former == "/OPT/PEER/BIN/PYTHON"
    (held,) = json.loads(next(tmp_path.glob("raw/some.*.json")).read_text())["rows"]
    assert held["options"]["former"] == "PYTHON"
