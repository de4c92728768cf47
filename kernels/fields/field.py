"""Fields: arrays of numbers, vectors, matrices or structs that the program owns.

A field of vectors or matrices is one NumPy array with its components as leading axes, so that each component lies contiguous; a
field of structs is one array for each member. A field without dimensions has one element: its array has the shape (1,).
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import (
    LanguageError,
    ProgramBoundsError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
)
from ..ir.kernel import DType
from . import field_memory
from .caller_location import assigned_name, caller, fail
from .conversion import element_values, number
from .device_memory import LentTensor
from .host_access import (
    host_kernels,
    lent_memory,
    settle_for_reading,
    settle_for_sharing,
    settle_for_writing,
    settle_shared,
)
from .matrix import Matrix
from .program import current_program, needed_program
from .sparse_cells import SparseCells
from .statistics import TreeStatistics
from .tree import PlacedField, SNode

DerivativeKind = Literal["grad", "dual"]


class AbstractField(ABC):
    """Base class of fields. `name` is that of the program's variable, "" if it is unknown."""

    def __init__(self, name: str) -> None:
        self.where = caller()
        self.name = name or assigned_name(self.where)

    @property
    def label(self) -> str:
        """The name of the field in messages."""
        return f"the field {self.name}" if self.name else f"the field made in {self.where}"

    @property
    def _name(self) -> str:
        """The name of the field, under Taichi's name."""
        return self.name

    @abstractmethod
    def leaves(self) -> tuple[AbstractLeaf, ...]:
        """The fields with an array that this field consists of: itself, or its members for structs."""

    @property
    def snode(self) -> SNode:
        """Node of the field in its tree, of kind "place"."""
        return self.leaves()[0].place.snode

    def parent(self, n: int = 1) -> SNode | None:
        """Returns the n-th node above the field in its tree."""
        return self.snode.parent(n)

    def stats(self) -> TreeStatistics:
        """Returns the numbers of allocated and active cells, and of bytes, for each node of the field's tree.

        Printed, it is a table.
        """
        for leaf in self.leaves():
            leaf.check_final()
        return self.snode.stats()

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the indices; () for a field of one element."""
        return self.leaves()[0].place.shape

    @property
    def offset(self) -> tuple[int, ...]:
        """Least index along each axis; () if all are 0."""
        return self.leaves()[0].place.offset

    @property
    def grad(self) -> Any:
        """Field of the gradient. It exists once it is placed: by `needs_grad=True`, `place` or `lazy_grad`."""
        return self.derivative("grad")

    @property
    def dual(self) -> Any:
        """Field of the derivative in forward mode; placed like `grad`."""
        return self.derivative("dual")

    @abstractmethod
    def derivative(self, kind: DerivativeKind) -> AbstractField:
        """Returns the field of the gradient or dual (`kind`). LanguageError if elements are no floats."""

    def __iter__(self) -> Iterator[Any]:
        fail(f"only kernels loop over {self.label}: outside of them loop over its indices")

    def __repr__(self) -> str:
        return f"<{self.label}>"

    @abstractmethod
    def fill(self, value: Any) -> None:
        """Sets every element to `value`."""

    @abstractmethod
    def copy_from(self, other: Any) -> None:
        """Copies the elements of another field of the same shape to this field."""

    @abstractmethod
    def to_numpy(self) -> Any:
        """Returns a copy of the elements."""

    @abstractmethod
    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from a value in the form that `to_numpy` returns."""

    @abstractmethod
    def to_torch(self, device: Any = None) -> Any:
        """Returns a copy like that of `to_numpy`, as a tensor on `device`.

        LanguageError if torch is not installed.
        """

    @abstractmethod
    def from_torch(self, arr: Any) -> None:
        """Sets the elements like `from_numpy`, from tensors on any device."""

    @abstractmethod
    def __getitem__(self, key: Any) -> Any: ...

    @abstractmethod
    def __setitem__(self, key: Any, value: Any) -> None: ...


