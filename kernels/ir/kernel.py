"""Intermediate representation of a kernel after template instantiation: its grammar as frozen dataclasses.

Shapes are part of the template signature, so array extents and nearly all loop ranges are constants here. Loops always start at 0
and step by 1: the frontend folds other starts and steps into the index expressions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .structure import StructureTree


class DType(Enum):
    """Scalar type: its name is the name in the language, its value the NumPy name."""

    f32 = "float32"
    f64 = "float64"
    i32 = "int32"
    i64 = "int64"
    bool_ = "bool"
    f16 = "float16"
    i8 = "int8"
    i16 = "int16"
    u8 = "uint8"
    u16 = "uint16"
    u32 = "uint32"
    u64 = "uint64"

    # Used very often, for a dozen members: cached.
    @cached_property
    def numpy(self) -> np.dtype[np.generic]:
        return np.dtype(self.value)

    @cached_property
    def size_bytes(self) -> int:
        return self.numpy.itemsize

    @cached_property
    def is_float(self) -> bool:
        return self in (DType.f16, DType.f32, DType.f64)

    @cached_property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.bool_

    def to_string(self) -> str:
        """The name of the type in the language."""
        return "u1" if self is DType.bool_ else self.name

    __str__ = to_string

    @property
    def is_signed(self) -> bool:
        """True if the type has negative values."""
        return self.is_float or self.value.startswith("int")

    @property
    def stored(self) -> DType:
        """The element type of arrays that store values of this type: a byte for a truth value."""
        return DType.u8 if self is DType.bool_ else self

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        n_bits = 8 * self.size_bytes
        return (
            (-(1 << n_bits - 1), (1 << n_bits - 1) - 1)
            if self.is_signed
            else (0, (1 << n_bits) - 1)
        )

    @cached_property
    def is_index(self) -> bool:
        """True if index arithmetic in the type does not overflow.

        Other types wrap around, and are analysed no further.
        """
        return self in (DType.i32, DType.i64)

    def holds(self, value: float) -> bool:
        """True if an integer type can represent the integer part of this value."""
        least, most = self.range
        return (isinstance(value, int) or math.isfinite(value)) and least <= int(value) <= most

    def wrapped(self, value: int) -> int:
        """Returns the value of an integer type that is equal to `value` modulo the number of the type's values."""
        least, most = self.range
        return (value - least) % (most - least + 1) + least

    def __call__(self, x: Any) -> Any:
        """`f32(x)` outside a kernel: `x` converted, as a NumPy scalar or array of this type."""
        return np.asarray(x).astype(self.numpy)[()]


@dataclass(frozen=True)
class Location:
    """Position in the user's source, for error messages."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NOWHERE = Location("", 0)

UnaryOp = str  # a row of kernels/ir/ops.py with one operand
BinaryOp = Literal[
    "add", "sub", "mul", "div", "floordiv", "mod", "floor_mod", "raw_div", "raw_mod", "min", "max", "and", "or",
    "bit_and", "bit_or", "bit_xor", "shl", "shr", "bit_shr", "pow", "atan2", "hypot",
]  # fmt: skip
CompareOp = Literal["lt", "le", "gt", "ge", "eq", "ne"]
ReduceOp = Literal["add", "mul", "min", "max", "bit_and", "bit_or", "bit_xor"]


# --- expressions: every node has its dtype ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Const:
    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        """Equality of constants that are interchangeable: 0.0 and -0.0 are not."""
        if not isinstance(other, Const) or self.dtype is not other.dtype:
            return False
        if self.value != other.value:
            return self.value is other.value  # no number
        return self.value != 0 or not self.dtype.is_float or str(self.value) == str(other.value)


@dataclass(frozen=True)
class LoopIndex:
    """The value of a loop's index, 0 <= index < extent."""

    loop: str
    dtype: DType = DType.i64


@dataclass(frozen=True)
class Param:
    """A scalar argument, known only at run time."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Local:
    """The current value of a local variable of the kernel."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class LocalElement:
    """An element of a local array."""

    name: str
    index: Expr
    dtype: DType


@dataclass(frozen=True)
class Load:
    array: str
    indices: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True)
