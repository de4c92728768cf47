"""Taichi's `ti.linalg`: sparse matrices, their solvers, and solvers of operators that are kernels. Matrices need SciPy."""

from .matrix_free import LinearOperator, MatrixFreeBICGSTAB, MatrixFreeCG
from .sparse_matrix import SparseMatrix, SparseMatrixBuilder
from .sparse_solvers import SparseCG, SparseSolver

__all__ = [
    "LinearOperator",
    "MatrixFreeBICGSTAB",
    "MatrixFreeCG",
    "SparseCG",
    "SparseMatrix",
    "SparseMatrixBuilder",
    "SparseSolver",
]
