"""What stands for the arguments of a sequence while it is recorded."""

from __future__ import annotations

import math
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
    """An array of a recorded sequence: it has a name, a shape and a dtype, and no elements."""

    name: str
    element: DType
    shape: tuple[int, ...]
    where: Location

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

    def _refuse(self, *_: object, **__: object) -> NoReturn:
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
            ".ndim, .size and .dtype; write a kernel for this",
            self.where,
        )

    __getitem__ = __setitem__ = __iter__ = __array__ = __bool__ = _refuse
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = _refuse
    __mul__ = __rmul__ = __imul__ = __truediv__ = __rtruediv__ = __itruediv__ = _refuse
    __matmul__ = __rmatmul__ = __neg__ = __pow__ = __abs__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __float__ = __int__ = _refuse


@dataclass(frozen=True, eq=False)
class SymbolicScalar:
    """A scalar argument of a recorded sequence, or arithmetic on some. `float_dtype` is what a
    Python float meets it as.
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