class AbstractLeaf(AbstractField):
    """Field with one array: its elements are numbers, or vectors or matrices of shape `element_shape`."""

    def __init__(self, dtype: DType, element_shape: tuple[int, ...], name: str) -> None:
        super().__init__(name)
        self.dtype = dtype
        self.element_shape = element_shape
        self._place: PlacedField | None = None
        self._array: NDArray[Any] | None = None
        self._cells: SparseCells | None = None
        self._released = ""
        self._derivatives: dict[DerivativeKind, AbstractLeaf] = {}
        self._derived_from = ""  # of a gradient or dual: how it is made, for messages
        self.is_lent = False  # its memory is seen from outside: nothing that writes to it may wait

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        return (self,)

    @property
    def place(self) -> PlacedField:
        """The field's place in its tree: shape, offset and node.

        LanguageError if the field is not placed yet.
        """
        if self._place is None:
            remedy = self._derived_from or "give it a shape=, or call ks.root.dense(...).place(...)"
            fail(f"{self.label} has no place: {remedy}", ProgramRuntimeError)
        return self._place

    def set_place(self, place: PlacedField) -> None:
        if self._place is not None:
            fail(f"{self.label} has been placed already", ProgramRuntimeError)
        self._place = place

    @abstractmethod
    def like(self, name: str) -> AbstractLeaf:
        """Returns a new field with the same element type and shape, named `name` and not placed."""

    def derivative(self, kind: DerivativeKind) -> AbstractLeaf:
        found = self._derivatives.get(kind)
        if found is None:
            if not self.dtype.is_float:
                fail(
                    f"{self.label} has no {kind}: its elements are {self.dtype.name}, not floats",
                    ProgramRuntimeError,
                )
            found = self._derivatives[kind] = self.like(f"{self.name or 'field'}_{kind}")
            found._derived_from = (
                f"make {self.label} with needs_{kind}=True and a shape=, place both in one node,"
                f" or call ks.root.lazy_{kind}()"
            )
            needed_program("a field").fields.append(found)
        return found

    @property
    def is_differentiable(self) -> bool:
        """True for a field of floats that is no gradient or dual of another field."""
        return self.dtype.is_float and not self.lender._derived_from

    @property
    def is_placed(self) -> bool:
        return self._place is not None

    def placed_derivative(self, kind: DerivativeKind) -> AbstractLeaf | None:
        """Returns the field of the gradient or dual (`kind`) if it is placed, else None."""
        found = self._derivatives.get(kind)
        return found if found is not None and found.is_placed else None

    @property
    def cells(self) -> SparseCells | None:
        """Cells of a sparse field, for access from Python; None if the field is dense."""
        if self._released:
            fail(f"{self.label} is gone: {self._released}", ProgramRuntimeError)
        if self._cells is None and self._array is None and self.place.snode.is_sparse:
            self.check_final()
            self._cells = SparseCells.of(self.place.snode)
        return self._cells

    @property
    def array(self) -> NDArray[Any]:
        """The field's NumPy array, components before indices: (*element_shape, *shape), with (1,) for shape ().

        It is zero at first, and stays the same array until the program ends. Deferred kernels that use it run before.
        Whoever keeps it calls `ks.sync()` before later uses.
        LanguageError if the field is sparse, and in a recorded sequence after its first call.
        """
        settle_for_sharing(self)
        return self.storage

    @property
    def readable(self) -> NDArray[Any]:
        """The array, for a read from Python: deferred kernels that write it run before."""
        settle_for_reading(self)
        return self.storage

    @property
    def writable(self) -> NDArray[Any]:
        """The array, for a write from Python; a sequence that is being recorded notes the write."""
        settle_for_writing(self)
        return self.storage

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Returns the array of a dense field, in a tuple; deferred kernels are not run first."""
        return (self.storage,)

    @property
    def storage(self) -> NDArray[Any]:
        """The array as kernels use it: deferred kernels are not run first."""
        return self._array if self._array is not None else self._allocated()

    def _allocated(self) -> NDArray[Any]:
        shape = self.memory_shape
        if self.place.snode.is_sparse:
            fail(f"{self.label} is sparse: it is no array, to_numpy() makes one")
        try:
            self._array = field_memory.zeros(shape, self.dtype.stored)
        except MemoryError:
            fail(f"there is no memory for {self.label} of shape {self.place.shape}")
        return self._array

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """Shape of the array of a dense field, which need not be allocated. LanguageError if it has been freed."""
        if self._released:
            fail(f"{self.label} is gone: {self._released}", ProgramRuntimeError)
        self.check_final()
        return (*self.element_shape, *(self.place.shape or (1,)))

    @property
    def is_unchanging(self) -> bool:
        """True if the field is placed, and its use changes nothing of the program: no node can be added to a sparse tree."""
        if self._place is None or self._released or not self._place.snode.tree.is_final:
            return False
        node = self._place.snode
        return not node.is_sparse or node.is_unchanging

    def check_final(self) -> None:
        if not self.place.snode.tree.is_final:
            fail(
                f"{self.label} is placed in a ks.FieldsBuilder() that is not finalized: call its finalize()",
                ProgramRuntimeError,
            )

    @property
    def is_gone(self) -> bool:
        """True if the memory of the field was freed."""
        return bool(self._released)

    def release(self, reason: str) -> None:
        """Frees the memory of the field; `reason` is the message for later uses."""
        self._array, self._cells, self._released = None, None, reason

    def index(self, key: Any) -> tuple[int, ...]:
        """Converts an index of the program to an index of the array. LanguageError for an index outside."""
        place = self.place
        given = indices(key)
        if len(given) != len(place.shape):
            fail(
                f"{self.label} takes {len(place.shape)} indices, not {len(given)}",
                ProgramBoundsError,
            )
        found = []
        for axis, (i, extent) in enumerate(zip(given, place.shape, strict=True)):
            least = place.offset[axis] if place.offset else 0
            try:
                at = operator.index(i) - least
            except TypeError:
                fail(f"{self.label} takes whole numbers as indices, not {i!r}", ProgramTypeError)
            if not 0 <= at < extent:
                fail(
                    f"{self.label} has indices {least} to {least + extent - 1} along axis {axis}, not {i}",
                    ProgramBoundsError,
                )
            found.append(at)
        return tuple(found) or (0,)

    def _sparse_index(self, key: Any) -> tuple[int, ...]:
        """Converts an index of the program to one of the sparse cell; () for a field without dimensions."""
        return self.index(key) if self.shape else ()

    @property
    def trailing(self) -> NDArray[Any]:
        """View of the array with the components last, and without the axis of a field that has no dimensions."""
        n = len(self.element_shape)
        if self.cells is not None:
            return np.moveaxis(self.cells.dense(self.shape), range(n), range(-n, 0))
        return self._with_trailing(self.readable)

    def _with_trailing(self, array: NDArray[Any]) -> NDArray[Any]:
        """Returns a view of an array like this field's, with the axes that `trailing` has."""
        n = len(self.element_shape)
        view = array if self.shape else array[..., 0]
        return np.moveaxis(view, range(n), range(view.ndim - n, view.ndim))

    def to_numpy(self, dtype: Any = None) -> NDArray[Any]:
        """Returns a copy of shape (*shape, *element_shape)."""
        source = self.trailing
        copy = np.empty(source.shape, self.dtype.numpy if dtype is None else dtype)
        for at in np.ndindex(
            *self.element_shape
        ):  # NumPy copies in the order of the source: a component at once is 4x faster
            copy[(..., *at)] = source[(..., *at)]
        return copy

    def from_numpy(self, arr: Any) -> None:
        """Sets the elements from an array of shape (*shape, *element_shape), converted to the field's type.

        The arrays of vector and matrix fields may have other axes of length 1.
        """
        settle_shared()  # the array may be that of a field
        kernels = host_kernels()
        if kernels is not None and kernels.take(self, arr):
            return
        values = self.converted(arr)
        if self.cells is not None:
            n = len(self.element_shape)
            self.cells.take(np.moveaxis(values, range(values.ndim - n, values.ndim), range(n)))
        else:
            self.put(values)

    def put(self, values: NDArray[Any]) -> None:
        """Sets the elements of a dense field from an array of shape (*shape, *element_shape) and of its type."""
        self._with_trailing(self.writable)[...] = values

    def converted(self, arr: Any) -> NDArray[Any]:
        """Returns an argument of `from_numpy` in the field's type, of shape (*shape, *element_shape).

        LanguageError for what is no such array.
        """
        if not isinstance(arr, np.ndarray | np.generic):
            fail(
                f"{self.label}.from_numpy takes a NumPy array, not {type(arr).__name__}",
                ProgramTypeError,
            )
        shape = (*self.shape, *self.element_shape)
        if self.element_shape and _without_ones(arr.shape) == _without_ones(shape):
            arr = arr.reshape(shape)
        if arr.shape != shape:
            fail(
                f"{self.label} takes an array of shape {shape}, not one of {arr.shape}",
                ProgramValueError,
            )
        if arr.dtype.kind not in "biuf":
            fail(
                f"{self.label} takes an array of numbers, not one of {arr.dtype}", ProgramValueError
            )
        with np.errstate(all="ignore"):
            return np.asarray(arr).astype(self.dtype.numpy, copy=False)

    def to_torch(self, device: Any = None) -> Any:
        """Returns a copy like that of `to_numpy`, as a tensor on `device`.

        A field in memory of that device is copied within it. LanguageError if torch is not installed.
        """
        lent = self._lent()
        if lent is not None:
            shared = torch_module().from_dlpack(lent)
            if shared.device.type == str(device or "cpu").partition(":")[0]:
                return shared.clone().contiguous()
        return torch_tensor(self.to_numpy(), device)

    def from_torch(self, arr: Any) -> None:
        """Sets the elements like `from_numpy`, from a tensor on any device."""
        self.from_numpy(arr.detach().cpu().numpy())

    def from_dlpack(self, source: Any) -> None:
        """Sets the elements like `from_numpy`, from any object that exports DLPack."""
        self.from_numpy(np.from_dlpack(source))

    @property
    def lender(self) -> AbstractLeaf:
        """The field that owns the exported memory: this field, or the one of which it is a component."""
        return self

    @property
    def sharing(self) -> tuple[AbstractLeaf, ...]:
        """The fields that share this field's memory: itself, and its components."""
        return (self,)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """Returns the field's memory where it is: on the device of the program, or on the host.

        On a device tensors have what Python writes to the field after the next call of a kernel, or `ks.sync()`.
        """
        lent = self._lent()
        if lent is not None:
            if kwargs.get("copy") or kwargs.get("dl_device") not in (None, lent.memory.device):
                return self.to_numpy().__dlpack__(**kwargs)
            lend(self.lender, lent)
            return lent.__dlpack__(**kwargs)
        lend(self.lender)
        return self.trailing.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        lent = self._lent()
        return (self.trailing if lent is None else lent).__dlpack_device__()

    def _lent(self) -> LentTensor | None:
        """Returns the field as a tensor in the memory of the program's device, of shape (*shape, *element_shape).

        None for a field in the host's memory, and for a sparse one.
        """
        if self.cells is not None:
            return None
        whole = self.lender.storage
        memory = lent_memory(self.lender, whole)
        if memory is None:
            return None
        return LentTensor.of(memory, whole, self._with_trailing(self.storage))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy(dtype)

    def filling(self, value: Any) -> Any:
        """Returns the argument of `fill` in the field's type: an array of components, or one number for all."""
        label = f"{self.label}.fill"
        if self.element_shape and not isinstance(value, (int, float, np.number)):
            return element_values(value, self.dtype.numpy, self.element_shape, label)
        if self.dtype.is_integer and isinstance(value, (float, np.floating)):
            value = int(value)
        return number(value, self.dtype, label)

    def fill(self, value: Any) -> None:
        kernels = host_kernels()
        if kernels is not None and kernels.fill(self, value):
            return
        filling = self.filling(value)
        if self.cells is not None:
            self.cells.fill(np.broadcast_to(filling, self.element_shape).astype(self.dtype.numpy))
        else:
            self._with_trailing(self.writable)[...] = filling

    def copy_from(self, other: Any) -> None:
        if not isinstance(other, AbstractLeaf):
            fail(
                f"{self.label}.copy_from takes a field, not {type(other).__name__}",
                ProgramTypeError,
            )
        if (other.shape, other.element_shape) != (self.shape, self.element_shape):
            fail(
                f"{self.label}.copy_from: {other.label} has another shape, {other.shape} and not {self.shape}",
                ProgramValueError,
            )
        kernels = host_kernels()
        if kernels is not None and kernels.copy(self, other):
            return
        with np.errstate(all="ignore"):
            if self.cells is not None or other.cells is not None:
                n = len(self.element_shape)
                given = np.moveaxis(other.trailing, range(-n, 0), range(n)) if n else other.trailing
                if self.cells is not None:
                    self.cells.take_all(given.astype(self.dtype.numpy, copy=False))
                else:
                    self.writable[...] = given.astype(self.dtype.numpy).reshape(self.storage.shape)
            else:
                self.writable[...] = other.readable.astype(self.dtype.numpy, copy=False)

    def __str__(self) -> str:
        return str(self.to_numpy()) if self._place is not None else repr(self)


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    """Returns the extents of a shape that are not 1, in order."""
    return [n for n in shape if n != 1]


def lend(field: AbstractLeaf, tensor: LentTensor | None = None) -> None:
    """Marks the memory of a field as shared with other libraries, which may change it.

    Prepared calls, which assume that only kernels change it, are dropped. `tensor`: its memory on a device.
    """
    program = current_program()
    if field.cells is None and tensor is None:
        settle_for_sharing(field)
    if not field.is_lent and program is not None:
        program.outdate()
    for x in field.sharing:
        x.is_lent = True


def torch_tensor(array: NDArray[Any], device: Any) -> Any:
    """Returns an array as a tensor on `device`. LanguageError if torch is not installed."""
    return torch_module().from_numpy(array).to(device)


def torch_module() -> Any:
    """Returns PyTorch. LanguageError if it is not installed."""
    try:
        import torch
    except ImportError:
        raise LanguageError("to_torch needs torch: pip install torch", caller()) from None
    return torch


def indices(key: Any) -> Sequence[Any]:
    if key is None:
        return ()
    if isinstance(key, (tuple, list, Matrix)):
        return tuple(key)
    return (key,)
