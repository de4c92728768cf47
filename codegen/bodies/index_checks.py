"""Bounds checks of indices that come from arrays: C functions that run before a tuned sequence.

The functions write nothing. They repeat the control flow of the recorded calls (loops, conditions,
locals) as far as indices depend on it. An index that depends on an array that the sequence itself
writes, or on a while loop, cannot be computed before the run. Such an index is not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...kernels.analysis.must_execute import set_in
from ...kernels.frontend.recorder import Recording
from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import to_affine
from ...kernels.ir.text import show_expr
from ...kernels.ir.walk import (
    Renaming,
    children,
    coerced,
    local_changed,
    nested_statements,
    walk,
    written_in,
)
from ...kernels.tasks.bounds_check import Around, in_loop, where, where_not
from ..text import csyntax as c
from ..text.cprint import expression
from ..text.names import c_names
from ..text.source import CHECK, FIND, Argument
from ..text.types import type_name
from .c_vectors import CHelpers
from .emitter import Builder
from .index_facts import IndexFacts, always_accessed, beside, stays, without_widening
from .iteration_point import index_of, row_strides
from .memory import CMemory, Value
from .vectors import Prelude


@dataclass(frozen=True)
class IndexSite:
    """One checked index: the user's kernel and source line, the indexed array and axis, its extent, the index as text."""

    kernel: str
    where: ir.Location
    array: str
    axis: int
    extent: int
    text: str

    def sentence(self, value: int) -> str:
        """Returns the error message for `value`, an index out of range."""
        return (
            f"the index {self.text} of {self.array} is {value} and must be from 0 to {self.extent - 1}"
            f" (axis {self.axis}; kernel {self.kernel}, line {self.where.line}); nothing was written"
        )


@dataclass(frozen=True)
class IndexChecks:
    """C text with two functions, which both take the sequence's argument vector.

    `sites`: the checked indices. `int64_t check_indices(void **args)` returns 0 if all indices are
    in range. `int64_t find_index(void **args, int64_t *value)` returns 0 too, or 1 + the number in
    `sites` of the first index out of range, and stores this index in `value`.
    """

    text: str
    sites: tuple[IndexSite, ...]


def index_checks(recording: Recording, arguments: Sequence[Argument]) -> IndexChecks | None:
    """Returns the bounds checks of a sequence; None if no index depends on contents of arrays or on scalars."""
    prelude = Prelude(CHelpers())
    lines, sites = check_functions(recording, arguments, prelude)
    if not sites:
        return None
    text = ["#include <math.h>", "#include <stdint.h>", prelude.text(), *lines]
    return IndexChecks("\n".join(text) + "\n", sites)


def check_functions(
    recording: Recording,
    arguments: Sequence[Argument],
    prelude: Prelude,
    plain_indices: bool = False,
) -> tuple[list[str], tuple[IndexSite, ...]]:
    """Returns the lines of the two C functions, and the checked indices; no lines if no index needs a check.

    `prelude`: receives the helpers that the lines call.
    `plain_indices`: True if the checked code computes indices in C's type long, see `index_of`.
    Otherwise indices wrap around as in the kernel language, and a wrapped index counts as out of
    range.
    """
    names = c_names([a.name for a in arguments], frozenset({"bad", "value"}))
    quick, exact = (
        CheckWriter(recording, names, prelude, is_exact, plain_indices)
        for is_exact in (False, True)
    )
    bodies = [checker.lines() for checker in (quick, exact)]
    if not exact.sites:
        return [], ()
    bound = [
        f"    const {kind} *{names[a.name]} = args[{k}];"
        if a.kind == "array"
        else f"    const {kind} {names[a.name]} = *({kind} *)args[{k}];"
        for k, a in enumerate(arguments)
        if a.kind != "workspace" and (kind := type_name(ir.DType(a.dtype), 0))
    ]
    heads = (f"int64_t {CHECK}(void **args)", f"int64_t {FIND}(void **args, int64_t *value)")
    parts: list[str] = []
    for head, body in zip(heads, bodies, strict=True):
        parts += [f"{head};", f"{head} {{", *bound, "    uint64_t bad = 0;", *body]
        parts += ["    return bad != 0;", "}"]
    return parts, tuple(exact.sites)


