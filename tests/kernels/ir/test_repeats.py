"""Repeats of calls: folding loses nothing, and what is written down once runs in the same order."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelscape.kernels.ir.domain import Loop
from kernelscape.kernels.ir.repeats import (
    FEW_CALLS,
    Ended,
    Repeat,
    are_nested,
    fold,
    in_order,
    repeats_of,
    times,
    with_steps,
)


def unfolded(calls, kept, repeats):
    return [calls[kept[k]] for k in in_order(len(kept), repeats)]


@st.composite
def loops_of_calls(draw, depth=0):
    """Calls as loops of loops make them."""
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        inner = draw(loops_of_calls(depth + 1)) if depth < 2 and draw(st.booleans()) else None
        body = inner or [draw(st.integers(0, 2))]
        calls += body * draw(st.integers(1, 5))
    return calls


@given(loops_of_calls(), st.integers(1, FEW_CALLS))
def test_folding_loses_nothing(calls, few):
    folded = fold(calls, few)
    kept, repeats = folded.kept, folded.repeats
    assert unfolded(calls, kept, repeats) == calls
    assert are_nested(len(kept), repeats)
    assert sum(times(len(kept), repeats)) == len(calls)
    assert all(r.count * len(r.members) > few or r.count > 1 for r in repeats)


@given(st.lists(st.tuples(loops_of_calls(), st.integers(0, 4)), max_size=4), st.integers(1, 4))
def test_repeats_that_an_array_ends_stay_whole(parts, most):
    """`most`: the steps after which the array ends any of them."""
    recorded, calls, ended, short = [], [], [], []
    for k, (step, count) in enumerate(parts):
        if count:
            ended.append(Ended(len(recorded), len(recorded) + len(step), count, f"flag{k}"))
        recorded += step
        calls += step * max(count, 1)
        short += step * max(min(count, most), 1)
    folded = fold(recorded, ended=ended)
    kept, repeats = folded.kept, folded.repeats
    assert unfolded(recorded, kept, repeats) == calls
    assert are_nested(len(kept), repeats)
    found = [r for r in repeats if r.until]
    assert [(r.count, r.until, r.least) for r in found] == [(r.count, r.until, 1) for r in ended]
    asked = Counter()

    def is_set(name):
        asked[name] += 1
        return asked[name] == most

    ran = [recorded[kept[k]] for k, _ in with_steps(len(kept), repeats, is_set)]
    assert ran == short


@pytest.mark.parametrize(
    ("calls", "kept", "repeats"),
    [
        ([0] * FEW_CALLS, FEW_CALLS, []),
        ([0] * 100, 1, [(0, 1, 100)]),
        ([0, 1] * 50, 2, [(0, 2, 50)]),
        ([9, *[0, 1] * 50, 0], 4, [(1, 3, 50)]),
        (([0] * 20 + [1]) * 30, 2, [(0, 2, 30), (0, 1, 20)]),
        ([0, 1, 1, 0] * 40, 4, [(0, 4, 40)]),
        (list(range(100)), 100, []),
    ],
)
def test_what_is_written_down_once(calls, kept, repeats):
    found = fold(calls)
    assert len(found.kept) == kept
    assert [(r.first, r.stop, r.count) for r in found.repeats] == repeats


def test_steps_are_numbered():
    loops = [Loop(name, n, False) for name, n in (("t", 2), ("s", 3))]
    around = [(), (loops[0],), tuple(loops), (loops[0],)]
    repeats = repeats_of(around)
    assert repeats == (Repeat(1, 4, 2, "t"), Repeat(2, 3, 3, "s"))
    ran = list(with_steps(4, repeats))
    assert [k for k, _ in ran] == [0, 1, 2, 2, 2, 3, 1, 2, 2, 2, 3]
    inner = [steps for k, steps in ran if k == 2]
    assert inner == [{"t": t, "s": s} for t in range(2) for s in range(3)]
    assert [len(list(g)) for _, g in groupby(k for k, _ in ran)] == [1, 1, 3, 1, 1, 3, 1]


@pytest.mark.parametrize(
    "repeats",
    [
        [(0, 5, 2)],  # beyond the calls
        [(1, 1, 2)],  # of nothing
        [(0, 2, 0)],  # never
        [(0, 2, 2), (1, 3, 2)],  # neither nested nor apart
        [(0, 1, 2), (0, 3, 2)],  # the inner one first
    ],
)
def test_what_is_no_repeat(repeats):
    assert not are_nested(4, [Repeat(*r) for r in repeats])
