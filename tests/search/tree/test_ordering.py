"""The order in which choices are decided."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.search.tree.ordering import ORDERS, NextChoice, decision_order, open_in_order
from kernelscape.space.candidate import Candidate
from kernelscape.testing.machines import library_space, root_of

SPACE = library_space("bicgk", m=64, n=64)


@pytest.mark.parametrize("name", ORDERS)
def test_every_choice_has_a_priority_and_all_are_decided(name: str) -> None:
    priority = decision_order(SPACE, name)
    assert priority.shape == (SPACE.n_choices,)
    assert sorted(open_in_order(SPACE, name)) == sorted(SPACE.searchable)
    following = NextChoice(SPACE, name)
    rng = np.random.default_rng(0)
    at = root_of(SPACE)
    while not at.is_complete:
        var = following(at)
        least = min((int(priority[v]), int(v)) for v in at.open_choices())
        assert (int(priority[var]), var) == least
        children = [c for _, c in at.expand(var) if isinstance(c, Candidate)]
        if not children:
            return
        at = children[int(rng.integers(len(children)))]
    with pytest.raises(ValueError, match="nothing left"):
        following(at)


def test_orders_differ_where_they_say() -> None:
    kinds = {name: SPACE.choices[open_in_order(SPACE, name)[0]].kind for name in ORDERS}
    assert kinds["default"] == "fused"
    assert kinds["size_first"] in ("staged", "mem_space", "size")
    assert kinds["reverse"] in ("cache", "store", "reduction")
    assert list(ORDERS["default"]) == list(ORDERS["reverse"])[::-1]
    assert all(set(order) == set(ORDERS["default"]) for order in ORDERS.values())


def test_unknown_orders_are_refused() -> None:
    with pytest.raises(KeyError):
        decision_order(SPACE, "alphabetical")
