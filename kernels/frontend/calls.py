"""Calls in expressions of a kernel: functions, methods, constructors of vectors and local arrays, inlining."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Sequence
from math import prod
from types import FunctionType, ModuleType
from typing import Any, TypeGuard

import numpy as np

from ..fields import methods
from ..fields.compound import MatrixType, StructType
from ..fields.matrix import Matrix, Vector
from ..fields.structs import Struct
from ..ir.kernel import Const, DType, LocalArray
from ..ir.simplify import cast, const
from ..ir.verify import LOCAL_ARRAY_BYTES
from . import random, sparse, values
from .complex_numbers import ComplexType, complex_annotation, is_complex
from .data_addresses import address, get_addr
from .errors import KernelError, KernelSyntaxError, KernelTypeError
from .func import BoundFunc, Func
from .function_calls import FunctionCalls, element_type
from .functions import operation_of
from .intrinsics import (
    ATOMIC_CALLS,
    grouped,
    ndrange,
)
from .intrinsics import cast as cast_call
from .lvalues import MOST_COMPONENTS, is_place, shown, what
from .numpy_definitions import definition_of
from .numpy_names import NumpyNames, advice, is_kernel
from .protocol import Frontend
from .python_objects import lifted, python_object
from .scopes import Pass
from .typing_rules import settle, static_value

InlineCall = Callable[..., values.Value | None]
_FILLED: dict[Any, int] = {np.zeros: 0, np.empty: 0, np.ones: 1}
_FILLED_LIKE: dict[Any, int] = {np.zeros_like: 0, np.empty_like: 0, np.ones_like: 1}
_ROOMS = __name__.removesuffix(".frontend.calls")
_WHOLE = ("round", "floor", "ceil")  # with the type of the result, where one is given


class Calls:
    """Compiles calls in a pass. `inline` is the function that compiles the call of a `ks.func`."""

    def __init__(self, state: Pass, frontend: Frontend, inline: InlineCall) -> None:
        self._state = state
        self._expr = frontend
        self._inline = inline
        self._numpy = NumpyNames(state, frontend)
        self._functions = FunctionCalls(state, frontend)

    # --- what is called

    def called(self, node: ast.Call) -> values.Value | None:
        """Returns the callee of a call; None if the call names no object that the frontend can resolve."""
        if not isinstance(node.func, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            return None
        if isinstance(node.func, ast.Call):
            made = self._expr.callee(node)
            if made is not None:
                return values.Static(made)
        return self._expr.place(node.func)

    def runs_statements(self, node: ast.Call) -> bool:
        """True if a call runs statements of the program: a `ks.func`, an atomic update, a random number."""
        if not isinstance(node.func, ast.Name | ast.Attribute):
            return True
        if isinstance(node.func, ast.Attribute) and self._is_method_of_value(node.func.value):
            return node.func.attr not in methods.METHODS
        place = self._expr.place(node.func)
        callee = python_object(place)
        if isinstance(place, values.Method) and isinstance(
            place.owner, values.ArrayRef | values.StructArray | values.ListOf
        ):
            return place.name != "length"
        return (
            isinstance(callee, Func | BoundFunc)
            or self._is_plain(callee)
            or callee in ATOMIC_CALLS
            or any(callee is c for c in sparse.CHANGING)
            or any(callee is c for c in random.CALLS)
        )

    def _is_method_of_value(self, node: ast.expr) -> bool:
        """True if the owner of a method, as in `f(x).norm()`, contains a call.

        Resolving such an owner by name would run the call a second time.
        """
        return any(isinstance(n, ast.Call) for n in ast.walk(node))

    def call(self, node: ast.Call) -> values.Value:
        result = self.run(node)
        if result is None:
            self._state.fail(
                f"`{ast.unparse(node.func)}` returns nothing, so it can only stand as a statement "
                f"of its own",
                node,
            )
        return result

    def run(self, node: ast.Call, is_statement: bool = False) -> values.Value | None:
        """Compiles a call and returns its value; None if the callee returns nothing."""
        inside = self._expr.static_argument(node)
        if inside is not None:
            return lifted(self._state, self._expr.static(inside))
        callee = self.called(node)
        if isinstance(callee, values.Method):
            return self._method(callee, node, is_statement)
        target = self._expr.callee(node)
        if target is None and isinstance(node.func, ast.Subscript):
            target = python_object(callee) if callee is not None else None
        defined = definition_of(target, len(node.args)) if isinstance(target, Hashable) else None
        if isinstance(target, Func | BoundFunc) or defined is not None:
            return self._inline(defined or target, node, is_statement)
        if isinstance(target, FunctionType) and self._is_plain(target):
            return self._plain(target, node, is_statement)
        if target in ATOMIC_CALLS:
            return self._atomic(ATOMIC_CALLS[target], node, is_statement)
        if target in (ndrange, range, grouped):
            self._state.fail(
                f"`{ast.unparse(node.func)}` can only stand as the range of a for loop", node
            )
        if target is get_addr:
            return address(self._state, self._expr, node)
        if sparse.is_call(target):
            return sparse.call(self._state, self._expr, target, node, is_statement)
        if isinstance(target, DType) and len(node.args) == 1 and not node.keywords:
            exact = self._expr.exact(node.args[0], target)
            if exact is not None:
                return exact
        args = self._expr.values(node.args)
        named = self._named(node)
        if (
            isinstance(target, values.MethodOfClass)
            and args
            and isinstance(args[0], values.MatrixValue)
        ):
            return self._expr.matrices.method(args[0], target.name, args[1:], named, node)
        return self._of_language(target, args, named, node)

    def _is_plain(self, target: Any) -> bool:
        """True if the callee is an undecorated Python function; only kernels of a program may call one."""
        if not isinstance(target, FunctionType) or not self._state.rules.is_strict:
            return False
        module = target.__module__ or ""
        is_ours = module.startswith(_ROOMS)
        return not is_ours and module.split(".")[0] not in ("numpy", "math", "builtins")

    def _plain(
        self, target: FunctionType, node: ast.Call, is_statement: bool
    ) -> values.Value | None:
        """Returns the value of a call of a function without a decorator.

        If all arguments are known at compile time, Python calls the function; otherwise the function's body is inlined.
        """
        func = Func(target)
        if func.templates:
            return self._inline(func, node, is_statement)
        args, named = self._expr.values(node.args), self._named(node)
        try:
            known = [static_value(a) for a in args]
            known_by_name = {name: static_value(x) for name, x in named.items()}
        except KeyError:  # evaluated once: what they write is written once
            return self._inline(func, node, is_statement, given=(args, named))
        try:
            found = target(*known, **known_by_name)
        except Exception as error:  # the program's own function may raise anything
            return self._state.fail(
                f"`{ast.unparse(node)}` cannot be evaluated: {type(error).__name__}: {error}", node
            )
        return None if found is None and is_statement else lifted(self._state, found)

    def _of_language(
        self, target: Any, args: list[values.Value], named: dict[str, values.Value], node: ast.Call
    ) -> values.Value | None:
        """Returns the value of a call of a function of the language, such as `ks.cast`.

        None if it has no value.
        """
        state = self._state
        if target is None:
            state.fail(f"`{ast.unparse(node.func)}` is no function: it cannot be called", node)
        made = self._makers(target, args, named, node)
        if made is None:
            made = self._numpy.call(target, args, named, node)
        if made is not None:
            return made
        dtype = None
        if operation_of(target) in _WHOLE:
            dtype = named.pop("dtype", None) or (args.pop() if len(args) == 2 else None)
        elif any(target is c for c in random.CALLS) and "dtype" in named:
            args.append(named.pop("dtype"))
        if named:
            state.fail(
                f"keyword arguments of `{ast.unparse(node.func)}` are not supported in a kernel: "
                f"pass them by position",
                node,
                KernelSyntaxError,
            )
        result = self._functions.call(target, args, node)
        if result is not None:
            if dtype is None:
                return result
            return self._functions.conversion(cast_call, [result, dtype], node)
        name = ast.unparse(node.func)
        kind = KernelTypeError if isinstance(target, ModuleType) else KernelError
        return state.fail(
            f"`{name}` cannot be called in a kernel: {advice(target)}",
            node,
            KernelSyntaxError if is_kernel(target) else kind,
        )

    # --- methods of values

    def _method(
        self, method: values.Method, node: ast.Call, is_statement: bool
    ) -> values.Value | None:
        owner = method.owner
        if isinstance(owner, values.ArrayRef | values.StructArray | values.ListOf):
            return sparse.method(self._state, self._expr, method, node, is_statement)
        if is_complex(owner) and method.name in ("conjugate", "conj") and not node.args:
            return self._expr.complex.conjugate(owner, node)
        if isinstance(owner, values.MatrixValue):
            args = self._expr.values(node.args)
            named = self._named(node)
            return self._expr.matrices.method(owner, method.name, args, named, node)
        if isinstance(owner, values.DictValue) and not node.args and not node.keywords:
            return self._of_dict(owner, method.name)
        if isinstance(owner, values.StructValue) and owner.kind is not None:
            function = owner.kind.methods.get(method.name)
            if isinstance(function, Func):
                return self._inline(function, node, is_statement, owner=owner)
        return self._state.fail(f"`{ast.unparse(node.func)}` is no function of {what(owner)}", node)

    def _of_dict(self, x: values.DictValue, name: str) -> values.Value:
        """The value of `x.values()`, `x.keys()` or `x.items()`."""
        held = [v for _, v in x.entries]
        if name == "values":
            return values.TupleValue(tuple(held))
        keys = [lifted(self._state, key) for key, _ in x.entries]
        if name == "keys":
            return values.TupleValue(tuple(keys))
        return values.TupleValue(tuple(map(values.TupleValue, zip(keys, held, strict=True))))

    # --- vectors, matrices, structs

    def _makers(
        self, target: Any, args: list[values.Value], named: dict[str, values.Value], node: ast.Call
    ) -> values.Value | None:
        matrices = self._expr.matrices
        if target is Matrix or target is Vector:
            self._at_least_one(args, node)
            dt = named.get("dt", args[1] if len(args) > 1 else None)
            return matrices.matrix(
                args[0], None if dt is None else element_type(self._state, dt, node), node
            )
        if args and (target is np.full or target in _FILLED or target in _FILLED_LIKE):
            return self._filled(target, args, named, node)
        for name in methods.MAKERS:
            if target is getattr(Matrix, name, None):
                return matrices.made(name, args, named, node)
        if isinstance(target, MatrixType):
            return matrices.flat(target.shape, args, target.dtype, node)
        if isinstance(target, StructType):
            return self._struct(target, args, named, node)
        if target is Struct:
            given = args[0].entries if args and isinstance(args[0], values.DictValue) else ()
            members = [*((str(name), x) for name, x in given), *named.items()]
            return values.StructValue(tuple(members))
        return None

    def _filled(
        self, target: Any, args: list[values.Value], named: dict[str, values.Value], node: ast.Call
    ) -> values.Value:
        """Returns the value of `np.zeros(shape, dtype)`, `np.ones` and similar calls.

        The value is a vector or matrix; with more components or axes than these may have it is a local array.
        """
        state, places = self._state, self._expr.places
        given = list(args[1:])
        value: values.Value
        if target is np.full:
            if not given and "fill_value" not in named:
                state.fail(f"`{ast.unparse(node)}` takes a shape and a number in a kernel", node)
            value = given.pop(0) if given else named.pop("fill_value")
            start = settle(self._expr.operators.number(value, node), state.default_float)
            dtype = start.dtype
        else:
            start, dtype = const({**_FILLED, **_FILLED_LIKE}[target], DType.f64), DType.f64
        if target in _FILLED_LIKE:
            shape, dtype = self._shape_and_dtype(args[0], node)
        else:
            shape = tuple(self._extent(n, node) for n in values.leaves(args[0]))
        dt = named.pop("dtype", given.pop(0) if given else None)
        if named or given:
            state.fail(f"`{ast.unparse(node)}` takes a shape and a dtype in a kernel", node)
        if dt is not None and complex_annotation(python_object(dt)) is not None:
            state.fail(
                f"`{ast.unparse(node)}`: local arrays and vectors have real elements, make one for each part",
                node,
            )
        dtype = dtype if dt is None else element_type(self._state, dt, node).stored
        count = prod(shape)
        if min(shape, default=0) < 1:
            state.fail(
                f"`{ast.unparse(node)}` has no elements, or no axes: a vector or local array has at least one",
                node,
            )
        if count * dtype.size_bytes > LOCAL_ARRAY_BYTES:
            state.fail(
                f"`{ast.unparse(node)}` has {count} elements: a local array takes up to {LOCAL_ARRAY_BYTES} bytes,"
                " pass larger ones as arguments",
                node,
            )
        start = cast(start, dtype)
        if len(shape) <= 2 and count <= MOST_COMPONENTS:
            return self._expr.matrices.flat(
                shape, [places.kept(values.Typed(start), node)], dtype, node
            )
        name = state.fresh("array")
        state.emit(LocalArray(name, count, start, state.frame.parsed.where(node)))
        return values.LocalRef(name, dtype, shape, is_shared=state.iteration is None)

    def _shape_and_dtype(self, x: values.Value, node: ast.Call) -> tuple[tuple[int, ...], DType]:
        match x:
            case values.ArrayRef(element=()) | values.LocalRef():
                return x.shape, x.dtype
            case values.MatrixValue(shape=shape, items=items):
                return shape, items[0].dtype
        return self._state.fail(
            f"`{ast.unparse(node)}` takes an array, a vector or a matrix in a kernel", node
        )

    def _struct(
        self,
        kind: StructType,
        args: list[values.Value],
        named: dict[str, values.Value],
        node: ast.AST,
    ) -> values.StructValue:
        """Returns a struct of type `kind` from its members by position or by name, or from another struct.

        Members that are not given are zero.
        """
        given: dict[Any, values.Value]
        if len(args) == 1 and not named and _members_are(args[0], kind):
            given, args = dict(parts_of(args[0])), []
        else:
            given = dict(zip(kind.members, args, strict=False))
        for name in given.keys() & named.keys():
            self._state.fail(f"`{ast.unparse(node)}` gives the member {name} twice", node)
        given |= named
        unknown = given.keys() - kind.members.keys()
        if unknown or len(args) > len(kind.members):
            self._state.fail(
                f"`{ast.unparse(node)}`: the struct has the members {', '.join(kind.members)}", node
            )
        return values.StructValue(
            tuple(
                (name, self.as_type(given.get(name), t, node)) for name, t in kind.members.items()
            ),
            kind,
        )

    def as_type(self, x: values.Value | None, kind: Any, node: ast.AST) -> values.Value:
        """Returns `x` converted to the type `kind` of the program; zero if `x` is None.

        If `kind` is a struct type and `x` is no struct, `x` becomes the first member.
        """
        matrices = self._expr.matrices
        if isinstance(kind, ComplexType):
            start = x or lifted(self._state, 0)
            return self._expr.complex.as_type(start, kind, node)
        if isinstance(kind, StructType):
            if isinstance(x, values.StructValue | values.DictValue):
                self.refuse_others(x, kind, node)
                return self._struct(kind, [], dict(parts_of(x)), node)
            return self._struct(kind, [] if x is None else [x], {}, node)
        if isinstance(kind, MatrixType):
            return matrices.flat(kind.shape, [x or lifted(self._state, 0)], kind.dtype, node)
        dtype = element_type(self._state, values.Static(kind), node)
        number = self._expr.operators.number(x or lifted(self._state, 0), node)
        return matrices.converted(number, dtype)

    def declared(self, x: values.Value, kind: Any, node: ast.AST) -> values.Value:
        """Returns `x` converted to an annotated type. LanguageError if the shapes of value and type differ."""
        if isinstance(kind, StructType | MatrixType):
            self.refuse_others(x, kind, node)
        return self.as_type(x, kind, node)

    def refuse_others(self, x: values.Value, kind: StructType | MatrixType, node: ast.AST) -> None:
        """Raises LanguageError if the value `x` has another shape, or other members, than the type `kind`."""
        match x:
            case values.StructValue() | values.DictValue() if isinstance(kind, StructType):
                fits = {str(name) for name, _ in parts_of(x)} == kind.members.keys()
            case values.MatrixValue(shape=shape):
                fits = isinstance(kind, MatrixType) and shape == kind.shape
            case values.TupleValue():
                fits = isinstance(kind, MatrixType)  # whose numbers are counted
            case _:
                fits = False
        if not fits:
            self._state.fail(
                f"`{ast.unparse(node)}` gives {shown(x)} where {kind} is wanted: both must have one shape",
                node,
                KernelTypeError,
            )

    # --- arguments

    def _named(self, node: ast.Call) -> dict[str, values.Value]:
        """Returns the values of a call's keyword arguments, by keyword."""
        named: dict[str, values.Value] = {}
        for k in node.keywords:
            if k.arg is None:
                self._state.fail(
                    f"`{ast.unparse(node)}`: give arguments one by one in a kernel",
                    node,
                    KernelSyntaxError,
                )
            named[k.arg] = self._expr.value(k.value)
        return named

    def _at_least_one(self, args: Sequence[values.Value], node: ast.Call) -> None:
        if not args:
            self._state.fail(f"`{ast.unparse(node)}` takes a list of numbers in a kernel", node)

    def _extent(self, x: values.Value, node: ast.Call) -> int:
        """Returns a number of components as a Python int. LanguageError if it is no compile-time constant."""
        match x:
            case values.Typed(Const(value, dtype)) if dtype.is_integer:
                return int(value)
        return self._state.fail(
            f"`{ast.unparse(node)}`: how many components there are must be a constant", node
        )

    # --- atomic updates

    def _atomic(
        self, op: tuple[str, bool], node: ast.Call, is_statement: bool
    ) -> values.Value | None:
        """Compiles `atomic_add(x[i], v)` and similar calls; returns the old value of `x[i]` if it is used."""
        if len(node.args) != 2 or node.keywords:
            self._state.fail(
                f"`{ast.unparse(node.func)}` takes a place and a value", node, KernelTypeError
            )
        place = self._expr.place(node.args[0])
        if not is_place(place):
            self._state.fail(
                f"`{ast.unparse(node.args[0])}` is not a place: `{ast.unparse(node.func)}` takes an element or a local",
                node,
                KernelSyntaxError,
            )
        value = self._expr.value(node.args[1])
        name, is_negated = op
        return self._expr.places.update(
            place, name, value, is_negated, node, wants_old=not is_statement
        )


def _members_are(
    x: values.Value, kind: StructType
) -> TypeGuard[values.StructValue | values.DictValue]:
    """True if `x` is a struct or dict whose members all belong to the struct type `kind`.

    Otherwise `x` can only be the value of the first member of `kind`.
    """
    return isinstance(x, values.StructValue | values.DictValue) and {
        n for n, _ in parts_of(x)
    } <= set(kind.members)


def parts_of(x: values.StructValue | values.DictValue) -> tuple[tuple[Any, values.Value], ...]:
    """Returns the members of a struct, or the entries of a dict, as (name, value) pairs."""
    return x.members if isinstance(x, values.StructValue) else x.entries