class Unary:
    """`op x`; the node has the dtype of `x`, except for operations with a result type of their own (`Op.gives`)."""

    op: UnaryOp
    x: Expr
    dtype: DType


@dataclass(frozen=True)
class Binary:
    """`a op b`; both operands already have the node's dtype.

    `floordiv` and `mod` round towards minus infinity, as in Python. Integers wrap around.
    """

    op: BinaryOp
    a: Expr
    b: Expr
    dtype: DType


@dataclass(frozen=True)
class Compare:
    """`a op b`, both operands of one dtype."""

    op: CompareOp
    a: Expr
    b: Expr
    dtype: DType = DType.bool_


@dataclass(frozen=True)
class Select:
    """`a if condition else b`; both sides may be evaluated, so neither may fault."""

    condition: Expr
    a: Expr
    b: Expr
    dtype: DType


@dataclass(frozen=True)
class Cast:
    """Conversion of `x` to another type: floats are truncated, integers wrap around.

    A float outside of the integer type's range gives any number.
    """

    x: Expr
    dtype: DType


@dataclass(frozen=True)
class Bitcast:
    """Reinterpretation of the bits of `x` as a value of another type of the same size in bytes."""

    x: Expr
    dtype: DType


@dataclass(frozen=True)
class IsActive:
    """True if the cell of a tree's node at `indices`, one for each axis of the node, is active.

    Cells outside of the node are inactive.
    """

    tree: str
    node: int
    indices: tuple[Expr, ...]
    dtype: DType = DType.bool_


@dataclass(frozen=True)
class Length:
    """Number of cells of a dynamic node in one container, the one at `indices` of the node's parent."""

    tree: str
    node: int
    indices: tuple[Expr, ...]
    dtype: DType = DType.i32


@dataclass(frozen=True)
class Item:
    """Item of a cell: its position along the last axis of the arrays of the node's fields.

    The cell is that of a tree's node at `indices`. An inactive cell below a pointer, hash or dynamic node has an item of zeros.
    A cell outside of the node has any existing item.
    """

    tree: str
    node: int
    indices: tuple[Expr, ...]
    dtype: DType = DType.i64


@dataclass(frozen=True)
class Accumulator:
    """The finished value of a task's reduction; appears only in `Task.finish` (kernels/ir/task.py)."""

    dtype: DType


Expr = (
    Const
    | LoopIndex
    | Param
    | Local
    | LocalElement
    | Load
    | Unary
    | Binary
    | Compare
    | Select
    | Cast
    | Bitcast
    | IsActive
    | Length
    | Item
    | Accumulator
)


# --- statements --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AbstractStatement:
    """Base of statements.

    `uid`: identity within a kernel or body, given by `identified` and kept by `replace`; 0 without one.
    """

    uid: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class For(AbstractStatement):
    """`for loop in range(extent)`; the outermost loops of a kernel are parallel, the others sequential.

    The extent is evaluated once, before the loop begins; below 0 counts as 0.
    """

    loop: str
    extent: Expr  # Const, but for ranges that depend on arguments, on outer indices or on data
    body: tuple[Stmt, ...]
    where: Location


@dataclass(frozen=True)
class SetLocal(AbstractStatement):
    name: str
    value: Expr
    where: Location


@dataclass(frozen=True)
class UpdateLocal(AbstractStatement):
    """`name op= value`."""

    name: str
    op: ReduceOp
    value: Expr
    where: Location


@dataclass(frozen=True)
class LocalArray(AbstractStatement):
    """Declaration of a local array of `extent` elements, each initialised to `value`.

    Indices outside of it are an error of the program.
    """

    name: str
    extent: int
    value: Expr
    where: Location


@dataclass(frozen=True)
class SetElement(AbstractStatement):
    """`name[index] = value`, of a local array."""

    name: str
    index: Expr
    value: Expr
    where: Location


@dataclass(frozen=True)
class Store(AbstractStatement):
    array: str
    indices: tuple[Expr, ...]
    value: Expr
    where: Location


@dataclass(frozen=True)
class Update(AbstractStatement):
    """`array[indices] op= value`: atomic if several iterations update the element; their order is then free.

    `result` is the local that gets the element's old value, of the array's dtype; "" if the old value is not used.
    """

    array: str
    indices: tuple[Expr, ...]
    op: ReduceOp
    value: Expr
    where: Location
    result: str = ""


