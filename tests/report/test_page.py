"""The page of a run: what is in it, that it stands alone, and that nothing in a run directory can do harm in it."""

from __future__ import annotations

import html
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import kernelscape as ks
import pytest
from kernelscape.explorer.entry import resume
from kernelscape.report.live import is_written, pages
from kernelscape.report.page import report_of
from kernelscape.report.run_data import load_run
from kernelscape.runtime.records.journal import FileJournal
from kernelscape.runtime.records.record import RecordError, last_tallies

from ..contracts.journal import rewrite
from .browser import drawn, needs_browser
from .conftest import fake_run, values_of

EVIL = (
    '</script><script>document.title="harm"</script><img src=x onerror="document.title=\'harm\'">'
)


def copied(run, folder: Path) -> Path:
    shutil.copytree(run.directory, folder)
    return folder


@pytest.fixture(scope="module")
def page(run) -> str:
    return report_of(run.directory).html


def test_everything_that_was_measured_is_in_it(run, page: str) -> None:
    v = values_of(page)
    assert len(v["evaluations"]["at_s"]) == 40
    assert len(v["decisions"]["rows"]) == 40
    assert v["head"]["best_ns"] == run.best.time_ns
    assert v["trees"][0]["n_nodes"] > 10
    assert {"tree0.parent", "tree0.bound", "tree0.best"} <= set(v["arrays"])
    assert len(v["graph"]["tasks"]) == 2
    assert v["effects"] and v["axes"]
    assert v["looked"][0]["evaluation"] == v["evaluations"]["time_ns"].index(
        min(v["evaluations"]["time_ns"])
    )
    assert all("for (" in e["text"] for e in v["looked"])
    assert v["roofline"]["flops"] == 4 * 64 * 64
    assert v["predicted"]["rows"] and v["predicted"]["error"] >= 1
    assert v["steps"]["phases"]


def test_what_pruned_is_counted_over_all_sessions(run, page: str) -> None:
    counts = last_tallies(load_run(run.directory).records)[-1].counts
    pruned = dict(values_of(page)["pruned"])
    assert set(pruned) == {"the bound", "constraints", "what was known", "expectation"}
    found = sum(
        counts.get(n, 0) for n in ("pruned_bound", "rollout_bound", "near_bound", "overtaken")
    )
    assert pruned["the bound"] == found
    assert sum(pruned.values()) > 0


def test_no_drawing_has_a_colour_of_the_light_page_alone() -> None:
    """The kind: black or white in a script, which the dark, or the light, takes away."""
    folder = Path(ks.__file__).parent / "report"
    for name in ("page.js", "draw.js"):
        assert re.findall(r"#(?:fff|000)(?:fff|000)?\b", (folder / name).read_text()) == [], name
    style = (folder / "page.css").read_text()
    light, dark = style.split("prefers-color-scheme: dark", 1)
    names = re.findall(r"(--\w+):", light)
    assert len(names) > 10 and all(f"{name}:" in dark for name in names)
    assert "max-width: 760px" in style


