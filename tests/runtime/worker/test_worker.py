"""The fault table: every way a candidate can misbehave has its status, and the next one runs as
if nothing had been.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.worker.input_sets import InputSet, InputSets
from kernelscape.runtime.worker.verify import Expected
from kernelscape.runtime.worker.worker import Worker, WorkerError, WorkerOptions

from ..sources import CORRECT, input_sets, source

QUICK = Protocol(sample_ns=2e4, min_samples=3, max_samples=5, budget_ns=5e6)

FAULTS = {
    "null pointer": ("*(volatile int *)0 = 1;", "crash", "SIGSEGV"),
    "abort": ("abort();", "crash", "SIGABRT"),
    "exit": ("exit(0);", "crash", "status 0"),
    "divide": ("volatile int n = 0; volatile int m = 7; y[0] = m / n;", "crash", "SIGFPE"),
    "endless loop": ("for (;;) usleep(1000);", "timeout", "within"),
    "wrong value": (CORRECT + "if (x[0]) z[17] += 1;", "wrong", "z[17]"),
    "nothing written": ("", "wrong", "[0] is"),
    "one element missing": (
        "for (int i = 0; i < N - 1; i++) { z[i] = alpha * x[i] + y[i]; y[i] = z[i]; }",
        "wrong",
        "[999] is",
    ),
    "just behind": (CORRECT + "z[N] = 0;", "wrong", "behind it"),
    "just before": (CORRECT + "z[-1] = 0;", "wrong", "before it"),
    "far outside": (CORRECT + "z[100000] = 0;", "crash", "SIGSEGV"),
    "read-only input": (CORRECT + "((float *)x)[3] = 0;", "crash", "read-only input x"),
    "allocates without end": ("for (;;) memset(malloc(1 << 20), 1, 1 << 20);", "memory", "MiB"),
    "allocates and waits": (
        "for (;;) { char *p = malloc(1 << 20); if (p) memset(p, 1, 1 << 20); else usleep(100); }",
        "memory",
        "MiB",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_has_its_status_and_the_next_candidate_runs(cpu, worker, name):
    body, status, detail = FAULTS[name]
    artifact = cpu.builder.build(source(body))
    assert not isinstance(artifact, Failure), artifact
    outcome = worker.evaluate(artifact, QUICK)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, detail in outcome.advice) == (status, True), outcome
    good = worker.evaluate(cpu.builder.build(source()), QUICK)
    assert isinstance(good, Measurement), good


def test_arrays_go_to_the_child_that_was_started_before_they_were_there(cpu):
    with Worker(cpu) as w:
        w.start()
        first = w._channel._child
        w.prepare(input_sets())
        assert w._channel._child is first
        assert isinstance(w.evaluate(cpu.builder.build(source()), QUICK), Measurement)
        w.prepare(input_sets())  # that one maps files that are gone
        assert w._channel._child is not first
        assert isinstance(w.evaluate(cpu.builder.build(source()), QUICK), Measurement)
        assert w.n_restarts == 0


def test_a_child_starts_without_numba(cpu, worker):
    worker.evaluate(cpu.builder.build(source()), QUICK)
    libraries = Path(f"/proc/{worker._channel._child.pid}/maps").read_text()
    assert "numpy" in libraries
    assert "llvmlite" not in libraries


def test_missing_entry_is_launch(cpu, worker):
    outcome = worker.evaluate(cpu.builder.build(source(entry="absent")), QUICK)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "launch"
    assert "absent" in outcome.advice


def test_unresolved_symbol_is_launch(cpu, worker):
    artifact = cpu.builder.build(source("extern void nowhere(void); nowhere();"))
    outcome = worker.evaluate(artifact, QUICK)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "launch"
    assert "nowhere" in outcome.log


def test_workspace_beyond_the_limit_is_memory(cpu, worker):
    outcome = worker.evaluate(cpu.builder.build(source(workspace_bytes=1 << 33)), QUICK)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "memory"


def test_workspace_is_poisoned_and_guarded(cpu, worker):
    body = CORRECT + "unsigned char *w = args[4]; memset(w, 0, 4096);"
    assert isinstance(
        worker.evaluate(cpu.builder.build(source(body, workspace_bytes=4096)), QUICK), Measurement
    )
    outcome = worker.evaluate(cpu.builder.build(source(body, workspace_bytes=4095)), QUICK)
    assert isinstance(outcome, Failure)
    assert "workspace" in outcome.advice


def test_interleave_keeps_order_and_reports_failures(cpu, worker):
    bodies = (CORRECT, "", CORRECT + "/* again */")
    outcomes = worker.interleave([cpu.builder.build(source(b)) for b in bodies], QUICK)
    assert [type(o) for o in outcomes] == [Measurement, Failure, Measurement]


_AT_A_LINE = "if ((unsigned long)x % 64 == 0) usleep(3000);"
_BEHIND_A_LINE = "if ((unsigned long)x % 64 == 16) usleep(3000);"


def test_a_search_times_where_the_arrays_of_numpy_begin(cpu, worker):
    fast, slow = (
        worker.evaluate(cpu.builder.build(source(CORRECT + body)), QUICK)
        for body in (_AT_A_LINE, _BEHIND_A_LINE)
    )
    assert fast.time_ns < 1e6 < slow.time_ns


def test_the_slower_of_two_placements_is_what_is_told(cpu, worker):
    bodies = (CORRECT, CORRECT + _AT_A_LINE, CORRECT + _BEHIND_A_LINE)
    both, line, behind = worker.interleave([cpu.builder.build(source(b)) for b in bodies], QUICK)
    assert both.time_ns < 1e6 < min(line.time_ns, behind.time_ns)


def test_what_is_wrong_at_one_placement_only_is_wrong(cpu, worker):
    for place in (0, 16):
        body = CORRECT + f"if ((unsigned long)x % 64 == {place}) z[17] += 1;"
        outcome = worker.evaluate(cpu.builder.build(source(body)), QUICK)
        assert isinstance(outcome, Failure)
        assert outcome.kind == "wrong"


def test_memory_is_looked_at_in_the_rounds_of_candidates(cpu, worker):
    artifacts = [cpu.builder.build(source(b)) for b in (CORRECT, CORRECT + "/* again */")]
    outcomes, rates = worker.interleave_beside(artifacts, QUICK, 8e6, 4e6)
    assert [type(o) for o in outcomes] == [Measurement, Measurement]
    assert {"read", "triad_nt", "triad", "copy"} <= set(rates)
    assert all(rate > 0 for samples in rates.values() for rate in samples)
    _, rates = worker.interleave_beside(artifacts, QUICK, 1e3, 0.0)
    assert rates == {}  # nothing there is a matter of memory


def test_interleave_survives_a_crash(cpu, worker):
    bodies = (CORRECT, "abort();")
    outcomes = worker.interleave([cpu.builder.build(source(b)) for b in bodies], QUICK)
    assert isinstance(outcomes[0], Measurement)
    assert isinstance(outcomes[1], Failure)


def test_hopeless_candidate_runs_once_and_is_still_verified(cpu, worker):
    slow = "usleep(60000);"
    outcome = worker.evaluate(cpu.builder.build(source(CORRECT + slow)), Protocol(cut_ns=1e5))
    assert isinstance(outcome, Measurement)
    assert outcome.stopped_early
    assert (outcome.n_samples, outcome.n_calls) == (1, 1)
    assert outcome.time_ns > 60e6
    wrong = worker.evaluate(cpu.builder.build(source(slow)), Protocol(cut_ns=1e5))
    assert isinstance(wrong, Failure)
    assert wrong.kind == "wrong"


def test_what_is_slower_than_any_claim_is_verified_where_it_is_timed(cpu, worker):
    """The kind: work for a claim that nobody makes. What is as fast as the best is verified on the others before that is told."""
    artifact = cpu.builder.build(source("if ((unsigned long)x % 64) {" + CORRECT + "}"))
    slower = worker.evaluate(artifact, replace(QUICK, claims_below_ns=1.0))
    assert isinstance(slower, Measurement)
    assert slower.is_partly_verified
    for claims_below_ns in (1e12, None):
        faster = worker.evaluate(artifact, replace(QUICK, claims_below_ns=claims_below_ns))
        assert isinstance(faster, Failure)
        assert faster.advice.startswith("input set 1: ")
    right = worker.evaluate(cpu.builder.build(source()), replace(QUICK, claims_below_ns=1e12))
    assert isinstance(right, Measurement)
    assert not right.is_partly_verified
    hopeless = Protocol(cut_ns=1e5, claims_below_ns=1e5)
    slow = worker.evaluate(cpu.builder.build(source(CORRECT + "usleep(60000);")), hopeless)
    assert (slow.is_partly_verified, slow.n_samples) == (True, 1)


@dataclass(frozen=True)
class KnownRounding:
    """A stand-in for the rounding of an input set: at level 1 results may be off by an eighth."""

    plain: dict

    def is_worth(self, level, at):
        return level == 1

    def expected(self, level):
        if level == 0:
            return self.plain
        return {name: replace(e, factor=1.0, magnitude=2.0**20) for name, e in self.plain.items()}


@pytest.mark.parametrize(
    ("claims_below_ns", "n_right", "n_runs"),
    [
        (math.inf, [None, 0, 1, 2], [1, 2, 2]),
        (None, [None, 0, 1, 2], [1, 2, 2]),
        # Verified where it is timed, timed, and only then verified on the others: it is not timed for each of them.
        (1e12, [None, None, 0, 1], [1, None, 2]),
    ],
)
def test_what_was_right_is_not_run_again_once_rounding_was_measured(
    cpu, tmp_path, monkeypatch, claims_below_ns, n_right, n_runs
):
    """The kind: the runs of one candidate grow with the square of the number of sets whose rounding is measured for it."""
    seen = tmp_path / "runs"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    note = f'int open(const char *, int, ...); int f = open("{seen}", {flags}, 384); write(f, "x", 1); close(f);'
    artifact = cpu.builder.build(source(f"{CORRECT} z[17] += 0.0625f; {note}"))
    given = input_sets(3)
    sets = tuple(replace(s, rounding=KnownRounding(s.expected)) for s in given.sets)
    asked, runs = [], []

    def noted(self, request, deadline_s, ask=Worker._outcomes):
        before = seen.stat().st_size if seen.exists() else 0
        asked.append(request.n_right)
        found = ask(self, request, deadline_s)
        runs.append(seen.stat().st_size - before)
        return found

    monkeypatch.setattr(Worker, "_outcomes", noted)
    with Worker(cpu) as worker:
        worker.prepare(replace(given, sets=sets))
        found = worker.evaluate(artifact, replace(QUICK, claims_below_ns=claims_below_ns))
        assert isinstance(found, Measurement), found
        assert asked == n_right
        assert [a for a, b in zip(runs, n_runs, strict=False) if b] == [b for b in n_runs if b]
        assert not found.is_partly_verified
        assert isinstance(worker.evaluate(cpu.builder.build(source("")), QUICK), Failure)


def test_a_candidate_is_timed_in_turn_with_a_control(cpu, worker):
    control, other, wrong = (
        cpu.builder.build(source(body)) for body in (CORRECT, CORRECT + "usleep(200);", "")
    )
    protocol = replace(QUICK, control_ns=1e3)
    found = worker.evaluate_beside(other, control, protocol)
    assert found.ratio > 1
    assert found.time_ns == pytest.approx(found.ratio * 1e3)
    assert isinstance(worker.evaluate_beside(wrong, control, protocol), Failure)
    # A control that is gone says nothing: the candidate is timed alone.
    gone = replace(control, path=control.path + ".gone")
    assert worker.evaluate_beside(other, gone, protocol).ratio is None


def test_slow_candidate_stops_early(cpu, worker):
    artifact = cpu.builder.build(source(CORRECT + "usleep(2000);"))
    outcome = worker.evaluate(artifact, Protocol(cut_ns=1e5))
    assert isinstance(outcome, Measurement)
    assert outcome.stopped_early
    assert outcome.n_samples == 1


def test_in_place_values_stay_ordinary(cpu):
    """x *= 2 reaches infinity after some 130 calls: samples must be shorter than that, and
    results still verify.
    """
    body = "for (int i = 0; i < N; i++) { y[i] *= 2; z[i] = x[i] + alpha; }"
    x = np.ones(1000, np.float32)
    expected = {"y": Expected(np.full(1000, 2.0)), "z": Expected(np.full(1000, 1.5))}
    s = InputSet({"x": x, "y": x, "z": x}, {"alpha": 0.5}, expected)
    with Worker(cpu) as w:
        w.prepare(InputSets({"x": "input", "y": "inout", "z": "output"}, (s,)))
        outcome = w.evaluate(cpu.builder.build(source(body)), Protocol(max_samples=5))
    assert isinstance(outcome, Measurement)
    assert outcome.n_calls < 128


DECLARED = "int raise(int); int creat(const char *, unsigned);"


def test_a_candidate_whose_child_somebody_kills_is_tried_again(cpu, worker, tmp_path):
    """The kind: what others do to the child of a worker is no fault of the candidate that it runs. Once means another child, at its
    start or in the middle; again and again means a sentence, and no outcome.
    """
    n_before = worker.n_restarts
    for number in (signal.SIGKILL, signal.SIGTERM):
        mark = json.dumps(str(tmp_path / f"mark{number}"))
        once = f"if (access({mark}, 0)) {{ close(creat({mark}, 0600)); raise({number}); }}"
        artifact = cpu.builder.build(source(DECLARED + once + CORRECT))
        assert isinstance(worker.evaluate(artifact, QUICK), Measurement)
    os.kill(worker._channel._child.pid, signal.SIGKILL)  # while it waits
    assert isinstance(worker.evaluate(cpu.builder.build(source()), QUICK), Measurement)
    assert worker.n_restarts == n_before + 3
    with pytest.raises(WorkerError, match=r"somebody kills .* SIGTERM, 3 times in a row"):
        worker.evaluate(cpu.builder.build(source(DECLARED + "raise(15);")), QUICK)
    with Worker(cpu) as other:
        other.start()
        os.kill(other._channel._child.pid, signal.SIGKILL)
        other.prepare(input_sets())
        assert isinstance(other.evaluate(cpu.builder.build(source()), QUICK), Measurement)


def test_child_of_a_killed_parent_ends(cpu, tmp_path):
    """Also while generated code loops for ever."""
    script = f"""
