"""A search begins with what earlier ones stored about the same calls, and with nothing else.

The kind: a stored component that is never found again, of which the names of another program are taken, or that changes a search
though it does not fit.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import kernelscape as ks
import msgspec
import numpy as np
import pytest
from kernelscape.explorer import component_starts
from kernelscape.explorer.entry import resume
from kernelscape.explorer.results import load
from kernelscape.runtime.files import is_there
from kernelscape.runtime.measure.conditions import take_conditions
from kernelscape.runtime.records.folder import JOURNAL
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord, NoteRecord
from kernelscape.runtime.records.store import TunedStore, default_store

nd = ks.types.ndarray()
Decisions = dict[str, str]


@ks.kernel
def scale(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i] + 1.0


@ks.kernel
def add_up(x: nd, s: nd) -> None:
    for i in range(x.shape[0]):
        s[0] += x[i]


@ks.kernel
def turn(x: nd) -> None:
    for i in range(x.shape[0]):
        x[i] = 3 - x[i]


def first(x, y, s):
    """The sequence that is searched first."""
    scale(x, y)
    add_up(y, s)


def often(x, y, s):
    """The same calls in each step of a repeat, and no others."""
    for _ in range(9):
        scale(x, y)
        add_up(y, s)


def longer(w, p, q, r):
    """The same calls on arrays of other names, behind one of a kernel of theirs and before another."""
    scale(w, w)
    scale(p, q)
    add_up(q, r)
    turn(q)


def long(w, p, q, r):
    """The same calls as a component of several."""
    for _ in range(9):
        scale(w, w)
    scale(p, q)
    add_up(q, r)


def repeated(w, p, q, r):
    """The same calls in each step of a repeat."""
    turn(w)
    for _ in range(9):
        scale(p, q)
        add_up(q, r)


def behind_written_out(w, p, q, r):
    """The same calls behind a repeat whose steps may share a loop, so that these are written out."""
    for _ in range(4):
        scale(w, w)
    for _ in range(17):
        turn(w)
    scale(p, q)
    add_up(q, r)


def other(w, p, q, r):
    """None of these calls behind one another."""
    add_up(q, r)
    scale(p, q)
    turn(w)


def pair(x, y):
    """Two loops that have nothing in common."""
    scale(x, x)
    turn(y)


def apart(w, p, q, r):
    """The same calls, as two components of several."""
    for _ in range(14):
        scale(w, w)
    scale(p, p)
    turn(r)


@ks.kernel
def clear(s: nd) -> None:
    for i in range(s.shape[0]):
        s[i] = 0.0


def cleared(x, y, s):
    """A call that is no task of its own: the sum begins at 0."""
    scale(x, y)
    clear(s)
    add_up(y, s)


def turned(w, p, q, r):
    turn(w)
    scale(p, q)
    clear(r)
    add_up(q, r)


def hidden(x, s):
    """Two calls by way of an array that nobody else sees, which holds zeros at first."""
    y = ks.ndarray(ks.f32, 67)
    raise_by(x, y)
    add_up(y, s)


@ks.kernel
def raise_by(x: nd, y: nd) -> None:
    for i in range(x.shape[0]):
        y[i] += 0.5 * x[i]


@ks.kernel
def lift(given: nd, made: nd) -> None:
    for number in range(given.shape[0]):
        made[number] += 0.5 * given[number]


@ks.kernel
def total(given: nd, made: nd) -> None:
    for number in range(given.shape[0]):
        made[0] += given[number]


def hidden_elsewhere(w, p, r):
    """The same calls under other names."""
    turn(w)
    q = ks.ndarray(ks.f32, 67, "q")
    lift(p, q)
    total(q, r)


def seen(w, p, q, r):
    """The same calls on an array of the caller."""
    turn(w)
    raise_by(p, q)
    add_up(q, r)


def kept(w, p, r):
    """The same calls, but the array holds what the step before has left."""
    q = ks.ndarray(ks.f32, 67)
    for _ in range(9):
        raise_by(p, q)
        add_up(q, r)


def used_again(w, p, r):
    """A later call reads the array, too."""
    turn(w)
    q = ks.ndarray(ks.f32, 67)
    raise_by(p, q)
    add_up(q, r)
    scale(q, p)


SIZES = {
    cleared: (67, 67, 1),
    first: (67, 67, 1),
    hidden: (67, 1),
    hidden_elsewhere: (41, 67, 1),
    kept: (41, 67, 1),
    often: (67, 67, 1),
    pair: (67, 1),
    used_again: (41, 67, 1),
}
NAMES = {"x": "p", "y": "q", "s": "r"}


def explored(
    sequence: Callable[..., None], folder: Path, most: int = 4, **fixed: str
) -> tuple[list[EvaluationRecord], list[str]]:
    """The evaluations of a search on the fake device, and its notes about the store."""
    arrays = [np.ones(n, np.float32) for n in SIZES.get(sequence, (41, 67, 67, 1))]
    given = {"target": "fake", "time_limit": None, "max_evals": most, "decisions": fixed}
    ks.explore(sequence, *arrays, directory=folder, **given)
    records = list(read_journal(folder / JOURNAL))
    notes = [r.text for r in records if isinstance(r, NoteRecord) and r.kind == "store"]
    return [r for r in records if isinstance(r, EvaluationRecord)], notes


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Decisions]:
    """The store of a user who has searched `first` with its loops in one, and what is the best of it."""
    data = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(data))
        folder = tmp_path_factory.mktemp("run")
        measured, notes = explored(first, folder, most=30, mem_space="REGISTER")
        assert notes == []
        best = min(measured, key=lambda r: r.time_ns or np.inf)
        return default_store(), dict(best.decisions)


@pytest.fixture
def store(
    searched: tuple[Path, Decisions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of it, which is in use."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    place = default_store()
    place.parent.mkdir(parents=True)
    copied(searched[0], place)
    return place


def copied(store: Path, place: Path) -> None:
    with closing(sqlite3.connect(store)) as old, closing(sqlite3.connect(place)) as new:
        old.backup(new)


def renamed(decisions: Decisions, number: int) -> Decisions:
    """Decisions about `first` as they are called where its calls are those of `p`, `q` and `r`."""
    words = NAMES | {"scale0": f"scale{number}"}
    return {
        re.sub(r"\b(scale0|(?<=[.])[xys](?=\)|$|\.))", lambda m: words[m[1]], name): value
        for name, value in decisions.items()
    }


def has(record: EvaluationRecord, wanted: Decisions) -> bool:
    return wanted.items() <= dict(record.decisions).items()


def keys(measured: Sequence[EvaluationRecord]) -> list[str]:
    return [r.source_key for r in measured]


@pytest.mark.parametrize(
    ("sequence", "number"), [(longer, 1), (long, 9), (repeated, 0), (behind_written_out, 4)]
)
def test_it_is_among_the_first_candidates_of_another_sequence(
    searched: tuple[Path, Decisions], store: Path, tmp_path: Path, sequence, number
) -> None:
    wanted = renamed(searched[1], number)
    assert (
        wanted[f"mem_space(scale{number}->add_up0.q)"] == "REGISTER"
    )  # by default it is in memory
    measured, notes = explored(sequence, tmp_path / "run")
    assert sum(has(r, wanted) for r in measured) >= 1
    assert notes == ["components with stored decisions: 1"]
    store.unlink()
    without, _ = explored(sequence, tmp_path / "without")
    assert not any(has(r, wanted) for r in without)


def test_a_step_of_a_repeat_is_a_component(store: Path, tmp_path: Path) -> None:
    """Its time is that of one step. Steps keep the result in the same array."""
    store.unlink()
    explored(often, tmp_path / "often", mem_space="REGISTER")
    with TunedStore() as tuned:
        ((_, (row,)),) = tuned.components(take_conditions().machine).items()
        found = tuned.read_component(row)
    whole = load(tmp_path / "often").file
    assert found.time_ns == pytest.approx(whole.time_ns / 9)
    assert found.stored.recorded().repeats == ()
    measured, notes = explored(longer, tmp_path / "run")
    assert notes == ["components with stored decisions: 1"]
    assert any(has(r, {"mem_space(scale1->add_up0.q)": "REGISTER"}) for r in measured)


def test_choices_that_two_components_do_not_have_are_left_out(store: Path, tmp_path: Path) -> None:
    """Alone the two tasks are near: one choice says that they share no launch."""
    store.unlink()
    explored(pair, tmp_path / "pair")
    best = load(tmp_path / "pair").decisions
    words = {"scale0.x": "scale14.p", "scale0": "scale14", "turn0.x": "turn0.r"}
    wanted = {re.sub("|".join(words), lambda m: words[m[0]], n): v for n, v in best.items()}
    measured, notes = explored(apart, tmp_path / "apart")
    assert notes == ["components with stored decisions: 1"]
    names = dict(measured[0].decisions).keys() & wanted.keys()
    assert "fused(scale14,turn0)" in wanted.keys() - names
    assert len(names) > 4
    assert any(has(r, {n: wanted[n] for n in names}) for r in measured)


def test_a_call_without_a_task_belongs_to_those_behind_it(store: Path, tmp_path: Path) -> None:
    store.unlink()
    explored(cleared, tmp_path / "cleared", mem_space="REGISTER")
    assert not any("clear" in name for name in load(tmp_path / "cleared").decisions)
    measured, notes = explored(turned, tmp_path / "turned")
    assert notes == ["components with stored decisions: 1"]
    assert any(has(r, {"mem_space(scale0->add_up0.q)": "REGISTER"}) for r in measured)


@pytest.fixture(scope="module")
def with_temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a user who has searched `hidden` alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        explored(hidden, tmp_path_factory.mktemp("run"), mem_space="REGISTER")
        return default_store()


@pytest.mark.parametrize(
    ("sequence", "is_found"),
    [(hidden_elsewhere, True), (seen, False), (used_again, False), (kept, False)],
)
def test_calls_with_a_temporary_of_their_own_are_a_component(
    store: Path, with_temporary: Path, tmp_path: Path, sequence, is_found: bool
) -> None:
    """In a sequence of other kernels and arrays, but not where anybody else reads the array."""
    store.unlink()
    copied(with_temporary, store)
    measured, notes = explored(sequence, tmp_path / "run")
    assert notes == ["components with stored decisions: 1"] * is_found
    wanted = {"mem_space(lift0->total0.q)": "REGISTER"}
    assert any(has(r, wanted) for r in measured) == is_found


def test_names_are_those_of_the_sequence_that_is_searched(store: Path, tmp_path: Path) -> None:
    change(store, lambda text: text.replace("add_up", "add_on"))
    _, notes = explored(longer, tmp_path / "run")
    assert notes == ["components with stored decisions: 1"]


def change(place: Path, edit: Callable[[str], str]) -> None:
    """Edits the stored components."""
    with closing(sqlite3.connect(place)) as connection, connection:
        rows = connection.execute("select id, result from results where component != ''").fetchall()
        for number, text in rows:
            assert edit(text) != text
            connection.execute("update results set result = ? where id = ?", (edit(text), number))
        assert rows


def _recording(text: str) -> str:
    return str(msgspec.json.decode(text)["stored"]["recording"])


def recorded(text: str, recording: str) -> str:
    found = msgspec.json.decode(text)
    found["stored"]["recording"] = recording
    return msgspec.json.encode(found).decode()


UNFIT: dict[str, Callable[[str], str]] = {
    "a choice that is no more": lambda text: text.replace(
        '"decisions":[[', '"decisions":[["plaited(scale0)","YES"],['
    ),
    "a value that is no more": lambda text: re.sub(
        r'(\["dim_kind\([^)]*\)",")[A-Z]+', r"\1PLAITED", text
    ),
    "decisions that exclude each other": lambda text: re.sub(
        r'(\["size\(scale0[^)]*\)",")[0-9]+', r"\g<1>64", text
    ),
    "torn": lambda text: text[:200],
    "no recording": lambda text: recorded(text, "[]"),
    "a deep recording": lambda text: recorded(text, "[" * 20_000),
    "another sequence": lambda text: recorded(text, _recording(text).replace("0.5", "0.25")),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_does_not_fit_is_counted_and_changes_nothing(
    store: Path, tmp_path: Path, what: str
) -> None:
    change(store, UNFIT[what])
    measured, notes = explored(longer, tmp_path / "run")
    assert notes == ["components with stored decisions: 0, and 1 of which none fits"]
    store.unlink()
    assert keys(measured) == keys(explored(longer, tmp_path / "without")[0])


@pytest.mark.parametrize("sequence", [other, longer])
def test_nothing_found_changes_nothing(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sequence
) -> None:
    """Calls in another order, and results of another machine."""
    if sequence is longer:
        with closing(sqlite3.connect(store)) as connection, connection:
            connection.execute("update results set device = 'another'")
    measured, notes = explored(sequence, tmp_path / "run")
    assert notes == []
    store.unlink()
    without, notes = explored(sequence, tmp_path / "without")
    assert notes == [] and is_there(store)  # made at the end
    assert keys(measured) == keys(without)


def test_a_session_that_continues_begins_with_its_own_best(store: Path, tmp_path: Path) -> None:
    _, notes = explored(longer, tmp_path / "run")
    resume(tmp_path / "run", max_evals=2)
    again = [r for r in read_journal(tmp_path / "run" / JOURNAL) if isinstance(r, NoteRecord)]
    assert [r.text for r in again if r.kind == "store"] == notes
    assert len(notes) == 1


def test_what_there_was_no_time_for_is_said(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: a limit that bounds only some of the work, and cuts without a word."""
    monkeypatch.setattr(component_starts, "_LONGEST_S", -1.0)
    _, notes = explored(longer, tmp_path / "run")
    assert notes == ["components with stored decisions: 0; not all were looked for in -1 s"]
