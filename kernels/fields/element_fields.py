"""Fields whose elements are numbers, vectors or matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import ProgramIndexError, ProgramRuntimeError
from ..ir.kernel import DType
from .caller_location import fail
from .conversion import element_values, number
from .field import AbstractLeaf, DerivativeKind, torch_tensor
from .matrix import Matrix, python_number
from .tree import PlacedField


class ScalarField(AbstractLeaf):
    """Field of numbers, or one component (`component`) of the field of vectors or matrices `whole`."""

    def __init__(
        self,
        dtype: DType,
        name: str,
        whole: MatrixField | None = None,
        component: tuple[int, ...] = (),
    ) -> None:
        super().__init__(dtype, (), name)
        self.whole = whole
        self.component = component

    @property
    def lender(self) -> AbstractLeaf:
        return self if self.whole is None else self.whole

    def like(self, name: str) -> ScalarField:
        return ScalarField(self.dtype, name)

    def derivative(self, kind: DerivativeKind) -> AbstractLeaf:
        if self.whole is None:
            return super().derivative(kind)
        derivative = self.whole.derivative(kind)
        assert isinstance(derivative, MatrixField)
        return derivative.get_scalar_field(*self.component)

    def set_place(self, place: PlacedField) -> None:
        super().set_place(place)
        if self.whole is not None:
            self.whole.component_placed()

    def _allocated(self) -> NDArray[Any]:
        if self.whole is None:
            return super()._allocated()
        component: NDArray[Any] = self.whole.storage[self.component]
        return component

    def __getitem__(self, key: Any) -> int | float:
        cells = self.cells
        if cells is not None:
            return python_number(cells.read(self._sparse_index(key))[self.component])
        return python_number(self.readable[self.index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        cells = self.cells
        if cells is not None:
            place = (*self.component, cells.activated(self._sparse_index(key)))
            cells.values[place] = number(value, self.dtype, self.label)
            return
        self.writable[self.index(key)] = number(value, self.dtype, self.label)


class MatrixField(AbstractLeaf):
    """Field of vectors, `element_shape` (n,), or of matrices, `element_shape` (n, m)."""

    def __init__(self, dtype: DType, element_shape: tuple[int, ...], name: str) -> None:
        super().__init__(dtype, element_shape, name)
        self._components = {
            at: ScalarField(dtype, "", self, at) for at in np.ndindex(*element_shape)
        }

    @property
    def sharing(self) -> tuple[AbstractLeaf, ...]:
        return (self, *self._components.values())

    def like(self, name: str) -> MatrixField:
        return MatrixField(self.dtype, self.element_shape, name)

    @property
    def n(self) -> int:
        return self.element_shape[0]

    @property
    def m(self) -> int:
        return self.element_shape[1] if self.ndim == 2 else 1

    @property
    def ndim(self) -> int:
        return len(self.element_shape)

    def get_scalar_field(self, *indices: int) -> ScalarField:
        """Returns the field of one component, which shares the memory of this field."""
        if indices not in self._components:
            fail(f"{self.label} has no component {indices}", ProgramIndexError)
        found = self._components[indices]
        found.name = "_".join(map(str, (self.name or "component", *indices)))
        return found

    def set_place(self, place: PlacedField) -> None:
        super().set_place(place)
        for component in self._components.values():
            component._place = place

    def component_placed(self) -> None:
        """Places the field if the component placed now is the last one; components may be placed singly."""
        places = [c._place for c in self._components.values() if c._place is not None]
        first = places[0]
        if any((p.shape, p.offset) != (first.shape, first.offset) for p in places):
            fail(
                f"the components of {self.label} are placed in different shapes",
                ProgramRuntimeError,
            )
        if first.snode.is_sparse:
            fail(
                f"the components of {self.label} are placed one by one: place the whole field in a sparse tree",
                ProgramRuntimeError,
            )
        if len(places) == len(self._components):
            self._place = first

    def to_numpy(self, dtype: Any = None, keep_dims: bool = False) -> NDArray[Any]:
        """Returns a copy of shape (*shape, *element_shape); a matrix of one column is copied as a vector.

        With `keep_dims` vectors and one-column matrices both have the shape (*shape, n, 1).
        """
        copy = super().to_numpy(dtype)
        if keep_dims:
            return copy[..., None] if self.ndim == 1 else copy
        return copy[..., 0] if self.ndim == 2 and self.m == 1 else copy

    def to_torch(self, device: Any = None, keep_dims: bool = False) -> Any:
        """Returns a copy like that of `to_numpy`, as a tensor on `device`.

        LanguageError if torch is not installed.
        """
        return torch_tensor(self.to_numpy(keep_dims=keep_dims), device)

    def __getitem__(self, key: Any) -> Matrix:
        if self.cells is not None:
            return self.cells.element(self._sparse_index(key))
        at = self._components_at(key)
        return Matrix.of_element(self.readable[at], lambda: np.asarray(self.writable[at]), self)

    def __setitem__(self, key: Any, value: Any) -> None:
        values = element_values(
            value, self.dtype.numpy, self.element_shape, self.label, is_exact=True
        )
        if self.cells is not None:
            self.cells.values[..., self.cells.activated(self._sparse_index(key))] = values
            return
        self.writable[self._components_at(key)] = values

    def _components_at(self, key: Any) -> tuple[Any, ...]:
        """Returns the index, into the array, of all components of the element at `key`."""
        return (..., *self.index(key))
