"""NumPy's and Python's names that are no operation of their own: operators as functions, methods of vectors, and definitions.

A name of NumPy in a kernel means what NumPy's means on numbers and small vectors.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.kernel import CompareOp, Const, DType
from ..ir.simplify import const, unary
from .func import Func
from .functions import function
from .intrinsics import as_dtype, one, select
from .lifting import lifted, python_object
from .typing_rules import truth
from .values import MatrixValue, Static, TupleValue, Typed, Value

if TYPE_CHECKING:
    from .expressions import Expressions
    from .scopes import Pass

_OPERATORS: dict[Any, str] = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.divide: "div",
    np.floor_divide: "floordiv",
    np.remainder: "mod",
    np.float_power: "pow",
    np.matmul: "matmul",
    np.dot: "matmul",
    np.vdot: "matmul",
    np.inner: "matmul",
    np.bitwise_and: "bit_and",
    np.bitwise_or: "bit_or",
    np.bitwise_xor: "bit_xor",
    np.left_shift: "shl",
    np.right_shift: "shr",
}
_COMPARED: dict[Any, CompareOp] = {
    np.less: "lt",
    np.less_equal: "le",
    np.greater: "gt",
    np.greater_equal: "ge",
    np.equal: "eq",
    np.not_equal: "ne",
}
_METHODS: dict[Any, str] = {
    np.sum: "sum",
    np.max: "max",
    np.min: "min",
    np.any: "any",
    np.all: "all",
    np.trace: "trace",
    np.transpose: "transpose",
    np.cross: "cross",
    np.outer: "outer_product",
    np.linalg.norm: "norm",
    np.linalg.det: "determinant",
    np.linalg.inv: "inverse",
}
_LOGICAL: dict[Any, str] = {np.logical_and: "and", np.logical_or: "or", np.logical_xor: "ne"}
_LISTS = (np.array, np.asarray, np.stack)

exp, isinf, isnan, log, log1p = map(function, ("exp", "isinf", "isnan", "log", "log1p"))
raw_mod, rint = function("raw_mod"), function("rint")


def _square(x):  # type: ignore[no-untyped-def]
    return x * x


def _reciprocal(x):  # type: ignore[no-untyped-def]
    return 1 / x


def _sign(x):  # type: ignore[no-untyped-def]
    return select(x > 0, one(x), select(x < 0, -one(x), x))


def _cbrt(x):  # type: ignore[no-untyped-def]
    """One step of Newton's behind the power, which misses some last digits."""
    size = abs(x)
    root = size ** (1 / 3)
    better = root - (root * root * root - size) / (3 * root * root)
    return select(size > 0, select(x < 0, -better, better), x)


def _radians(x):  # type: ignore[no-untyped-def]
    return x * (math.pi / 180)


def _degrees(x):  # type: ignore[no-untyped-def]
    return x * (180 / math.pi)


def _isfinite(x):  # type: ignore[no-untyped-def]
    return not (isnan(x) or isinf(x))


def _signbit(x):  # type: ignore[no-untyped-def]
    return x < 0 or (x == 0 and 1.0 / x < 0)


def _copysign(x, y):  # type: ignore[no-untyped-def]
    return select(y < 0 or (y == 0 and 1.0 / y < 0), -abs(x), abs(x))


def _heaviside(x, half):  # type: ignore[no-untyped-def]
    return select(x == 0, half, select(x < 0, 0 * x, one(x)))


def _fmax(a, b):  # type: ignore[no-untyped-def]
    return select(a != a, b, select(b != b, a, max(a, b)))


def _fmin(a, b):  # type: ignore[no-untyped-def]
    return select(a != a, b, select(b != b, a, min(a, b)))


def _fmod(a, b):  # type: ignore[no-untyped-def]
    return raw_mod(a, b)


def _logaddexp(a, b):  # type: ignore[no-untyped-def]
    return max(a, b) + log1p(exp(-abs(a - b)))


def _clip(x, low, high):  # type: ignore[no-untyped-def]
    return min(max(x, low), high)


