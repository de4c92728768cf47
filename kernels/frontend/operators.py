"""Operators between values of a kernel, with Python's meaning; vectors and matrices component by component."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from ..fields.matrix import Matrix
from ..ir.kernel import Assert, CompareOp, Const, DType, Expr
from ..ir.ops import OPS, Op
from ..ir.simplify import binary, bitcast, cast, compare, const, select, unary
from .complex_numbers import complex_value, is_complex
from .errors import KernelTypeError
from .lvalues import LOGICAL, MOST_COMPONENTS, combined, what
from .overflow import watch
from .python_objects import lifted
from .scopes import Pass
from .signs import compare_signs, differ, least_of_signs
from .typing_rules import adopt, settle, truth, unify
from .values import MatrixValue, Static, StructValue, TupleValue, Typed, Value, loaded

_PYTHON: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}
BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.MatMult: "matmul",
}
COMPARE: dict[type[ast.cmpop], CompareOp] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_BITS = frozenset(("bit_and", "bit_or", "bit_xor", "shl", "shr", "bit_shr"))
_WHOLE_OF = {2: DType.i16, 4: DType.i32, 8: DType.i64}  # as wide as a float of so many bytes
MAX_POWER = 16  # x ** n is written out as products up to here


class OfComplex(Protocol):
    """Interface for operators with at least one complex operand (complex_operators.py)."""

    def binary(self, op: str, a: Value, b: Value, node: ast.AST) -> Value: ...

    def compare(self, op: CompareOp, a: Value, b: Value, node: ast.AST) -> Typed: ...

    def selected(self, condition: Value, a: Value, b: Value, node: ast.AST) -> Value: ...

    def parts(self, x: Value, node: ast.AST) -> tuple[Typed, Typed]:
        """Returns the real and the imaginary part of a number."""


class Operators:
    """Compiles operators in a pass: literals fold as in Python, others are converted to their common type."""

    complex: OfComplex  # set where they can be kept in locals

    def __init__(self, state: Pass) -> None:
        self._state = state

    # --- component by component

    def number(self, x: Value, node: ast.AST) -> Typed:
        """Returns a value that must be a single number. LanguageError for any other."""
        x = loaded(x)
        if isinstance(x, Typed):
            return x
        if isinstance(x, MatrixValue) and len(x.items) == 1:
            return self.number(x.items[0], node)
        return self._state.fail(
            f"`{ast.unparse(node)}` is {what(x)} where a number is needed: "
            + ("take .real or .imag of it" if is_complex(x) else "index it, or pass a number"),
            node,
            KernelTypeError,
        )

    def each(
        self, values: Sequence[Value], node: ast.AST, apply: Callable[..., Typed]
    ) -> Typed | MatrixValue:
        """Applies `apply` to numbers, or component by component to vectors and matrices of one shape.

        A number is combined with each component.
        """
        values = [self._operand(x) for x in values]
        shapes = {x.shape for x in values if isinstance(x, MatrixValue)}
        if not shapes:
            return apply(*(self.number(x, node) for x in values))
        if len(shapes) > 1:
            shown = " and ".join(" x ".join(map(str, s)) for s in sorted(shapes))
            self._state.fail(
                f"`{ast.unparse(node)}`: vectors or matrices of {shown} do not fit together",
                node,
                KernelTypeError,
            )
        (shape,) = shapes
        columns = [
            x.items if isinstance(x, MatrixValue) else (self.number(x, node),) * _count(shape)
            for x in values
        ]
        return MatrixValue(shape, tuple(apply(*row) for row in zip(*columns, strict=True)))

    def _operand(self, x: Value) -> Value:
        """The value as an operand: a tuple is a vector, and so is a small array of Python's, whose numbers are constants."""
        found = loaded(x)
        if isinstance(found, Static) and isinstance(found.python, np.ndarray):
            array = found.python
            if array.dtype.kind in "biuf" and 0 < array.ndim <= 2 and array.size <= MOST_COMPONENTS:
                return lifted(self._state, Matrix(array))
        return _vector(found)

    def binary(self, op: str, a: Value, b: Value, node: ast.AST) -> Value:
        if isinstance(a, TupleValue) and isinstance(b, TupleValue) and op == "add":
            return TupleValue((*a.items, *b.items))
        if op == "mul":
            for several, number in ((a, b), (b, a)):
                match several, number:  # a list repeated, as Python has it
                    case TupleValue(items), Typed(Const(times, dtype)) if dtype.is_integer:
                        return TupleValue(items * int(times))
        if is_complex(a) or is_complex(b):
            return self.complex.binary(op, a, b, node)
        if op == "matmul":
            return self.matmul(a, b, node)
        return self.each([a, b], node, lambda x, y: self.arithmetic(op, x, y, node))

    def compare(self, op: CompareOp, a: Value, b: Value, node: ast.AST) -> Value:
        if is_complex(a) or is_complex(b):
            return self.complex.compare(op, a, b, node)

        def one(x: Typed, y: Typed) -> Typed:
            if self.differ_in_sign(x, y):
                return Typed(compare_signs(op, x.expr, y.expr))
            left, right, is_weak = self.unified(x, y)
            if is_weak and left.dtype.is_float:
                default = self._state.default_float
                left, right = cast(left, default), cast(right, default)
            result = compare(op, left, right)
            return Typed(result, weak=isinstance(result, Const))

        return self.each([a, b], node, one)

    def matmul(self, a: Value, b: Value, node: ast.AST) -> Value:
        """Returns `a @ b` of matrices and vectors; for two vectors it is the dot product."""
        x, y = self._operand(a), self._operand(b)
        if not isinstance(x, MatrixValue) or not isinstance(y, MatrixValue):
            self._state.fail(f"`{ast.unparse(node)}`: @ takes vectors or matrices", node)
        rows = x.rows() if len(x.shape) == 2 else (x.items,)
        columns = tuple(zip(*y.rows(), strict=True)) if len(y.shape) == 2 else (y.items,)
        if len(rows[0]) != len(columns[0]):
            self._state.fail(
                f"`{ast.unparse(node)}`: rows of {len(rows[0])} do not fit columns of {len(columns[0])}",
                node,
            )
        items = tuple(self.dot(r, c, node) for r in rows for c in columns)  # type: ignore[arg-type]
        match len(x.shape), len(y.shape):
            case 2, 2:
                return MatrixValue((len(rows), len(columns)), items)
            case 1, 1:
                return items[0]
        return MatrixValue((len(items),), items)

    def dot(self, a: Sequence[Typed], b: Sequence[Typed], node: ast.AST) -> Typed:
        total: Typed | None = None
        for x, y in zip(a, b, strict=True):
            product = self.arithmetic("mul", x, y, node)
            total = product if total is None else self.arithmetic("add", total, product, node)
        assert total is not None
        return total

    # --- one number

    def unified(self, a: Typed, b: Typed) -> tuple[Expr, Expr, bool]:
        """Returns both operands in their common type, and True if both are literals, so the result is a literal."""
        rules = self._state.rules
        return unify(a, b, self._state.default_float, rules.is_strict)

    def differ_in_sign(self, a: Typed, b: Typed) -> bool:
        """True if one integer is signed, the other unsigned, and the rules are NumPy's.

        NumPy compares their true values.
        """
        if self._state.rules.is_strict or not (a.dtype.is_integer and b.dtype.is_integer):
            return False
        return differ(a, b)

    def floats(self, a: Typed, b: Typed) -> tuple[Expr, Expr]:
        """Returns both operands in their common float type; integers are converted to it directly."""
        x, y, is_weak = self.unified(a, b)
        dtype = x.dtype if x.dtype.is_float and not is_weak else self._state.default_float
        return (x, y) if x.dtype is dtype else (adopt(a.expr, dtype), adopt(b.expr, dtype))

    def logical(self, op: str, a: Typed, b: Typed) -> Typed:
        return Typed(binary("and" if op == "and" else "or", truth(a), truth(b)))

    def function(self, op: str, x: Typed) -> Typed:
        """Returns the value of the function `op` of one number; an integer becomes a float where `op` needs one."""
        if op == "abs" and not x.dtype.is_float:
            whole = self._state.rules.default_int if x.dtype is DType.bool_ else x.dtype
            return Typed(unary("abs", cast(x.expr, whole)), x.weak)
        if OPS[op].takes in ("integers", "words", "u64"):
            return Typed(unary(op, x.expr))
        y = settle(x, self._state.default_float)
        y = y if y.dtype.is_float else cast(y, self._state.default_float)
        return Typed(unary(op, y))

    def arithmetic(self, op: str, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """`a op b` with Python's meaning: `/` gives a float, `//` and `%` round towards minus
        infinity.
        """
        if op == "pow":
            return self.power(a, b, node)
        if op in _BITS:
            return self.bits(op, a, b, node)
        if a.weak and b.weak and isinstance(a.expr, Const) and isinstance(b.expr, Const):
            return self._folded(op, a.expr, b.expr, node)
        state = self._state
        x, y, _ = self.unified(a, b)
        if op == "div" or x.dtype.is_float:
            x, y = self.floats(a, b)
        elif x.dtype is DType.bool_:
            default_int = state.rules.default_int
            x, y = cast(x, default_int), cast(y, default_int)
        if op in ("floordiv", "mod") and x.dtype.is_float and state.rules.is_strict:
            # As Taichi has it, where NumPy's are exact.
            if op == "floordiv":
                return Typed(unary("floor", binary("div", x, y)))
            op = "floor_mod"
        if op in ("floordiv", "mod") and isinstance(y, Const) and not y.value:
            state.fail("an integer is divided by zero", node)
        watch(state, op, x, y, node)
        return Typed(binary(op, x, y))  # type: ignore[arg-type]

    def bits(self, op: str, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """Returns `a op b` for a bit operator on two integers or truth values; a shift has the type of `a`."""
        if a.dtype.is_float or b.dtype.is_float:
            self._state.fail(
                f"`{ast.unparse(node)}`: bit operators take integers", node, KernelTypeError
            )
        if a.weak and b.weak and isinstance(a.expr, Const) and isinstance(b.expr, Const):
            x, y = int(a.expr.value), int(b.expr.value)
            if a.dtype is not DType.bool_ or b.dtype is not DType.bool_:
                folded = {"bit_and": x & y, "bit_or": x | y, "bit_xor": x ^ y}.get(op)
                if folded is None:
                    if not 0 <= y < 64:
                        self._state.fail(f"`{ast.unparse(node)}` shifts by {y} bits", node)
                    folded = x << y if op == "shl" else x >> y
                return Typed(const(folded, DType.i64), weak=True)
        if a.dtype is DType.bool_ and b.dtype is DType.bool_ and op in LOGICAL:
            return Typed(combined(op, a.expr, b.expr))
        left, right, _ = self.unified(a, b)
        if op in ("shl", "shr", "bit_shr") and not a.weak:
            left, right = a.expr, cast(b.expr, a.dtype)
        watch(self._state, op, left, right, node)
        return Typed(binary(op, left, right))  # type: ignore[arg-type]

    def negative(self, x: Typed) -> Typed:
        x = (
            x
            if x.dtype is not DType.bool_
            else Typed(cast(x.expr, self._state.rules.default_int), x.weak)
        )
        if x.weak and isinstance(x.expr, Const):
            return Typed(const(-x.expr.value, x.dtype), weak=True)
        return Typed(unary("neg", settle(x, self._state.default_float)))

    def inverted(self, x: Typed, node: ast.AST) -> Typed:
        """Returns `~x`, with all bits inverted."""
        if x.dtype.is_float:
            self._state.fail(f"`{ast.unparse(node)}`: ~ takes an integer", node, KernelTypeError)
        if x.dtype is DType.bool_:
            return Typed(unary("not", x.expr))
        if x.weak and isinstance(x.expr, Const):
            return Typed(const(~int(x.expr.value), x.dtype), weak=True)
        return Typed(unary("bit_not", x.expr))

    def sign_bit(self, x: Typed) -> Typed:
        """True at run time if a number is negative; for floats its sign bit, so -0.0 is negative.

        The bit is read directly, since a compiler may treat -0.0 as 0.0 in arithmetic.
        """
        number: Expr = settle(x, self._state.default_float)
        if number.dtype.is_float:
            number = bitcast(number, _WHOLE_OF[number.dtype.size_bytes])
        return Typed(compare("lt", number, const(0, number.dtype)))

    def negated(self, x: Typed) -> Typed:
        """Returns the condition `not x`."""
        return Typed(unary("not", truth(x)), x.weak)

    def least(self, op: str, values: Sequence[Value], node: ast.AST) -> Value:
        """Returns the minimum or maximum (`op`) of numbers, or of vectors component by component."""

        def one(a: Typed, b: Typed) -> Typed:
            if self.differ_in_sign(a, b):
                return Typed(least_of_signs(op, a.expr, b.expr))
            x, y, is_weak = self.unified(a, b)
            is_literal = is_weak and isinstance(x, Const) and isinstance(y, Const)
            return Typed(binary("min" if op == "min" else "max", x, y), is_literal)

        result = values[0]
        for x in values[1:]:
            result = self.each([result, x], node, one)
        return result

    def selected(self, condition: Value, a: Value, b: Value, node: ast.AST) -> Value:
        """Returns `a if condition else b`; both operands are evaluated."""
        if is_complex(a) or is_complex(b):
            return self.complex.selected(condition, a, b, node)

        def one(c: Typed, x: Typed, y: Typed) -> Typed:
            left, right, is_weak = self.unified(x, y)
            return Typed(select(truth(c), left, right), is_weak)

        return self.each([condition, a, b], node, one)

    def alike(self, a: Value, b: Value, node: ast.AST) -> Value:
        """Returns a value whose numbers have the common types of `a` and `b`: a model for locals that store either."""
        if is_complex(a) is not is_complex(b):
            a, b = (complex_value(*self.complex.parts(x, node)) for x in (a, b))
        if isinstance(a, StructValue) and isinstance(b, StructValue):
            other = dict(b.members)
            return StructValue(
                tuple((n, self.alike(m, other[n], node)) for n, m in a.members if n in other),
                a.kind,
            )
        if isinstance(a, TupleValue) and isinstance(b, TupleValue) and len(a.items) == len(b.items):
            return TupleValue(
                tuple(self.alike(x, y, node) for x, y in zip(a.items, b.items, strict=True))
            )
        return self.each([a, b], node, lambda x, y: Typed(self.unified(x, y)[0]))

    def function_of_two(self, row: Op, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """Returns the value of the function `row` (of the operation table) of two numbers in their common type."""
        if row.name == "pow":
            return self.power(a, b, node)
        if row.name == "raw_div" and (a.dtype.is_float or b.dtype.is_float):
            return Typed(binary("div", *self.floats(a, b)))
        if row.takes not in ("floats", "numbers") and not (
            a.dtype.is_integer and b.dtype.is_integer
        ):
            self._state.fail(
                f"`{ast.unparse(node)}`: {row.name} takes integers", node, KernelTypeError
            )
        x, y, _ = self.unified(a, b)
        if row.takes == "floats" or x.dtype.is_float:
            x, y = self.floats(a, b)
        return Typed(binary(row.name, x, y))  # type: ignore[arg-type]

    def _folded(self, op: str, a: Const, b: Const, node: ast.AST) -> Typed:
        try:
            return Typed(_literal(_PYTHON[op](a.value, b.value)), weak=True)
        except (ZeroDivisionError, OverflowError) as error:
            return self._state.fail(f"a constant expression cannot be evaluated: {error}", node)

    def power(self, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """The value of `a ** b`: products for small integer exponents, a square root for halves, else the function.

        The power of integers is an integer, even if the exponent is negative.
        """
        if isinstance(b.expr, Const) and a.weak and isinstance(a.expr, Const):
            try:
                known = a.expr.value**b.expr.value
                if isinstance(known, complex):
                    self._state.fail(f"`{ast.unparse(node)}` is no real number", node)
                return Typed(_literal(known), weak=True)
            except (ZeroDivisionError, OverflowError) as error:
                self._state.fail(f"a constant expression cannot be evaluated: {error}", node)
        exponent = b.expr.value if isinstance(b.expr, Const) else None
        is_small = (
            exponent is not None
            and abs(exponent) <= MAX_POWER
            and exponent * 2 == int(exponent * 2)
        )
        if not (a.dtype.is_float or b.dtype.is_float):
            return self._whole_power(a, b, node)
        if exponent is None or not is_small:
            return Typed(binary("pow", *self.floats(a, b)))
        x, _ = self.floats(a, b)
        whole_part = int(abs(exponent))
        result = _product(x, whole_part)
        if whole_part != abs(exponent):
            root = unary("sqrt", x)
            result = binary("mul", result, root) if whole_part else root
        return Typed(binary("div", const(1, x.dtype), result) if exponent < 0 else result)

    def float_power(self, a: Typed, b: Typed) -> Typed:
        """Returns a ** b, computed in the common float type of both."""
        return Typed(binary("pow", *self.floats(a, b)))

    def _whole_power(self, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """Returns the power of two integers in their common type.

        With a literal exponent it has the type of the base.
        """
        if isinstance(b.expr, Const) and b.weak and 0 <= b.expr.value <= MAX_POWER:
            whole = self._state.rules.default_int if a.dtype is DType.bool_ else a.dtype
            return Typed(_product(cast(a.expr, whole), int(b.expr.value)))
        self._no_negative_exponent(b.expr, node)
        x, y, _ = self.unified(a, b)
        if x.dtype is DType.bool_:
            whole = self._state.rules.default_int
            x, y = cast(x, whole), cast(y, whole)
        found = binary("pow", x, y)
        if x.dtype.is_signed or not b.dtype.is_signed:
            return Typed(found)
        # The exponent lost its sign: of numbers without one the quotient is 1 or 0.
        one, zero = const(1, x.dtype), const(0, x.dtype)
        quotient = select(compare("eq", x, one), one, zero)
        return Typed(select(compare("lt", b.expr, const(0, b.dtype)), quotient, found))

    def _no_negative_exponent(self, exponent: Expr, node: ast.AST) -> None:
        """Emits the assertion of debug mode that an integer exponent is not negative.

        Operands that are evaluated conditionally are not checked.
        """
        state = self._state
        if not state.is_debug or not exponent.dtype.is_signed or state.speculative_depth:
            return
        told = f"`{ast.unparse(node)}`: an integer to the power of a negative one, "
        condition = compare("ge", exponent, const(0, exponent.dtype))
        state.emit(Assert(condition, "", (told, exponent), state.frame.parsed.where(node)))


def _vector(x: Value) -> Value:
    """Returns a tuple of numbers as a vector, a tuple of vectors as a matrix, any other value unchanged."""
    if not isinstance(x, TupleValue) or not x.items:
        return x
    items = [_vector(i) for i in x.items]
    if all(isinstance(i, Typed) for i in items):
        return MatrixValue((len(items),), tuple(items))  # type: ignore[arg-type]
    first = items[0]
    if isinstance(first, MatrixValue) and all(
        isinstance(i, MatrixValue) and i.shape == first.shape for i in items
    ):
        flat = tuple(n for i in items if isinstance(i, MatrixValue) for n in i.items)
        return MatrixValue((len(items), *first.shape), flat)
    return x


def _count(shape: tuple[int, ...]) -> int:
    n = 1
    for extent in shape:
        n *= extent
    return n


def _literal(value: float) -> Const:
    return const(value, DType.f64 if isinstance(value, float) else DType.i64)


def _product(x: Expr, exponent: int) -> Expr:
    """Returns x to an integer power, by repeated squaring."""
    if exponent == 0:
        return const(1, x.dtype)
    if exponent == 1:
        return x
    half = _product(x, exponent // 2)
    square = binary("mul", half, half)
    return binary("mul", square, x) if exponent % 2 else square
