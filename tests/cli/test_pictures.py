"""`explore graph` and `explore trace`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernelscape.explorer.trace import compilers_of, events_of
from kernelscape.kernels.tasks.graph_text import dot_text, mermaid_text
from kernelscape.kernels.tasks.state_flow import State, TaskNode, connect
from kernelscape.runtime.records.record import (
    BoundRecord,
    EvaluationRecord,
    IncumbentRecord,
    NoteRecord,
    Timing,
)
from msgspec import structs

from .command import SMALL, objects


def test_lines_say_why_a_task_must_wait() -> None:
    """One that overwrites what another reads, and one that overwrites what nobody read."""
    y, z = State("value", "y"), State("value", "z")
    nodes = [TaskNode(0, "a", (y,), (z,)), TaskNode(1, "b", (), (y,)), TaskNode(2, "c", (), (y,))]
    dot = dot_text(connect(nodes), 'a "name"')
    assert dot.startswith('digraph "a \\"name\\"" {')
    assert 't0 -> t1 [label="y@0", style=dashed];' in dot
    assert 't1 -> t2 [label="y@1", style=dotted];' in dot
    assert 't2 -> out0 [label="y@2"];' in dot
    assert "out0" not in dot_text(connect(nodes), "x", frozenset({"y", "z"}))
    assert 't0 -.->|"anti y@0"| t1' in mermaid_text(connect(nodes))


def test_the_trace_of_a_run(explore) -> None:
    assert explore("run", *SMALL, "--target", "fake", "--max-evals", 3, "-o", "run")[0] == 0
    assert explore("resume", "run", "--max-evals", 2)[0] == 0
    code, out, _ = explore("trace", "run", "--json")
    assert code == 0
    found = json.loads(Path("trace.json").read_text())
    assert objects(out) == [
        {"event": "trace", "file": "trace.json", "events": len(found["traceEvents"])}
    ]
    assert found["otherData"]["sequence"] == "axpydot"
    events = found["traceEvents"]
    assert all(e["ph"] == "M" or e["ts"] >= 0 for e in events)
    sessions = [e for e in events if e["ph"] == "X" and e["name"].startswith("session")]
    assert [e["name"] for e in sessions] == ["session 1", "session 2"]
    assert sessions[0]["ts"] + sessions[0]["dur"] <= sessions[1]["ts"]
    measured = [e for e in events if e.get("args", {}).get("source_key")]
    assert len(measured) == 5
    best = [e["args"]["value"] for e in events if e["name"] == "best, ms"]
    assert min(best) == pytest.approx(
        json.loads(Path("run/best.json").read_text())["time_ns"] / 1e6
    )


@pytest.mark.compiler
def test_compilers_have_their_place_in_time(
    explore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each before what it built was measured, inside of the session, and none twice in one row at a time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # nothing is built before
    assert explore("run", *SMALL, "--max-evals", 3, "-o", "run")[0] == 0
    assert explore("trace", "run")[0] == 0
    events = json.loads(Path("trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    compiled = [e for e in slices if "source_keys" in e["args"]]
    measured = {e["args"]["source_key"]: e for e in slices if "source_key" in e["args"]}
    keys = [key for e in compiled for key in e["args"]["source_keys"]]
    assert keys and len(keys) == len(set(keys)) and set(keys) <= set(measured)
    for e in compiled:
        assert e["dur"] > 0
        for key in e["args"]["source_keys"]:
            assert (
                e["ts"] + e["dur"] <= measured[key]["ts"] + 1e3
            )  # clocks are read one after the other
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {rows[e["tid"]].split()[0] for e in compiled} == {"compiler"}


def test_compilers_that_ran_at_once_have_a_row_each() -> None:
    def built(at_s: float, key: str, *compiling_s: float) -> EvaluationRecord:
        timing = Timing(build_s=1.0, run_s=0.1)
        if compiling_s:
            timing = structs.replace(timing, compiling_s=compiling_s)
        common = {"decisions": (), "status": "ok", "time_ns": 5e6, "timing": timing}
        return EvaluationRecord(at_s=at_s, source_key=key, **common)

    records = (
        built(5, "a", 1.0, 3.0),
        built(6, "b", 1.0, 3.0),
        built(7, "c", 2.0, 4.0),
        built(8, "d", 3.0, 4.5),
        built(9, "e"),  # as older journals have it
    )
    found = [e for e in compilers_of(records) if e["ph"] == "X"]
    told = [(e["tid"], e["ts"] / 1e6, e["dur"] / 1e6, e["args"]["source_keys"]) for e in found]
    assert told == [(10, 1, 2, ["a", "b"]), (11, 2, 2, ["c"]), (10, 3, 1.5, ["d"])]
    assert [e["name"] for e in found] == ["2 texts", "1 text", "1 text"]


def test_a_killed_session_ends_with_its_last_record() -> None:
    """A journal of schema 1 has no times of measurements."""
    evaluation = EvaluationRecord(
        at_s=2.0, decisions=(), source_key="k" * 8, status="ok", time_ns=5e6, slowness=1.5
    )
    records = (
        NoteRecord(at_s=0.5, kind="session", text="seed 1"),
        BoundRecord(at_s=1.0, bound_ns=1e6),
        evaluation,
        IncumbentRecord(at_s=2.0, source_key="k" * 8, time_ns=5e6),
        NoteRecord(at_s=9.0, kind="session", text="seed 1"),
    )
    events = list(events_of(records))
    slices = {e["name"]: e for e in events if e["ph"] == "X"}
    assert (slices["session 1"]["ts"], slices["session 1"]["dur"]) == (0.5e6, 1.5e6)
    assert slices["session 1"]["args"] == {"status": "ended without a word"}
    assert slices["session 2"]["args"] == {"status": "no end yet"}
    values = {e["name"]: e["args"]["value"] for e in events if e["ph"] == "C"}
    assert values == {
        "bound, ms": 1.0,
        "best, ms": 5.0,
        "time of one program, in its first": 1.5,
    }
    assert [e["name"] for e in events if e["ph"] == "i"] == ["5 ms"]
