"""Global value numbering: statements that compute equal values once.

After Cocke and Schwartz (Programming Languages and Their Compilers, 1970) and Alpern, Wegman and Zadeck (Detecting Equality of
Variables in Programs, POPL 1988). Every value gets a number; equal numbers are surely equal values. The number of an expression
follows from its operator and the numbers of its operands; that of a branch's result from its condition and both sides. A load has
the number of the value last stored there in this iteration, or of an earlier load of the element. Different arrays never share
memory. Two elements of one array are different if their indices surely differ, by a constant.

The first evaluation of a repeated expression becomes a local, in its own block. Nothing is evaluated earlier, or in more
iterations, than before. Dead stores, which the same block surely overwrites before a load, are removed, and so are locals that are
never read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ..ir import kernel as ir
from ..ir import walk
from ..ir.affine import Affine, combine, constant, to_affine
from .dead_stores import without_dead_stores, without_unread

Statements = tuple[ir.Stmt, ...]
_COMMUTE = ("add", "mul")  # in either order the same bits


def numbered(body: Statements, arrays: Mapping[str, ir.DType]) -> Statements:
    """Returns `body` with equal values computed once. `arrays`: types of elements. Results are equal bit by bit."""
    names = _Locals.of(body)
    wanted = _Numbering(names, arrays, frozenset())
    wanted.block(body)
    made = _Numbering(names, arrays, frozenset(wanted.used))
    found = made.block(body)
    return without_unread(without_dead_stores(found, made.stored_at, made.places, made.differ))


def numbered_apart(
    first: Statements, then: Statements, arrays: Mapping[str, ir.DType], changed: Iterable[str]
) -> tuple[Statements, Statements]:
    """Two bodies of equal iterations with equal values computed once, by the first: the second reads its locals.

    `changed`: arrays with elements that another iteration, or a body between the two, may write. Precondition: no local or inner
    loop is in both.
    """
    names = _Locals.of((*first, *then))
    wanted = _Numbering(names, arrays, frozenset())
    wanted.apart(first, then, changed)
    made = _Numbering(names, arrays, frozenset(wanted.used))
    return made.apart(first, then, changed)


@dataclass(frozen=True)
class _Stored:
    """Store to an array: its number, the value numbers of its indices, and the value number of the stored value.

    `index` is None if the element is unknown, `value` is None if the value is.
    """

    number: int
    index: tuple[int, ...] | None
    value: int | None


@dataclass
class _Known:
    """Value numbers of locals and array elements at a point of the program."""

    locals: dict[str, int] = field(default_factory=dict)
    stored: dict[str, tuple[_Stored, ...]] = field(default_factory=dict)
    # By value: locals that hold it, or numbers of evaluations that could become one.
    held: dict[int, tuple[str | int, ...]] = field(default_factory=dict)

    def copy(self) -> _Known:
        return _Known(dict(self.locals), dict(self.stored), dict(self.held))


@dataclass(frozen=True)
class _Locals:
    """Locals of a body: the type of each that is set, and the names of all."""

    types: dict[str, ir.DType]
    names: frozenset[str]

    @staticmethod
    def of(body: Statements) -> _Locals:
        types: dict[str, ir.DType] = {}
        names = set[str]()
        for s in walk.nested_statements(body):
            if isinstance(s, ir.SetLocal):
                types.setdefault(s.name, s.value.dtype)
            names.add(walk.local_changed(s))
            names.update(n for e in walk.children(s) for n in walk.locals_read(e))
        return _Locals(types, frozenset(names))


class _Numbering:
    """One pass of value numbering over a body.

    Evaluations are counted in the order of the text. Those in `wanted` are repeated later and become locals. The pass collects such
    evaluations in `used`.
    """

    def __init__(
        self, names: _Locals, arrays: Mapping[str, ir.DType], wanted: frozenset[int]
    ) -> None:
        self.arrays, self.wanted = arrays, wanted
        self.used: set[int] = set()
        # Indices of the loads and stores that are left.
        self.places: dict[int, tuple[ir.Load, tuple[int, ...]]] = {}  # of loads, by identity
        self.stored_at: dict[int, tuple[int, ...]] = {}  # of stores
        self.forms: dict[int, Affine] = {}  # of integers
        self.plain: dict[int, ir.Expr] = {}  # values that are constants and arguments
        self.known = _Known()
        self._numbers: dict[Hashable, int] = {}
        # By identity, of the present statement's expressions, which are kept, since identities of others are used again: each level
        # of a nested one asks for those inside.
        self._seen: dict[int, tuple[ir.Expr, int]] = {}
        self._n_numbers = self._n_evaluations = self._n_names = 0
        self._out: list[ir.Stmt] = []
        self._types, self._taken = names.types, {*names.names}

    # --- numbers

    def fresh(self) -> int:
        self._n_numbers += 1
        return self._n_numbers

    def number_of(self, key: Hashable) -> int:
        if key not in self._numbers:
            self._numbers[key] = self.fresh()
        return self._numbers[key]

    def local(self, name: str) -> int:
        found = self.known.locals.get(name)
        if found is None:  # an iteration begins with zeros
            dtype = self._types.get(name)
            found = self.fresh() if dtype is None else self.number_of(("zero", dtype))
            self.known.locals[name] = found
        return found

    def number(self, e: ir.Expr) -> int:
        """Returns the value number of an expression at the current point."""
        found = self._seen.get(id(e))
        if found is None:
            found = self._seen[id(e)] = e, self._numbered(e)
        return found[1]

    def _numbered(self, e: ir.Expr) -> int:
        match e:
            case ir.Const():
                key: Hashable = ("const", repr(e.value), e.dtype)
            case ir.LoopIndex():
                key = ("loop", e.loop, e.dtype)
            case ir.Param():
                key = ("param", e.name, e.dtype)
            case ir.Local():
                return self.local(e.name)
            case ir.LocalElement():
                key = ("element", e.name, self.local(e.name), self.number(e.index))
            case ir.Load():
                return self.loaded(e)
            case ir.Binary():
                a, b = self.number(e.a), self.number(e.b)
                if e.op in _COMMUTE and b < a:
                    a, b = b, a
                key = ("binary", e.op, e.dtype, a, b)
            case ir.Unary():
                key = ("unary", e.op, e.dtype, self.number(e.x))
            case ir.Compare():
                key = ("compare", e.op, self.number(e.a), self.number(e.b))
            case ir.Select():
                parts = (self.number(e.condition), self.number(e.a), self.number(e.b))
                key = ("select", e.dtype, *parts)
            case ir.Cast() | ir.Bitcast():
                key = (type(e).__name__, e.dtype, self.number(e.x))
            case _:
                return self.fresh()
        found = self.number_of(key)
        if isinstance(e, ir.Const | ir.Param):
            self.plain[found] = e
        if found not in self.forms and e.dtype.is_index:
            self.forms[found] = self.form(e, found)
        return found

    def loaded(self, e: ir.Load) -> int:
        """Returns the value number of a load.

        It is that of the value stored to the element, or one for this element since the last store that may alias it.
        """
        index = tuple(self.number(i) for i in e.indices)
        before = 0
        for s in reversed(self.known.stored.get(e.array, ())):
            if s.index == index and s.value is not None and self.arrays[e.array] is e.dtype:
                return s.value
            if s.index is None or not self.differ(s.index, index):
                before = s.number
                break
        return self.number_of(("load", e.array, index, before))

    def form(self, e: ir.Expr, number: int) -> Affine:
        """Returns an integer as a linear combination of values that are no sums themselves.

        `number`: its value number.
        """
        match e:
            case ir.Const():
                return constant(int(e.value))
            case ir.Cast() if e.x.dtype.is_index and e.dtype.size_bytes >= e.x.dtype.size_bytes:
                return self.form_of(e.x)
            case ir.Binary(op="add" | "sub"):
                factor = 1 if e.op == "add" else -1
                return combine([(1, self.form_of(e.a)), (factor, self.form_of(e.b))])
            case ir.Binary(op="mul", a=a, b=ir.Const(value=int(factor))):
                return combine([(factor, self.form_of(a))])
            case ir.Binary(op="mul", a=ir.Const(value=int(factor)), b=b):
                return combine([(factor, self.form_of(b))])
        return Affine(0, ((f"{number}", 1),))

    def form_of(self, e: ir.Expr) -> Affine:
        return self.form_at(self.number(e))

    def form_at(self, number: int) -> Affine:
        return self.forms.get(number) or Affine(0, ((f"{number}", 1),))

    def differ(self, a: Sequence[int], b: Sequence[int]) -> bool:
        """True if two indices of one array surely denote different elements."""
        for x, y in zip(a, b, strict=True):
            distance = combine([(1, self.form_at(x)), (-1, self.form_at(y))])
            if not distance.terms and distance.const:
                return True
        return False

    # --- expressions

    def evaluated(self, e: ir.Expr, is_certain: bool = True) -> ir.Expr:
        """Returns an expression with locals that hold known values in place of repeated computations.

        `is_certain`: the expression is evaluated whenever its statement is, so its result may be saved in a local.
        """
        if isinstance(e, ir.Const | ir.LoopIndex | ir.Param) or to_affine(e) is not None:
            return e
        number = self.number(e)
        if number in self.plain:
            return self.plain[number]
        name = self.holder(number)
        if name is not None:
            return ir.Local(name, e.dtype)
        if isinstance(e, ir.Local):
            return e
        found = next((x for x in self.known.held.get(number, ()) if isinstance(x, int)), None)
        if found is not None:
            self.used.add(found)
            return e
        made = walk.rebuild(e, tuple(self.operands(e, is_certain)))
        if isinstance(made, ir.Load) and isinstance(e, ir.Load):
            self.places[id(made)] = made, tuple(self.number(i) for i in e.indices)
        if not is_certain or isinstance(e, ir.LocalElement):
            return made
        self._n_evaluations += 1
        if self._n_evaluations not in self.wanted:
            self.hold(number, self._n_evaluations)
            return made
        local = self.new_name()
        self.known.locals[local] = number
        self.hold(number, local)
        self._out.append(ir.SetLocal(local, made, ir.NOWHERE))
        return ir.Local(local, e.dtype)

    def operands(self, e: ir.Expr, is_certain: bool) -> Iterator[ir.Expr]:
        """Yields the rewritten operands of an expression.

        The sides of a selection, `and` or `or` are not certain to be evaluated.
        """
        may_be_left = isinstance(e, ir.Select) or (
            isinstance(e, ir.Binary) and e.op in ("and", "or")
        )
        for k, x in enumerate(walk.children(e)):
            yield self.evaluated(x, is_certain and not (may_be_left and k > 0))

    def holder(self, number: int) -> str | None:
        """Returns a local that holds the value with this number at the current point; None if there is none."""
        for x in self.known.held.get(number, ()):
            if isinstance(x, str) and self.known.locals.get(x) == number:
                return x
        return None

    def hold(self, number: int, what: str | int) -> None:
        self.known.held[number] = (*self.known.held.get(number, ()), what)

    def new_name(self) -> str:
        while (name := f"value{self._n_names + 1}") in self._taken:
            self._n_names += 1
        self._taken.add(name)
        return name

    # --- statements

    def apart(
        self, first: Statements, then: Statements, changed: Iterable[str]
    ) -> tuple[Statements, Statements]:
        """Numbers one body behind the other, with the elements of the `changed` arrays unknown to the second."""
        before = self.block(first)
        self.unknown((), frozenset(changed))
        return before, without_unread(self.block(then))

    def block(self, body: Statements) -> Statements:
        outer, self._out = self._out, []
        for s in body:
            self.statement(s)
        made, self._out = tuple(self._out), outer
        return made

    def statement(self, s: ir.Stmt) -> None:
        self._seen.clear()
        match s:
            case ir.SetLocal():
                self.set(s)
            case ir.UpdateLocal():
                self.update(s)
            case ir.Store():
                self.store(s)
            case ir.If():
                self.branch(s)
            case ir.For():
                extent = self.evaluated(s.extent)
                self._out.append(replace(s, extent=extent, body=self.repeated(s.body)))
            case ir.While():
                with self.changing(s.body):
                    condition = self.evaluated(s.condition, is_certain=False)
                    body = self.block(s.body)
                self._out.append(replace(s, condition=condition, body=body))
            case _:
                self.other(s)

    def set(self, s: ir.SetLocal) -> None:
        number = self.number(s.value)
        value = self.evaluated(s.value)
        self._out.append(replace(s, value=value))
        if self._types[s.name] is not s.value.dtype:  # it is converted
            number = self.fresh()
        self.known.locals[s.name] = number
        self.hold(number, s.name)

    def update(self, s: ir.UpdateLocal) -> None:
        before, by = self.local(s.name), self.number(s.value)
        self._out.append(replace(s, value=self.evaluated(s.value)))
        dtype = self._types.get(s.name)
        number = self.fresh()
        if dtype is s.value.dtype:
            number = self.number_of(("update", s.op, dtype, before, by))
        self.known.locals[s.name] = number
        self.hold(number, s.name)

    def store(self, s: ir.Store) -> None:
        index = tuple(self.number(i) for i in s.indices)
        number: int | None = self.number(s.value)
        indices = tuple(self.evaluated(i) for i in s.indices)
        made = replace(
            s, indices=indices, value=self.evaluated(s.value), uid=-1 - len(self.stored_at)
        )
        if self.arrays.get(s.array) is not s.value.dtype:
            number = None
        self.stored_at[made.uid] = index
        self._out.append(made)
        self.put(s.array, _Stored(self.fresh(), index, number))

    def put(self, array: str, what: _Stored) -> None:
        self.known.stored[array] = (*self.known.stored.get(array, ()), what)

    def branch(self, s: ir.If) -> None:
        condition_number = self.number(s.condition)
        condition = self.evaluated(s.condition)
        before = self.known
        sides, made = [], []
        for body in (s.then, s.orelse):
            self.known = before.copy()
            made.append(self.block(body))
            sides.append(self.known)
        self.known = before
        self._out.append(replace(s, condition=condition, then=made[0], orelse=made[1]))
        for name in sorted(_changed((*s.then, *s.orelse))):
            numbers = []
            for side in sides:
                self.known = side
                numbers.append(self.local(name))
            self.known = before
            a, b = numbers
            number = a if a == b else self.number_of(("either", condition_number, a, b))
            self.known.locals[name] = number
            self.hold(number, name)
        self.unknown((), walk.written_in((*s.then, *s.orelse)))

    def repeated(self, body: Statements) -> Statements:
        with self.changing(body):
            return self.block(body)

    @contextmanager
    def changing(self, body: Statements) -> Iterator[None]:
        """Context for a loop body: values that the body changes are unknown in it and behind it."""
        names, arrays = _changed(body), walk.written_in(body)
        self.unknown(names, arrays)
        before = self.known
        self.known = before.copy()
        yield
        self.known = before
        self.unknown(names, arrays)

    def unknown(self, names: Sequence[str] | frozenset[str], arrays: frozenset[str]) -> None:
        self._seen.clear()
        for name in names:
            self.known.locals[name] = self.fresh()
        for array in arrays:
            self.put(array, _Stored(self.fresh(), None, None))

    def other(self, s: ir.Stmt) -> None:
        """Rewrites the operands of a statement of a kind without a rule, whose results are unknown."""
        operands = iter([self.evaluated(e) for e in walk.children(s)])
        self._out.append(_with_operands(s, operands))
        name = walk.local_changed(s)
        self.unknown((name,) if name else (), walk.written_in((s,)))


def _with_operands(s: ir.Stmt, operands: Iterator[ir.Expr]) -> ir.Stmt:
    return walk.mapped(s, lambda _: next(operands), lambda x: x)


def _changed(body: Statements) -> frozenset[str]:
    return frozenset(walk.local_changed(s) for s in walk.nested_statements(body)) - {""}
