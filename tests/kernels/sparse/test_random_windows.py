"""Random programs on random trees whose calls wait leave what the interpreter does, after each of ten periods."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernelscape.testing.sparse_windows import drawn, drawn_pair, fault

N_LIMITS = {0: 20, 1: 5, 2: 200, 3: 50, 4: 1}


@pytest.mark.parametrize("number", range(10))
def test_windows_leave_what_the_interpreter_does(number: int) -> None:
    limit = N_LIMITS[number % 5]
    wrong, n_planned = fault(drawn(number, most_calls=16), (limit,))
    assert not wrong
    assert n_planned > 0 or limit == 1


@pytest.mark.parametrize("number", [*range(10), 115])
def test_trees_that_activate_each_other_in_windows(number: int) -> None:
    """In 115 a second tree of smaller parts lacks cells of the first, which a fact that outlives too much would forget."""
    wrong, n_planned = fault(drawn_pair(number), (20,))
    assert not wrong and n_planned > 0


def test_no_program_depends_on_the_order_of_a_list() -> None:
    """Cells of a wide tree over a leaf of one column: stores to one element would leave what the last cell of the list has."""
    program = drawn(1146, most_calls=24)
    calls = ("up", 33), ("carry", 36)
    between = ((),) * 5 + ((("fill", 34),), (), ())
    wrong, n_planned = fault(replace(program, period=calls, between=between), (50,))
    assert not wrong and n_planned > 0