def _gcd(a, b):  # type: ignore[no-untyped-def]
    x = abs(a)
    y = abs(b)
    while y != 0:
        rest = x % y
        x = y
        y = rest
    return x


def _lcm(a, b):  # type: ignore[no-untyped-def]
    x = abs(a)
    y = abs(b)
    product = x * y
    while y != 0:
        rest = x % y
        x = y
        y = rest
    return product // max(x, 1)


def _isclose(a, b):  # type: ignore[no-untyped-def]
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


def _divmod(a, b):  # type: ignore[no-untyped-def]
    return a // b, a % b


def _round_to(x, digits):  # type: ignore[no-untyped-def]
    return rint(x * 10.0**digits) / 10.0**digits


def _log(x, base):  # type: ignore[no-untyped-def]
    return log(x) / log(base)


_DEFINED: dict[Any, Callable[..., Any]] = {
    np.square: _square,
    np.reciprocal: _reciprocal,
    np.sign: _sign,
    np.cbrt: _cbrt,
    math.cbrt: _cbrt,
    np.radians: _radians,
    np.deg2rad: _radians,
    math.radians: _radians,
    np.degrees: _degrees,
    np.rad2deg: _degrees,
    math.degrees: _degrees,
    np.isfinite: _isfinite,
    math.isfinite: _isfinite,
    np.signbit: _signbit,
    np.copysign: _copysign,
    math.copysign: _copysign,
    np.heaviside: _heaviside,
    np.fmax: _fmax,
    np.fmin: _fmin,
    np.fmod: _fmod,
    math.fmod: _fmod,
    np.logaddexp: _logaddexp,
    np.clip: _clip,
    np.gcd: _gcd,
    math.gcd: _gcd,
    np.lcm: _lcm,
    math.lcm: _lcm,
    math.isclose: _isclose,
    builtins.divmod: _divmod,
}


@functools.cache
def definition_of(callee: Any, n_arguments: int) -> Func | None:
    """The function of the language that stands for one of NumPy or Python; None where there is none."""
    if callee is math.log and n_arguments == 2:
        return Func(_log)
    if callee in (round, np.round, np.around) and n_arguments == 2:
        return Func(_round_to)
    found = _DEFINED.get(callee)
    return None if found is None else Func(found)


def advice(target: Any) -> str:
    """What to do about a call of something that the language has not."""
    if type(target).__name__ in ("Kernel", "BoundKernel"):
        return "call it from a sequence"
    module = (getattr(target, "__module__", None) or "").partition(".")[0]
    is_own = module not in sys.stdlib_module_names and "-packages" not in _file_of(target)
    if inspect.isfunction(target) and is_own:
        return "decorate it with @ks.func"
    return "the language has no such function, write it with those that it has"


def _file_of(target: Any) -> str:
    try:
        return inspect.getfile(target)
    except TypeError:
        return ""


