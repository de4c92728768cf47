"""Names of the kernel language as type checkers see them, where that is not what they are when a program runs.

An array argument is of any type, a number type is Python's, a decorator keeps the signature. Nothing imports this file at run time.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar, dataclass_transform, overload

from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")

f16: TypeAlias = float
f32: TypeAlias = float
f64: TypeAlias = float
i8: TypeAlias = int
i16: TypeAlias = int
i32: TypeAlias = int
i64: TypeAlias = int
u1: TypeAlias = bool
u8: TypeAlias = int
u16: TypeAlias = int
u32: TypeAlias = int
u64: TypeAlias = int

template: TypeAlias = Any

@overload
def kernel(fn: _F, /) -> _F: ...
@overload
def kernel(*, fast_math: bool = True) -> Callable[[_F], _F]: ...
def func(fn: _F) -> _F: ...
def real_func(fn: _F) -> _F: ...
def pyfunc(fn: _F) -> _F: ...
def data_oriented(kind: _T) -> _T: ...
@dataclass_transform()
def dataclass(cls: type[_T]) -> type[_T]: ...

class types:  # noqa: N801
    """Annotations of arguments, and makers of types."""

    ndarray: TypeAlias = Any
    template: TypeAlias = Any
    quant: Any

    @staticmethod
    def vector(n: int | None = None, dtype: Any = None) -> Any: ...
    @staticmethod
    def matrix(n: int | None = None, m: int | None = None, dtype: Any = None) -> Any: ...
    @staticmethod
    def struct(**members: Any) -> Any: ...
    @staticmethod
    def argpack(**members: Any) -> Any: ...
    @staticmethod
    def sparse_matrix_builder() -> Any: ...
    @staticmethod
    def is_integral(dtype: Any) -> bool: ...
    @staticmethod
    def is_real(dtype: Any) -> bool: ...
    @staticmethod
    def is_signed(dtype: Any) -> bool: ...

class Matrix(NDArrayOperatorsMixin):
    """A small matrix or vector; its methods and components are of any type."""

    entries: NDArray[Any]

    def __init__(self, *items: Any, dt: Any = None) -> None: ...
    def __getitem__(self, indices: Any) -> Any: ...
    def __setitem__(self, indices: Any, value: Any) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...
    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any: ...
    @staticmethod
    def field(n: int, m: int, dtype: Any, shape: Any = None, **options: Any) -> Any: ...
    @staticmethod
    def ndarray(n: int, m: int, dtype: Any, shape: Any) -> Any: ...
    @staticmethod
    def zero(dtype: Any, *shape: int) -> Any: ...
    @staticmethod
    def one(dtype: Any, *shape: int) -> Any: ...
    @staticmethod
    def identity(dtype: Any, n: int) -> Any: ...
    @staticmethod
    def unit(n: int, k: Any, dtype: Any = None) -> Any: ...
    @staticmethod
    def diag(dim: int, val: Any) -> Any: ...
    @staticmethod
    def rows(rows: Any) -> Any: ...
    @staticmethod
    def cols(cols: Any) -> Any: ...

class Vector(Matrix):
    """A small vector."""

    @staticmethod
    def field(n: int, dtype: Any, shape: Any = None, **options: Any) -> Any: ...  # type: ignore[override]
    @staticmethod
    def ndarray(n: int, dtype: Any, shape: Any) -> Any: ...  # type: ignore[override]

vec2: TypeAlias = Matrix
vec3: TypeAlias = Matrix
vec4: TypeAlias = Matrix
ivec2: TypeAlias = Matrix
ivec3: TypeAlias = Matrix
ivec4: TypeAlias = Matrix
uvec2: TypeAlias = Matrix
uvec3: TypeAlias = Matrix
uvec4: TypeAlias = Matrix
mat2: TypeAlias = Matrix
mat3: TypeAlias = Matrix
mat4: TypeAlias = Matrix
