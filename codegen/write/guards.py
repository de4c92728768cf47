"""Guarded assignments: elements are stored where a condition holds; the others keep their values."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from ...kernels.ir import kernel as ir
from ...kernels.ir.access import access_of
from ...kernels.ir.affine import Affine
from ...kernels.ir.body import guard_where
from ...kernels.ir.domain import Residue
from ...kernels.ir.kernel import DType
from ...kernels.tasks.guards import conjunction, conjuncts
from ...space.families.guard import stride_of
from ...space.families.rows import shift_of
from ..bodies.iteration_point import LoopIndexAt, Point, affine_at, row_strides
from ..bodies.memory import Value
from ..plan.plan import TaskPlan
from ..text import csyntax as c
from ..text.types import mask_dtype
from .context import Context
from .emission import Emission
from .last_tiles import at_the_end
from .partial_tiles import Over
from .planned_values import Values
from .register_rotation import has_rows


@dataclass(frozen=True)
class _Tail:
    """A last register tile of vectors that ends with its loop, and so overlaps elements that are stored already.

    Lanes at loop indices before `start` are masked off.
    """

    loop: str
    start: c.CExpr


class GuardWriter:
    """Writer of tasks with a guard (a condition on their store); `write` is its entry."""

    def __init__(self, scene: Emission, values: Values) -> None:
        self.scene, self.values, self.w = scene, values, scene.w

    def write(self, task: TaskPlan, ctx: Context) -> None:
        """Writes the body of a guarded task at one place of the loop tree."""
        assert task.task.condition is not None
        plan = self.scene.plan
        self.how = plan.choice("guard", task.index)
        self.has_rows = has_rows(self.scene, task.index)
        self.values.begin_value(task, list(task.loops), ctx)
        parts = conjuncts(task.task.condition)
        residues = [(e, _residue_of(e, task)) for e in parts]
        self.residues = [x for _, x in residues if x is not None]
        self.rest = conjunction(tuple(e for e, x in residues if x is None))
        ctx, tail = self.without_elements(task, ctx)
        loops = list(task.loops)
        with Over(self.scene, task, loops, ctx) as inner:
            if self.how == "STRIDE":
                self.in_strides(task, inner)
                return
            made: list[tuple[Point, Value]] = []
            full = tail is None and all(self.scene.is_full(task, p, inner) for p in loops)
            self.carried = self.scene.carried if full else None
            self.handed_on: dict[Hashable, Value] = {}
            for point in self.scene.points(task, loops, inner):
                if self.how == "BRANCH":
                    self.branch(task, point, inner, self.residues)
                    continue
                value = self.blended(task, point, inner, tail)
                if self.has_rows:  # rows are whole before any of them is stored
                    array = self.scene.plan.problem.array(task.task.target.array)
                    value = self.w.name(self.w.converted(value, array.dtype), array.name)
                    made.append((point, value))
                else:
                    self.values.put(task, point, value, inner)
            for point, value in made:
                self.values.put(task, point, value, inner)
            for key, last in self.handed_on.items():
                assert self.carried is not None
                self.w.write(c.Assign(self.carried.names[key], last.x))

    # --- the three ways ---

    def branch(self, task: TaskPlan, point: Point, ctx: Context, residues: list[Residue]) -> None:
        tests = self.tests(task, point, ctx, residues)
        assert task.task.value is not None
        with self.w.scope() as body:
            value = self.values.value(task, task.task.value, point, ctx)
            self.values.put(task, point, value, ctx)
        array = task.task.target.array
        if tests is None:
            for statement in body.statements:
                self.w.write(statement)
        else:
            self.w.write(c.If(tests.x, tuple(body.statements)))
        self.w.forget(array)

    def blended(self, task: TaskPlan, point: Point, ctx: Context, tail: _Tail | None) -> Value:
        """Returns the value of a point's element after the assignment: new where the guard holds, else the old one."""
        mask = self.tests(task, point, ctx, self.residues)
        lanes = point.lanes()
        if tail is not None:
            is_new = self.at_least(task, point, tail)
            mask = is_new if mask is None else self.w.logical("and", mask, is_new)
        assert task.task.value is not None
        dtype = self.scene.plan.problem.array(task.task.target.array).dtype

        def read(load: ir.Load) -> Value | None:
            return self.shifted(task, load, point, ctx) if self.has_rows and lanes else None

        old = self.values.read(task, _own(task), point, ctx)
        new = self.values.value(task, task.task.value, point, ctx, read=read)
        new = self.w.splat(self.w.converted(new, dtype), lanes)
        return new if mask is None else self.w.select(mask, new, old, dtype)

    def in_strides(self, task: TaskPlan, ctx: Context) -> None:
        """Writes a loop's register tile with a stride: only its iterations with the guard's remainder.

        In a partial tile each iteration is tested.
        """
        stride = stride_of(self.scene.plan.problem, task.task)
        assert stride is not None
        p = task.loop(stride.loop)
        if not self.scene.is_full(task, p, ctx):
            for point in self.scene.points(task, list(task.loops), ctx):
                self.branch(task, point, ctx, self.residues)
            return
        part, start = stride.residue, self.scene.start(task, p, ctx)
        others = [x for x in self.residues if x != part]
        for point in self.scene.points(task, [q for q in task.loops if q != p], ctx):
            at = {**point.index, p.loop.name: LoopIndexAt(start)}
            step = dict(part.affine.terms)[p.loop.name]
            missing = replace(
                part.affine,
                const=-step * (part.affine.const - part.remainder),
                terms=tuple((n, -step * k) for n, k in part.affine.terms),
            )
            offset = self.modulo(missing, part.modulus, replace(point, index=at))
            first = c.Id(self.w.fresh(f"{p.loop.name}_first"))
            self.w.write(c.Declare("long", first.name, c.add(start, offset), constant=True))
            for k in range(p.inner // part.modulus):
                here = {**point.index, p.loop.name: LoopIndexAt(first, k * part.modulus)}
                copies = {**point.copies, p.loop.name: k}
                self.branch(task, replace(point, index=here, copies=copies), ctx, others)

    # --- conditions ---

    def tests(
        self, task: TaskPlan, point: Point, ctx: Context, residues: list[Residue]
    ) -> Value | None:
        """Returns the guard's condition at a point as a C value; None if it surely holds.

        `residues`: the parts of the condition that constrain remainders.
        """
        found = [self.is_in(task, x, point) for x in residues]
        if self.rest is not None:
            found.append(self.values.value(task, self.rest, point, ctx))
        whole: Value | None = None
        for x in found:
            whole = x if whole is None else self.w.logical("and", whole, x)
        return whole

    def is_in(self, task: TaskPlan, part: Residue, point: Point) -> Value:
        """Returns a test that a point is in a residue class (index mod n = r).

        In vectors each lane is tested: the remainder of the first lane is compared with a constant
        of each lane.
        """
        along = point.vector_loop
        step = dict(part.affine.terms).get(along, 0) if along is not None else 0
        first = self.modulo(part.affine, part.modulus, point)
        if step % part.modulus == 0:
            return Value(c.Bin("==", first, c.number(part.remainder)), DType.bool_)
        lanes, dtype = point.lanes(), _mask_of(task, part.modulus)
        wanted = tuple(
            c.number((part.remainder - step * lane) % part.modulus) for lane in range(lanes)
        )
        pattern = self.w.memory.vector_of(self.w, dtype, lanes, wanted)
        held = self.w.splat(self.w.converted(Value(first, DType.i64), dtype), lanes)
        return Value(c.Bin("==", pattern, held.x), dtype, lanes)

    def modulo(self, affine: Affine, modulus: int, point: Point) -> c.CExpr:
        """Returns C text of `affine` mod `modulus`, at least 0, at a point (of its first lane).

        It leaves out terms that are surely multiples of the modulus.
        """
        constant, terms = affine.const, list[tuple[c.CExpr, int]]()
        for loop, k in affine.terms:
            at = point.at(loop)
            constant += k * at.offset
            if at.variable is not None and self.w.multiple_of(at.variable) * k % modulus:
                terms.append((at.variable, k % modulus))
        if not terms:
            return c.number(constant % modulus)
        # Loop indices are not negative.
        return c.Bin("%", c.linear(tuple(terms), constant % modulus), c.number(modulus))

    # --- vectors that the end of a loop cuts ---

    def without_elements(self, task: TaskPlan, ctx: Context) -> tuple[Context, _Tail | None]:
        """Returns a context with a last whole register tile in place of a partial tile's scalar loop, and this tail.

        The tile ends with its loop. Elements that it stores a second time keep their values.
        """
        found = at_the_end(self.scene, task, ctx)
        if found is None:
            return ctx, None
        p, last = found
        return last, _Tail(p.loop.name, self.scene.start(task, p, ctx))

    def at_least(self, task: TaskPlan, point: Point, tail: _Tail) -> Value:
        """Returns the mask of a point's lanes with loop indices from the tail's start on."""
        dtype, lanes = _mask_of(task, task.loop(tail.loop).loop.extent), point.lanes()
        first = point.index[tail.loop].expression()
        index = c.Call(self.w.prelude.use("iota", dtype, lanes), (first,))
        start = self.w.splat(self.w.converted(Value(tail.start, DType.i64), dtype), lanes)
        return Value(c.Bin(">=", index, start.x), dtype, lanes)

    # --- rows ---

    def shifted(self, task: TaskPlan, load: ir.Load, point: Point, ctx: Context) -> Value | None:
        """Returns a vector of neighbours along a row, selected from two vectors of the row; None if impossible.

        At the ends of a register tile the second vector is built from single elements.
        """
        axes, lanes = access_of(load).axes, point.lanes()
        if load.array != task.task.target.array:
            return None
        distance = shift_of(task.task, axes)
        if distance == 0 or abs(distance) > lanes:
            return None
        p = task.vector
        assert p is not None
        array = self.scene.plan.problem.array(load.array)
        base, strides = self.scene.global_array(load.array), row_strides(array.shape)
        last = axes[-1]
        assert last is not None
        row = (*axes[:-1], replace(last, const=last.const - distance))

        tile = point.index[p.loop.name]

        def index(lane: int, start: LoopIndexAt = tile) -> c.CExpr:
            moved = {**point.index, p.loop.name: replace(start, offset=start.offset + lane)}
            return affine_at(row, strides, replace(point, index=moved))[0]

        def vector(k: int) -> Value:
            return self.w.load(load.array, base, index(k * lanes), array.dtype, lanes, 1)

        def element(n: int) -> Value:
            return self.w.load(load.array, base, index(n), array.dtype, 0, 0)

        def elements(first: int, read: Callable[[int], Value] = element) -> Value:
            """Returns the vector beside the register tile; only the needed lanes, from `first` on, are read."""
            found = [read(n) for n in range(first, first + abs(distance))]
            if len(found) == 1:
                return self.w.splat(found[0], lanes)
            zeros = [c.Num("0")] * (lanes - len(found))
            items = [x.x for x in found]
            items = [*zeros, *items] if distance < 0 else [*items, *zeros]
            made = self.w.memory.vector_of(self.w, array.dtype, lanes, tuple(items))
            return Value(made, array.dtype, lanes)

        copy, here = point.copies[p.loop.name], vector(0)
        is_last = copy + 1 == p.inner // lanes

        def in_front() -> Value:
            """Returns the vector of elements in front of the register tile."""
            carried = self.carried
            if carried is None or carried.task != task.index:
                return elements(distance)
            start = carried.start(lanes)
            first = elements(distance, lambda n: Value(c.Index(base, index(n, start)), array.dtype))
            return carried.vector(self.w, handed_on, array.name, first)

        if distance < 0:
            others = (item for item in point.index.items() if item[0] != p.loop.name)
            handed_on = (row, distance, *others)
            before = vector(-1) if copy > 0 else in_front()
            if is_last and self.carried is not None:
                self.handed_on[handed_on] = here
            pair, first = (before, here), lanes + distance
        else:
            pair, first = (here, elements(lanes) if is_last else vector(1)), distance
        if first == lanes:
            return pair[1]
        name = self.w.prelude.use(f"align{first}", array.dtype, lanes)
        return Value(c.Call(name, (pair[0].x, pair[1].x)), array.dtype, lanes)


def _mask_of(task: TaskPlan, most: int) -> DType:
    """Returns the integer type of a task's masks: at least as wide as its stored values, and able to hold `most`."""
    own = mask_dtype(task.task.dtype)
    return next(d for d in (own, DType.i32, DType.i64) if d.holds(most))


def _residue_of(e: ir.Expr, task: TaskPlan) -> Residue | None:
    """Returns the residue class (index mod n = r) that a condition tests; None for any other condition."""
    guard = guard_where(e, task.task.loops)
    if guard.bounds or guard.data or not guard.is_exact or len(guard.residues) != 1:
        return None
    return guard.residues[0]


def _own(task: TaskPlan) -> ir.Load:
    """Returns a load of the task's target element, which gives its previous value."""
    target = task.task.target
    return ir.Load(target.array, tuple(map(_index, target.axes)), task.task.dtype)


def _index(axis: Affine | None) -> ir.Expr:
    assert axis is not None
    found: ir.Expr = ir.Const(axis.const, DType.i64)
    for loop, k in axis.terms:
        term = ir.Binary("mul", ir.Const(k, DType.i64), ir.LoopIndex(loop), DType.i64)
        found = ir.Binary("add", found, term, DType.i64)
    return found
