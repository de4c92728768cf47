"""Arithmetic of the reference interpreter on arrays: that of NumPy, or another class with the same methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..ir.ops import OPS
from .contraction import contract

Array = np.ndarray[Any, Any]


class AbstractArithmetic(ABC):
    """Interface of the language's operations on arrays and scalars."""

    @abstractmethod
    def operation(self, op: str, *operands: Any) -> Any:
        """The result of an operation of the language on one or two operands, element by element."""

    @abstractmethod
    def reduced(self, op: str, terms: Array, axis: tuple[int, ...], keepdims: bool = False) -> Any:
        """The reduction of `terms` by operation `op` along the axes `axis`."""

    @abstractmethod
    def contracted(self, a: Array, b: Array, shape: tuple[int, ...], n_reduced: int) -> Array:
        """The sum of products of two arrays, with the meaning of `contraction.contract`."""

    @abstractmethod
    def scattered(self, op: str, array: Array, indices: tuple[Array, ...], values: Array) -> None:
        """Updates elements of `array` at `indices` in place by `op`; several indices may be the same."""


class NumpyArithmetic(AbstractArithmetic):
    """Arithmetic of NumPy."""

    def operation(self, op: str, *operands: Any) -> Any:
        return OPS[op].numpy(*operands)

    def reduced(self, op: str, terms: Array, axis: tuple[int, ...], keepdims: bool = False) -> Any:
        return OPS[op].ufunc.reduce(terms, axis=axis, dtype=terms.dtype, keepdims=keepdims)

    def contracted(self, a: Array, b: Array, shape: tuple[int, ...], n_reduced: int) -> Array:
        return contract(a, b, shape, n_reduced)

    def scattered(self, op: str, array: Array, indices: tuple[Array, ...], values: Array) -> None:
        OPS[op].ufunc.at(array, indices, values)
