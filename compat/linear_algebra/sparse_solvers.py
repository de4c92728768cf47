"""Solvers of linear systems with sparse matrices: factorisations by SuperLU, and conjugate gradients, both of SciPy."""

from __future__ import annotations

from typing import Any, Final, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.caller_location import fail
from ...kernels.ir.errors import ProgramRuntimeError
from ...kernels.ir.kernel import DType
from .sparse_matrix import SparseMatrix, like_given, scipy_sparse, vector_of

_TYPES: Final = ("LLT", "LDLT", "LU")
_ORDERINGS: Final = {"AMD": "MMD_AT_PLUS_A", "COLAMD": "COLAMD"}


def _linalg() -> Any:
    scipy_sparse()
    from scipy.sparse import linalg

    return linalg


def _refused(x: Any) -> NoReturn:
    fail(
        f"a solver takes a square sparse matrix of ti.linalg, not {type(x).__name__}",
        ProgramRuntimeError,
    )


@final
class SparseSolver:
    """Direct solver. LLT takes positive definite matrices, LDLT symmetric ones, and both read their lower triangle; LU takes any.

    SuperLU factorises all three: without pivots for LLT and LDLT.
    """

    def __init__(
        self, dtype: Any = DType.f32, solver_type: str = "LLT", ordering: str = "AMD"
    ) -> None:
        if solver_type not in _TYPES or ordering not in _ORDERINGS:
            fail(
                f"a SparseSolver has the type {', '.join(_TYPES)} and the ordering {', '.join(_ORDERINGS)},"
                f" not {solver_type!r} and {ordering!r}",
                ProgramRuntimeError,
            )
        self.dtype, self._type, self._ordering = dtype, solver_type, _ORDERINGS[ordering]
        self.matrix: SparseMatrix | None = None
        self._factors: Any = None

    def compute(self, sparse_matrix: Any) -> None:
        """Factorises a matrix."""
        self.analyze_pattern(sparse_matrix)
        self.factorize(sparse_matrix)

    def analyze_pattern(self, sparse_matrix: Any) -> None:
        """Checks a matrix. SuperLU orders it when it factorises it."""
        if not isinstance(sparse_matrix, SparseMatrix) or sparse_matrix.n != sparse_matrix.m:
            _refused(sparse_matrix)
        if sparse_matrix.dtype is not self.dtype:
            fail(
                f"a SparseSolver of {self.dtype.name} is given a matrix of {sparse_matrix.dtype.name}: make it with dtype=",
                ProgramRuntimeError,
            )
        self.matrix, self._factors = sparse_matrix, None

    def factorize(self, sparse_matrix: Any) -> None:
        """Factorises a matrix; `info` says if it could."""
        self.analyze_pattern(sparse_matrix)
        is_symmetric = self._type != "LU"
        a = sparse_matrix.matrix.tocsc()
        if is_symmetric:
            sparse = scipy_sparse()
            a = (sparse.tril(a) + sparse.tril(a, -1).T).tocsc()
        options: dict[str, Any] = {"permc_spec": self._ordering}
        if is_symmetric:
            options |= {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        try:
            found = _linalg().splu(a, **options)
        except RuntimeError:  # the matrix is singular
            found = None
        self._factors = found if found is None or self._is_factorised(found) else None

    def _is_factorised(self, found: Any) -> bool:
        """True if the factors are those of the type: LLT has positive pivots only, and both symmetric ones exchange no rows."""
        if self._type == "LU":
            return True
        is_unpivoted = bool(np.array_equal(found.perm_r, found.perm_c))
        return is_unpivoted and (self._type == "LDLT" or bool((found.U.diagonal() > 0).all()))

    def solve(self, b: Any) -> Any:
        """Returns the solution for the right-hand side `b`: not numbers where the matrix could not be factorised."""
        if self.matrix is None:
            fail(
                "a SparseSolver solves when it is given a matrix: call compute", ProgramRuntimeError
            )
        numbers = vector_of(b, self.matrix.n, "solve").astype(self.matrix.matrix.dtype)
        if self._factors is None:
            return like_given(b, np.full_like(numbers, np.nan))
        return like_given(b, self._factors.solve(numbers))

    def info(self) -> bool:
        """True if the matrix was factorised."""
        return self._factors is not None


@final
class SparseCG:
    """Conjugate gradients for a symmetric, positive definite matrix, from the solution `x0` on.

    They end where the residual is `atol` times as long as `b`, or with `max_iter` iterations.
    """

    def __init__(
        self,
        A: Any,  # noqa: N803
        b: Any,
        x0: Any = None,
        max_iter: int = 50,
        atol: float = 1e-6,
    ) -> None:
        if not isinstance(A, SparseMatrix) or A.n != A.m:
            _refused(A)
        kind = A.matrix.dtype
        self._matrix, self._most, self._least = A.matrix, max_iter, atol
        self._b = vector_of(b, A.n, "SparseCG").astype(kind)
        self._start = None if x0 is None else vector_of(x0, A.n, "SparseCG").astype(kind)

    def solve(self) -> tuple[NDArray[Any], bool]:
        """Returns the solution, and True if it was found. Prints the number of iterations and the relative residual."""
        n_iterations = 0

        def count(_: NDArray[Any]) -> None:
            nonlocal n_iterations
            n_iterations += 1

        diagonal = self._matrix.diagonal()
        scale = np.divide(1, diagonal, out=np.ones_like(diagonal), where=diagonal != 0)
        x, code = _linalg().cg(
            self._matrix,
            self._b,
            x0=self._start,
            rtol=self._least,
            atol=0.0,
            maxiter=self._most,
            M=scipy_sparse().diags_array(scale),
            callback=count,
        )
        length = float(np.linalg.norm(self._b)) or 1.0
        error = float(np.linalg.norm(self._b - self._matrix @ x)) / length
        print(f"#iterations:     {n_iterations}")
        print(f"estimated error: {error:g}")
        return x, code == 0
