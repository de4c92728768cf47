"""Sparse matrices of a program: builders that kernels append triplets to, and the matrices of SciPy that these become."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.caller_location import fail
from ...kernels.fields.field import AbstractField
from ...kernels.fields.ndarray import Ndarray
from ...kernels.fields.program import element_dtype
from ...kernels.frontend.packs import Pack
from ...kernels.frontend.triplets import TRIPLETS
from ...kernels.ir.errors import (
    ProgramBoundsError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
)
from ...kernels.ir.kernel import DType

_FORMATS: Final = {"col_major": "csc", "row_major": "csr"}
_DIGITS: Final = 4  # of printed entries


def scipy_sparse() -> ModuleType:
    """Returns `scipy.sparse`. LanguageError where SciPy is not installed."""
    try:
        from scipy import sparse
    except ImportError:
        fail(
            'sparse matrices need SciPy, which is not installed: pip install "kernelscape[sparse]"',
            ProgramRuntimeError,
        )
    return sparse  # type: ignore[no-any-return]


def vector_of(x: Any, n: int, what: str) -> NDArray[Any]:
    """The `n` numbers of an array, an ndarray or a field with one axis."""
    if not isinstance(x, np.ndarray | Ndarray | AbstractField):
        fail(
            f"{what} takes an array, an ndarray or a field, not {type(x).__name__}",
            ProgramRuntimeError,
        )
    found: NDArray[Any] = x if isinstance(x, np.ndarray) else x.to_numpy()
    if found.shape != (n,):
        fail(f"{what} takes {n} numbers, not an array of shape {found.shape}", ProgramBoundsError)
    return found


def like_given(given: Any, numbers: NDArray[Any]) -> Any:
    """The numbers as an ndarray where one was given, as an array otherwise."""
    if not isinstance(given, Ndarray):
        return numbers
    made = Ndarray(given.dtype, numbers.shape)
    made.from_numpy(numbers)
    return made


def _float_type(dtype: Any) -> DType:
    found = element_dtype(dtype)
    if found not in (DType.f32, DType.f64):
        fail(f"sparse matrices have entries of type f32 or f64, not {found.name}", ProgramTypeError)
    return found


def _extent(n: Any, what: str) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 1:
        fail(f"the number of {what} of a sparse matrix must be positive, not {n}", ProgramTypeError)
    return int(n)


def _format(storage_format: Any) -> str:
    if storage_format not in _FORMATS:
        fail(
            f"storage_format is 'col_major' or 'row_major', not {storage_format!r}",
            ProgramValueError,
        )
    return _FORMATS[storage_format]


@contextmanager
def _changing_entries() -> Iterator[None]:
    """SciPy warns of each entry that is new."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@final
