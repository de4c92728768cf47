"""Gathering of scattered updates: loop distribution, and sums in locals in place of updates of elements.

Adjoints have many nests with such updates. A nest is cut into one for each set of loops that the elements of updates have. These
loops become outermost (loop interchange), and the others add up in a local. Where neighbouring iterations of the innermost loop
share elements, as in the adjoint of a stencil, it is cut into loops each of which updates elements of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from ..ir import kernel
from ..ir.simplify import const
from ..ir.walk import Renaming, children, loads, nested_statements, size, walk
from .derivatives.kept import differs
from .derivatives.naming import Names
from .derivatives.pruning import pruned, read_by

_MOST_WORK = 2.5  # of all nests together, in that of the one before

_Definition = kernel.SetLocal | kernel.UpdateLocal
_Loops = tuple[kernel.For, ...]


def gathered(ir: kernel.KernelIR) -> kernel.KernelIR:
    """Returns a kernel on plain arrays with sums in locals for elements that iterations of a nest share.

    A kernel whose sums have a fixed order is returned unchanged.
    """
    if not ir.fast_math or ir.placed or ir.trees or ir.shared:
        return ir
    names = Names(ir)
    body = tuple(t for s in ir.body for t in _gathered(s, names) or (s,))
    return replace(ir, body=body)


@dataclass(frozen=True)
class _Leaf:
    """A store or update of a nest, with the loops around it and the definitions of locals before it.

    `place` and the numbers of the definitions are positions in program order.
    """

    statement: kernel.Store | kernel.Update
    loops: _Loops
    definitions: tuple[tuple[int, _Definition], ...]
    place: int

    @property
    def axes(self) -> tuple[kernel.For, ...] | None:
        """The loop of each index that is no constant; None unless each depends on one loop, and no two on one."""
        found: list[kernel.For] = []
        for index in self.statement.indices:
            inside = {x.loop for x in walk(index) if isinstance(x, kernel.LoopIndex)}
            if not inside and all(
                isinstance(x, kernel.Const) for x in walk(index) if not children(x)
            ):
                continue
            moving = [loop for loop in self.loops if inside == {loop.loop}]
            if len(moving) != 1 or not differs(index, moving[0].loop, ()) or moving[0] in found:
                return None
            found += moving
        return tuple(found)

    @property
    def is_moved_in_its_row(self) -> bool:
        """True if the last index depends on the innermost loop, and on no other."""
        return differs(self.statement.indices[-1], self.loops[-1].loop, ())


@dataclass
class _Nest:
    """Statements of a nest: its stores and updates, and its loads by array, with positions in program order.

    `fits`: False if the nest has statements of other kinds, or reads locals that it does not set before.
    """

    leaves: list[_Leaf] = field(default_factory=list)
    loaded: dict[str, list[tuple[tuple[kernel.Expr, ...], int]]] = field(default_factory=dict)
    n_places: int = 0
    fits: bool = True

    def walk(
        self, body: Sequence[kernel.Stmt], loops: _Loops, before: Sequence[tuple[int, _Definition]]
    ) -> None:
        """Records the statements of a nest. `loops`: the loops around. `before`: definitions of locals before."""
        outer, definitions = {x.name for _, x in before}, list(before)
        known = set(outer)
        for s in body:
            self.n_places += 1
            for load in (x for e in children(s) for x in loads(e)):
                self.loaded.setdefault(load.array, []).append((load.indices, self.n_places))
            self.fits = self.fits and known.issuperset(read_by(s))
            match s:
                case kernel.SetLocal() | kernel.UpdateLocal():
                    is_unset = isinstance(s, kernel.UpdateLocal) and s.name not in known
                    self.fits = self.fits and s.name not in outer and not is_unset
                    known.add(s.name)
                    definitions.append((self.n_places, s))
                case kernel.For(extent=kernel.Const()):
                    self.walk(s.body, (*loops, s), definitions)
                case kernel.Store() | kernel.Update():
                    self.leaves.append(_Leaf(s, loops, tuple(definitions), self.n_places))
                case _:
                    self.fits = False

    def may_be_cut(self) -> bool:
        """True if each store or update may run in a nest of its own, the stores last."""
        updated = {x.statement.array for x in self.leaves if isinstance(x.statement, kernel.Update)}
        stores = [x for x in self.leaves if isinstance(x.statement, kernel.Store)]
        stored = {x.statement.array for x in stores}
        if len(stored) < len(stores) or updated & (stored | self.loaded.keys()):
            return False
        return all(map(self._is_last, stores)) and all(
            not isinstance(x.statement, kernel.Update) or _is_sum(x) for x in self.leaves
        )

    def _is_last(self, store: _Leaf) -> bool:
        """True if a store of a constant is behind all loads of its element, which no other iteration loads."""
        s, axes = store.statement, store.axes
        if axes is None or len(axes) < len(store.loops) or not isinstance(s.value, kernel.Const):
            return False
        found = self.loaded.get(s.array, [])
        return all(indices == s.indices and place < store.place for indices, place in found)


def _is_sum(leaf: _Leaf) -> bool:
    s = leaf.statement
    assert isinstance(s, kernel.Update)
    return s.op == "add" and not s.result and bool(leaf.axes)


def _gathered(s: kernel.Stmt, names: Names) -> list[kernel.Stmt] | None:
    """Returns the nests that replace a statement; None if it stays as it is."""
    if not isinstance(s, kernel.For):
        return None
    nest = _Nest()
    nest.walk((s,), (), ())
    if not nest.leaves or not nest.fits or not nest.may_be_cut():
        return None
    groups: dict[tuple[_Loops, _Loops], list[_Leaf]] = {}
    for leaf in nest.leaves:
        if isinstance(leaf.statement, kernel.Update):
            assert leaf.axes is not None
            groups.setdefault((leaf.loops, leaf.axes), []).append(leaf)
    stores = [x for x in nest.leaves if isinstance(x.statement, kernel.Store)]
    if all(len(axes) == len(loops) for loops, axes in groups):
        made = _in_rows(nest.leaves, names)
    elif not _leaves_scalar([x for of_group in groups.values() for x in of_group]):
        return None
    else:
        made = [_summed(axes, leaves, names) for (_, axes), leaves in groups.items()]
        made += [_around(x.loops, [x.statement], names) for x in stores]
    return made if made and _work(made) <= _MOST_WORK * _work((s,)) else None


def _leaves_scalar(updates: Sequence[_Leaf]) -> bool:
    """True if vectors of iterations of some innermost loop could not store contiguously.

    The loop strides through an array, or moves some of the array's updates and not others.
    """
    moved: dict[str, set[bool]] = {}
    for x in updates:
        axes, last = x.axes or (), x.loops[-1]
        if last in axes[:-1]:
            return True
        moved.setdefault(x.statement.array, set()).add(last in axes)
    return any(len(found) > 1 for found in moved.values())


def _summed(axes: _Loops, leaves: Sequence[_Leaf], names: Names) -> kernel.Stmt:
    """Returns the nest for updates whose elements depend on the loops `axes`; the other loops sum into locals."""
    over = tuple(x for x in leaves[-1].loops if x not in axes)
    body = _ordered(leaves)
    if not over:
        return _around(axes, body, names)
    begin, end = list[kernel.Stmt](), list[kernel.Stmt]()
    for x in leaves:
        s, total, dtype = x.statement, names.fresh("sum"), x.statement.value.dtype
        begin.append(kernel.SetLocal(total, const(0, dtype), s.where))
        body[body.index(s)] = kernel.UpdateLocal(total, "add", s.value, s.where)
        end.append(replace(s, value=kernel.Local(total, dtype)))
    return _around(axes, [*begin, _plain(over, body), *end], names)


def _in_rows(leaves: Sequence[_Leaf], names: Names) -> list[kernel.Stmt]:
    """Returns the nest with an innermost loop for each last index of updates; [] if rows share no array."""
    *outer, last = loops = leaves[0].loops
    if not outer or any(x.loops != loops or not x.is_moved_in_its_row for x in leaves):
        return []
    rows: dict[kernel.Expr | None, list[_Leaf]] = {}
    for x in leaves:
        place = x.statement.indices[-1] if isinstance(x.statement, kernel.Update) else None
        rows.setdefault(place, []).append(x)
    stores = rows.pop(None, [])
    of_arrays = [len({x.statement.array for x in row}) for row in rows.values()]
    if sum(of_arrays) == len({x.statement.array for row in rows.values() for x in row}):
        return []
    made = [_around((last,), _ordered(row), names) for row in rows.values()]
    if stores:
        made.append(_around((last,), [x.statement for x in stores], names))
    return [_plain(tuple(outer), made)]


def _ordered(leaves: Sequence[_Leaf]) -> list[kernel.Stmt]:
    """Returns the statements of leaves and the definitions before them, in program order."""
    found: dict[int, kernel.Stmt] = dict(leaves[-1].definitions)
    found |= {x.place: x.statement for x in leaves}
    return [s for _, s in sorted(found.items(), key=itemgetter(0))]


def _plain(loops: _Loops, body: Sequence[kernel.Stmt]) -> kernel.Stmt:
    made = tuple(body)
    for loop in reversed(loops):
        made = (replace(loop, body=made),)
    return made[0]


def _around(loops: _Loops, body: Sequence[kernel.Stmt], names: Names) -> kernel.Stmt:
    """Returns `body` in loops, without statements that no array needs; loops and locals get new unused names."""
    (nest,) = pruned((_plain(loops, body),))
    inside = [nest, *nested_statements((nest,))]
    own = {s.loop: names.fresh(s.loop) for s in inside if isinstance(s, kernel.For)}
    types = {s.name: s.value.dtype for s in inside if isinstance(s, kernel.SetLocal)}
    new = {n: names.fresh(n) for n in types}
    renaming = Renaming(
        loops={old: kernel.LoopIndex(name) for old, name in own.items()},
        locals={old: kernel.Local(name, types[old]) for old, name in new.items()},
    )

    def named(s: kernel.Stmt) -> kernel.Stmt:
        match s:
            case kernel.SetLocal() | kernel.UpdateLocal():
                return replace(s, name=new[s.name])
            case kernel.For():
                return replace(s, body=tuple(map(named, s.body)))
        return s

    return named(renaming.apply_stmt(nest))


def _work(body: Sequence[kernel.Stmt]) -> int:
    """Returns the number of operations of statements in loops of constant extent."""
    return sum(n * _size(s) for s, n in _often(body, 1))


def _often(body: Sequence[kernel.Stmt], n: int) -> Iterator[tuple[kernel.Stmt, int]]:
    for s in body:
        yield s, n
        if isinstance(s, kernel.For) and isinstance(s.extent, kernel.Const):
            yield from _often(s.body, n * max(0, int(s.extent.value)))


def _size(s: kernel.Stmt) -> int:
    return 0 if isinstance(s, kernel.For) else sum(map(size, children(s)))
