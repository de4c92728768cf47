"""Assignable values (places): loads, stores and updates of locals and array elements, and of trees of these."""

from __future__ import annotations

import ast

from ..fields.quantised_types import QuantFixed, QuantInt
from ..ir import kernel as ir
from ..ir.simplify import binary, cast, compare, const, is_cheap_and_fixed, select, unary
from ..ir.walk import walk
from .complex_numbers import is_complex
from .errors import KernelSyntaxError, KernelTypeError
from .overflow import watch, watches
from .quantised import PackedStores
from .scopes import Pass
from .typing_rules import adopt, settle, truth
from .values import (
    Element,
    LocalItem,
    LocalRef,
    LocalVar,
    MatrixValue,
    OneOf,
    Packed,
    Place,
    StructValue,
    TupleValue,
    Typed,
    Value,
    is_data,
    leaves,
    loaded,
    loaded_leaf,
    rebuilt,
)

WHAT = {
    "ArrayRef": "an array",
    "StructArray": "an array",
    "LocalRef": "an array",
    "TupleValue": "a tuple",
    "MatrixValue": "a vector or matrix",
    "StructValue": "a struct",
    "DictValue": "a dict",
    "Triplets": "a builder of a sparse matrix",
}


def what(x: Value) -> str:
    """Returns the kind of a value for messages, such as "a number" or "a Python object"."""
    if is_complex(x):
        return "a complex number"
    return WHAT.get(type(x).__name__, "a number" if is_data(x) else "a Python object")


def is_place(x: Value) -> bool:
    """True if a value consists of places (locals, elements) alone, so that it can be assigned."""
    numbers = list(leaves(x))
    return bool(numbers) and is_data(x) and not any(isinstance(n, Typed) for n in numbers)


# What updates of truth values are, as NumPy has them: of bytes that are 0 and 1.
_OF_TRUTHS = {"add": "max", "bit_or": "max", "mul": "min", "bit_and": "min"}


MOST_COMPONENTS = 32  # of a vector in locals; more are a local array
_MOST_CHOSEN = (
    16  # of one with an index that is no literal: each choice compares it with all components
)

LOGICAL = {"bit_and": "and", "bit_or": "or", "bit_xor": "ne"}  # of truth values