class SparseMatrix:
    """Sparse matrix of `n` rows and `m` columns. `sm` is one of SciPy's to take instead of zeros."""

    def __init__(
        self,
        n: Any = None,
        m: Any = None,
        sm: Any = None,
        dtype: Any = DType.f32,
        storage_format: str = "col_major",
    ) -> None:
        kind = _format(storage_format)
        if sm is None:
            shape = _extent(n, "rows"), _extent(n if m is None else m, "columns")
            made = scipy_sparse().coo_array(shape, dtype=_float_type(dtype).numpy)
            sm = made.asformat(kind)
        _float_type(sm.dtype)
        self.matrix = sm

    @property
    def dtype(self) -> DType:
        """The type of the entries."""
        return element_dtype(self.matrix.dtype)

    @property
    def n(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def m(self) -> int:
        return int(self.matrix.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.m

    def transpose(self) -> SparseMatrix:
        """Returns the transposed matrix."""
        return SparseMatrix(sm=self.matrix.T.asformat(self.matrix.format))

    def _check_shape(self, other: Any, what: str) -> None:
        if not isinstance(other, SparseMatrix):
            fail(
                f"{what} of a sparse matrix takes another one, not {type(other).__name__}",
                ProgramTypeError,
            )
        if self.shape != other.shape:
            fail(
                f"{what} of sparse matrices takes two of one shape, not {self.shape} and {other.shape}",
                ProgramBoundsError,
            )

    def __add__(self, other: Any) -> SparseMatrix:
        self._check_shape(other, "a sum")
        return SparseMatrix(sm=self.matrix + other.matrix)

    def __sub__(self, other: Any) -> SparseMatrix:
        self._check_shape(other, "a difference")
        return SparseMatrix(sm=self.matrix - other.matrix)

    def __iadd__(self, other: Any) -> Self:
        self._check_shape(other, "a sum")
        self.matrix = self.matrix + other.matrix
        return self

    def __isub__(self, other: Any) -> Self:
        self._check_shape(other, "a difference")
        self.matrix = self.matrix - other.matrix
        return self

    def __mul__(self, other: Any) -> SparseMatrix:
        """Multiplies each entry by a number, or by the entry of another matrix."""
        if isinstance(other, int | float | np.number):
            return SparseMatrix(sm=self.matrix * self.matrix.dtype.type(other))
        self._check_shape(other, "a product of entries")
        return SparseMatrix(sm=self.matrix.multiply(other.matrix).asformat(self.matrix.format))

    __rmul__ = __mul__

    def __matmul__(self, other: Any) -> Any:
        """The product with another matrix, or with a vector: an ndarray gives an ndarray, arrays and fields give an array."""
        if isinstance(other, SparseMatrix):
            if self.m != other.n:
                fail(
                    f"a product of sparse matrices takes as many columns as rows, not {self.shape} and {other.shape}",
                    ProgramBoundsError,
                )
            return SparseMatrix(sm=self.matrix @ other.matrix)
        x = vector_of(other, self.m, "a product with a sparse matrix")
        return like_given(other, self.matrix @ x.astype(self.matrix.dtype, copy=False))

    def __getitem__(self, at: tuple[int, int]) -> float:
        return float(self.matrix[self._place(at)])

    def __setitem__(self, at: tuple[int, int], value: float) -> None:
        with _changing_entries():
            self.matrix[self._place(at)] = value

    def _place(self, at: Any) -> tuple[int, int]:
        is_pair = isinstance(at, tuple) and len(at) == 2
        if not is_pair or not all(isinstance(k, int | np.integer) for k in at):
            fail(
                f"an entry of a sparse matrix has a row and a column, not {at}", ProgramBoundsError
            )
        if not (0 <= at[0] < self.n and 0 <= at[1] < self.m):
            fail(f"a sparse matrix of shape {self.shape} has no entry {at}", ProgramBoundsError)
        return at  # type: ignore[no-any-return]

    def __str__(self) -> str:
        dense = self.matrix.toarray().astype(np.float32)
        shown = [[f"{x:.{_DIGITS}g}" for x in row] for row in dense.tolist()]
        width = max(len(x) for row in shown for x in row)
        return "\n".join("[" + ", ".join(x.rjust(width) for x in row) + "]" for row in shown)

    __repr__ = __str__

    def build_from_ndarray(self, ndarray: Any) -> None:
        """Takes the entries from an ndarray of numbers, three each: row, column, value."""
        if not isinstance(ndarray, Ndarray):
            fail(
                f"build_from_ndarray takes an ndarray, not {type(ndarray).__name__}",
                ProgramRuntimeError,
            )
        numbers = ndarray.to_numpy().ravel()
        if numbers.size % 3:
            fail(
                f"build_from_ndarray takes three numbers an entry, this ndarray has {numbers.size}",
                ProgramRuntimeError,
            )
        rows, columns, entries = numbers.reshape(-1, 3).T
        whole = rows.astype(np.int32), columns.astype(np.int32)
        self.matrix = _summed(*whole, entries.astype(self.matrix.dtype), self.shape).asformat(
            self.matrix.format
        )

    def mmwrite(self, filename: str) -> None:
        """Writes the matrix to a Matrix Market file."""
        entries = self.matrix.tocoo()
        lines = ["%%MatrixMarket matrix coordinate real general", "%"]
        lines += [f"{self.n} {self.m} {entries.nnz}"]
        lines += [
            f"{i + 1} {j + 1} {str(x).removesuffix('.0')}"  # as many digits as tell it from its neighbours
            for i, j, x in zip(entries.row, entries.col, entries.data, strict=True)
        ]
        Path(filename).write_text("\n".join([*lines, ""]), encoding="utf-8")


@final
class SparseMatrixBuilder:
    """Builder of a sparse matrix from at most `max_num_triplets` triplets, which kernels append in any order."""

    def __init__(
        self,
        num_rows: Any = None,
        num_cols: Any = None,
        max_num_triplets: int = 0,
        dtype: Any = DType.f32,
        storage_format: str = "col_major",
    ) -> None:
        self.num_rows = _extent(num_rows, "rows")
        self.num_cols = _extent(num_rows if num_cols is None else num_cols, "columns")
        self.dtype = _float_type(dtype)
        self._format = _format(storage_format)
        self.max_num_triplets = int(max_num_triplets)
        n = max(self.max_num_triplets, 1)  # memory of a kernel's argument
        arrays = {
            "count": np.zeros(1, np.int32),
            "rows": np.zeros(n, np.int32),
            "columns": np.zeros(n, np.int32),
            "values": np.zeros(n, self.dtype.numpy),
        }
        self.pack = Pack(TRIPLETS, arrays)

    def _triplets(self, *, forgets: bool) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """The rows, columns and values of the triplets; LanguageError where they are too many or outside of the matrix.

        `forgets`: the builder is empty behind it, also after an error.
        """
        n = int(self.pack.count[0])
        self.pack.count[0] = 0 if forgets else n
        if n > self.max_num_triplets:
            fail(
                f"{n} triplets were added to a SparseMatrixBuilder for {self.max_num_triplets}: make max_num_triplets larger",
                ProgramRuntimeError,
            )
        rows, columns, entries = (self.pack[k][:n] for k in ("rows", "columns", "values"))
        outside = (rows < 0) | (rows >= self.num_rows) | (columns < 0) | (columns >= self.num_cols)
        if outside.any():
            at = int(rows[outside][0]), int(columns[outside][0])
            shape = self.num_rows, self.num_cols
            fail(f"a sparse matrix of shape {shape} was given the entry {at}", ProgramBoundsError)
        return rows, columns, entries

    def print_triplets(self) -> None:
        """Prints the triplets."""
        rows, columns, entries = self._triplets(forgets=False)
        print(
            f"n={self.num_rows}, m={self.num_cols}, num_triplets={len(rows)} (max={self.max_num_triplets})"
        )
        for i, j, x in zip(rows, columns, entries, strict=True):
            print(f"[{i}, {j}] = {np.format_float_positional(x, trim='-')}")

    def build(self, dtype: Any = DType.f32, _format: str = "CSR") -> SparseMatrix:
        """Returns the matrix of the triplets, where those of one place are summed, and forgets them. Both options are Taichi's."""
        made = _summed(*self._triplets(forgets=True), (self.num_rows, self.num_cols))
        return SparseMatrix(sm=made.asformat(self._format))


def _summed(
    rows: NDArray[Any], columns: NDArray[Any], entries: NDArray[Any], shape: tuple[int, int]
) -> Any:
    """A matrix of triplets in which the order of appends has no effect: those of one place are summed from the least value on."""
    order = np.lexsort((entries, columns, rows))
    made = scipy_sparse().coo_array((entries[order], (rows[order], columns[order])), shape=shape)
    made.sum_duplicates()
    return made
