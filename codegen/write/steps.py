"""Writes the C functions of whole kernels, and a function for each of their loops that a team shares.

Nothing is decided here; see codegen/plan/nest_plan.py. Besides arrays, threads share the results of
reductions, each in a cache line of its own, and the counter of a GUIDED loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ...kernels.ir import kernel as ir
from ...kernels.ir.walk import (
    blocks,
    children,
    locals_read,
    mapped,
    nested_statements,
)
from ..bodies.bodies import BodyWriter
from ..bodies.emitter import Builder
from ..bodies.memory import CMemory, Value
from ..bodies.vectors import Prelude
from ..bodies.wavefront_sweeps import wavefront
from ..plan.nest_plan import NestPlan, Partition, Sum, WavePlan, nest_of
from ..plan.plan import Plan, TaskPlan
from ..plan.summary import sentence
from ..text import csyntax as c
from ..text.constants import neutral
from ..text.facts import ALIGNMENT_BYTES
from ..text.free_variables import parameters, thread_parameters, without_unused
from ..text.types import type_name
from .program_text import Launches
from .thread_copies import Copies, added, declared, given_back
from .thread_ranges import balanced, equal, guided

_TEAM_LINE = 2 * ALIGNMENT_BYTES  # lines in pairs are one to some prefetchers


def standalone_launches(plan: Plan, prelude: Prelude, names: dict[str, str]) -> Launches:
    """Returns a launch for each kernel of the plan, which starts a team for each of its parallel loops.

    Equal kernels on the same arrays are one function.
    """
    functions: list[c.Function] = []
    calls: list[tuple[str, tuple[str, ...]]] = []
    for task in plan.tasks:
        before = plan.tasks[: task.index]
        equal = (k for k, other in enumerate(before) if _are_equal(other, task))
        if (first := next(equal, None)) is not None:
            calls.append(calls[first])
            continue
        writer = _StepWriter(plan, task, Builder(prelude, names, CMemory()), functions)
        body, name = writer.body(), writer.new_function()
        named = parameters(plan.problem, body, names)
        functions.append(c.Function(name, named, body, False, sentence(plan, task.index)))
        calls.append((name, tuple(p.name for p in named)))
    return _with_temporaries(plan, Launches(tuple(functions), tuple(calls)))


def _are_equal(a: TaskPlan, b: TaskPlan) -> bool:
    """True if one function serves for both."""
    return a.steps == b.steps and a.task.fast_math == b.task.fast_math


def _with_temporaries(plan: Plan, launches: Launches) -> Launches:
    """Returns the launches with memory for the temporaries of a sequence; a standalone kernel has none."""
    if all(a.role != "temp" for a in plan.problem.arrays):
        return launches
    from ..passes.storage import Workspace, place_temporaries

    workspace = Workspace(plan.cores)
    placed = place_temporaries(plan, workspace)
    return replace(launches, temporaries=placed, workspace_bytes=workspace.size_bytes)


class _StepWriter:
    def __init__(self, plan: Plan, task: TaskPlan, w: Builder, functions: list[c.Function]) -> None:
        """`functions`: those written so far, to which it adds its own."""
        self.task = task
        assert self.task.task.body is not None
        self.statements, self.fast_math = self.task.task.body.statements, self.task.task.fast_math
        self.problem, self.cores = plan.problem, plan.cores
        self.w, self.prelude, self.names = w, w.prelude, dict(w.names)
        self.functions = functions

    def new_function(self) -> str:
        return f"launch_{len(self.functions)}"

    def writer(
        self, atomics: frozenset[ir.Update] = frozenset(), own: Sequence[Copies] = ()
    ) -> BodyWriter:
        """Returns a writer for bodies of the kernel.

        `atomics`: updates to write as atomic operations. `own`: private copies of arrays, which the thread that runs the body
        uses instead.
        """
        names, shared = self.names | {x.array.name: x.own for x in own}, {u.array for u in atomics}
        made = BodyWriter(
            self.w, self.problem, lambda array: c.Id(names[array]), lambda u: u.array in shared
        )
        made.begin(self.statements, self.fast_math)
        made.v.plain_indices = True
        for step in self.task.task.steps:
            made.v.loops[step.name] = c.Id(self.names[step.name])
        return made

    def body(self) -> tuple[c.CStmt, ...]:
        """Returns the C statements of the standalone kernel's body."""
        own = self.writer()
        asserts = any(isinstance(s, ir.Assert) for s in nested_statements(self.statements))
        own.stop = self.w.fresh("stop") if asserts else ""
        with self.w.scope() as body:
            plain = tuple(s for s in self.task.steps if not isinstance(s, NestPlan | WavePlan))
            own.declare_locals(plain)
            for step in self.task.steps:
                if isinstance(step, WavePlan):
                    self.wave(step)
                elif isinstance(step, NestPlan):
                    self.loop(step, own)
                    if asserts:
                        self.w.write(c.If(c.Id("ks_stopped"), (c.Goto(own.stop),)))
                else:
                    own.statements((step,))
            if asserts:
                self.w.write(c.Label(own.stop))
        return without_unused(tuple(body.statements))

    def wave(self, step: WavePlan) -> None:
        """Writes a wavefront sweep.

        Threads read values that other threads wrote before a barrier, so pointers to these arrays
        are not `restrict`.
        """
        writer = self.writer()
        with self.w.scope() as made:
            for s in wavefront(self.w, writer.v, step.wave, writer.iteration):
                self.w.write(s)
        body = without_unused(tuple(made.statements))
        named = parameters(self.problem, body, self.names)
        own = thread_parameters(self.problem, body, self.names)
        name = self.new_function()
        self.functions.append(
            c.Function(
                name,
                named,
                body,
                True,
                thread_parameters=own,
                threads=c.number(step.threads),
            )
        )
        stored = tuple(p.name for p in named if not p.type.startswith("const ") and p.restrict)
        self.w.write(c.RunClosed(name, tuple(c.Id(p.name) for p in named), stored))

    # --- loops

    def loop(self, step: NestPlan, own: BodyWriter) -> None:
        """Writes a top-level loop, with the initialisation and the finish of its reductions."""
        sums = [(s, self.w.fresh(f"{s.local or s.array}_sum")) for s in step.sums]
        if not step.is_shared:
            for s, name in sums:
                self.start(s, name)
            writer = self.inside(own, sums)
            loops, statements = nest_of(_summing(step.loop, sums), 1)
            for made in self.nest(
                step, writer, loops, statements, c.Num("0"), own.v.evaluate(loops[0].extent).x
            ):
                self.w.write(made)
            for s, name in sums:
                self.finish(s, c.Id(name), own)
            return
        self.shared(step, own, sums)

    def start(self, s: Sum, name: str) -> None:
        self.w.write(c.Declare(type_name(s.dtype, 0), name, neutral(s.op, s.dtype)))

    def finish(self, s: Sum, x: c.CExpr, own: BodyWriter) -> None:
        """Writes the update of a reduction's target by result `x`.

        If no iteration added anything, the element stays untouched: its index may then be out of
        range.
        """
        if not s.array:
            self.w.write(own.v.updated(own.v.locals[s.local], s.op, Value(x, s.dtype)))
            return
        with self.w.scope() as adding:
            place = own.v.element(s.array, s.indices)
            self.w.write(own.v.updated(place, s.op, Value(x, s.dtype)))
        self.w.write(c.If(c.Bin("!=", x, neutral(s.op, s.dtype)), tuple(adding.statements)))

    def inside(self, own: BodyWriter, sums: Sequence[tuple[Sum, str]]) -> BodyWriter:
        """Returns the writer for the body of a loop.

        It has the kernel's locals, and accumulators `sums` of its own.
        """
        writer = self.writer()
        writer.v.locals = dict(own.v.locals)
        for s, name in sums:
            writer.v.locals[_sum_name(s, name)] = Value(c.Id(name), s.dtype)
        return writer

    def nest(
        self,
        step: NestPlan,
        writer: BodyWriter,
        loops: Sequence[ir.For],
        statements: tuple[ir.Stmt, ...],
        lo: c.CExpr,
        hi: c.CExpr,
    ) -> tuple[c.CStmt, ...]:
        """Returns the code of a loop nest for the iterations `lo` to `hi`, counted over all of its `loops` together."""
        writer.independent, writer.scalar = step.independent, step.scalar
        writer.copies = step.copies
        writer.prefetch = step.prefetch
        *outer, last = loops
        name = self.w.fresh(last.loop)
        writer.v.loops[last.loop] = c.Id(name)
        row = self.w.fresh("row") if outer else ""
        opening: list[c.CStmt] = []
        n = _extent(last) if outer else 1
        begin, end = lo, hi
        if outer:
            begin, end = c.Id(self.w.fresh("first")), c.Id(self.w.fresh("last"))
            rest: c.CExpr = c.Id(row)
            for k, loop in enumerate(reversed(outer)):
                index = self.w.fresh(loop.loop)
                is_first = k + 1 == len(outer)
                value = rest if is_first else c.Bin("%", rest, c.number(_extent(loop)))
                opening.append(c.Declare("long", index, value, constant=True))
                writer.v.loops[loop.loop] = c.Id(index)
                if not is_first:
                    rest = c.Bin("/", rest, c.number(_extent(loop)))
            before = c.Bin("-", lo, c.Bin("*", c.Id(row), c.number(n)))
            behind = c.Bin("-", hi, c.Bin("*", c.Id(row), c.number(n)))
            zero, most = c.Num("0"), c.number(n)
            opening += [
                c.Declare(
                    "long",
                    begin.name,
                    c.Cond(c.Bin(">", before, zero), before, zero),
                    constant=True,
                ),
                c.Declare("long", end.name, c.minimum(behind, most), constant=True),
            ]
        writer.lanes = step.lanes
        writer.ranges = {lanes.loop: lanes for lanes in step.ranges}
        if step.lanes is not None and step.lanes.loop == last.loop:
            inner = writer.in_lanes(last, begin, end)
        else:
            made = c.For(name, begin, end, 1, writer.iteration(statements))
            inner = (writer.loop_over(last.loop, made, statements),)
        if not outer:
            return inner
        rows = c.Bin("/", c.Bin("+", hi, c.number(n - 1)), c.number(n))
        return (c.For(row, c.Bin("/", lo, c.number(n)), rows, 1, (*opening, *inner)),)

    # --- loops that threads share

    def shared(self, step: NestPlan, own: BodyWriter, sums: Sequence[tuple[Sum, str]]) -> None:
        loops, statements = nest_of(_summing(step.loop, sums), step.levels)
        kernel_locals = sorted(name for name in _locals_in(step.loop) if name in own.v.locals)
        total = self.w.fresh("total")
        extents = [own.v.evaluate(loop.extent).x for loop in loops]
        extent: c.CExpr = extents[0]
        for x in extents[1:]:
            extent = c.Bin("*", extent, x)
        self.w.write(c.Declare("long", total, extent, constant=True))
        given: list[tuple[c.Parameter, c.CExpr]] = [
            (c.Parameter("const long ", total), c.Id(total))
        ]
        copies = self.copies(step, c.Id(total))
        given += [(copy.parameter, c.Id(copy.name)) for copy in copies]
        writer = self.writer(step.atomics, copies)
        for local in kernel_locals:
            held = own.v.locals[local]
            assert isinstance(held.x, c.Id)
            kind = type_name(held.dtype, 0)
            given.append((c.Parameter(f"const {kind} ", held.x.name), held.x))
            writer.v.locals[local] = held
        results: list[tuple[Sum, str, str, int]] = []
        for s, name in sums:
            kind, each = type_name(s.dtype, 0), _TEAM_LINE // s.dtype.size_bytes
            parts, k = self.w.fresh(f"{name}s"), self.w.fresh("k")
            self.w.write(c.Declare(kind, parts, None, self.cores * each))
            at = c.Index(c.Id(parts), c.Bin("*", c.Id(k), c.number(each)))
            fill = c.Assign(at, neutral(s.op, s.dtype))
            self.w.write(c.For(k, c.Num("0"), c.number(self.cores), 1, (fill,)))
            self.w.used.discard(k)
            given.append((c.Parameter(f"{kind} *", parts, "restrict "), c.Id(parts)))
            writer.v.locals[_sum_name(s, name)] = Value(c.Id(name), s.dtype)
            results.append((s, name, parts, each))
        counter = ""
        if step.partition.schedule == "GUIDED":
            counter, kind = self.w.fresh("next"), type_name(ir.DType.i64, 0)
            room = _TEAM_LINE // ir.DType.i64.size_bytes
            self.w.write(c.Declare(kind, counter, None, room))
            self.w.write(c.Assign(c.Index(c.Id(counter), c.Num("0")), c.Num("0")))
            given.append((c.Parameter(f"{kind} *", counter), c.Id(counter)))
        is_small: c.CExpr = c.Bin("<", c.Id(total), c.number(step.partition.threads_from))
        for copy in copies:
            is_small = c.Bin("||", is_small, c.Un("!", c.Id(copy.name)))
        threads = c.Cond(is_small, c.Num("1"), c.number(self.cores))
        constant = prod(_constant(loop) for loop in loops)
        is_sure = (
            all(isinstance(loop.extent, ir.Const) for loop in loops)
            and constant >= step.partition.threads_from
            and not copies
        )
        for is_behind in (False, True) if step.partition.overlap else (False,):
            body = self.thread(
                step, writer, loops, statements, (total, counter), results, is_behind=is_behind
            )
            body = (*(x.of_thread(c.Id(self.names[x.array.name])) for x in copies), *body)
            self.launch(body, given, None if is_sure else threads)
        for copy in copies:
            self.add_up(copy)
        for s, _, parts, each in results:
            k = self.w.fresh("k")
            at = c.Index(c.Id(parts), c.Bin("*", c.Id(k), c.number(each)))
            with self.w.scope() as adding:
                self.finish(s, at, own)
            self.w.write(c.For(k, c.Num("0"), c.number(self.cores), 1, tuple(adding.statements)))
            self.w.used.discard(k)

    def launch(
        self,
        body: tuple[c.CStmt, ...],
        given: Sequence[tuple[c.Parameter, c.CExpr]],
        threads: c.CExpr | None,
    ) -> None:
        """Writes a function that the threads of a team run, and the statement that starts the team on it.

        `given`: parameters besides the arrays, with their arguments. `threads`: number of threads;
        None: the whole team.
        """
        arrays = parameters(self.problem, body, self.names)
        named, name = (*arrays, *(p for p, _ in given)), self.new_function()
        self.functions.append(
            c.Function(name, named, body, True, after=(), thread_parameters=named, threads=threads)
        )
        args = (*(c.Id(p.name) for p in arrays), *(x for _, x in given))
        stored = tuple(p.name for p in arrays if p.restrict and not p.type.startswith("const "))
        self.w.write(c.RunClosed(name, args, stored))

    def copies(self, step: NestPlan, total: c.CExpr) -> list[Copies]:
        """Declares the private copies of arrays for the threads of a loop.

        If one thread runs the loop, none are allocated.
        """
        is_small = c.Bin("<", total, c.number(step.partition.threads_from))
        arrays = [self.problem.array(name) for name in step.partition.copied]
        return [declared(self.w, a, self.names[a.name], self.cores, is_small) for a in arrays]

    def add_up(self, copies: Copies) -> None:
        """Writes the addition of private copies to their array, of which each thread adds a part, and frees the copies."""
        array, name = c.Id(self.names[copies.array.name]), self.new_function()
        n_shared = self.problem.parts.n_shared(copies.array.name)
        body = added(self.w, copies, array, self.cores, n_shared)
        named = (*parameters(self.problem, body, self.names), copies.parameter)
        self.functions.append(c.Function(name, named, body, True, thread_parameters=named))
        run = c.RunClosed(name, (array, c.Id(copies.name)), (array.name,))
        self.w.write(c.If(c.Id(copies.name), (run, given_back(copies))))

    def thread(
        self,
        step: NestPlan,
        writer: BodyWriter,
        loops: Sequence[ir.For],
        statements: tuple[ir.Stmt, ...],
        counted: tuple[str, str],
        results: Sequence[tuple[Sum, str, str, int]],
        *,
        is_behind: bool,
    ) -> tuple[c.CStmt, ...]:
        """Returns the code of one thread for its part of a loop nest's iterations.

        `counted`: C names of the number of iterations, and of the counter of parts. `is_behind`:
        only the iterations at the part's end that overlap the next part; the other code leaves
        these out.
        """
        total, counter = c.Id(counted[0]), c.Id(counted[1])
        begin, end = (self.w.fresh(name) for name in ("begin", "end"))

        def part() -> tuple[c.CStmt, ...]:
            return self.nest(step, writer, loops, statements, c.Id(begin), c.Id(end))

        with self.w.scope() as body:
            if step.partition.schedule != "GUIDED":
                self.ends(step.partition, total, begin, end)
            if step.partition.overlap:
                begin, end = self.apart(step.partition, total, begin, end, is_behind=is_behind)
            for s, name, _, _ in results:
                self.start(s, name)
            if step.partition.schedule == "GUIDED":
                opening, goes_on, advance = guided(
                    self.prelude, counter, total, step.partition.unit, (begin, end)
                )
                for made in (*opening, c.While(goes_on, (*part(), advance))):
                    self.w.write(made)
            else:
                for made in part():
                    self.w.write(made)
            for _, name, parts, size in results:
                at = c.Index(c.Id(parts), c.Bin("*", c.Id("tid"), c.number(size)))
                self.w.write(c.Assign(at, c.Id(name)))
        return without_unused(tuple(body.statements))

    def apart(
        self, share: Partition, total: c.CExpr, begin: str, end: str, *, is_behind: bool
    ) -> tuple[str, str]:
        """Declares where the iterations begin that overlap the next part.

        Returns begin and end of these (`is_behind`), or of all others.
        """
        middle = self.w.fresh("middle")
        before = c.Bin("-", c.Id(end), c.number(share.overlap))
        is_inner = c.Bin("<", c.Id(end), total)
        self.w.write(c.Declare("long", middle, c.Cond(is_inner, before, c.Id(end)), constant=True))
        return (middle, end) if is_behind else (begin, middle)

    def ends(self, share: Partition, total: c.CExpr, begin: str, end: str) -> None:
        """Declares the variables `begin` and `end` of a thread's iterations, for schedules with one part per thread."""
        first: c.CExpr
        last: c.CExpr
        if share.rows is not None:
            dtype = self.problem.array(share.rows.array).dtype
            array = c.Id(self.names[share.rows.array])
            first, last = balanced(self.prelude, array, dtype, share.rows, total, share.unit)
        else:
            size = self.w.fresh("share")
            self.w.write(c.Declare("long", size, equal(total, share.unit), constant=True))
            first = c.minimum(c.Bin("*", c.Id("tid"), c.Id(size)), total)
            last = c.minimum(c.Bin("+", c.Id(begin), c.Id(size)), total)
        self.w.write(c.Declare("long", begin, first, constant=True))
        self.w.write(c.Declare("long", end, last, constant=True))


