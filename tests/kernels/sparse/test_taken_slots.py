"""Upper bounds on the slots that kernels take from pools."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import pytest
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    Activate,
    Append,
    Binary,
    Cast,
    Const,
    DType,
    Expr,
    For,
    ForActive,
    If,
    Load,
    LoopIndex,
    Stmt,
    While,
)
from kernelscape.kernels.ir.structure import StructureTree, TreeNode
from kernelscape.kernels.sparse.taken_slots import most_taken, takings

TREES = {
    "t": StructureTree(
        "t", (TreeNode("pointer", -1, (0, 1), (64, 64)), TreeNode("dense", 0, (0, 1), (4, 8)))
    ),
    "d": StructureTree(
        "d", (TreeNode("pointer", -1, (0,), (8,)), TreeNode("dynamic", 0, (0,), (100,), 10))
    ),
    "b": StructureTree("b", (TreeNode("bitmasked", -1, (0,), (64,)),)),
}
USED = {("t", 0): 5, ("t", 1): 160, ("b", 0): 64}
I, J, K = (LoopIndex(x, DType.i32) for x in "ijk")


def constant(n: int) -> Const:
    return Const(n, DType.i32)


def plus(x: Expr, n: int) -> Expr:
    return Cast(Binary("add", x, constant(n), DType.i32), DType.i64)


def activate(*indices: Expr, tree: str = "t") -> Stmt:
    return Activate(
        tree, len(TREES[tree].nodes) - 1, indices or (constant(0), constant(0)), NOWHERE
    )


def loop(extent: Expr, *body: Stmt) -> Stmt:
    return For("k", extent, body, NOWHERE)


def cells(*body: Stmt, tree: str = "t") -> Stmt:
    return ForActive(
        tree, len(TREES[tree].nodes) - 1, ("i", "j")[: 1 + (tree == "t")], body, NOWHERE
    )


LENGTH = Load("n", (constant(0),), DType.i32)
TRUE = Const(True, DType.bool_)
MANY = 1 << 62
CASES: dict[str, tuple[tuple[Stmt, ...], dict[str, dict[int, int]]]] = {
    "one": ((activate(),), {"t": {0: 1}}),
    "branches": ((If(TRUE, (activate(),), (activate(),), NOWHERE),), {"t": {0: 2}}),
    "loops": ((loop(constant(7), loop(constant(3), activate()), activate()),), {"t": {0: 28}}),
    "no iterations": ((loop(constant(-1), activate()),), {"t": {0: 0}}),
    "unknown extent": ((loop(LENGTH, activate()),), {"t": {0: MANY}}),
    "while": ((While(TRUE, (activate(),), NOWHERE),), {"t": {0: MANY}}),
    "own cell": ((cells(activate(I, J)),), {"t": {0: 5}}),
    "whole leaves away": ((cells(activate(plus(I, 4), plus(J, -16))),), {"t": {0: 5}}),
    "across a face": ((cells(activate(plus(I, 1), J)),), {"t": {0: 10}}),
    "across a corner": ((cells(activate(plus(I, 1), plus(J, -1))),), {"t": {0: 20}}),
    "axes exchanged": ((cells(activate(J, I)),), {"t": {0: 160}}),
    "another loop": ((cells(loop(constant(3), activate(K, J))),), {"t": {0: 480}}),
    "another tree": ((cells(activate(I, J), tree="b"),), {"t": {0: 64}}),
    "a list that has grown": ((activate(), cells(activate(I, J))), {"t": {0: 7}}),
    "a cell of a list": ((activate(constant(3), tree="d"),), {"d": {0: 1, 1: 10}}),
    "append": ((loop(constant(6), Append("d", 1, (constant(3),), "r", NOWHERE)),), {"d": {0: 6, 1: 6}}),
}  # fmt: skip


def n_items(tree: str, node: int, more: Any) -> int:
    return USED[tree, node] + more.get(node, 0)


@pytest.mark.parametrize("name", CASES)
def test_bounds_count_iterations_and_cells(name: str) -> None:
    body, wanted = CASES[name]
    assert most_taken(takings(body, TREES), n_items, {}) == wanted


def test_bounds_add_to_what_was_taken_before() -> None:
    found = takings((loop(constant(7), activate()),), TREES)
    assert most_taken(found, n_items, {"t": {0: 3}}, n_calls=2) == {"t": {0: 17}}


def test_part_of_a_section_is_what_the_slots_in_use_reach() -> None:
    """Rows of fields have one element behind the last; tables below a pool end with its slots."""
    ks.init()
    x = ks.field(ks.f32)
    top = ks.root.pointer(ks.i, 64)
    top.pointer(ks.i, 4).dense(ks.i, 8).place(x)
    for i in (3, 40, 2000):
        x[i] = 1
    storage = top.structure.storage
    found = {key: storage.n_used(key) for key in storage.arrays}
    whole = {key: a.shape[-1] for key, a in storage.arrays.items()}
    assert found["counters"] == whole["counters"] and found["table0"] == whole["table0"] == 64
    assert found["table1"] == 4 * 4 and found["field0"] == 4 * 8 + 1
    assert found["free0"] == 4 and found["list1"] == 4
    more = {0: 2, 1: 1 << 62}
    assert storage.n_used("table1", more) == 6 * 4
    assert storage.n_used("field0", more) == whole["field0"]
    ks.reset()