class NumpyNames:
    """Calls by these names in a pass."""

    def __init__(self, state: Pass, expressions: Expressions) -> None:
        self._state, self._expr = state, expressions

    def call(
        self, target: Any, args: Sequence[Value], named: dict[str, Value], node: ast.Call
    ) -> Value | None:
        """The value of a call; None where the name is none of these."""
        operators = self._expr.operators
        if not isinstance(target, Hashable) or not args:
            return None
        if target in _LISTS or target in (np.eye, np.identity, np.arange):
            return self._made(target, args, named, node)
        if named:
            return None
        if len(args) == 2 and target in _OPERATORS:
            return operators.binary(_OPERATORS[target], args[0], args[1], node)
        if len(args) == 2 and target in _COMPARED:
            return operators.compare(_COMPARED[target], args[0], args[1], node)
        if len(args) == 2 and target in _LOGICAL:
            op = _LOGICAL[target]
            return operators.each(args, node, lambda a, b: self._joined(op, a, b, node))
        if target is np.select and len(args) in (2, 3):
            return self._selected(args, node)
        if target in (np.prod, np.mean, any, all, math.fsum) or target in _METHODS:
            return self._of_vector(target, args, node)
        if len(args) == 1:
            return self._of_one(target, args[0], node)
        return None

    def _joined(self, op: str, a: Typed, b: Typed, node: ast.Call) -> Typed:
        x, y = Typed(truth(a)), Typed(truth(b))
        if op == "ne":
            return self._expr.operators.bits("bit_xor", x, y, node)
        return self._expr.operators.logical(op, x, y)

    def _of_one(self, target: Any, x: Value, node: ast.Call) -> Value | None:
        operators = self._expr.operators
        if target is np.negative:
            return operators.each([x], node, operators.negative)
        if target is np.positive:
            return x
        if target is np.invert:
            return operators.each([x], node, lambda n: operators.inverted(n, node))
        if target in (np.finfo, np.iinfo):
            dtype = self._dtype(x, node)
            if dtype.is_float is not (target is np.finfo):
                self._state.fail(f"`{ast.unparse(node)}`: {dtype.name} has no such limits", node)
            return Static(target(dtype.numpy))
        if target is np.logical_not:
            return operators.each([x], node, lambda n: Typed(unary("not", truth(n))))
        return None

    def _selected(self, args: Sequence[Value], node: ast.Call) -> Value:
        """`np.select([a, b], [x, y], default)`: the first whose condition holds."""
        conditions, values = args[:2]
        result = args[2] if len(args) == 3 else lifted(self._state, 0)
        if not isinstance(conditions, TupleValue) or not isinstance(values, TupleValue):
            self._state.fail(f"`{ast.unparse(node)}` takes two lists in a kernel", node)
        for c, x in reversed(list(zip(conditions.items, values.items, strict=False))):
            result = self._expr.operators.selected(c, x, result, node)
        return result

    def _made(
        self, target: Any, args: Sequence[Value], named: dict[str, Value], node: ast.Call
    ) -> Value:
        """Vectors and matrices of numbers that are given, or of those of a range or a unit matrix."""
        given = list(args)
        first = given.pop(0)
        dt = named.pop("dtype", given.pop(0) if given else None)
        if named or given:
            self._state.fail(f"`{ast.unparse(node)}` takes numbers and a dtype in a kernel", node)
        dtype = None if dt is None else self._dtype(dt, node)
        if target in _LISTS:
            return self._expr.matrices.matrix(first, dtype, node)
        if not isinstance(first, Typed) or not isinstance(first.expr, Const):
            self._state.fail(f"`{ast.unparse(node)}` takes a constant in a kernel", node)
        n = int(first.expr.value)
        if target is np.arange:
            numbers = TupleValue(tuple(lifted(self._state, k) for k in range(n)))
            return self._expr.matrices.matrix(numbers, dtype, node)
        rows = tuple(
            TupleValue(tuple(Typed(const(int(k == m), DType.f64)) for m in range(n)))
            for k in range(n)
        )
        return self._expr.matrices.matrix(TupleValue(rows), dtype, node)

    def _dtype(self, x: Value, node: ast.Call) -> DType:
        try:
            return as_dtype(python_object(x))
        except TypeError as error:
            return self._state.fail(f"`{ast.unparse(node)}`: {error}", node)

    def _of_vector(self, target: Any, args: Sequence[Value], node: ast.Call) -> Value:
        """Reductions and other functions of a vector, a matrix or a tuple of numbers."""
        first, *rest = args
        operators, matrices = self._expr.operators, self._expr.matrices
        if isinstance(first, TupleValue) and first.items:
            first = matrices.matrix(first, None, node)
        if not isinstance(first, MatrixValue):
            self._state.fail(
                f"`{ast.unparse(node)}` takes a vector or a matrix in a kernel: sum up arrays in a loop",
                node,
            )
        name = {any: "any", all: "all", math.fsum: "sum"}.get(target) or _METHODS.get(target)
        if name is not None:
            return matrices.method(first, name, rest, {}, node)
        op = "mul" if target is np.prod else "add"
        total: Value = first.items[0]
        for x in first.items[1:]:
            total = operators.binary(op, total, x, node)
        if target is np.mean:
            total = operators.binary("div", total, lifted(self._state, len(first.items)), node)
        return total
