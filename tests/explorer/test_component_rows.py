"""Rows of components in a journal: equal decisions about a component have one key, and a resumed run has their times."""

from __future__ import annotations

import msgspec
from kernelscape.explorer.evaluation import SearchEvaluator, outcome_of
from kernelscape.runtime.fake.device import FakeDevice, FakeWorker
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.runtime.worker.messages import Ticket, Work
from kernelscape.runtime.worker.pool import LocalPool
from kernelscape.search.budget import Interrupt
from kernelscape.space.candidate import Candidate
from kernelscape.testing.components import exchanged
from kernelscape.testing.memory_journal import MemoryJournal
from kernelscape.tests.codegen.test_component_texts import drawn, root

__all__ = ["drawn", "root"]  # fixtures


class Asking(LocalPool):
    """Asks for the times of components, whoever submits."""

    def submit(self, work: Work) -> Ticket:
        return super().submit(msgspec.structs.replace(work, times_components=True))


def test_rows_follow_decisions(drawn: list[Candidate]) -> None:
    first, other = drawn
    device, journal = FakeDevice(), MemoryJournal()
    evaluate = SearchEvaluator(
        Asking(device.builder, FakeWorker(device)),
        device.builder,
        journal,
        at_s=lambda: 1.0,
        bound=lambda c: 1.0,
        interrupt=Interrupt(),
        failed_folder=None,
    )
    outcomes = evaluate([first, other, exchanged(first, other, 2)])
    records = [r for r in journal.records() if isinstance(r, EvaluationRecord)]
    assert [outcome_of(r).component_ns for r in records] == [o.component_ns for o in outcomes]
    a, b, both = ([(row.key, row.time_ns) for row in r.components] for r in records)
    assert len(a) == 4 and not set(a) & set(b)
    assert both == [*a[:2], b[2], a[3]]
