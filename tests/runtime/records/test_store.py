"""The tuned store: how exact a match is, and several writers at once."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from kernelscape.runtime.records.record import RecordError
from kernelscape.runtime.records.store import TunedKey, TunedStore

from ..sources import best

KEY = TunedKey("axpydot", "f32", (8,), "cpu-x")


@pytest.fixture
def store(tmp_path):
    with TunedStore(tmp_path / "tuned.sqlite") as store:
        yield store


def test_faster_replaces_slower_only(store):
    assert store.put(KEY, best(10.0))
    assert not store.put(KEY, best(12.0))
    assert store.put(KEY, best(9.0))
    match = store.lookup(KEY)
    assert match is not None
    assert (match.level, match.best, match.distance) == ("exact", best(9.0), 0.0)


def test_another_problem_under_the_key_replaces(store):
    store.put(KEY, best(10.0))
    assert store.put(KEY, best(12.0, n=9))


def test_nearest_shape_is_said_to_be_nearest(store):
    store.put(replace(KEY, shape=(1024,)), best(10.0, n=1024))
    store.put(replace(KEY, shape=(64,)), best(11.0, n=64))
    match = store.lookup(replace(KEY, shape=(100,)))
    assert match is not None
    assert (match.level, match.shape) == ("nearest", (64,))
    assert 0 < match.distance < 1


@pytest.mark.parametrize(
    "other", [{"family": "atax"}, {"dtype": "f64"}, {"device": "cpu-y"}, {"shape": (8, 8)}]
)
def test_other_keys_do_not_match(store, other):
    store.put(KEY, best())
    assert store.lookup(replace(KEY, **other)) is None


def test_a_file_that_is_no_store_is_a_sentence(tmp_path):
    path = tmp_path / "tuned.sqlite"
    path.write_bytes(b"not a database, and long enough to be read as the head of one" * 40)
    with pytest.raises(RecordError, match="is no tuned store"):
        TunedStore(path)


def test_a_newer_store_is_a_sentence(tmp_path):
    path = tmp_path / "tuned.sqlite"
    with TunedStore(path) as store:
        store._connection.execute("pragma user_version = 7")
    with pytest.raises(RecordError, match="version 7"):
        TunedStore(path)


def test_concurrent_writers_lose_nothing(tmp_path):
    path = tmp_path / "tuned.sqlite"
    script = f"""
import sys
from pathlib import Path
from kernelscape.runtime.records.store import TunedKey, TunedStore
from kernelscape.tests.runtime.sources import best
me = int(sys.argv[1])
with TunedStore(Path({os.fspath(path)!r})) as store:
    for k in range(40):
        store.put(TunedKey("axpydot", "f32", (1 + k + 40 * me,), "cpu-x"), best(10.0))
        store.put(TunedKey("axpydot", "f32", (9999,), "cpu-x"), best(1000.0 - 10 * k - me))
"""
    writers = [subprocess.Popen([sys.executable, "-c", script, str(k)]) for k in range(3)]
    assert [w.wait(60) for w in writers] == [0, 0, 0]
    with TunedStore(path) as store:
        assert all(store.lookup(replace(KEY, shape=(n,))).level == "exact" for n in range(1, 121))
        match = store.lookup(replace(KEY, shape=(9999,)))
    assert match is not None
    assert match.best.time_ns == 608.0