import sys
from pathlib import Path
from kernelscape.tests.runtime.sources import source, input_sets
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.api.outcome import Protocol
from kernelscape.runtime.worker.worker import Worker
device = open_device("cpu", DeviceOptions(build_folder=Path({str(tmp_path)!r})))
w = Worker(device)
w.prepare(input_sets())
print(w._channel._child.pid, w._scratch.path, flush=True)
w.evaluate(device.builder.build(source("for (;;);")), Protocol())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, scratch = parent.stdout.readline().split()
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        with open(f"/proc/{pid}/stat") as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                break
        time.sleep(0.02)
    else:
        assert not os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(scratch)


def test_numpy_function_is_timed(cpu):
    roles = {"x": "input", "y": "input", "out": "output"}
    x = np.ones(8)
    with Worker(cpu, WorkerOptions(runs_candidates=False)) as w:
        w.prepare(InputSets(roles, (InputSet({"x": x, "y": x, "out": x}, {}, {}),)))
        outcome = w.time_function("numpy", "add", QUICK)
    assert isinstance(outcome, Measurement)


def test_input_sets_size():
    assert input_sets().size_bytes == 12000
    assert input_sets().written_bytes == 8000


def test_a_deadline_has_time_for_what_is_written_and_not_for_what_is_read(worker):
    n_bytes, n_verified, protocol = 10**9, 2, Protocol(cut_ns=1e6)
    short_s = worker.deadline_s(protocol, n_verified)
    assert short_s < 5
    assert worker.deadline_s(protocol, n_verified, n_bytes) > short_s + n_verified * n_bytes * 1e-9
    few = input_sets()
    x = np.broadcast_to(np.float32(0), (n_bytes,))
    read = replace(few.sets[0], arrays={**few.sets[0].arrays, "x": x})
    assert replace(few, sets=(read,)).written_bytes == few.written_bytes
