"""Facts on the loops of a body for derivatives: locals that loops carry, and independence of iterations."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ...ir import kernel as ir
from ...ir.walk import children, loads, local_changed, nested_statements, walk
from .pruning import read_by


def changed_in(body: tuple[ir.Stmt, ...], names: Iterable[str]) -> list[str]:
    """Returns the locals among `names` that statements change."""
    changed = {local_changed(s) for s in nested_statements(body)}
    return [n for n in names if n in changed]


def only_added_to(body: tuple[ir.Stmt, ...], name: str) -> bool:
    """True if statements use a local only as a sum to which they add, and never read."""
    for s in nested_statements(body):
        if local_changed(s) == name and not (isinstance(s, ir.UpdateLocal) and s.op == "add"):
            return False
        if name in read_by(s):
            return False
    return True


def has_independent_iterations(
    body: tuple[ir.Stmt, ...], loop: str, arrays: Container[str], outer: Container[str]
) -> bool:
    """True if the order of a loop's iterations surely does not matter for its stores to `arrays`.

    `outer`: the loops around.
    All accesses of an array that is stored to, or that is both updated and read, have one index, which differs between iterations.
    """
    statements = tuple(nested_statements(body))
    writes = [s for s in statements if isinstance(s, ir.Store | ir.Update) and s.array in arrays]
    reads = [x for s in statements for e in children(s) for x in loads(e)]
    read = {x.array for x in reads}
    for write in (s for s in writes if isinstance(s, ir.Store) or s.array in read):
        others = (x for x in (*writes, *reads) if x.array == write.array)
        if any(x.indices != write.indices for x in others):
            return False
        if not any(differs(i, loop, outer) for i in write.indices):
            return False
    return True


def differs(index: ir.Expr, loop: str, fixed: Container[str]) -> bool:
    """True if an index is that of the loop plus a term that is the same in all of its iterations.

    So the index differs between iterations. `fixed`: the loops around.
    """
    match index:
        case ir.LoopIndex(loop=name):
            return name == loop
        case ir.Cast(x=x) if x.dtype.is_index and index.dtype.size_bytes >= x.dtype.size_bytes:
            return differs(x, loop, fixed)
        case ir.Binary(op="add" | "sub", a=a, b=b):
            first, second = differs(a, loop, fixed), differs(b, loop, fixed)
            return (first and _is_fixed(b, fixed)) or (second and _is_fixed(a, fixed))
    return False


def _is_fixed(e: ir.Expr, fixed: Container[str]) -> bool:
    """True if an expression consists of constants and of indices of the loops `fixed`."""
    parts = tuple(walk(e))
    leaves = (x for x in parts if not children(x))
    return all(
        isinstance(x, ir.Const) or (isinstance(x, ir.LoopIndex) and x.loop in fixed) for x in leaves
    )
