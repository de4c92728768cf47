"""Loop distribution, first half: statements of one kernel as a flat list, with locals in single-assignment form.

`flatten` walks a nest once. Locals become numbered versions: a `Define` (a pure expression) or a `Reduce` (initialised outside the
loops that update it). Other statements raise `NotStructuredError`, and the nest becomes the body of a non-affine task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NoReturn

from ..ir import kernel as ir
from ..ir.affine import expression, to_affine
from ..ir.body import Closure, Reason
from ..ir.domain import Loop
from ..ir.walk import (
    Renaming,
    children,
    coerced,
    is_neutral,
    loads,
    local_changed,
    locals_read,
    nested_statements,
    neutral_of,
    size,
    walk,
)
from .extremes import (
    Extreme,
    Shapes,
    at_place,
    counted,
    extreme_of,
    extremes_in,
    has_payload,
    is_better,
    is_exact,
    only_at,
    place_of,
    tested_apart,
)
from .flags import as_number, both, joined_flags, where
from .guards import Conditions, conjunction, negated

# Reduction operators of structured tasks; other associative operators lack a reduction on some target.
REDUCED: tuple[ir.ReduceOp, ...] = ("add", "mul", "min", "max")
MAX_INLINED_NODES = 256  # beyond this a repeated expression is stored, not recomputed


class NotStructuredError(Exception):
    """The statements of a nest have no affine form: the nest becomes a non-affine task with this reason."""

    def __init__(self, kind: Closure, text: str, where: ir.Location) -> None:
        super().__init__(text)
        self.reason = Reason(kind, text, where)


Path = tuple[
    Loop, ...
]  # enclosing loops, outermost first, behind the steps of repeats; names are unique in the kernel


@dataclass(frozen=True)
class Define:
    """Flat statement: defines version `name` of a local as the pure `value`, per iteration of the loops `path`."""

    name: str
    path: Path
    value: ir.Expr
    where: ir.Location = field(default=ir.NOWHERE, compare=False)
    conditions: Conditions = ()  # where it is wanted; it may be computed elsewhere
    is_stored: bool = False  # all that read it need one value: it is not computed again


@dataclass(frozen=True)
class Reduce:
    """Flat statement: defines version `name` of a local as a reduction, per iteration of the loops `path`.

    Its value is `init op (reduction of value over the loops over)`.
    """

    name: str
    path: Path
    over: Path
    op: ir.ReduceOp
    value: ir.Expr
    init: ir.Expr
    where: ir.Location = field(default=ir.NOWHERE, compare=False)
    conditions: Conditions = ()  # where it is wanted; it may be computed elsewhere


@dataclass(frozen=True)
class ArrayAssignment:
    """Flat statement: `array[indices] = value`, or `op=` if `op` is given, where all `conditions` hold."""

    array: str
    indices: tuple[ir.Expr, ...]
    value: ir.Expr
    op: ir.ReduceOp | None
    path: Path
    where: ir.Location = field(default=ir.NOWHERE, compare=False)
    conditions: Conditions = ()


Flat = Define | Reduce | ArrayAssignment


@dataclass(frozen=True)
class _Open:
    """State of a local during the traversal of a loop that updates it: loops and conditions around that loop."""

    base: Path
    conditions: Conditions = ()


def constant_extent(e: ir.Expr) -> int | None:
    """The number of iterations of a loop with extent `e` if it is constant, at least 0; else None."""
    affine = to_affine(e)
    return None if affine is None or affine.terms else max(0, affine.const)


def unique_loops(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    """Returns `body` with loops renamed to unique names (`name@number`), and without loops that never run."""
    names = {s.loop for s in nested_statements(body) if isinstance(s, ir.For)}
    return _unique(body, names, count(1), {})


def _user_name(loop: str, names: set[str]) -> str:
    """The loop's name in the source: `j` for `j_2`, by which the frontend names the kernel's third loop over j."""
    base, _, number = loop.rpartition("_")
    return base if number.isdigit() and base in names else loop


def _unique(
    body: tuple[ir.Stmt, ...],
    names: set[str],
    numbers: Iterator[int],
    around: Mapping[str, ir.Expr],
) -> tuple[ir.Stmt, ...]:
    """Returns statements with unique names of loops, and without loops that never run.

    `around`: the new indices of the loops around, by their former names.
    """
    renaming, result = Renaming(loops=around), list[ir.Stmt]()
    for s in body:
        match s:
            case ir.For():
                if constant_extent(s.extent) == 0:
                    continue
                name, extent = f"{_user_name(s.loop, names)}@{next(numbers)}", s.extent
                inner = _unique(s.body, names, numbers, {**around, s.loop: ir.LoopIndex(name)})
                result.append(replace(s, loop=name, extent=renaming.apply(extent), body=inner))
            case ir.If():
                then, orelse = (_unique(x, names, numbers, around) for x in (s.then, s.orelse))
                condition = renaming.apply(s.condition)
                result.append(replace(s, condition=condition, then=then, orelse=orelse))
            case ir.While():
                inner = _unique(s.body, names, numbers, around)
                result.append(replace(s, condition=renaming.apply(s.condition), body=inner))
            case _:
                result.append(renaming.apply_stmt(s) if around else s)
    return tuple(result)


def flatten(
    body: tuple[ir.Stmt, ...], fast_math: bool, shapes: Shapes, steps: Path = ()
) -> tuple[Flat, ...]:
    """Returns the flat statements of `body` in program order, inside of the time loops `steps`.

    Loops in `body` have unique names. `shapes` are those of its arrays. Raises NotStructuredError.
    """
    walker = _Walker(fast_math, shapes)
    walker.statements(tested_apart(joined_flags(body), shapes), steps)
    return tuple(walker.flat)


def first_branch(body: tuple[ir.Stmt, ...]) -> Reason | None:
    """Returns the reason why `body` stays non-affine if its branches cannot be if-converted: its first `if`.

    None if it has no branch.
    """
    for s in nested_statements(body):
        if isinstance(s, ir.If):
            text = f"an if around {_first_written((*s.then, *s.orelse))}"
            return Reason(Closure.BRANCH, text, s.where)
    return None


class _Walker:
    def __init__(self, fast_math: bool, shapes: Shapes) -> None:
        self.fast_math = fast_math
        self.shapes = shapes
        self.flat: list[Flat] = []
        self.env: dict[str, ir.Expr | _Open] = {}
        self.reduced: dict[str, ir.Expr] = {}  # open locals: base, then the chain of reductions
        # Extremes whose loop is being walked, by the local of the best value; the values before the loop of all their locals.
        self.extremes: dict[str, tuple[Extreme, dict[str, ir.Expr]]] = {}
        self.n_versions: dict[str, int] = {}
        self.where = ir.NOWHERE  # of the current statement
        self.conditions: Conditions = ()  # under which it runs

    def statements(self, body: tuple[ir.Stmt, ...], path: Path) -> None:
        for s in body:
            self.statement(_as_update(s), path)

    def fail(self, kind: Closure, text: str) -> NoReturn:
        raise NotStructuredError(kind, text, self.where)

    def statement(self, s: ir.Stmt, path: Path) -> None:
        self.where = s.where
        if isinstance(s, ir.UpdateLocal | ir.Update) and s.op not in REDUCED:
            s = self.in_place(s, path)
        for e in children(s):
            self.look_at_types(e)
        match s:
            case ir.For():
                self.loop(s, path)
            case ir.SetLocal():
                self.define(s.name, self.read(s.value), path)
            case ir.UpdateLocal():
                self.update(s, path)
            case ir.Store():
                indices = tuple(self.read(i) for i in s.indices)
                self.assign(s, indices, None, path)
            case ir.Update():
                if s.result:
                    self.fail(Closure.CARRIED, f"the old value of {s.array}, which an update gives")
                indices = tuple(self.read(i) for i in s.indices)
                self.assign(s, indices, s.op, path)
            case ir.If():
                self.branch(s, path)
            case ir.LocalArray():
                self.fail(Closure.CARRIED, f"the local array {s.name}")
            case ir.While():
                self.fail(Closure.BRANCH, f"a while loop around {_first_written(s.body)}")
            case ir.Print():
                self.fail(Closure.ORDER, "a print")

    def in_place(self, s: ir.UpdateLocal | ir.Update, path: Path) -> ir.Stmt:
        """Returns an update by an operator outside `REDUCED`, rewritten as an assignment.

        Only possible if each iteration updates its own element. Raises NotStructuredError otherwise.
        """
        if isinstance(s, ir.UpdateLocal) or s.result or any(_is_summed(x, s.indices) for x in path):
            self.fail(Closure.TYPE, f"an update by {s.op}")
        dtype = s.value.dtype
        value = ir.Binary(s.op, ir.Load(s.array, s.indices, dtype), s.value, dtype)
        return ir.Store(s.array, s.indices, value, s.where)

    def assign(
        self,
        s: ir.Store | ir.Update,
        indices: tuple[ir.Expr, ...],
        op: ir.ReduceOp | None,
        path: Path,
    ) -> None:
        indices = tuple(_without_cancelled(i) for i in indices)
        made = ArrayAssignment(
            s.array, indices, self.read(s.value), op, path, s.where, self.conditions
        )
        if op is not None and self.conditions and any(_is_summed(x, indices) for x in path):
            # A term left out of a reduction becomes the neutral element.
            made = replace(made, value=self.wanted(op, made.value, ()), conditions=())
        self.flat.append(made)

    def wanted(self, op: ir.ReduceOp, value: ir.Expr, outer: Conditions) -> ir.Expr:
        """Returns `value` selected by the present conditions except `outer`, else the neutral element of `op`."""
        condition = conjunction(self.conditions[len(outer) :])
        if condition is None:
            return value
        if value.dtype is ir.DType.bool_:
            return where(op, condition, value)
        return ir.Select(condition, value, neutral_of(op, value.dtype), value.dtype)

    def branch(self, s: ir.If, path: Path) -> None:
        """Flattens both sides of a branch, one after the other, each under its condition.

        Behind them it defines the locals that they set as selections between both values.
        """
        extreme = extreme_of(s, self.shapes)
        if extreme is not None and extreme.best in self.extremes:
            self.extreme(extreme, path)
            return
        condition = self.read(s.condition)
        if loads(condition) or locals_read(condition):
            version = self.version("condition")
            self.flat.append(Define(version, path, condition, s.where, self.conditions))
            condition = ir.Local(version, condition.dtype)
        before, outer = dict(self.env), self.conditions
        self.conditions = (*outer, condition)
        self.statements(s.then, path)
        then, self.env = self.env, dict(before)
        self.conditions = (*outer, negated(condition))
        self.statements(s.orelse, path)
        orelse, self.env, self.conditions = self.env, dict(before), outer
        self.where = s.where
        for name in dict.fromkeys((*then, *orelse)):
            a, b = then.get(name), orelse.get(name)
            if a == b:
                continue
            if a is None or b is None or isinstance(a, _Open) or isinstance(b, _Open):
                self.env.pop(name, None)  # set on one side only
            else:
                self.define(name, ir.Select(condition, a, coerced(b, a.dtype), a.dtype), path)

    def look_at_types(self, value: ir.Expr) -> None:
        """Raises NotStructuredError for arithmetic on f16.

        Without vectors, each operation would be rounded by itself.
        """
        for x in walk(value):
            if x.dtype is ir.DType.f16:
                self.fail(Closure.TYPE, f"arithmetic on {x.dtype.name}")

    def read(self, e: ir.Expr) -> ir.Expr:
        """Returns `e` with locals replaced by their current versions."""
        versions: dict[str, ir.Expr] = {}
        for name in locals_read(e):
            found = self.env.get(name)
            if found is None or isinstance(found, _Open):
                self.fail(
                    Closure.CARRIED, f"{name}, whose value goes from one iteration to the next"
                )
            versions[name] = found
        return Renaming(locals=versions).apply(e)

    def version(self, name: str) -> str:
        self.n_versions[name] = self.n_versions.get(name, 0) + 1
        return f"{name}#{self.n_versions[name]}"

    def define(self, name: str, value: ir.Expr, path: Path) -> None:
        if not loads(value) and not locals_read(value) and size(value) <= 32:
            self.env[name] = value  # valid wherever it is visible: it depends on no memory
            return
        version = self.version(name)
        self.flat.append(Define(version, path, value, self.where, self.conditions))
        self.env[name] = ir.Local(version, value.dtype)

    def loop(self, s: ir.For, path: Path) -> None:
        extent = constant_extent(s.extent)
        if extent is None:
            loops = [e.loop for e in walk(s.extent) if isinstance(e, ir.LoopIndex)]
            text = f"that depends on {user_loop(loops[0])}" if loops else "known only at run time"
            self.fail(Closure.RANGE, f"a range {text}")
        inside = tuple(_as_update(x) for x in nested_statements(s.body))
        set_inside = {x.name for x in inside if isinstance(x, ir.SetLocal)}
        updated = {x.name for x in inside if isinstance(x, ir.UpdateLocal)} - set_inside
        extremes = self.begin_extremes(s, path)
        set_inside -= {name for e, _ in self.extremes.values() for name in e.names}
        for name in set_inside:
            self.env.pop(name, None)
        opened = {n: self.env[n] for n in updated if n in self.env}
        closing = {n: e for n, e in opened.items() if not isinstance(e, _Open)}
        for name in closing:
            self.start_reduction(name, path, inside)
        self.statements(s.body, (*path, Loop(s.loop, extent, False)))
        for name in set_inside:
            self.env.pop(name, None)  # the value of the last iteration is not followed
        for name in closing:
            self.env[name] = self.reduced.pop(name)
        for name in extremes:
            _, starts = self.extremes.pop(name)
            self.env |= {n: self.reduced.pop(n, start) for n, start in starts.items()}

    def begin_extremes(self, s: ir.For, path: Path) -> list[str]:
        """Begins the extremes of a loop; returns the locals of the best values.

        The locals have values before the loop.
        """
        begun: list[str] = []
        for e in extremes_in(s, self.shapes):
            known = {n: x for n in e.names if (x := self.env.get(n)) is not None}
            starts = {n: x for n, x in known.items() if not isinstance(x, _Open)}
            if len(starts) == len(e.names):
                self.extremes[e.best] = e, starts
                self.env |= dict.fromkeys(e.names, _Open(path, self.conditions))
                begun.append(e.best)
        return begun

    def extreme(self, e: Extreme, path: Path) -> None:
        """Appends the reduction of an extreme, that of the number of the iteration that has it, and those of other locals."""
        (_, starts), opened = self.extremes[e.best], self.env[e.best]
        assert isinstance(opened, _Open)
        base, outer, over = opened.base, opened.conditions, path[len(opened.base) :]
        value, place = self.read(e.value), None
        if not is_exact(value):
            version = self.version(e.best)
            stored = bool(e.others)
            self.flat.append(Define(version, path, value, self.where, self.conditions, stored))
            value = ir.Local(version, value.dtype)

        def reduced(name: str, op: ir.ReduceOp, term: ir.Expr) -> ir.Local:
            version, start = self.version(name), neutral_of(op, term.dtype)
            term = self.wanted(op, term, outer)
            self.flat.append(Reduce(version, base, over, op, term, start, self.where, outer))
            return ir.Local(version, term.dtype)

        greatest = reduced(e.best, e.op, counted(e, value))
        if e.others:
            place = reduced(e.others[0][0], e.place_op, place_of(e, value, greatest, over))
        better = is_better(e, greatest, starts[e.best], place)
        self.reduced[e.best] = ir.Select(better, greatest, starts[e.best], greatest.dtype)
        for name, x in e.others:
            taken, start = self.read(x), starts[name]
            there = at_place(taken, place or greatest, over)
            if there is None and place is not None and has_payload(taken, self.fast_math):
                there = reduced(name, "mul", only_at(taken, place, over))
            if there is None:
                self.fail(Closure.CARRIED, f"{name}, which is read where {e.best} is found")
            self.reduced[name] = ir.Select(better, coerced(there, start.dtype), start, start.dtype)

    def start_reduction(self, name: str, path: Path, inside: tuple[ir.Stmt, ...]) -> None:
        updates = [x for x in inside if isinstance(x, ir.UpdateLocal) and x.name == name]
        if len({x.op for x in updates}) > 1:
            self.fail(Closure.CARRIED, f"updates of {name} by different operators in one loop")
        base = self.env[name]
        assert not isinstance(base, _Open)
        exact = self.fast_math or not base.dtype.is_float or updates[0].op in ("min", "max")
        if not exact and (len(updates) > 1 or not is_neutral(updates[0].op, base)):
            self.fail(Closure.ORDER, f"the updates of {name} in their order (fast_math=False)")
        self.reduced[name] = base
        self.env[name] = _Open(path, self.conditions)

    def update(self, s: ir.UpdateLocal, path: Path) -> None:
        found = self.env.get(s.name)
        if found is None:
            self.fail(Closure.CARRIED, f"{s.name}, which is updated before it is set")
        value = self.read(s.value)
        if not isinstance(found, _Open):
            self.define(s.name, both(s.op, found, value), path)
            return
        value = self.wanted(s.op, value, found.conditions)
        base, over = found.base, path[len(found.base) :]
        init = self.reduced[s.name]
        last = self.flat[-1] if self.flat else None
        if (
            isinstance(last, Reduce)
            and init == ir.Local(last.name, init.dtype)
            and last.over == over
        ):
            self.flat[-1] = replace(last, value=both(s.op, last.value, value))
            return
        version = self.version(s.name)
        self.flat.append(Reduce(version, base, over, s.op, value, init, s.where, found.conditions))
        self.reduced[s.name] = ir.Local(version, init.dtype)


def _is_summed(loop: Loop, indices: tuple[ir.Expr, ...]) -> bool:
    """True if an update at these indices is a reduction over `loop`: no index depends on the loop."""
    return not loop.is_step and not any(
        isinstance(x, ir.LoopIndex) and x.loop == loop.name for i in indices for x in walk(i)
    )


def _without_cancelled(index: ir.Expr) -> ir.Expr:
    """Returns an index without loops whose terms cancel, such as i in `i - i + j`."""
    affine = to_affine(index)
    named = {x.loop for x in walk(index) if isinstance(x, ir.LoopIndex)}
    if affine is None or named == {name for name, _ in affine.terms}:
        return index
    return expression(affine, index.dtype)


def user_loop(name: str) -> str:
    """The name of a loop without the number that makes it unique."""
    return name.split("@")[0]


def _first_written(body: tuple[ir.Stmt, ...]) -> str:
    """Description of the first lasting effect of a branch: a store, or a variable that it sets."""
    inside = list(nested_statements(body))
    if any(isinstance(x, ir.Store | ir.Update) for x in inside):
        return "a store"
    names = [local_changed(x) for x in inside if local_changed(x)]
    if names:
        return f"the variable {names[0]}"
    return "a print" if any(isinstance(x, ir.Print) for x in inside) else "nothing"


def _as_update(s: ir.Stmt) -> ir.Stmt:
    """Returns `x = x op e` rewritten as `x op= e`, for locals and array elements; others unchanged."""
    if not isinstance(s, ir.SetLocal | ir.Store) or not isinstance(s.value, ir.Binary):
        return s
    v = as_number(s.value)
    if v.op == "sub" and _is_own(s, v.a) and _is_free(s, v.b):
        return _update(s, "add", ir.Unary("neg", v.b, v.b.dtype))
    for op in (x for x in REDUCED if x == v.op):
        for own, other in ((v.a, v.b), (v.b, v.a)):
            if _is_own(s, own) and _is_free(s, other):
                return _update(s, op, other)
    return s


def _is_own(s: ir.SetLocal | ir.Store, e: ir.Expr) -> bool:
    """True if `e` reads the old value of the element or local to which `s` assigns."""
    if isinstance(s, ir.SetLocal):
        return isinstance(e, ir.Local) and e.name == s.name
    return isinstance(e, ir.Load) and e.array == s.array and e.indices == s.indices


def _is_free(s: ir.SetLocal | ir.Store, e: ir.Expr) -> bool:
    """True if `e` does not read the element or local to which `s` assigns."""
    if isinstance(s, ir.SetLocal):
        return s.name not in locals_read(e)
    return all(x.array != s.array for x in loads(e))


def _update(
    s: ir.SetLocal | ir.Store, op: ir.ReduceOp, value: ir.Expr
) -> ir.UpdateLocal | ir.Update:
    if isinstance(s, ir.SetLocal):
        return ir.UpdateLocal(s.name, op, value, s.where)
    return ir.Update(s.array, s.indices, op, value, s.where)


def full_path(s: Flat) -> Path:
    """Returns all loops around a flat statement, reduction loops included."""
    return (*s.path, *s.over) if isinstance(s, Reduce) else s.path


def reads_of(s: Flat) -> tuple[ir.Expr, ...]:
    """Returns the expressions that a flat statement evaluates."""
    match s:
        case Define():
            return (s.value,)
        case Reduce():
            return (s.value, s.init)
        case ArrayAssignment():
            return (*s.conditions, *s.indices, s.value)
