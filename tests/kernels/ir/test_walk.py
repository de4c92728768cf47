"""One traversal: what a node holds is read off its class, so a new kind of node is walked, rebuilt and renamed by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir import walk as module
from kernelscape.kernels.ir.walk import (
    Renaming,
    blocks,
    children,
    mapped,
    nested_statements,
    rebuild,
    walk,
)

F, I = ir.DType.f32, ir.DType.i64
i, a, b = ir.LoopIndex("i"), ir.Param("a", F), ir.Local("b", F)
load = ir.Load("x", (i, ir.Const(1, I)), F)
select = ir.Select(ir.Compare("lt", a, b), load, ir.Binary("add", a, b, F), F)
store = ir.Store("x", (i,), select, ir.NOWHERE)
update = ir.Update("x", (i,), "add", a, ir.NOWHERE)
branch = ir.If(
    ir.Compare("lt", a, b), (store,), (update, ir.SetLocal("b", a, ir.NOWHERE)), ir.NOWHERE
)
loop = ir.For("i", ir.Const(4, I), (branch,), ir.NOWHERE)


@pytest.mark.parametrize(
    ("node", "parts", "inside"),
    [
        (ir.Const(1, I), (), ()),
        (load, (i, ir.Const(1, I)), ()),
        (select, (ir.Compare("lt", a, b), load, ir.Binary("add", a, b, F)), ()),
        (store, (i, select), ()),
        (branch, (branch.condition,), (branch.then, branch.orelse)),
        (loop, (loop.extent,), (loop.body,)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_parts(
    node: ir.Expr | ir.Stmt, parts: tuple[ir.Expr, ...], inside: tuple[object, ...]
) -> None:
    assert children(node) == parts
    assert blocks(node) == inside  # type: ignore[arg-type]
    assert mapped(node, lambda e: e, lambda s: s) == node


def test_every_kind_of_node_can_be_walked() -> None:
    assert {type(x).__name__ for x in (branch, loop, store, update)} < {
        c.__name__ for c in get_args(ir.Stmt)
    }
    assert [type(s).__name__ for s in nested_statements((loop,))] == [
        "For",
        "If",
        "Store",
        "Update",
        "SetLocal",
    ]
    assert list(walk(load)) == [load, i, ir.Const(1, I)]
    assert rebuild(load, (ir.Const(0, I), i)) == ir.Load("x", (ir.Const(0, I), i), F)


def test_a_new_kind_of_node_needs_no_traversal(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Fetch:
        array: str
        indices: tuple[ir.Expr, ...]
        value: ir.Expr
        dtype: ir.DType

    # As its hints would be in kernel.py.
    hints = {"array": str, "indices": tuple[ir.Expr, ...], "value": ir.Expr, "dtype": ir.DType}
    monkeypatch.setattr(module, "get_type_hints", lambda kind: hints)
    node = Fetch("x", (i,), a, F)
    assert children(node) == (i, a)  # type: ignore[arg-type]
    renamed = Renaming(params={"a": b}, loops={"i": ir.LoopIndex("j")}).apply(node)  # type: ignore[arg-type]
    assert renamed == Fetch("x", (ir.LoopIndex("j"),), b, F)


def test_renaming_is_done_at_once() -> None:
    swap = Renaming(arrays={"x": "y", "y": "x"}, loops={"i": ir.LoopIndex("k")})
    done = swap.apply_stmt(loop)
    assert isinstance(done, ir.For)
    assert done.loop == "k"
    (inner,) = done.body
    assert isinstance(inner, ir.If)
    assert inner.then == (ir.Store("y", (ir.LoopIndex("k"),), swap.apply(select), ir.NOWHERE),)


def test_a_renamed_index_keeps_its_type() -> None:
    renaming = Renaming(loops={"i": ir.LoopIndex("k"), "j": ir.Const(3, ir.DType.i64)})
    assert renaming.apply(ir.LoopIndex("i", ir.DType.i32)) == ir.LoopIndex("k", ir.DType.i32)
    assert renaming.apply(ir.LoopIndex("j", ir.DType.i32)) == ir.Const(3, ir.DType.i64)


def test_nothing_else_takes_expressions_apart_by_hand() -> None:
    root = Path(module.__file__).parents[1]
    own = [
        p.name
        for p in root.rglob("*.py")
        if "def children(" in p.read_text() or "def nested_statements(" in p.read_text()
    ]
    assert own == ["walk.py"]
