"""Operators and functions of complex numbers, composed of operations on real ones."""

from __future__ import annotations

import ast

from ..ir.kernel import CompareOp, Const, DType
from ..ir.ops import OPS
from ..ir.simplify import binary as joined
from ..ir.simplify import cast, compare, const, select, unary
from .complex_numbers import ComplexType, complex_value, is_complex
from .errors import KernelTypeError
from .lvalues import Places
from .operators import Operators
from .scopes import Pass
from .values import MatrixValue, StructValue, Typed, Value


class ComplexNumbers:
    """Operators and functions of complex numbers in a pass; a real operand has an imaginary part of zero."""

    def __init__(self, state: Pass, operators: Operators, places: Places) -> None:
        self._state, self._operators, self._places = state, operators, places

    def binary(self, op: str, a: Value, b: Value, node: ast.AST) -> Value:
        if op == "pow":
            return self._power(a, b, node)
        if op not in ("add", "sub", "mul", "div"):
            self._state.fail(
                f"`{ast.unparse(node)}`: complex numbers have + - * / ** alone",
                node,
                KernelTypeError,
            )
        if op in ("add", "sub"):
            return self._each(op, self.parts(a, node), self.parts(b, node), node)
        x, y = self.shared_parts(a, node), self.shared_parts(b, node)
        if op == "mul":
            return self._product(x, y, node)
        if not is_complex(b):
            return complex_value(*(self._do("div", n, y[0], node) for n in x))
        return self._quotient(x, y, node)

    def compare(self, op: CompareOp, a: Value, b: Value, node: ast.AST) -> Typed:
        if op not in ("eq", "ne"):
            self._state.fail(
                f"`{ast.unparse(node)}`: complex numbers have no order", node, KernelTypeError
            )
        pairs = zip(self.parts(a, node), self.parts(b, node), strict=True)
        first, second = (self._operators.compare(op, x, y, node) for x, y in pairs)
        assert isinstance(first, Typed)
        assert isinstance(second, Typed)
        return Typed(joined("and" if op == "eq" else "or", first.expr, second.expr))

    def selected(self, condition: Value, a: Value, b: Value, node: ast.AST) -> Value:
        pairs = zip(self.parts(a, node), self.parts(b, node), strict=True)
        return complex_value(*(self._operators.selected(condition, x, y, node) for x, y in pairs))

    def negative(self, x: Value, node: ast.AST) -> Value:
        return complex_value(*(self._operators.negative(n) for n in self.parts(x, node)))

    def conjugate(self, x: Value, node: ast.AST) -> Value:
        real, imag = self.parts(x, node)
        return complex_value(real, self._operators.negative(imag))

    def angle(self, x: Value, node: ast.AST) -> Typed:
        real, imag = self.parts(x, node)
        return self._operators.function_of_two(OPS["atan2"], imag, real, node)

    def function(self, op: str, x: Value, node: ast.AST) -> Value:
        """Returns `abs(x)`, which is real, or another function of a complex number, by formulas of real numbers.

        `op`: name of the function.
        """
        do = self._operators.function
        real, imag = self.shared_parts(x, node)
        match op:
            case "abs":
                return self._operators.function_of_two(OPS["hypot"], real, imag, node)
            case "exp":
                scale = self._kept(do("exp", real), node)
                return self._each_scaled(scale, do("cos", imag), do("sin", imag), node)
            case "log":
                size = self._operators.function_of_two(OPS["hypot"], real, imag, node)
                return complex_value(do("log", size), self.angle(complex_value(real, imag), node))
            case "sqrt":
                return self._root(real, imag, node)
            case "sin":
                a, b = self._do("mul", do("sin", real), do("cosh", imag), node), do("cos", real)
                return complex_value(a, self._do("mul", b, do("sinh", imag), node))
            case "cos":
                a, b = self._do("mul", do("cos", real), do("cosh", imag), node), do("sin", real)
                product = self._do("mul", b, do("sinh", imag), node)
                return complex_value(a, self._operators.negative(product))
        return self._state.fail(
            f"`{ast.unparse(node)}`: complex numbers have abs, exp, log, sqrt, sin and cos",
            node,
            KernelTypeError,
        )

    def as_type(self, x: Value, kind: ComplexType, node: ast.AST) -> StructValue:
        """Returns a number, real or complex, converted to the complex type `kind`."""
        wanted = kind.part
        dtype = self._state.default_float if wanted is float else wanted
        parts = (Typed(cast(n.expr, dtype)) for n in self.parts(x, node))
        return complex_value(*parts)

    # --- parts

    def parts(self, x: Value, node: ast.AST) -> tuple[Typed, Typed]:
        """Returns the real and the imaginary part of a number; the parts of a literal are literals."""
        if isinstance(x, MatrixValue):
            self._state.fail(
                f"`{ast.unparse(node)}`: a vector has real components in a kernel, keep complex numbers apart",
                node,
            )
        if isinstance(x, StructValue) and is_complex(x):
            real, imag = (self._operators.number(m, node) for _, m in x.members)
            return real, imag
        return self._operators.number(x, node), Typed(const(0.0, DType.f64), weak=True)

    def shared_parts(self, x: Value, node: ast.AST) -> tuple[Typed, Typed]:
        """Returns the real and the imaginary part in locals, for formulas that use a part several times."""
        return self.parts(self._places.shared(x, node), node)

    def _kept(self, x: Typed, node: ast.AST) -> Typed:
        found = self._places.shared(x, node)
        assert isinstance(found, Typed)
        return found

    # --- formulas

    def _do(self, op: str, a: Typed, b: Typed, node: ast.AST) -> Typed:
        """Returns `a op b` of two real numbers. Adding a literal 0, or multiplying by it, is folded."""
        if _is_zero(a) and op in ("add", "mul"):
            return b if op == "add" else a
        if _is_zero(b) and op in ("add", "sub", "mul"):
            return b if op == "mul" else a
        if _is_zero(a) and op == "sub":
            return self._operators.negative(b)
        return self._operators.arithmetic(op, a, b, node)

    def _each(
        self, op: str, x: tuple[Typed, Typed], y: tuple[Typed, Typed], node: ast.AST
    ) -> StructValue:
        return complex_value(*(self._do(op, a, b, node) for a, b in zip(x, y, strict=True)))

    def _each_scaled(self, scale: Typed, a: Typed, b: Typed, node: ast.AST) -> StructValue:
        return complex_value(*(self._do("mul", scale, n, node) for n in (a, b)))

    def _product(
        self, x: tuple[Typed, Typed], y: tuple[Typed, Typed], node: ast.AST
    ) -> StructValue:
        def times(a: Typed, b: Typed) -> Typed:
            return self._do("mul", a, b, node)

        real = self._do("sub", times(x[0], y[0]), times(x[1], y[1]), node)
        return complex_value(real, self._do("add", times(x[0], y[1]), times(x[1], y[0]), node))

    def _quotient(
        self, x: tuple[Typed, Typed], y: tuple[Typed, Typed], node: ast.AST
    ) -> StructValue:
        """Returns x / y by Smith's Algorithm 116 (1962), scaled by the larger part of y against overflow."""

        def do(op: str, a: Typed, b: Typed) -> Typed:
            return self._operators.arithmetic(op, a, b, node)

        def either(a: Typed, b: Typed) -> Typed:
            left, right, _ = self._operators.unified(a, b)
            return self._kept(Typed(select(is_wide, left, right)), node)

        c, d, _ = self._operators.unified(*y)
        is_wide = compare("ge", unary("abs", c), unary("abs", d))
        large, small = either(y[0], y[1]), either(y[1], y[0])
        ratio = self._kept(do("div", small, large), node)
        scale = self._kept(do("add", large, do("mul", small, ratio)), node)
        near, far = either(x[0], x[1]), either(x[1], x[0])
        real = do("div", do("add", near, do("mul", far, ratio)), scale)
        turned = do("div", do("sub", far, do("mul", near, ratio)), scale)
        sign, opposite, _ = self._operators.unified(turned, self._operators.negative(turned))
        return complex_value(real, Typed(select(is_wide, sign, opposite)))

    def _root(self, real: Typed, imag: Typed, node: ast.AST) -> StructValue:
        """Returns the square root with a non-negative real part; its imaginary part has the sign of `imag`."""
        do = self._operators
        half, none = (
            Typed(const(0.5, DType.f64), weak=True),
            Typed(const(0.0, DType.f64), weak=True),
        )

        def chosen(op: CompareOp, x: Typed, a: Typed, b: Typed) -> Typed:
            left, zero, _ = do.unified(x, none)
            first, second, _ = do.unified(a, b)
            return Typed(select(compare(op, left, zero), first, second))

        # The larger part is a root of a sum. The other follows from their product, imag / 2: a difference would cancel.
        size = do.function_of_two(OPS["hypot"], real, imag, node)
        total = do.arithmetic("add", size, do.function("abs", real), node)
        large = self._kept(do.function("sqrt", do.arithmetic("mul", half, total, node)), node)
        quotient = do.arithmetic("div", do.arithmetic("mul", half, imag, node), large, node)
        small = self._kept(chosen("gt", large, quotient, imag), node)
        sign = do.sign_bit(imag)  # of a zero, too: the two sides of the cut
        first, second, _ = do.unified(do.negative(large), large)
        turned = Typed(select(sign.expr, first, second))
        width = chosen("ge", real, large, do.function("abs", small))
        return complex_value(width, chosen("ge", real, small, turned))

    def _power(self, a: Value, b: Value, node: ast.AST) -> Value:
        """Returns a ** b: products for small integer exponents, otherwise exp(b log a).

        A base of zero has no logarithm. Its power is 0 if the real part of b is positive, and 1 if b is zero.
        """
        exponent = b.expr.value if isinstance(b, Typed) and isinstance(b.expr, Const) else None
        if exponent == 0:
            real, _ = self.parts(a, node)
            dtype = real.dtype if real.dtype.is_float else self._state.default_float
            return complex_value(Typed(const(1.0, dtype)), Typed(const(0.0, dtype)))
        if exponent is None or not 0 < exponent <= 16 or exponent != int(exponent):
            base, power = self.shared_parts(a, node), self.shared_parts(b, node)
            logarithm = self.function("log", complex_value(*base), node)
            product = self._product(power, self.parts(logarithm, node), node)
            found = self.function("exp", product, node)
            none = Typed(const(0.0, DType.f64), weak=True)
            one = complex_value(Typed(const(1.0, DType.f64), weak=True), none)
            of_zero = self.compare("eq", complex_value(*base), none, node)
            is_positive = self._operators.compare("gt", power[0], none, node)
            is_zero = self._operators.logical(
                "and", of_zero, self._operators.number(is_positive, node)
            )
            found = self.selected(is_zero, none, found, node)
            return self.selected(
                self.compare("eq", complex_value(*power), none, node), one, found, node
            )
        square, result = a, None
        left = int(exponent)
        while left:
            if left % 2:
                result = square if result is None else self.binary("mul", result, square, node)
            left //= 2
            square = self.binary("mul", square, square, node) if left else square
        assert result is not None
        return result


def _is_zero(x: Typed) -> bool:
    return x.weak and isinstance(x.expr, Const) and x.expr.value == 0
