"""Loop distribution, second half: tests if the flat statements of a nest may run one after the other.

Each then runs over all its loops. This is legal if no instance of a later statement must run before an instance of an earlier one:
for every conflicting pair the iteration of the earlier statement is not after that of the later one on their shared loops. A
statement conflicts with itself only within one iteration, recognised reductions aside (Kennedy and Allen's distribution theorem
without cycles).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..analysis.conflicts import meet_at, meet_in
from ..ir.access import AccessSet, maps_of
from ..ir.affine import Affine, to_affine
from ..ir.body import Closure
from ..ir.domain import BOX
from ..ir.kernel import NOWHERE, Expr, Load, Location, ReduceOp, Select
from ..ir.walk import loads
from . import distribute
from .guards import Conditions, guard_of, negated


@dataclass(frozen=True)
class AccessUse:
    """One access of a flat statement, with the loops around it."""

    array: str
    axes: tuple[Affine, ...]
    path: distribute.Path
    is_write: bool
    op: ReduceOp | None = None  # of an update
    conditions: Conditions = ()

    @property
    def elements(self) -> AccessSet:
        return AccessSet(BOX, self.path, maps_of(self.axes), guard_of(self.conditions, self.path))


def affine_axes(indices: tuple[Expr, ...], where: Location = NOWHERE) -> tuple[Affine, ...]:
    """Returns index expressions as affine expressions. Raises NotStructuredError."""
    axes = tuple(to_affine(i) for i in indices)
    found = tuple(a for a in axes if a is not None)
    if len(found) != len(axes):
        raise distribute.NotStructuredError(
            Closure.INDEX, "an index that is not affine in the loop indices", where
        )
    return found


def uses_of(s: distribute.Flat) -> tuple[AccessUse, ...]:
    """Returns all accesses of a flat statement. Raises NotStructuredError."""
    path = distribute.full_path(s)
    result = [
        AccessUse(x.array, affine_axes(x.indices, s.where), path, False, conditions=conditions)
        for e in distribute.reads_of(s)
        for x, conditions in _wanted_loads(e, s)
    ]
    if isinstance(s, distribute.ArrayAssignment):
        axes = affine_axes(s.indices, s.where)
        result.append(AccessUse(s.array, axes, path, True, s.op, s.conditions))
    return tuple(dict.fromkeys(result))


def _wanted_loads(e: Expr, s: distribute.Flat) -> Iterator[tuple[Load, Conditions]]:
    """Yields the loads in an expression, each with the conditions under which its value is used.

    A term of a sum that is added in some iterations only may load any value in the others.
    """
    match e:
        case Select(condition, a, b) if isinstance(s, distribute.Reduce):
            for x in loads(condition):
                yield x, s.conditions
            for x in loads(a):
                yield x, (*s.conditions, condition)
            for x in loads(b):
                yield x, (*s.conditions, negated(condition))
        case _:
            for x in loads(e):
                yield x, s.conditions


def check_distribution(flat: tuple[distribute.Flat, ...], fast_math: bool) -> None:
    """Raises NotStructuredError if the flat statements may not be distributed."""
    uses = [uses_of(s) for s in flat]
    for first, earlier in enumerate(uses):
        for second in range(first + 1, len(uses)):
            for a in earlier:
                for b in uses[second]:
                    _check_pair(a, b, fast_math, flat[second].where)
        statement = flat[first]
        if isinstance(statement, distribute.ArrayAssignment):
            _check_self(statement, earlier)


def _check_pair(a: AccessUse, b: AccessUse, fast_math: bool, where: Location) -> None:
    if a.array != b.array or not (a.is_write or b.is_write):
        return
    if a.op is not None and a.op == b.op and (fast_math or a.op in ("min", "max")):
        return  # updates by one operator commute
    shared = _shared(a.path, b.path)
    for level, loop in enumerate(shared):
        if not loop.is_step and meet_at(b.elements, a.elements, shared, level):
            name = distribute.user_loop(loop.name)
            raise distribute.NotStructuredError(
                Closure.CARRIED, f"{a.array}, of which the loop {name} needs older values", where
            )


def _check_self(s: distribute.ArrayAssignment, uses: tuple[AccessUse, ...]) -> None:
    write = next(u for u in uses if u.is_write)
    over = reduction_loops(s)
    reads_own = any(u.array == s.array and not u.is_write for u in uses)
    if over and reads_own:
        raise distribute.NotStructuredError(
            Closure.CARRIED, f"a reduction into {s.array} that reads {s.array}", s.where
        )
    path = tuple(loop for loop in s.path if loop not in over)
    write = replace(write, path=path, op=None)
    for u in uses:
        if u.array == s.array and carried(replace(u, path=path, op=None), write, path):
            raise distribute.NotStructuredError(
                Closure.CARRIED, f"iterations of one statement that conflict in {s.array}", s.where
            )


def carried(read: AccessUse, write: AccessUse, path: distribute.Path) -> bool:
    """True if `read` and `write` may access one element in iterations that differ in the shared loops `path`."""
    return meet_in(read.elements, write.elements, path)


def reduction_loops(s: distribute.ArrayAssignment) -> distribute.Path:
    """Returns the reduction loops of an update: the loops that do not occur in the indices of its target."""
    if s.op is None:
        return ()
    named = {name for axis in affine_axes(s.indices) for name, _ in axis.terms}
    return tuple(loop for loop in s.path if loop.name not in named and not loop.is_step)


def _shared(a: distribute.Path, b: distribute.Path) -> distribute.Path:
    n = 0
    while n < min(len(a), len(b)) and a[n].name == b[n].name:
        n += 1
    return a[:n]


def writes_between(
    flat: tuple[distribute.Flat, ...], start: int, use: int, arrays: frozenset[str]
) -> bool:
    """True if moving a read from statement `start` to statement `use` may cross a write to `arrays`.

    It crosses the statements between, and all statements of the loops around the use but not the start: they run again.
    """
    at, to = distribute.full_path(flat[start]), distribute.full_path(flat[use])
    if isinstance(flat[start], distribute.Reduce):
        at = flat[start].path
    around = {loop.name for loop in to[len(_shared(at, to)) :]}
    for k, s in enumerate(flat):
        if k == start:
            continue
        inside = start < k < use or any(loop.name in around for loop in distribute.full_path(s))
        if isinstance(s, distribute.ArrayAssignment) and s.array in arrays and inside:
            return True
    return False
