"""best.json and run.json: strict loading, atomic writing."""

from __future__ import annotations

import json
import os

import pytest
from kernelscape.runtime.measure.conditions import Conditions, take_conditions
from kernelscape.runtime.records.loading import load_best, load_header, write_record
from kernelscape.runtime.records.record import RecordError, RunHeader

from ..sources import best


@pytest.fixture
def path(tmp_path):
    write_record(tmp_path / "run" / "best.json", best())
    return tmp_path / "run" / "best.json"


def test_round_trip_leaves_only_the_file(path):
    assert load_best(path) == best()
    assert [p.name for p in path.parent.iterdir()] == ["best.json"]


def test_header_round_trip(tmp_path):
    header = RunHeader(
        schema=2,
        sequence="axpydot",
        sizes={"n": 8},
        dtype="f32",
        problem_key="p",
        space_key="s",
        target="cpu",
        seed=1,
        options={"time_limit_s": 20.0, "gap": None, "strategy": "mcts"},
        conditions=best().conditions,
        stored=best().stored,
    )
    write_record(tmp_path / "run.json", header)
    assert load_header(tmp_path / "run.json") == header


def edit(path, **changes):
    content = json.loads(path.read_text())
    for name, value in changes.items():
        if value is ...:
            del content[name]
        else:
            content[name] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": 4}, "has schema 4, and this version reads schemas 1 and 2 and 3"),
        ({"schema": ...}, "has schema None"),
        ({"seed": ...}, "missing required field `seed`"),
        ({"extra": 1}, "unknown field `extra`"),
        ({"time_ns": "fast"}, r"\$.time_ns"),
        ({"time_ns": -1.0}, r"\$.time_ns"),
        ({"time_ns": 20.0}, "its gap does not follow"),
        ({"decisions": [["a"]]}, r"\$.decisions"),
        ({"decisions": [["a", "X"], ["a", "Y"]]}, "choice a is decided twice"),
        ({"evaluations": 0}, r"\$.evaluations"),
    ],
)
def test_edited_file_is_one_sentence(path, changes, why):
    edit(path, **changes)
    with pytest.raises(RecordError, match=why) as e:
        load_best(path)
    assert str(path) in str(e.value)
    assert "\n" not in str(e.value)


def test_a_file_of_schema_1_is_still_read(path):
    edit(path, schema=1)
    assert load_best(path).decisions == best().decisions


@pytest.mark.parametrize("keep", [0, 1, 100, -2])
def test_torn_file_is_one_sentence(path, keep):
    path.write_bytes(path.read_bytes().rstrip()[:keep])
    with pytest.raises(RecordError, match="torn or is no JSON"):
        load_best(path)


@pytest.mark.parametrize("content", [b"[]", b"3", b"\xff\xfe", b"null"])
def test_other_content_is_one_sentence(path, content):
    path.write_bytes(content)
    with pytest.raises(RecordError, match=r"best\.json"):
        load_best(path)


def test_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(RecordError, match="cannot be read"):
        load_best(tmp_path / "best.json")


def test_failed_write_leaves_the_old_file(path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_record(path, best(time_ns=5.0))
    monkeypatch.undo()
    assert load_best(path) == best()
    assert [p.name for p in path.parent.iterdir()] == ["best.json"]


def test_ctrl_c_behind_the_last_step_is_ctrl_c(path, monkeypatch):
    replace = os.replace

    def interrupted(old, new):
        replace(old, new)
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_record(path, best(time_ns=5.0))
    assert load_best(path) == best(time_ns=5.0)
    assert [p.name for p in path.parent.iterdir()] == ["best.json"]


def test_conditions_name_the_machine():
    c = take_conditions(compiler="gcc 12", flags=("-O2",))
    assert isinstance(c, Conditions)
    assert c.cores >= 1
    assert c.machine.startswith("cpu-")
    assert "numpy" in c.versions
