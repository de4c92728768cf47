"""The composition table against forests found as intervals; matrices and their forests."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelscape.space.engine import order

from .oracle import orders


def matrix_of(n, upper):
    matrix = [[order.MERGED] * n for _ in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    for (i, j), value in zip(pairs, upper, strict=True):
        matrix[i][j], matrix[j][i] = value, order.INVERSE[value]
    return matrix


def test_triples_are_those_of_all_forests_of_three():
    assert order.triples() == {(m[0][1], m[1][2], m[0][2]) for m in orders(3)}


def test_composition_is_the_union_over_the_values_of_both_masks():
    table = order.composition_table()
    for left, right in product(range(32), repeat=2):
        expected = {c for a, b, c in order.triples() if left >> a & 1 and right >> b & 1}
        assert table[left, right] == sum(1 << value for value in expected)


@pytest.mark.parametrize(
    ("left", "right", "whole"),
    [
        (order.BEFORE, order.BEFORE, {order.BEFORE}),
        (order.INNER, order.INNER, {order.INNER}),
        (order.BEFORE, order.OUTER, {order.BEFORE}),  # what is inside b comes after a as b does
        (order.INNER, order.BEFORE, {order.BEFORE}),
        (
            order.INNER,
            order.OUTER,
            {order.BEFORE, order.AFTER, order.INNER, order.OUTER, order.MERGED},
        ),
        (
            order.OUTER,
            order.INNER,
            {order.INNER, order.OUTER, order.MERGED},
        ),  # two loops around one object are nested or one
        (order.MERGED, order.AFTER, {order.AFTER}),
    ],
)
def test_compositions_worked_by_hand(left, right, whole):
    expected = sum(1 << value for value in whole)
    assert order.composition_table()[1 << left, 1 << right] == expected


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_holds_exactly_the_matrices_of_forests(n):
    found = orders(n)
    n_pairs = n * (n - 1) // 2
    for upper in product(range(5), repeat=n_pairs):
        matrix = matrix_of(n, upper)
        assert order.holds_order(matrix) == (tuple(map(tuple, matrix)) in found)


@given(st.integers(1, 3), st.data())
def test_holds_no_matrix_that_is_not_one_of_a_forest(n, data):
    flat = data.draw(st.lists(st.integers(0, 4), min_size=n * n, max_size=n * n))
    matrix = tuple(tuple(flat[i * n : i * n + n]) for i in range(n))
    assert order.holds_order(matrix) == (matrix in orders(n))


@pytest.mark.parametrize("n", [3, 4])
def test_path_consistent_matrices_are_realised(n):
    """Complete matrices need no more than the triples: the table is enough at the leaves."""
    table = order.composition_table()
    for upper in product(range(5), repeat=n * (n - 1) // 2):
        matrix = matrix_of(n, upper)
        is_consistent = all(
            table[1 << matrix[a][b], 1 << matrix[b][c]] >> matrix[a][c] & 1
            for a, b, c in product(range(n), repeat=3)
        )
        assert is_consistent == order.holds_order(matrix)


def test_forest_gives_nodes_in_order():
    # for 0,1: { 2; for 3: { 4 } }   5
    nested = {(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (3, 4)}
    upper = []
    for i in range(6):
        for j in range(i + 1, 6):
            value = order.OUTER if (i, j) in nested else order.BEFORE
            upper.append(order.MERGED if (i, j) == (0, 1) else value)
    inner = order.OrderNode((3,), (order.OrderNode((4,), ()),))
    assert order.forest(matrix_of(6, upper)) == (
        order.OrderNode((0, 1), (order.OrderNode((2,), ()), inner)),
        order.OrderNode((5,), ()),
    )


def test_inverse_is_an_involution():
    for mask in range(32):
        assert order.inverse_mask(order.inverse_mask(mask)) == mask
        assert order.inverse_table()[mask] == order.inverse_mask(mask)
    assert order.inverse_mask(order.ANY_ORDER) == order.ANY_ORDER
    assert order.inverse_mask(1 << order.INNER) == 1 << order.OUTER
    assert np.all(order.composition_table()[0] == 0)
