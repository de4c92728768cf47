"""The table of components on the page of a run, as `explore explain` has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kernelscape.explorer.explanation import explain_run
from kernelscape.report.contents import contents_of
from kernelscape.report.page import report_of
from kernelscape.report.rebuilt import RebuiltSpace, rebuilt
from kernelscape.report.run_data import RunData, load_run
from kernelscape.runtime.records.record import EvaluationRecord
from msgspec import UNSET
from msgspec.structs import asdict
from msgspec.structs import replace as changed

from ..explorer.test_division import searched
from .browser import drawn, needs_browser
from .conftest import values_of

TITLE = "Components of the best</h2>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five components, of which two are equal."""
    run, _ = searched(tmp_path_factory.mktemp("components") / "run", max_evals=6)
    return run.directory


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return report_of(folder).html


@pytest.fixture(scope="module")
def space(folder: Path) -> RebuiltSpace:
    found = rebuilt(load_run(folder))
    assert isinstance(found, RebuiltSpace)
    return found


def test_the_page_has_the_table_of_explain(folder: Path, page: str) -> None:
    found, explanation = values_of(page)["components"], explain_run(folder)
    assert found["accounts"] == [asdict(x) for x in explanation.components]
    # Phases of one component are in no other, so its bound is a part of that of the sequence.
    bounds = [a["bound_ns"] for a in found["accounts"]]
    assert min(bounds) > 0 and sum(bounds) == pytest.approx(explanation.best.bound_ns)


def test_counts_and_times_are_those_of_the_journal(folder: Path, page: str) -> None:
    run, found = load_run(folder), values_of(page)["components"]
    assert run.best is not None
    rows = {r.source_key: r.components for r in run.timed if r.components is not UNSET}
    assert found["n"] == len(rows[run.best.source_key]) == 5
    names = ("scale0 to add_up0", "scale2 to add_up1", "scale6 to add_up3", "scale8 to add_up4")
    by_name = {a["name"]: a for a in found["accounts"]}
    assert by_name.keys() == set(names)
    for name, places in zip(names, ((0, 2), (1,), (3,), (4,)), strict=True):
        account = by_name[name]
        times = [sum(row[k].time_ns for k in places) for row in rows.values()]
        assert account["places"] == len(places)
        assert account["tried"] == len(
            {tuple(row[k].text for k in places) for row in rows.values()}
        )
        assert account["least_ns"] == min(times)
        assert account["time_ns"] == sum(rows[run.best.source_key][k].time_ns for k in places)
    assert sum(a["share"] for a in found["accounts"]) == pytest.approx(1.0)
    assert [a["time_ns"] for a in found["accounts"]] == sorted(
        (a["time_ns"] for a in found["accounts"]), reverse=True
    )


def untimed(r: EvaluationRecord) -> EvaluationRecord:
    return changed(r, components=UNSET)


def shorter(r: EvaluationRecord) -> EvaluationRecord:
    return r if r.components is UNSET else changed(r, components=r.components[:-1])


def longer(r: EvaluationRecord) -> EvaluationRecord:
    return r if r.components is UNSET else changed(r, components=2 * r.components)


@pytest.mark.parametrize("change", [untimed, shorter, longer])
def test_times_that_are_not_of_these_components_make_no_table(
    folder: Path, space: RebuiltSpace, change: Callable[[EvaluationRecord], EvaluationRecord]
) -> None:
    """The kind: rows of another division of the sequence, taken for those of this one."""
    run: RunData = load_run(folder)
    records = tuple(change(r) if isinstance(r, EvaluationRecord) else r for r in run.records)
    found = contents_of(replace(run, records=records), space).values
    assert found["components"] == {"n": 5, "accounts": []}


def test_one_component_has_no_table(run) -> None:
    assert values_of(report_of(run.directory).html)["components"] == {"n": 1, "accounts": []}


@needs_browser
def test_a_browser_shows_the_table(page: str, run, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page)
    shown = drawn(tmp_path / "page.html")
    assert shown.console == [] and "error" not in shown.marks
    table = shown.text.split(TITLE)[1].split("</section>")[0]
    assert "5 components, 4 of them different." in table
    for account in values_of(page)["components"]["accounts"]:
        assert account["name"] in table
        assert all(name in table for name in account["decisions"])
    (tmp_path / "one.html").write_text(report_of(run.directory).html)
    one = drawn(tmp_path / "one.html").text.split(TITLE)[1].split("</section>")[0]
    assert "One component" in one and "<table" not in one
