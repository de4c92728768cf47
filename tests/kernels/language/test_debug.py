"""Debug mode: indices and assertions are looked at while a kernel runs."""

from __future__ import annotations

from contextlib import nullcontext

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.language.calling import interpreted


@pytest.fixture(autouse=True)
def program():
    ks.init(random_seed=3)
    yield
    ks.reset()


@pytest.mark.compiler
@pytest.mark.parametrize("is_interpreted", [False, True])
def test_in_debug_mode_each_index_is_looked_at(is_interpreted):
    ks.init(debug=True)
    x = ks.field(ks.f32, shape=8)
    at = ks.field(ks.f32, shape=4)

    @ks.kernel
    def walk(n: ks.i32):
        for _ in range(1):
            place = 0.0
            for k in range(n):
                at[k] = at[k] + 0.5  # what decides the index is not known before the call
                place += at[k]
                x[ks.i32(place)] += 1.0

    with interpreted() if is_interpreted else nullcontext():
        at.from_numpy(np.array([0, 1, 1, 1], np.float32))
        walk(4)
        assert x.to_numpy().tolist() == [1, 0, 1, 1, 0, 1, 0, 0]
        at.from_numpy(np.array([0, 4, 4, 1], np.float32))
        with pytest.raises(AssertionError, match=r"walk: index 0 of x .* from 0 to 7 and is 9"):
            walk(4)


def test_assertions_are_of_debug_mode_only():
    x = ks.field(ks.i32, shape=3)

    @ks.kernel
    def check():
        for i in x:
            assert x[i] == 0, "not empty"

    x[1] = 1
    check()
    ks.init(debug=True)
    x = ks.field(ks.i32, shape=3)
    check()
    x[1] = 1
    with pytest.raises(AssertionError, match="not empty"):
        check()


@pytest.mark.compiler
def test_sides_that_are_not_taken_are_not_looked_at():
    def looked_at(debug):
        ks.init(debug=debug)
        d = ks.field(ks.f32, shape=4)
        d.fill(2)

        @ks.kernel
        def chosen(n: ks.i32) -> ks.f32:
            k = n
            while k > 20:
                k -= 1
            return d[k] if k < 10 else 0.0

        @ks.kernel
        def both(n: ks.i32) -> ks.i32:
            found = 0
            if n < 10 and d[n] > 0:
                found = 1
            return found

        return chosen, both

    for debug in (False, True):
        chosen, both = looked_at(debug)
        assert (chosen(3), chosen(15), both(3), both(15)) == (2.0, 0.0, 1, 0)
    for call in (chosen, both):
        with pytest.raises((AssertionError, IndexError), match="is 7"):
            call(7)
