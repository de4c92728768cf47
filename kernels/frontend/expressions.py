"""Expressions of a kernel: compiles Python syntax to typed IR expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NoReturn, TypeVar

from ..fields.compound import MatrixType, StructType
from ..ir.kernel import Const, DType, Expr
from ..ir.simplify import cast, const
from .branches import Branches
from .calls import Calls, InlineCall
from .complex_numbers import complex_annotation, is_complex
from .complex_operators import ComplexNumbers
from .constants import constant
from .errors import KernelError, KernelSyntaxError, KernelTypeError, LanguageError
from .func import MARKS, func
from .intrinsics import static
from .lvalues import Places
from .matrices import Matrices
from .operators import BINARY, Operators
from .parse import closure_names
from .python_numbers import python_number
from .python_objects import lifted
from .references import References
from .scopes import LoopVar, Pass
from .side_effects import is_chain, root_of
from .typing_rules import python_value, rounded, settle, static_value, truth
from .values import (
    DictValue,
    MatrixValue,
    Static,
    TupleValue,
    Typed,
    Value,
    is_data,
    loaded,
)

T = TypeVar("T")
_NAMES: dict[type[ast.AST], str] = {
    ast.GeneratorExp: "a generator expression",
    ast.SetComp: "a set comprehension",
    ast.Lambda: "a lambda",
    ast.Set: "a set",
    ast.Starred: "a starred expression",
    ast.Slice: "a slice",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Is: "the operator `is`",
    ast.IsNot: "the operator `is not`",
}


def construct_name(node: ast.AST) -> str:
    return _NAMES.get(type(node), f"the construct {type(node).__name__}")


class Expressions:
    """Compiles expressions in a pass. `inline` is the function that compiles the call of a `ks.func`."""

    def __init__(self, state: Pass, places: Places, inline: InlineCall) -> None:
        self._state = state
        self.places = places
        self.operators = Operators(state)
        self.complex = self.operators.complex = ComplexNumbers(state, self.operators, places)
        self.matrices = Matrices(state, self.operators, places)
        self._calls = Calls(state, self, inline)
        self._branches = Branches(state, self)
        self._references = References(state, self)

    # --- entry points

    def value(self, node: ast.expr) -> Value:
        """Returns the value of an expression: a number, a vector or struct of numbers, an array, a Python object."""
        match node:
            case ast.Constant(value=literal):
                if isinstance(literal, (bool, int, float)):
                    return self._literal(literal, node)
                if isinstance(literal, complex):
                    return lifted(self._state, literal)
                return Static(literal)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return TupleValue(tuple(self.values(elts)))
            case ast.Name() | ast.Attribute() | ast.Subscript():
                return loaded(self.place(node))
            case ast.UnaryOp() | ast.BinOp() | ast.Call() if (
                known := self._python_number(node)
            ) is not None:
                return self._literal(known, node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BinOp():
                a, b = self.values([node.left, node.right])
                op = BINARY[type(node.op)]
                return self.operators.binary(op, a, b, node)
            case ast.BoolOp():
                return self._branches.logical(node)
            case ast.Compare():
                return self._branches.compared(node)
            case ast.IfExp():
                return self._branches.ternary(node)
            case ast.Call():
                return loaded(self._calls.call(node))
            case ast.ListComp(elt=item, generators=loops) | ast.GeneratorExp(item, loops):
                return TupleValue(tuple(self._rounds(loops, lambda: self.value(item))))
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values, node)
            case ast.DictComp(key=key, value=value, generators=loops):
                rounds = self._rounds(loops, lambda: (self._key(key), self.value(value)))
                return DictValue(tuple(dict(rounds).items()))
            case ast.NamedExpr():
                return self._named(node)
            case ast.JoinedStr():
                return TupleValue(tuple(self._formatted(part) for part in node.values))
        return self._state.fail(
            f"{construct_name(node)} is not supported in a kernel: use loops, conditions and "
            f"arithmetic on numbers",
            node,
            KernelSyntaxError,
        )

    def _python_number(self, node: ast.expr) -> int | float | None:
        """Returns the number that Python computes for a constant expression in a program; None for others."""
        if not self._state.rules.is_strict:
            return None
        return python_number(self._state.frame, node)

    def _literal(self, x: float, node: ast.expr) -> Value:
        """Returns a number as a literal of the program's type.

        LanguageError if that type cannot represent it.
        """
        rules = self._state.rules
        if type(x) is int and rules.is_strict and not rules.default_int.holds(x):
            self._state.fail(
                f"`{ast.unparse(node)}` is no number of type {rules.default_int.name}, which integers have here: "
                f"write a wider type around it, such as ks.i64(...)",
                node,
                KernelTypeError,
            )
        return lifted(self._state, x)

    def exact(self, node: ast.expr, dtype: DType) -> Value | None:
        """Returns a constant argument of a type's name, as in `ks.u64(2**63)`, converted to that type directly.

        None if the argument is no constant number.
        """
        x = self._python_number(node)
        if x is None or dtype is DType.bool_ or (dtype.is_integer and not isinstance(x, int)):
            return None
        if dtype.is_integer and not dtype.holds(x):
            text = f"`{ast.unparse(node)}` is no number of type {dtype.name}"
            self._state.fail(text, node, KernelTypeError)
        return Typed(rounded(const(x, dtype)) if dtype.is_float else const(x, dtype))

    def place(self, node: ast.expr) -> Value:
        """Returns the value of an expression as places, which can be assigned: locals, elements, or trees of these.

        An expression that cannot be assigned gives its plain value.
        """
        match node:
            case ast.Name():
                return self._references.name(node)
            case ast.Attribute():
                return self._references.attribute(node)
            case ast.Subscript():
                return self._references.subscript(node)
        return self.value(node)

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Returns the values of expressions from left to right; calls on the right do not change them."""
        found: list[Value] = []
        for k, node in enumerate(nodes):
            items = self._starred(node) if isinstance(node, ast.Starred) else [self.value(node)]
            if any(self.may_write(n) for n in nodes[k + 1 :]):
                items = [self.places.kept(x, node) if is_data(x) else x for x in items]
            found += items
        return found

    def _starred(self, node: ast.Starred) -> list[Value]:
        """Returns the items of a starred argument `*x`."""
        inside = self.value(node.value)
        if isinstance(inside, TupleValue | MatrixValue):
            return list(inside.items)
        if isinstance(inside, Static) and isinstance(inside.python, Iterable):
            return [lifted(self._state, item) for item in inside.python]
        return self._state.fail(f"`{ast.unparse(node)}` is not a tuple", node, KernelSyntaxError)

    def may_write(self, node: ast.expr) -> bool:
        """True if evaluating an expression runs statements of the program, such as those of a `ks.func`."""
        nodes = list(ast.walk(node))
        own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return any(isinstance(n, ast.NamedExpr) for n in nodes) or any(
            isinstance(n, ast.Call) and (root_of(n.func) in own or self._calls.runs_statements(n))
            for n in nodes
        )

    def converted(self, x: Value, kind: object, node: ast.AST) -> Value:
        """Returns a value converted to an annotated type: a number type, a vector or a struct.

        Other annotations leave the value unchanged.
        """
        python = kind.python if isinstance(kind, Static) else kind
        if complex_annotation(python) is not None:
            return self._calls.as_type(x, complex_annotation(python), node)
        if isinstance(python, DType | MatrixType | StructType) or python in (int, float, bool):
            return self._calls.declared(x, python, node)
        return x

    def zero(self, kind: object, node: ast.AST) -> Value:
        """The value of an annotation whose numbers are all zero; of a tuple of annotations a tuple."""
        if isinstance(kind, tuple):
            return TupleValue(tuple(self.zero(k, node) for k in kind))
        return self._calls.as_type(None, kind, node)

    def call_statement(self, node: ast.Call) -> None:
        """Compiles a call that is a statement of its own; its value is not used."""
        self._calls.run(node, is_statement=True)

    def refuse(
        self, sentence: str, node: ast.AST, kind: type[KernelError] = KernelError
    ) -> NoReturn:
        self._state.fail(sentence, node, kind)

    @property
    def is_strict(self) -> bool:
        return self._state.rules.is_strict

    @property
    def default_float(self) -> DType:
        return self._state.default_float

    def typed(self, node: ast.expr) -> Typed:
        """Returns the value of an expression that must be one number."""
        return self.operators.number(self.value(node), node)

    def number(self, node: ast.expr) -> Expr:
        return settle(self.typed(node), self._state.default_float)

    def condition(self, node: ast.expr) -> Expr:
        return truth(self.typed(node))

    def index(self, node: ast.expr) -> Expr:
        """Returns the value of an integer expression, as an IR expression of type i64."""
        return self.as_index(self.typed(node), node)

    def as_index(self, x: Typed, node: ast.expr) -> Expr:
        if not x.dtype.is_integer and x.dtype is not DType.bool_:
            self._state.fail(
                f"`{ast.unparse(node)}` is {x.dtype.name.rstrip('_')} where an integer is needed: "
                f"convert it with int(...)",
                node,
                KernelTypeError,
            )
        return cast(x.expr, DType.i64)

    def constant(self, node: ast.expr) -> object:
        """Returns the Python value of a compile-time constant expression; KeyError for any other expression."""
        return constant(self._state, self, node)

    def static(self, node: ast.expr, kind: type[KernelError] = KernelError) -> object:
        """Returns the Python value of the argument of `ks.static(...)`, evaluated by Python at compile time.

        An error of `kind` if it depends on a value that is known only at run time.
        """
        names: dict[str, object] = {}
        for name in {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }:
            bound = self._state.frame.find(name)
            if bound is None:
                continue
            try:
                names[name] = static_value(bound.value if isinstance(bound, LoopVar) else bound)
            except KeyError:
                self._state.fail(
                    f"ks.static needs `{name}` when the kernel is compiled, but it is known only "
                    f"at run time",
                    node,
                    kind,
                )
        fn = self._state.frame.parsed.fn
        try:
            code = compile(ast.Expression(node), self._state.frame.parsed.file, "eval")
            return eval(code, {**fn.__globals__, **closure_names(fn), **names})
        except LanguageError:
            raise
        except Exception as error:
            return self._state.fail(
                f"ks.static({ast.unparse(node)}) cannot be evaluated: {error}", node
            )

    def static_argument(self, node: ast.expr) -> ast.expr | None:
        """Returns the argument of a `ks.static(...)` expression; None if the node is anything else."""
        if not isinstance(node, ast.Call) or not node.args or self.callee(node) is not static:
            return None
        if len(node.args) == 1:
            return node.args[0]
        return ast.copy_location(ast.Tuple(node.args, ast.Load()), node)

    def callee(self, node: ast.Call) -> object:
        """Returns the Python object that is called.

        None if the call names no object the frontend can resolve.
        """
        if isinstance(node.func, ast.Call):
            return self._marked(node.func)
        if not is_chain(node.func):
            return None
        x = self.place(node.func)
        return x.python if isinstance(x, Static) and isinstance(x.python, Hashable) else None

    def _marked(self, node: ast.Call) -> object:
        """Returns the `ks.func` that a call `ks.func(f)` inside a kernel creates; None for any other call."""
        if len(node.args) != 1 or node.keywords or self.callee(node) not in MARKS:
            return None
        f = self.value(node.args[0])
        return func(f.python) if isinstance(f, Static) and callable(f.python) else None

    def _named(self, node: ast.NamedExpr) -> Value:
        """Compiles `(name := value)`: assigns a local, and returns its value."""
        x, name = self.value(node.value), node.target.id
        if not is_data(x):
            self._state.fail(f"`{name}` is assigned something that is not a number", node)
        bound = self._state.frame.find(name)
        if bound is None:
            bound = self.places.new_local(name, x, node)
            self._state.frame.bind(name, bound)
        elif isinstance(bound, LoopVar) or not is_data(bound):
            self._state.fail(f"`{name}` is no local: use another name", node)
        else:
            self.places.assign(bound, x, node)
        return loaded(bound)

    # --- operators

    def _unary(self, node: ast.UnaryOp) -> Value:
        x, operators = self.value(node.operand), self.operators
        match node.op:
            case ast.USub() if is_complex(x):
                return self.complex.negative(x, node)
            case ast.USub():
                return operators.each([x], node, operators.negative)
            case ast.UAdd():
                return x
            case ast.Not():
                return operators.each([x], node, operators.negated)
        return operators.each([x], node, lambda n: operators.inverted(n, node))

    def _rounds(self, loops: Sequence[ast.comprehension], made: Callable[[], T]) -> list[T]:
        """Returns what `made` returns in each iteration of a comprehension, which is unrolled.

        `loops`: the `for` clauses; their items must be known at compile time.
        """
        if not loops:
            return [made()]
        found: list[T] = []
        for item in self.items_of(loops[0].iter):
            with self._state.frame.scope():
                self.bind_static(loops[0].target, item)
                if all(self._is_true(test) for test in loops[0].ifs):
                    found += self._rounds(loops[1:], made)
        return found

    def _dict(
        self, keys: Sequence[ast.expr | None], values: Sequence[ast.expr], node: ast.expr
    ) -> DictValue:
        names = [None if key is None else self._key(key) for key in keys]
        held = [self.places.kept(x, node) if is_data(x) else x for x in self.values(values)]
        found: dict[object, Value] = {}
        for key, name, x in zip(keys, names, held, strict=True):
            if key is not None:
                found[name] = x
            elif isinstance(x, DictValue):
                found |= dict(x.entries)
            elif isinstance(x, Static) and isinstance(x.python, dict):
                found |= {n: lifted(self._state, item) for n, item in x.python.items()}
            else:
                self._state.fail(
                    f"`{ast.unparse(node)}`: what `**` stands before is no dict",
                    node,
                    KernelTypeError,
                )
        return DictValue(tuple(found.items()))

    def _key(self, node: ast.expr) -> object:
        """The key of a dict. One that is known only at run time differs from all others, as in Taichi."""
        x = self.value(node)
        try:
            return python_value(x)
        except KeyError:
            if self._state.rules.is_strict and is_data(x):
                return object()
            return self._state.fail(
                f"`{ast.unparse(node)}` is a key of a dict: it must be a constant", node
            )

    def _is_true(self, test: ast.expr) -> bool:
        x = self.value(test)
        if not isinstance(x, Typed) or not isinstance(x.expr, Const):
            self._state.fail(
                "the condition of a comprehension must be a constant", test, KernelSyntaxError
            )
        return bool(x.expr.value)

    def items_of(self, node: ast.expr) -> list[Value]:
        """Returns the items of an iterable known at compile time: a tuple, a vector, a range, `ks.static(...)`."""
        inside = self.static_argument(node)
        if inside is not None:
            return self.static_items(inside, node)
        x = self.value(node) if not self._is_range(node) else None
        if isinstance(x, TupleValue | MatrixValue):
            return self.taken_apart(x)
        return self.static_items(node, node)

    def _is_range(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.callee(node) in (range, enumerate, zip, reversed)

    def static_items(self, inside: ast.expr, node: ast.AST) -> list[Value]:
        if not isinstance(inside, ast.Call):
            x = self.value(inside)
            if isinstance(x, TupleValue | MatrixValue):
                return self.taken_apart(x)
        found = self.static(inside, KernelTypeError)
        try:
            items = list(found)  # type: ignore[call-overload]
        except TypeError:
            self._state.fail(
                f"ks.static({ast.unparse(inside)}) is not a sequence that a loop can run over", node
            )
        return [lifted(self._state, item) for item in items]

    def taken_apart(self, x: TupleValue | MatrixValue) -> list[Value]:
        """Returns the items of a tuple, the components of a vector, or the rows of a matrix."""
        if isinstance(x, MatrixValue) and len(x.shape) > 1:
            return [MatrixValue((x.shape[1],), row) for row in x.rows()]
        return list(x.items)

    def bind_static(self, target: ast.expr, x: Value) -> None:
        """Binds the index names `target` of an unrolled loop to the item `x` of one iteration."""
        state = self._state
        if isinstance(target, ast.Name):
            state.frame.bind(target.id, LoopVar(x) if is_data(x) else x)
            return
        items = self.taken_apart(x) if isinstance(x, TupleValue | MatrixValue) else []
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(items):
            state.fail(
                f"`{ast.unparse(target)}` does not match the items of the static loop",
                target,
                KernelSyntaxError,
            )
        for element, item in zip(target.elts, items, strict=True):
            self.bind_static(element, item)

    def _formatted(self, part: ast.expr) -> Value:
        if isinstance(part, ast.FormattedValue):
            return self.value(part.value)
        return self.value(part)
