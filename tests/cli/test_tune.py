"""`explore tune`, and the function that its file becomes."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer import tuning
from kernelscape.kernels.library import load
from kernelscape.runtime.fleet.fleet import LocalFleet
from kernelscape.runtime.records.family import distance, load_family
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.runtime.records.replay import StaleError
from msgspec import structs

from .command import USER_FILE, objects

FEW = ("--max-evals", 3, "--target", "fake", "--json")
CPU = ("--max-evals", 1, "--time-limit", "5s")


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """import-linter, where a test of the same process ran it, has disabled every logger."""
    monkeypatch.setattr(logging.getLogger("kernelscape"), "disabled", False)


def tuned(explore, *arguments: object) -> tuple[int, list[dict]]:
    code, out, err = explore("tune", *arguments)
    assert err == "" or code, err
    return code, objects(out)


def test_a_shape_is_searched_once(explore) -> None:
    given = ("axpydot", "--sizes", "n=256,n=1024", *FEW)
    code, lines = tuned(explore, *given)
    assert code == 0
    assert [(x["sizes"], x["is_new"]) for x in lines[:-1]] == [
        ({"n": 256}, True),
        ({"n": 1024}, True),
    ]
    assert lines[-1] == {"event": "tuned", "file": "tuned-axpydot.json", "shapes": 2, "exit": 0}
    code, lines = tuned(explore, "axpydot", "--sizes", "n=64", "--sizes", "n=1024", *FEW)
    assert [(x["sizes"]["n"], x["is_new"]) for x in lines[:-1]] == [(64, True), (1024, False)]
    family = load_family(Path("tuned-axpydot.json"))
    assert [e.sizes["n"] for e in family.entries] == [256, 1024, 64]
    code, lines = tuned(explore, *given, "--again")
    assert all(x["is_new"] for x in lines[:-1])


def test_an_interrupted_shape_is_searched_again(explore, monkeypatch) -> None:
    """Shapes that were finished before stay; the next call searches the others."""
    whole = tuning.explore_workload

    def interrupted(workload, options, **more):
        found = whole(workload, options, **more)
        ended = structs.replace(found.ended, status="interrupted")
        file = structs.replace(found.best.file, status="interrupted")
        return replace(found, ended=ended, best=replace(found.best, file=file))

    assert tuned(explore, "vadd", "--sizes", "n=64", *FEW)[0] == 0
    monkeypatch.setattr(tuning, "explore_workload", interrupted)
    code, lines = tuned(explore, "vadd", "--sizes", "n=64,n=32,n=16", *FEW)
    assert code == 130
    assert [x["sizes"]["n"] for x in lines[:-1]] == [64, 32]
    monkeypatch.setattr(tuning, "explore_workload", whole)
    code, lines = tuned(explore, "vadd", "--sizes", "n=64,n=32,n=16", *FEW)
    assert code == 0
    assert [x["is_new"] for x in lines[:-1]] == [False, True, True]


@pytest.fixture
def slots(monkeypatch) -> tuple[str, ...]:
    """Two slots of this machine."""
    own = LocalFleet.__init__

    def shared(self, host) -> None:
        own(self, host)
        self.may_be_shared = True  # they are fake, and compilers take no core

    monkeypatch.setattr(LocalFleet, "__init__", shared)
    return ("--device", "fake:0", "--device", "fake:1")


def test_an_interrupt_ends_all_searches(explore, slots) -> None:
    """Each has its best in the file, and is searched again by the next call."""

    def n_searching() -> int:
        journals = Path("runs").glob("*/journal.jsonl")
        return sum(b'"time_ns"' in journal.read_bytes() for journal in journals)

    def interrupt() -> None:
        while n_searching() < 2 and not is_over.wait(0.02):
            pass
        os.kill(os.getpid(), signal.SIGINT)

    is_over = threading.Event()
    watching = threading.Thread(target=interrupt)
    watching.start()
    given = ("--time-limit", "60s", "--max-evals", 10**6, *FEW[2:])
    code, lines = tuned(explore, "axpydot", "--sizes", "n=64,n=32,n=16", *given, *slots)
    is_over.set()
    watching.join()
    assert code == 130
    assert [x["status"] for x in lines[:-1]] == ["interrupted"] * 2
    assert {e.status for e in load_family(Path("tuned-axpydot.json")).entries} == {"interrupted"}


def test_shapes_are_searched_at_once_a_slot_each(explore, slots) -> None:
    """Known shapes are not searched again, and an error ends all searches."""
    sizes = ("axpydot", "--sizes", "n=64,n=32,n=16", *FEW, *slots)
    code, lines = tuned(explore, *sizes)
    assert code == 0
    assert sorted(x["sizes"]["n"] for x in lines[:-1]) == [16, 32, 64]
    at = {}
    for line in lines[:-1]:
        records = read_journal(Path(line["run_dir"]) / "journal.jsonl")
        found = [r for r in records if isinstance(r, EvaluationRecord)]
        assert len(found) == 3
        at[line["sizes"]["n"]] = {r.place.slot for r in found}
    assert at[64] | at[32] == {"fake:0", "fake:1"}
    assert all(len(slot) == 1 for slot in at.values())
    assert {e.sizes["n"] for e in load_family(Path("tuned-axpydot.json")).entries} == {16, 32, 64}
    code, lines = tuned(explore, *sizes[:2], "n=8,n=64,n=32", *sizes[3:])
    assert {x["sizes"]["n"]: x["is_new"] for x in lines[:-1]} == {8: True, 64: False, 32: False}
    code, _, err = explore("tune", *sizes, "--on", "none", "--again")
    assert (code, "no device of the key 'none'" in err) == (3, True)


def test_shapes_are_as_far_apart_as_their_extents() -> None:
    assert distance([(8, 4), (4,)], [(8, 4), (4,)]) == 0
    assert distance([(8, 4)], [(16, 1)]) == 2
    assert distance([(8,)], [(8, 8)]) == distance([(8,)], []) == distance([(0,)], [(1,)]) == np.inf


@pytest.mark.compiler
def test_the_function_takes_exact_or_nearest_and_says_which(explore, caplog) -> None:
    assert explore("tune", "axpydot", "--sizes", "n=256,n=4096", *CPU)[0] == 0
    f = ks.load_tuned("tuned-axpydot.json")
    assert repr(f) == "<tuned axpydot for n=256; n=4096>"
    entry = load("axpydot")
    caplog.set_level(logging.INFO, "kernelscape")
    for n, level, nearest in ((256, "exact", 256), (300, "nearest", 256), (3000, "nearest", 4096)):
        args = entry.make_arguments({"n": n}, np.float32, np.random.default_rng(n))
        wanted = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
        entry.reference(*wanted)
        choice = f.choice(*args)
        assert (choice.level, choice.sizes) == (level, {"n": nearest})
        assert choice.distance == pytest.approx(abs(np.log2(n / nearest)))
        f(*args)
        for got, want in zip(args, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4)
    assert len(caplog.messages) == 3  # each said once
    assert "decisions tuned for n=4096, verified here" in caplog.messages[-1]
    with pytest.raises(ks.LanguageError, match="cannot be called with 1 arguments"):
        f(np.zeros(3, np.float32))


@pytest.mark.compiler
def test_a_users_sequence_is_needed_for_other_shapes(explore) -> None:
    Path("mine.py").write_text(USER_FILE)
    code, _, err = explore("tune", "mine.py:both", "--sizes", "n=16", *CPU, "-o", "both.json")
    assert code == 0, err
    spec = importlib.util.spec_from_file_location("mine", "mine.py")
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    x, y, z = np.ones(24, np.float32), np.zeros(24, np.float32), np.zeros(24, np.float32)
    with pytest.raises(StaleError, match="load_tuned\\(path, sequence\\)"):
        ks.load_tuned("both.json")(x, y, z, 0.5)
    f = ks.load_tuned("both.json", mine.both)
    assert f.choice(x, y, z, 0.5).level == "nearest"
    f(x, y, z, 0.5)
    assert (z == 0.25).all()


@pytest.mark.compiler
def test_what_fits_nothing_is_the_default() -> None:
    family = {"tuned_schema": 1, "sequence": "vadd", "dtype": "f32", "target": "cpu", "entries": []}
    Path("tuned-vadd.json").write_text(json.dumps(family))
    args = load("vadd").make_arguments({"n": 64}, np.float32, np.random.default_rng(1))
    f = ks.load_tuned("tuned-vadd.json")
    assert str(f.choice(*args)) == "default: nothing that was tuned fits; verified here"
    f(*args)
    np.testing.assert_allclose(args[3], args[0] + args[1] + args[2], rtol=1e-6)
