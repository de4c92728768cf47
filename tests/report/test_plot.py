"""Drawings on matplotlib axes show what the run has kept."""

from __future__ import annotations

import io
import shutil

import kernelscape as ks
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from kernelscape.report.plot import NothingToDrawError  # noqa: E402
from matplotlib import pyplot  # noqa: E402


@pytest.fixture
def ax():
    figure, ax = pyplot.subplots()
    yield ax
    figure.savefig(io.BytesIO())  # all of it can be drawn
    pyplot.close(figure)


def test_convergence(run, ax) -> None:
    assert ks.plot.convergence(run, ax) is ax
    n_points = sum(len(c.get_offsets()) for c in ax.collections)
    assert n_points == 40
    labels = {text.get_text() for text in ax.get_legend().get_texts()}
    assert {"default", "near the best", "best"} <= labels
    (best,) = (line for line in ax.lines if line.get_label() == "best")
    assert best.get_ydata()[-1] == pytest.approx(run.best.time_ns / 1e3)
    assert ax.get_ylabel() == "time of one run, us"


@pytest.mark.parametrize("draw", [ks.plot.convergence, ks.plot.roofline])
def test_legends_cover_no_point_and_times_are_written_out(run, draw) -> None:
    ax = draw(run)
    ax.figure.canvas.draw()
    legend, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.x0 >= inside.x1
    if draw is ks.plot.convergence:
        low, high = ax.get_ylim()
        ticks = [
            float(x.get_text()) for x in ax.get_yticklabels() if low < x.get_position()[1] < high
        ]
        assert len(ticks) >= 2 and all(f"{x:g}"[0] != "-" for x in ticks)
    pyplot.close(ax.figure)


def test_tree(run, ax) -> None:
    ks.plot.tree(run.directory, ax)
    (cells,) = ax.collections
    assert f"{len(cells.get_paths())} nodes" in ax.get_title()
    with pytest.raises(NothingToDrawError, match="has kept no search tree"):
        ks.plot.tree(run, ax, session=9)


def test_decisions(run, ax) -> None:
    ks.plot.decisions(run, ax, most=5)
    assert len(ax.get_yticklabels()) == 5
    assert all(" to " in label.get_text() for label in ax.get_yticklabels())


def test_roofline(run, ax) -> None:
    ks.plot.roofline(ks.load(run.directory), ax)
    (best,) = (line for line in ax.lines if line.get_label() == "best")
    assert best.get_ydata()[0] == pytest.approx(4 * 64 * 64 / run.best.time_ns)


def test_compare(run, ax) -> None:
    ks.plot.compare(run, run.directory, ax)
    assert len(ax.get_legend().get_texts()) == 2


def test_a_sequence_of_a_notebook_has_its_label(run, ax, tmp_path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(run.directory, copied)
    header = (copied / "run.json").read_text()
    (copied / "run.json").write_text(header.replace('"bicgk"', '"__main__:two"', 1))
    ks.plot.compare(copied, run, ax)
    assert [x.get_text().split(",")[0] for x in ax.get_legend().get_texts()] == ["two", "bicgk"]


def test_axes_are_made_where_none_are_given(run) -> None:
    pyplot.close(ks.plot.convergence(run).figure)


def test_what_was_not_measured_is_a_sentence(run, tmp_path) -> None:
    shutil.copy(run.directory / "run.json", tmp_path)
    (tmp_path / "journal.jsonl").touch()
    for draw in (ks.plot.convergence, ks.plot.tree, ks.plot.decisions, ks.plot.roofline):
        with pytest.raises(NothingToDrawError) as caught:
            draw(tmp_path)
        assert "\n" not in str(caught.value)
