"""Private copies of an array in a standalone kernel: each thread of a loop adds to a copy of its own."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...kernels.ir.arrays import ArrayInfo
from ..bodies.emitter import Builder
from ..bodies.memory import Value
from ..text import csyntax as c
from ..text.types import type_name


@dataclass(frozen=True)
class Copies:
    """Private copies of `array`, one for each thread but the first.

    `name`: C variable of the copies. `own`: C variable of the copy to which a thread adds.
    """

    array: ArrayInfo
    name: str
    own: str

    @property
    def type(self) -> str:
        return f"{type_name(self.array.dtype, 0)} *"

    @property
    def n_elements(self) -> int:
        return prod(self.array.shape)

    @property
    def parameter(self) -> c.Parameter:
        return c.Parameter(self.type, self.name, "restrict ")

    def of_thread(self, array: c.CExpr) -> c.CStmt:
        """Returns the declaration of a thread's target: a copy.

        For the first thread, or if there is one thread, the array.
        """
        tid = c.Id("tid")
        before = c.Bin("*", c.Bin("-", tid, c.Num("1")), c.number(self.n_elements))
        copy = c.Bin("+", c.Id(self.name), before)
        return c.Declare(self.type, self.own, c.Cond(tid, copy, c.CastTo(self.type, array)))


def declared(w: Builder, array: ArrayInfo, stem: str, cores: int, is_small: c.CExpr) -> Copies:
    """Declares private copies of an array for `cores` threads, initialised to 0.

    `is_small`: C condition under which none are allocated. Then, or without memory for them, one
    thread runs the loop.
    """
    made = Copies(array, w.fresh(f"{stem}_copies"), w.fresh(f"{stem}_own"))
    n = c.number((cores - 1) * made.n_elements)
    room = c.Call("__builtin_calloc", (n, c.number(array.dtype.size_bytes)))
    zeros = c.CastTo(made.type, c.Cond(is_small, c.Num("0"), room))
    w.write(c.Declare(made.type, made.name, zeros))
    return made


def added(
    w: Builder, copies: Copies, array: c.CExpr, cores: int, n_shared: int = 0
) -> tuple[c.CStmt, ...]:
    """Returns one thread's part of the addition of all copies to the array, copy by copy.

    `n_shared`: elements at the begin of each row that are left out.
    """
    k, slot, begin, end = (w.fresh(stem) for stem in ("k", "slot", "begin", "end"))
    w.used -= {k, slot, begin, end}
    tid, dtype = c.Id("tid"), copies.array.dtype
    n = copies.array.shape[-1] if n_shared else copies.n_elements
    n_rows, rest = copies.n_elements // max(n, 1), c.number(n - n_shared)
    row = w.fresh("row")
    w.used -= {row}
    first = c.linear(((c.Id(row), n),) if n_rows > 1 else (), n_shared)
    at = c.add(first, c.Id(k)) if n_shared else c.Id(k)
    place = Value(c.Index(array, at), dtype)
    before = c.Bin("*", c.Id(slot), c.number(copies.n_elements))
    copy = c.Index(c.Id(copies.name), c.add(before, at))
    add = c.Assign(place.x, w.combine("add", place, Value(copy, dtype)).x)
    each: c.CStmt = c.For(k, c.Id(begin), c.Id(end), 1, (add,), independent=True)
    if n_rows > 1:
        each = c.For(row, c.Num("0"), c.number(n_rows), 1, (each,))
    ends = ((begin, tid), (end, c.Bin("+", tid, c.Num("1"))))
    return (
        *(
            c.Declare(
                "long", name, c.Bin("/", c.Bin("*", rest, who), c.Id("n_threads")), constant=True
            )
            for name, who in ends
        ),
        c.For(slot, c.Num("0"), c.number(cores - 1), 1, (each,)),
    )


def given_back(copies: Copies) -> c.CStmt:
    """Returns the statement that frees the copies."""
    return c.Evaluate(c.Call("__builtin_free", (c.Id(copies.name),)))
