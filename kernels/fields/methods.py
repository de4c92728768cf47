"""Methods of vectors and matrices, each defined once: for values of Python, and for expressions of kernels.

A definition is a function of `ComponentMethods` whose items have Python's operators. `call(do, "norm", a)` implements these
operators on each item by `do(op, *operands)`, and unwraps the result. So a caller with its own kind of numbers needs nothing but
`do`. `op` is a row of kernels/ir/ops.py, or "cast" with a type as second operand. An operand is such a number or a Python number,
which is a literal.

A definition that does not fit its arguments raises LanguageError without a place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from ..ir.errors import LanguageError, ProgramTypeError

Do = Callable[..., Any]


@dataclass(frozen=True)
class ComponentMethods:
    """Vector, shape (n,), or matrix, shape (n, m), that has the methods; `items` are its components by rows."""

    shape: tuple[int, ...]
    items: tuple[Any, ...]

    def rows(self) -> tuple[tuple[Any, ...], ...]:
        """The rows of a matrix; each component of a vector is a row."""
        width = self.shape[1] if len(self.shape) == 2 else 1
        return tuple(self.items[k : k + width] for k in range(0, len(self.items), width))


class _Operand:
    """Component with Python's operators, each of which calls `do(op, *operands)`."""

    __slots__ = ("do", "value")

    def __init__(self, do: Do, value: Any) -> None:
        self.do = do
        self.value = value

    def _is(self, op: str, *operands: Any) -> _Operand:
        return _Operand(self.do, self.do(op, *(_bare(x) for x in operands)))

    def __add__(self, other: Any) -> _Operand:
        return self._is("add", self, other)

    def __sub__(self, other: Any) -> _Operand:
        return self._is("sub", self, other)

    def __mul__(self, other: Any) -> _Operand:
        return self._is("mul", self, other)

    def __truediv__(self, other: Any) -> _Operand:
        return self._is("div", self, other)

    def __rtruediv__(self, other: Any) -> _Operand:
        return self._is("div", other, self)

    def __neg__(self) -> _Operand:
        return self._is("neg", self)

    def sqrt(self) -> _Operand:
        return self._is("sqrt", self)

    def cast(self, dtype: Any) -> _Operand:
        return self._is("cast", self, dtype)

    def is_not_zero(self) -> _Operand:
        return self._is("ne", self, 0)

    def with_(self, op: str, other: Any) -> _Operand:
        return self._is(op, self, other)


def _bare(x: Any) -> Any:
    if isinstance(x, _Operand):
        return x.value
    if isinstance(x, ComponentMethods):
        return ComponentMethods(x.shape, tuple(_bare(i) for i in x.items))
    return x


def _dressed(do: Do, x: Any) -> Any:
    if isinstance(x, ComponentMethods):
        return ComponentMethods(x.shape, tuple(_Operand(do, i) for i in x.items))
    return x


# --- methods of a value -----------------------------------------------------------------------------------------------


def dot(a: ComponentMethods, b: ComponentMethods) -> Any:
    """Returns the sum of products of corresponding components."""
    _need_vectors("dot", a, b)
    return _sum(x * y for x, y in zip(a.items, b.items, strict=True))


def cross(a: ComponentMethods, b: ComponentMethods) -> Any:
    """Returns the cross product; for vectors of two components its third component, a number."""
    _need_vectors("cross", a, b)
    x, y = a.items, b.items
    if len(x) == 2:
        return x[0] * y[1] - x[1] * y[0]
    if len(x) != 3:
        raise LanguageError(f"cross takes vectors of 2 or 3 components, not of {len(x)}")
    return ComponentMethods(
        (3,), (x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0])
    )


def outer_product(a: ComponentMethods, b: ComponentMethods) -> ComponentMethods:
    """Returns the matrix of all products a[i] * b[j]."""
    if len(a.shape) != 1 or not isinstance(b, ComponentMethods) or len(b.shape) != 1:
        raise LanguageError("outer_product takes two vectors")
    return ComponentMethods((*a.shape, *b.shape), tuple(x * y for x in a.items for y in b.items))


def norm_sqr(a: ComponentMethods) -> Any:
    """Returns the sum of squares of all components."""
    return _sum(x * x for x in a.items)


def norm(a: ComponentMethods, eps: Any = None) -> Any:
    """Returns the square root of the sum of squares of all components plus `eps` (0)."""
    total = norm_sqr(a)
    return (total if eps is None else total + eps).sqrt()


def norm_inv(a: ComponentMethods, eps: Any = None) -> Any:
    """Returns 1 / norm(a, eps)."""
    return 1.0 / norm(a, eps)


