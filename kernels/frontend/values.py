"""Values of the frontend: the meaning of names and expressions in a kernel.

A number is `Typed`. An assignable value is a *place*: a local, or an element of an array. Vectors, matrices and structs are trees
whose leaves are numbers or places. So `v.xy = ...`, `x[i].pos[1] += ...` and a whole assignment are one rule (`lvalues.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..fields.bit_codec import WordLayout
from ..fields.quantised_types import QuantType
from ..ir.kernel import ArrayParam, DType, Expr, Load, Local, LocalElement
from ..ir.simplify import compare, const, select
from .bit_expressions import codec_of
from .layout import ViewLayout


@dataclass(frozen=True)
class Typed:
    """Number in a kernel, given by an expression of the IR.

    `weak`: a literal, whose type counts only if no other operand has a type.
    """

    expr: Expr
    weak: bool = False

    @property
    def dtype(self) -> DType:
        return self.expr.dtype


@dataclass(frozen=True)
class LocalVar:
    """Local of the IR. `weak`: only literals have been assigned to it so far, so its type is open."""

    name: str
    dtype: DType
    weak: bool = False

    @property
    def loaded(self) -> Typed:
        return Typed(Local(self.name, self.dtype), weak=self.weak)


@dataclass(frozen=True)
class Packed:
    """Numbers of a quantised type in words, each the `member` of its word.

    Where a word has several elements, `shape` and `parts` are as `Words` has them (kernels/fields/quantised.py); of one element the
    bits then begin `at`, and at `read_at` where it is read.
    """

    layout: WordLayout
    member: int
    shape: tuple[int, ...] = ()
    parts: tuple[tuple[int, int, int], ...] = ()
    at: Expr | None = None
    read_at: Expr | None = None

    @property
    def kind(self) -> QuantType:
        return self.layout.members[self.member].kind


@dataclass(frozen=True)
class Element:
    """Element of an array; `indices` include those of components. `is_truth`: the stored byte is a truth value.

    `nearest`: indices that are read instead if `indices` may lie outside of the array; () otherwise.
    """

    array: ArrayParam
    indices: tuple[Expr, ...]
    fixed: str = ""  # why it cannot be written: "the argument a, which ..."; "" where it can
    is_truth: bool = False
    nearest: tuple[Expr, ...] = ()
    packed: Packed | None = None  # the part of the word that it is

    @property
    def dtype(self) -> DType:
        if self.packed is not None:
            return self.packed.kind.compute
        return DType.bool_ if self.is_truth else self.array.dtype

    @property
    def loaded(self) -> Typed:
        found = Typed(Load(self.array.name, self.nearest or self.indices, self.array.dtype))
        if self.packed is not None:
            codec = codec_of(self.packed.layout)
            return Typed(codec.load(found.expr, self.packed.member, self.packed.read_at))
        return Typed(compare("ne", found.expr, const(0, found.dtype))) if self.is_truth else found


@dataclass(frozen=True)
class OneOf:
    """Component of a local vector that is chosen at run time: the local `options[index]`."""

    options: tuple[LocalVar, ...]
    index: Expr

    @property
    def dtype(self) -> DType:
        return self.options[0].dtype


@dataclass(frozen=True)
class LocalRef:
    """Local array of a kernel. `is_shared`: created outside of the parallel loops, so their iterations share it."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_shared: bool
    source: None = None


@dataclass(frozen=True)
class LocalItem:
    """Element of a local array; `index` numbers all elements row by row."""

    array: LocalRef
    index: Expr

    @property
    def dtype(self) -> DType:
        return self.array.dtype

    @property
    def loaded(self) -> Typed:
        return Typed(LocalElement(self.array.name, self.index, self.array.dtype))


Place = LocalVar | Element | LocalItem | OneOf


@dataclass(frozen=True)
class MatrixValue:
    """Vector, shape (n,), or matrix, shape (n, m): its components row by row, numbers or places.

    `whole`: if it is an element of an array, that array, the indices where it is written, and those where it is read. Its
    components may then be indexed at run time.
    """

    shape: tuple[int, ...]
    items: tuple[Typed | Place, ...]
    whole: tuple[ArrayRef, tuple[Expr, ...], tuple[Expr, ...]] | None = None

    def rows(self) -> tuple[tuple[Typed | Place, ...], ...]:
        """The components of a matrix by rows; a vector is a matrix of one column."""
        width = self.shape[1] if len(self.shape) == 2 else 1
        return tuple(self.items[k : k + width] for k in range(0, len(self.items), width))


@dataclass(frozen=True)
class StructValue:
    """Struct: its members by name. `kind`: the program's struct type, which defines the methods."""

    members: tuple[tuple[str, Value], ...]
    kind: Any = None

    def member(self, name: str) -> Value | None:
        return dict(self.members).get(name)


