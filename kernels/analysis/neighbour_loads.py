"""Load grouping: loads of one iteration from elements a few positions apart, unchanged between the loads.

Vectorised code may then load all elements of a group at once for each iteration, instead of one gather for each element
(codegen/bodies/lanes_neighbours.py). Memory between two elements that a program reads is inside of the array, too.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from ..ir import kernel as ir
from ..ir.affine import Affine, to_affine
from ..ir.walk import blocks, children, local_changed, mapped, nested_statements, written_in

GROUP_BYTES = 16  # vector instructions that exchange elements do so within groups of these

# An array, what holds of it, and its indices without their constants.
_Key = tuple[str, int, tuple[ir.Expr | None, ...]]


@dataclass(frozen=True)
class LoadGroup:
    """Load group: elements of one array at constant distances in memory (row-major order).

    `load` is the group's first load in the text. The group's first element is `before` positions in front of that of `load`.
    """

    number: int  # of those of a block
    place: int  # the number of where the first is: groups of several arrays may be at the same
    load: ir.Load
    before: int


@dataclass(frozen=True)
class Near:
    """Contiguous elements around members of a load group: `length` elements from position `start` of the group."""

    group: LoadGroup
    start: int
    length: int


@dataclass(frozen=True)
class _SeenLoad:
    """A load in a statement; `distance`, in elements, is the row-major offset by the constants in its indices."""

    at: int
    load: ir.Load
    distance: int


def split_constant(e: ir.Expr) -> tuple[ir.Expr | None, int]:
    """Returns an index as a pair: an expression (None for a constant index) and the constant added to it.

    Integer sums that may wrap around are not split.
    """
    match e:
        case ir.Const(value, dtype) if not dtype.is_float:
            return None, int(value)
        case ir.Cast(x, dtype) if _is_wider(x.dtype, dtype):
            base, n = split_constant(x)
            return (None if base is None else ir.Cast(base, dtype)), n
        case ir.Binary("add", a, b, dtype) if dtype.is_index:
            (left, n), (right, m) = split_constant(a), split_constant(b)
            if left is None or right is None:
                return (right if left is None else left), n + m
            return ir.Binary("add", left, right, dtype), n + m
        case ir.Binary("sub", a, ir.Const(value=value), dtype) if dtype.is_index:
            base, n = split_constant(a)
            return base, n - int(value)
    return e, 0


def _is_wider(of: ir.DType, to: ir.DType) -> bool:
    return of.is_index and to.is_index and to.size_bytes >= of.size_bytes


def row_length(dtype: ir.DType) -> int:
    """Returns the greatest length of a row that is loaded as one vector, in elements of this type."""
    return max(1, GROUP_BYTES // dtype.size_bytes) if dtype.size_bytes >= 4 else 1


def near_loads(
    body: Sequence[ir.Stmt],
    shape_of: Callable[[str], Sequence[int]],
    may: Callable[[ir.Load], bool],
    most: Callable[[ir.DType], int],
    given: Container[str] = (),
) -> tuple[Mapping[ir.Load, tuple[Near, int]], ...]:
    """Returns for each statement its grouped loads with the contiguous elements around each (`Near`).

    With each load is also its position in these elements.
    `shape_of`: shape of an array. `may`: True for a load that may join a group. `most`: for each type the largest number of
    elements from the first to the last. `given`: locals whose values are not searched for loads.
    Loads that short-circuit evaluation may skip are ignored. Nested blocks are analysed by themselves.
    """
    found: list[dict[ir.Load, tuple[Near, int]]] = [{} for _ in body]
    places: dict[tuple[object, ...], int] = {}
    for number, (key, seen) in enumerate(_groups(body, shape_of, may, given).items()):
        array, _, bases = key
        runs = _runs(sorted({x.distance for x in seen}), most(seen[0].load.dtype))
        kept = {n for run in runs for n in run}
        seen = [x for x in seen if x.distance in kept]
        if not seen or max(kept) - min(kept) >= prod(shape_of(array)):
            continue
        # The place is computed at the first load: locals in the indices of the others may have other values there.
        place = places.setdefault((*shape_of(array), bases, min(kept)), len(places))
        group = LoadGroup(number, place, seen[0].load, seen[0].distance - min(kept))
        for run in runs:
            near = Near(group, run[0] - min(kept), run[-1] - run[0] + 1)
            for x in (x for x in seen if run[0] <= x.distance <= run[-1]):
                found[x.at][x.load] = near, x.distance - run[0]
    return tuple(found)


def _groups(
    body: Sequence[ir.Stmt],
    shape_of: Callable[[str], Sequence[int]],
    may: Callable[[ir.Load], bool],
    given: Container[str],
) -> dict[_Key, list[_SeenLoad]]:
    """Returns the loads of a block by array and indices without constants, each group in the order of the text."""
    groups: dict[_Key, list[_SeenLoad]] = {}
    versions, answers = _Versions(), dict[_Key, bool]()
    for at, s in enumerate(body):
        is_given = isinstance(s, ir.SetLocal) and s.name in given
        evaluated = () if is_given else _evaluated(s)
        for load in dict.fromkeys(x for e in evaluated for x in _sure(e)):
            parts = [split_constant(versions.seen(i)) for i in load.indices]
            key = load.array, versions.of(load.array), tuple(base for base, _ in parts)
            if key not in answers:
                answers[key] = may(load)
            if answers[key]:
                distance = 0
                for (_, n), extent in zip(parts, shape_of(load.array), strict=True):
                    distance = distance * extent + n
                groups.setdefault(key, []).append(_SeenLoad(at, load, distance))
        versions.change(s)
    return groups


def _runs(distances: Sequence[int], most: int) -> list[list[int]]:
    """Splits sorted positions of elements into runs of at least two; each spans less than `most` elements.

    Positions that fit into no run are left out.
    """
    runs: list[list[int]] = []
    for n in distances:
        if runs and n - runs[-1][0] < most:
            runs[-1].append(n)
        else:
            runs.append([n])
    for k in range(1, len(runs)):  # what would be alone takes one of those before it
        if len(runs[k]) == 1 and len(runs[k - 1]) > 2 and runs[k][0] - runs[k - 1][-1] < most:
            runs[k].insert(0, runs[k - 1].pop())
    return [run for run in runs if len(run) > 1]


def _evaluated(s: ir.Stmt) -> tuple[ir.Expr, ...]:
    """Returns the expressions of a statement that are evaluated exactly once, before it has any effect."""
    match s:
        case ir.If(condition):
            return (condition,)
        case ir.SetLocal() | ir.UpdateLocal() | ir.SetElement() | ir.Store() | ir.Update():
            return tuple(children(s))
    return ()


def _sure(e: ir.Expr) -> Iterator[ir.Load]:
    """Yields the loads that may run wherever `e` is evaluated. Both sides of a selection are among them."""
    match e:
        case ir.Binary("and" | "or", a, _):
            yield from _sure(a)
            return
        case ir.Load():
            yield e
    for x in children(e):
        yield from _sure(x)


@dataclass
class _Versions:
    """Value numbering at a position of a block: each local and array name has the number of its current version."""

    numbers: dict[str, int] = field(default_factory=dict)
    meanings: dict[str, ir.Expr] = field(default_factory=dict)  # of locals: others, and a constant

    def of(self, name: str) -> int:
        return self.numbers.get(name, 0)

    def seen(self, e: ir.Expr) -> ir.Expr:
        """Returns an expression with versioned names. Equal versioned expressions have equal values."""
        e = mapped(e, self.seen, lambda s: s)
        match e:
            case ir.Local(name, dtype):
                meaning = self.meanings.get(name)
                if meaning is not None and meaning.dtype is dtype:
                    return meaning
                return replace(e, name=f"{name}@{self.of(name)}")
            case ir.LocalElement(name):
                return replace(e, name=f"{name}@{self.of(name)}")
            case ir.Load(array):
                return replace(e, array=f"{array}@{self.of(array)}")
        return e

    def change(self, s: ir.Stmt) -> None:
        """Gives a new version number to each local and array that statement `s` changes."""
        meaning = self.seen(s.value) if isinstance(s, ir.SetLocal) else None
        changed = {local_changed(x) for x in nested_statements((s,))} | written_in((s,))
        for name in changed:
            self.numbers[name] = self.of(name) + 1
            self.meanings.pop(name, None)
        if isinstance(s, ir.SetLocal) and meaning is not None and _is_short(meaning):
            self.meanings[s.name] = meaning


def _is_short(e: ir.Expr) -> bool:
    """True if an index is one operand plus a constant, so that expressions built from it stay short."""
    base, _ = split_constant(e)
    while isinstance(base, ir.Cast) and _is_wider(base.x.dtype, base.dtype):
        base = base.x
    return base is None or isinstance(base, ir.Local)


def _is_strided(axes: Sequence[Affine | None]) -> bool:
    last = axes[-1] if axes else None
    return last is not None and not last.terms and any(x.terms for x in axes if x is not None)


def has_near_loads(
    body: Sequence[ir.Stmt],
    shape_of: Callable[[str], Sequence[int]],
    most: Callable[[ir.DType], int],
) -> bool:
    """True if a body, at any depth, has neighbouring loads that are not contiguous from iteration to iteration.

    Their indices are not affine, or no loop runs along the last axis. `shape_of`: shape of an array. `most`: for each type the
    largest number of elements from the first to the last.
    """

    def may(load: ir.Load) -> bool:
        axes = [to_affine(i) for i in load.indices]
        is_apart = None in axes or _is_strided(axes)
        return most(load.dtype) > 1 and is_apart

    every = [tuple(body), *(b for s in nested_statements(tuple(body)) for b in blocks(s))]
    return any(any(near_loads(b, shape_of, may, most)) for b in every)
