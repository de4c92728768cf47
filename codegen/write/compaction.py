"""Stream compaction by a team: its threads append to one list, either in the order of the iterations or in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...kernels.ir import kernel as ir
from ...kernels.ir.on_trees import Compaction, compactions
from ..bodies.bodies import BodyWriter
from ..bodies.memory import Value
from ..passes.storage import Buffer
from ..text import csyntax as c
from ..text.types import type_name
from .emission import Emission

_APART = 8  # counts of threads lie so far apart: a line of the cache


def compacted(
    scene: Emission, statements: tuple[ir.Stmt, ...], in_order: bool
) -> tuple[c.CStmt, ...]:
    """Returns the statements that each thread of a team runs in place of compactions (loops that append to a list).

    `in_order`: each thread counts its part of the loop, and stores its elements behind those of the
    threads before it (count, prefix sums, write: Blelloch, 1990). Otherwise each iteration reserves
    room for its elements by an atomic addition to the list's length.
    """
    made: list[c.CStmt] = []
    n = scene.target.cores * _APART
    counts = scene.buffer("counts", ir.DType.i64, n, is_private=False) if in_order else None
    if counts is not None:
        scene.counters.append(counts)
    found = compactions(statements)
    assert found, "a list that several threads make is no compaction"
    for parts in parts_of(scene, found):
        made.append(c.Scope(_Team(scene, parts).write(counts)))
    return tuple(made)


def parts_of(scene: Emission, found: Sequence[Compaction]) -> Iterator[CompactionParts]:
    """Yields the parts of each compaction; behind the last one no value that they store counts as known."""
    for x in found:
        yield CompactionParts(scene, x)
    for name in {s.array for x in found for s in x.ends}:
        scene.w.forget(name)


class CompactionParts:
    """Parts of one compaction as C, for the writers that share out its loop.

    `n`: variable with the number of elements so far. `is_old`: variable that says that the list is to be made.
    `i`: variable of the loop, which a writer declares.
    """

    def __init__(self, scene: Emission, x: Compaction) -> None:
        self.w, self.x = scene.w, x
        self.writer = BodyWriter(
            self.w, scene.plan.problem, scene.global_array, lambda update: True
        )
        self.writer.v.plain_indices = True
        self.kind = type_name(x.count.dtype, 0)
        names = ("n", "is_old", x.loop.loop.partition("@")[0])
        self.n, self.is_old, self.i = (c.Id(self.w.fresh(k)) for k in names)
        self.writer.v.locals = {x.count.name: Value(self.n, x.count.dtype)}

    @property
    def extent(self) -> c.CExpr:
        """Number of iterations of the loop."""
        return self.w.converted(self.writer.v.evaluate(self.x.loop.extent), ir.DType.i64).x

    def tested(self) -> c.CStmt:
        """Returns the declaration of `is_old`."""
        test = c.Num("1") if self.x.test is None else self.writer.v.evaluate(self.x.test).x
        return c.Declare("int", self.is_old.name, test, constant=True)

    def opening(self) -> tuple[c.CStmt, ...]:
        """Returns the declarations of `is_old` and of `n`, which is zero."""
        return self.tested(), c.Declare(self.kind, self.n.name, c.Num("0"))

    def counted(self) -> tuple[c.CStmt, ...]:
        """Returns the statements that add the number of elements of iteration `i` to `n`."""
        return self.statements(self.x.counting, self.i)

    def stored(self) -> tuple[c.CStmt, ...]:
        """Returns the statements that store the elements of iteration `i` from position `n` on."""
        return self.statements(self.x.loop.body, self.i)

    def emptied(self) -> tuple[c.CStmt, ...]:
        """Returns the statements that set the length of the list to zero."""
        zero = ir.Const(0, self.x.count.dtype)
        return self.statements((replace(self.x.ends[0], value=zero),))

    def statements(
        self, body: tuple[ir.Stmt, ...], index: c.CExpr | None = None
    ) -> tuple[c.CStmt, ...]:
        """Returns `body` as C in a scope of its own; `index`: value of the compaction's loop index."""
        v, held = self.writer.v, dict(self.writer.v.locals)
        v.loops = {} if index is None else {self.x.loop.loop: index}
        written = self.writer.iteration(body)
        v.locals = held
        return (c.Scope(written),)


class _Team:
    """Writer of one compaction by a team."""

    def __init__(self, scene: Emission, parts: CompactionParts) -> None:
        self.w, self.parts, self.x = scene.w, parts, parts.x
        self.n, self.is_old, self.i = parts.n, parts.is_old, parts.i
        self.lo, self.hi = (c.Id(self.w.fresh(k)) for k in ("part_begin", "part_end"))

    def write(self, counts: Buffer | None) -> tuple[c.CStmt, ...]:
        tid, n_threads, one = c.Id("tid"), c.Id("n_threads"), c.Num("1")
        numbers: tuple[c.CExpr, ...] = (tid, c.Bin("+", tid, one))
        lo, hi = (c.Bin("/", c.Bin("*", self.parts.extent, k), n_threads) for k in numbers)
        opening = (
            *self.parts.opening(),
            c.Declare("long", self.lo.name, lo, constant=True),
            c.Declare("long", self.hi.name, hi, constant=True),
        )
        if counts is None:
            return (*opening, *self.appending())
        return (*opening, *self.in_two_passes(c.Id(counts.name)))

    def in_two_passes(self, counts: c.CExpr) -> tuple[c.CStmt, ...]:
        tid, k = c.Id("tid"), c.Id(self.w.fresh("before"))
        own = c.Index(counts, c.Bin("*", tid, c.number(_APART)))
        before = c.Index(counts, c.Bin("*", k, c.number(_APART)))
        added = c.Assign(self.n, c.Bin("+", self.n, before))
        last = c.Bin("==", tid, c.Bin("-", c.Id("n_threads"), c.Num("1")))
        return (
            c.If(self.is_old, (self.part(self.x.counting), c.Assign(own, self.n))),
            c.Barrier(),
            c.If(
                self.is_old,
                (
                    c.Assign(self.n, c.Num("0")),
                    c.For(k.name, c.Num("0"), tid, 1, (added,)),
                    self.part(self.x.loop.body),
                ),
            ),
            c.Barrier(),
            # The last thread has counted all elements.
            c.If(c.Bin("&&", self.is_old, last), self.parts.statements(self.x.ends)),
            c.Barrier(),
        )

    def appending(self) -> tuple[c.CStmt, ...]:
        first, *rest = self.x.ends
        alone = c.Bin("&&", self.is_old, c.Bin("==", c.Id("tid"), c.Num("0")))
        room = ir.Update(
            first.array, first.indices, "add", self.x.count, first.where, self.x.count.name
        )
        stored = (*self.parts.statements((room,)), *self.parts.stored())
        empty = c.Assign(self.n, c.Num("0"))
        one = (empty, *self.parts.counted(), c.If(c.Bin("!=", self.n, c.Num("0")), stored))
        loop = c.For(self.i.name, self.lo, self.hi, 1, one)
        ended = (c.If(alone, self.parts.statements(tuple(rest))),) if rest else ()
        return (
            c.If(alone, self.parts.emptied()),
            c.Barrier(),
            c.If(self.is_old, (loop,)),
            c.Barrier(),
            *ended,
            c.Barrier(),
        )

    def part(self, body: tuple[ir.Stmt, ...]) -> c.CStmt:
        """Returns the loop that runs `body` for this thread's part of the iterations."""
        return c.For(self.i.name, self.lo, self.hi, 1, self.parts.statements(body, self.i))
