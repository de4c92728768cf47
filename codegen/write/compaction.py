"""Stream compaction: all threads of a team append to one list, either in the order of the iterations or in any order."""

from __future__ import annotations

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
    writer = BodyWriter(scene.w, scene.plan.problem, scene.global_array, lambda update: True)
    writer.v.plain_indices = True
    made: list[c.CStmt] = []
    n = scene.target.cores * _APART
    counts = scene.buffer("counts", ir.DType.i64, n, is_private=False) if in_order else None
    if counts is not None:
        scene.counters.append(counts)
    for x in compactions(statements):
        made.append(c.Scope(_Team(scene, writer, x).write(counts)))
    for name in {s.array for s in ir_stores(statements)}:
        scene.w.forget(name)
    return tuple(made)


def ir_stores(statements: tuple[ir.Stmt, ...]) -> list[ir.Store]:
    """Returns all stores in the bodies of compactions."""
    return [s for x in compactions(statements) for s in x.ends]


class _Team:
    """Writer of one compaction by a team."""

    def __init__(self, scene: Emission, writer: BodyWriter, x: Compaction) -> None:
        self.w, self.writer, self.x = scene.w, writer, x
        self.kind = type_name(x.count.dtype, 0)
        names = ("n", "is_old", "part_begin", "part_end", x.loop.loop.partition("@")[0])
        self.n, self.is_old, self.lo, self.hi, self.i = (c.Id(self.w.fresh(k)) for k in names)

    def write(self, counts: Buffer | None) -> tuple[c.CStmt, ...]:
        self.writer.v.locals = {self.x.count.name: Value(self.n, self.x.count.dtype)}
        tid, n_threads, one = c.Id("tid"), c.Id("n_threads"), c.Num("1")
        v = self.writer.v
        extent = self.w.converted(v.evaluate(self.x.loop.extent), ir.DType.i64).x
        test = c.Num("1") if self.x.test is None else v.evaluate(self.x.test).x
        numbers: tuple[c.CExpr, ...] = (tid, c.Bin("+", tid, one))
        lo, hi = (c.Bin("/", c.Bin("*", extent, k), n_threads) for k in numbers)
        opening = (
            c.Declare("int", self.is_old.name, test, constant=True),
            c.Declare("long", self.lo.name, lo, constant=True),
            c.Declare("long", self.hi.name, hi, constant=True),
            c.Declare(self.kind, self.n.name, c.Num("0")),
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
            c.If(c.Bin("&&", self.is_old, last), self.of_writer(self.x.ends)),
            c.Barrier(),
        )

    def appending(self) -> tuple[c.CStmt, ...]:
        first, *rest = self.x.ends
        alone = c.Bin("&&", self.is_old, c.Bin("==", c.Id("tid"), c.Num("0")))
        room = ir.Update(
            first.array, first.indices, "add", self.x.count, first.where, self.x.count.name
        )
        counted = self.of_writer(self.x.counting, self.i)
        stored = (*self.of_writer((room,)), *self.of_writer(self.x.loop.body, self.i))
        one = (
            c.Assign(self.n, c.Num("0")),
            *counted,
            c.If(c.Bin("!=", self.n, c.Num("0")), stored),
        )
        loop = c.For(self.i.name, self.lo, self.hi, 1, one)
        ended = (c.If(alone, self.of_writer(tuple(rest))),) if rest else ()
        return (
            c.If(alone, self.of_writer((replace(first, value=_zero(self.x.count)),))),
            c.Barrier(),
            c.If(self.is_old, (loop,)),
            c.Barrier(),
            *ended,
            c.Barrier(),
        )

    def part(self, body: tuple[ir.Stmt, ...]) -> c.CStmt:
        """Returns the loop that runs `body` for this thread's part of the iterations."""
        return c.For(self.i.name, self.lo, self.hi, 1, self.of_writer(body, self.i))

    def of_writer(
        self, body: tuple[ir.Stmt, ...], index: c.CExpr | None = None
    ) -> tuple[c.CStmt, ...]:
        """Returns `body` as C in a scope of its own; `index`: value of the compaction's loop index."""
        v, held = self.writer.v, dict(self.writer.v.locals)
        v.loops = {} if index is None else {self.x.loop.loop: index}
        written = self.writer.iteration(body)
        v.locals = held
        return (c.Scope(written),)


def _zero(count: ir.Local) -> ir.Const:
    return ir.Const(0, count.dtype)
