"""Guaranteed footprint of accesses in bytes: the part of the memory bound that depends on no choice.

All counts err to the low side. Conditional loads do not count, nor do accesses of a body, since its control flow may depend on
array contents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import gcd, prod

from ...kernels.analysis.domain_bounds import branch_cuts, cuts_of, finish_cuts, points, taken
from ...kernels.ir.access import Access, access_of, flat_strides
from ...kernels.ir.affine import Affine
from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import Binary, Bitcast, Cast, Compare, Expr, Load, Select, Unary
from ...kernels.ir.task import Task, extents
from ...space.targets.target import LINE_BYTES


def sure_loads(e: Expr | None) -> Iterator[Load]:
    """Yields the unconditional loads of `e`: they are executed for any outcome of its conditions."""
    match e:
        case Load():
            yield e
        case Unary() | Cast() | Bitcast():
            yield from sure_loads(e.x)
        case Binary(op="and" | "or"):
            yield from sure_loads(e.a)
        case Binary() | Compare():
            yield from sure_loads(e.a)
            yield from sure_loads(e.b)
        case Select():
            yield from sure_loads(e.condition)


def read_bytes(task: Task, array: ArrayInfo, line: int = LINE_BYTES) -> int:
    """Returns the guaranteed bytes of whole cache lines of `array` that the task reads; `line`: bytes of a line."""
    if not task.is_structured:
        return 0
    if cuts_of(task):
        return _read_bytes_within(task, array)
    loads = (*sure_loads(task.value), *sure_loads(task.finish))
    accesses = {access_of(x) for x in loads if x.array == array.name}
    if task.is_guarded:
        return _guarded_read_bytes(task, array, accesses, line)
    # Two accesses may touch the same lines: the largest alone is certain.
    return max((line_bytes(a, extents(task), array, line) for a in accesses), default=0)


def wanted_iterations(task: Task) -> list[dict[str, int]]:
    """Returns reduced loop extents, with which a task has at most the iterations in which it surely assigns.

    It returns [] if nothing is known, and several dicts if more than one loop may be the reduced
    one. A residue leaves one of every `modulus` iterations of a loop that it names with coefficient
    1 or -1, for any iteration of the others.
    """
    loops, guard = extents(task), task.guard
    if not task.is_guarded:
        return [loops]
    if guard.bounds or guard.data or not guard.is_exact or len(guard.residues) != 1:
        return []
    part = guard.residues[0]
    strided = [name for name, k in part.affine.terms if k in (1, -1)]
    found = [{**loops, name: loops[name] // part.modulus} for name in strided]
    return [wanted for wanted in found if all(wanted.values())]


def _read_bytes_within(task: Task, array: ArrayInfo) -> int:
    """Returns a lower bound on the bytes of `array` that a task reads within its iteration-domain constraints.

    It does not count whole lines.
    """
    if task.is_guarded and not branch_cuts(task):
        return 0  # values decide
    loads = sure_loads(taken(task)) if branch_cuts(task) else sure_loads(task.value)
    finish = task.finish
    if finish_cuts(task):
        assert isinstance(finish, Select)
        finish = finish.a
    late = sure_loads(finish)
    accesses = {access_of(x) for x in (*loads, *late) if x.array == array.name}
    found = (_elements_within(task, access) for access in accesses)
    return max(found, default=0) * array.dtype.size_bytes


def _elements_within(task: Task, access: Access) -> int:
    """Returns a lower bound on the distinct elements of an access within iteration-domain constraints.

    It is 0 unless each axis is one loop.
    """
    names: list[str] = []
    for axis in access.axes:
        match axis:
            case Affine(_, ()):
                continue
            case Affine(_, ((name, _),)):
                names.append(name)
            case _:
                return 0
    return points(task, set(names)) if len(set(names)) == len(names) else 0


def _guarded_read_bytes(task: Task, array: ArrayInfo, accesses: set[Access], line: int) -> int:
    found, size, loops = 0, array.dtype.size_bytes, extents(task)
    for access, wanted in product(accesses, wanted_iterations(task)):
        strided = next((name for name in loops if wanted[name] != loops[name]), "")
        axes = [dict(a.terms) for a in access.axes if a is not None]
        along = [terms for terms in axes if strided in terms]
        if len(along) > 1 or any(len(terms) > 1 for terms in along):
            continue  # of axes that move together nothing is said
        elements = distinct_elements(access, wanted)
        step = loops[strided] // wanted[strided] if strided else 1
        is_contiguous = flat_strides(access, array).get(strided) == 1
        # A line may hold the end of a row and the beginning of the next: one more.
        per_line = -(-(line // size) // step) + 1 if is_contiguous else line // size
        found = max(found, elements * size, -(-elements // per_line) * line)
    return found


def written_bytes(task: Task, array: ArrayInfo) -> int:
    """Returns the guaranteed bytes of `array` that the task writes, by elements: a line may be written in part."""
    if not task.is_structured or task.target.array != array.name:
        return 0
    if cuts_of(task):
        is_sure = not task.is_guarded or branch_cuts(task)
        return _elements_within(task, task.target) * array.dtype.size_bytes if is_sure else 0
    if task.is_guarded and any(a is None or len(a.terms) > 1 for a in task.target.axes):
        return 0
    found = (distinct_elements(task.target, wanted) for wanted in wanted_iterations(task))
    return max(found, default=0) * array.dtype.size_bytes


def line_bytes(
    access: Access, loops: Mapping[str, int], array: ArrayInfo, line: int = LINE_BYTES
) -> int:
    """Returns a lower bound on the bytes of distinct cache lines that an access touches, for any alignment."""
    size = array.dtype.size_bytes
    elements = distinct_elements(access, loops)
    strides = flat_strides(access, array)
    step = gcd(*(stride for loop, stride in strides.items() if loops[loop] > 1))
    per_line = -(-(line // size) // max(step, 1))
    return max(elements * size, -(-elements // per_line) * line)


def distinct_elements(access: Access, loops: Mapping[str, int]) -> int:
    """Returns a lower bound on the number of distinct elements that an access touches; `loops`: extents by loop."""
    groups: list[tuple[set[str], int]] = []  # of axes that share loops: these loops, elements
    for axis in access.axes:
        if axis is None:
            continue
        names = {loop for loop, _ in axis.terms if loops[loop] > 1}
        count = _distinct_values(axis, loops)
        apart = [g for g in groups if not g[0] & names]
        for known, n in (g for g in groups if g[0] & names):
            # Axes that move together, such as a diagonal, make no box: one axis of them is certain.
            names, count = names | known, max(count, n)
        groups = [*apart, (names, count)]
    return prod(count for _, count in groups)


def _distinct_values(axis: Affine, loops: Mapping[str, int]) -> int:
    count, span, is_dense = 1, 0, True
    for step, n in sorted((abs(c), loops[loop]) for loop, c in axis.terms):
        if is_dense and step <= span + 1:
            count += step * (n - 1)
        elif step > span:
            count, is_dense = count * n, False
        else:
            count, is_dense = count + n - 1, False  # the least size of a sum of two sets
        span += step * (n - 1)
    return count
