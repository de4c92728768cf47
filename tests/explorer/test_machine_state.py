"""States of the machine: a search notices them, and what was best in any of them is timed again at the end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.cli.log import TextLog
from kernelscape.codegen.text.source import Source
from kernelscape.explorer.evaluation import SearchEvaluator
from kernelscape.explorer.stages import MachineChanged
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.worker import contenders
from kernelscape.runtime.worker.contenders import Timed
from kernelscape.runtime.worker.control import Control, SharedControl
from kernelscape.runtime.worker.machine_state import MachineStates, best_of_each
from kernelscape.runtime.worker.pool import LocalPool
from kernelscape.search.budget import Interrupt
from kernelscape.search.line import line_text
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing.cases import library_cases
from kernelscape.testing.memory_journal import MemoryJournal


def test_a_state_is_known_again_by_the_time_of_the_control() -> None:
    states = MachineStates()
    states.anchor(100.0)
    assert states.meet(104.0) is None
    assert states.meet(180.0) == pytest.approx(1.8)
    slow = states.current
    assert states.slowness == pytest.approx(1.8)
    assert states.meet(101.0) == pytest.approx(101 / 180)
    assert states.slowness == 1.0
    assert states.meet(170.0) == pytest.approx(1.7)
    assert states.current == slow
    assert states.slowness == pytest.approx(1.8)  # however often it is met


def test_another_control_forgets_the_states_but_this_one() -> None:
    states = MachineStates()
    states.anchor(100.0)
    states.meet(200.0)
    slow = states.current
    states.anchor(50.0)
    assert states.current == slow
    assert states.meet(51.0) is None
    assert states.slowness == pytest.approx(2.0)
    states.meet(25.0)
    assert states.current not in (0, slow)
    assert states.slowness == pytest.approx(1.0)


@pytest.mark.parametrize(("look_s", "n_looks"), [(0.1, 10), (1.0, 2)])
def test_the_control_of_a_long_program_is_timed_now_and_then(look_s: float, n_looks: int) -> None:
    """The kind: a program of which each look at the machine takes as long as a candidate. There may be one every 2 s."""
    device, now = FakeDevice(), [0.0]

    class Slow(FakeWorker):
        def evaluate(self, artifact, protocol, *, verify=True):
            now[0] += look_s
            return super().evaluate(artifact, protocol, verify=verify)

    worker, shared = Slow(device), SharedControl()
    built = device.builder.build(Source("text", "run", (), 1))
    assert isinstance(built, Artifact)
    shared.contenders.note(Timed("text", look_s * 1e9 / 6, 0, built), 1.0, is_partly_verified=False)
    control = Control(worker, shared, clock=lambda: now[0])
    for k in range(10):
        now[0] = 2.0 * k
        control.look()
    assert worker.n_evaluations == n_looks


def test_the_best_of_every_state_come_before_others() -> None:
    fast = [(0, ns, f"fast{ns}") for ns in (10.0, 11.0, 11.5, 30.0)]
    slow = [(1, ns, f"slow{ns}") for ns in (22.0, 20.0, 40.0)]
    assert best_of_each([*fast, *slow], 2, near=1.2) == ["fast10.0", "slow20.0"]
    everything = ["fast10.0", "fast11.0", "fast11.5", "slow20.0", "slow22.0"]
    assert best_of_each([*fast, *slow], 8, near=1.2) == everything
    assert best_of_each([], 8, near=1.2) == []


class Machine(FakeDevice):
    """In its slow state every time doubles, and what was fastest triples."""

    def __init__(self) -> None:
        super().__init__(self.time_of)
        self.is_slow = False
        self.known: list[str] = []

    def time_of(self, key: str) -> float:
        if key not in self.known:
            self.known.append(key)
        place = self.known.index(key)
        ns = 1000.0 + 100.0 * (place % 8)
        return ns * ((3.0 if place % 8 == 0 else 2.0) if self.is_slow else 1.0)


class Listed(FakeDevice):
    """Programs take as long as is listed, in the order in which they are met, times what the machine makes of it."""

    def __init__(self, *times_ns: float) -> None:
        super().__init__(self.time_of)
        self.times_ns, self.factor = times_ns, 1.0
        self.known: list[str] = []

    def time_of(self, key: str) -> float:
        if key not in self.known:
            self.known.append(key)
        return self.factor * self.times_ns[self.known.index(key)]


class Watched(FakeWorker):
    """Keeps the times to beat, and which program was the control. `spoil` changes what is measured of controls."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device)
        self.cuts: list[float | None] = []
        self.controls: list[str] = []
        self.spoil = lambda found: found

    def evaluate(self, artifact, protocol, *, verify=True):
        found = super().evaluate(artifact, protocol, verify=verify)
        if verify:
            self.cuts.append(protocol.cut_ns)
            return found
        self.controls.append(artifact.source_key)
        return self.spoil(found)


def evaluator(device, worker, journal, changes):
    pool = LocalPool(device.builder, worker)
    pool.machine.control.on_change = changes.append
    return SearchEvaluator(
        pool,
        device.builder,
        journal,
        at_s=lambda: 0.0,
        bound=lambda candidate: 0.0,
        interrupt=Interrupt(),
        failed_folder=None,
    )


