"""Scalar replacement of local arrays: loops over their elements are written out, and each element becomes a local.

A compiler keeps an array in registers only where all of its indices are constants. After Callahan, Carr and Kennedy (Improving
Register Allocation for Subscripted Variables, PLDI 1990), and loop unrolling (Allen and Kennedy, 2001, section 8.4).
Where one local decides which of few elements an index denotes, as the row of a pivot, it selects among their locals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..ir import kernel as ir
from ..ir.simplify import const, select, simplified
from ..ir.walk import (
    children,
    coerced,
    identified,
    local_changed,
    locals_read,
    mapped,
    nested_statements,
    size,
    walk,
)

_MOST_ELEMENTS = 64  # of one array
_MOST_SELECTED = 8  # elements of which a local selects one
_MOST_NODES = 1 << 13  # of the expressions of a body in which loops are written out
_MOST_KEPT = 64

Statements = tuple[ir.Stmt, ...]


@lru_cache(maxsize=_MOST_KEPT)
def in_locals(body: Statements, used: frozenset[str] = frozenset()) -> Statements | None:
    """Returns the body with elements of local arrays as locals; None if it has no such array, or becomes too long.

    An array remains where some index denotes any of too many elements. Loops that no index depends on remain, too.
    `used`: further names that the new locals do not get.
    """
    arrays = _small_arrays(body)
    if not arrays:
        return None
    unrolling = _Unrolling(body, arrays)
    written_out = unrolling.block(body, _Around())
    if unrolling.is_too_long:
        return None
    extents = {name: s.extent for name, s in arrays.items()}
    for s in nested_statements(written_out):
        for name, index in _indices(s):
            if name in extents and not _elements_at(index, extents[name]):
                del extents[name]
    if not extents:
        return None
    taken = {*map(local_changed, nested_statements(body)), *_loops(body), *used}
    return identified(_Elements(extents, taken).block(written_out))


def _small_arrays(body: Statements) -> dict[str, ir.LocalArray]:
    """Returns the short local arrays of a body by name, as far as they are declared once."""
    declared = [s for s in nested_statements(body) if isinstance(s, ir.LocalArray)]
    names = [s.name for s in declared]
    return {s.name: s for s in declared if s.extent <= _MOST_ELEMENTS and names.count(s.name) == 1}


def _indices(s: ir.Stmt) -> Iterator[tuple[str, ir.Expr]]:
    """Yields the accesses of a statement to local arrays, nested statements aside: name and index."""
    if isinstance(s, ir.SetElement):
        yield s.name, s.index
    for e in children(s):
        yield from ((x.name, x.index) for x in walk(e) if isinstance(x, ir.LocalElement))


def _elements_at(index: ir.Expr, extent: int) -> tuple[tuple[ir.Expr, int], ...]:
    """Returns the elements that an index may denote, each with its condition; () if they are too many, or unknown."""
    if isinstance(index, ir.Const):
        is_inside = 0 <= index.value < extent
        return ((const(True, ir.DType.bool_), int(index.value)),) if is_inside else ()
    deciding, step, first = _split(index)
    if not isinstance(deciding, ir.Local | ir.LoopIndex) or step < 1:
        return ()
    least, most = -(first // step), (extent - 1 - first) // step
    if not least <= most < least + _MOST_SELECTED:
        return ()
    return tuple(
        (ir.Compare("eq", deciding, const(q, deciding.dtype)), first + step * q)
        for q in range(least, most + 1)
    )


def _split(index: ir.Expr) -> tuple[ir.Expr, int, int]:
    """Returns x, a and b of an index a x + b."""
    match index:
        case ir.Binary("add", x, ir.Const(value=int(b)), dtype) if dtype.is_index:
            inner, step, first = _split(x)
            return inner, step, first + b
        case ir.Binary("mul", x, ir.Const(value=int(a)), dtype) if dtype.is_index:
            inner, step, first = _split(x)
            return inner, step * a, first * a
        case ir.Cast(x, dtype) if x.dtype.is_index and dtype.size_bytes >= x.dtype.size_bytes:
            return _split(x)
    return index, 1, 0


def _loops(body: Statements) -> Iterator[str]:
    return (s.loop for s in nested_statements(body) if isinstance(s, ir.For))


# --- loops


@dataclass(frozen=True)
class _Around:
    """Values known at a place of the body: indices of loops that are written out or renamed, and constant locals."""

    loops: Mapping[str, ir.Expr] = field(default_factory=dict)
    locals: dict[str, ir.Const] = field(default_factory=dict)

    def forget(self, body: Statements) -> None:
        for s in nested_statements(body):
            self.locals.pop(local_changed(s), None)


class _Unrolling:
    """Loop unrolling: writes out the loops on whose indices those of `arrays` depend. It stops where a body is too long."""

    def __init__(self, body: Statements, arrays: Mapping[str, ir.LocalArray]) -> None:
        self.wanted = _deciding_loops(body, arrays)
        self.taken = set(_loops(body))
        self.seen = set[str]()
        self.n_nodes = 0

    def block(self, body: Statements, around: _Around) -> Statements:
        return tuple(x for s in body for x in self.statement(s, around))

    def statement(self, s: ir.Stmt, around: _Around) -> Iterator[ir.Stmt]:
        match s:
            case ir.For():
                yield from self.loop(s, around)
            case ir.If():
                yield from self.branch(s, around)
            case ir.While(body=body):
                around.forget(body)
                condition = self.expression(s.condition, around)
                inside = self.block(body, around)
                around.forget(body)
                yield replace(s, condition=condition, body=inside)
            case _:
                yield self.plain(s, around)

    def plain(self, s: ir.Stmt, around: _Around) -> ir.Stmt:
        made = mapped(s, lambda e: self.expression(e, around), lambda inner: inner)
        around.locals.pop(local_changed(s), None)
        if (
            isinstance(made, ir.SetLocal)
            and isinstance(made.value, ir.Const)
            and made.value.dtype.is_integer
        ):
            around.locals[made.name] = made.value
        return made

    def branch(self, s: ir.If, around: _Around) -> Iterator[ir.Stmt]:
        condition = self.expression(s.condition, around)
        if isinstance(condition, ir.Const):
            yield from self.block(s.then if condition.value else s.orelse, around)
            return
        then, orelse = (
            self.block(x, replace(around, locals=dict(around.locals))) for x in (s.then, s.orelse)
        )
        around.forget((*s.then, *s.orelse))
        yield replace(s, condition=condition, then=then, orelse=orelse)

    def loop(self, s: ir.For, around: _Around) -> Iterator[ir.Stmt]:
        extent = self.expression(s.extent, around)
        if s.loop in self.wanted and isinstance(extent, ir.Const):
            for k in range(int(extent.value)):
                if self.is_too_long:
                    return
                index = {**around.loops, s.loop: ir.Const(k, ir.DType.i64)}
                yield from self.block(s.body, replace(around, loops=index))
            return
        around.forget(s.body)
        name = self.name(s.loop)
        inside = replace(around, loops={**around.loops, s.loop: ir.LoopIndex(name)})
        body = self.block(s.body, inside)
        around.forget(s.body)
        yield replace(s, loop=name, extent=extent, body=body)

    def name(self, loop: str) -> str:
        """Returns the loop's own name for its first copy, and other names for the others."""
        k, name = 1, loop
        while name in self.seen or (name != loop and name in self.taken):
            k += 1
            name = f"{loop}_{k}"
        self.seen.add(name)
        return name

    def expression(self, e: ir.Expr, around: _Around) -> ir.Expr:
        """Returns an expression with known values put in, and simplified."""
        made = self.known(e, around)
        self.n_nodes += size(made)
        return made

    @property
    def is_too_long(self) -> bool:
        return self.n_nodes > _MOST_NODES

    def known(self, e: ir.Expr, around: _Around) -> ir.Expr:
        match e:
            case ir.LoopIndex(loop, dtype) if loop in around.loops:
                found = around.loops[loop]
                return (
                    replace(found, dtype=dtype)
                    if isinstance(found, ir.LoopIndex)
                    else coerced(found, dtype)
                )
            case ir.Local(name, dtype) if name in around.locals:
                found = around.locals[name]
                return found if found.dtype is dtype else e
        return simplified(mapped(e, lambda x: self.known(x, around), lambda s: s))