def normalized(a: ComponentMethods, eps: Any = None) -> ComponentMethods:
    """Returns the vector divided by its norm plus `eps` (0)."""
    if len(a.shape) != 1:
        raise LanguageError("normalized is a method of vectors")
    length = norm(a)
    factor = 1.0 / (length if eps is None else length + eps)
    return ComponentMethods(a.shape, tuple(factor * x for x in a.items))


def sum_(a: ComponentMethods) -> Any:
    """The sum of all components."""
    return _sum(a.items)


def max_(a: ComponentMethods) -> Any:
    """The greatest component."""
    return reduce(lambda x, y: x.with_("max", y), a.items)


def min_(a: ComponentMethods) -> Any:
    """The least component."""
    return reduce(lambda x, y: x.with_("min", y), a.items)


def any_(a: ComponentMethods) -> Any:
    """True if some component is not zero."""
    return reduce(lambda x, y: x.with_("or", y), (x.is_not_zero() for x in a.items))


def all_(a: ComponentMethods) -> Any:
    """True if no component is zero."""
    return reduce(lambda x, y: x.with_("and", y), (x.is_not_zero() for x in a.items))


def trace(a: ComponentMethods) -> Any:
    """The sum of the diagonal of a square matrix."""
    rows = _square("trace", a)
    return _sum(rows[k][k] for k in range(len(rows)))


def determinant(a: ComponentMethods) -> Any:
    """The determinant of a square matrix of at most four rows, by minors of the first column."""
    return _determinant(_small_square("determinant", a))


def inverse(a: ComponentMethods) -> ComponentMethods:
    """The inverse of a square matrix of at most four rows: its cofactors over its determinant."""
    rows = _small_square("inverse", a)
    n = len(rows)
    if n == 1:
        return ComponentMethods((1, 1), (1.0 / rows[0][0],))
    factor = 1.0 / _determinant(rows)
    items = []
    for i in range(n):
        for j in range(n):
            minor = _determinant(_minor(rows, j, i))
            items.append(factor * (minor if (i + j) % 2 == 0 else -minor))
    return ComponentMethods((n, n), tuple(items))


def transpose(a: ComponentMethods) -> ComponentMethods:
    """Returns the matrix with rows and columns exchanged."""
    if len(a.shape) == 1:
        raise LanguageError(
            "a vector has no transpose: for a @ b.transpose() write a.outer_product(b)"
        )
    columns = zip(*a.rows(), strict=True)
    return ComponentMethods(
        (a.shape[1], a.shape[0]), tuple(x for column in columns for x in column)
    )


def cast(a: ComponentMethods, dtype: Any) -> ComponentMethods:
    """Returns each component converted to `dtype`; floats are truncated towards zero."""
    return ComponentMethods(a.shape, tuple(x.cast(dtype) for x in a.items))


# --- makers: the first argument is `do` -------------------------------------------------------------------------------


def zero(do: Do, dt: Any, n: int, m: int | None = None) -> ComponentMethods:
    """Returns zeros of type `dt`: a vector of n components, or with `m` an n x m matrix."""
    return _filled(do, 0, dt, n, m)


def one(do: Do, dt: Any, n: int, m: int | None = None) -> ComponentMethods:
    """Returns ones of type `dt`: a vector of n components, or with `m` an n x m matrix."""
    return _filled(do, 1, dt, n, m)


def unit(do: Do, n: int, i: int, dt: Any = int) -> ComponentMethods:
    """Returns the vector of n components whose component `i` is 1 and all others 0."""
    if not 0 <= i < n:
        raise LanguageError(f"unit: there is no component {i} of {n}")
    return ComponentMethods((n,), tuple(do("cast", int(k == i), dt) for k in range(n)))


def identity(do: Do, dt: Any, n: int) -> ComponentMethods:
    """Returns the identity matrix of n rows."""
    return ComponentMethods(
        (n, n), tuple(do("cast", int(i == j), dt) for i in range(n) for j in range(n))
    )


def diag(do: Do, dim: int, val: Any) -> ComponentMethods:
    """Returns the matrix of `dim` rows with `val` on its diagonal and zeros elsewhere."""
    return ComponentMethods(
        (dim, dim), tuple(val if i == j else 0 for i in range(dim) for j in range(dim))
    )


