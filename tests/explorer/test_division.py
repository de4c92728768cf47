"""Sessions of sequences of several components, on the fake device: its times of components add up to that of a program."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NoReturn

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.cli.explain_view import explain_lines
from kernelscape.cli.log import TextLog
from kernelscape.explorer import deadlines, session
from kernelscape.explorer.entry import resume
from kernelscape.explorer.evaluation import SearchEvaluator
from kernelscape.explorer.explanation import explain_run
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.fake.device import FakeBuilder
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.search import events as ev
from kernelscape.space.candidate import Candidate


@ks.kernel
def scale(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i] + 1.0


@ks.kernel
def add_up(x: ks.types.ndarray(), s: ks.types.ndarray()):
    for i in range(x.shape[0]):
        s[0] += x[i]


def runs(u, v, w, x, y, a, b, c, d, e):
    """Maps and a sum of one length after another: five components, of which two are equal."""
    for array, total in ((u, a), (v, b), (w, c), (x, d), (y, e)):
        scale(array, array)
        scale(array, array)
        add_up(array, total)


def once(x, y, s):
    scale(x, y)
    add_up(y, s)


LENGTHS = (67, 41, 67, 33, 1024)


def searched(folder: Path, **changes: Any) -> tuple[Any, list[Any]]:
    arrays = [np.ones(n, np.float32) for n in (*LENGTHS, *(1 for _ in LENGTHS))]
    told: list[Any] = []
    given = {"max_evals": 24, "target": "fake", "time_limit": None} | changes
    with pytest.MonkeyPatch.context() as patch:
        # No search begins with what another one found.
        patch.setenv("XDG_DATA_HOME", str(folder.with_name(f"{folder.name}-data")))
        run = ks.explore(runs, *arrays, directory=folder, on_event=told.append, **given)
    return run, told


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    return searched(tmp_path_factory.mktemp("run"))


def table(told: list[Any]) -> tuple[ev.ComponentRow, ...]:
    (rows,) = (e.components for e in told if isinstance(e, ev.Components))
    return rows


def spin(*given: Any, **named: Any) -> NoReturn:
    """Takes 20 s, unless something stops it."""
    end_s = time.monotonic() + 20
    while time.monotonic() < end_s:
        pass
    raise AssertionError("nothing has stopped it")


def test_the_best_has_the_best_of_each_component(found: tuple[Any, list[Any]]) -> None:
    run, told = found
    assert run.best.time_ns == pytest.approx(
        sum(row.time_ns or 0.0 for row in table(told)), rel=1e-3
    )
    assert [row.places for row in table(told)] == [2, 1, 1, 1]
    assert min(row.tried for row in table(told)) >= 12
    assert run.ended.evaluations == 24


def test_equal_components_have_equal_decisions(found: tuple[Any, list[Any]]) -> None:
    """The kind: one tree of many places whose decisions arrive at one of them alone."""
    _, told = found
    measured = [e.candidate for e in told if isinstance(e, ev.Evaluated) and e.tag == "C"]
    assert measured
    for candidate in measured:
        assert isinstance(candidate, Candidate)
        space = candidate.space
        kinds = {}
        for k in (0, 2):
            tasks = [space.problem.tasks[t].name for t in space.backbone.components[k]]
            kinds[k] = [
                (c.kind, c.values[candidate.value(v)])
                for v, c in enumerate(space.choices)
                if any(o.split(".")[0] in tasks for o in c.objects)
            ]
        assert kinds[0] == kinds[2]


def test_equal_seeds_measure_equal_candidates(found: tuple[Any, list[Any]], tmp_path: Path) -> None:
    _, again = searched(tmp_path)
    keys = [[e.key for e in told if isinstance(e, ev.Evaluated)] for told in (found[1], again)]
    assert keys[0] == keys[1]


def test_a_resumed_session_knows_each_component(tmp_path: Path) -> None:
    """The kind: a session that measures again what another has, since only whole programs are known."""
    _, before = searched(tmp_path, max_evals=12)
    after: list[Any] = []
    run = resume(tmp_path, max_evals=8, on_event=after.append)
    assert run.ended.evaluations == 20
    pairs = zip(table(before), table(after), strict=True)
    assert all((b.time_ns or 0.0) <= (a.time_ns or 0.0) and b.tried > a.tried for a, b in pairs)
    rows = [
        r.components[3].text
        for r in read_journal(tmp_path / "journal.jsonl")
        if isinstance(r, EvaluationRecord)
    ]
    assert sum(text in rows[:12] for text in rows[12:]) <= 2  # those of the best of all


def test_one_text_of_all_components_is_given_up_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind: work of the session's own process after the search, which no limit cuts."""
    monkeypatch.setattr(deadlines, "_END_S", 0.0)
    monkeypatch.setattr(SearchEvaluator, "whole", spin)
    run, _ = searched(tmp_path, max_evals=6)
    assert (run.status, run.ended.evaluations) == ("eval_limit", 6)
    assert ks.load_run(tmp_path).best.time_ns == run.best.time_ns


def test_a_limit_cuts_the_making_of_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "_LATE_S", 1.0)
    monkeypatch.setattr(session, "divided", spin)
    run, _ = searched(tmp_path, max_evals=6, time_limit=1.0)
    assert (run.status, run.best) == ("time_limit", None)


def test_a_best_that_fails_as_one_text_is_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kind: a program that is stored as verified, of which another build was."""
    wrong = Failure("wrong", "y differs", "")
    monkeypatch.setattr(FakeBuilder, "makes_libraries", True)
    monkeypatch.setattr(SearchEvaluator, "verified_alone", lambda *given: wrong)
    run, _ = searched(tmp_path, max_evals=6)
    assert [x for x in run.ended.doubts if "built as one text" in x and "(wrong)" in x]


def test_components_are_explained(found: tuple[Any, list[Any]]) -> None:
    run, told = found
    explanation = explain_run(run.directory)
    rows = {row.name: row for row in table(told)}
    assert {x.name for x in explanation.components} == rows.keys()
    for x in explanation.components:
        row = rows[x.name]
        assert (x.places, x.tried) == (row.places, row.tried)
        assert (x.time_ns, x.least_ns) == (row.time_ns, row.time_ns)
        assert row.decisions.items() <= x.decisions.items()
    assert sum(x.share for x in explanation.components) == pytest.approx(1.0)
    bounds = [x.bound_ns or 0.0 for x in explanation.components]
    assert all(0 < ns <= x.time_ns for ns, x in zip(bounds, explanation.components, strict=True))
    lines = list(explain_lines(explanation, 1))
    assert sum("scale0 to add_up0" in line for line in lines) == 1


def test_a_sequence_of_one_component_has_one_tree(tmp_path: Path) -> None:
    """The kind: a change for sequences of many components that changes the search of all others."""
    told: list[Any] = []
    arrays = [np.ones(n, np.float32) for n in (67, 67, 1)]
    ks.explore(once, *arrays, directory=tmp_path, on_event=told.append, target="fake", max_evals=6)
    assert not any(isinstance(e, ev.Divided | ev.Components) for e in told)
    tags = {e.tag for e in told if isinstance(e, ev.Evaluated)}
    assert "U" in tags and "C" not in tags


def test_the_log_says_that_rows_are_of_combinations(found: tuple[Any, list[Any]]) -> None:
    lines: list[str] = []
    log = TextLog(lines.append, version="0")
    for event in found[1]:
        log(event)
    (legend,) = (line for line in lines if line.startswith("Src:"))
    assert "C what each component proposes, together" in legend
    assert sum("of 4 components at 5 places" in line for line in lines) == 1
