"""Vectors and matrices in kernels: constructors, components, and methods (defined in kernels/fields/methods.py)."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from ..fields import methods
from ..ir.errors import KernelError, KernelIndexError, KernelTypeError, LanguageError
from ..ir.kernel import Const, DType, Expr, LocalElement
from ..ir.simplify import binary, cast, const, select
from . import values
from .elements import checked_index, component_of
from .lvalues import Places
from .operators import Operators
from .scopes import Pass
from .typing_rules import strong, truth

_LOGICAL = ("and", "or")
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


class Matrices:
    """Compiles operations on vectors and matrices within a pass."""

    def __init__(self, state: Pass, operators: Operators, places: Places) -> None:
        self._state, self._operators, self._places = state, operators, places

    # --- makers

    def made(
        self, name: str, args: Sequence[values.Value], named: dict[str, values.Value], node: ast.AST
    ) -> values.Value:
        """Returns the value of a constructor such as `Matrix.zero(...)`; `name` is its name in `Matrix`."""
        given = [self._plain_argument(a) for a in args]
        by_name = {n: self._plain_argument(a) for n, a in named.items()}
        try:
            made = methods.make(self._do(node), name, *given, **by_name)
        except LanguageError as error:
            kind = KernelTypeError if isinstance(error, TypeError) else KernelError
            self._state.fail(error.sentence, node, kind)
        except (TypeError, ValueError) as error:  # of extents that are none
            self._state.fail(f"`{ast.unparse(node)}` cannot be evaluated: {error}", node)
        return self._value(made, node)

    def matrix(self, items: values.Value, dtype: DType | None, node: ast.AST) -> values.MatrixValue:
        """Returns the value of `Vector([...])` or `Matrix([[...], ...])`, from numbers, rows, or vectors as rows."""
        x = values.loaded(items)
        rows = x.items if isinstance(x, values.TupleValue | values.MatrixValue) else ()
        if not rows:
            self._state.fail(f"`{ast.unparse(node)}`: a vector is made of a list of numbers", node)
        if isinstance(x, values.MatrixValue):
            made = x
        elif all(isinstance(r, values.TupleValue | values.MatrixValue) for r in rows):
            width = {len(r.items) for r in rows}  # type: ignore[union-attr]
            if len(width) > 1:
                self._state.fail(
                    f"`{ast.unparse(node)}`: the rows of a matrix have one length", node
                )
            flat = tuple(n for r in rows for n in r.items)  # type: ignore[union-attr]
            made = values.MatrixValue(
                (len(rows), width.pop()), tuple(self._operators.number(n, node) for n in flat)
            )
        else:
            made = values.MatrixValue(
                (len(rows),), tuple(self._operators.number(r, node) for r in rows)
            )
        if dtype is not None:
            return values.MatrixValue(
                made.shape, tuple(self.converted(values.loaded_leaf(i), dtype) for i in made.items)
            )
        return values.MatrixValue(
            made.shape, self._of_one_type(tuple(values.loaded_leaf(i) for i in made.items))
        )

    def _of_one_type(self, items: tuple[values.Typed, ...]) -> tuple[values.Typed, ...]:
        """The components of a vector, converted to their common type."""
        if all(i.weak for i in items) or len({i.dtype for i in items}) == 1:
            return items
        total = items[0]
        for i in items[1:]:
            a, _, weak = self._operators.unified(total, i)
            total = values.Typed(a, weak)
        return tuple(
            values.Typed(self._operators.unified(i, values.Typed(const(0, total.dtype)))[0])
            for i in items
        )

    def flat(
        self,
        shape: tuple[int, ...],
        args: Sequence[values.Value],
        dtype: DType | None,
        node: ast.AST,
    ) -> values.MatrixValue:
        """Returns the value of `vec3(1)`, `vec3(v.xy, 1)` or `mat2(a, b)`: all numbers of the arguments in order.

        A single number fills all components.
        """
        numbers = [n for a in args for n in self._spread(a, node)]
        count = 1
        for n in shape:
            count *= n
        if len(numbers) == 1:
            numbers = numbers * count
        if len(numbers) != count:
            self._state.fail(
                f"`{ast.unparse(node)}` gives {len(numbers)} numbers for {count} components", node
            )
        items = [n if dtype is None else self.converted(n, dtype) for n in numbers]
        return values.MatrixValue(shape, tuple(items))

    def _spread(self, x: values.Value, node: ast.AST) -> list[values.Typed]:
        x = values.loaded(x)
        if isinstance(x, values.MatrixValue | values.TupleValue):
            return [n for i in x.items for n in self._spread(i, node)]
        return [self._operators.number(x, node)]

    # --- methods and components

    def attribute(self, base: values.MatrixValue, name: str) -> values.Value | None:
        """Returns the value of `base.name`: components, a size, or a method.

        None if there is no such attribute.
        """
        pattern = methods.swizzle(name)
        if pattern is not None and len(base.shape) == 1 and max(pattern) < len(base.items):
            picked = tuple(base.items[k] for k in pattern)
            return picked[0] if len(picked) == 1 else values.MatrixValue((len(picked),), picked)
        if name in ("n", "m", "ndim"):
            size = {"n": base.shape[0], "m": (*base.shape, 1)[1], "ndim": len(base.shape)}[name]
            return strong(values.Typed(const(size, DType.i64), weak=True), self._state.rules)
        if name in methods.METHODS or name in ("get_shape", "fill", "to_list", "copy"):
            return values.Method(base, name)
        return None

    def method(
        self,
        base: values.MatrixValue,
        name: str,
        args: Sequence[values.Value],
        named: dict[str, values.Value],
        node: ast.AST,
    ) -> values.Value:
        if name == "get_shape":
            return values.TupleValue(
                tuple(
                    strong(values.Typed(const(n, DType.i64), weak=True), self._state.rules)
                    for n in base.shape
                )
            )
        if name in ("to_list", "copy"):
            return values.loaded(base)
        if name == "fill":
            if len(args) != 1 or named:
                self._state.fail(f"`{ast.unparse(node)}`: fill takes one value", node)
            self._places.assign(base, args[0], node)
            return values.TupleValue(())
        value = self._places.shared(base, node)
        given = [self._argument(self._places.shared(a, node)) for a in args]
        keywords = {k: self._argument(v) for k, v in named.items()}
        try:
            result = methods.call(self._do(node), name, self._argument(value), *given, **keywords)
        except LanguageError as error:
            kind = KernelTypeError if isinstance(error, TypeError) else KernelError
            self._state.fail(error.sentence, node, kind)
        except (TypeError, ValueError) as error:  # of arguments that are no numbers
            self._state.fail(f"`{ast.unparse(node)}` cannot be evaluated: {error}", node)
        return self._value(result, node)

    def component(
        self, base: values.MatrixValue, indices: Sequence[Expr], node: ast.AST
    ) -> values.Value:
        """Returns the value of `v[i]`, `m[i, j]`, or of a row `m[i]`."""
        shape = base.shape
        if len(indices) == 1 and len(shape) == 2 and isinstance(indices[0], Const):
            row = base.rows()[self._inside(indices[0], shape[0], node)]
            return values.MatrixValue((shape[1],), row)
        if len(indices) != len(shape):
            self._state.fail(
                f"`{ast.unparse(node)}`: a value of {len(shape)} dimensions is given {len(indices)} indices",
                node,
                KernelIndexError,
            )
        return self._item(base, indices, node)

    def _item(
        self, base: values.MatrixValue, indices: Sequence[Expr], node: ast.AST
    ) -> values.Typed | values.Place:
        """Returns the component at `indices`, one index for each dimension."""
        shape = base.shape
        known = [i for i in indices if isinstance(i, Const)]
        if len(known) == len(indices):
            flat = 0
            for i, extent in zip(known, shape, strict=True):
                flat = flat * extent + self._inside(i, extent, node)
            return base.items[flat]
        number: Expr = const(0, DType.i64)
        if base.whole is not None:
            array, at, nearest = base.whole
            if array.clamps:
                indices = _clamped(indices, array.element)
            found = component_of(array, at, nearest, indices)
            return found if isinstance(base.items[0], values.Element) else found.loaded
        array_of = _local_array(base)
        if array_of is not None:
            indices = [
                checked_index(self._state, i, n, array_of, k, node)
                for k, (i, n) in enumerate(zip(indices, shape, strict=True))
            ]
        for at_axis, extent in zip(indices, shape, strict=True):
            number = binary("add", binary("mul", number, const(extent, DType.i64)), at_axis)
        if array_of is not None:
            item = values.LocalItem(array_of, number)
            return item if isinstance(base.items[0], values.LocalItem) else item.loaded
        if all(isinstance(i, values.LocalVar) for i in base.items):
            return values.OneOf(tuple(base.items), number)  # type: ignore[arg-type]
        return values.chosen([values.loaded_leaf(i) for i in base.items], number, self._either)

    def _either(self, condition: Expr, x: values.Typed, y: values.Typed) -> values.Typed:
        a, b, weak = self._operators.unified(x, y)
        return values.Typed(select(condition, a, b), weak)

    def _inside(self, index: Const, extent: int, node: ast.AST) -> int:
        k = int(index.value)
        if not -extent <= k < extent:
            self._state.fail(
                f"`{ast.unparse(node)}`: there is no component {k}, there are {extent}",
                node,
                KernelIndexError,
            )
        return k % extent

    def sliced(
        self, base: values.MatrixValue, parts: Sequence[slice | Expr], node: ast.AST
    ) -> values.Value:
        """Returns the value of `v[1:]`, `m[:, 0]`, or `m[:, k]` with a `k` known only at run time."""
        if len(parts) != len(base.shape):
            self._state.fail(
                f"`{ast.unparse(node)}`: give a slice or an index for each dimension",
                node,
                KernelIndexError,
            )
        picked: list[list[Expr]] = []
        for p, n in zip(parts, base.shape, strict=True):
            if not isinstance(p, slice):
                picked.append([p])
            elif p.step == 0:
                self._state.fail(f"`{ast.unparse(node)}` leaves a value of {n} components", node)
            else:
                picked.append([const(k, DType.i64) for k in range(n)[p]])
        shape = tuple(len(k) for k, p in zip(picked, parts, strict=True) if isinstance(p, slice))
        return values.MatrixValue(
            shape, tuple(self._item(base, at, node) for at in product(*picked))
        )

    # --- between this pass and the table of methods

    def converted(self, x: values.Typed, dtype: DType) -> values.Typed:
        return values.Typed(truth(x) if dtype is DType.bool_ else cast(x.expr, dtype))

    def _do(self, node: ast.AST) -> methods.Do:
        """Returns the function `do(op, *operands)` by which `methods.py` computes with numbers of this kernel."""

        def typed(x: Any) -> values.Typed:
            if isinstance(x, values.Typed):
                return x
            dtype = DType.f64 if isinstance(x, float) else DType.i64
            return strong(values.Typed(const(x, dtype), weak=True), self._state.rules)

        def do(op: str, *operands: Any) -> values.Typed:
            if op == "cast":
                return self.converted(typed(operands[0]), self._dtype(operands[1]))
            numbers = [typed(x) for x in operands]
            if op in _COMPARED:
                result = self._operators.compare(op, numbers[0], numbers[1], node)  # type: ignore[arg-type]
                assert isinstance(result, values.Typed)
                return result
            if op in _LOGICAL:
                return self._operators.logical(op, *numbers)
            if op == "neg":
                return self._operators.negative(numbers[0])
            if op in ("min", "max"):
                least = self._operators.least(op, numbers, node)
                assert isinstance(least, values.Typed)
                return least
            if len(numbers) == 1:
                return self._operators.function(op, numbers[0])
            return self._operators.arithmetic(op, numbers[0], numbers[1], node)

        return do

    def _dtype(self, x: Any) -> DType:
        rules = self._state.rules
        if isinstance(x, values.Static):
            x = x.python
        dtype: DType = {float: rules.default_float, int: rules.default_int}.get(x, x)
        return dtype

    def _argument(self, x: values.Value) -> Any:
        x = values.loaded(x)
        if isinstance(x, values.MatrixValue):
            return methods.ComponentMethods(x.shape, x.items)
        return x.python if isinstance(x, values.Static) else x

    def _plain_argument(self, x: values.Value) -> Any:
        """Returns an argument of a constructor; constant integers, such as sizes, become Python integers."""
        x = values.loaded(x)
        if isinstance(x, values.TupleValue):
            return [self._plain_argument(i) for i in x.items]
        if isinstance(x, values.Typed) and isinstance(x.expr, Const) and x.dtype.is_integer:
            return int(x.expr.value)
        return self._argument(x)

    def _value(self, x: Any, node: ast.AST) -> values.Value:
        if isinstance(x, methods.ComponentMethods):
            items: list[values.Typed | values.Place] = []
            for i in x.items:
                literal = (
                    values.Typed(
                        const(i, DType.f64 if isinstance(i, float) else DType.i64), weak=True
                    )
                    if not isinstance(i, values.Typed)
                    else i
                )
                items.append(strong(literal, self._state.rules))
            return values.MatrixValue(x.shape, tuple(items))
        assert isinstance(x, values.Typed)
        return x


def _clamped(indices: Sequence[Expr], shape: tuple[int, ...]) -> list[Expr]:
    """Returns the indices of a component, clamped as Taichi does.

    Components are numbered row by row, and the number is clamped.
    """
    number: Expr = const(0, DType.i64)
    for i, extent in zip(indices, shape, strict=True):
        number = binary("add", binary("mul", number, const(extent, DType.i64)), i)
    last = const(prod(shape) - 1, DType.i64)
    number = binary("min", binary("max", number, const(0, DType.i64)), last)
    if len(shape) == 1:
        return [number]
    width = const(shape[1], DType.i64)
    return [binary("floordiv", number, width), binary("mod", number, width)]


def _local_array(x: values.MatrixValue) -> values.LocalRef | None:
    """Returns the local array whose elements, in order, are the components of a value.

    None for any other value.
    """
    array: values.LocalRef | None = None
    for k, item in enumerate(x.items):
        match item:
            case values.LocalItem(found, Const(value=number)) if number == k and array in (
                None,
                found,
            ):
                array = found
            case values.Typed(LocalElement(name, Const(value=number), dtype)) if number == k and (
                array is None or array.name == name
            ):
                array = array or values.LocalRef(name, dtype, x.shape, is_shared=False)
            case _:
                return None
    return array