@dataclass(frozen=True)
class ArrayRef:
    """Array in a kernel: an argument or a field; its elements are numbers, vectors or matrices.

    `element`: shape of a vector or matrix element. Its components are the first axes of the array in memory, or the last
    (`is_trailing`).
    `component`: the elements are only this component of vectors or matrices.
    `is_single`: no dimensions, one element. `offset`: least index along each axis.
    `source`: the field of the program, None for arguments.
    `layout`: for a view, its layout in the array `param`; `argument` is then the name of the argument.
    `is_truth`: bytes are truth values. `clamps`: an index outside of the array means its nearest element.
    """

    param: ArrayParam
    element: tuple[int, ...] = ()
    is_trailing: bool = False
    is_single: bool = False
    component: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    source: Any = None
    layout: ViewLayout | None = None
    argument: str = ""
    is_truth: bool = False
    clamps: bool = False
    packed: Packed | None = None  # of a quantised type: elements are parts of its words

    @property
    def name(self) -> str:
        """The name of the array in the program."""
        return self.argument or self.param.name

    @property
    def dtype(self) -> DType:
        if self.packed is not None:
            return self.packed.kind.compute
        return DType.bool_ if self.is_truth else self.param.dtype

    def element_at(self, indices: tuple[Expr, ...]) -> Element:
        """Returns the place of one number, by its indices in the array, those of components included."""
        if self.layout is None:
            return Element(self.param, indices, is_truth=self.is_truth)
        fixed = self.layout.fixed and f"the argument {self.argument}, {self.layout.fixed}"
        return Element(self.param, self.layout.place(indices), fixed, self.is_truth)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the indices that a program writes, without those of components."""
        n = len(self.element) + len(self.component)
        if self.packed is not None and self.packed.parts:
            return self.packed.shape
        if self.is_single:
            return ()
        whole = self.param.shape if self.layout is None else self.layout.shape
        if not n:
            return whole
        return whole[:-n] if self.is_trailing else whole[n:]


@dataclass(frozen=True)
class StructArray:
    """Array of structs: one array for each member, all of the same shape.

    Where `kind` is a type of vectors or matrices, the members are arrays of the components.
    """

    members: tuple[tuple[str, ArrayRef | StructArray], ...]
    kind: Any = None
    source: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.members[0][1].shape


@dataclass(frozen=True)
class Triplets:
    """Builder of a sparse matrix: the number of its triplets in an array of one element, and their rows, columns and values."""

    count: ArrayRef
    rows: ArrayRef
    columns: ArrayRef
    values: ArrayRef


@dataclass(frozen=True)
class ListOf:
    """List of cells in one container of a dynamic node: a field indexed with all indices but the last."""

    base: ArrayRef | StructArray
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class TupleValue:
    items: tuple[Value, ...]


DICT_METHODS = ("keys", "values", "items")


@dataclass(frozen=True)
class DictValue:
    """Dict in a kernel; its keys are compile-time constants."""

    entries: tuple[tuple[object, Value], ...]


@dataclass(frozen=True)
class Static:
    """Any other Python object in a kernel: a module, a function, a type."""

    python: object


@dataclass(frozen=True)
class Method:
    """Method of a value that is not called yet, such as `v.norm` or `ray.at`."""

    owner: Value
    name: str


@dataclass(frozen=True)
class MethodOfClass:
    """Method named by the class of vectors and matrices, as in `ks.Vector.norm(v)`."""

    name: str


Value = (
    Typed
    | LocalVar
    | Element
    | LocalItem
    | OneOf
    | LocalRef
    | MatrixValue
    | StructValue
    | ArrayRef
    | StructArray
    | Triplets
    | ListOf
    | TupleValue
    | DictValue
    | Static
    | Method
)


def leaves(x: Value) -> Iterator[Typed | Place]:
    """Yields the numbers and places of a vector, struct or tuple, in order; nothing for arrays and objects."""
    match x:
        case Typed() | LocalVar() | Element() | LocalItem() | OneOf():
            yield x
        case MatrixValue(items=items):
            yield from items
        case StructValue(members=members):
            for _, member in members:
                yield from leaves(member)
        case TupleValue(items=parts):
            for part in parts:
                yield from leaves(part)


def rebuilt(x: Value, leaf: Callable[[Typed | Place], Typed | Place]) -> Value:
    """Returns a value of the same structure, with `leaf` applied to each number or place."""
    match x:
        case Typed() | LocalVar() | Element() | LocalItem() | OneOf():
            return leaf(x)
        case MatrixValue(shape, items):
            return MatrixValue(shape, tuple(leaf(i) for i in items))
        case StructValue(members, kind):
            return StructValue(tuple((n, rebuilt(m, leaf)) for n, m in members), kind)
        case TupleValue(items=parts):
            return TupleValue(tuple(rebuilt(p, leaf) for p in parts))
    return x


def loaded(x: Value) -> Value:
    """Returns a value in which each place (local, element) is replaced by its contents."""
    return rebuilt(x, loaded_leaf)


def loaded_leaf(x: Typed | Place) -> Typed:
    match x:
        case Typed():
            return x
        case OneOf(options, index):
            return Typed(chosen([o.loaded.expr for o in options], index, select))
    return x.loaded


_CHAIN = 16  # components of which a chain of comparisons chooses one


_T = TypeVar("_T")


def chosen(
    items: Sequence[_T], index: Expr, either: Callable[[Expr, _T, _T], _T], first: int = 0
) -> _T:
    """Returns the item at an index of the run; `either(condition, a, b)` joins two items.

    Many items are a balanced tree of chains, so that expressions are not nested deeply. `first`: the index of the first item.
    """
    if len(items) > _CHAIN:
        half = len(items) // 2
        below = compare("lt", index, const(first + half, index.dtype))
        low = chosen(items[:half], index, either, first)
        return either(below, low, chosen(items[half:], index, either, first + half))
    result = items[-1]
    for k in range(len(items) - 2, -1, -1):
        here = compare("eq", index, const(first + k, index.dtype))
        result = either(here, items[k], result)
    return result


def is_data(x: Value) -> bool:
    """True if a value consists of numbers alone, so that locals can store it."""
    match x:
        case Typed() | LocalVar() | Element() | LocalItem() | OneOf() | MatrixValue():
            return True
        case StructValue(members=members):
            return all(is_data(m) for _, m in members)
        case TupleValue(items=items):
            return all(is_data(i) for i in items)
    return False
