"""Claims of a search about candidates that it has timed: the best is right on all input sets, and is the best beside the others, in
every state of the machine and beside other work. On the fake device.

The kind: a result by which something is claimed that was not looked at. A search need not look at all of it for what it claims
nothing of, and that is most of what it times.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kernelscape.explorer import session as session_module
from kernelscape.explorer.entry import explore_workload, library_workload, resume
from kernelscape.explorer.remeasure import (
    TimedAgain,
    in_all_states,
    longer_where_steadier,
    time_again,
)
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.outcome import Failure, Measurement
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker, _hashed_ns
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.loading import load_best
from kernelscape.runtime.records.record import (
    EvaluationRecord,
    IncumbentRecord,
    standing_evaluations,
)
from kernelscape.runtime.worker.contenders import NEAR
from kernelscape.runtime.worker.machine_state import least_regret
from kernelscape.search import events as ev
from kernelscape.testing.memory_journal import MemoryJournal
from kernelscape.tests.explorer.test_machine_state import Listed, distinct_candidates, evaluator

TIMES = (1000.0, 1100.0, 900.0, 950.0, 800.0)


def partly(journal: MemoryJournal) -> list[bool]:
    return [r.is_partly_verified for r in journal.records()]


def test_only_what_becomes_the_best_is_verified_on_all_input_sets() -> None:
    device, journal = Listed(*TIMES), MemoryJournal()
    evaluate = evaluator(device, FakeWorker(device), journal, [])
    distinct = distinct_candidates(evaluate, device)
    found = evaluate(distinct[:5])
    assert [o.time_ns for o in found] == list(TIMES)
    assert partly(journal) == [False, True, False, True, False]


def test_what_is_slower_than_an_earlier_session_s_best_is_not_either() -> None:
    device, journal = Listed(*TIMES), MemoryJournal()
    evaluate = evaluator(device, FakeWorker(device), journal, [])
    first, *others = distinct_candidates(evaluate, device)
    evaluate.adopt((ev.Outcome("ok", 850.0, key="k"), first), is_partly_verified=False)
    evaluate(others[:5])
    assert partly(journal) == [True, True, True, True, False]


class Told:
    """A run on a fake device, with what it told and kept."""

    def __init__(self, folder, monkeypatch, device) -> None:
        monkeypatch.setattr(session_module, "open_device", lambda *_: device)
        workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
        self.folder, self.told, self.gaps = folder, [], []
        options = Options(target="fake", time_limit_s=None, max_evals=64, store=False)
        self.run = explore_workload(workload, options, directory=folder, on_event=self.hear)

    def hear(self, event: object) -> None:
        self.told.append(event)
        if isinstance(event, ev.NewIncumbent):
            self.gaps.append(load_best(self.folder / "best.json").gap)

    @property
    def records(self):
        return read_journal(self.folder / "journal.jsonl")

    @property
    def evaluations(self) -> list[EvaluationRecord]:
        return [r for r in self.records if isinstance(r, EvaluationRecord)]

    @property
    def claimed(self) -> set[str]:
        """What the journal calls the best, in its turn, and what the result is."""
        keys = {r.source_key for r in self.records if isinstance(r, IncumbentRecord)}
        return keys | {self.run.best.file.source_key}


def test_what_is_wrong_on_another_input_set_is_never_the_best(tmp_path, monkeypatch) -> None:
    plain = Told(tmp_path / "plain", monkeypatch, FakeDevice())
    wrong = {r.source_key for r in plain.evaluations if r.source_key in plain.claimed}
    device = FakeDevice(wrong_later=wrong)
    found = Told(tmp_path / "wrong", monkeypatch, device)
    assert not found.claimed & wrong
    first = plain.evaluations[0].source_key
    assert [r.status for r in found.evaluations if r.source_key == first] == ["wrong"]
    # Slower ones of them are timed, and nothing is claimed of them.
    assert all(
        r.is_partly_verified for r in found.evaluations if r.source_key in wrong and r.time_ns
    )


class Turning(FakeDevice):
    """In the final rounds the second best of the search is the best."""

    def __init__(self, second: str = "", wrong_later=()) -> None:
        super().__init__(wrong_later=wrong_later)
        self.second = second

    def worker(self):
        device = self

        class Worker(FakeWorker):
            def interleave(self, artifacts, protocol):
                found = super().interleave(artifacts, protocol)
                return [
                    replace(m, time_ns=10.0) if a.source_key == device.second else m
                    for a, m in zip(artifacts, found, strict=True)
                ]

        return Worker(self)


def test_what_wins_the_final_rounds_is_verified_before_it_is_the_best(
    tmp_path, monkeypatch
) -> None:
    """It was slower when it was met; where it is wrong on another input set, the best falls back, and the journal says so."""
    plain = Told(tmp_path / "plain", monkeypatch, Turning())
    best = plain.run.best.file.source_key
    near = sorted((r.time_ns, r.source_key) for r in plain.evaluations if r.is_partly_verified)
    time_ns, second = near[0]
    assert time_ns < NEAR * plain.run.best.time_ns, "too few evaluations: none is timed again"
    right = Told(tmp_path / "right", monkeypatch, Turning(second))
    assert (right.run.best.file.source_key, right.run.best.time_ns) == (second, 10.0)
    wrong = Told(tmp_path / "wrong", monkeypatch, Turning(second, {second}))
    assert wrong.run.best.file.source_key == best
    assert [r.status for r in wrong.evaluations if r.source_key == second] == ["ok", "wrong"]
    (stands,) = [r for r in standing_evaluations(wrong.records) if r.source_key == second]
    assert (stands.status, stands.time_ns) == ("wrong", None)
    assert stands.decisions == wrong.evaluations[-1].decisions
    assert wrong.run.ended.failures == {"wrong": 1}
    assert (wrong.folder / "failed" / f"wrong-{second}.c").exists()
    resumed = resume(wrong.folder, max_evals=30)
    assert resumed.best.file.source_key != second


def test_a_journal_without_refuted_evaluations_stands_as_it_is(tmp_path, monkeypatch) -> None:
    """A source that failed first and was measured later, as a compiler that was gone is there again, stands twice."""
    plain = Told(tmp_path, monkeypatch, FakeDevice())
    assert list(standing_evaluations(plain.records)) == plain.evaluations
    one = plain.evaluations[0]
    failed = type(one)(
        at_s=0.0, decisions=(), source_key=one.source_key, status="compile", time_ns=None
    )
    assert standing_evaluations((failed, one)) == (failed, one)


def test_the_best_is_the_one_that_others_beat_least_in_the_states_that_both_met() -> None:
    """The second is slightly faster in the last state, and twice as slow in another."""
    steady, moody = {0: 100.0, 1: 105.0}, {0: 190.0, 1: 100.0}
    new = {1: 104.0}
    regrets = least_regret([moody, steady, new])
    assert min(regrets) == regrets[1]
    assert least_regret([{0: 1.0}, {1: 2.0}]) == [0.0, 0.0]  # they never met
    assert least_regret([]) == []


def timed_again(key: str, ns: float, spread: float = 0.01) -> TimedAgain:
    return TimedAgain(ev.Outcome("ok", ns, key=key), SimpleNamespace(), ns, ns, spread)


def test_in_one_state_the_final_rounds_are_what_counts() -> None:
    timed = [timed_again(key, ns) for key, ns in (("a", 12.0), ("b", 10.0), ("c", 11.0))]
    ranked = in_all_states(timed, [{0: 12.0}, {0: 10.0}, {0: 11.0}])
    assert [t.outcome.key for t in ranked] == ["b", "c", "a"]
    assert [t.paired_ns for t in ranked] == pytest.approx([10.0, 11.0, 12.0])


def test_disturbed_final_rounds_count_where_they_are_steadier_and_longer() -> None:
    """Another program on the control's core made a ratio three times too small; the final rounds saw 1.32 to within 1 %."""
    search = [("a", 0.47, 1.49), ("b", 1.13, 0.02), ("c", 1.2, 0.5)]
    entries = [
        (ev.Outcome("ok", ns, spread, key=key, is_by_ratio=True), SimpleNamespace())
        for key, ns, spread in search
    ]
    final = [("a", 1.32, 0.01), ("b", 1.4, 0.3), ("c", 1.1, 0.01)]
    timed = [
        replace(timed_again(key, ns), outcome=ev.Outcome("ok", ns, spread, key=key))
        for key, ns, spread in final
    ]
    found = [(t.outcome.key, t.outcome.time_ns) for t in longer_where_steadier(entries, timed)]
    assert found == [("b", 1.13), ("c", 1.2), ("a", 1.32)]


