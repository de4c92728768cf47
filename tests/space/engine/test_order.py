"""The composition table against forests found as intervals; matrices and their forests."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelscape.space.engine.order import (
    AFTER,
    ANY_ORDER,
    BEFORE,
    INNER,
    INVERSE,
    MERGED,
    OUTER,
    OrderNode,
    composition_table,
    forest,
    holds_order,
    inverse_mask,
    inverse_table,
    triples,
)

from .oracle import orders


def matrix_of(n, upper):
    matrix = [[MERGED] * n for _ in range(n)]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    for (i, j), value in zip(pairs, upper, strict=True):
        matrix[i][j], matrix[j][i] = value, INVERSE[value]
    return matrix


def test_triples_are_those_of_all_forests_of_three():
    assert triples() == {(m[0][1], m[1][2], m[0][2]) for m in orders(3)}


def test_composition_is_the_union_over_the_values_of_both_masks():
    table = composition_table()
    for left, right in product(range(32), repeat=2):
        expected = {c for a, b, c in triples() if left >> a & 1 and right >> b & 1}
        assert table[left, right] == sum(1 << value for value in expected)


@pytest.mark.parametrize(
    ("left", "right", "whole"),
    [
        (BEFORE, BEFORE, {BEFORE}),
        (INNER, INNER, {INNER}),
        (BEFORE, OUTER, {BEFORE}),  # what is inside b comes after a as b does
        (INNER, BEFORE, {BEFORE}),
        (INNER, OUTER, {BEFORE, AFTER, INNER, OUTER, MERGED}),
        (OUTER, INNER, {INNER, OUTER, MERGED}),  # two loops around one object are nested or one
        (MERGED, AFTER, {AFTER}),
    ],
)
def test_compositions_worked_by_hand(left, right, whole):
    expected = sum(1 << value for value in whole)
    assert composition_table()[1 << left, 1 << right] == expected


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_holds_exactly_the_matrices_of_forests(n):
    found = orders(n)
    n_pairs = n * (n - 1) // 2
    for upper in product(range(5), repeat=n_pairs):
        matrix = matrix_of(n, upper)
        assert holds_order(matrix) == (tuple(map(tuple, matrix)) in found)


@given(st.integers(1, 3), st.data())
def test_holds_no_matrix_that_is_not_one_of_a_forest(n, data):
    flat = data.draw(st.lists(st.integers(0, 4), min_size=n * n, max_size=n * n))
    matrix = tuple(tuple(flat[i * n : i * n + n]) for i in range(n))
    assert holds_order(matrix) == (matrix in orders(n))


@pytest.mark.parametrize("n", [3, 4])
def test_path_consistent_matrices_are_realised(n):
    """Complete matrices need no more than the triples: the table is enough at the leaves."""
    table = composition_table()
    for upper in product(range(5), repeat=n * (n - 1) // 2):
        matrix = matrix_of(n, upper)
        is_consistent = all(
            table[1 << matrix[a][b], 1 << matrix[b][c]] >> matrix[a][c] & 1
            for a, b, c in product(range(n), repeat=3)
        )
        assert is_consistent == holds_order(matrix)


def test_forest_gives_nodes_in_order():
    # for 0,1: { 2; for 3: { 4 } }   5
    nested = {(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (3, 4)}
    upper = []
    for i in range(6):
        for j in range(i + 1, 6):
            value = OUTER if (i, j) in nested else BEFORE
            upper.append(MERGED if (i, j) == (0, 1) else value)
    inner = OrderNode((3,), (OrderNode((4,), ()),))
    assert forest(matrix_of(6, upper)) == (
        OrderNode((0, 1), (OrderNode((2,), ()), inner)),
        OrderNode((5,), ()),
    )


def test_inverse_is_an_involution():
    for mask in range(32):
        assert inverse_mask(inverse_mask(mask)) == mask
        assert inverse_table()[mask] == inverse_mask(mask)
    assert inverse_mask(ANY_ORDER) == ANY_ORDER
    assert inverse_mask(1 << INNER) == 1 << OUTER
    assert np.all(composition_table()[0] == 0)
