"""Names, attributes and elements in a kernel: resolves them to values and to assignable places."""

from __future__ import annotations

import ast
import math
from dataclasses import replace

from ..fields.matrix import Matrix, Vector
from ..fields.methods import METHODS, swizzle
from ..ir.errors import (
    KernelError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    LanguageError,
)
from ..ir.kernel import Const, Expr
from . import sparse, values
from .elements import element_of
from .lvalues import what
from .protocol import Frontend
from .python_objects import lifted
from .scopes import LoopVar, Pass
from .typing_rules import python_value


class References:
    """Resolves names, attributes and elements within a pass."""

    def __init__(self, state: Pass, frontend: Frontend) -> None:
        self._state, self._expr = state, frontend

    def name(self, node: ast.Name) -> values.Value:
        frame = self._state.frame
        bound = frame.find(node.id)
        if isinstance(bound, LoopVar):
            return bound.value
        if bound is not None:
            return bound
        if node.id in frame.ended:
            self._state.fail(
                f"the name `{node.id}` ends with the block it is first assigned in: give it a "
                f"value before that block",
                node,
                KernelNameError,
            )
        found, obj = frame.parsed.free(node.id)
        if not found or frame.parsed.assigned[node.id]:
            self._state.fail(
                f"the name `{node.id}` has no value here: assign it first, or define it outside "
                f"the kernel",
                node,
                KernelNameError,
            )
        return lifted(self._state, obj, node.id)

    def attribute(self, node: ast.Attribute) -> values.Value:
        base = self._expr.place(node.value)
        if isinstance(
            base, values.ArrayRef | values.StructArray | values.ListOf
        ) and sparse.is_method(base, node.attr):
            return values.Method(base, node.attr)
        match base:
            case values.ArrayRef() | values.LocalRef():
                return self._array_attribute(base, node)
            case values.StructArray():
                member = dict(base.members).get(node.attr)
                if member is not None:
                    return member
                if node.attr in ("shape", "ndim", "size"):
                    shape = base.shape
                    known = {"shape": shape, "ndim": len(shape), "size": math.prod(shape)}
                    return lifted(self._state, known[node.attr])
                if base.source is not None and hasattr(base.source, node.attr):
                    return lifted(self._state, getattr(base.source, node.attr))
            case values.MatrixValue():
                found = self._expr.matrices.attribute(base, node.attr)
                if found is not None:
                    return found
            case values.StructValue():
                part = base.member(node.attr)
                return part if part is not None else values.Method(base, node.attr)
            case values.DictValue() if node.attr in values.DICT_METHODS:
                return values.Method(base, node.attr)
            case values.Static(python=made) if (
                made is Vector or made is Matrix
            ) and node.attr in METHODS:
                return values.Static(values.MethodOfClass(node.attr))
            case values.Static():
                try:
                    return lifted(self._state, getattr(base.python, node.attr), node.attr)
                except AttributeError as e:
                    nothing = f"`{ast.unparse(node.value)}` has no attribute `{node.attr}`"
                    sentence = e.sentence if isinstance(e, LanguageError) else nothing
                    self._state.fail(sentence, node)
        return self._state.fail(
            f"`.{node.attr}` is not supported on `{ast.unparse(node.value)}`, which is {what(base)}, in a kernel: "
            f"only arrays have .shape",
            node,
            KernelSyntaxError
            if isinstance(base, values.MatrixValue) and swizzle(node.attr)
            else KernelError,
        )

    def _array_attribute(
        self, base: values.ArrayRef | values.LocalRef, node: ast.Attribute
    ) -> values.Value:
        match node.attr:
            case "shape":
                return lifted(self._state, base.shape)
            case "ndim":
                return lifted(self._state, len(base.shape))
            case "size":
                return lifted(self._state, math.prod(base.shape))
            case "dtype":
                return values.Static(base.dtype)
            case "n" | "m" if isinstance(base, values.ArrayRef) and base.element:
                return lifted(self._state, (*base.element, 1)[node.attr == "m"])
            case "grad" if isinstance(base, values.ArrayRef) and self._is_argument(base):
                return self._gradient(base)
        if base.source is not None and hasattr(base.source, node.attr):
            return lifted(self._state, getattr(base.source, node.attr), node.attr)
        return self._state.fail(
            f"the array attribute `.{node.attr}` is not supported in a kernel: arrays have "
            f".shape, .ndim, .size and .dtype",
            node,
        )

    def _is_argument(self, x: values.ArrayRef) -> bool:
        """True for an array argument of floats that is no view."""
        return x.source is None and x.layout is None and x.dtype.is_float

    def _gradient(self, x: values.ArrayRef) -> values.ArrayRef:
        """The gradient of an array argument, which calls bind."""
        known, name = self._state.gradients, x.param.name
        if name not in known:
            known[name] = replace(x.param, name=self._state.fresh(f"{name}_grad"))
        return replace(x, param=known[name], argument=f"{x.name}.grad")

    def subscript(self, node: ast.Subscript) -> values.Value:
        base = self._expr.place(node.value)
        if isinstance(base, values.ArrayRef | values.StructArray | values.LocalRef):
            return element_of(self._state, base, self._indices(node, base), node)
        if isinstance(base, values.MatrixValue):
            return self._component(base, node)
        if isinstance(base, values.Triplets):
            shown = ast.unparse(node)
            self._state.fail(
                f"`{shown}` is of a builder of a sparse matrix, which a kernel can only add to: write {shown} += value",
                node,
                KernelSyntaxError,
            )
        try:
            key = python_value(self._expr.value(node.slice))
        except KeyError:
            if isinstance(base, values.TupleValue) and all(
                isinstance(i, values.Typed) for i in base.items
            ):
                return self._component(values.MatrixValue((len(base.items),), base.items), node)  # type: ignore[arg-type]
            self._state.fail(
                f"`{ast.unparse(node.value)}` is a Python object, its index must be a "
                f"compile-time constant: "
                "loop over it with ks.static, or pass an array",
                node,
            )
        try:
            if isinstance(base, values.TupleValue):
                return base.items[key]  # type: ignore[call-overload,no-any-return]
            if isinstance(base, values.StructValue) and isinstance(key, str):
                return dict(base.members)[key]
            if isinstance(base, values.DictValue):
                return dict(base.entries)[key]
            if isinstance(base, values.Static):
                return lifted(self._state, base.python[key])  # type: ignore[index]
        except (LookupError, TypeError) as error:
            self._state.fail(f"`{ast.unparse(node)}` cannot be evaluated: {error}", node)
        return self._state.fail(
            f"`{ast.unparse(node.value)}` is a number and cannot be indexed", node
        )

    def _indices(
        self, node: ast.Subscript, base: values.ArrayRef | values.StructArray | values.LocalRef
    ) -> list[Expr]:
        """Returns the indices of an element: an index vector counts as several, `None` as none."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(p, ast.Slice) for p in parts):
            name = base.name if isinstance(base, values.ArrayRef) else ast.unparse(node.value)
            self._state.fail(
                f"a slice of {name} is not supported in a kernel: write a loop over its elements",
                node,
            )
        found: list[Expr] = []
        for part, x in zip(parts, self._expr.values(parts), strict=False):
            if isinstance(x, values.Static) and x.python is None:
                continue
            numbers = list(values.leaves(x))
            if not numbers and not values.is_data(x):
                self._state.fail(
                    f"`{ast.unparse(part)}` is {what(x)} where an index is needed",
                    node,
                    KernelTypeError,
                )
            found.extend(
                self._expr.as_index(self._expr.operators.number(n, part), part) for n in numbers
            )
        return found

    def _component(self, base: values.MatrixValue, node: ast.Subscript) -> values.Value:
        """Returns the component or components of a vector or matrix that a subscript denotes."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if any(isinstance(p, ast.Slice) for p in parts):
            return self._expr.matrices.sliced(base, [self._slice(p) for p in parts], node)
        numbers = [n for p in parts for n in values.leaves(self._expr.value(p))]
        exprs = [self._expr.as_index(self._expr.operators.number(n, node), node) for n in numbers]
        return self._expr.matrices.component(base, exprs, node)

    def _slice(self, node: ast.expr) -> slice | Expr:
        if isinstance(node, ast.Slice):
            parts = (node.lower, node.upper, node.step)
            bounds = [None if p is None else self._constant_int(p) for p in parts]
            return slice(*bounds)
        return self._expr.index(node)

    def _constant_int(self, node: ast.expr) -> int:
        x = self._expr.index(node)
        if not isinstance(x, Const):
            self._state.fail(
                f"`{ast.unparse(node)}` must be a constant in a slice of a vector", node
            )
        return int(x.value)
