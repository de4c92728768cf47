"""Predictions of a session: factors come from the machine, and what was measured goes back to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kernelscape.explorer.predicting import learn_from, measured, predictor_of
from kernelscape.runtime.fake.device import FakeDevice
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.predict import NO_FACTORS, Predictor
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import to_names
from kernelscape.testing.machines import library_space, root_of, round_target
from msgspec import structs


def test_a_slowness_that_contradicts_the_bound_is_not_believed() -> None:
    """Kind: times that are divided by an error of the control, and then are below what the machine can do."""
    space = library_space("gesummv", round_target(loads_per_ns=10.0), m=512, n=512)
    predictor, made = (
        Predictor(Bounder(space)),
        root_of(space).random_completion(np.random.default_rng(2)),
    )
    assert isinstance(made, Candidate)
    record = EvaluationRecord(
        at_s=1.0,
        decisions=tuple(to_names(made)),
        source_key="",
        status="ok",
        time_ns=90.0,
        bound_ns=40.0,
    )
    slow, wrong = (structs.replace(record, slowness=x) for x in (2.0, 5.0))
    assert measured(predictor, [slow])[1].tolist() == [45.0]
    assert measured(predictor, [wrong])[1].tolist() == [90.0]


def test_factors_go_from_run_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: facts that one session measures and the next one does not use. Of too few measurements nothing is learned."""
    space = library_space("gesummv", round_target(loads_per_ns=10.0), m=512, n=512)
    device, stored = FakeDevice(), dict[str, Any]()
    facts = SimpleNamespace(
        factors=lambda: stored.get("factors", ()), learn_factors=lambda x: stored.update(factors=x)
    )
    monkeypatch.setattr(type(device.machine), "stored_facts", lambda self: facts)
    predictor = predictor_of(Bounder(space), device)
    assert predictor is not None
    assert predictor.factors == NO_FACTORS
    rng, records = np.random.default_rng(2), []
    for _ in range(60):
        made = root_of(space).random_completion(rng)
        if isinstance(made, Candidate):
            ns = 3.0 * predictor.ns(made)  # a machine that is slow throughout
            names = tuple(to_names(made))
            records.append(
                EvaluationRecord(
                    at_s=1.0, decisions=names, source_key="", status="ok", time_ns=ns, bound_ns=1.0
                )
            )
    learn_from(predictor, records[:3], device)
    assert not stored
    learn_from(predictor, records, device)
    again = predictor_of(Bounder(space), device)
    assert again is not None
    made = root_of(space).random_completion(np.random.default_rng(9))
    assert isinstance(made, Candidate)
    assert again.ns(made) == pytest.approx(3.0 * predictor.ns(made), rel=0.2)
