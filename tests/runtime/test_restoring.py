"""Restoring of arrays block by block."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.runtime.restoring import restore


@pytest.mark.parametrize("n", [0, 1, 300_000, 1 << 19])
def test_an_array_is_as_it_was(n: int) -> None:
    """Also where a block has other bits of equal values: zeros of both signs, and no numbers."""
    x = np.arange(n, dtype=np.float32)
    x[::7] = np.nan
    x[::5] = -0.0
    before = x.copy()
    x[n // 2 :] += 1.0
    x[:1] = 0.0
    restore(x, before)
    assert x.tobytes() == before.tobytes()


def test_arrays_that_are_not_contiguous_are_restored() -> None:
    x = np.arange(24.0).reshape(4, 6)[:, ::2]
    before = x.copy()
    x[...] = 0.0
    restore(x, before)
    assert np.array_equal(x, before)