def _deciding_loops(body: Statements, arrays: Mapping[str, ir.LocalArray]) -> Set[str]:
    """Returns the loops on whose indices those of the arrays depend, also through locals and lengths of loops."""
    depends: dict[str, set[str]] = {}
    every = tuple(nested_statements(body))
    before = -1
    while (n := sum(map(len, depends.values()))) != before:
        before = n
        for s in every:
            if isinstance(s, ir.SetLocal | ir.UpdateLocal) and s.value.dtype.is_integer:
                depends.setdefault(s.name, set()).update(_behind(s.value, depends))
    found = {
        loop
        for s in every
        for name, index in _indices(s)
        if name in arrays
        for loop in _behind(index, depends)
    }
    extents = {s.loop: s.extent for s in every if isinstance(s, ir.For)}
    found &= extents.keys()
    left = list(found)
    while left:
        new = (_behind(extents[left.pop()], depends) & extents.keys()) - found
        found |= new
        left += new
    return found


def _behind(e: ir.Expr, depends: Mapping[str, set[str]]) -> set[str]:
    """Returns the loops whose indices an expression depends on; none if it is of data, too, and no constant ever."""
    if any(isinstance(x, ir.Load | ir.Param | ir.LocalElement) for x in walk(e)):
        return set()
    own = {x.loop for x in walk(e) if isinstance(x, ir.LoopIndex)}
    return own.union(*(depends.get(name, set()) for name in locals_read(e)))