class References(HTMLParser):
    """References of a page to things that it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs) -> None:
        self.found += [v or "" for k, v in attrs if k in ("src", "href", "action", "srcset")]


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    references = References()
    references.feed(page)
    assert references.found == []
    assert re.findall(r"https?://[^\s\"']+", page.split('id="values"')[0]) == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'")


def test_equal_runs_give_equal_pages(run, page: str) -> None:
    assert report_of(run).html == page
    assert run.report().html == page
    assert report_of(ks.load(run.directory)).html == page
    assert report_of(run.directory / "best.json").html == page


def rename_all(folder: Path, text: str) -> None:
    """Put a text where names of a run stand: choices, values, reasons, the sequence and its machine."""

    def renamed(lines: list[str]) -> list[str]:
        changed = []
        for line in lines:
            found = json.loads(line)
            if isinstance(found, str):
                found = text + found
            elif isinstance(found, dict) and found.get("event") == "evaluation":
                found["decisions"] = [[text + c, text + v] for c, v in found["decisions"]]
                found["detail"] = found["origin"]["tag"] = found["source_key"] = text
            changed.append(json.dumps(found))
        return changed

    rewrite(folder / "journal.jsonl", renamed)
    tree = folder / "tree.jsonl"
    tree.write_text("\n".join(renamed(tree.read_text().splitlines())) + "\n")
    header = json.loads((folder / "run.json").read_text())
    header["sequence"] = header["stored"]["formula"] = header["conditions"]["cpu"] = text
    header["sizes"] = {text: 3}
    (folder / "run.json").write_text(json.dumps(header))
    (folder / "best.json").unlink()


def test_names_are_never_read_as_html(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    rename_all(folder, EVIL)
    report = report_of(folder)
    assert values_of(report.html)["head"]["name"] == EVIL
    assert EVIL not in report.html
    assert report.html.count("<script") == 3
    assert report.html.count("</script>") == 3
    assert "<img" not in report.html
    shown = report._repr_mimebundle_()["text/html"]
    assert EVIL not in shown and shown.count("<img") == 1 and "<script" not in shown


def test_markers_of_the_template_in_names_are_text(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    rename_all(folder, "@@SCRIPT@@")
    page = report_of(folder).html
    assert page.count('id="values"') == 1
    assert "<title>@@SCRIPT@@" in page


@needs_browser
def test_a_browser_draws_it(run, page: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page)
    shown = drawn(tmp_path / "page.html")
    assert shown.console == []
    assert "error" not in shown.marks
    assert shown.marks["rootCell"] == "all implementations"
    assert int(shown.marks["treeNodes"]) == values_of(page)["trees"][0]["n_nodes"]
    assert "drawnMs" in shown.marks
    words = ("lower bound", "bound dive", "State-flow graph", "time = bound", "predicted")
    for word in (*words, "pruned", "How the best was found"):
        assert word in shown.text


@needs_browser
def test_a_browser_takes_evil_names_for_text(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    rename_all(folder, EVIL)
    (tmp_path / "page.html").write_text(report_of(folder).html)
    shown = drawn(tmp_path / "page.html")
    assert shown.console == [] and "error" not in shown.marks
    assert f"<h1>{html.escape(EVIL, quote=False)}" in shown.text
    assert "<title>harm" not in shown.text
    assert shown.text.count("<script") == 3


# --- runs that are not whole ----------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 0.97])
def test_of_a_killed_run_what_is_there_is_drawn(run, tmp_path: Path, share: float) -> None:
    folder = copied(run, tmp_path / "run")
    for name in ("journal.jsonl", "tree.jsonl"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])
    if share < 0.5:
        (folder / "best.json").unlink()
    v = values_of(report_of(folder).html)
    assert v["head"]["status"] == "not ended"
    assert len(v["evaluations"]["at_s"]) == len(load_run(folder).evaluations)


@needs_browser
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_browser_draws_what_is_left(run, tmp_path: Path, share: float) -> None:
    folder = copied(run, tmp_path / "run")
    for name in ("journal.jsonl", "tree.jsonl"):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])
    (folder / "best.json").unlink()
    (tmp_path / "page.html").write_text(report_of(folder).html)
    shown = drawn(tmp_path / "page.html")
    assert shown.console == [] and "error" not in shown.marks
    assert "drawnMs" in shown.marks


def test_without_a_tree_the_page_says_so(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    (folder / "tree.jsonl").unlink()
    v = values_of(report_of(folder).html)
    assert v["trees"] == []
    assert any("no search tree was kept" in note for note in v["notes"])


def test_a_run_of_another_machine_is_drawn_without_its_space(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    header = json.loads((folder / "run.json").read_text())
    header["conditions"]["machine"] = "cpu-elsewhere"
    (folder / "run.json").write_text(json.dumps(header))
    v = values_of(report_of(folder).html)
    assert "cpu-elsewhere" in v["head"]["why_no_space"]
    assert v["looked"] == [] and v["roofline"] is None
    assert v["effects"]


def test_a_resumed_run_has_a_tree_a_session(tmp_path: Path) -> None:
    fake_run(tmp_path / "run", max_evals=30)
    resume(tmp_path / "run", max_evals=20)
    v = values_of(report_of(tmp_path / "run").html)
    assert [t["session"] for t in v["trees"]] == [1, 2]
    assert len(v["events"]["sessions"]) == 2
    assert set(v["evaluations"]["session"]) == {1, 2}


@pytest.mark.parametrize(
    ("break_it", "sentence"),
    [
        (lambda folder: (folder / "run.json").unlink(), "holds no run"),
        (lambda folder: (folder / "journal.jsonl").unlink(), "cannot be read"),
        (lambda folder: (folder / "run.json").write_text("{"), "torn"),
    ],
)
def test_what_is_no_run_is_a_sentence(run, tmp_path: Path, break_it, sentence: str) -> None:
    folder = copied(run, tmp_path / "run")
    break_it(folder)
    with pytest.raises(RecordError, match=sentence):
        report_of(folder)


def test_a_damaged_best_is_a_note(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    (folder / "best.json").write_text("{")
    v = values_of(report_of(folder).html)
    assert any("best.json" in note for note in v["notes"])
    assert v["head"]["best_ns"] == min(v["evaluations"]["time_ns"])


# --- files ----------------------------------------------------------------------------------------


def test_a_page_is_written_beside_its_run(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    (page,) = pages(folder)
    assert page.file == folder / "report.html"
    assert page.n_evaluations == 40
    assert values_of(page.file.read_text())["refresh_s"] == 0


def test_a_live_page_is_written_until_nobody_searches(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    journal = FileJournal(folder / "journal.jsonl")
    assert is_written(load_run(folder))
    told = pages(folder, every_s=0.01)
    assert values_of(next(told).file.read_text())["refresh_s"] == 0.01
    journal.close()
    *_, last = told
    assert not is_written(load_run(folder))
    assert values_of(last.file.read_text())["refresh_s"] == 0


def test_a_live_page_that_is_left_is_not_read_again(run, tmp_path: Path) -> None:
    folder = copied(run, tmp_path / "run")
    with FileJournal(folder / "journal.jsonl"):
        told = pages(folder, every_s=0.01)
        page = next(told)
        told.close()  # as Ctrl-C does
    assert values_of(page.file.read_text())["refresh_s"] == 0


# --- in notebooks ---------------------------------------------------------------------------------


def test_a_notebook_shows_a_frame_over_a_picture_over_a_line(run) -> None:
    bundle = run.report()._repr_mimebundle_()
    line = bundle["text/plain"]
    assert line.startswith("bicgk (") and "40 evaluations" in line and "\n" not in line
    shown = bundle["text/html"]
    assert html.escape(line) in shown
    # What survives where a notebook is not trusted: text, and a picture as a data URI.
    assert re.search(r'<img alt="[^"]*" style="[^"]*" src="data:image/svg\+xml;base64,', shown)
    assert 'sandbox="allow-scripts"' in shown
    srcdoc = re.search(r'srcdoc="([^"]*)"', shown)
    assert srcdoc is not None
    assert html.unescape(srcdoc[1]) == run.report().html


def test_saved_is_what_is_shown(run, tmp_path: Path) -> None:
    report = run.report()
    assert report.save(tmp_path / "r.html").read_text() == report.html
