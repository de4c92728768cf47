"""States of the machine: a search notices them, and what was best in any of them is timed again at the end."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.cli.log import TextLog, to_fields
from kernelscape.experiments.cases import library_cases
from kernelscape.explorer import evaluation
from kernelscape.explorer.evaluation import Evaluator
from kernelscape.explorer.stages import MachineChanged
from kernelscape.explorer.states import MachineStates, best_of_each
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.journal import MemoryJournal
from kernelscape.search.budget import Interrupt
from kernelscape.space.candidate import Candidate
from kernelscape.space.constraints import build_space


def test_a_state_is_known_again_by_the_time_of_the_control() -> None:
    states = MachineStates()
    states.anchor(100.0)
    assert states.meet(104.0) is None
    assert states.meet(180.0) == pytest.approx(1.8)
    slow = states.current
    assert states.meet(101.0) == pytest.approx(101 / 180)
    assert states.meet(170.0) == pytest.approx(1.7)
    assert states.current == slow


def test_another_control_forgets_the_states_but_this_one() -> None:
    states = MachineStates()
    states.anchor(100.0)
    states.meet(200.0)
    slow = states.current
    states.anchor(50.0)
    assert states.current == slow
    assert states.meet(51.0) is None
    states.meet(25.0)
    assert states.current not in (0, slow)


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


class Watched(FakeWorker):
    """Keeps the times to beat."""

    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device)
        self.cuts: list[float | None] = []

    def evaluate(self, artifact, protocol, *, verify=True):
        if verify:
            self.cuts.append(protocol.cut_ns)
        return super().evaluate(artifact, protocol, verify=verify)


def test_a_search_on_a_machine_that_changes_keeps_the_best_of_both_states(monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "_KEPT_TIMES", 9)
    device, changes = Machine(), []
    worker, journal = Watched(device), MemoryJournal()
    space = build_space(
        next(c for c in library_cases() if c.name.startswith("bicgk")).problem, device.facts()
    )
    root = space.root()
    assert isinstance(root, Candidate)
    evaluate = Evaluator(
        device,
        worker,
        journal,
        at_s=lambda: 0.0,
        bound=lambda candidate: 0.0,
        interrupt=Interrupt(),
        failed_folder=None,
        on_change=changes.append,
    )
    rng = np.random.default_rng(1)
    drawn = (root.random_completion(rng) for _ in range(100))
    distinct = {evaluate.implementation_key(c): c for c in drawn if isinstance(c, Candidate)}
    batches = [list(distinct.values())[k : k + 8] for k in (0, 8, 16)]
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
    evaluate(batches[2])
    assert changes[1:] == [pytest.approx(1 / 3)]
    assert worker.cuts[16] == 1000.0
    # The control is no evaluation of the search: it is in no journal.
    assert len(list(journal.records())) == sum(map(len, batches))


def test_the_log_says_that_the_machine_changed() -> None:
    lines: list[str] = []
    TextLog(lines.append, version="1")(MachineChanged(1.6))
    assert len(lines) == 1
    assert "one program takes 1.60 times as long as before" in lines[0]
    assert to_fields(MachineChanged(1.6)) == {"event": "machine_changed", "ratio": 1.6}
