"""Random programs on random trees whose calls wait leave what the interpreter does, after each of ten periods."""

from __future__ import annotations

import pytest
from kernelscape.testing.sparse_windows import drawn, fault

N_LIMITS = {0: 20, 1: 5, 2: 200, 3: 50, 4: 1}


@pytest.mark.parametrize("number", range(10))
def test_windows_leave_what_the_interpreter_does(number: int) -> None:
    limit = N_LIMITS[number % 5]
    wrong, n_planned = fault(drawn(number, most_calls=16), (limit,))
    assert not wrong
    assert n_planned > 0 or limit == 1
