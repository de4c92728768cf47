"""One traversal: what a node holds is read off its class, so a new kind of node is walked, rebuilt and renamed by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pytest
from kernelscape.kernels.ir import walk as module
from kernelscape.kernels.ir.kernel import (
    NOWHERE,
    Binary,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Local,
    LoopIndex,
    Param,
    Select,
    SetLocal,
    Stmt,
    Store,
    Update,
)
from kernelscape.kernels.ir.walk import (
    Renaming,
    blocks,
    children,
    mapped,
    nested_statements,
    rebuild,
    walk,
)

F, I = DType.f32, DType.i64
i, a, b = LoopIndex("i"), Param("a", F), Local("b", F)
load = Load("x", (i, Const(1, I)), F)
select = Select(Compare("lt", a, b), load, Binary("add", a, b, F), F)
store = Store("x", (i,), select, NOWHERE)
update = Update("x", (i,), "add", a, NOWHERE)
branch = If(Compare("lt", a, b), (store,), (update, SetLocal("b", a, NOWHERE)), NOWHERE)
loop = For("i", Const(4, I), (branch,), NOWHERE)


@pytest.mark.parametrize(
    ("node", "parts", "inside"),
    [
        (Const(1, I), (), ()),
        (load, (i, Const(1, I)), ()),
        (select, (Compare("lt", a, b), load, Binary("add", a, b, F)), ()),
        (store, (i, select), ()),
        (branch, (branch.condition,), (branch.then, branch.orelse)),
        (loop, (loop.extent,), (loop.body,)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_parts(node: Expr | Stmt, parts: tuple[Expr, ...], inside: tuple[object, ...]) -> None:
    assert children(node) == parts
    assert blocks(node) == inside  # type: ignore[arg-type]
    assert mapped(node, lambda e: e, lambda s: s) == node


def test_every_kind_of_node_can_be_walked() -> None:
    assert {type(x).__name__ for x in (branch, loop, store, update)} < {
        c.__name__ for c in get_args(Stmt)
    }
    assert [type(s).__name__ for s in nested_statements((loop,))] == [
        "For",
        "If",
        "Store",
        "Update",
        "SetLocal",
    ]
    assert list(walk(load)) == [load, i, Const(1, I)]
    assert rebuild(load, (Const(0, I), i)) == Load("x", (Const(0, I), i), F)


def test_a_new_kind_of_node_needs_no_traversal(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Fetch:
        array: str
        indices: tuple[Expr, ...]
        value: Expr
        dtype: DType

    # As its hints would be in kernel.py.
    hints = {"array": str, "indices": tuple[Expr, ...], "value": Expr, "dtype": DType}
    monkeypatch.setattr(module, "get_type_hints", lambda kind: hints)
    node = Fetch("x", (i,), a, F)
    assert children(node) == (i, a)  # type: ignore[arg-type]
    renamed = Renaming(params={"a": b}, loops={"i": LoopIndex("j")}).apply(node)  # type: ignore[arg-type]
    assert renamed == Fetch("x", (LoopIndex("j"),), b, F)


def test_renaming_is_done_at_once() -> None:
    swap = Renaming(arrays={"x": "y", "y": "x"}, loops={"i": LoopIndex("k")})
    done = swap.apply_stmt(loop)
    assert isinstance(done, For)
    assert done.loop == "k"
    (inner,) = done.body
    assert isinstance(inner, If)
    assert inner.then == (Store("y", (LoopIndex("k"),), swap.apply(select), NOWHERE),)


def test_a_renamed_index_keeps_its_type() -> None:
    renaming = Renaming(loops={"i": LoopIndex("k"), "j": Const(3, DType.i64)})
    assert renaming.apply(LoopIndex("i", DType.i32)) == LoopIndex("k", DType.i32)
    assert renaming.apply(LoopIndex("j", DType.i32)) == Const(3, DType.i64)


def test_nothing_else_takes_expressions_apart_by_hand() -> None:
    root = Path(module.__file__).parents[1]
    own = [
        p.name
        for p in root.rglob("*.py")
        if "def children(" in p.read_text() or "def nested_statements(" in p.read_text()
    ]
    assert own == ["walk.py"]
