"""A component is a unit of text: a decision about one changes the text of that one alone.

The kind: names, numbers and places in memory that come from the rest of the program, so that an equal part has another text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.by_component import EvaluatedSources
from kernelscape.codegen.lower import lower_unit
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.plan import tasks_of
from kernelscape.codegen.text.source import Source
from kernelscape.codegen.write.units import unit_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.fake.device import FakeDevice
from kernelscape.runtime.worker.messages import Done, Work
from kernelscape.runtime.worker.pool import LocalPool
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.component_space import component_spaces
from kernelscape.space.components import components_of
from kernelscape.testing import checking
from kernelscape.testing.components import add_up, exchanged, scale, turn, two_candidates


def runs(w, x, y, z, p, q, r, s):
    """Maps and a sum of one length after another: four components of four tasks."""
    for a, total in ((w, p), (x, q), (y, r), (z, s)):
        scale(a, a)
        scale(a, a)
        scale(a, a)
        add_up(a, total)


def alike(w, x, y, z):
    """Three repeats, two of which differ in names alone."""
    for _ in range(20):
        scale(w, w)
    for _ in range(20):
        turn(x, y)
    for _ in range(20):
        scale(z, z)


def root_of(sequence: Callable[..., None], sizes: Sequence[int]) -> Candidate:
    arrays = [np.ones(n, np.float32) for n in sizes]
    problem = normalise(record_sequence(sequence, arrays, "sequence"))
    found = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(found, Candidate)
    return found


@pytest.fixture(scope="module")
def root() -> Candidate:
    return root_of(runs, (67, 41, 33, 19, 1, 1, 1, 1))


@pytest.fixture(scope="module")
def drawn(root: Candidate) -> tuple[Candidate, Candidate]:
    return two_candidates(root)


def done(work: Work, **given: Any) -> Done:
    device = FakeDevice(**given)
    pool = LocalPool(device.builder, device.worker())
    pool.submit(work)
    (found,) = pool.done()
    return found


def test_a_decision_changes_the_text_of_one_component(drawn: tuple[Candidate, Candidate]) -> None:
    """And lowers that of no other."""
    first, other = drawn
    sources = EvaluatedSources(C_TEAM)
    before, after = sources.source(first).components, sources.source(other).components
    n = len(components_of(first.space))
    assert n == len(before) == len(after) == 4
    assert all(x != y for x, y in zip(before, after, strict=True))
    assert sources.n_lowered == 2 * n
    for k in (0, 2, 3):
        made = exchanged(first, other, k)
        assert sources.source(made).components == (*before[:k], after[k], *before[k + 1 :])
        assert sources.n_lowered == 2 * n
        assert EvaluatedSources(C_TEAM).source(made).text == sources.source(made).text


def test_components_that_are_equal_up_to_names_are_one_text() -> None:
    root = root_of(alike, (67, 67, 67, 67))
    made = root.complete()
    assert isinstance(made, Candidate)
    source = EvaluatedSources(C_TEAM).source(made)
    assert source.table is not None and len(source.components) == 3
    assert len(source.units) == 2
    assert source.components[0] == source.components[2] != source.components[1]
    first, _, last = source.table.calls
    assert [s.argument for s in first.slots] != [s.argument for s in last.slots]


def test_units_are_those_of_the_whole_plan(drawn: tuple[Candidate, Candidate]) -> None:
    """A component is planned by its own decisions alone, as it is where all are read."""
    for candidate in drawn:
        plan, units = plan_of(candidate), EvaluatedSources(C_TEAM).source(candidate).units
        for tasks, unit in zip(plan.components, units, strict=True):
            launches = [x for x in plan.launches if tasks_of(x[0])[0] in tasks]
            found = unit_of(lower_unit(plan, launches), C_TEAM)
            assert found is not None and found.text.text == unit.text


def test_bounds_of_components_add_up_since_they_share_no_launch(
    root: Candidate, drawn: tuple[Candidate, Candidate]
) -> None:
    """The bound of a sequence is the sum, then; a longest path is never more. It is no more than the whole has by itself."""
    for candidate in drawn:
        plan = plan_of(candidate)
        for launch in plan.launches:
            tasks = {t for node in launch for t in tasks_of(node)}
            assert sum(not tasks.isdisjoint(own) for own in plan.components) == 1
        total_ns = 0.0
        for same in component_spaces(root, candidate):
            part = same.space.root()
            assert isinstance(part, Candidate)
            domains = part.domains.copy()
            domains[same.choices[0]] = candidate.domains[same.choices[0]]
            bound_ns = Bounder(same.space).ns(Candidate(same.space, domains))
            total_ns += len(same.places) * bound_ns
        assert 0 < total_ns <= Bounder(root.space).ns(candidate) * (1 + 1e-9)


def test_components_are_timed_when_asked(drawn: tuple[Candidate, Candidate]) -> None:
    """One outcome has the times of all components, which add up to the whole on the fake device."""
    source = EvaluatedSources(C_TEAM).source(drawn[0])
    times = {key: 100.0 + k for k, key in enumerate(source.components)}
    asked = done(Work(source, times_components=True), component_ns=times.__getitem__).measured
    plain = done(Work(source), component_ns=times.__getitem__).measured
    assert asked is not None and plain is not None
    assert asked.component_ns == tuple(100.0 + k for k in range(4))
    assert plain.component_ns == ()
    assert asked.time_ns == plain.time_ns == sum(asked.component_ns)


def test_one_component_has_no_time_of_its_own() -> None:
    source = Source("text", "run", (), 1)
    measured = done(Work(source, times_components=True)).measured
    assert measured is not None and measured.component_ns == ()
