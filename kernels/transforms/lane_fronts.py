"""Splitting of a loop's body in two: a *front* that many iterations may run at once, and the rest, one iteration after another.

The front has no access that another iteration conflicts with. It computes what the rest needs, into locals that are kept for
each iteration. So the arithmetic of a scatter that looks up, or activates, the cells of a tree may run in the lanes of vectors,
while each lane updates its cells by itself. This is loop distribution (Allen and Kennedy, Optimizing Compilers for Modern
Architectures, 2001, section 5) within a strip of as many iterations as a vector has lanes. Each value is computed once.

Integers of many operations are computed in the front too, if 32 bits hold them: so places of cells in their tables are. To keep
an integer of few operations, or a float of one, costs as much as to compute it. An element that the rest reads several times is
loaded at its begin: compilers do not move loads out of branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..analysis.value_ranges import Ranges
from ..ir import kernel as ir
from ..ir.kernel import DType
from ..ir.walk import (
    children,
    local_changed,
    locals_read,
    mapped,
    nested_statements,
    walk,
    written_in,
)
from .narrow_locals import ranges_of_locals

Statements = tuple[ir.Stmt, ...]
_ENDING = ir.Print | ir.Assert
_DIVISIONS = frozenset(("floordiv", "mod", "floor_mod", "raw_mod", "raw_div", "div"))
_INTEGERS = (DType.i32, DType.i64, DType.bool_)
_LONG = 4  # operations of an integer, from which on it costs less to keep it: a store for all lanes, and a load


@dataclass(frozen=True)
class Front:
    """A body in two parts: `front` runs for several iterations first, `rest` then for one of them after another.

    `kept`: locals of the front, with their types, whose values the rest reads.
    """

    front: Statements
    rest: Statements
    kept: tuple[tuple[str, DType], ...]


@dataclass(frozen=True)
class LoopFacts:
    """Facts about the loop whose body is split.

    `loop`: its name. `extents`: constant extents, by loop. `shape_of`: shape of an array.
    `shared`: arrays of which one iteration writes an element that another one accesses.
    `outer`: locals that are declared outside of the loop.
    """

    loop: str
    extents: Mapping[str, int]
    shape_of: Callable[[str], Sequence[int]]
    shared: Container[str]
    outer: frozenset[str]


def split(body: Statements, facts: LoopFacts) -> Front | None:
    """Returns the body in two parts; None if one of them would have no work.

    Precondition: sparse fields are lowered to arrays.
    """
    if any(isinstance(s, _ENDING) for s in nested_statements(body)):
        return None  # iterations behind the last one that runs would have effects
    sides = _Sides(body, facts)
    if not sides.in_rest or not sides.has_arithmetic:
        return None
    made = _Splitter(body, facts, sides)
    return Front(tuple(made.front), tuple(made.rest), tuple(made.kept.items()))


class _Touched:
    """Names that a statement, and those nested in it, access."""

    def __init__(self, s: ir.Stmt) -> None:
        every = list(nested_statements((s,)))
        operands = [x for t in every for e in children(t) for x in walk(e)]
        self.changed = {name for t in every if (name := local_changed(t))}
        self.read = {x.name for x in operands if isinstance(x, ir.Local | ir.LocalElement)}
        self.elements = {x.name for x in operands if isinstance(x, ir.LocalElement)}
        self.written = written_in((s,))
        self.loaded = {x.array for x in operands if isinstance(x, ir.Load)}
        self.loaded |= {t.array for t in every if isinstance(t, ir.Update)}
        self.computes = any(map(_is_arithmetic, operands))
        self.places = {name for x in operands if _is_long(x) for name in locals_read(x)}


class _Sides:
    """Numbers of the statements in the rest, and the locals and arrays that belong to it."""

    def __init__(self, body: Statements, facts: LoopFacts) -> None:
        self._touched = [_Touched(s) for s in body]
        self._ranges = Ranges(facts.extents, ranges_of_locals(body, facts.extents))
        self._written = written_in(body)
        self.in_rest: set[int] = set()
        changed = {name for t in self._touched for name in t.changed}
        self.locals = set(changed & facts.outer)
        self.arrays = {
            name for t in self._touched for name in t.written | t.loaded if name in facts.shared
        }
        self._close()
        if self.in_rest:
            self._add_cheap(body)
        left = (t for k, t in enumerate(self._touched) if k not in self.in_rest)
        self.has_arithmetic = any(t.computes for t in left)

    def is_place(self, e: ir.Expr) -> bool:
        """True if it costs less to keep an integer, or a truth value, than to compute it, and 32 bits hold it."""
        return _is_long(e) and (e.dtype is DType.bool_ or self._ranges.fits(e))

    def _close(self) -> None:
        """Adds statements that access a name of the rest, until there are no more."""
        n_before = -1
        while n_before != len(self.in_rest):
            n_before = len(self.in_rest)
            for k, t in enumerate(self._touched):
                names, arrays = t.read | t.changed, t.loaded | t.written
                if not (names & self.locals or arrays & self.arrays):
                    continue
                self.in_rest.add(k)
                self.locals |= t.changed | t.elements
                self.arrays |= t.written | (t.loaded & self._written)

    def _add_cheap(self, body: Statements) -> None:
        """Adds statements that set locals by few operations on integers, unless the front needs them, or long integers do.

        To keep such a value costs as much as to compute it.
        """
        cheap = {
            k: s.name
            for k, s in enumerate(body)
            if isinstance(s, ir.SetLocal)
            and k not in self.in_rest
            and not self._touched[k].computes
            and not self.is_place(s.value)
            and not self._touched[k].elements
            and not self._touched[k].loaded & self._written
        }
        rest = {*cheap, *self.in_rest}
        needed = {
            name
            for k, t in enumerate(self._touched)
            for name in (t.places if k in rest else t.read | t.changed)
        }
        n_before = -1
        while n_before != len(needed):
            n_before = len(needed)
            for k, name in cheap.items():
                if name in needed:
                    needed |= self._touched[k].read
        for k, name in cheap.items():
            if name not in needed:
                self.in_rest.add(k)
                self.locals.add(name)


@dataclass
class _Splitter:
    """Splits a body; `kept`: locals of the front that the rest reads, with their types."""

    body: Statements
    facts: LoopFacts
    sides: _Sides
    front: list[ir.Stmt] = field(default_factory=list)
    rest: list[ir.Stmt] = field(default_factory=list)
    kept: dict[str, DType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = list(nested_statements(self.body))
        self.written = written_in(self.body)
        self.inner = {s.loop for s in every if isinstance(s, ir.For)}
        self.taken = {name for s in every for e in children(s) for name in locals_read(e)}
        self.taken |= {local_changed(s) for s in every} | self.facts.outer
        fronts = [s for k, s in enumerate(self.body) if k not in self.sides.in_rest]
        self.n_changes = Counter(map(local_changed, nested_statements(tuple(fronts))))
        self.versions: Counter[str] = Counter()
        self.known: dict[tuple[ir.Expr, tuple[int, ...]], ir.Local] = {}
        self.where = ir.NOWHERE
        self.reads = Counter(self._reads())
        self.loaded: dict[ir.Load, ir.SetLocal] = {}
        for k, s in enumerate(self.body):
            if k in self.sides.in_rest:
                self.where = s.where
                self.rest.append(mapped(s, self.expression, self.statement))
                continue
            self.front.append(s)
            self.versions.update(name for name in _Touched(s).changed)
        self.rest = [*self.loaded.values(), *self.rest]

    def _reads(self) -> Iterator[ir.Load]:
        """Yields the elements that the rest reads, as often as its text does."""
        rests = (s for k, s in enumerate(self.body) if k in self.sides.in_rest)
        for s in nested_statements(tuple(rests)):
            yield from (x for e in children(s) for x in walk(e) if isinstance(x, ir.Load))

    def statement(self, s: ir.Stmt) -> ir.Stmt:
        return mapped(s, self.expression, self.statement)

    def expression(self, e: ir.Expr) -> ir.Expr:
        """Returns an operand of the rest, with what the front computes replaced by kept locals."""
        if e.dtype.is_float and _computes(e) and not _is_single(e) and self._may_move(e):
            return self._of_front(e, e)
        if isinstance(e, ir.Local) and e.name in self.n_changes:
            return self._local(e)
        if isinstance(e, ir.Load) and self.reads[e] > 1 and self._may_move(e):
            return self._loaded(e)
        if self.sides.is_place(e) and self._may_move(e):
            found = self._of_front(e, ir.Cast(e, DType.i32))
            return _is_true(found) if e.dtype is DType.bool_ else ir.Cast(found, e.dtype)
        return mapped(e, self.expression, self.statement)

    def _loaded(self, e: ir.Load) -> ir.Local:
        """Returns a local that the rest sets to an element first."""
        if e not in self.loaded:
            self.loaded[e] = ir.SetLocal(self._fresh(), e, self.where)
        return ir.Local(self.loaded[e].name, e.dtype)

    def _local(self, e: ir.Local) -> ir.Expr:
        if e.dtype is DType.bool_:
            return _is_true(self._of_front(e, ir.Cast(e, DType.i32)))
        if self.n_changes[e.name] == 1 and self.versions[e.name] == 1 and self._is_set(e.name):
            self.kept[e.name] = e.dtype
            return e
        return self._of_front(e, e)

    def _is_set(self, name: str) -> bool:
        """True if a statement that is in no other one sets a local, without its old value."""
        return any(isinstance(s, ir.SetLocal) and s.name == name for s in self.front)

    def _of_front(self, e: ir.Expr, value: ir.Expr) -> ir.Local:
        """Returns a local that the front sets to `value`, at the present place; one local for equal operands `e`."""
        key = e, tuple(self.versions[name] for name in locals_read(e))
        if key not in self.known:
            self.known[key] = made = ir.Local(self._fresh(), value.dtype)
            self.front.append(ir.SetLocal(made.name, value, self.where))
            self.kept[made.name] = made.dtype
        return self.known[key]

    def _fresh(self) -> str:
        k = len(self.known)
        while (name := f"lane_{k}") in self.taken:
            k += 1
        self.taken.add(name)
        return name

    def _may_move(self, e: ir.Expr) -> bool:
        """True if an operand may be computed in the front, also in iterations in which the rest would not evaluate it."""
        return all(map(self._is_safe, walk(e)))

    def _is_safe(self, x: ir.Expr) -> bool:
        match x:
            case ir.Local(name):
                return name not in self.sides.locals
            case ir.LoopIndex(loop):
                return loop not in self.inner
            case ir.Load(array, indices):
                shape = self.facts.shape_of(array)
                is_rest = array in self.sides.arrays or array in self.written
                return not is_rest and all(map(self._is_inside, indices, shape))
            case ir.Binary(op=op, dtype=dtype):
                return dtype.is_float or op not in _DIVISIONS
        kinds = ir.Const | ir.Param | ir.Unary | ir.Compare | ir.Select | ir.Cast | ir.Bitcast
        return isinstance(x, kinds)

    def _is_inside(self, index: ir.Expr, extent: int) -> bool:
        match index:
            case ir.Const(value=n):
                return 0 <= int(n) < extent
            case ir.LoopIndex(loop):
                return self.facts.extents.get(loop, extent + 1) <= extent
            case ir.Cast(x, dtype=dtype) if dtype.is_integer:
                is_wide = dtype.size_bytes >= x.dtype.size_bytes
                return is_wide and self._is_inside(x, extent)
        return False


def _is_arithmetic(x: ir.Expr) -> bool:
    """True if an operation computes with floats."""
    return isinstance(x, ir.Unary | ir.Binary | ir.Compare | ir.Cast | ir.Select) and any(
        y.dtype.is_float for y in (x, *children(x))
    )


def _is_single(e: ir.Expr) -> bool:
    """True if a float is one sum or product of values at hand."""
    leaves = ir.Local | ir.Load | ir.Const | ir.Param
    match e:
        case ir.Binary("add" | "sub" | "mul", a, b):
            return isinstance(a, leaves) and isinstance(b, leaves)
    return False


def _is_long(e: ir.Expr) -> bool:
    """True if an integer, or a truth value, is computed by many operations on 32 or 64 bits, and nothing else."""
    if e.dtype not in _INTEGERS or not isinstance(e, ir.Binary | ir.Select):
        return False
    parts = list(walk(e))
    operations = [x for x in parts if isinstance(x, ir.Binary | ir.Compare | ir.Select)]
    divides = any(isinstance(x, ir.Binary) and x.op in _DIVISIONS for x in operations)
    return len(operations) >= _LONG and not divides and all(x.dtype in _INTEGERS for x in parts)


def _is_true(x: ir.Local) -> ir.Expr:
    return ir.Compare("ne", x, ir.Const(0, x.dtype))


def _computes(e: ir.Expr) -> bool:
    return any(map(_is_arithmetic, walk(e)))
