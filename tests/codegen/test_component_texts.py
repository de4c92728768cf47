"""A component is a unit of text: a decision about one changes the text of that one alone.

The kind: names, numbers and places in memory that come from the rest of the program, so that an equal part has another text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.lower import evaluated_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text.source import Source
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.fake.device import FakeDevice
from kernelscape.runtime.worker.messages import Done, Work
from kernelscape.runtime.worker.pool import LocalPool
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.components import components_of
from kernelscape.testing import checking

nd = types.ndarray()


@kernel
def scale(x: nd, y: nd):
    for i in range(x.shape[0]):
        y[i] = 0.5 * x[i] + 1.0


@kernel
def add_up(x: nd, s: nd):
    for i in range(x.shape[0]):
        s[0] += x[i]


def runs(w, x, y, z, p, q, r, s):
    """Maps and a sum of one length after another: four components of four tasks."""
    for a, total in ((w, p), (x, q), (y, r), (z, s)):
        scale(a, a)
        scale(a, a)
        scale(a, a)
        add_up(a, total)


@pytest.fixture(scope="module")
def root() -> Candidate:
    arrays = [np.ones(n, np.float32) for n in (67, 41, 33, 19, 1, 1, 1, 1)]
    problem = normalise(record_sequence(runs, arrays, "runs").unrolled())
    found = build_space(problem, checking.target(2, 32)).root()
    assert isinstance(found, Candidate)
    return found


@pytest.fixture(scope="module")
def drawn(root: Candidate) -> list[Candidate]:
    rng = np.random.default_rng(3)
    made = [checking.random_candidate(root, rng) for _ in range(2)]
    assert all(isinstance(c, Candidate) for c in made)
    return made  # type: ignore[return-value]


def mixed(first: Candidate, other: Candidate, component: int) -> Candidate:
    """The first candidate with the decisions of the other about one component."""
    domains = first.domains.copy()
    choices = list(components_of(first.space)[component].choices)
    domains[choices] = other.domains[choices]
    found = first.space.candidate(domains)
    assert isinstance(found, Candidate)
    return found


def text_of(candidate: Candidate) -> Source:
    return evaluated_source(plan_of(candidate), C_TEAM)


def done(work: Work, **given: Any) -> Done:
    device = FakeDevice(**given)
    pool = LocalPool(device.builder, device.worker())
    pool.submit(work)
    (found,) = pool.done()
    return found


def test_a_decision_changes_the_text_of_one_component(drawn: list[Candidate]) -> None:
    first, other = drawn
    n = len(components_of(first.space))
    before, after = text_of(first).components, text_of(other).components
    assert n == len(before) == len(after) == 4
    assert all(x != y for x, y in zip(before, after, strict=True))
    for k in (0, 2, 3):
        found = text_of(mixed(first, other, k)).components
        assert found == (*before[:k], after[k], *before[k + 1 :])


def test_components_are_timed_when_asked(drawn: list[Candidate]) -> None:
    """One outcome has the times of all components, which add up to the whole on the fake device."""
    source = text_of(drawn[0])
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