def rows(do: Do, rows: Sequence[Any]) -> ComponentMethods:
    """Returns the matrix with these rows, each a vector or list."""
    lists = [r.items if isinstance(r, ComponentMethods) else tuple(r) for r in rows]
    if not lists or len({len(r) for r in lists}) > 1:
        raise LanguageError("rows and cols take vectors of one length")
    return ComponentMethods((len(lists), len(lists[0])), tuple(x for r in lists for x in r))


def cols(do: Do, cols: Sequence[Any]) -> ComponentMethods:
    """Returns the matrix with these columns, each a vector or list."""
    return transpose(rows(do, cols))


def rotation2d(do: Do, alpha: Any) -> ComponentMethods:
    """Returns the matrix that rotates a vector of two components by `alpha` radians, counterclockwise."""
    cosine, sine = do("cos", alpha), do("sin", alpha)
    return ComponentMethods((2, 2), (cosine, do("neg", sine), sine, cosine))


def _table(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {f.__name__.rstrip("_"): f for f in functions}


METHODS = _table(
    dot,
    cross,
    outer_product,
    norm_sqr,
    norm,
    norm_inv,
    normalized,
    sum_,
    max_,
    min_,
    any_,
    all_,
    trace,
    determinant,
    inverse,
    transpose,
    cast,
)
MAKERS = _table(zero, one, unit, identity, diag, rows, cols, rotation2d)


def call(do: Do, name: str, a: ComponentMethods, *args: Any, **kwargs: Any) -> Any:
    """Returns the result of the method `name` of `a`: a vector, matrix or number. KeyError for an unknown name.

    `do(op, *operands)` gives the result of one operation on components.
    """
    function = METHODS[name]
    dressed = [_dressed(do, x) for x in (a, *args)]
    named = {key: _dressed(do, x) for key, x in kwargs.items()}
    _check_arguments(function, name, dressed, named)
    return _bare(function(*dressed, **named))


def make(do: Do, name: str, *args: Any, **kwargs: Any) -> ComponentMethods:
    """Returns the result of the constructor `Matrix.name(...)`. KeyError if there is no such constructor."""
    function = MAKERS[name]
    _check_arguments(function, name, [do, *args], kwargs)
    made: ComponentMethods = function(do, *args, **kwargs)
    return made


GROUPS = ("xyzw", "rgba", "stpq", "uv")


def swizzle(name: str) -> tuple[int, ...] | None:
    """Returns the component numbers that an attribute such as `x`, `xy` or `bgr` denotes.

    None for other attributes.
    """
    if len(name) <= 4:
        for letters in GROUPS:
            if all(c in letters for c in name):
                return tuple(letters.index(c) for c in name)
    return None


def _check_arguments(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    signature = _signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        taken = ", ".join(str(p).split(":")[0] for p in list(signature.parameters.values())[1:])
        raise ProgramTypeError(f"{name} takes ({taken}): {error}") from None


_signature = cache(inspect.signature)


def _sum(items: Any) -> Any:
    return reduce(lambda x, y: x + y, items)


def _need_vectors(name: str, a: ComponentMethods, b: ComponentMethods) -> None:
    if len(a.shape) != 1 or not isinstance(b, ComponentMethods) or a.shape != b.shape:
        raise ProgramTypeError(f"{name} takes two vectors of one length")


def _square(name: str, a: ComponentMethods) -> tuple[tuple[Any, ...], ...]:
    if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise LanguageError(f"{name} takes a square matrix, not one of {_shown(a.shape)}")
    return a.rows()


def _small_square(name: str, a: ComponentMethods) -> tuple[tuple[Any, ...], ...]:
    if a.shape[0] > 4:
        raise LanguageError(
            f"{name} takes matrices of at most four rows, not one of {_shown(a.shape)}"
        )
    return _square(name, a)


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _minor(rows: Sequence[Sequence[Any]], i: int, j: int) -> tuple[tuple[Any, ...], ...]:
    """Returns the matrix without row i and column j."""
    return tuple((*r[:j], *r[j + 1 :]) for k, r in enumerate(rows) if k != i)


def _determinant(rows: Sequence[Sequence[Any]]) -> Any:
    if len(rows) == 1:
        return rows[0][0]
    if len(rows) == 2:
        return rows[0][0] * rows[1][1] - rows[0][1] * rows[1][0]
    total = None
    for i, row in enumerate(rows):
        term = row[0] * _determinant(_minor(rows, i, 0))
        total = term if total is None else total - term if i % 2 else total + term
    return total


def _filled(do: Do, value: int, dt: Any, n: int, m: int | None) -> ComponentMethods:
    shape = (n,) if m is None else (n, m)
    return ComponentMethods(shape, (do("cast", value, dt),) * (n * (m or 1)))
