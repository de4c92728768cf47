"""Interface of memory accesses (loads and stores of elements and vectors), its implementation in C, and C values with types."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

from ...kernels.ir.kernel import DType
from ..text import csyntax as c
from .vectors import Prelude


@dataclass(frozen=True)
class Value:
    """A C expression with its type; `lanes`: length of the vector, 0 for scalars."""

    x: c.CExpr
    dtype: DType
    lanes: int = 0


class Emitter(Protocol):
    """The facts of an emitter of C text that a `Memory` needs: helpers, and known alignment of indices and arrays."""

    prelude: Prelude
    knows_alignment: bool
    aligned: dict[str, int]

    def is_multiple(self, x: c.CExpr, n: int) -> bool:
        """True if index `x` is surely a multiple of `n`."""


class Memory(ABC):
    """Loads and stores of a target, as C text."""

    reserved: frozenset[str] = frozenset()  # names that a text keeps for itself besides RESERVED

    @abstractmethod
    def element(self, base: c.CExpr, index: c.CExpr, hint: str) -> c.CExpr:
        """Returns a load of element `base[index]`, with a cache `hint`."""

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
        """Returns a vector of `lanes` elements, `stride` elements apart, from `base[index]` on."""

    @abstractmethod
    def access(self, w: Emitter, operation: str, index: c.CExpr, lanes: int) -> str:
        """Returns the name of the helper for vector load or store `operation`.

        It is a variant of the helper if `index` may be misaligned.
        """

    @abstractmethod
    def vector_of(
        self, w: Emitter, dtype: DType, lanes: int, items: tuple[c.CExpr, ...]
    ) -> c.CExpr:
        """Returns a vector with the lanes `items`; missing lanes are 0."""

    @abstractmethod
    def alignment(
        self, w: Emitter, base: c.CExpr, index: c.CExpr, value: Value
    ) -> tuple[c.CExpr, ...]:
        """Returns the further arguments of a store around the caches, behind its address and value."""

    @abstractmethod
    def assignment(self, place: c.CExpr, x: c.CExpr, stream: bool) -> c.CStmt:
        """Returns the store of one element; with `stream` around the caches."""

    @abstractmethod
    def strong_load(self, w: Emitter, place: c.CExpr) -> c.CExpr:
        """Returns a load of an element that other threads may change at the same time."""

    @abstractmethod
    def strong_store(self, w: Emitter, place: c.CExpr, x: c.CExpr, publishes: bool) -> c.CStmt:
        """Returns a store of an element that other threads may access at the same time.

        `publishes`: who finds the value finds all stores before.
        """

    @abstractmethod
    def fetching(self, op: str, is_together: bool) -> str:
        """Returns the helper of an atomic update whose old value is used.

        `is_together`: all threads that run it together combine one value with one element.
        """


class CMemory(Memory):
    """Loads and stores on a CPU, as C text.

    C has no cache hints for loads, streams only vectors, and has one operation for aligned and
    unaligned vectors.
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
        """Returns a call of a helper: lists of indices written out cost compilers seconds."""
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
        """Returns ARE_ALIGNED if the vector at `index` is aligned whenever its array is, otherwise 0.

        With 0 the store tests its address: the test occupies room in the core's reorder window, so
        fewer loads are in flight.
        """
        if not (w.knows_alignment and w.is_multiple(index, value.lanes)):
            return (c.Num("0"),)
        assert isinstance(base, c.Id)
        size = value.lanes * value.dtype.size_bytes
        w.aligned[base.name] = max(size, w.aligned.get(base.name, 0))
        return (c.ARE_ALIGNED,)

    def assignment(self, place: c.CExpr, x: c.CExpr, stream: bool) -> c.CStmt:
        return c.Assign(place, x)

    def strong_load(self, w: Emitter, place: c.CExpr) -> c.CExpr:
        return place

    def strong_store(self, w: Emitter, place: c.CExpr, x: c.CExpr, publishes: bool) -> c.CStmt:
        return c.Assign(place, x)

    def fetching(self, op: str, is_together: bool) -> str:
        return f"fetch_{op}"
