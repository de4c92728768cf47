"""A run of a sequence whose calls are split has their unsplit form among its first candidates, once: measured, stored, replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer import evaluation, finalisation
from kernelscape.explorer.entry import resume
from kernelscape.explorer.evaluation import Entry, SearchEvaluator
from kernelscape.explorer.explanation import explain_run
from kernelscape.explorer.remeasure import time_again
from kernelscape.explorer.results import replay_again
from kernelscape.runtime.api.outcome import Measurement
from kernelscape.runtime.records.folder import BEST, JOURNAL
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord
from msgspec import UNSET

NAME = "splitting(calls)"
nd = ks.types.ndarray()


@ks.kernel
def halves(x: nd, y: nd, z: nd) -> None:
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i]
        z[i] = y[i] + x[i]


@ks.kernel
def smooth_in_order(x: nd, y: nd) -> None:
    for i in range(1, x.shape[0]):
        x[i] = 0.5 * x[i - 1] + y[i]


def of_two_components(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> None:
    halves(x, y, z)
    for _ in range(40):
        smooth_in_order(z, y)


def arrays() -> list[np.ndarray]:
    return [np.full(512, value, np.float32) for value in (1, 0, 0)]


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        yield


def unsplit(folder: Path) -> list[EvaluationRecord]:
    records = [x for x in read_journal(folder / JOURNAL) if isinstance(x, EvaluationRecord)]
    assert records
    return [x for x in records if dict(x.decisions).get(NAME) == "WHOLE"]


def test_it_is_measured_once(tmp_path: Path) -> None:
    ks.explore(halves, *arrays(), target="fake", max_evals=4, directory=tmp_path / "run")
    (first,) = unsplit(tmp_path / "run")
    assert first.status == "ok" and first.bound_ns == 0
    resume(tmp_path / "run", max_evals=4)
    assert len(unsplit(tmp_path / "run")) == 1


def test_it_is_timed_again_with_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is none of the finalists: fake times are far apart, so each counts as near here."""
    seen: list[Entry] = []

    def again(entries: Sequence[Entry], *given: Any) -> Any:
        seen.extend(entries)
        return time_again(entries, *given)

    monkeypatch.setattr(finalisation, "time_again", again)
    monkeypatch.setattr(evaluation, "_ASIDE", 1e9)
    monkeypatch.setattr(SearchEvaluator, "finalists", lambda self, n, near: self.top(1))
    ks.explore(halves, *arrays(), target="fake", max_evals=8, directory=tmp_path / "run")
    assert [candidate.is_apart for _, candidate in seen[:2]] == [False, True]


def test_it_is_measured_beside_components(tmp_path: Path) -> None:
    """It has no times of them; they are searched as ever."""
    folder = tmp_path / "run"
    run = ks.explore(of_two_components, *arrays(), target="fake", max_evals=8, directory=folder)
    (first,) = unsplit(folder)
    assert first.status == "ok" and first.components is UNSET
    records = [x for x in read_journal(folder / JOURNAL) if isinstance(x, EvaluationRecord)]
    assert len(records) == 8 and any(x.components is not UNSET for x in records)
    assert run.best is not None


def test_as_the_best_it_is_stored_explained_and_replayed(tmp_path: Path) -> None:
    """Fixed by a user it is the only implementation, so the search ends with it."""
    fixed = {"splitting": "WHOLE"}
    run = ks.explore(halves, *arrays(), target="fake", decisions=fixed, directory=tmp_path / "run")
    assert run.status == "optimal" and run.best is not None
    assert len(unsplit(tmp_path / "run")) == 1
    assert isinstance(replay_again(tmp_path / "run" / BEST).outcome, Measurement)
    words = explain_run(tmp_path / "run").best.words
    assert words["launches"][0] == "calls are as the program makes them, none split into tasks"
