"""First results of a search, and how NumPy is timed beside it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kernelscape.explorer import bound_validity, numpy_timing
from kernelscape.explorer import stages as st
from kernelscape.explorer.deadlines import Deadlines
from kernelscape.explorer.doubts import doubts_of
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.remeasure import TimedAgain, comparison, n_parallel, threads_first
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.outcome import Measurement
from kernelscape.runtime.worker.worker import AbstractWorker
from kernelscape.search import events as ev
from kernelscape.search import precompile
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.budget import Interrupt
from kernelscape.search.incumbent import BoundScale
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.search.starts.proposals import greedy_sketch
from kernelscape.search.starts.sketches import Along
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.engine.jit import cache_folder, is_compiling
from kernelscape.space.targets.target import Target
from numba import typeof

MACHINE = precompile._MACHINE


@pytest.mark.compiler
def test_candidates_are_measured_before_the_machine_is_looked_at_and_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = library_workload(load("axpydot"), {"n": 2048}, "f32", 1)
    told: list[object] = []
    look = bound_validity.is_far_below

    def watched(target: Target, worker: AbstractWorker) -> bool:
        told.append("a look")
        return look(target, worker)

    monkeypatch.setattr(bound_validity, "is_far_below", watched)
    options = Options(max_evals=10, store=False, compiler="gcc")
    run = explore_workload(workload, options, directory=tmp_path / "run", on_event=told.append)
    at = next(k for k, e in enumerate(told) if isinstance(e, st.NumpyTimed))
    measured = [e for e in told[:at] if isinstance(e, ev.Evaluated)]
    assert len(measured) == 4
    assert "U" in {e.tag for e in measured}
    assert told.index("a look") > told.index(measured[-1])
    assert run.ended.numpy_ns is not None
    # What the others are compared with is told before them, although some were measured before it.
    compared = next(k for k, e in enumerate(told) if isinstance(e, st.Compared))
    assert not any(isinstance(e, ev.Row) for e in told[:compared])


@pytest.mark.parametrize(
    ("status", "n_pruned", "said"),
    [("optimal", 3, "exhausted"), ("optimal", 0, "optimal"), ("eval_limit", 3, "eval_limit")],
)
def test_what_ends_in_its_first_batch_is_bounded_on_the_machine_as_it_is(
    status, n_pruned, said
) -> None:
    found = SimpleNamespace(scale=BoundScale(), look_again=lambda: found.scale.lower(0.5))
    tally = ev.Tally(pruned_bound=n_pruned)
    finished = ev.Finished(status, None, (), 100.0, None, tally, 0.0)
    looked = bound_validity.Claims.looked_at_last(found, finished)
    assert (looked.status, looked.bound_ns) == (said, 50.0)
    assert bound_validity.Claims.looked_at_last(found, looked) == looked


class Notes:
    """The notes of a run."""

    def __init__(self, *noted: str) -> None:
        self.noted = list(noted)

    def notes(self, kind: str) -> list[str]:
        return self.noted

    def note(self, kind: str, text: str) -> None:
        self.noted.append(text)


def measured(time_ns: float, disturbed: int) -> Measurement:
    return Measurement(time_ns, 0.01, time_ns, 3, 1, disturbed)


@pytest.mark.parametrize(
    ("first", "second", "ns", "is_disturbed"),
    [
        (measured(30e6, 30), measured(12e6, 0), 12e6, False),
        (measured(30e6, 30), measured(32e6, 0), 32e6, False),  # the disturbed one says nothing
        (measured(30e6, 30), measured(40e6, 30), 30e6, True),
        (measured(12e6, 1), None, 12e6, False),  # not taken again
    ],
)
def test_numpy_is_timed_again_where_other_work_disturbed_it(
    monkeypatch: pytest.MonkeyPatch, first, second, ns, is_disturbed
) -> None:
    taken = iter([first, second])
    monkeypatch.setattr(numpy_timing, "time_reference", lambda *_: next(taken))
    writer, workload = Notes(), SimpleNamespace(numpy_ns=None, reference=("m", "f"))
    timing = numpy_timing.NumpyTiming(workload, writer, None)
    timing.take(None, None, lambda: False)
    if timing.is_due:
        timing.take(None, None, lambda: False)
    assert (timing.ns, timing.is_disturbed) == (ns, is_disturbed)
    again = numpy_timing.NumpyTiming(workload, writer, None)
    assert (again.ns, again.is_due) == (ns, False)


def test_of_what_cannot_be_told_apart_the_parallel_one_is_kept() -> None:
    """A machine with other work on it favours the serial one, which needs one core."""
    space = build_space(
        library_workload(load("axpydot"), {"n": 1 << 20}, "f32", 1).problem, MACHINE
    )
    made, greedy = dict(sketched_candidates(space)), greedy_sketch(space)
    serial, parallel = made[replace(greedy, threads=Along(team=False))], made[greedy]
    assert (n_parallel(serial), n_parallel(parallel) > 0) == (0, True)

    def timed(candidate: Candidate, ns: float, spread: float) -> TimedAgain:
        return TimedAgain(ev.Outcome("ok", ns), candidate, ns, ns, spread)

    near = [timed(serial, 100.0, 0.05), timed(parallel, 105.0, 0.05)]
    assert [t.candidate for t in threads_first(near)] == [parallel, serial]
    assert comparison(threads_first(near)).ties == 2
    apart = [timed(serial, 100.0, 0.01), timed(parallel, 105.0, 0.01)]
    assert [t.candidate for t in threads_first(apart)] == [serial, parallel]


def test_a_result_says_what_it_is_not_sure_of() -> None:
    def doubts(status: str, n: int, disturbed: int, final: bool = False) -> tuple[str, ...]:
        return doubts_of(status, n, disturbed, is_final_disturbed=final, is_numpy_disturbed=False)

    assert doubts("time_limit", 200, 3) == ()
    assert doubts("optimal", 3, 0) == ()
    assert "only 3 candidates" in doubts("time_limit", 3, 0)[0]
    assert "only 1 candidate was" in doubts("time_limit", 1, 0)[0]
    assert "disturbed 150 of 200" in doubts("time_limit", 200, 150)[0]
    assert "final comparison" in doubts("time_limit", 200, 0, final=True)[0]


def test_the_time_of_a_session_stands_still_while_it_waits_for_compilers() -> None:
    deadlines = Deadlines(1e-9, Interrupt())
    with deadlines.excluded():
        first_s, first = deadlines.elapsed_s, deadlines.clock()
        time.sleep(1e-3)
        assert deadlines.elapsed_s == first_s
        assert deadlines.clock() == first
    assert 0 <= deadlines.clock() - first < time.monotonic()


def test_what_is_compiled_ahead_is_what_the_search_calls() -> None:
    """A unit of other types than those of the search would be compiled twice."""
    if not is_compiling():
        pytest.skip("NUMBA_DISABLE_JIT is set")
    space = build_space(
        library_workload(load("bicgk"), {"m": 64, "n": 64}, "f32", 1).problem, MACHINE
    )
    root = space.root()
    assert isinstance(root, Candidate)
    Bounder(space).ns(root)
    root.complete()
    root.random_completion(np.random.default_rng(1))
    for unit, (function, arguments) in precompile._signatures().items():
        called = function.signatures  # of those that Python calls
        assert not called or called == [tuple(map(typeof, arguments))], unit
    assert set(precompile._UNITS) == set(precompile._signatures())


def test_what_two_processes_compile_at_once_has_one_type() -> None:
    """Of two types each process would write the first file of the function, and take the other's for its own."""
    if not is_compiling():
        pytest.skip("NUMBA_DISABLE_JIT is set")
    for unit in precompile._UNITS:
        precompile._compile(unit)
    ours = ("propagate.", "filters.", "common.", "streams.")
    compiled = [path.name for path in cache_folder().rglob("*.nbc")]
    assert any(name.startswith(ours) for name in compiled)
    assert not [n for n in compiled if n.startswith(ours) and not n.endswith(".1.nbc")]
