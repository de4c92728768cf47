"""What a search shows first, and how NumPy is timed beside it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from kernelscape.explorer import numpy_timing
from kernelscape.explorer import stages as st
from kernelscape.explorer.entry import explore_subject, library_subject
from kernelscape.explorer.subject import Options
from kernelscape.kernels.library import load
from kernelscape.runtime.outcome import Measurement
from kernelscape.search import events as ev


@pytest.mark.compiler
def test_candidates_are_measured_before_numpy(tmp_path: Path) -> None:
    subject = library_subject(load("axpydot"), {"n": 2048}, "f32", 1)
    told: list[object] = []
    options = Options(max_evals=10, store=False, compiler="gcc")
    run = explore_subject(subject, options, directory=tmp_path / "run", on_event=told.append)
    at = next(k for k, e in enumerate(told) if isinstance(e, st.NumpyTimed))
    measured = [e for e in told[:at] if isinstance(e, ev.Evaluated)]
    assert len(measured) == 8
    assert "U" in {e.tag for e in measured}
    assert run.ended.numpy_ns is not None
    # What the others are compared with is told before them, although some were measured before it.
    compared = next(k for k, e in enumerate(told) if isinstance(e, st.Compared))
    assert not any(isinstance(e, ev.Row) for e in told[:compared])


class Notes:
    """A keeper's notes."""

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
    keeper, subject = Notes(), SimpleNamespace(numpy_ns=None, reference=("m", "f"))
    timing = numpy_timing.NumpyTiming(subject, keeper, None)
    timing.take(None, None, lambda: False)
    if timing.is_due:
        timing.take(None, None, lambda: False)
    assert (timing.ns, timing.is_disturbed) == (ns, is_disturbed)
    again = numpy_timing.NumpyTiming(subject, keeper, None)
    assert (again.ns, again.is_due) == (ns, False)
