"""Values of the frontend: the meaning of names and expressions in a kernel.

A number is `Typed`. An assignable value is a *place*: a local, or an element of an array. Vectors, matrices and structs are trees
whose leaves are numbers or places. So `v.xy = ...`, `x[i].pos[1] += ...` and a whole assignment are one rule (`lvalues.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..ir.kernel import ArrayParam, DType, Expr, Load, Local, LocalElement
from ..ir.simplify import compare, const, select
from .layout import ViewLayout


@dataclass(frozen=True)
class Typed:
    """Run-time value or constant. `weak` marks literals: their dtype counts only if no other operand has one."""

    expr: Expr
    weak: bool = False

    @property
    def dtype(self) -> DType:
        return self.expr.dtype


@dataclass(frozen=True)
class LocalVar:
    """Local of the IR. `weak` if only literals have been assigned to it and no pass has found its type."""

    name: str
    dtype: DType
    weak: bool = False

    @property
    def loaded(self) -> Typed:
        return Typed(Local(self.name, self.dtype), weak=self.weak)


@dataclass(frozen=True)
class Element:
    """Element of an array, with all its indices, also those of components. `is_truth`: its byte is a truth value.

    Where the indices surely leave the array, `nearest` are those that are read instead.
    """

    array: ArrayParam
    indices: tuple[Expr, ...]
    fixed: str = ""  # why it cannot be written: "the argument a, which ..."; "" where it can
    is_truth: bool = False
    nearest: tuple[Expr, ...] = ()

    @property
    def dtype(self) -> DType:
        return DType.bool_ if self.is_truth else self.array.dtype

    @property
    def loaded(self) -> Typed:
        found = Typed(Load(self.array.name, self.nearest or self.indices, self.array.dtype))
        return Typed(compare("ne", found.expr, const(0, found.dtype))) if self.is_truth else found


@dataclass(frozen=True)
class OneOf:
    """Component of a local vector, chosen at run time: the one of `options` at position `index`."""

    options: tuple[LocalVar, ...]
    index: Expr

    @property
    def dtype(self) -> DType:
        return self.options[0].dtype


@dataclass(frozen=True)
class LocalRef:
    """Local array of the kernel. `is_shared`: it was created outside of the parallel loops."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_shared: bool
    source: None = None


@dataclass(frozen=True)
class LocalItem:
    """Element of a local array; all elements are numbered row by row."""

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
    """Vector (n,) or matrix (n, m): its components row by row, numbers or places.

    `whole` is the array element that it is, if any, and the indices where it is written and read; its components may then be chosen
    at run time.
    """

    shape: tuple[int, ...]
    items: tuple[Typed | Place, ...]
    whole: tuple[ArrayRef, tuple[Expr, ...], tuple[Expr, ...]] | None = None

    def rows(self) -> tuple[tuple[Typed | Place, ...], ...]:
        """The items of a matrix as rows; a vector is a column."""
        width = self.shape[1] if len(self.shape) == 2 else 1
        return tuple(self.items[k : k + width] for k in range(0, len(self.items), width))


@dataclass(frozen=True)
class StructValue:
    """Named members. `kind` is the struct type of the program, which defines the methods."""

    members: tuple[tuple[str, Value], ...]
    kind: Any = None

    def member(self, name: str) -> Value | None:
        return dict(self.members).get(name)


@dataclass(frozen=True)
class ArrayRef:
    """Array: an argument, or a field of the program.

    Elements are numbers, or vectors and matrices of shape `element`. Their components are the first axes of the array, or the last
    (`is_trailing`). With `component` the elements are that component. An array without dimensions (`is_single`) has one element.
    `offset` is the least index along each axis. `source` is the object of the program, None for arguments. A view has a `layout` in
    its memory `param`, and the name of its argument. `is_truth`: its bytes are truth values. `clamps`: an index outside means the
    nearest element.
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

    @property
    def name(self) -> str:
        """The name of the array in the program."""
        return self.argument or self.param.name

    @property
    def dtype(self) -> DType:
        return DType.bool_ if self.is_truth else self.param.dtype

    def element_at(self, indices: tuple[Expr, ...]) -> Element:
        """The place of one number, by the indices of the array and of its component."""
        if self.layout is None:
            return Element(self.param, indices, is_truth=self.is_truth)
        fixed = self.layout.fixed and f"the argument {self.argument}, {self.layout.fixed}"
        return Element(self.param, self.layout.place(indices), fixed, self.is_truth)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the indices that a program writes."""
        n = len(self.element) + len(self.component)
        if self.is_single:
            return ()
        whole = self.param.shape if self.layout is None else self.layout.shape
        if not n:
            return whole
        return whole[:-n] if self.is_trailing else whole[n:]


@dataclass(frozen=True)
class StructArray:
    """Array of structs: an array for each member, all of one shape."""

    members: tuple[tuple[str, ArrayRef | StructArray], ...]
    kind: Any = None
    source: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.members[0][1].shape


@dataclass(frozen=True)
class ListOf:
    """Cells of a dynamic node in one container: a field of them with all indices but the last."""

    base: ArrayRef | StructArray
    indices: tuple[Expr, ...]


@dataclass(frozen=True)
class TupleValue:
    items: tuple[Value, ...]


@dataclass(frozen=True)
class DictValue:
    """Dict of the kernel: its keys are known when the kernel is compiled."""

    entries: tuple[tuple[object, Value], ...]


@dataclass(frozen=True)
class Static:
    """Any other Python object: a module, a function, a type."""

    python: object


@dataclass(frozen=True)
class Method:
    """Method of a value, to be called: `v.norm`, `ray.at`."""

    owner: Value
    name: str


@dataclass(frozen=True)
class MethodOfClass:
    """Method of vectors and matrices that is named by their class, as in `ks.Vector.norm(v)`."""

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
    | ListOf
    | TupleValue
    | DictValue
    | Static
    | Method
)


def leaves(x: Value) -> Iterator[Typed | Place]:
    """The numbers and places of a tree, in order; other values have none."""
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
    """Returns the same tree with other leaves."""
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
    """Returns a value with its places replaced by their contents."""
    return rebuilt(x, loaded_leaf)


def loaded_leaf(x: Typed | Place) -> Typed:
    match x:
        case Typed():
            return x
        case OneOf(options, index):
            result = options[-1].loaded.expr
            for k in range(len(options) - 2, -1, -1):
                here = compare("eq", index, const(k, index.dtype))
                result = select(here, options[k].loaded.expr, result)
            return Typed(result)
    return x.loaded


def is_data(x: Value) -> bool:
    """True if a value consists of numbers alone, so that a local can hold it."""
    match x:
        case Typed() | LocalVar() | Element() | LocalItem() | OneOf() | MatrixValue():
            return True
        case StructValue(members=members):
            return all(is_data(m) for _, m in members)
        case TupleValue(items=items):
            return all(is_data(i) for i in items)
    return False
