"""Which loops of a kernel the interpreter may run as NumPy lanes, all iterations at once.

A loop is run as lanes only if that is provably the same as one iteration after the other:
- every array written in it is either touched at elements that belong to one iteration alone (one
  axis has the same index in all accesses, and that index changes with this loop and with no loop
  inside it), or only updated, never read, with one operation;
- every local from outside it is only read, or only updated with one operation and not read;
- nothing is printed or asserted in it: that happens in order.
A while loop in it runs as long as any lane wants to.
Updates then happen in another order, which for floating-point sums and products is a reassociation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir.kernel import (
    Assert,
    Binary,
    Cast,
    Const,
    Expr,
    For,
    If,
    Load,
    Local,
    LocalArray,
    LocalElement,
    LoopIndex,
    Print,
    SetElement,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
    While,
)
from ..ir.walk import children, local_changed, nested_statements, walk
from .contraction import contraction


@dataclass(frozen=True)
class LanePlan:
    """`is_vector`: may run as lanes. `inner_lanes`: the most lanes that loops inside it need for
    each of its iterations.
    """

    is_vector: bool
    inner_lanes: int


Plans = dict[int, LanePlan]  # by id of the For node


def plan_lanes(body: tuple[Stmt, ...]) -> Plans:
    plans: Plans = {}
    _plan_block(body, frozenset(), plans)
    return plans


def _plan_block(body: Iterable[Stmt], declared: frozenset[str], plans: Plans) -> int:
    """Plans every loop of a block, and gives the most lanes the block needs. `declared` are the
    locals of before.
    """
    lanes = 1
    for statement in body:
        match statement:
            case For():
                lanes = max(lanes, _plan_loop(statement, declared, plans))
            case If(then=then, orelse=orelse):
                lanes = max(
                    lanes, _plan_block(then, declared, plans), _plan_block(orelse, declared, plans)
                )
            case While(body=inner):
                lanes = max(lanes, _plan_block(inner, declared, plans))
            case SetLocal() | LocalArray() | Update():
                declared |= {local_changed(statement)}
    return lanes


def _plan_loop(loop: For, declared: frozenset[str], plans: Plans) -> int:
    inner = _plan_block(loop.body, declared, plans)
    is_vector = (
        not any(isinstance(s, Print | Assert) for s in nested_statements(loop.body))
        and _locals_allow(loop, declared)
        and _arrays_allow(loop)
        and _extents_allow(loop)
    )
    plans[id(loop)] = LanePlan(is_vector, inner)
    if not is_vector:
        return inner
    if contraction(loop) is not None:
        return inner  # its terms are not made, or else a few iterations at a time
    extent = loop.extent.value if isinstance(loop.extent, Const) else 1
    return max(1, int(extent)) * inner


def _locals_allow(loop: For, declared: frozenset[str]) -> bool:
    read: set[str] = set()
    operations: dict[str, set[str]] = {}
    for s in nested_statements(loop.body):
        changes = isinstance(s, SetLocal | LocalArray | SetElement | Update)
        if changes and local_changed(s) in declared - {""}:
            return False
        if isinstance(s, UpdateLocal) and s.name in declared:
            operations.setdefault(s.name, set()).add(s.op)
        read.update(
            x.name for e in children(s) for x in walk(e) if isinstance(x, Local | LocalElement)
        )
    return all(name not in read and len(ops) == 1 for name, ops in operations.items())


def _arrays_allow(loop: For) -> bool:
    accesses: dict[str, list[tuple[Expr, ...]]] = {}
    updates: dict[str, set[str]] = {}  # operations; "=" for a store, "?" for a load
    for s in nested_statements(loop.body):
        for e in children(s):
            for x in walk(e):
                if isinstance(x, Load):
                    accesses.setdefault(x.array, []).append(x.indices)
                    updates.setdefault(x.array, set()).add("?")
        if isinstance(s, (Store, Update)):
            accesses.setdefault(s.array, []).append(s.indices)
            kinds = updates.setdefault(s.array, set())
            kinds.add("=" if isinstance(s, Store) else s.op)
            if isinstance(s, Update) and s.result:
                kinds.add("?")
    inside = {s.loop for s in nested_statements(loop.body) if isinstance(s, For)}
    for array, kinds in updates.items():
        only_updated = len(kinds) == 1 and not kinds & {"=", "?"}
        if kinds == {"?"} or only_updated:
            continue
        if not _is_private(accesses[array], loop.loop, inside):
            return False
    return True


def _is_private(accesses: list[tuple[Expr, ...]], loop: str, inside: set[str]) -> bool:
    for axis in range(len(accesses[0])):
        form = linear(accesses[0][axis])
        if form is None or loop not in form[1] or inside & form[1].keys():
            continue
        if all(linear(indices[axis]) == form for indices in accesses[1:]):
            return True
    return False


def linear(x: Expr) -> tuple[int, dict[str, int]] | None:
    """`(constant, {loop: coefficient})` of an integer expression linear in loop indices; None for any other.

    Not `to_affine`, which code generation rests on: the reference does not share its mistakes.
    """
    match x:
        case Const(value=int(value)):
            return value, {}
        case LoopIndex(loop=loop):
            return 0, {loop: 1}
        case Cast(x=y, dtype=dtype) if dtype.is_index and y.dtype.is_integer:
            return linear(y)
        case Unary(op="neg", x=y):
            return _combined((0, {}), linear(y), -1)
        case Binary(op="add", a=a, b=b):
            return _combined(linear(a), linear(b), 1)
        case Binary(op="sub", a=a, b=b):
            return _combined(linear(a), linear(b), -1)
        case Binary(op="mul", a=a, b=b):
            left, right = linear(a), linear(b)
            if left is None or right is None:
                return None
            if not left[1]:
                return _combined((0, {}), right, left[0])
            return _combined((0, {}), left, right[0]) if not right[1] else None
    return None


def _combined(
    a: tuple[int, dict[str, int]] | None, b: tuple[int, dict[str, int]] | None, factor: int
) -> tuple[int, dict[str, int]] | None:
    if a is None or b is None:
        return None
    terms = dict(a[1])
    for loop, coefficient in b[1].items():
        terms[loop] = terms.get(loop, 0) + factor * coefficient
    return a[0] + factor * b[0], {loop: c for loop, c in terms.items() if c}


def _extents_allow(loop: For) -> bool:
    """Loops inside run equally long in all lanes."""
    for s in nested_statements(loop.body):
        if isinstance(s, For) and any(
            isinstance(x, (Load, Local, LocalElement))
            or (isinstance(x, LoopIndex) and x.loop != s.loop)
            for x in walk(s.extent)
        ):
            return False
    return True
