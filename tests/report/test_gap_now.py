"""The second gap, against the machine as it was at the end of a search, is in the page and in all drawings of a run."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import kernelscape as ks
import pytest
from kernelscape.cli.log import TimeUnit, result_lines
from kernelscape.explorer.stages import Ended
from kernelscape.report.page import report_of
from kernelscape.report.run_data import RunData, load_run
from kernelscape.report.still import still_svg, summary
from kernelscape.runtime.records.journal import FileJournal
from kernelscape.runtime.records.record import NoteRecord
from kernelscape.search.events import gap_text
from msgspec.structs import replace

from ..contracts.journal import rewrite
from .browser import drawn, needs_browser
from .conftest import values_of

_ENDED = {"bound_ns": 500_000.0, "time_ns": 2_000_000.0, "gap": 0.75, "bound_now_ns": 1_800_000.0}


@pytest.fixture
def ended(run, tmp_path: Path) -> Path:
    """A run whose best takes four times its bound, and a ninth more than what the machine was able to at the end.

    The times of the fake device know of no bound: what it says of bounds, and of times below them, goes.
    """
    folder = Path(shutil.copytree(run.directory, tmp_path / "run"))
    journal = folder / "journal.jsonl"
    without = ('"event":"bound"', '"kind":"alarm"')
    rewrite(journal, lambda lines: [x for x in lines if not any(w in x for w in without)])
    return changed(folder, **_ENDED)


def changed(folder: Path, **fields: float | None) -> Path:
    best = json.loads((folder / "best.json").read_text())
    (folder / "best.json").write_text(json.dumps(best | fields))
    return folder


def now_ns(folder: Path) -> float | None:
    found: RunData = load_run(folder)
    return found.bound_now_ns


def test_it_is_in_the_line_the_page_and_the_pictures(ended: Path) -> None:
    page = report_of(ended)
    assert values_of(page.html)["head"]["bound_now_ns"] == 1_800_000.0
    run = load_run(ended)
    assert summary(run).endswith("gap 75.0% proved, 10.0% against the machine as it is now")
    assert still_svg(run).count("stroke-dasharray") == 2
    assert "dashed: at the end" in still_svg(run)


def test_what_is_proved_holds_in_any_state_of_the_machine(ended: Path) -> None:
    assert now_ns(changed(ended, bound_now_ns=400_000.0)) == 500_000.0


def test_there_is_none_where_nobody_looked_or_it_is_withdrawn(ended: Path, run) -> None:
    assert now_ns(run.directory) is None  # of the fake device, no machine is looked at
    assert "stroke-dasharray" not in still_svg(load_run(run.directory))
    assert now_ns(changed(ended, bound_now_ns=None)) is None
    assert now_ns(changed(ended, **_ENDED | {"bound_ns": 0.0, "gap": 1.0})) is None
    changed(ended, **_ENDED)
    journal = FileJournal(ended / "journal.jsonl")
    for kind, told in (("session", None), ("ended", 1_800_000.0), ("alarm", None)):
        journal.append(NoteRecord(at_s=99.0, kind=kind, text="x"))
        assert now_ns(ended) == told
    journal.close()


def test_no_gap_is_told_to_a_bound_that_says_nothing(ended: Path) -> None:
    """Kind: a gap of 100 % that reads as if all could be saved, where the bound counts little more than a call."""
    nothing = {**_ENDED, "bound_ns": 100.0, "gap": 1 - 5e-5, "bound_now_ns": None}
    assert "gap" not in summary(load_run(changed(ended, **nothing)))
    told = Ended(
        status="time_limit",
        run_dir="",
        elapsed_s=1.0,
        best_ns=2_000_000.0,
        bound_ns=100.0,
        gap=nothing["gap"],
    )
    (line,) = (x for x in result_lines(told, TimeUnit(2e6)) if x.startswith("Gap"))
    assert "next to nothing" in line and "%" not in line
    assert [gap_text(x) for x in (None, nothing["gap"], 0.75)] == ["-", "-", "75.0%"]
    seen = replace(
        told, bound_ns=500_000.0, gap=0.75, why_not_now="arrays this small stay in caches"
    )
    (line,) = (x for x in result_lines(seen, TimeUnit(2e6)) if x.startswith("Gap"))
    told_now = "not known against the machine as it is now: arrays this small stay in caches"
    assert line.endswith(f" 75.0% proved; {told_now}")


def test_it_is_drawn_on_axes(ended: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ax = ks.plot.convergence(ended)
    lines = {str(line.get_label()): line.get_ydata() for line in ax.lines}
    assert lines["bound at the end"][0] / lines["best at the end"][0] == pytest.approx(0.9)
    ax.figure.savefig(io.BytesIO())


@needs_browser
def test_the_page_shows_both_gaps(ended: Path, run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(report_of(ended).html)
    page = drawn(file)
    assert page.console == []
    text = page.text
    told = "10.0 % on the machine as it was at the end"
    assert f"<span>gap</span><b>75.0 %</b><span>{told}</span>" in text
    assert "at the end: bound 1.8 ms" in text and "at the end: best 2 ms" in text
    file.write_text(report_of(run.directory).html)
    text = drawn(file).text
    assert "can be saved at most" in text and told not in text
