"""Bodies of non-affine tasks: their statements, with all memory accesses of the statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property, lru_cache
from typing import Literal

from . import kernel as ir
from .access import ALWAYS, Access, AxisMap, Guard, State
from .affine import Affine, combine, constant, index_range, to_affine, unclamped
from .domain import UNBOUNDED, Count, Loop, Residue
from .on_trees import NO_TREES, OnTrees
from .walk import Renaming, children, local_changed, locals_read, nested_statements, walk

FAR = 1 << 60  # no bound on this side

SiteOp = Literal["load", "store", "update"]
Shape = Literal["straight", "guarded", "loops"]


class Closure(Enum):
    """Kinds of reasons for which a task is non-affine."""

    BRANCH = "branch"  # control flow that depends on values
    RANGE = "range"  # a loop whose extent is no constant
    INDEX = "index"  # that is not affine in the loops
    CARRIED = "carried"  # a value from one iteration to another, and no recognised reduction
    ORDER = "order"  # of updates, which fast_math=False fixes
    TYPE = "type"  # of values, which are not computed in vectors
    IN_TURN = "in turn"  # interleaved stores to neighbouring elements, which separate loops would visit one by one


@dataclass(frozen=True)
class Reason:
    """Reason for which a task is non-affine: `text` has no verb ("an if around a store")."""

    kind: Closure
    text: str
    where: ir.Location


@dataclass(frozen=True)
class Site:
    """Access in a body: a position in the text at which a state (array version) is read or written.

    `number` counts accesses in the order of the text.
    `loops` are the loops of the body around the access. `operator` is that of an update. `is_unique`: no two iterations of the
    task's loops touch one element by this access.
    """

    number: int
    op: SiteOp
    state: State
    index: tuple[AxisMap, ...]
    guard: Guard = ALWAYS
    loops: tuple[Loop, ...] = ()
    is_unique: bool = False
    operator: ir.ReduceOp | None = None

    @property
    def reads(self) -> bool:
        return self.op in ("load", "update")

    @property
    def writes(self) -> bool:
        return self.op in ("store", "update")


@dataclass(frozen=True)
class Body:
    """Body of a non-affine task: `statements` run once per iteration of the task's loops.

    Locals belong to one iteration.
    `shape` is "straight" if every statement always runs, and "guarded" if some are in branches. It is "loops" if the number of
    iterations of a loop inside is known only at run time. `reason`: why the task is no assignment over a band of loops.
    """

    statements: tuple[ir.Stmt, ...]
    sites: tuple[Site, ...]
    shape: Shape
    reason: Reason = field(compare=False)
    trees: OnTrees = NO_TREES

    @cached_property
    def _hash(self) -> int:
        return hash((self.statements, self.sites, self.shape, self.trees))

    def __hash__(self) -> int:
        """Hash by value, computed once: a body may have thousands of expressions, and is a key of many tables."""
        return self._hash


def access_at(site: Site, loops: Sequence[Loop]) -> Access:
    """Returns the affine index per axis of an access of a body, in terms of `loops` of its task.

    An axis whose index depends on anything else counts as not affine.
    """
    own = {loop.name for loop in loops}
    return Access(
        site.state.name,
        tuple(
            x.plain if x.plain and {n for n, _ in x.plain.terms} <= own else None
            for x in site.index
        ),
    )


def loads_of(value: ir.Expr, loops: Sequence[Loop]) -> tuple[Site, ...]:
    """Returns the loads of one expression over `loops`, in reading order.

    Their flag `is_unique` is not computed.
    """
    return _loads_of(value, tuple(loops))


@lru_cache(maxsize=1 << 12)  # long programs are made of few different tasks
def _loads_of(value: ir.Expr, loops: tuple[Loop, ...]) -> tuple[Site, ...]:
    reader = SiteReader(loops, ())
    reader.read(value, ALWAYS, ())
    return tuple(reader.sites)


def guard_where(condition: ir.Expr, loops: Sequence[Loop]) -> Guard:
    """Returns the guard (bounds on `loops`) under which a condition holds.

    Numbers in `data` are those of the condition's loads.
    """
    return _guard_where(condition, tuple(loops))


@lru_cache(maxsize=1 << 12)
def _guard_where(condition: ir.Expr, loops: tuple[Loop, ...]) -> Guard:
    reader = SiteReader(loops, ())
    reader.read(condition, ALWAYS, ())
    sites = frozenset(range(len(reader.sites)))
    return reader.narrowed(ALWAYS, condition, True, sites)


class SiteReader:
    """Collector of the accesses of statements.

    Locals whose value is a function of loop indices are substituted in indices.
    """

    def __init__(
        self,
        loops: tuple[Loop, ...],
        statements: tuple[ir.Stmt, ...],
        lists: frozenset[str] = frozenset(),
    ) -> None:
        self.loops, self.lists = loops, lists
        self.listed: dict[str, tuple[str, str]] = {}  # local -> (loop, list) that it is a number of
        self.sites: list[Site] = []
        self.known: dict[str, ir.Expr] = {}
        self.behind: dict[str, frozenset[int]] = {}  # local -> sites that its value comes from
        changed = Counter(map(local_changed, nested_statements(statements)))
        self.once = {name for name, n in changed.items() if name and n == 1}

    # --- statements

    def block(self, body: Iterable[ir.Stmt], guard: Guard, around: tuple[Loop, ...]) -> None:
        for s in body:
            first = len(self.sites)
            if isinstance(s, ir.While):
                self.forget(s.body)  # the condition is read again behind it
            for e in children(s):
                self.read(e, guard, around)
            here = frozenset(range(first, len(self.sites)))
            match s:
                case ir.For():
                    self.loop(s, guard, around, here)
                case ir.If():
                    self.branch(s, guard, around)
                case ir.SetLocal():
                    self.set(s, here, guard)
                case ir.While():
                    data = tuple(sorted({*guard.data, *self.deciding(s.condition, here)}))
                    self.block(s.body, replace(guard, data=data, is_exact=False), around)
                    self.forget(s.body)
                case ir.UpdateLocal() | ir.LocalArray() | ir.SetElement():
                    self.known.pop(s.name, None)
                    self.comes_from(s.name, s.value, here, guard)
                case ir.Store():
                    self.site("store", s.array, s.indices, guard, around)
                case ir.Update():
                    self.site("update", s.array, s.indices, guard, around, s.op)
                    if s.result:
                        self.known.pop(s.result, None)
                        self.comes_from(s.result, s.value, here | {len(self.sites) - 1}, guard)

    def set(self, s: ir.SetLocal, here: frozenset[int], guard: Guard) -> None:
        value = self.resolved(s.value)
        listed = self.in_list(value) if s.name in self.once else None
        if listed is not None:
            self.listed[s.name] = listed
        unknown = (
            x for x in walk(value) if isinstance(x, ir.Load | ir.Local | ir.LocalElement | ir.Param)
        )
        if any(not isinstance(x, ir.Local) or x.name not in self.listed for x in unknown):
            self.known.pop(s.name, None)
        else:
            self.known[s.name] = value
        self.comes_from(s.name, s.value, here, guard)

    def in_list(self, value: ir.Expr) -> tuple[str, str] | None:
        """Returns the loop and the list if a value is the list's element at the index of that loop; else None.

        The loop is one of the task, and the element is in the list's first row.
        """
        while isinstance(value, ir.Cast):
            value = value.x
        match value:
            case ir.Load(array, (ir.Const(value=0), ir.LoopIndex(loop))) if array in self.lists:
                return (loop, array) if any(x.name == loop for x in self.loops) else None
        return None

    def comes_from(self, name: str, value: ir.Expr, here: frozenset[int], guard: Guard) -> None:
        """Records the accesses that the value of a local depends on.

        These are the loads of its operands, and of the conditions under which it is set.
        """
        found = self.deciding(value, here).union(guard.data)
        self.behind[name] = self.behind.get(name, frozenset()) | found

    def branch(self, s: ir.If, guard: Guard, around: tuple[Loop, ...]) -> None:
        # The reads of the condition are the last sites there are.
        n = sum(isinstance(x, ir.Load) for x in walk(s.condition))
        data = self.deciding(s.condition, frozenset(range(len(self.sites) - n, len(self.sites))))
        before = dict(self.known)
        self.block(s.then, self.narrowed(guard, s.condition, True, data), around)
        self.known = dict(before)
        self.block(s.orelse, self.narrowed(guard, s.condition, False, data), around)
        self.known = before
        self.forget((*s.then, *s.orelse))

    def loop(self, s: ir.For, guard: Guard, around: tuple[Loop, ...], here: frozenset[int]) -> None:
        self.forget(s.body)
        extent = self.affine(unclamped(self.resolved(s.extent)))
        loop = Loop(s.loop, UNBOUNDED, False, count_of(s))
        if extent is not None and not extent.terms:
            loop = Loop(s.loop, max(0, extent.const), False)
        elif extent is not None:
            most = self.range_of(extent, around)[1]
            loop = Loop(s.loop, max(0, most), False, count_of(s))
            behind = combine([(1, Affine(0, ((s.loop, 1),))), (-1, replace(extent, const=0))])
            guard = _bounded(guard, behind, -FAR, extent.const)
        else:
            data = tuple(sorted({*guard.data, *self.deciding(s.extent, here)}))
            guard = replace(guard, data=data, is_exact=False)
        self.block(s.body, guard, (*around, loop))
        self.forget(s.body)

    def forget(self, body: tuple[ir.Stmt, ...]) -> None:
        """Removes the known values of locals that `body` changes: they are unknown before and behind the body."""
        for s in nested_statements(body):
            self.known.pop(local_changed(s), None)

    # --- expressions

    def resolved(self, e: ir.Expr) -> ir.Expr:
        return Renaming(locals=self.known).apply(e)

    def affine(self, e: ir.Expr) -> Affine | None:
        return to_affine(self.resolved(e))

    def range_of(self, x: Affine, around: tuple[Loop, ...]) -> tuple[int, int]:
        return index_range(x, {loop.name: loop.extent for loop in (*self.loops, *around)})

    def deciding(self, e: ir.Expr, here: frozenset[int]) -> frozenset[int]:
        """Returns numbers of the accesses whose values an expression depends on; `here` are its own loads."""
        names = locals_read(e)
        return here.union(*(self.behind.get(name, frozenset()) for name in names))

    def read(self, e: ir.Expr, guard: Guard, around: tuple[Loop, ...]) -> None:
        match e:
            case ir.Load():
                self.site("load", e.array, e.indices, guard, around)
                for i in e.indices:
                    self.read(i, guard, around)
            case ir.Select():
                first = len(self.sites)
                self.read(e.condition, guard, around)
                either = self.unsure(guard, e.condition, first)
                self.read(e.a, either, around)
                self.read(e.b, either, around)
            case ir.Binary(op="and" | "or"):
                first = len(self.sites)
                self.read(e.a, guard, around)
                self.read(e.b, self.unsure(guard, e.a, first), around)
            case _:
                for part in children(e):
                    self.read(part, guard, around)

    def unsure(self, guard: Guard, condition: ir.Expr, first: int) -> Guard:
        """Returns the guard of operands that are evaluated only for some values of a condition.

        It adds no bounds: both sides of a selection may be evaluated. `first`: the number of the condition's first load.
        """
        data = self.deciding(condition, frozenset(range(first, len(self.sites))))
        return replace(guard, data=tuple(sorted({*guard.data, *data})), is_exact=False)

    def site(
        self,
        op: SiteOp,
        array: str,
        indices: tuple[ir.Expr, ...],
        guard: Guard,
        around: tuple[Loop, ...],
        operator: ir.ReduceOp | None = None,
    ) -> None:
        index = tuple(self.axis(self.resolved(i), around) for i in indices)
        state = State("value", array)
        found = Site(len(self.sites), op, state, index, guard, around, operator=operator)
        self.sites.append(found)

    def axis(self, e: ir.Expr, around: tuple[Loop, ...]) -> AxisMap:
        plain = to_affine(e)
        if plain is not None:
            return AxisMap(plain)
        through = {self.listed[n] for n in locals_read(e) if n in self.listed}
        if len(through) == 1:
            ((loop, array),) = through
            names = {
                n: ir.LoopIndex(loop, ir.DType.i64) for n in locals_read(e) if n in self.listed
            }
            plain = to_affine(Renaming(locals=names).apply(e))
            if plain is not None and loop in {n for n, _ in plain.terms}:
                return AxisMap(plain, through=array)
        match e:
            case ir.Cast(x=x) if x.dtype.is_integer and e.dtype.is_index:
                return self.axis(x, around)
            case ir.Binary(op="floordiv", a=a, b=ir.Const(value=int(d))) if d > 0:
                inner = self.axis(a, around)
                if inner.affine is not None:
                    return AxisMap(inner.affine, inner.divisor * d)
            case ir.Binary(op="add" | "sub"):
                return self.sum(e, around)
            case ir.Local() if e.name in self.once:
                return AxisMap(None, 1, (e.name, 0, 0))
        return AxisMap(None)

    def sum(self, e: ir.Binary, around: tuple[Loop, ...]) -> AxisMap:
        """Returns the index map of a sum or difference: `floor(a / d) + b` is `floor((a + d b) / d)`.

        A local that depends on data plus an affine function of loops inside the body gets a window.
        """
        for x, other in ((e.a, e.b), (e.b, e.a)):
            b = to_affine(other)
            if b is None or (e.op == "sub" and x is e.b):
                continue
            b = combine([(-1 if e.op == "sub" else 1, b)])
            inner = self.axis(x, around)
            if inner.affine is not None:
                shifted = combine([(1, inner.affine), (inner.divisor, b)])
                return AxisMap(shifted, inner.divisor)
            if inner.window is not None and {n for n, _ in b.terms} <= {n.name for n in around}:
                name, least, largest = inner.window
                low, high = self.range_of(b, around)
                return AxisMap(None, 1, (name, least + low, largest + high))
        return AxisMap(None)

    # --- guards

    def narrowed(self, guard: Guard, e: ir.Expr, holds: bool, data: frozenset[int]) -> Guard:
        """Returns the conjunction of `guard` and condition `e`, or of `guard` and `not e` if `holds` is False.

        `data`: numbers of the accesses that the condition depends on.
        """
        match e:
            case ir.Unary(op="not", x=x):
                return self.narrowed(guard, x, not holds, data)
            case ir.Binary(op=op) if op == ("and" if holds else "or"):
                return self.narrowed(self.narrowed(guard, e.a, holds, data), e.b, holds, data)
            case ir.Compare():
                found = self.compared(guard, e, holds)
                if found is not None:
                    return found
            case ir.Const():
                if bool(e.value) == holds:
                    return guard
        return replace(guard, data=tuple(sorted({*guard.data, *data})), is_exact=False)

    def compared(self, guard: Guard, e: ir.Compare, holds: bool) -> Guard | None:
        """Returns `guard` with a comparison of affine values, or with its negation if `holds` is False.

        None if no bounds or residues express it.
        """
        op = e.op if holds else _NEGATED[e.op]
        a, b = self.resolved(e.a), self.resolved(e.b)
        if (
            op in ("eq", "ne")
            and isinstance(a, ir.Binary)
            and a.op == "mod"
            and isinstance(a.b, ir.Const)
        ):
            x, remainder = to_affine(a.a), to_affine(b)
            modulus = int(a.b.value)
            if op == "ne" and modulus == 2 and remainder is not None:
                remainder = combine([(-1, remainder), (1, constant(1))])
            elif op == "ne":
                return None
            if x is not None and remainder is not None and not remainder.terms and modulus > 0:
                if not 0 <= remainder.const < modulus:
                    return None
                part = Residue(x, modulus, remainder.const)
                return replace(guard, residues=(*guard.residues, part))
        x, y = to_affine(a), to_affine(b)
        if x is None or y is None:
            return None
        difference = combine([(1, x), (-1, y)])
        terms, value = replace(difference, const=0), -difference.const
        match op:
            case "lt":
                return _bounded(guard, terms, -FAR, value)
            case "le":
                return _bounded(guard, terms, -FAR, value + 1)
            case "gt":
                return _bounded(guard, terms, value + 1, FAR)
            case "ge":
                return _bounded(guard, terms, value, FAR)
            case "eq":
                return _bounded(guard, terms, value, value + 1)
            case _:
                return None


_NEGATED: dict[ir.CompareOp, ir.CompareOp] = {
    "lt": "ge",
    "ge": "lt",
    "le": "gt",
    "gt": "le",
    "eq": "ne",
    "ne": "eq",
}


def _bounded(guard: Guard, affine: Affine, low: int, high: int) -> Guard:
    """Returns `guard` with the additional bounds low <= affine < high."""
    return replace(guard, bounds=(*guard.bounds, (affine, low, high)))


def count_of(s: ir.For) -> Count:
    """Returns the source of a loop's number of iterations: an argument, or a value computed at the loop.

    The number is known only at run time.
    """
    e = unclamped(s.extent)
    while isinstance(e, ir.Cast):
        e = e.x
    return Count("argument", e.name) if isinstance(e, ir.Param) else Count("value", s.loop)
