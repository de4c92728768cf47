"""Masks of active cells: an adjoint's loop visits the cells that were active at the call, though others are active now.

A mask is an array over the box of the loop's node, 1 for each cell that was active. The guard is added to the adjoint as it is
made, not to the kernel: each iteration is guarded as a whole, and computes nothing else again.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import replace

from ...ir import kernel
from ...ir.simplify import compare, const
from ...ir.structure import StructureTree
from ...ir.walk import with_blocks

_FIRST = -1_000_000  # identities of marked loops: those of guards in adjoints begin at -1


def mask_of(name: str, tree: StructureTree, loop: kernel.ForActive) -> kernel.ArrayParam:
    """Returns the parameter of a mask for a loop over active cells: a byte a cell of its node."""
    return kernel.ArrayParam(name, kernel.DType.u8, tree.shape(loop.node))


def numbered(ir: kernel.KernelIR, loops: Collection[int]) -> kernel.KernelIR:
    """Returns the kernel whose loops of these numbers can be found again in its adjoint.

    `loops`: numbers among the loops over active cells, in program order.
    """
    if not loops:
        return ir
    count = itertools.count()  # in program order, parents first

    def on(s: kernel.Stmt) -> kernel.Stmt:
        number = next(count) if isinstance(s, kernel.ForActive) else -1
        s = with_blocks(s, lambda block: tuple(map(on, block)))
        return replace(s, uid=_FIRST - number) if number in loops else s

    return replace(ir, body=tuple(map(on, ir.body)))


def guarded(ir: kernel.KernelIR, masks: Mapping[str, int]) -> kernel.KernelIR:
    """Returns the adjoint of a `numbered` kernel, whose loops visit marked cells only.

    `masks`: by array that marks cells, the number of the loop in the kernel.
    """
    if not masks:
        return ir
    names = {_FIRST - k: name for name, k in masks.items()}
    trees = {t.name: t for t in ir.trees}
    used: list[kernel.ArrayParam] = []

    def on(s: kernel.Stmt) -> kernel.Stmt:
        s = with_blocks(s, lambda block: tuple(map(on, block)))
        if not isinstance(s, kernel.ForActive) or s.uid not in names:
            return s
        mask = mask_of(names[s.uid], trees[s.tree], s)
        used.append(mask)
        own = tuple(kernel.LoopIndex(n) for n in s.loops)
        is_active = compare("ne", kernel.Load(mask.name, own, mask.dtype), const(0, mask.dtype))
        return replace(s, body=(kernel.If(is_active, s.body, (), s.where),))

    body = tuple(map(on, ir.body))
    return replace(ir, arrays=(*ir.arrays, *dict.fromkeys(used)), body=body)