# --- elements


class _Elements:
    """Replacement of elements of local arrays by locals."""

    def __init__(self, extents: Mapping[str, int], taken: set[str]) -> None:
        self.extents, self.taken = extents, taken
        self.names = {
            name: tuple(_fresh(f"{name}_{k}", taken) for k in range(n))
            for name, n in extents.items()
        }

    def block(self, body: Statements) -> Statements:
        return tuple(x for s in body for x in self.statement(s))

    def statement(self, s: ir.Stmt) -> Iterator[ir.Stmt]:
        match s:
            case ir.LocalArray(name=name) if name in self.names:
                value = self.expression(s.value)
                first, *others = self.names[name]
                yield ir.SetLocal(first, value, s.where)
                same = value if isinstance(value, ir.Const) else ir.Local(first, value.dtype)
                yield from (ir.SetLocal(other, same, s.where) for other in others)
            case ir.SetElement(name=name) if name in self.names:
                yield from self.set(s)
            case ir.For(body=body):
                yield replace(s, extent=self.expression(s.extent), body=self.block(body))
            case ir.While(body=body):
                yield replace(s, condition=self.expression(s.condition), body=self.block(body))
            case ir.If():
                then, orelse = self.block(s.then), self.block(s.orelse)
                yield replace(s, condition=self.expression(s.condition), then=then, orelse=orelse)
            case _:
                yield mapped(s, self.expression, lambda inner: inner)

    def set(self, s: ir.SetElement) -> Iterator[ir.Stmt]:
        """Yields the statements that set one of the locals that an element may be, and leave the others as they are."""
        names, value = self.names[s.name], self.expression(s.value)
        places = _elements_at(s.index, self.extents[s.name])
        if len(places) > 1 and not isinstance(value, ir.Const | ir.Local):
            held = _fresh(f"{s.name}_set", self.taken)
            yield ir.SetLocal(held, value, s.where)
            value = ir.Local(held, value.dtype)
        for condition, k in places:
            new = select(condition, value, ir.Local(names[k], value.dtype))
            yield ir.SetLocal(names[k], new, s.where)

    def expression(self, e: ir.Expr) -> ir.Expr:
        if not isinstance(e, ir.LocalElement) or e.name not in self.names:
            return mapped(e, self.expression, lambda s: s)
        *others, (_, last) = _elements_at(e.index, self.extents[e.name])
        found: ir.Expr = ir.Local(self.names[e.name][last], e.dtype)
        for condition, k in reversed(others):
            found = select(condition, ir.Local(self.names[e.name][k], e.dtype), found)
        return found


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
