"""Python's operations on whole fields (`fill`, `copy_from`, `from_numpy`, `deactivate_all`) as calls, recorded or deferred."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..fields.caller_location import caller
from ..fields.field import AbstractLeaf
from ..fields.host_access import AbstractHostKernels, AbstractRecording
from ..fields.matrix import Matrix
from ..fields.node_cells import deactivate
from ..fields.program import needed_program
from ..fields.tree import NodeTree, PlacedField, SNode
from ..ir.kernel import DType, Location
from .call_cache import SLOW
from .dispatch import Executor, chosen, using
from .errors import LanguageError
from .intrinsics import grouped, template, types
from .kernel import Kernel
from .symbols import SymbolicArray, SymbolicScalar


@dataclass(frozen=True)
class _Write:
    """Write from Python to arrays of the program: the label of the field, the arrays, and the program's line."""

    label: str
    arrays: tuple[NDArray[Any], ...]
    where: Location


class WaitingAccesses(AbstractHostKernels):
    """Python's operations on whole fields in a program with deferred calls.

    Frequently repeated ones become kernels, whose calls are deferred like others.
    """

    def __init__(self) -> None:
        self._n_made: dict[tuple[object, ...], int] = {}
        self._copies: dict[AbstractLeaf, AbstractLeaf] = {}
        self._filling = threading.Lock()

    def fill(self, field: AbstractLeaf, value: Any) -> bool:
        if not self._is_usual("fill", field):
            return False
        return _call(_filling(field), field, _filled(field, value))

    def copy(self, field: AbstractLeaf, other: AbstractLeaf) -> bool:
        if not _is_copied(field, other) or not self._is_usual("copy", field, other):
            return False
        return _call(_copying(), field, other, other if field.cells is not None else field)

    def take(self, field: AbstractLeaf, array: Any) -> bool:
        """Copies the array, which may change before the call runs, to a dense field, from which the kernel takes it.

        A field has one such copy: its second `from_numpy` runs the deferred calls up to the first one. While a thread fills a copy,
        others take their arrays themselves.
        """
        if not self._is_usual("take", field) or not self._filling.acquire(blocking=False):
            return False
        try:
            copy = self._copy_of(field)
            if copy is None:
                return False
            copy.put(field.converted(array))
            return _call(_copying(), field, copy, field)
        finally:
            self._filling.release()

    def deactivate_all(self, node: SNode) -> bool:
        return self._is_usual("deactivate_all", node) and _call(*_emptied(node))

    def _is_usual(self, operation: str, *on: AbstractLeaf | SNode) -> bool:
        """True from the third time on for these fields, outside of `using` blocks.

        Before that, compiling a kernel for the operation would cost more than it saves.
        """
        if chosen() is not None:
            return False
        key = (operation, *map(id, on))
        n = self._n_made[key] = self._n_made.get(key, 0) + 1
        return n > _SELDOM

    def _copy_of(self, field: AbstractLeaf) -> AbstractLeaf | None:
        """Returns the dense field that arrays for `field` are copied to; None if it is too large, or there is no memory for it."""
        found = self._copies.get(field)
        if found is not None:
            return found
        n_elements = prod((*field.shape, *field.element_shape))
        if n_elements * field.dtype.stored.size_bytes > _MOST_BYTES:
            return None
        for gone in [x for x in self._copies if x.is_gone]:
            self._copies.pop(gone).release("the field that it is for is gone")
        made = field.like(f"{field.name or 'field'}_given")
        place = SNode("place", None, NodeTree(is_final=True))
        made.set_place(PlacedField(field.shape, field.offset, place))
        try:
            made.arrays()  # allocates it
        except LanguageError:
            return None
        self._copies[field] = made
        needed_program("a field").fields.append(made)
        return made


_SELDOM = 2  # times
_MOST_BYTES = 64 << 20  # of an array that is copied: the copy stays as long as the program


