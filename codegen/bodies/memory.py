"""Memory accesses: moves of elements and vectors between memory and registers, and values in registers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from ...kernels.ir.kernel import DType
from ..text import csyntax as c
from .vectors import Prelude


@dataclass(frozen=True)
class Value:
    """A C expression with its type; `lanes` 0 for scalars."""

    x: c.CExpr
    dtype: DType
    lanes: int = 0


class Emitter(Protocol):
    """The part of an emitter of straight-line code that decides how memory is accessed."""

    prelude: Prelude
    knows_alignment: bool
    aligned: dict[str, int]

    def is_multiple(self, x: c.CExpr, n: int) -> bool:
        """True if `x` is surely a multiple of `n`."""


class Memory(ABC):
    """Memory accesses of a target: moves of elements and vectors between memory and registers."""

    reserved: frozenset[str] = frozenset()  # names that a text keeps for itself besides RESERVED

    @abstractmethod
    def element(self, base: c.CExpr, index: c.CExpr, hint: str) -> c.CExpr:
        """One element of an array, loaded with a hint for caches."""

    @abstractmethod
    def strided(
        self,
        w: Emitter,
        base: c.CExpr,
        index: c.CExpr,
        dtype: DType,
        lanes: int,
        stride: int,
        hint: str,
    ) -> c.CExpr:
        """A vector of elements that are `stride` apart."""

    @abstractmethod
    def access(self, w: Emitter, operation: str, index: c.CExpr, lanes: int) -> str:
        """The operation that moves a vector to or from an index."""

    @abstractmethod
    def vector_of(
        self, w: Emitter, dtype: DType, lanes: int, items: tuple[c.CExpr, ...]
    ) -> c.CExpr:
        """A vector of these lanes; lanes that are left out are 0."""

    @abstractmethod
    def alignment(
        self, w: Emitter, base: c.CExpr, index: c.CExpr, value: Value
    ) -> tuple[c.CExpr, ...]:
        """Returns the arguments of a store around the caches besides its place and value."""

    @abstractmethod
    def assignment(self, place: c.CExpr, x: c.CExpr, stream: bool) -> c.CStmt:
        """Stores one element."""


class CMemory(Memory):
    """Memory accesses of a CPU.

    There are no hints for loads, only vectors are streamed, and unaligned accesses need no other operation.
    """

    def element(self, base: c.CExpr, index: c.CExpr, hint: str) -> c.CExpr:
        return c.Index(base, index)

    def strided(
        self,
        w: Emitter,
        base: c.CExpr,
        index: c.CExpr,
        dtype: DType,
        lanes: int,
        stride: int,
        hint: str,
    ) -> c.CExpr:
        """Returns the call of a helper: compilers take seconds over long lists of indices."""
        place = c.Un("&", c.Index(base, index))
        return c.Call(w.prelude.use("gather", dtype, lanes), (place, c.number(stride)))

    def access(self, w: Emitter, operation: str, index: c.CExpr, lanes: int) -> str:
        return operation

    def vector_of(
        self, w: Emitter, dtype: DType, lanes: int, items: tuple[c.CExpr, ...]
    ) -> c.CExpr:
        return c.Literal(w.prelude.vector_type(dtype, lanes), items)

    def alignment(
        self, w: Emitter, base: c.CExpr, index: c.CExpr, value: Value
    ) -> tuple[c.CExpr, ...]:
        """Returns ARE_ALIGNED if a vector is aligned as soon as arrays are, otherwise 0.

        A test at each store takes the place of loads in the core's window, and fewer of these are under way.
        """
        if not (w.knows_alignment and w.is_multiple(index, value.lanes)):
            return (c.Num("0"),)
        assert isinstance(base, c.Id)
        size = value.lanes * value.dtype.size_bytes
        w.aligned[base.name] = max(size, w.aligned.get(base.name, 0))
        return (c.ARE_ALIGNED,)

    def assignment(self, place: c.CExpr, x: c.CExpr, stream: bool) -> c.CStmt:
        return c.Assign(place, x)
