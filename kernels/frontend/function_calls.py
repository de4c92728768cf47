"""Calls of named functions in a kernel: operations, conversions, functions of complex numbers, and Python's own."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..ir.kernel import Bitcast, DType
from ..ir.ops import OPS
from ..ir.simplify import cast, const
from . import intrinsics, random, values
from .complex_numbers import complex_annotation, complex_value, is_complex
from .errors import KernelTypeError
from .functions import WHOLE, operation_of
from .intrinsics import cast as cast_call
from .operators import COMPARE
from .protocol import Frontend
from .python_objects import lifted, python_object
from .scopes import Pass
from .stopping import stopped
from .typing_rules import truth

_OF_COMPLEX = (np.conj, np.conjugate, np.real, np.imag, np.angle)
_PLAIN = (float, int, bool)
# Functions of Python's module `operator`: the operation of each.
_OPERATORS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "truediv": "div",
    "floordiv": "floordiv",
    "mod": "mod",
    "pow": "pow",
    "and": "bit_and",
    "or": "bit_or",
    "xor": "bit_xor",
    "lshift": "shl",
    "rshift": "shr",
    "matmul": "matmul",
}


def element_type(state: Pass, x: values.Value, node: ast.AST) -> DType:
    """Returns the element type that an argument names: of the language, of NumPy, or `float`, `int`, `bool`."""
    python = python_object(x)
    if python is float:
        return state.default_float
    if python is int:
        return state.rules.default_int
    if python is bool:
        return DType.bool_
    try:
        if isinstance(python, str) and state.rules.is_strict:
            raise TypeError(python)
        return intrinsics.as_dtype(python)
    except TypeError:
        return state.fail(
            f"`{ast.unparse(node)}`: {python!r} is not an element type: use ks.f32, ks.f64, ks.i32 or another",
            node,
        )


class FunctionCalls:
    """Compiles calls of named functions in a pass. The arguments are values: they are evaluated already."""

    def __init__(self, state: Pass, frontend: Frontend) -> None:
        self._state, self._expr = state, frontend

    def call(self, target: Any, args: list[values.Value], node: ast.Call) -> values.Value | None:
        """Returns the value of a call of `target`; None if the language has no such function."""
        result = self._of_numbers(target, args, node)
        return self._of_python(target, args, node) if result is None else result

    def _of_numbers(
        self, target: Any, args: list[values.Value], node: ast.Call
    ) -> values.Value | None:
        operators = self._expr.operators
        if isinstance(target, type) and issubclass(target, np.number | np.bool_):
            kind = complex_annotation(target)
            target = (
                target
                if kind
                else bool
                if target is np.bool_
                else element_type(self._state, values.Static(target), node)
            )
        if any(target is f for f in _OF_COMPLEX) or complex_annotation(target) is not None:
            return self._of_complex(target, args, node)
        if isinstance(target, DType) or target is cast_call or target in _PLAIN:
            return self.conversion(target, args, node)
        if target is intrinsics.bit_cast:
            self._count(args, 2, node)
            dtype = element_type(self._state, args[1], node)
            return operators.each([args[0]], node, lambda x: values.Typed(Bitcast(x.expr, dtype)))
        if target in intrinsics.MINMAX_CALLS or target in (builtins.min, builtins.max):
            return self._least(intrinsics.MINMAX_CALLS[target], args, node)
        if target is intrinsics.select or target is np.where:
            self._count(args, 3, node)
            return operators.selected(args[0], args[1], args[2], node)
        if target is intrinsics.logical_not:
            self._count(args, 1, node)
            return operators.each([args[0]], node, operators.negated)
        if target is intrinsics.stop_grad:
            self._count(args, 1, node)
            return self._stopped(args[0], node)
        if target is intrinsics.assume_in_range:
            self._count(args, 4, node)
            return args[0]
        if target in (intrinsics.zero, intrinsics.one):
            self._count(args, 1, node)
            value = int(target is intrinsics.one)
            return operators.each([args[0]], node, lambda x: values.Typed(const(value, x.dtype)))
        if target is pow:
            self._count(args, 2, node)
            return operators.binary("pow", args[0], args[1], node)
        operation = operation_of(target)
        if operation is not None:
            return self._math(operation, target, args, node)
        if getattr(target, "__module__", None) == operator.add.__module__:
            return self._operator(target.__name__, args, node)
        return random.draw(
            self._state, self._expr.places, target, args, partial(element_type, self._state), node
        )

    def _stopped(self, x: values.Value, node: ast.Call) -> values.Value:
        state = self._state
        state.has_forms = True
        if isinstance(x, values.ArrayRef):
            around = state.blocks[:2][-1]  # of the outermost loop
            state.stopped[id(around)].add(x.param.name)
        if isinstance(x, values.ArrayRef) or not state.is_differentiated:
            return x
        return self._expr.operators.each([x], node, lambda v: values.Typed(stopped(v.expr)))

    def _operator(self, name: str, args: list[values.Value], node: ast.Call) -> values.Value | None:
        """Returns the value of a call of Python's `operator` module; None if no operator matches it."""
        operators = self._expr.operators
        plain = name.strip("_")
        if plain in _OPERATORS:
            self._count(args, 2, node)
            return operators.binary(_OPERATORS[plain], args[0], args[1], node)
        if plain in COMPARE.values():
            self._count(args, 2, node)
            return operators.compare(plain, args[0], args[1], node)  # type: ignore[arg-type]
        unary: dict[str, Callable[..., values.Typed]] = {
            "neg": operators.negative,
            "not": operators.negated,
            "invert": partial(operators.inverted, node=node),
            "inv": partial(operators.inverted, node=node),
            "pos": lambda x: x,
        }
        of_one = unary.get(plain)
        if of_one is None:
            return None
        self._count(args, 1, node)
        return operators.each([args[0]], node, of_one)

    def _of_complex(self, target: Any, args: list[values.Value], node: ast.Call) -> values.Value:
        """Returns the value of `complex(x, y)`, `x.real`, `x.conjugate()` and the like, also for real numbers."""
        complexes = self._expr.complex
        kind = complex_annotation(target)
        if kind is not None:
            self._count(args, 2 if target is complex and len(args) == 2 else 1, node)
            if len(args) == 2:
                i = lifted(self._state, 1j)
                binary = self._expr.operators.binary
                args = [binary("add", args[0], binary("mul", args[1], i, node), node)]
            if target is complex:
                return complex_value(*complexes.parts(args[0], node))
            return complexes.as_type(args[0], kind, node)
        self._count(args, 1, node)
        if target is np.angle:
            return complexes.angle(args[0], node)
        if target in (np.conj, np.conjugate):
            return complexes.conjugate(args[0], node) if is_complex(args[0]) else args[0]
        return complexes.parts(args[0], node)[target is np.imag]

    def _count(self, args: Sequence[values.Value], n: int, node: ast.Call) -> None:
        if len(args) != n:
            self._state.fail(
                f"`{ast.unparse(node.func)}` takes {n} argument{'s' * (n > 1)} in a kernel, not {len(args)}",
                node,
                KernelTypeError,
            )

    def conversion(self, target: Any, args: list[values.Value], node: ast.Call) -> values.Value:
        """Returns the value of a conversion: `ks.f32(x)`, `int(x)`, `ks.cast(x, ks.i64)`."""
        operators, rules = self._expr.operators, self._state.rules
        if target is cast_call:
            self._count(args, 2, node)
            dtype = element_type(self._state, args[1], node)
        elif isinstance(target, DType):
            dtype = target
        else:
            dtype = None
        self._count(args, 1 + (target is cast_call), node)

        def one_number(x: values.Typed) -> values.Typed:
            if dtype is not None:
                return self._expr.matrices.converted(x, dtype)
            if target is bool:
                return values.Typed(truth(x))
            wanted = rules.default_int if target is int else rules.default_float
            keeps = x.dtype.is_integer if target is int else x.dtype.is_float
            if not rules.is_strict and keeps:
                wanted = x.dtype
            return values.Typed(cast(x.expr, wanted), weak=x.weak)

        return operators.each([args[0]], node, one_number)

    def _math(self, op: str, target: Any, args: list[values.Value], node: ast.Call) -> values.Value:
        operators, row = self._expr.operators, OPS[op]
        self._count(args, row.arity, node)
        if any(map(is_complex, args)):
            if op == "pow":
                return operators.binary("pow", args[0], args[1], node)
            return self._expr.complex.function(op, args[0], node)
        if row.arity == 2:
            return operators.each(
                args, node, lambda a, b: operators.function_of_two(row, a, b, node)
            )
        result = operators.each(args, node, lambda x: operators.function(op, x))
        if any(target is f for f in WHOLE):
            whole = self._state.rules.default_int
            return operators.each([result], node, lambda x: values.Typed(cast(x.expr, whole)))
        return result

    def _least(self, op: str, args: list[values.Value], node: ast.Call) -> values.Value:
        is_matrix = (
            len(args) == 1 and isinstance(args[0], values.MatrixValue) and len(args[0].shape) > 1
        )
        if (
            len(args) == 1
            and isinstance(args[0], values.TupleValue | values.MatrixValue)
            and not is_matrix
        ):
            args = self._expr.taken_apart(args[0])
        if len(args) < 2 or not all(values.is_data(a) for a in args):
            self._state.fail(
                f"`{ast.unparse(node)}`: {op} takes two or more numbers in a kernel",
                node,
                KernelTypeError,
            )
        return self._expr.operators.least(op, args, node)

    def _of_python(
        self, target: Any, args: list[values.Value], node: ast.Call
    ) -> values.Value | None:
        """Returns the value that a Python function computes at compile time.

        None if an argument is unknown then.
        """
        if target is len:
            x = args[0] if len(args) == 1 else None
            if isinstance(x, values.ArrayRef | values.StructArray | values.LocalRef) and x.shape:
                return lifted(self._state, x.shape[0])
            if isinstance(x, values.TupleValue):
                return lifted(self._state, len(x.items))
            if isinstance(x, values.MatrixValue):
                return lifted(self._state, x.shape[0])
            self._state.fail("len takes one array or tuple in a kernel", node)
        if (
            target in (tuple, list)
            and len(args) == 1
            and isinstance(args[0], values.TupleValue | values.MatrixValue)
        ):
            return values.TupleValue(tuple(self._expr.taken_apart(args[0])))
        if (
            target is sum
            and len(args) == 1
            and isinstance(args[0], values.TupleValue | values.MatrixValue)
        ):
            total: values.Value = lifted(self._state, 0)
            for k, x in enumerate(self._expr.taken_apart(args[0])):
                total = x if k == 0 else self._expr.operators.binary("add", total, x, node)
            return total
        if target in (isinstance, issubclass, hasattr, getattr, type):
            return self._about_python(target, args, node)
        return None

    def _about_python(self, target: Any, args: list[values.Value], node: ast.Call) -> values.Value:
        given = [python_object(a) for a in args]
        try:
            return lifted(self._state, target(*given))
        except TypeError as error:
            return self._state.fail(f"`{ast.unparse(node)}` cannot be evaluated: {error}", node)
