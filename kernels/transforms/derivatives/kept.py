"""Loops of a body, as derivatives see them: the locals that they carry, and if their iterations are independent."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ...ir.kernel import Binary, Expr, LoopIndex, Stmt, Store, Update, UpdateLocal
from ...ir.walk import children, loads, local_changed, nested_statements, walk
from .pruning import read_by


def changed_in(body: tuple[Stmt, ...], names: Iterable[str]) -> list[str]:
    """Returns those of `names`, locals, that statements change."""
    changed = {local_changed(s) for s in nested_statements(body)}
    return [n for n in names if n in changed]


def only_added_to(body: tuple[Stmt, ...], name: str) -> bool:
    """True if statements use a local only as a sum that they add to."""
    for s in nested_statements(body):
        if local_changed(s) == name and not (isinstance(s, UpdateLocal) and s.op == "add"):
            return False
        if name in read_by(s):
            return False
    return True


def has_independent_iterations(body: tuple[Stmt, ...], loop: str, arrays: Container[str]) -> bool:
    """True if the order of a loop's iterations is surely irrelevant to its stores to `arrays`.

    No array is both written and read. Each array that is stored to has one index, which differs between iterations.
    """
    statements = tuple(nested_statements(body))
    writes = [s for s in statements if isinstance(s, Store | Update) and s.array in arrays]
    read = {x.array for s in statements for e in children(s) for x in loads(e)}
    if any(s.array in read for s in writes):
        return False
    for stored in (s for s in writes if isinstance(s, Store)):
        if any(s.array == stored.array and s.indices != stored.indices for s in writes):
            return False
        if not any(_differs(i, loop) for i in stored.indices):
            return False
    return True


def _differs(index: Expr, loop: str) -> bool:
    """True if an index is that of the loop, plus what is the same in all of its iterations."""
    match index:
        case LoopIndex(loop=name):
            return name == loop
        case Binary(op="add" | "sub", a=a, b=b):
            return (_differs(a, loop) and _is_fixed(b, loop)) or (
                _differs(b, loop) and _is_fixed(a, loop)
            )
    return False


def _is_fixed(e: Expr, loop: str) -> bool:
    """True if an expression surely has one value in all iterations: it reads no memory, no locals and not the loop's index."""
    return not any(
        (isinstance(x, LoopIndex) and x.loop == loop) or hasattr(x, "name") or hasattr(x, "array")
        for x in walk(e)
    )
