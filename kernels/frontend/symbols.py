"""Symbolic arrays and scalars: the arguments of a sequence's function while it is recorded."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..ir.kernel import BinaryOp, DType, Expr, Location
from ..ir.simplify import binary, cast, unary
from .errors import LanguageError
from .typing_rules import common_dtype, lift
from .values import Typed


@dataclass(frozen=True, eq=False)
class SymbolicArray:
    """Array of a recorded sequence: name, shape and dtype, without elements.

    A slice or transpose is a view of its `base`: element i is at offsets[m] + sum(strides[m][k] * i[k]) along axis m of the base.
    """

    name: str
    element: DType
    shape: tuple[int, ...]
    where: Location
    base: SymbolicArray | None = None
    offsets: tuple[int, ...] = ()
    strides: tuple[tuple[int, ...], ...] = ()

    @property
    def whole(self) -> SymbolicArray:
        """The base of a view; the array itself if it is no view."""
        return self if self.base is None else self.base

    @property
    def lies(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Offsets and strides of the elements in the array `whole`, as in the affine map of a view."""
        if self.base is not None:
            return self.offsets, self.strides
        n = self.ndim
        return (0,) * n, tuple(tuple(int(k == m) for k in range(n)) for m in range(n))

    def __getitem__(self, key: Any) -> SymbolicArray:
        """Returns a slice, as in NumPy. LanguageError for elements, and for indices that NumPy would copy."""
        parts = self._parts(key)
        if parts is None:
            self.refuse()
        offsets, strides = self.lies
        shape: list[int] = []
        found: list[list[int]] = [[] for _ in offsets]
        moved = list(offsets)
        axis = 0
        for part in parts:
            if part is None:  # a new axis of one element
                shape.append(1)
                for row in found:
                    row.append(0)
                continue
            extent = self.shape[axis]
            is_slice = isinstance(part, slice)
            inside = range(extent)[part] if is_slice else self._at(part, axis)
            for m, row in enumerate(found):
                if len(inside):
                    moved[m] += strides[m][axis] * inside[0]
                if is_slice:
                    row.append(strides[m][axis] * inside.step)
            if is_slice:
                shape.append(len(inside))
            axis += 1
        return self._view(shape, moved, found)

    @property
    def T(self) -> SymbolicArray:
        """View with the axes in reverse order."""
        return self.transpose()

    def transpose(self, *axes: Any) -> SymbolicArray:
        """Returns a view with the axes in another order, as in NumPy."""
        flat = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        order = [operator.index(k) % max(1, self.ndim) for k in flat] or [*range(self.ndim)][::-1]
        if sorted(order) != list(range(self.ndim)):
            raise LanguageError(
                f"a sequence transposes the array {self.name} by {axes}, which is no order of its {self.ndim} axes",
                self.where,
            )
        offsets, strides = self.lies
        return self._view(
            [self.shape[k] for k in order], offsets, [[row[k] for k in order] for row in strides]
        )

    def _view(
        self, shape: Sequence[int], offsets: Sequence[int], strides: Sequence[Sequence[int]]
    ) -> SymbolicArray:
        return SymbolicArray(
            self.name,
            self.element,
            tuple(shape),
            self.where,
            self.whole,
            tuple(offsets),
            tuple(map(tuple, strides)),
        )

    def _parts(self, key: Any) -> list[Any] | None:
        """Returns an index key as one part for each axis: slice, integer, or None for a new axis.

        None if NumPy would return an element or a copy for this key.
        """
        parts = list(key) if isinstance(key, tuple) else [key]
        n_axes = sum(p is not None and p is not Ellipsis for p in parts)
        if n_axes > self.ndim or sum(p is Ellipsis for p in parts) > 1:
            raise LanguageError(
                f"a sequence slices the array {self.name} along {n_axes} axes, and it has {self.ndim}",
                self.where,
            )
        at = parts.index(Ellipsis) if any(p is Ellipsis for p in parts) else len(parts)
        parts[at : at + 1] = [slice(None)] * (self.ndim - n_axes)
        is_plain = all(
            p is None or (isinstance(p, slice | int | np.integer) and not isinstance(p, bool))
            for p in parts
        )
        return parts if is_plain and any(p is None or isinstance(p, slice) for p in parts) else None

    def _at(self, part: Any, axis: int) -> range:
        extent = self.shape[axis]
        if not -extent <= part < extent:
            raise LanguageError(
                f"a sequence takes index {part} of axis {axis} of the array {self.name}, which has {extent}",
                self.where,
            )
        return range(int(part) % extent, int(part) % extent + 1)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return self.element.numpy

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Raises LanguageError, since the program uses elements of an array while a sequence is recorded."""
        raise LanguageError(
            f"a sequence used the elements of the array {self.name} outside a kernel: "
            "a sequence only passes arrays to kernels, write a kernel for this (and make temporaries "
            "with ks.ndarray(dtype, shape))",
            self.where,
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)  # protocols that libraries ask for
        raise LanguageError(
            f"a sequence used `.{name}` of the array {self.name}: arrays of a sequence have .shape, "
            ".ndim, .size, .dtype, .T and slices; write a kernel for this",
            self.where,
        )

    __setitem__ = __iter__ = __array__ = __bool__ = refuse
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = refuse
    __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = refuse
    __matmul__ = __rmatmul__ = __neg__ = __pow__ = __abs__ = refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = refuse


@dataclass(frozen=True, eq=False)
class ComplexSymbol:
    """Array of complex numbers in a recorded sequence; `pairs` is the array of real numbers that stores it."""

    pairs: SymbolicArray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pairs.shape[:-1]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.result_type(self.pairs.dtype, np.complex64)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> ComplexSymbol:
        """Returns a slice, like `SymbolicArray.__getitem__`."""
        parts = key if isinstance(key, tuple) else (key,)
        is_short = not any(p is Ellipsis for p in parts)
        plain = ComplexSymbol(self.pairs[(*parts, ...) if is_short else (*parts, slice(None))])
        if not any(p is None or isinstance(p, slice) or p is Ellipsis for p in parts):
            plain.pairs.refuse()
        return plain

    @property
    def T(self) -> ComplexSymbol:
        return self.transpose()

    def transpose(self, *axes: Any) -> ComplexSymbol:
        """Returns a view with the axes in another order, as in NumPy."""
        flat = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        order = [k % max(1, self.ndim) for k in flat] or [*range(self.ndim)][::-1]
        return ComplexSymbol(self.pairs.transpose(*order, self.ndim))

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        self.pairs.refuse()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        self.pairs.refuse()

    __setitem__ = __iter__ = __array__ = __bool__ = _refuse
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = _refuse
    __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __pow__ = __abs__ = _refuse


@dataclass(frozen=True, eq=False)
class SymbolicScalar:
    """Scalar argument of a sequence while it is recorded, or the result of arithmetic on such scalars.

    `float_dtype` is the type of a Python float in this arithmetic.
    """

    expr: Expr
    float_dtype: DType
    where: Location

    @property
    def dtype(self) -> DType:
        return self.expr.dtype

    def _with(self, op: BinaryOp, other: Any, is_reversed: bool) -> Any:
        if isinstance(other, SymbolicScalar):
            b = Typed(other.expr)
        elif isinstance(other, (int, float, np.integer, np.floating)):
            lifted = lift(other)
            assert isinstance(lifted, Typed)
            b = lifted
        else:
            return NotImplemented
        a = Typed(self.expr)
        dtype = common_dtype(a, b, self.float_dtype)
        if op == "div" and not dtype.is_float:
            dtype = self.float_dtype
        x, y = cast(a.expr, dtype), cast(b.expr, dtype)
        result = binary(op, y, x) if is_reversed else binary(op, x, y)
        return SymbolicScalar(result, self.float_dtype, self.where)

    def __add__(self, other: Any) -> Any:
        return self._with("add", other, False)

    def __radd__(self, other: Any) -> Any:
        return self._with("add", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", other, False)

    def __rsub__(self, other: Any) -> Any:
        return self._with("sub", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("mul", other, False)

    def __rmul__(self, other: Any) -> Any:
        return self._with("mul", other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._with("div", other, False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with("div", other, True)

    def __neg__(self) -> SymbolicScalar:
        return SymbolicScalar(unary("neg", self.expr), self.float_dtype, self.where)

    def __pos__(self) -> SymbolicScalar:
        return self

    def _refuse(self, *_: object) -> NoReturn:
        raise LanguageError(
            "a sequence may not branch on a scalar argument or turn it into a Python number: "
            "annotate the argument with ks.template(), or use a Python constant",
            self.where,
        )

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]
    __int__ = __float__ = __index__ = __abs__ = __round__ = __array__ = _refuse
    __pow__ = __rpow__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
