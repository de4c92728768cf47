"""Texts of kernels without names: those of equal kernels of several programs, and no others."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from kernelscape.kernels.ir import kernel
from kernelscape.kernels.ir.kernel import (
    ArrayParam,
    Const,
    DType,
    For,
    ForActive,
    KernelIR,
    Load,
    Local,
    Location,
    LoopIndex,
    Param,
    SetLocal,
    Store,
    Update,
)
from kernelscape.kernels.ir.spelling import _NAMES, spelled_without_names
from kernelscape.kernels.ir.structure import StructureTree, TreeNode

WORDS = {"op", "message", "formats", "parts", "file", "dtype", "kind", "value"}  # no names
PLAIN = {
    "x": "x", "y": "y", "a": "a", "i": "i", "v": "v", "old": "old", "t": "t", "k": "k"
}  # fmt: skip


def text(line: int = 1, *, swapped: bool = False, **names: str) -> str:
    """The text of a kernel with these names in place of its own."""
    n = PLAIN | names
    at = Location("a.py", line)
    i, zero = LoopIndex(n["i"]), Const(0, DType.i64)
    param, local = Param(n["a"], DType.f64), Local(n["v"], DType.f64)
    x, y = (n["y"], n["x"]) if swapped else (n["x"], n["y"])
    body = (
        SetLocal(n["v"], Load(x, (i,), DType.f64), at),
        Update(y, (i,), "add", local, at, n["old"]),
        Store(y, (zero,), param, at),
    )
    tree = StructureTree(n["t"], (TreeNode("pointer", -1, (0,), (3,)),))
    loops = (For(n["i"], zero, body, at), ForActive(n["t"], 0, (n["i"],), body, at))
    arrays = tuple(ArrayParam(n[name], DType.f64, (3,)) for name in "xy")
    ir = KernelIR(n["k"], arrays, (param,), loops, at, trees=(tree,))
    return spelled_without_names(replace(ir, independent=(n["i"],)))


@pytest.mark.parametrize("name", PLAIN)
def test_each_name_is_left_out(name: str) -> None:
    assert text(**{name: "other"}, line=9) == text()


def test_names_that_are_one_are_one() -> None:
    assert text(swapped=True) != text()
    assert text(old="v") != text()  # one local in place of two
    assert text(a="i") == text(v="x") == text()  # of two kinds
    assert text(x="y", y="x") == text()


def test_all_texts_in_kernels_are_names_or_words() -> None:
    """A node that is added says which of its texts are names: those of its arrays would make kernels differ."""
    for node in vars(kernel).values():
        if not hasattr(node, "__dataclass_fields__"):
            continue
        for f in fields(node):
            if "str" in str(f.type) and f.name not in WORDS | {"tree"}:
                assert (node, f.name) in _NAMES, (node, f.name)