def _sum_name(s: Sum, name: str) -> str:
    """Returns the name of the local that accumulates a reduction: `name`, or the local's own name if the target is a local."""
    return s.local or f"{name} of the loop"


def _summing(loop: ir.For, sums: Sequence[tuple[Sum, str]]) -> ir.For:
    """Returns the loop with updates of reduced elements replaced by updates of the locals in `sums`."""
    places = {(s.array, s.indices, s.op): _sum_name(s, name) for s, name in sums if s.array}

    def change(s: ir.Stmt) -> ir.Stmt:
        if isinstance(s, ir.Update) and (s.array, s.indices, s.op) in places:
            return ir.UpdateLocal(places[s.array, s.indices, s.op], s.op, s.value, s.where)
        return mapped(s, lambda e: e, change) if blocks(s) else s

    found = change(loop)
    assert isinstance(found, ir.For)
    return found


def _locals_in(loop: ir.For) -> set[str]:
    """Returns the names of the locals that are read anywhere in a loop."""
    return {
        name for s in nested_statements((loop,)) for e in children(s) for name in locals_read(e)
    }


def _extent(loop: ir.For) -> int:
    assert isinstance(loop.extent, ir.Const)
    return int(loop.extent.value)


def _constant(loop: ir.For) -> int:
    return _extent(loop) if isinstance(loop.extent, ir.Const) else 1
