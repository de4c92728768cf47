"""Fields: arrays that the program owns.

A field of vectors or matrices is one NumPy array with its components as leading axes, so that each component lies contiguous; a
field of structs is one array for each member. A field without dimensions has one element: its array has the shape (1,).
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import LanguageError
from ..ir.kernel import DType
from . import memory
from .compound import MatrixType, StructType
from .conversion import element_values, number
from .matrix import Matrix, python_number
from .place import assigned_name, caller, fail
from .program import element_dtype, needed_program
from .structs import Struct, members_of, type_of
from .tree import Layout, Place, SNode, extents_of, offset_of


class AbstractField(ABC):
    """What all fields have. `name` is that of the program's variable where it is known, else ""."""

    def __init__(self, name: str) -> None:
        self.where = caller()
        self.name = name or assigned_name(self.where)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"the field {self.name}" if self.name else f"the field made in {self.where}"

    @abstractmethod
    def leaves(self) -> tuple[AbstractLeaf, ...]:
        """The fields it is made of that have an array: itself, or its members."""

    @property
    def snode(self) -> SNode:
        """Its node in the tree."""
        return self.leaves()[0].place.snode

    def parent(self, n: int = 1) -> SNode | None:
        """The n-th node above it."""
        return self.snode.parent(n)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the indices; () where it has one element."""
        return self.leaves()[0].place.shape

    @property
    def offset(self) -> tuple[int, ...]:
        """The least index along each axis; () where all are 0."""
        return self.leaves()[0].place.offset

    @property
    def grad(self) -> NoReturn:
        fail(f"{self.label} has no grad: autodiff is not there yet")

    def __iter__(self) -> Iterator[Any]:
        fail(f"only kernels loop over {self.label}: outside of them loop over its indices")

    def __repr__(self) -> str:
        return f"<{self.label}>"

    @abstractmethod
    def fill(self, value: Any) -> None:
        """Sets every element."""

    @abstractmethod
    def copy_from(self, other: Any) -> None:
        """Takes the elements of another field of the same shape."""

    @abstractmethod
    def to_numpy(self) -> Any:
        """A copy of its elements."""

    @abstractmethod
    def from_numpy(self, arr: Any) -> None:
        """Takes its elements from what `to_numpy` gives."""

    @abstractmethod
    def to_torch(self, device: Any = None) -> Any:
        """As `to_numpy`, on `device`. ImportError where torch is not installed."""

    @abstractmethod
    def from_torch(self, arr: Any) -> None:
        """As `from_numpy`, of tensors on any device."""

    @abstractmethod
    def __getitem__(self, key: Any) -> Any: ...

    @abstractmethod
    def __setitem__(self, key: Any, value: Any) -> None: ...


class AbstractLeaf(AbstractField):
    """A field with an array: its elements are numbers, or have the components `element_shape`."""

    def __init__(self, dtype: DType, element_shape: tuple[int, ...], name: str) -> None:
        super().__init__(name)
        self.dtype = dtype
        self.element_shape = element_shape
        self._place: Place | None = None
        self._array: NDArray[Any] | None = None
        self._released = ""

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        return (self,)

    @property
    def place(self) -> Place:
        """Where it is in its tree; LanguageError where it has no place yet."""
        if self._place is None:
            fail(
                f"{self.label} has no place: give it a shape=, or call ks.root.dense(...).place(...)"
            )
        return self._place

    def set_place(self, place: Place) -> None:
        if self._place is not None:
            fail(f"{self.label} has been placed already")
        self._place = place

    @property
    def array(self) -> NDArray[Any]:
        """The components before the indices, in C order: shape (*element_shape, *shape), with (1,) for shape ().

        It begins as zeros, and stays the same array until the program ends.
        """
        return self._array if self._array is not None else self._allocated()

    def _allocated(self) -> NDArray[Any]:
        if self._released:
            fail(f"{self.label} is gone: {self._released}")
        place = self.place
        if not place.snode.tree.is_final:
            fail(
                f"{self.label} is placed in a ks.FieldsBuilder() that is not finalized: call its finalize()"
            )
        shape = (*self.element_shape, *(place.shape or (1,)))
        try:
            self._array = memory.zeros(shape, self.dtype)
        except MemoryError:
            fail(f"there is no memory for {self.label} of shape {place.shape}")
        return self._array

    def release(self, reason: str) -> None:
        """Gives its memory back; `reason` is told to whoever uses it again."""
        self._array, self._released = None, reason

    def index(self, key: Any) -> tuple[int, ...]:
        """An index of the program as one of the array; LanguageError where it is outside."""
        place = self.place
        given = indices(key)
        if len(given) != len(place.shape):
            fail(f"{self.label} takes {len(place.shape)} indices, not {len(given)}")
        found = []
        for axis, (i, extent) in enumerate(zip(given, place.shape, strict=True)):
            least = place.offset[axis] if place.offset else 0
            try:
                at = operator.index(i) - least
            except TypeError:
                fail(f"{self.label} takes whole numbers as indices, not {i!r}")
            if not 0 <= at < extent:
                fail(
                    f"{self.label} has indices {least} to {least + extent - 1} along axis {axis}, not {i}"
                )
            found.append(at)
        return tuple(found) or (0,)

    @property
    def trailing(self) -> NDArray[Any]:
        """A view with the components last, and without the axis of a field without dimensions: what `to_numpy` copies."""
        n = len(self.element_shape)
        view = self.array if self.shape else self.array[..., 0]
        return np.moveaxis(view, range(n), range(view.ndim - n, view.ndim))

    def to_numpy(self, dtype: Any = None) -> NDArray[Any]:
        """A copy of shape (*shape, *element_shape)."""
        copy = np.empty(self.trailing.shape, self.dtype.numpy if dtype is None else dtype)
        for at in np.ndindex(
            *self.element_shape
        ):  # NumPy copies in the order of the source: a component at once is 4x faster
            copy[(..., *at)] = self.trailing[(..., *at)]
        return copy

    def from_numpy(self, arr: Any) -> None:
        """Takes the elements of an array of shape (*shape, *element_shape), which is converted to the type of the field."""
        if not isinstance(arr, np.ndarray):
            fail(f"{self.label}.from_numpy takes a NumPy array, not {type(arr).__name__}")
        target = self.trailing
        if len(self.element_shape) == 1 and arr.shape == (*target.shape, 1):
            arr = arr[..., 0]
        if arr.shape != target.shape:
            fail(f"{self.label} takes an array of shape {target.shape}, not one of {arr.shape}")
        if arr.dtype.kind not in "biuf":
            fail(f"{self.label} takes an array of numbers, not one of {arr.dtype}")
        with np.errstate(all="ignore"):
            target[...] = arr.astype(self.dtype.numpy, copy=False)

    def to_torch(self, device: Any = None) -> Any:
        """As `to_numpy`, as a tensor on `device`. ImportError where torch is not installed."""
        return torch_tensor(self.to_numpy(), device)

    def from_torch(self, arr: Any) -> None:
        """As `from_numpy`, of a tensor on any device."""
        self.from_numpy(arr.detach().cpu().numpy())

    def from_dlpack(self, source: Any) -> None:
        """As `from_numpy`, of whatever hands out its memory by DLPack."""
        self.from_numpy(np.from_dlpack(source))

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.trailing.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.trailing.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.to_numpy(dtype)

    def fill(self, value: Any) -> None:
        if self.element_shape and not isinstance(value, (int, float, np.number)):
            values = element_values(
                value, self.dtype.numpy, self.element_shape, f"{self.label}.fill"
            )
            self.trailing[...] = values
            return
        if self.dtype.is_integer and isinstance(value, (float, np.floating)):
            value = int(value)
        self.array[...] = number(value, self.dtype, f"{self.label}.fill")

    def copy_from(self, other: Any) -> None:
        if not isinstance(other, AbstractLeaf):
            fail(f"{self.label}.copy_from takes a field, not {type(other).__name__}")
        if (other.shape, other.element_shape) != (self.shape, self.element_shape):
            fail(
                f"{self.label}.copy_from: {other.label} has another shape, {other.shape} and not {self.shape}"
            )
        with np.errstate(all="ignore"):
            self.array[...] = other.array.astype(self.dtype.numpy, copy=False)

    def __str__(self) -> str:
        return str(self.to_numpy()) if self._place is not None else repr(self)


class ScalarField(AbstractLeaf):
    """A field of numbers, or one component of a field of vectors or matrices: `whole` is that field, `component` says which."""

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

    def set_place(self, place: Place) -> None:
        super().set_place(place)
        if self.whole is not None:
            self.whole.component_placed()

    def _allocated(self) -> NDArray[Any]:
        if self.whole is None:
            return super()._allocated()
        component: NDArray[Any] = self.whole.array[self.component]
        return component

    def __getitem__(self, key: Any) -> int | float:
        return python_number(self.array[self.index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[self.index(key)] = number(value, self.dtype, self.label)


class MatrixField(AbstractLeaf):
    """A field of vectors, element_shape (n,), or of matrices, element_shape (n, m)."""

    def __init__(self, dtype: DType, element_shape: tuple[int, ...], name: str) -> None:
        super().__init__(dtype, element_shape, name)
        self._components = {
            at: ScalarField(dtype, "", self, at) for at in np.ndindex(*element_shape)
        }

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
        """The field of one component; it shares the memory."""
        if indices not in self._components:
            fail(f"{self.label} has no component {indices}")
        found = self._components[indices]
        found.name = "_".join(map(str, (self.name or "component", *indices)))
        return found

    def set_place(self, place: Place) -> None:
        super().set_place(place)
        for component in self._components.values():
            component._place = place

    def component_placed(self) -> None:
        """One of its components was placed by itself: the last one places the field."""
        places = [c._place for c in self._components.values() if c._place is not None]
        first = places[0]
        if any((p.shape, p.offset) != (first.shape, first.offset) for p in places):
            fail(f"the components of {self.label} are placed in different shapes")
        if len(places) == len(self._components):
            self._place = first

    def to_numpy(self, dtype: Any = None, keep_dims: bool = False) -> NDArray[Any]:
        """A copy of shape (*shape, *element_shape); `keep_dims` makes vectors columns, (*shape, n, 1)."""
        copy = super().to_numpy(dtype)
        return copy[..., None] if keep_dims and self.ndim == 1 else copy

    def to_torch(self, device: Any = None, keep_dims: bool = False) -> Any:
        """As `to_numpy`, as a tensor on `device`. ImportError where torch is not installed."""
        return torch_tensor(self.to_numpy(keep_dims=keep_dims), device)

    def __getitem__(self, key: Any) -> Matrix:
        return Matrix.of_element(self.array[self._components_at(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        values = element_values(
            value, self.dtype.numpy, self.element_shape, self.label, is_exact=True
        )
        self.array[self._components_at(key)] = values

    def _components_at(self, key: Any) -> tuple[Any, ...]:
        """All components of the element."""
        return (..., *self.index(key))


# What programs ask of a field of structs; a member of such a name is had by `get_member_field`.
_OF_FIELDS = frozenset(
    (
        *("members", "leaves", "keys", "get_member_field", "shape", "parent", "snode", "grad"),
        *("fill", "copy_from", "to_numpy", "from_numpy", "to_torch", "from_torch"),
    )
)


class StructField(AbstractField):
    """A field of structs: a field for each member, `f.position` and so on."""

    def __init__(self, kind: StructType, members: dict[str, AbstractField], name: str) -> None:
        super().__init__(name)
        self.kind = kind
        self.members = members

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        return tuple(leaf for member in self.members.values() for leaf in member.leaves())

    @property
    def keys(self) -> list[str]:
        return list(self.members)

    def get_member_field(self, key: str) -> AbstractField:
        """The field of one member."""
        if key not in self.members:
            fail(f"{self.label} has no member {key!r}: it has {', '.join(self.members)}")
        return self.members[key]

    def __getattribute__(self, name: str) -> Any:
        """The field of a member; its name may be that of what only we ask for."""
        if name not in _OF_FIELDS and not name.startswith("_"):
            members = object.__getattribute__(self, "__dict__").get("members", {})
            if name in members:
                return members[name]
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a field of structs has no member {name!r}")

    def fill(self, value: Any) -> None:
        values = _given_members(value)
        for name, member in self.members.items():
            member.fill(value if values is None else values[name])

    def copy_from(self, other: Any) -> None:
        if not isinstance(other, StructField) or other.keys != self.keys:
            fail(
                f"{self.label}.copy_from takes a field of structs with the members {', '.join(self.keys)}"
            )
        for name, member in self.members.items():
            member.copy_from(other.members[name])

    def to_numpy(self) -> dict[str, Any]:
        """Copies of the members, by name."""
        return {name: member.to_numpy() for name, member in self.members.items()}

    def from_numpy(self, arr: Mapping[str, Any]) -> None:
        """Takes the members' elements from arrays, by name."""
        for name, array in arr.items():
            self.get_member_field(name).from_numpy(array)

    def to_torch(self, device: Any = None) -> dict[str, Any]:
        """As `to_numpy`, as tensors on `device`."""
        return {name: member.to_torch(device) for name, member in self.members.items()}

    def from_torch(self, arr: Mapping[str, Any]) -> None:
        """As `from_numpy`, of tensors."""
        for name, tensor in arr.items():
            self.get_member_field(name).from_torch(tensor)

    def __getitem__(self, key: Any) -> Struct:
        self.leaves()[0].index(key)
        return Struct.of_element(type_of(self), _Element(self.members, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        values = _given_members(value)
        if values is None:
            fail(
                f"{self.label} takes a struct with the members {', '.join(self.keys)}, not {value!r}"
            )
        for name in self.members:
            if name not in values:
                fail(f"{self.label} takes a struct with a member {name}, which {value!r} has not")
            self.members[name][key] = values[name]

    def __str__(self) -> str:
        return str(self.to_numpy())


class _Element:
    """The members of one element of a field of structs: reading and writing them reads and writes the field."""

    def __init__(self, members: dict[str, AbstractField], key: Any) -> None:
        self._members = members
        self._key = key

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> Any:
        return self._members[name][self._key]

    def __setitem__(self, name: str, value: Any) -> None:
        self._members[name][self._key] = value


# --- making them ------------------------------------------------------------------------------------------------------


def field(dtype: Any, shape: Any = None, **options: Any) -> Any:
    """A field of numbers of type `dtype`; of `ks.types.vector(...)`, `matrix` or `struct` a field of these.

    Without `shape` it gets one from `ks.root.dense(...).place(...)`. `name` is for messages, `offset` the least index along each
    axis, `order` the order of the axes in memory ("ij"), which fields take and do not need.
    """
    if isinstance(dtype, (MatrixType, StructType)):
        return dtype.field(shape=shape, **options)
    made = ScalarField(element_dtype(dtype), _name(options))
    return _placed(made, shape, options)


def matrix_field(
    element_shape: tuple[int, ...], dtype: Any, shape: Any = None, **options: Any
) -> MatrixField:
    """A field of vectors or matrices; `dtype` may be a (nested) list of one type, as Taichi takes it."""
    extents = extents_of(element_shape, "a field of vectors or matrices")
    made = MatrixField(_one_dtype(dtype), extents, _name(options))
    _placed(made, shape, options)
    return made


def struct_field(kind: StructType, shape: Any = None, **options: Any) -> StructField:
    """A field of structs."""
    made = _struct(kind, _name(options))
    _placed(made, shape, options)
    return made


def _struct(kind: StructType, name: str) -> StructField:
    made = StructField(kind, {}, name)
    prefix = made.name
    for key, member in kind.members.items():
        inner = f"{prefix}_{key}" if prefix else key
        if isinstance(member, StructType):
            made.members[key] = _struct(member, inner)
        elif isinstance(member, MatrixType):
            made.members[key] = MatrixField(member.dtype, member.shape, inner)
        else:
            made.members[key] = ScalarField(element_dtype(member), inner)
    return made


def _one_dtype(dtype: Any) -> DType:
    if not isinstance(dtype, (list, tuple)):
        return element_dtype(dtype)
    found = {_one_dtype(d) for d in dtype}
    if len(found) != 1:
        fail("the components of a field of vectors or matrices have one type")
    return found.pop()


def _name(options: dict[str, Any]) -> str:
    """The name among the options; LanguageError for options that fields have not."""
    for asked in ("needs_grad", "needs_dual"):
        if options.get(asked):
            fail(f"{asked}=True: autodiff is not there yet, make the field without it")
    unknown = options.keys() - {
        "order",
        "name",
        "offset",
        "needs_grad",
        "needs_dual",
        "layout",
        "ndim",
    }
    if unknown:
        fail(f"a field has no option {', '.join(sorted(unknown))}")
    if not isinstance(options.get("layout", Layout.AOS), Layout):
        fail("the layout of a field is ks.Layout.AOS or ks.Layout.SOA")
    return str(options.get("name", ""))


def _placed(made: AbstractField, shape: Any, options: dict[str, Any]) -> AbstractField:
    """The field in the program, placed where it is given a shape."""
    program = needed_program("a field")
    program.fields.append(made)
    order, offset = options.get("order"), options.get("offset")
    if shape is None:
        for name, given in (("order", order), ("offset", offset)):
            if given is not None:
                fail(f"a field with {name}= needs a shape=")
        return made
    extents = extents_of(shape, "a field")
    if offset is not None:
        offset_of(offset, extents)
    node = program.root
    for axes in _axes(order, len(extents)):
        node = node.dense(axes, tuple(extents[a] for a in axes))
    node.place(made, offset=offset)
    return made


def _axes(order: Any, n: int) -> Sequence[tuple[int, ...]]:
    """The axes of the dense nodes above a field, of all axes together where there is no order."""
    if order is None:
        return (tuple(range(n)),)
    if not isinstance(order, str) or sorted(order) != list("ijkl"[: len(order)]) or len(order) != n:
        fail(f"the order {order!r} does not name each of the {n} axes once, with i first")
    return tuple(("ijkl".index(c),) for c in order)


def torch_tensor(array: NDArray[Any], device: Any) -> Any:
    """An array as a tensor; LanguageError where torch is not installed."""
    try:
        import torch
    except ImportError:
        raise LanguageError("to_torch needs torch: pip install torch", caller()) from None
    return torch.from_numpy(array).to(device)


def indices(key: Any) -> Sequence[Any]:
    if key is None:
        return ()
    if isinstance(key, (tuple, list, Matrix)):
        return tuple(key)
    return (key,)


def _given_members(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Struct):
        return members_of(value)
    return value if isinstance(value, Mapping) else None