@dataclass(frozen=True)
class If(AbstractStatement):
    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]
    where: Location


@dataclass(frozen=True)
class While(AbstractStatement):
    """`while condition:`; the condition is evaluated before each iteration.

    Nothing else leaves a block: `break`, `continue` and an early `return` are flags that conditions read.
    """

    condition: Expr
    body: tuple[Stmt, ...]
    where: Location


Part = str | Expr  # of what is printed: a text as it is, or a value


@dataclass(frozen=True)
class Print(AbstractStatement):
    """Prints `parts` one behind the other to standard output, with nothing between or behind them.

    `formats`: for each value of `parts` a conversion of C's printf without its %, "" for the default of its dtype. `()` stands for
    "" for all values.
    """

    parts: tuple[Part, ...]
    where: Location
    formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assert(AbstractStatement):
    """Ends the call with an error if `condition` is false. Only in debug mode.

    The error has the text of `message` and `parts`, formatted as for `Print`.
    """

    condition: Expr
    message: str
    parts: tuple[Part, ...]
    where: Location
    formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForActive(AbstractStatement):
    """Loop over the cells of a tree's node that are active when the loop begins, in any order.

    `loops`: names of the index along each axis of the node.
    """

    tree: str
    node: int
    loops: tuple[str, ...]
    body: tuple[Stmt, ...]
    where: Location


@dataclass(frozen=True)
class Activate(AbstractStatement):
    """Activates the cell of a tree's node at `indices`, and the cells above that contain it.

    Fields of new cells are zero.
    For a dynamic node it activates the cells before it, too. An index outside activates nothing and ends the call with an error.
    """

    tree: str
    node: int
    indices: tuple[Expr, ...]
    where: Location


@dataclass(frozen=True)
class Deactivate(AbstractStatement):
    """Deactivates the cell of a tree's node at `indices` and everything in it, which then reads as zero.

    For a dynamic node it deactivates all cells of the container at these indices of its parent. An inactive cell stays inactive.
    """

    tree: str
    node: int
    indices: tuple[Expr, ...]
    where: Location


@dataclass(frozen=True)
class Append(AbstractStatement):
    """Activates the next cell of a dynamic node, in the container at `indices` of the node's parent.

    The local `result` gets the cell's index (i32). In parallel loops the order of several appends is unspecified.
    """

    tree: str
    node: int
    indices: tuple[Expr, ...]
    result: str
    where: Location


Stmt = (
    For
    | SetLocal
    | UpdateLocal
    | LocalArray
    | SetElement
    | Store
    | Update
    | If
    | While
    | Print
    | Assert
    | ForActive
    | Activate
    | Deactivate
    | Append
)


@dataclass(frozen=True)
class ArrayParam:
    """Array parameter of a kernel, with shape and dtype of its instantiation (C order, contiguous).

    `is_list`: the array is a list of cells: its first row has no number twice.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    is_list: bool = False


@dataclass(frozen=True)
class Placed:
    """Sparse field: an array whose last axes are those of a node of a tree.

    Inactive elements, and elements outside of the node, are 0. A cell is activated just before a store to it.
    A store to an inactive cell has no effect.
    """

    array: str
    tree: str
    node: int


@dataclass(frozen=True)
class KernelIR:
    """Intermediate representation of one instantiated kernel.

    Each outermost `For` of `body` is a parallel range-for.
    A kernel on sparse fields is lowered (kernels/sparse) to one on plain arrays. `independent`: its leaf loops, whose iterations
    are parallel by definition, too. `trusted`: arrays whose indices are in bounds. `shared`: pairs of an array and a number n:
    inactive cells share the first n elements of each row of the array, which are never written.
    """

    name: str
    arrays: tuple[ArrayParam, ...]
    scalars: tuple[Param, ...]
    body: tuple[Stmt, ...]
    where: Location
    fast_math: bool = True  # False: sums keep their order, and products are rounded by themselves
    trees: tuple[StructureTree, ...] = ()
    placed: tuple[Placed, ...] = ()
    independent: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    shared: tuple[tuple[str, int], ...] = ()