class RecordedAccesses(AbstractRecording):
    """Python's accesses to fields while `recorder` records a sequence."""

    def __init__(self, recorder: Any) -> None:
        self._recorder = recorder
        self._writes: list[_Write] = []

    @property
    def has_calls(self) -> bool:
        return bool(self._recorder.has_calls)

    def note_write(self, label: str, arrays: Iterable[NDArray[Any]]) -> None:
        self._writes.append(_Write(label, tuple(arrays), caller()))

    def refuse_lost_writes(self, used: Iterable[NDArray[Any]]) -> None:
        """Raises LanguageError if Python has written to an array that kernels of the sequence use."""
        arrays = tuple(used)
        for write in self._writes:
            if any(np.may_share_memory(x, y) for x in write.arrays for y in arrays):
                raise LanguageError(
                    f"a sequence only calls kernels, but Python writes {write.label} before the first call, and a kernel of the "
                    "sequence uses it: no replay would write it again; do that before the sequence, or in a kernel",
                    write.where,
                )

    def fill(self, field: AbstractLeaf, value: Any) -> bool:
        if isinstance(value, SymbolicScalar):
            return not field.element_shape and self._call(_filling(field), field, value)
        return self._call(_filling(field), field, _filled(field, value))

    def copy(self, field: AbstractLeaf, other: AbstractLeaf) -> bool:
        over = other if field.cells is not None else field
        return _is_copied(field, other) and self._call(_copying(), field, other, over)

    def take(self, field: AbstractLeaf, array: Any) -> bool:
        if not isinstance(array, SymbolicArray) or field.element_shape or any(field.offset):
            return False
        if (array.element, array.shape) != (field.dtype, field.shape) or not field.shape:
            return False
        return self._call(_taking(), field, array)

    def deactivate_all(self, node: SNode) -> bool:
        return self._call(*_emptied(node))

    def _call(self, kernel: Kernel, *args: Any) -> bool:
        """Records a call of a kernel; False, without recording, if the enclosing block has another executor."""
        executor: Executor | None = chosen()
        while executor is not None and executor is not self._recorder:
            executor = executor.behind
        around = chosen()
        if executor is None or around is None:
            return False
        with using(around.underived()):  # what Python does has no derivative
            return _call(kernel, *args)


def _call(kernel: Kernel, *args: Any) -> bool:
    if kernel.quick.call(args) is SLOW:
        kernel.call_from(caller(), args, {})
    return True


def _emptied(node: SNode) -> tuple[Any, ...]:
    """Returns the kernel that makes all cells of a node inactive, and its arguments."""
    owner = node.parent() if node.has is not None and node.has.length else node
    if owner is None or owner.kind == "root":
        return _emptying(), node
    return _deactivating(), node, owner


def _filled(field: AbstractLeaf, value: Any) -> Any:
    """Returns `value` as the argument of the kernel that fills a field: converted to the element type."""
    filling = field.filling(value)
    return Matrix(np.broadcast_to(filling, field.element_shape)) if field.element_shape else filling


def _is_copied(field: AbstractLeaf, other: AbstractLeaf) -> bool:
    """True if a kernel can copy one field to the other.

    The types must be equal, and no inactive element may have to become active.
    """
    is_alike = (field.dtype, field.offset) == (other.dtype, other.offset)
    return is_alike and (field.cells is None or other.cells is None)


def _typed(fn: Any, **types: Any) -> Kernel:
    """Returns the kernel made of `fn` with the argument types `types`, by argument name."""
    fn.__annotations__ = types
    return Kernel(fn, fast_math=True)


def _filling(field: AbstractLeaf) -> Kernel:
    return _filling_of(field.dtype, field.element_shape)


@cache
def _filling_of(dtype: DType, element_shape: tuple[int, ...]) -> Kernel:
    def fill(x: Any, value: Any) -> None:
        for at in grouped(x):
            x[at] = value

    kind: Any = dtype
    if element_shape:
        make: Any = types.vector if len(element_shape) == 1 else types.matrix
        kind = make(*element_shape, dtype)
    return _typed(fill, x=template(), value=kind)


@cache
def _copying() -> Kernel:
    def copy(x: Any, y: Any, over: Any) -> None:
        for at in grouped(over):
            x[at] = y[at]

    return _typed(copy, x=template(), y=template(), over=template())


@cache
def _taking() -> Kernel:
    def take(x: Any, given: Any) -> None:
        for at in grouped(x):
            x[at] = given[at]

    return _typed(take, x=template(), given=types.ndarray())


@cache
def _emptying() -> Kernel:
    def deactivate_all(node: Any) -> None:
        deactivate(node, [])

    return _typed(deactivate_all, node=template())


@cache
def _deactivating() -> Kernel:
    def deactivate_all(node: Any, cells: Any) -> None:
        for at in grouped(cells):
            deactivate(node, at)

    return _typed(deactivate_all, node=template(), cells=template())
