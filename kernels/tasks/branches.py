"""If-conversion of assignments: joins both sides of a branch, and turns bounds in conditions into boxes.

It checks that values may be computed speculatively.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..analysis.speculation import is_safe, is_safe_where_wanted
from ..ir.kernel import ArrayParam, Binary, Const, Expr, LoopIndex
from ..ir.task import Task
from ..ir.walk import Renaming, coerced, loads, locals_read, size
from .distribute import MAX_INLINED_NODES, ArrayAssignment, Define, Flat, Reduce, reads_of
from .guards import box_of, conjuncts, either


def join_branches(flat: tuple[Flat, ...], arrays: Mapping[str, ArrayParam]) -> tuple[Flat, ...]:
    """Returns the statements with pairs of assignments to one element joined into one that selects its value.

    The two are on both sides of a branch, or before it and in it.
    """
    work = list(flat)
    while (pair := _joined_pair(work, arrays)) is not None:
        first, second, made = pair
        work[second] = made
        del work[first]
    return tuple(work)


def _joined_pair(
    work: list[Flat], arrays: Mapping[str, ArrayParam]
) -> tuple[int, int, ArrayAssignment] | None:
    """Returns the positions of two assignments that can be joined, and the joined one; None without such a pair.

    The joined one replaces the second. The two sides of one branch take precedence over other pairs.
    """
    defined = {s.name: s for s in work if isinstance(s, Define)}
    found: list[tuple[int, int, ArrayAssignment]] = []
    for second, b in enumerate(work):
        if not isinstance(b, ArrayAssignment) or not b.conditions:
            continue
        element = b.array, b.indices, b.path
        earlier = range(second - 1, -1, -1)
        for first in earlier:
            a = work[first]
            if not isinstance(a, ArrayAssignment) or (a.array, a.indices, a.path) != element:
                continue
            if _may_join(a, b, work[first + 1 : second], defined, arrays):
                dtype = arrays[a.array].dtype
                old, new = coerced(a.value, dtype), coerced(b.value, dtype)
                conditions, value = either(a.conditions, old, b.conditions, new)
                found.append((first, second, replace(b, value=value, conditions=conditions)))
                if len(conditions) < min(len(a.conditions), len(b.conditions)):
                    return found[-1]
            break
    return found[0] if found else None


def _may_join(
    a: ArrayAssignment,
    b: ArrayAssignment,
    between: list[Flat],
    defined: Mapping[str, Define],
    arrays: Mapping[str, ArrayParam],
) -> bool:
    """True if `a` and `b` may become one assignment at the position of `b`.

    The value of `a` may be computed there, and both values may be computed in all iterations. `between`: the statements between.
    """
    if a.op is not None or b.op is not None:
        return False
    if any(x.array == a.array for x in loads(b.value)):
        return False
    used = {x.array for x in loads(a.value)}
    for s in between:
        if any(x.array == a.array for e in reads_of(s) for x in loads(e)):
            return False
        if isinstance(s, ArrayAssignment) and s.array in {a.array, *used}:
            return False
    values = [a.value, b.value]
    for e in values:  # `values` grows meanwhile
        values += [defined[name].value for name in locals_read(e) if name in defined]
        if sum(map(size, values)) > MAX_INLINED_NODES:
            return False
    return all(is_safe(e, a.path, lambda name: arrays[name].shape) for e in values)


def may_run(task: Task, arrays: Mapping[str, ArrayParam]) -> bool:
    """True if a task made of branches may compute all its expressions speculatively, in every iteration.

    The value of a guarded assignment only has to be safe where its condition holds.
    """

    def shape(name: str) -> tuple[int, ...]:
        return arrays[name].shape

    outer = tuple(loop for loop in task.scope if not loop.is_reduction)
    everywhere = [(task.condition, task.scope), (task.finish, outer)]
    if not task.is_guarded:
        everywhere.append((task.value, task.scope))
    elif task.value is not None and not is_safe_where_wanted(task.value, task.scope, shape):
        return False
    return all(is_safe(e, loops, shape) for e, loops in everywhere if e is not None)


def in_box(s: ArrayAssignment) -> ArrayAssignment | None:
    """Returns a guarded assignment with loops restricted to the box of its conditions; None if the box is empty."""
    conditions = tuple(part for e in s.conditions for part in conjuncts(e))
    bounds, rest = box_of([x for x in s.path if not x.is_step], conditions)
    if any(low >= high for low, high in bounds.values()):
        return None
    lengths = {name: high - low for name, (low, high) in bounds.items()}
    path = tuple(replace(x, extent=lengths.get(x.name, x.extent)) for x in s.path)
    moved: dict[str, Expr] = {}
    for loop in s.path:
        low = bounds.get(loop.name, (0, 0))[0]
        if low:
            index = LoopIndex(loop.name)
            moved[loop.name] = Binary("add", index, Const(low, index.dtype), index.dtype)
    made = applied(Renaming(loops=moved), replace(s, conditions=rest))
    assert isinstance(made, ArrayAssignment)
    return replace(made, path=path)


def applied(renaming: Renaming, s: Flat) -> Flat:
    match s:
        case Define():
            return replace(s, value=renaming.apply(s.value))
        case Reduce():
            return replace(s, value=renaming.apply(s.value), init=renaming.apply(s.init))
        case ArrayAssignment():
            indices = tuple(renaming.apply(i) for i in s.indices)
            conditions = tuple(renaming.apply(e) for e in s.conditions)
            return replace(s, indices=indices, value=renaming.apply(s.value), conditions=conditions)