class Disturbed(FakeDevice):
    """Times of the search are unsteady. The final rounds are steadier, three times as long, and disturbed."""

    def worker(self):
        class Worker(FakeWorker):
            def evaluate(self, artifact, protocol, *, verify=True):
                found = super().evaluate(artifact, protocol, verify=verify)
                return replace(found, spread=0.5) if isinstance(found, Measurement) else found

            def interleave(self, artifacts, protocol):
                found = super().interleave(artifacts, protocol)
                return [
                    replace(m, time_ns=3 * m.time_ns, spread=0.1, paired_ns=1.0, paired_spread=0.5)
                    for m in found
                ]

        return Worker(self)


def test_after_disturbed_final_rounds_the_default_has_its_longer_time_too(
    tmp_path, monkeypatch
) -> None:
    """Kind: a result that compares a new time of the best with an old one of the default."""
    plain = Told(tmp_path / "plain", monkeypatch, FakeDevice()).run
    found = Told(tmp_path / "disturbed", monkeypatch, Disturbed()).run
    assert found.best.file.source_key == plain.best.file.source_key
    assert found.best.time_ns == pytest.approx(3 * plain.best.time_ns)
    assert found.ended.baseline_ns == pytest.approx(3 * plain.ended.baseline_ns)


class Rounds(FakeWorker):
    """Final rounds in which programs take as long as is listed, the control last."""

    def __init__(self, *times_ns: float) -> None:
        super().__init__(FakeDevice())
        self.times_ns = times_ns

    def interleave(self, artifacts, protocol):
        return [
            Measurement(ns, 0.0, ns, 9, 1, 0, paired_ns=ns)
            for ns, _ in zip(self.times_ns, artifacts, strict=True)
        ]


