"""Functions of NumPy and Python that are no IR operation: operators, methods and constructors of vectors by name.

A name of NumPy in a kernel has NumPy's meaning on numbers and small vectors.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ..ir.kernel import CompareOp, Const, DType
from ..ir.simplify import const, unary
from .complex_numbers import is_complex
from .function_calls import element_type
from .protocol import Frontend
from .python_objects import lifted
from .scopes import Pass
from .typing_rules import truth
from .values import MatrixValue, Static, TupleValue, Typed, Value

_OPERATORS: dict[Any, str] = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.divide: "div",
    np.floor_divide: "floordiv",
    np.remainder: "mod",
    np.matmul: "matmul",
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
_OF_TWO = (np.cross, np.outer)
_LOGICAL: dict[Any, str] = {np.logical_and: "and", np.logical_or: "or", np.logical_xor: "ne"}
_PRODUCTS = (np.dot, np.inner, np.vdot)
_LISTS = (np.array, np.asarray, np.stack)
_MOST_NUMBERS = 256  # that are written out: a choice among 700 is nested too deeply for Python
_WHOLE_OF = {2: DType.i16, 4: DType.i32, 8: DType.i64}


# Functions of Python that loops often run over.
_INSTEAD: dict[Any, str] = {
    enumerate: "write `for i in range(x.shape[0])`, and x[i] in the loop",
    zip: "write `for i in range(x.shape[0])`, and x[i] and y[i] in the loop",
    reversed: "write `for i in range(n - 1, -1, -1)`",
}


def is_kernel(target: Any) -> bool:
    """True if the callee is a kernel, as a function or as a method."""
    return type(target).__name__ in ("Kernel", "BoundKernel")


def advice(target: Any) -> str:
    """Returns the advice that an error message gives for a call that kernels do not support."""
    if is_kernel(target):
        return "call it from a sequence"
    module = (getattr(target, "__module__", None) or "").partition(".")[0]
    is_own = module not in sys.stdlib_module_names and "-packages" not in _file_of(target)
    if inspect.isfunction(target) and is_own:
        return "decorate it with @ks.func"
    return _INSTEAD.get(
        target, "the language has no such function, write it with those that it has"
    )


def _file_of(target: Any) -> str:
    try:
        return inspect.getfile(target)
    except TypeError:
        return ""


class NumpyNames:
    """Compiles calls of functions of NumPy and Python by name, in a pass."""

    def __init__(self, state: Pass, frontend: Frontend) -> None:
        self._state, self._expr = state, frontend

    def call(
        self, target: Any, args: Sequence[Value], named: dict[str, Value], node: ast.Call
    ) -> Value | None:
        """Returns the value of a call of `target`; None if it is none of the functions of this module."""
        operators = self._expr.operators
        if not isinstance(target, Hashable) or not args:
            return None
        if target in _LISTS or target in (np.eye, np.identity, np.arange):
            return self._made(target, args, named, node)
        if target is np.roll:
            return self._rolled(args, named, node)
        is_of_vector = target in (np.prod, np.mean, any, all, math.fsum) or target in _METHODS
        if is_of_vector and (named or len(args) != 1 + (target in _OF_TWO)):
            self._state.fail(
                f"`{ast.unparse(node)}` takes {'two vectors' if target in _OF_TWO else 'one vector or matrix'} in a kernel, "
                f"and no axis or other choice",
                node,
            )
        if named:
            return None
        if len(args) == 2 and target in _PRODUCTS:
            return self._product(target, args[0], args[1], node)
        if len(args) == 2 and target in _OPERATORS:
            return operators.binary(_OPERATORS[target], args[0], args[1], node)
        if len(args) == 2 and target is np.float_power:
            return operators.each(args, node, operators.float_power)
        if len(args) == 2 and target in _COMPARED:
            return operators.compare(_COMPARED[target], args[0], args[1], node)
        if len(args) == 2 and target in _LOGICAL:
            op = _LOGICAL[target]
            return operators.each(args, node, lambda a, b: self._joined(op, a, b, node))
        if target is np.select and len(args) in (2, 3):
            return self._selected(args, node)
        if is_of_vector:
            return self._of_vector(target, args, node)
        if len(args) == 1:
            return self._of_one(target, args[0], node)
        return None

    def _joined(self, op: str, a: Typed, b: Typed, node: ast.Call) -> Typed:
        x, y = Typed(truth(a)), Typed(truth(b))
        if op == "ne":
            return self._expr.operators.bits("bit_xor", x, y, node)
        return self._expr.operators.logical(op, x, y)

    def _product(self, target: Any, a: Value, b: Value, node: ast.Call) -> Value:
        """Returns the value of `np.dot`, or of `np.inner` or `np.vdot` with their own rules for matrices, complex."""
        operators, matrices = self._expr.operators, self._expr.matrices
        if target is np.vdot and is_complex(a):
            a = self._expr.complex.conjugate(a, node)
        if not isinstance(a, MatrixValue) or not isinstance(b, MatrixValue):
            return operators.binary("mul", a, b, node)
        if target is np.vdot and len(a.shape) == 2:
            each = operators.binary("mul", a, b, node)
            assert isinstance(each, MatrixValue)
            return matrices.method(each, "sum", [], {}, node)
        if target is np.inner and len(b.shape) == 2:
            turned = matrices.method(b, "transpose", [], {}, node)
            return operators.binary("matmul", a, turned, node)
        return operators.binary("matmul", a, b, node)

    def _of_one(self, target: Any, x: Value, node: ast.Call) -> Value | None:
        operators = self._expr.operators
        if target is np.negative:
            return operators.each([x], node, operators.negative)
        if target is np.signbit:
            return operators.each([x], node, operators.sign_bit)
        if target is np.positive:
            return x
        if target is np.invert:
            return operators.each([x], node, lambda n: operators.inverted(n, node))
        if target in (np.finfo, np.iinfo):
            dtype = element_type(self._state, x, node)
            if dtype is DType.bool_ or dtype.is_float is not (target is np.finfo):
                self._state.fail(f"`{ast.unparse(node)}`: {dtype.name} has no such limits", node)
            return Static(target(dtype.numpy))
        if target is np.logical_not:
            return operators.each([x], node, lambda n: Typed(unary("not", truth(n))))
        return None

    def _selected(self, args: Sequence[Value], node: ast.Call) -> Value:
        """Returns the value of `np.select([a, b], [x, y], default)`: the choice of the first true condition."""
        conditions, values = args[:2]
        result = args[2] if len(args) == 3 else lifted(self._state, 0)
        if not isinstance(conditions, TupleValue) or not isinstance(values, TupleValue):
            self._state.fail(f"`{ast.unparse(node)}` takes two lists in a kernel", node)
        if len(conditions.items) != len(values.items):
            self._state.fail(f"`{ast.unparse(node)}` takes two lists of one length", node)
        for c, x in reversed(list(zip(conditions.items, values.items, strict=True))):
            result = self._expr.operators.selected(c, x, result, node)
        return result

    def _rolled(self, args: Sequence[Value], named: dict[str, Value], node: ast.Call) -> Value:
        """Returns the value of `np.roll(v, shift)`, or of `np.roll(v, shift, axis)` of a matrix."""
        given = dict(zip(("a", "shift", "axis"), args, strict=False)) | named
        v = given.get("a")
        if not isinstance(v, MatrixValue):
            self._state.fail(
                f"`{ast.unparse(node)}` takes a vector or a matrix in a kernel: "
                f"of an array read x[(i - shift) % x.shape[0]] in a loop",
                node,
            )
        if len(args) > 3 or not {"a", "shift"} <= given.keys() <= {"a", "shift", "axis"}:
            self._state.fail(f"`{ast.unparse(node)}` takes a vector, a shift and an axis", node)
        places = np.arange(len(v.items)).reshape(v.shape)
        axis = self._whole(given["axis"], node) if "axis" in given else None
        if axis is not None and not -len(v.shape) <= axis < len(v.shape):
            self._state.fail(f"`{ast.unparse(node)}`: there is no axis {axis}", node)
        rolled = np.roll(places, self._whole(given["shift"], node), axis)
        return MatrixValue(v.shape, tuple(v.items[k] for k in rolled.ravel()))

    def _made(
        self, target: Any, args: Sequence[Value], named: dict[str, Value], node: ast.Call
    ) -> Value:
        """Returns the value of `np.array`, `np.arange` or `np.eye` and the like, as a vector or matrix."""
        given = list(args)
        n_bounds = len(given) if target is np.arange else 1
        bounds, given = given[:n_bounds], given[n_bounds:]
        dt = named.pop("dtype", given.pop(0) if given else None)
        if named or given:
            self._state.fail(f"`{ast.unparse(node)}` takes numbers and a dtype in a kernel", node)
        dtype = None if dt is None else element_type(self._state, dt, node)
        if target in _LISTS and isinstance(bounds[0], Typed):  # an array of no axes is its number
            x = bounds[0]
            return x if dtype is None else self._expr.matrices.converted(x, dtype)
        if target in _LISTS:
            return self._expr.matrices.matrix(bounds[0], dtype, node)
        known = [self._whole(x, node) for x in bounds]
        if target is np.arange:
            if len(known) > 3 or 0 in known[2:]:
                self._state.fail(f"`{ast.unparse(node)}` takes a start, a stop and a step", node)
            self._few(len(range(*known)), node)
            numbers = TupleValue(tuple(lifted(self._state, k) for k in range(*known)))
            return self._expr.matrices.matrix(numbers, dtype, node)
        n = known[0]
        self._few(n * n, node)
        rows = tuple(
            TupleValue(tuple(Typed(const(int(k == m), DType.f64)) for m in range(n)))
            for k in range(n)
        )
        return self._expr.matrices.matrix(TupleValue(rows), dtype, node)

    def _few(self, count: int, node: ast.Call) -> None:
        if count > _MOST_NUMBERS:
            self._state.fail(
                f"`{ast.unparse(node)}` has {count} numbers, each of them a value of its own in a kernel: "
                f"at most {_MOST_NUMBERS}, pass more as an argument",
                node,
            )

    def _whole(self, x: Value, node: ast.Call) -> int:
        match x:
            case Typed(Const(value, dtype)) if dtype.is_integer:
                return int(value)
        return self._state.fail(f"`{ast.unparse(node)}` takes whole constants in a kernel", node)

    def _of_vector(self, target: Any, args: Sequence[Value], node: ast.Call) -> Value:
        """Returns the value of a function of one or two vectors or matrices, such as `np.sum` or `np.cross`."""
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
