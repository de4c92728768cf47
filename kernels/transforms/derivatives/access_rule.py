"""Check of the access rule of kernels with derivatives: no element is stored to after it was read.

This is rule 1 of Taichi's language.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from ...ir.kernel import Assert, DType, KernelIR, Load, Stmt, Store, Update
from ...ir.simplify import compare, const
from ...ir.walk import children, loads, with_blocks


def with_checks(
    ir: KernelIR, flags: Mapping[str, str], labels: Mapping[str, str], copied: Container[str] = ()
) -> KernelIR:
    """Returns the kernel with marks of the elements that it reads, and assertions against stores to them.

    `flags`: for each checked array the name of an array of marks (i32). `labels`: the names of the arrays in messages. `copied`:
    arrays of which the adjoint reads copies.
    """
    ends = {
        name: "which the access rule forbids: Taichi's gradients are wrong, a tape here reads a copy"
        if name in copied
        else "so gradients are wrong"
        for name in flags
    }

    def checked(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        made: list[Stmt] = []
        for s in body:
            made += _marks(s, flags)
            if isinstance(s, Store | Update) and s.array in flags:
                what = f"stores to an element of {labels[s.array]} that was read before"
                text = f"{s.where}: the kernel {ir.name} {what}, {ends[s.array]}"
                made.append(_assertion(s, flags[s.array], text))
            made.append(with_blocks(s, checked))
        return tuple(made)

    marks = (replace(p, name=flags[p.name], dtype=DType.i32) for p in ir.arrays if p.name in flags)
    return replace(ir, arrays=(*ir.arrays, *marks), body=checked(ir.body))


def _marks(s: Stmt, flags: Mapping[str, str]) -> Iterator[Stmt]:
    """Yields the statements that mark the elements that the operands of a statement read."""
    for e in children(s):
        for x in loads(e):
            if x.array in flags:
                yield Store(flags[x.array], x.indices, const(1, DType.i32), s.where)


def _assertion(s: Store | Update, flag: str, text: str) -> Assert:
    """Returns the assertion that the element to which a statement stores was not read."""
    mark = Load(flag, s.indices, DType.i32)
    return Assert(compare("eq", mark, const(0, DType.i32)), text, (), s.where)
