"""Merged calls: loops of consecutive calls are fused, so that values stay in registers and caches.

They are fused if no iteration of a later loop uses elements that another iteration of an earlier loop changes. A loop moves up to
the first loop with which it may be fused, past all statements on which it does not depend. It moves past other loops only to a loop
with which it shares an array: else its elements would leave the caches before the loops behind it use them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..ir import kernel as ir
from ..ir.walk import Renaming, children, nested_statements, walk

_MOST_STATEMENTS = 1600  # of a merged loop: one pass of three channels of MacCormack's advection in 3D, 0.7 s of gcc
_MOST_PASSED = 64  # groups that a loop may move past
_MOST_ROTATIONS = 4  # that are tried
_MOST_ROTATED = 256  # parts of a window that may begin later
_OF_LOCALS = (ir.Local, ir.LocalElement, ir.SetLocal, ir.UpdateLocal, ir.LocalArray, ir.SetElement)
_ON_TREES = (
    ir.ForActive,
    ir.Activate,
    ir.Append,
    ir.Deactivate,
    ir.IsActive,
    ir.Length,
    ir.Item,
    ir.Placed,
)
Loop = ir.For | ir.ForActive


@dataclass(frozen=True, eq=False)
class IndependentPart:
    """Top-level statements of a call, from number `first` on, that share no local with other statements.

    `placed`: the tree of each sparse field, by array.
    """

    first: int
    body: tuple[ir.Stmt, ...]
    placed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def loop(self) -> Loop | None:
        """The part as a loop, if it is one loop; else None."""
        (s, *more) = self.body
        return s if isinstance(s, ir.For | ir.ForActive) and not more else None

    @cached_property
    def uses(self) -> dict[str, list[tuple[ir.Expr, ...]]]:
        """The indices of all accesses of the part, by array."""
        return _uses(self.body)

    @cached_property
    def writes(self) -> list[ir.Store | ir.Update]:
        return [s for s in nested_statements(self.body) if isinstance(s, ir.Store | ir.Update)]

    @cached_property
    def changed(self) -> frozenset[str]:
        """The arrays that the part writes."""
        return frozenset(s.array for s in self.writes)

    @cached_property
    def read(self) -> frozenset[str]:
        """The arrays whose values the part uses: those that it loads or updates."""
        loaded = {x.array for s in nested_statements(self.body) for x in _loads(s)}
        return frozenset(loaded | {s.array for s in self.writes if isinstance(s, ir.Update)})

    @cached_property
    def trees(self) -> frozenset[str]:
        """The trees whose cells the part uses."""
        every = list(nested_statements(self.body))
        found = {x.tree for x in every if isinstance(x, _ON_TREES)}
        found |= {x.tree for s in every for x in _parts(s) if isinstance(x, _ON_TREES)}
        return frozenset(found | {self.placed[x] for x in self.uses if x in self.placed})

    @cached_property
    def params(self) -> frozenset[str]:
        """The scalar arguments that the part reads."""
        every = (x for s in nested_statements(self.body) for x in _parts(s))
        return frozenset(x.name for x in every if isinstance(x, ir.Param))

    @cached_property
    def sums(self) -> dict[str, str]:
        """The operation of each array that the part only updates, always by that operation, and never reads."""
        found: dict[str, str] = {}
        for s in self.writes:
            is_sum = isinstance(s, ir.Update) and not s.result
            op = s.op if isinstance(s, ir.Update) and is_sum else ""
            found[s.array] = op if found.get(s.array, op) == op else ""
        read = {x.array for s in nested_statements(self.body) for x in _loads(s)}
        return {array: op for array, op in found.items() if op and array not in read}

    @cached_property
    def scattered(self) -> frozenset[str]:
        """The arrays that the part only updates, some of them at elements of other iterations of its loop."""
        loop = self.loop
        if not isinstance(loop, ir.For):
            return frozenset()
        far = (s for s in self.writes if not _axes_of(s.indices, loop.loop))
        return frozenset(s.array for s in far) & self.sums.keys()

    @cached_property
    def looks_up(self) -> bool:
        """True if values decide where the part accesses an array."""
        places = (x for every in self.uses.values() for at in every for i in at for x in walk(i))
        return any(isinstance(x, ir.Load | ir.Local) for x in places)

    @cached_property
    def relaxes(self) -> bool:
        """True if the part is a loop over active cells that stores some of them by values of others, as coloured sweeps do.

        Compilers keep such a loop scalar, with all loops that become one with it.
        """
        loop = self.loop
        if not isinstance(loop, ir.ForActive):
            return False
        guarded = [s for s in nested_statements(loop.body) if isinstance(s, ir.If)]
        inside = [x for s in guarded for x in nested_statements((*s.then, *s.orelse))]
        stored = {x.array for x in inside if isinstance(x, ir.Store)}
        return any(not _are_own(self.uses[array], loop.loops) for array in stored)

    @cached_property
    def size(self) -> int:
        """Number of statements of the part."""
        return sum(1 for _ in nested_statements(self.body))

    @cached_property
    def asserts(self) -> bool:
        return any(isinstance(s, ir.Assert) for s in nested_statements(self.body))


@dataclass(frozen=True, eq=False)
class PlacedPart:
    """Independent part of call number `call` of a window.

    `reshapes`: the trees whose active cells it may change. `fast_math`: its sums may be reassociated.
    """

    call: int
    part: IndependentPart
    fast_math: bool
    reshapes: frozenset[str] = frozenset()

    @property
    def may_fail(self) -> bool:
        """True if the part may end the window with an error.

        All parts before it must have run then, and none behind it.
        """
        return bool(self.reshapes) or self.part.asserts


def groups_of(placings: Sequence[PlacedPart]) -> list[list[PlacedPart]]:
    """Returns the parts in groups, in order; the parts of a group are loops that become one loop."""
    groups: list[list[PlacedPart]] = []
    for x in placings:
        found = None
        for k in reversed(range(max(0, len(groups) - _MOST_PASSED), len(groups))):
            is_next = k == len(groups) - 1
            if _may_join(groups[k], x) and (is_next or _share_arrays(groups[k], x)):
                found = k
            if any(_depends(x, y) for y in groups[k]):
                break
        if found is None:
            groups.append([x])
        else:
            groups[found].append(x)
    return groups


def rotation_of(
    placings: Sequence[PlacedPart],
    n_calls: int,
    live: Callable[[Sequence[PlacedPart]], Sequence[PlacedPart]] = lambda x: x,
) -> int:
    """Returns the number of calls after which a window that follows itself should begin, so that fewest loops are left.

    0 if no other begin leaves fewer. Loops of one run then join loops of the run before. `placings`: the parts of its `n_calls`
    calls. `live`: parts of a window to those that are left of it.
    """
    if len(placings) > _MOST_ROTATED:
        return 0
    again = [replace(x, call=x.call + n_calls) for x in placings]
    joined = [[x.call for x in some] for some in groups_of([*placings, *again])]
    across = [calls for calls in joined if calls[0] < n_calls <= calls[-1]]
    begins = sorted({max(k for k in calls if k < n_calls) for calls in across} - {0})
    least, found = len(groups_of(live(placings))), 0
    for n in begins[:_MOST_ROTATIONS]:
        rotated = sorted(placings, key=lambda x: x.call < n)
        n_groups = len(groups_of(live(rotated)))
        if n_groups < least:
            least, found = n_groups, n
    return found


def one_loop(loops: Sequence[Loop]) -> Loop:
    """Returns the fusion of the loops of one group. Where two bodies join, inner loops are fused, too."""
    first, *more = loops
    for loop in more:
        first = _as_one(first, loop)
    return first


class CallNames:
    """Renaming of the nodes of one call: arrays and trees to those of the window, other names with a suffix."""

    def __init__(
        self, arrays: Mapping[str, str], trees: Mapping[str, str], suffix: str = ""
    ) -> None:
        self._arrays, self._trees, self._suffix = arrays, trees, suffix

    def own(self, name: str) -> str:
        return name + self._suffix

    def __call__(self, x: Any) -> Any:
        if isinstance(x, _ON_TREES):
            x = replace(x, tree=self._trees.get(x.tree, x.tree))
        if isinstance(x, ir.Load | ir.Store | ir.Update | ir.Placed):
            x = replace(x, array=self._arrays.get(x.array, x.array))
        if isinstance(x, ir.Update | ir.Append):
            return replace(x, result=self.own(x.result)) if x.result else x
        if isinstance(x, ir.LoopIndex | ir.For):
            return replace(x, loop=self.own(x.loop))
        if isinstance(x, ir.ForActive):
            return replace(x, loops=tuple(map(self.own, x.loops)))
        if isinstance(x, (*_OF_LOCALS, ir.Param)):
            return replace(x, name=self.own(x.name))
        return x


def _depends(x: PlacedPart, y: PlacedPart) -> bool:
    """True if part `x` must stay behind part `y`."""
    a, b = x.part, y.part
    if x.may_fail or y.may_fail:
        return True
    if not (x.reshapes.isdisjoint(b.trees) and y.reshapes.isdisjoint(a.trees)):
        return True
    return not (a.changed.isdisjoint(b.uses) and b.changed.isdisjoint(a.uses))


def _may_join(group: Sequence[PlacedPart], x: PlacedPart) -> bool:
    """True if a loop may be fused with the loops of a group."""
    if x.may_fail or any(y.may_fail or y.fast_math != x.fast_math for y in group):
        return False
    if sum(y.part.size for y in group) + x.part.size > _MOST_STATEMENTS:
        return False
    return all(_may_be_one(y.part, x.part, fast_math=x.fast_math) for y in group)


def _share_arrays(group: Sequence[PlacedPart], x: PlacedPart) -> bool:
    """True if a loop uses an array that loops of a group use."""
    return any(y.part.uses.keys() & x.part.uses.keys() for y in group)


def _may_be_one(a: IndependentPart, b: IndependentPart, *, fast_math: bool) -> bool:
    """True if two outermost loops may be fused, because their parallel iterations stay independent."""
    match a.loop, b.loop:
        case ir.For() as x, ir.For() as y:
            if not all(_writes_own(loop, part) for loop, part in ((x, a), (y, b))):
                return False
            scatters = a.scattered or b.scattered
            if scatters and not (a.looks_up and b.looks_up):  # other loops run in vectors
                return False
            is_near = bool(x.body and y.body and a.uses.keys() & b.uses.keys())
            return is_near and _are_apart(x, y)
        case ir.ForActive() as x, ir.ForActive() as y:
            if (x.tree, x.node) != (y.tree, y.node) or a.relaxes != b.relaxes:
                return False
            return all(
                _are_own(a.uses[array], x.loops) and _are_own(b.uses[array], y.loops)
                for array in a.uses.keys() & b.uses.keys() & (a.changed | b.changed)
                if not _is_one_sum(array, a, b, fast_math=fast_math)
            )
    return False


def _writes_own(loop: ir.For, part: IndependentPart) -> bool:
    """True if each iteration of a loop only writes elements of its own, but for updates of arrays that are not read."""
    return all(_axes_of(s.indices, loop.loop) or s.array in part.scattered for s in part.writes)


def _is_one_sum(array: str, a: IndependentPart, b: IndependentPart, *, fast_math: bool) -> bool:
    """True if two parts only update an array, by one operation, and the order of updates is free.

    Sums of floats need `fast_math`.
    """
    op = a.sums.get(array)
    if op is None or b.sums.get(array) != op:
        return False
    dtype = next(s.value.dtype for s in a.writes if s.array == array)
    return fast_math or not dtype.is_float


def _are_own(indices: Sequence[tuple[ir.Expr, ...]], loops: tuple[str, ...]) -> bool:
    """True if all accesses at these indices are to the current cell of a loop over active cells."""
    return all(
        len(at) >= len(loops) > 0
        and all(
            isinstance(x, ir.LoopIndex) and x.loop == loop
            for x, loop in zip(map(_plain, at[-len(loops) :]), loops, strict=True)
        )
        for at in indices
    )


def _as_one(a: Loop, b: Loop) -> Loop:
    names = zip(_loops(b), _loops(a), strict=True)
    of_a = Renaming(loops={old: ir.LoopIndex(new) for old, new in names})
    body = tuple(map(of_a.apply_stmt, b.body))
    if not (a.body and body):
        return replace(a, body=(*a.body, *body))
    *before, last = a.body
    first, *behind = body
    if isinstance(last, ir.For) and isinstance(first, ir.For) and _are_apart(last, first):
        return replace(a, body=(*before, _as_one(last, first), *behind))
    return replace(a, body=(*a.body, *body))


def _loops(x: Loop) -> tuple[str, ...]:
    return x.loops if isinstance(x, ir.ForActive) else (x.loop,)


def _are_apart(a: ir.For, b: ir.For) -> bool:
    """True if two loops of equal constant extents conflict only in equal iterations."""
    if not isinstance(a.extent, ir.Const) or a.extent != b.extent:
        return False
    every = nested_statements((*a.body, *b.body))
    changed = {s.array for s in every if isinstance(s, ir.Store | ir.Update)}
    used_a, used_b = _uses(a.body), _uses(b.body)
    for array in used_a.keys() & used_b.keys() & changed:
        axes = [_axes_of(at, a.loop) for at in used_a[array]]
        axes += [_axes_of(at, b.loop) for at in used_b[array]]
        if not set.intersection(*axes):
            return False
    return True


def _axes_of(indices: tuple[ir.Expr, ...], loop: str) -> set[int]:
    """Returns the axes along which the index is exactly that of the loop."""
    plain = map(_plain, indices)
    return {k for k, x in enumerate(plain) if isinstance(x, ir.LoopIndex) and x.loop == loop}


def _plain(x: ir.Expr) -> ir.Expr:
    return x.x if isinstance(x, ir.Cast) and x.dtype is ir.DType.i64 else x


def _uses(body: tuple[ir.Stmt, ...]) -> dict[str, list[tuple[ir.Expr, ...]]]:
    """Returns the indices of all accesses of statements, by array."""
    found: dict[str, list[tuple[ir.Expr, ...]]] = {}
    for s in nested_statements(body):
        if isinstance(s, ir.Store | ir.Update):
            found.setdefault(s.array, []).append(s.indices)
        for x in _loads(s):
            found.setdefault(x.array, []).append(x.indices)
    return found


def _loads(s: ir.Stmt) -> Iterator[ir.Load]:
    return (x for x in _parts(s) if isinstance(x, ir.Load))


def _parts(s: ir.Stmt) -> Iterator[ir.Expr]:
    return (x for e in children(s) for x in walk(e))