def distinct_candidates(evaluate, device):
    """Candidates of one space, each with a text of its own."""
    space = build_space(
        next(c for c in library_cases() if c.name.startswith("bicgk")).problem,
        device.machine.facts(),
    )
    root = space.root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(1)
    drawn = (root.random_completion(rng) for _ in range(100))
    distinct = {evaluate.implementation_key(c): c for c in drawn if isinstance(c, Candidate)}
    return list(distinct.values())


def test_a_search_on_a_machine_that_changes_keeps_the_best_of_both_states(monkeypatch) -> None:
    monkeypatch.setattr(contenders, "_KEPT_TIMES", 9)
    device, changes = Machine(), []
    worker, journal = Watched(device), MemoryJournal()
    evaluate = evaluator(device, worker, journal, changes)
    distinct = distinct_candidates(evaluate, device)
    batches = [distinct[k : k + 8] for k in (0, 8, 16)]
    fast = evaluate(batches[0])
    assert worker.cuts == [None] + [1000.0] * 7
    assert evaluate.finalists(1, 1.2)[0][0] == fast[0]
    device.is_slow = True
    slow = evaluate(batches[1])
    assert changes == [pytest.approx(3.0)]
    assert min(o.time_ns for o in slow) == 2200.0
    assert worker.cuts[8] == 3000.0  # of the control
    assert worker.cuts[-1] == 2200.0
    finalists = evaluate.finalists(2, 1.2)
    assert [outcome.time_ns for outcome, _ in finalists] == [1000.0, 2200.0]
    assert evaluate.top(1)[0][0].time_ns == 1000.0
    device.is_slow = False
    again = evaluate(batches[2])
    assert changes[1:] == [pytest.approx(1 / 3)]
    # Times over this are what a surrogate learns from: a state says nothing of a decision.
    for outcomes, slowness in ((fast, 1.0), (slow, 3.0), (again, 1.0)):
        assert [o.slowness for o in outcomes] == pytest.approx([slowness] * len(outcomes))
    assert worker.cuts[16] == 1000.0
    # The control is no evaluation of the search: it is in no journal.
    assert len(list(journal.records())) == sum(map(len, batches))


def test_a_control_that_is_too_slow_gives_way_to_the_best() -> None:
    """One that takes more than twice as long: it may depend on something else than what is fast."""
    device, changes = Listed(1000.0, 1100.0, 501.0, 499.0, 800.0, 900.0), []
    worker = Watched(device)
    evaluate = evaluator(device, worker, MemoryJournal(), changes)
    distinct = distinct_candidates(evaluate, device)
    for batch in (distinct[:2], distinct[2:3], distinct[3:4], distinct[4:5]):
        evaluate(batch)
    first, _, near, fastest, _ = device.known
    assert worker.controls == [first, first, fastest]
    assert changes == []  # another program, and the same machine
    device.factor = 2.0
    evaluate(distinct[5:6])
    assert worker.controls[3:] == [fastest, near]  # what may be the best in this state as well
    assert changes == [pytest.approx(2.0)]
    assert worker.cuts[-1] == 998.0  # of the control in this state, and not the 499 of the other


@pytest.mark.parametrize(
    ("spoil", "is_heard"),
    [
        (lambda found: replace(found, n_samples=5, disturbed=4), True),
        (lambda found: replace(found, n_samples=3, disturbed=3), False),
        (lambda found: Failure("timeout", "the machine stood still"), False),
    ],
)
def test_a_control_that_other_work_disturbs_says_nothing_of_the_machine(spoil, is_heard) -> None:
    device, changes = Listed(1000.0, 5000.0, 4000.0), []
    worker = Watched(device)
    evaluate = evaluator(device, worker, MemoryJournal(), changes)
    distinct = distinct_candidates(evaluate, device)
    evaluate(distinct[:1])
    device.factor, worker.spoil = 3.0, spoil
    evaluate(distinct[1:2])
    assert changes == ([pytest.approx(3.0)] if is_heard else [])
    assert worker.cuts == [None, 3000.0 if is_heard else 1000.0]
    worker.spoil = lambda found: found  # the next one is heard
    evaluate(distinct[2:3])
    assert changes == [pytest.approx(3.0)]
    assert worker.cuts[2] == 3000.0


def test_the_log_says_that_the_machine_changed() -> None:
    lines: list[str] = []
    TextLog(lines.append, version="1")(MachineChanged(1.6))
    assert len(lines) == 1
    assert "one program takes 1.60 times as long as before" in lines[0]
    assert line_text(MachineChanged(1.6)) == '{"event": "machine_changed", "ratio": 1.6}'


def test_the_control_is_the_code_that_was_timed(monkeypatch) -> None:
    device, built = Machine(), []
    build = device.builder.build
    monkeypatch.setattr(
        device.builder, "build", lambda source: built.append(source.key) or build(source)
    )
    worker = Watched(device)
    evaluate = evaluator(device, worker, MemoryJournal(), [])
    distinct = distinct_candidates(evaluate, device)
    first = evaluate(distinct[:4])
    evaluate(distinct[4:8])
    assert worker.controls == [first[0].key]
    assert len(built) == 8  # none was built for the control