def test_final_rounds_are_one_state_of_those_that_the_search_met() -> None:
    """What was twice as fast in the state that the search was in stays the best where it is a little slower in the last one."""
    device, changes = Listed(1000.0, 500.0, 980.0), []
    evaluate = evaluator(device, FakeWorker(device), MemoryJournal(), changes)
    distinct = distinct_candidates(evaluate, device)
    found = evaluate(distinct[:3])
    evaluate.control.choose()  # the second
    kinds = SimpleNamespace(space=SimpleNamespace(variables=SimpleNamespace(kind={})))
    entries = [(outcome, kinds) for outcome in (found[2], found[1])]
    evaluate.artifacts = lambda candidates: [object() for _ in candidates]
    # Last: all take thrice as long as before, and the one that was far slower is ahead by a tenth.
    timed, _ = time_again(entries, evaluate, Rounds(1400.0, 1540.0, 1500.0), 1.0)
    assert changes == [pytest.approx(3.0)]
    assert [t.outcome.key for t in timed] == [found[1].key, found[2].key]
    assert timed[0].outcome.time_ns == 1540.0


class Busy(Listed):
    """A machine on which other work takes the cores: alone, times are up to thrice what they should be."""

    def worker(self):
        return BusyWorker(self)


class BusyWorker(FakeWorker):
    def __init__(self, device) -> None:
        super().__init__(device)
        self.is_busy = True
        self.n_alone = self.n_beside = 0

    def evaluate(self, artifact, protocol, *, verify=True):
        self.n_alone += 1
        found = super().evaluate(artifact, protocol, verify=verify)
        if not self.is_busy or isinstance(found, Failure):
            return found
        return replace(found, time_ns=3 * found.time_ns, n_samples=3, disturbed=30)

    def evaluate_beside(self, artifact, control, protocol):
        self.n_beside += 1
        was_busy, self.is_busy = self.is_busy, False
        found = super().evaluate_beside(artifact, control, protocol)
        self.n_alone, self.is_busy = self.n_alone - 1, was_busy
        return replace(found, n_samples=9, disturbed=9 if was_busy else 0)


def test_beside_other_work_candidates_are_timed_as_ratios_to_the_control() -> None:
    device, journal, doubts = Listed(1000.0, 2000.0, 500.0, 750.0, 600.0), MemoryJournal(), []
    worker = BusyWorker(device)
    evaluate = evaluator(device, worker, journal, [])
    evaluate._bound, evaluate._doubt = (lambda candidate: 1e9), lambda: doubts.append(1)
    distinct = distinct_candidates(evaluate, device)
    found = evaluate(distinct[:4])
    # The first is all there is to compare with: its time is what the others are told in.
    assert [o.time_ns for o in found] == pytest.approx([3000.0, 6000.0, 1500.0, 2250.0])
    assert [o.is_by_ratio for o in found] == [False, True, True, True]
    records = journal.records()
    assert [r.ratio.ratio for r in records[1:]] == pytest.approx([2.0, 0.5, 0.75])
    assert {(r.ratio.control, r.ratio.control_ns) for r in records[1:]} == {(found[0].key, 3000.0)}
    assert (worker.n_alone, worker.n_beside) == (2, 3)  # the best was tried alone, in vain
    assert doubts == [1]  # no bound is judged by a ratio
    worker.is_busy = False
    (last,) = evaluate(distinct[4:5])
    assert (last.time_ns, last.is_by_ratio) == (600.0, False)


def test_of_a_ratio_no_gap_is_claimed(tmp_path, monkeypatch) -> None:
    """Neither in the log, nor in the files, while the best is one; the final rounds measure it."""
    device = FakeDevice()
    workers: list[BusyWorker] = []

    def worker() -> BusyWorker:
        workers.append(BusyWorker(device))
        return workers[-1]

    device.worker = worker
    found = Told(tmp_path / "busy", monkeypatch, device)
    assert workers[0].n_beside > 10
    bests = [e.best for e in found.told if isinstance(e, ev.NewIncumbent)]
    is_by_ratio = [best.outcome.is_by_ratio for best in bests]
    assert is_by_ratio[-1]
    assert [gap == 1.0 for gap in found.gaps] == is_by_ratio
    rows = [e for e in found.told if isinstance(e, ev.Row) and e.best_ns == bests[-1].time_ns]
    assert rows and all(row.gap is None for row in rows)
    # The final rounds measure it.
    least_ns = min(_hashed_ns(r.source_key) for r in found.evaluations)
    assert found.run.best.time_ns == least_ns
    assert found.run.best.file.gap < 1.0
    plain = Told(tmp_path / "plain", monkeypatch, FakeDevice())
    assert plain.run.best.file.gap < 1.0 and max(plain.gaps) < 1.0
