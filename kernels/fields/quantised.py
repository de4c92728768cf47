"""Fields of quantised types. Their numbers are parts of words, and the words are an ordinary field of the tree.

Several fields share the words of `BitpackedFields`, each with bits of its own. One field has the words of a `QuantArray`, each with
several elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from ..ir.errors import (
    KernelSyntaxError,
    ProgramBoundsError,
    ProgramIndexError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
)
from ..ir.kernel import DType
from .bit_codec import Codec, Member, NumpyAlgebra, WordLayout
from .caller_location import fail
from .conversion import element_values, number
from .element_fields import ScalarField
from .factories import make_fields_by
from .field import AbstractField, AbstractLeaf, DerivativeKind, indices, torch_tensor
from .matrix import Matrix
from .quantised_types import QuantFixed, QuantFloat, QuantInt, QuantType, quant
from .tree import SNode, make_quant_arrays

__all__ = ["BitpackedFields", "QuantArray", "QuantField", "QuantMatrixField", "quant"]

_WORDS: Final = {8: DType.u8, 16: DType.u16, 32: DType.u32, 64: DType.u64}


def _word_type(max_num_bits: Any, what: str) -> DType:
    if max_num_bits not in _WORDS:
        fail(f"{what} has words of 8, 16, 32 or 64 bits, not {max_num_bits!r}", ProgramValueError)
    return _WORDS[max_num_bits]


class Words:
    """Field of words, and the numbers in each.

    `split`: the extents of the elements of a word, by axis; () if it has one.
    """

    def __init__(self, dtype: DType, name: str) -> None:
        self.field = ScalarField(dtype, name)
        self.layout = WordLayout(dtype, ())
        self.split: tuple[tuple[int, int], ...] = ()
        self.axes: tuple[int, ...] = ()  # of the elements

    @property
    def codec(self) -> Codec:
        return Codec(self.layout, NumpyAlgebra())

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the elements."""
        shape = self.field.shape
        if not self.split:
            return shape
        extents = dict(zip(self._field_axes, shape, strict=True))
        parts = dict(self.split)
        return tuple(extents.get(a, 1) * parts.get(a, 1) for a in self.axes)

    @property
    def _field_axes(self) -> tuple[int, ...]:
        """The axes of the words."""
        node = self.field.snode.parent()
        found: set[int] = set()
        while node is not None:
            found.update(node.axes)
            node = node.parent()
        return tuple(sorted(found))

    def parts(self) -> tuple[tuple[int, int, int], ...]:
        """For each axis of the elements the axis of the words, -1 if they have none, the elements of a word along it, and how many
        elements of a word lie between two of them.
        """
        of_words = self._field_axes
        steps, step = {}, 1
        for axis, extent in reversed(self.split):
            steps[axis] = step
            step *= extent
        extents = dict(self.split)
        return tuple(
            (of_words.index(a) if a in of_words else -1, extents.get(a, 1), steps.get(a, 0))
            for a in self.axes
        )

    def place(self, at: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The index of the word of an element, and its number in the word."""
        if not self.split:
            return tuple(at), 0
        word, inside = [0] * len(self._field_axes), 0
        for i, (axis, extent, step) in zip(at, self.parts(), strict=True):
            if axis >= 0:
                word[axis] = i // extent
            inside += i % extent * step
        return tuple(word), inside


class AbstractQuantField(AbstractField):
    """Field of a quantised type, of numbers or of matrices: conversions by way of NumPy, and no derivatives."""

    kind: QuantType

    @property
    def dtype(self) -> QuantType:
        return self.kind

    def derivative(self, kind: DerivativeKind) -> NoReturn:
        fail(f"{self.label} has no {kind}: its type is quantised", ProgramTypeError)

    def copy_from(self, other: Any) -> None:
        if not isinstance(other, AbstractField):
            fail(f"{self.label} copies from a field, not from {type(other).__name__}")
        self.from_numpy(other.to_numpy())

    def to_torch(self, device: Any = None) -> Any:
        return torch_tensor(self.to_numpy(), device)

    def from_torch(self, arr: Any) -> None:
        self.from_numpy(arr.detach().cpu().numpy())


@final
class QuantField(AbstractQuantField):
    """Field of numbers of a quantised type."""

    def __init__(self, kind: QuantType, name: str) -> None:
        super().__init__(name)
        self.kind = kind
        self.words: Words | None = None
        self.member = 0

    def packed(self) -> Words:
        """Its words; LanguageError if it has none yet."""
        if self.words is None:
            fail(
                f"{self.label} has the quantised type {self.kind}: place it in a ks.BitpackedFields, or below a quant_array node",
                ProgramRuntimeError,
            )
        return self.words

    def pack(self, words: Words, member: int) -> None:
        if self.words is not None:
            fail(f"{self.label} has been placed already", ProgramRuntimeError)
        self.words, self.member = words, member

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        return () if self.words is None else (self.words.field,)

    @property
    def snode(self) -> SNode:
        return self.packed().field.snode

    @property
    def offset(self) -> tuple[int, ...]:
        return self.packed().field.offset

    @property
    def shape(self) -> tuple[int, ...]:
        return self.packed().shape

    def _place(self, key: Any) -> tuple[Any, Any]:
        """The index of the word of an element, and where its bits begin: None if the layout says that."""
        words = self.packed()
        if not words.split:
            return key, None
        given = indices(key)
        if len(given) != len(words.shape):
            fail(
                f"{self.label} takes {len(words.shape)} indices, not {len(given)}",
                ProgramBoundsError,
            )
        for i, extent in zip(given, words.shape, strict=True):
            if not isinstance(i, int | np.integer) or not 0 <= i < extent:
                fail(
                    f"{self.label} of shape {words.shape} has no element {key}", ProgramBoundsError
                )
        word, inside = words.place(given)
        return word or None, words.layout.wide.numpy.type(inside * self.kind.bits)

    def __getitem__(self, key: Any) -> int | float:
        words = self.packed()
        word, at = self._place(key)
        held = words.layout.dtype.numpy.type(words.field[word])
        found: int | float = words.codec.load(held, self.member, at).item()
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        words = self.packed()
        word, at = self._place(key)
        compute = self.kind.compute
        held = words.layout.dtype.numpy.type(words.field[word])
        given = compute.numpy.type(number(value, compute, self.label))
        words.field[word] = words.codec.store(held, {self.member: given}, at).item()

    def to_numpy(self, dtype: Any = None) -> NDArray[Any]:
        """A copy of its elements, in their compute type."""
        words = self.packed()
        held = words.field.to_numpy()
        if not words.split:
            found: NDArray[Any] = words.codec.load(held, self.member)
        else:
            found = np.empty(words.shape, self.kind.compute.numpy)
            for at, inside in self._slices():
                found[at] = words.codec.load(self._spread(held), self.member, inside)
        return found if dtype is None else found.astype(dtype)

    def _slices(self) -> list[tuple[tuple[slice, ...], Any]]:
        """For each element of a word: the elements at its place in all words, and where its bits begin."""
        words = self.packed()
        extents = [extent for _, extent, _ in words.parts()]
        steps = [step for _, _, step in words.parts()]
        wide = words.layout.wide.numpy.type
        return [
            (
                tuple(slice(k, None, extent) for k, extent in zip(at, extents, strict=True)),
                wide(sum(k * s for k, s in zip(at, steps, strict=True)) * self.kind.bits),
            )
            for at in np.ndindex(*extents)
        ]

    def _spread(self, held: NDArray[Any]) -> NDArray[Any]:
        """The words with an axis for each axis of the elements."""
        words = self.packed()
        shape = [held.shape[axis] if axis >= 0 else 1 for axis, _, _ in words.parts()]
        return held.reshape(shape)

    def from_numpy(self, arr: Any) -> None:
        words, compute = self.packed(), self.kind.compute
        if not isinstance(arr, np.ndarray) or arr.dtype.kind not in "biuf":
            fail(f"{self.label} takes an array of numbers", ProgramTypeError)
        if arr.shape != self.shape:
            fail(f"{self.label} has the shape {self.shape}, not {arr.shape}", ProgramValueError)
        with np.errstate(all="ignore"):
            given = arr.astype(compute.numpy)
        held = words.field.to_numpy()
        if not words.split:
            held = words.codec.store(held, {self.member: given})
        else:
            spread = self._spread(held)
            for at, inside in self._slices():
                spread = words.codec.store(spread, {self.member: given[at]}, inside)
            held = spread.reshape(held.shape)
        words.field.from_numpy(np.asarray(held))

    def fill(self, value: Any) -> None:
        self.from_numpy(np.full(self.shape, number(value, self.kind.compute, self.label)))

    def __str__(self) -> str:
        return str(self.to_numpy()) if self.words is not None else repr(self)


@final
class QuantMatrixField(AbstractQuantField):
    """Field of vectors or matrices of quantised types: a field for each component.

    `kinds`: the type of each component. Their compute types are equal, and `kind` is the first. LanguageError for others.
    """

    def __init__(
        self, kinds: dict[tuple[Any, ...], QuantType], element_shape: tuple[int, ...], name: str
    ) -> None:
        super().__init__(name)
        self.kind, self.element_shape = next(iter(kinds.values())), element_shape
        if len({kind.compute for kind in kinds.values()}) > 1:
            fail(f"the components of {self.label} have one compute type", ProgramRuntimeError)
        self.components = {
            at: QuantField(kind, "_".join(map(str, (self.name or "field", *at))))
            for at, kind in kinds.items()
        }

    @property
    def n(self) -> int:
        return self.element_shape[0]

    @property
    def m(self) -> int:
        return self.element_shape[1] if len(self.element_shape) == 2 else 1

    def get_scalar_field(self, *at: int) -> QuantField:
        """The field of one component."""
        if at not in self.components:
            fail(f"{self.label} has no component {at}", ProgramIndexError)
        return self.components[at]

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        return tuple(leaf for x in self.components.values() for leaf in x.leaves())

    @property
    def _first(self) -> QuantField:
        return next(iter(self.components.values()))

    @property
    def snode(self) -> SNode:
        return self._first.snode

    @property
    def offset(self) -> tuple[int, ...]:
        return self._first.offset

    @property
    def shape(self) -> tuple[int, ...]:
        return self._first.shape

    def __getitem__(self, key: Any) -> Matrix:
        wide = np.float64 if self.kind.compute.is_float else np.int64  # as elements of other fields
        found = np.empty(self.element_shape, wide)
        for at, x in self.components.items():
            found[at] = x[key]
        return Matrix(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        given = element_values(
            value, self.kind.compute.numpy, self.element_shape, self.label, is_exact=True
        )
        for at, x in self.components.items():
            x[key] = given[at].item()

    def to_numpy(self, dtype: Any = None) -> NDArray[Any]:
        """A copy of shape (*shape, *element_shape), in the compute type."""
        found = np.empty((*self.shape, *self.element_shape), dtype or self.kind.compute.numpy)
        for at, x in self.components.items():
            found[(..., *at)] = x.to_numpy()
        return found

    def from_numpy(self, arr: Any) -> None:
        whole = (*self.shape, *self.element_shape)
        if not isinstance(arr, np.ndarray) or arr.shape != whole:
            fail(f"{self.label} takes an array of shape {whole}", ProgramValueError)
        for at, x in self.components.items():
            x.from_numpy(arr[(..., *at)])

    def fill(self, value: Any) -> None:
        whole = (*self.shape, *self.element_shape)
        given = value.to_numpy() if isinstance(value, Matrix) else value
        self.from_numpy(np.broadcast_to(np.asarray(given), whole))


def _fields_of(x: Any) -> list[QuantField]:
    """The fields of numbers that a field of a quantised type consists of."""
    if isinstance(x, QuantField):
        return [x]
    if isinstance(x, QuantMatrixField):
        return list(x.components.values())
    return fail(f"only fields of quantised types are packed, not {x!r}", ProgramTypeError)


@final
class BitpackedFields:
    """Fields of quantised types that share words of `max_num_bits` bits, which a node of a tree then places."""

    def __init__(self, max_num_bits: int) -> None:
        self._words = Words(_word_type(max_num_bits, "a BitpackedFields"), "bitpacked")
        self._most, self._n_bits = max_num_bits, 0

    def place(self, *args: Any, shared_exponent: bool = False) -> None:
        """Gives each field bits of the word. With `shared_exponent` they are floats with one exponent."""
        fields = [field for x in args for field in _fields_of(x)]
        if shared_exponent:
            self._check_shared(fields)
        members = self._words.layout.members
        sharing = tuple(range(len(members), len(members) + len(fields))) * shared_exponent
        exponent_at = self._taken(fields[0].kind.exponent) if shared_exponent else -1  # type: ignore[union-attr]
        for field in fields:
            begin = exponent_at
            if isinstance(field.kind, QuantFloat) and not shared_exponent:
                begin = self._taken(field.kind.exponent)
            member = Member(field.kind, self._taken(field.kind.bits), begin, sharing)
            members = (*members, member)
            field.pack(self._words, len(members) - 1)
        self._words.layout = WordLayout(self._words.layout.dtype, members)

    def _taken(self, n: int) -> int:
        """Takes the next `n` bits of the word, and returns the position of their first one."""
        begin, self._n_bits = self._n_bits, self._n_bits + n
        if self._n_bits > self._most:
            fail(
                f"the fields of a BitpackedFields take {self._n_bits} bits, more than its {self._most}",
                ProgramValueError,
            )
        return begin

    def _check_shared(self, fields: Sequence[QuantField]) -> None:
        if len(fields) < 2:
            fail("At least 2 fields need to be placed when shared_exponent=True", KernelSyntaxError)
        kinds = {f.kind.exponent if isinstance(f.kind, QuantFloat) else None for f in fields}
        if len(kinds) > 1 or None in kinds:
            fail(
                "fields with a shared exponent are of floats with as many bits of exponent",
                ProgramTypeError,
            )

    def leaves(self) -> tuple[AbstractLeaf, ...]:
        """The field of words, for the node that places it."""
        if not self._words.layout.members:
            fail("a BitpackedFields without fields is placed", ProgramRuntimeError)
        return (self._words.field,)


@final
class QuantArray:
    """Node whose cells are the elements of a word: `root.quant_array(ks.i, 8, max_num_bits=32).place(x)`."""

    def __init__(
        self, above: SNode, axes: tuple[int, ...], extents: tuple[int, ...], max_num_bits: Any
    ) -> None:
        self._above = above
        self._words = Words(_word_type(max_num_bits, "a quant_array"), "quant_array")
        self._most = max_num_bits
        self._split = tuple(zip(axes, extents, strict=True))

    def place(self, *args: Any, offset: Any = None) -> QuantArray:
        """Places the one field that it has."""
        fields = [field for x in args for field in _fields_of(x)]
        if len(fields) != 1 or self._words.layout.members or offset is not None:
            fail("a quant_array has one field, without offset", ProgramRuntimeError)
        (field,) = fields
        if isinstance(field.kind, QuantFloat):
            fail("a quant_array has integers or fixed-point numbers", ProgramTypeError)
        count = math.prod(extent for _, extent in self._split)
        if count * field.kind.bits > self._most:
            fail(
                f"a quant_array of {count} elements of {field.kind.bits} bits takes more than the {self._most} bits of its word",
                ProgramValueError,
            )
        self._above.place(self._words.field)
        self._words.layout = WordLayout(self._words.layout.dtype, (Member(field.kind, 0),))
        self._words.split = self._split
        node: SNode | None = self._above
        axes = {axis for axis, _ in self._split}
        while node is not None:
            axes.update(node.axes)
            node = node.parent()
        self._words.axes = tuple(sorted(axes))
        field.pack(self._words, 0)
        return self

    def parent(self, n: int = 1) -> SNode | None:
        """The n-th node above."""
        return self._above if n == 1 else self._above.parent(n - 1)


def _field(
    dtype: Any, element_shape: tuple[int, ...], name: str
) -> QuantField | QuantMatrixField | None:
    """A field of a quantised type, or of matrices with a list of a type for each component; None for other types."""
    given = np.empty(element_shape, object)
    try:
        given[...] = dtype
    except ValueError:  # a list of another shape
        return None
    kinds: dict[tuple[Any, ...], Any] = {at: given[at] for at in np.ndindex(*element_shape)}
    if not all(isinstance(kind, QuantInt | QuantFixed | QuantFloat) for kind in kinds.values()):
        return None
    if not element_shape:
        return QuantField(kinds[()], name)
    return QuantMatrixField(kinds, element_shape, name)


make_fields_by(_field)
make_quant_arrays(QuantArray)