class CheckWriter:
    """Writes one C function that checks the indices of all recorded calls.

    With `is_exact` the function returns at the first failed check. Otherwise it returns early only
    at checks on whose indices its own later loads rely.
    """

    def __init__(
        self,
        recording: Recording,
        names: Mapping[str, str],
        prelude: Prelude,
        is_exact: bool,
        plain_indices: bool,
    ) -> None:
        self.recording, self.is_exact, self.plain_indices = recording, is_exact, plain_indices
        self.shapes = {p.name: p.shape for p in (*recording.arrays, *recording.temps)}
        self.w = Builder(prelude, names, CMemory())
        self.sites: list[IndexSite] = []
        written = {
            dict(zip((p.name for p in call.ir.arrays), call.arrays, strict=True))[name]
            for call in recording.calls
            for name in written_in(call.ir.body)
        } | {p.name for p in recording.temps}
        self.facts = IndexFacts(written)
        self.trusted = {
            name
            for call in recording.calls
            for p, name in zip(call.ir.arrays, call.arrays, strict=True)
            if p.name in call.ir.trusted
        }
        self.out: list[str] = []
        self.n_checks = 0
        self.depth = 1
        self.kernel, self.where = "", ir.Location("", 0)
        self.loops: dict[str, c.CExpr] = {}
        self.locals: dict[str, Value] = {}  # those that indices depend on
        self.set_once: set[str] = set()  # by one statement of the text
        self.proved: set[tuple[str, int, ir.Expr]] = set()
        self.around = Around()

    def lines(self) -> list[str]:
        """Returns the lines of the C function's body."""
        for k, call in enumerate(self.recording.calls):
            arrays = {p.name: n for p, n in zip(call.ir.arrays, call.arrays, strict=True)}
            params = {
                p.name: coerced(e, p.dtype)
                for p, e in zip(call.ir.scalars, call.scalars, strict=True)
            }
            renaming = Renaming(arrays=arrays, params=params)
            body = tuple(renaming.apply_stmt(s) for s in call.ir.body)
            around = [r for r in self.recording.repeats if k in r.members and call.uses_steps]
            for r in reversed(around):  # in each step that its numbers depend on
                if r.index:
                    n = ir.Const(r.count, ir.DType.i64)
                    body = (ir.For(r.index, n, body, call.where),)
            self.kernel, self.around = call.ir.name, Around()
            self.facts.unknown_locals(body)
            self.facts.of_locals = {}
            self.set_once = {name for name, found in set_in(body).items() if len(found) == 1}
            n_checks = self.n_checks
            with self.nested("{") as written:
                self.declare(body)
                self.block(body)
            if self.n_checks == n_checks:
                del self.out[written:]
        return self.out

    # --- statements

    @contextmanager
    def nested(self, head: str) -> Iterator[int]:
        """Context of a C block opened by `head`; a block that stays empty is removed.

        Yields its first line's number.
        """
        begin = len(self.out)
        self.line(head)
        self.depth += 1
        yield begin
        self.depth -= 1
        if len(self.out) == begin + 1:
            self.out.pop()
        else:
            self.line("}")

    def line(self, text: str) -> None:
        self.out.append("    " * self.depth + text)

    def declare(self, body: tuple[ir.Stmt, ...]) -> None:
        """Declares the locals on which an index, an extent or a condition depends, except unknown ones."""
        needed: set[str] = set()
        values: dict[str, list[ir.Expr]] = {}
        for s in nested_statements(body):
            match s:
                case ir.SetLocal(name, value):
                    values.setdefault(name, []).append(value)
                case ir.UpdateLocal(name, _, value):
                    values.setdefault(name, []).append(value)
                case ir.For() | ir.If():
                    needed |= _locals(children(s))
            for e in children(s):
                needed |= _locals(i for x in walk(e) if isinstance(x, ir.Load) for i in x.indices)
            if isinstance(s, ir.Store | ir.Update):
                needed |= _locals(s.indices)
        waiting = list(needed)
        while waiting:
            new = _locals(values.get(waiting.pop(), ())) - needed
            needed |= new
            waiting += new
        self.locals = {}
        for name in (n for n in values if n in needed and n not in self.facts.unknown):
            dtype = values[name][0].dtype
            self.locals[name] = Value(c.Id(self.w.fresh(name)), dtype)
            self.line(f"{type_name(dtype, 0)} {expression(self.locals[name].x)} = 0;")

    def block(self, body: tuple[ir.Stmt, ...]) -> None:
        for s in body:
            self.where = s.where
            match s:
                case ir.For():
                    self.loop(s)
                case ir.SetLocal(name, value) | ir.UpdateLocal(name, _, value):
                    self.look(value, name in self.locals)
                    if name in self.locals:
                        self.assign(s, self.locals[name])
                    if name in self.set_once and value.dtype.is_integer:
                        self.facts.of_locals[name] = self.facts.range_of(value)
                case ir.Store() | ir.Update():
                    for e in s.indices:
                        self.look(e, True)
                    self.look(s.value, False)
                    self.check(s.array, s.indices, False)
                case ir.Print() | ir.Assert() | ir.LocalArray() | ir.SetElement():
                    for e in children(s):
                        self.look(e, False)
                case ir.If(condition, then, orelse):
                    self.look(condition, not self.facts.is_unknown(condition))
                    if not self.facts.is_unknown(condition):
                        test = self.text(condition)
                        before = self.around
                        with self.nested(f"if ({test}) {{"):
                            self.around = where(condition, before)
                            self.block(then)
                        with self.nested(f"if (!({test})) {{"):
                            self.around = where_not(condition, before)
                            self.block(orelse)
                        self.around = before

    def assign(self, s: ir.SetLocal | ir.UpdateLocal, held: Value) -> None:
        value = self.w.converted(self.value(s.value), held.dtype)
        if isinstance(s, ir.UpdateLocal):
            value = self.w.combine(s.op, held, value)
        self.line(f"{expression(held.x)} = {expression(value.x)};")

    def loop(self, s: ir.For) -> None:
        is_unknown = self.facts.is_unknown(s.extent)
        self.look(s.extent, not is_unknown)
        around = self.around
        inside = in_loop(s, around)
        if is_unknown or inside is None:
            return
        self.facts.ranges[s.loop] = 0, self.facts.range_of(s.extent)[1] - 1
        if self.facts.depends_on_data(s.extent):
            self.facts.data_loops.add(s.loop)
        name, before = self.w.fresh(s.loop), self.proved
        if not self.is_exact:
            self.proved = before | self.hoist(s, inside)
        self.loops[s.loop] = c.Id(name)
        extent = self.text(s.extent)
        if any(local_changed(x) in _locals((s.extent,)) for x in nested_statements(s.body)):
            end = self.w.fresh(f"{s.loop}_end")
            self.line(f"const int64_t {end} = {extent};")
            extent = end
        with self.nested(f"for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{"):
            self.around = inside
            self.block(s.body)
        self.proved, self.around = before, around

    def hoist(self, s: ir.For, inside: Around) -> set[tuple[str, int, ir.Expr]]:
        """Writes, in front of loop `s`, checks for all of its iterations.

        Returns the checked (array, axis, index).
        Such an index is the loop's index plus a loop-invariant term, and every iteration accesses
        it. `inside`: the facts that hold in the loop.
        """
        changing = {local_changed(x) for x in nested_statements(s.body)}
        inner = {x.loop for x in nested_statements(s.body) if isinstance(x, ir.For)} | {s.loop}
        found = set[tuple[str, int, ir.Expr]]()
        for array, indices in always_accessed(s.body):
            for axis, index in enumerate(indices if array not in self.trusted else ()):
                rest = beside(index, s.loop)
                if rest is None or not self.needs_check(array, axis, index, True):
                    continue
                if stays(inside, index, self.shapes[array][axis]):
                    continue
                parts = list(walk(rest))
                if any(isinstance(x, ir.Local) and x.name in changing for x in parts) or any(
                    isinstance(x, ir.LoopIndex) and x.loop in inner for x in parts
                ):
                    continue
                self.look(rest, True)
                n, first, extent = self.shapes[array][axis], self.index(rest), self.text(s.extent)
                far = f"(uint64_t)({first}) + (uint64_t)({extent}) > {n}"
                self.line(
                    f"if (({extent}) > 0 && (({first}) < 0 || ({extent}) > {n} || {far})) return 1;"
                )
                self.n_checks += 1
                found.add((array, axis, index))
        return found

    # --- expressions

    def look(self, e: ir.Expr, is_loaded: bool) -> None:
        """Writes the checks of all loads in expression `e`, inner loads first.

        `is_loaded`: the checking function evaluates `e` itself, so an index out of range would make
        it read outside.
        """
        for part in children(e):
            self.look(part, is_loaded or isinstance(e, ir.Load))
        if isinstance(e, ir.Load):
            self.check(e.array, e.indices, is_loaded)

    def needs_check(self, array: str, axis: int, index: ir.Expr, is_loaded: bool) -> bool:
        low, high = self.facts.range_of(index)
        if (low >= 0 and high < self.shapes[array][axis]) or (array, axis, index) in self.proved:
            return False
        if self.facts.is_unknown(index) or stays(self.around, index, self.shapes[array][axis]):
            return False
        return (
            is_loaded
            or self.facts.depends_on_data(index)
            or self.may_leave_unseen(array, axis, index)
        )

    def may_leave_unseen(self, array: str, axis: int, index: ir.Expr) -> bool:
        """True if an affine index may be out of range although no earlier check has rejected it.

        The check at definition skips an index if data decide whether control reaches it.
        """
        x = to_affine(index)
        if self.around.is_known or x is None or not self.around.has(x):
            return False
        return self.around.may_leave(x, self.shapes[array][axis])

    def check(self, array: str, indices: tuple[ir.Expr, ...], is_loaded: bool) -> None:
        for axis, index in enumerate(indices if array not in self.trusted else ()):
            if not self.needs_check(array, axis, index, is_loaded):
                continue
            n = self.shapes[array][axis]
            self.n_checks += 1
            self.sites.append(
                IndexSite(self.kernel, self.where, array, axis, n, f"`{show_expr(index)}`")
            )
            # As unsigned numbers negative ones are large. The narrower they are, the more fit a vector.
            plain = without_widening(index)
            is_narrow = plain.dtype is ir.DType.i32 and n < 1 << 31
            if self.plain_indices and isinstance(plain, ir.Binary):
                is_narrow = False  # a long then
            text = self.text(plain) if is_narrow else self.index(plain)
            test = f"(uint{32 if is_narrow else 64}_t)({text}) >= {n}u"
            if self.is_exact:
                text = self.index(index)
                self.line(f"if ({test}) {{ *value = {text}; return {len(self.sites)}; }}")
            else:
                self.line(f"if ({test}) return 1;" if is_loaded else f"bad |= {test};")

    def index(self, e: ir.Expr) -> str:
        """Returns index `e` as C text, computed as the checked code computes it."""
        return expression(self.index_value(e))

    def index_value(self, e: ir.Expr) -> c.CExpr:
        if self.plain_indices:
            return index_of(e, self.loops, lambda x: self.value(x).x)
        return self.value(e).x

    def text(self, e: ir.Expr) -> str:
        return expression(self.value(e).x)

    def value(self, e: ir.Expr) -> Value:
        def leaf(x: ir.Expr) -> Value:
            match x:
                case ir.Load(array, indices, dtype):
                    flat: c.CExpr = c.Num("0")
                    for i, stride in zip(indices, row_strides(self.shapes[array]), strict=True):
                        at = self.index_value(i)
                        flat = c.add(flat, at if stride == 1 else c.Bin("*", at, c.number(stride)))
                    return Value(c.Index(c.Id(self.w.names[array]), flat), dtype)
                case ir.LoopIndex(loop, dtype):
                    return Value(c.CastTo(type_name(dtype, 0), self.loops[loop]), dtype)
                case ir.Local(name):
                    return self.locals[name]
            raise AssertionError(x)

        return self.w.evaluate(e, leaf)


def _locals(found: Iterator[ir.Expr] | Sequence[ir.Expr]) -> set[str]:
    return {x.name for e in found for x in walk(e) if isinstance(x, ir.Local)}