def combined(op: str, a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """Returns the expression `a op b` of two numbers of one type, or of two truth values."""
    if a.dtype is not ir.DType.bool_ or op not in LOGICAL:
        return binary(op, a, b)  # type: ignore[arg-type]
    sign = LOGICAL[op]
    return compare("ne", a, b) if sign == "ne" else binary(sign, a, b)  # type: ignore[arg-type]


class Places:
    """Compiles assignments to places (locals, elements), and creates locals, in a pass."""

    def __init__(self, state: Pass) -> None:
        self._state = state
        self._packed = PackedStores(
            state, lambda x, node: self.in_local("kept", Typed(x), node).expr
        )

    # --- assignment

    def assign(self, place: Value, x: Value, node: ast.AST) -> None:
        """Emits `place = x`, component by component; a single number is assigned to all components."""
        pairs = self.pairs(place, x, node)
        if len(pairs) > 1:
            values = [self._kept_from(v, pairs, k, node) for k, (_, v) in enumerate(pairs)]
        else:
            values = [v for _, v in pairs]
        for (target, _), value in zip(pairs, values, strict=True):
            self.store(target, value, node)

    def pairs(self, place: Value, x: Value, node: ast.AST) -> list[tuple[Place, Typed]]:
        """Returns each number's place in `place`, with the number of `x` that is assigned to it."""
        match place, x:
            case ((LocalVar() | Element() | LocalItem() | OneOf()), Typed()):
                return [(place, x)]
            case MatrixValue(shape, items), MatrixValue(other, values) if _same(shape, other):
                return [
                    q
                    for i, v in zip(items, values, strict=True)
                    for q in self.pairs(i, loaded(v), node)
                ]
            case MatrixValue(shape, items), TupleValue(items=values) if len(shape) == 1 and len(
                values
            ) == len(items):
                return [
                    q
                    for i, v in zip(items, values, strict=True)
                    for q in self.pairs(i, loaded(v), node)
                ]
            case MatrixValue(shape, items), TupleValue(items=rows) if (
                len(shape) == 2
                and [len(r.items) for r in rows if isinstance(r, TupleValue | MatrixValue)]
                == [shape[1]] * shape[0]
            ):
                flat = tuple(
                    n for r in rows if isinstance(r, TupleValue | MatrixValue) for n in r.items
                )
                return self.pairs(MatrixValue((len(items),), items), TupleValue(flat), node)
            case MatrixValue(items=items), Typed():
                return [q for i in items for q in self.pairs(i, x, node)]
            case StructValue(members), StructValue() if {n for n, _ in members} == {
                n for n, _ in x.members
            }:
                return [q for n, m in members for q in self.pairs(m, dict(x.members)[n], node)]
            case StructValue(((_, real), (_, imag))), Typed() if is_complex(place):
                none = Typed(const(0.0, ir.DType.f64), weak=True)
                return [*self.pairs(real, x, node), *self.pairs(imag, none, node)]
            case TupleValue(items), TupleValue(items=values) if len(items) == len(values):
                return [
                    q for i, v in zip(items, values, strict=True) for q in self.pairs(i, v, node)
                ]
        if not is_data(place) or isinstance(place, Typed):
            self._state.fail(
                f"`{ast.unparse(node)}` assigns to {'a value' if isinstance(place, Typed) else what(place)}: "
                "only locals and elements of arrays can be assigned",
                node,
                KernelSyntaxError,
            )
        if is_complex(x):
            self._state.fail(
                f"`{ast.unparse(node)}` gives a complex number to {shown(place)}: begin it as a complex one, or take .real",
                node,
                KernelTypeError,
            )
        return self._state.fail(
            f"`{ast.unparse(node)}` gives {shown(x)} to {shown(place)}: both must have one shape",
            node,
            KernelTypeError,
        )

    def _kept_from(
        self, x: Typed, pairs: list[tuple[Place, Typed]], own: int, node: ast.AST
    ) -> Typed:
        """Returns `x`, copied to a local if the assignments before it change its value.

        `pairs`: places with their values in the order of assignment; `x` belongs to number `own`.
        """
        before = [place for k, (place, _) in enumerate(pairs) if k < own]
        locals_ = {
            v.name
            for p in before
            for v in (p.options if isinstance(p, OneOf) else (p,))
            if isinstance(v, LocalVar)
        }
        arrays = {p.array.name for p in before if isinstance(p, Element | LocalItem)}
        own_place = pairs[own][0]
        for e in walk(x.expr):
            match e:
                case ir.Local(name):
                    is_changed = name in locals_
                case ir.Load(name, indices) | ir.LocalElement(name, indices):
                    is_own = _is_at(own_place, name, indices) and not _is_packed(own_place)
                    is_changed = name in arrays and not is_own
                case _:
                    is_changed = False
            if is_changed:
                return self.in_local("kept", x, node)
        return x

    def store(self, place: Place, x: Typed, node: ast.AST) -> None:
        """Emits `place = x` for one number `x`, converted to the type of the place."""
        state = self._state
        where = state.frame.parsed.where(node)
        match place:
            case LocalVar(name, dtype):
                state.note(place, x)
                state.emit(ir.SetLocal(name, adopt(x.expr, dtype), where))
            case Element(packed=Packed()):
                stored = self.before_activation(place.array.name, adopt(x.expr, place.dtype), node)
                self._packed.store(place, stored, node)
            case Element(array, indices):
                self._check_written(place, node)
                stored = adopt(truth(x) if place.is_truth else x.expr, array.dtype)
                stored = self.before_activation(array.name, stored, node)
                state.activate(array.name, indices, node)
                state.emit(ir.Store(array.name, indices, stored, where))
            case LocalItem(array, index):
                state.emit(ir.SetElement(array.name, index, adopt(x.expr, array.dtype), where))
            case OneOf(options, index):
                value = self.in_local("kept", x, node)
                for k, option in enumerate(options):
                    here = compare("eq", index, const(k, index.dtype))
                    chosen = select(here, adopt(value.expr, option.dtype), option.loaded.expr)
                    state.emit(ir.SetLocal(option.name, chosen, where))

    def _check_written(self, place: Element, node: ast.AST) -> None:
        if place.fixed:
            self._state.fail(f"`{ast.unparse(node)}` writes {place.fixed}: pass a copy", node)

    def update(
        self,
        place: Value,
        op: str,
        x: Value,
        is_negated: bool,
        node: ast.AST,
        wants_old: bool = False,
    ) -> Value:
        """Emits `place op= x`, component by component; with `is_negated`, `x` is negated first.

        Returns the old value if `wants_old`.
        """
        pairs = self.pairs(place, x, node)
        values = [
            self._kept_from(v, pairs, k, node) if len(pairs) > 1 else v
            for k, (_, v) in enumerate(pairs)
        ]
        old = iter(
            [
                self._updated(p, op, v, is_negated, node, wants_old)
                for (p, _), v in zip(pairs, values, strict=True)
            ]
        )
        return rebuilt(place, lambda _: next(old))

    def _updated(
        self, place: Place, op: str, x: Typed, is_negated: bool, node: ast.AST, wants_old: bool
    ) -> Typed:
        state = self._state
        where = state.frame.parsed.where(node)
        if op.startswith("bit_") and (place.dtype.is_float or x.dtype.is_float):
            state.fail(f"`{ast.unparse(node)}`: bit operators take integers", node, KernelTypeError)
        is_truth = isinstance(place, Element) and place.is_truth
        if is_truth and is_negated:
            state.fail(
                f"`{ast.unparse(node)}`: truth values have no difference, use ^",
                node,
                KernelTypeError,
            )
        op = _OF_TRUTHS.get(op, op) if is_truth else op
        value = truth(x) if is_truth else adopt(x.expr, place.dtype)
        if isinstance(place, Element) and place.packed is None:
            value = cast(value, place.array.dtype)
        plain, written = value, "sub" if is_negated else op
        value = unary("neg", value) if is_negated else value
        match place:
            case LocalVar() if place.dtype is x.dtype is ir.DType.bool_ and op in LOGICAL:
                pass
            case LocalVar(name):
                watch(state, written, loaded_leaf(place).expr, plain, node)
                old = self.in_local("old", place.loaded, node) if wants_old else place.loaded
                state.note(place, x)
                state.emit(ir.UpdateLocal(name, op, value, where))  # type: ignore[arg-type]
                return old
            case Element(packed=Packed(kind=QuantInt() | QuantFixed())) if op == "add":
                number = loaded_leaf(place)
                watch(state, written, number.expr, plain, node)
                old = self.in_local("old", number, node) if wants_old else number
                self._packed.add(place, self.before_activation(place.array.name, value, node), node)
                return old
            case Element(array, indices, packed=None):
                self._check_written(place, node)
                is_watched = watches(state, written, loaded_leaf(place).expr, plain)
                result = state.fresh("old") if wants_old or is_watched else ""
                value = self.before_activation(array.name, value, node)
                state.activate(array.name, indices, node)
                state.emit(ir.Update(array.name, indices, op, value, where, result))  # type: ignore[arg-type]
                if is_watched:
                    watch(state, written, ir.Local(result, array.dtype), plain, node)
                return (
                    Typed(ir.Local(result, array.dtype))
                    if wants_old
                    else Typed(const(0, array.dtype))
                )
        old = loaded_leaf(place)
        watch(state, written, old.expr, plain, node)
        old = self.in_local("old", old, node) if wants_old else old
        self.store(place, Typed(combined(op, old.expr, value)), node)
        return old

    def before_activation(self, array: str, value: ir.Expr, node: ast.AST) -> ir.Expr:
        """Returns a value to store in a sparse field, as it is before the store activates the element.

        The value is copied to a local if it depends on the activity, list length or item number of a cell.
        """
        asks = any(isinstance(e, ir.IsActive | ir.Length | ir.Item) for e in walk(value))
        return (
            self.in_local("kept", Typed(value), node).expr
            if asks and array in self._state.placed
            else value
        )

    # --- locals

    def in_local(self, name: str, x: Typed, node: ast.AST) -> Typed:
        """Copies a number to a new local, named like `name`, and returns the local's value."""
        state = self._state
        value = settle(x, state.default_float)
        fresh = state.fresh(name)
        state.emit(ir.SetLocal(fresh, value, state.frame.parsed.where(node)))
        return Typed(ir.Local(fresh, value.dtype), weak=x.weak and not state.is_final)

    def kept(self, x: Value, node: ast.AST) -> Value:
        """Returns a value that later statements do not change: its numbers that may change are copied to new locals."""

        def leaf(item: Typed | Place) -> Typed:
            number = loaded_leaf(item)
            changes = any(
                isinstance(e, (ir.Load, ir.Local, ir.LocalElement)) for e in walk(number.expr)
            )
            return self.in_local("kept", number, node) if changes else number

        return rebuilt(x, leaf)

    def shared(self, x: Value, node: ast.AST) -> Value:
        """Returns a value whose numbers cost nothing to use several times.

        Numbers other than constants, parameters, locals and loop indices are computed once, in new locals.
        """

        def leaf(item: Typed | Place) -> Typed:
            number = loaded_leaf(item)
            inner = number.expr
            while not isinstance(inner, ir.Const) and hasattr(inner, "x"):
                inner = inner.x
            plain = isinstance(inner, (ir.Const, ir.Local, ir.LoopIndex, ir.Param))
            return number if plain else self.in_local("part", number, node)

        return rebuilt(x, leaf)

    def new_local(self, name: str, x: Value, node: ast.AST) -> Value:
        """Copies a value to new locals, one for each of its numbers, and returns them as a value."""
        state = self._state
        if isinstance(x, MatrixValue) and self._is_array(name, x):
            return self._new_array(name, x, node)
        several = isinstance(x, MatrixValue | StructValue | TupleValue)
        where = state.frame.parsed.where(node)
        numbers = list(leaves(x))
        fresh_names = iter(
            [state.fresh(f"{name}_{k}") for k in range(len(numbers))]
            if several
            else [state.fresh(name)]
        )

        def leaf(item: Typed | Place) -> LocalVar:
            fresh, number = next(fresh_names), loaded_leaf(item)
            if not number.weak:
                value, is_weak = number.expr, False
            else:
                state.open_locals.add(fresh)
                default = state.default_float if number.dtype.is_float else number.dtype
                found = state.hints.get(fresh)
                keeps = found is None or (number.dtype.is_float and not found.is_float)
                dtype = default if keeps else found
                assert dtype is not None
                value, is_weak = adopt(number.expr, dtype), found is None and not state.is_final
            state.emit(ir.SetLocal(fresh, value, where))
            return LocalVar(fresh, value.dtype, is_weak)

        return rebuilt(x, leaf)

    def _is_array(self, name: str, x: MatrixValue) -> bool:
        """True if a new vector becomes a local array rather than one local for each component.

        It must have many components, all of known types, and be created where no parallel loop could share it. Loops at top level
        that store to components share it, and run in order (`Loops`).
        """
        state = self._state
        most = _MOST_CHOSEN if _is_indexed(state.frame.parsed.tree, name) else MOST_COMPONENTS
        if len(x.items) <= most:
            return False
        if not state.rules.is_strict and any(loaded_leaf(i).weak for i in x.items):
            return False
        loops = [s for s in state.frames[0].parsed.tree.body if isinstance(s, ast.For)]
        if state.iteration is not None or not loops:
            return True
        if len(state.frames) > 1 or not _is_stored_in(loops, name):
            return False
        state.has_forms = True  # loops in order have no derivative
        return not state.is_differentiated

    def _new_array(self, name: str, x: MatrixValue, node: ast.AST) -> MatrixValue:
        """Copies a vector or matrix to a new local array, whose elements can be indexed at run time."""
        state = self._state
        numbers = [settle(loaded_leaf(i), state.default_float) for i in x.items]
        dtype = numbers[0].dtype
        where = state.frame.parsed.where(node)
        made = LocalRef(state.fresh(name), dtype, x.shape, is_shared=False)
        given = [adopt(number, dtype) for number in numbers]
        is_one = (
            isinstance(given[0], ir.Const) and len(set(map(repr, given))) == 1
        )  # 0.0 is not -0.0
        start = given[0] if is_one else const(0, dtype)
        state.emit(ir.LocalArray(made.name, len(numbers), start, where))
        items = tuple(LocalItem(made, const(k, ir.DType.i64)) for k in range(len(numbers)))
        for item, number in zip(items, () if is_one else given, strict=not is_one):
            state.emit(ir.SetElement(made.name, item.index, number, where))
        return MatrixValue(x.shape, items)

    def declared(self, name: str, like: Value) -> tuple[Value, list[ir.SetLocal]]:
        """Returns new locals in the structure of the value `like`, and the statements that set them to zero."""
        state = self._state
        statements: list[ir.SetLocal] = []

        def leaf(item: Typed | Place) -> LocalVar:
            number = Typed(settle(loaded_leaf(item), state.default_float))
            fresh = state.fresh(name)
            statements.append(
                ir.SetLocal(
                    fresh, const(0, number.dtype), state.frame.parsed.where(state.frame.parsed.tree)
                )
            )
            return LocalVar(fresh, number.dtype)

        return rebuilt(like, leaf), statements

    def is_fixed(self, x: Value) -> bool:
        """True if all numbers of a value are cheap and never change, so that a name can be an alias of the value."""
        return all(is_cheap_and_fixed(loaded_leaf(n).expr) for n in leaves(x))


def _same(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """True if two shapes are equal, where a matrix of one column equals a vector."""
    return a == b or (a[:1] == b[:1] and a[1:] in ((), (1,)) and b[1:] in ((), (1,)))


def shown(x: Value) -> str:
    """Returns a description of a value with its shape for messages, such as "a vector of 3"."""
    match x:
        case MatrixValue(shape=shape):
            return (
                f"{'a vector' if len(shape) == 1 else 'a matrix'} of {' x '.join(map(str, shape))}"
            )
        case StructValue(members=members):
            return f"a struct of {', '.join(n for n, _ in members)}"
        case TupleValue(items=items):
            return f"a tuple of {len(items)}"
    return what(x)


def _is_at(place: Place, array: str, indices: object) -> bool:
    """True if a place is the element of the array or local array `array` at `indices`."""
    match place:
        case Element():
            return (place.array.name, place.indices) == (array, indices)
        case LocalItem():
            return (place.array.name, place.index) == (array, indices)
    return False


def _is_packed(place: Place) -> bool:
    """True for an element of a quantised type: its word has others."""
    return isinstance(place, Element) and place.packed is not None


def _is_indexed(tree: ast.AST, name: str) -> bool:
    """True if a function indexes the name with anything other than a literal."""
    return any(_is_component(n, name) for n in ast.walk(tree))


def _is_component(n: ast.AST, name: str) -> bool:
    """True for a component of the name whose index is no literal."""
    return (
        isinstance(n, ast.Subscript)
        and isinstance(n.value, ast.Name)
        and n.value.id == name
        and not isinstance(n.slice, ast.Constant)
    )


_OVER_NUMBERS = ("range", "ndrange", "static")  # loops that can run in order


def _is_stored_in(loops: list[ast.For], name: str) -> bool:
    """True if some of the loops store to components of the name, and all that use it are loops over numbers."""
    using = [s for s in loops if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(s))]
    stored = (
        isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store) and _is_component(n, name)
        for s in using
        for n in ast.walk(s)
    )
    return any(stored) and all(
        isinstance(s.iter, ast.Call)
        and ast.unparse(s.iter.func).rpartition(".")[2] in _OVER_NUMBERS
        for s in using
    )
