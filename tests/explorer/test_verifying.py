"""Searches in which rounding decides, and in which everything is wrong alike: one finds its best, the other stops and says why.

The kind: a verdict that is not about the candidate. One element on a threshold, or a reference that disagrees with every candidate,
must not be told as so many wrong implementations.
"""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import kernelscape as ks
import numpy as np
import pytest
from kernelscape.cli import log
from kernelscape.cli.schema import line_schema
from kernelscape.explorer import stages as st
from kernelscape.explorer.alike import EqualFailures
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.api.outcome import Disagreement, Failure, Measurement
from kernelscape.runtime.worker.forked_inputs import ForkedInputs
from kernelscape.search.line import line_text

nd = ks.types.ndarray()


@ks.kernel
def bright(x: nd, y: nd, mark: nd, limit: float):
    for i in range(x.shape[0]):
        mark[i] = 1.0 if x[i] * x[i] + y[i] * y[i] >= limit else 0.0


def sequence(x, y, mark, limit):
    bright(x, y, mark, limit)


def on_a_branch(n):
    """Arguments whose limit lies between the value in f32 and the exact one, at one element."""
    x, y = np.random.default_rng(1).random((2, n), np.float32)
    rounded, exact = x * x + y * y, x.astype(float) ** 2 + y.astype(float) ** 2
    fused = (x.astype(float) ** 2 + y * y).astype(np.float32)
    k = int(np.argmax((rounded > exact) & (fused > exact) & (rounded == fused) & (exact > 0.5)))
    return x, y, np.zeros(n, np.float32), float(rounded[k])


def checked(event):
    """The line of an event, which the schema knows."""
    line = json.loads(line_text(event))
    jsonschema.Draft202012Validator(line_schema()).validate(line)
    return line


@pytest.mark.compiler
def test_a_threshold_between_two_roundings_calls_no_candidate_wrong(tmp_path):
    told = []
    run = ks.explore(
        sequence, *on_a_branch(3000), max_evals=2, directory=tmp_path / "run", on_event=told.append
    )
    assert run.best is not None, run.status
    assert not run.ended.failures
    (first,) = [e for e in told if isinstance(e, st.RoundingMeasured) and e.input_set == 0]
    assert first.branches == ("1 of 3,000 elements of mark lies on a branch",)
    assert "; input set 0: 1 of 3,000 elements of mark lies on a branch" in run.best.file.verified
    assert checked(first)["branches"] == list(first.branches)
    lines = []
    log.TextLog(lines.append, version="0")(first)
    assert lines[0].endswith(
        "1 of 3,000 elements of mark lies on a branch, where either side is right"
    )


@pytest.mark.compiler
def test_a_search_stops_where_the_first_eight_are_wrong_alike(tmp_path, monkeypatch):
    """Every candidate is wrong alike, as where reference and kernels disagree about the meaning of a program."""

    result = ForkedInputs.result

    def disagreeing(*given, **options):
        made = result(*given, **options)
        sets = []
        for s in made.sets:
            want = s.expected["z"].want + (np.arange(256) == 7)
            expected = {**s.expected, "z": replace(s.expected["z"], want=want)}
            sets.append(replace(s, expected=expected, rounding=None))
        return replace(made, sets=tuple(sets))

    monkeypatch.setattr(ForkedInputs, "result", disagreeing)
    workload = library_workload(load("axpydot"), {"n": 256}, "f32", 1)
    told = []
    options = Options(max_evals=40, store=False)
    run = explore_workload(workload, options, directory=tmp_path / "run", on_event=told.append)
    assert (run.best, run.status) == (None, "disagreement")
    assert run.ended.evaluations == 8
    (said,) = [e for e in told if isinstance(e, st.Disagreed)]
    assert (said.candidates, said.array, said.index) == (8, "z", (7,))
    text = checked(said)["detail"]
    for part in (
        "the first 8 candidates",
        "z[7]",
        said.got,
        said.want,
        "the reference and the kernels disagree",
        "failed/",
    ):
        assert part in text


AT = Disagreement(0, "z", (7,), "1", "2", 1, 256)
RIGHT = Measurement(1.0, 0.0, 1.0, 1, 1, 0)


@pytest.mark.parametrize(
    ("outcomes", "is_over"),
    [
        ([Failure("wrong", "", at=AT)] * 8, True),
        ([Failure("wrong", "", at=AT)] * 7, False),
        ([Failure("compile", ""), *[Failure("wrong", "", at=AT)] * 8], True),
        ([RIGHT, *[Failure("wrong", "", at=AT)] * 8], False),
        (
            [*[Failure("wrong", "", at=AT)] * 7, Failure("wrong", "", at=replace(AT, got="3"))] * 2,
            False,
        ),
        (
            [*[Failure("wrong", "", at=AT)] * 7, Failure("wrong", "", at=replace(AT, index=(8,)))]
            * 2,
            False,
        ),
        ([Failure("wrong", "memory was written")] * 9, False),
    ],
)
def test_eight_that_are_wrong_alike_are_enough(outcomes, is_over):
    alike = EqualFailures()
    for found in outcomes:
        alike.see(found)
    assert alike.are_enough == is_over
