"""Privatised arrays: arrays that threads may update in copies of their own."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...kernels.ir.kernel import DType, For, KernelIR, Load, Store, Update
from ...kernels.ir.walk import children, nested_statements, walk


def copies_bytes(ir: KernelIR, loop: For, scattered: Sequence[Update]) -> int:
    """Returns the bytes of the arrays that are updated so, if threads may add to private copies; else 0.

    Nothing else in the loop may access them, and all updates must be additions without a result that is used.
    """
    inside = list(nested_statements(loop.body))
    names = {u.array for u in scattered}
    seen = {x.array for s in inside for e in children(s) for x in walk(e) if isinstance(x, Load)}
    seen |= {s.array for s in inside if isinstance(s, Store)}
    others = (s for s in inside if isinstance(s, Update) and s.array in names)
    if names & seen or any(s.op != "add" or s.result for s in others):
        return 0
    arrays = [a for a in ir.arrays if a.name in names]
    if any(a.dtype in (DType.f16, DType.bool_) for a in arrays):
        return 0
    return sum(prod(a.shape) * a.dtype.size_bytes for a in arrays)
