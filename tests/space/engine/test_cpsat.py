"""CP-SAT on the same declarations: counts of known spaces, best completions."""

import pytest
from kernelscape.space.engine import cpsat
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.space.engine.declarations import Term
from kernelscape.space.engine.order import MERGED
from kernelscape.testing.bare import bare_space
from kernelscape.testing.violations import violations

from . import oracle


def orders_only(n):
    builder = ModelBuilder()
    for i in range(n):
        builder.add_object(f"d{i}")
    builder.order(0, 0)
    return bare_space(builder.freeze())


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_counts_forests(n):
    space = orders_only(n)
    assert cpsat.count(space.model, space.model.initial, 10_000) == (len(oracle.orders(n)), True)


def test_a_count_stops_at_its_limit():
    space = orders_only(4)
    assert cpsat.count(space.model, space.model.initial, 10) == (10, False)


def test_completes_at_the_least_weight():
    builder = ModelBuilder()
    for i in range(3):
        builder.add_object(f"d{i}")
    sizes = [builder.add("size", (str(i),), ("1", "2", "4")) for i in range(3)]
    builder.product_at_most("fits", [Term(None, s, (1, 2, 4)) for s in sizes], 8)
    space = bare_space(builder.freeze())
    weights = {(s, v): -(v + 1.5 * k * v) for k, s in enumerate(sizes) for v in range(3)}
    pair = builder.order(2, 0)  # a mirror variable
    weights[pair, MERGED] = -1.0
    domains = cpsat.complete(space.model, space.model.initial, weights, seconds=10)
    assert [int(domains[s]).bit_length() - 1 for s in sizes] == [0, 1, 2]
    assert domains[pair] == 1 << MERGED
    candidate = space.candidate(domains)
    assert violations(space.model, candidate.assignment()) == []


def test_nothing_to_complete():
    space = orders_only(3)
    domains = space.model.initial.copy()
    for a, b in ((0, 1), (1, 2), (2, 0)):  # before in a circle
        space.model.narrow(domains, space.model.order(a, b), 1)
    assert cpsat.complete(space.model, domains) is None
    assert cpsat.complete(space.model, domains) is None
    assert cpsat.complete(space.model, space.model.initial) is not None
