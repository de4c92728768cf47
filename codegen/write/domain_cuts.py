"""Loop ranges within iteration-domain constraints (cuts): tiles that are wholly outside are left out.

A cut restricts the values of a loop, given those of other loops. Outer loops have the value of the
current tile, inner loops may take all of their values. Ranges begin and end at whole iterations of
the loop, so tiles have the same positions as without cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from ...kernels.analysis.domain_bounds import Cut, branch_cuts
from ...kernels.ir.body import FAR
from ...space.backbone import MID, OUTER
from ..loops.ir import Loop, loop_of, loops_in, phases_of
from ..text import csyntax as c
from .context import Context
from .emission import Emission


@dataclass(frozen=True)
class Part:
    """A part of a loop's range, `lo` to `hi`. `may_be_cut`: the loop may end inside the part's last tile."""

    lo: c.CExpr
    hi: c.CExpr
    ctx: Context
    may_be_cut: bool = True


@dataclass(frozen=True)
class _Sum:
    """An affine expression: C variables with factors, and a constant."""

    terms: tuple[tuple[c.CExpr, int], ...]
    const: int

    def shifted(self, n: int) -> _Sum:
        return replace(self, const=self.const + n)

    @property
    def negated(self) -> _Sum:
        return _Sum(tuple((x, -k) for x, k in self.terms), -self.const)

    def text(self) -> c.CExpr:
        return c.linear(self.terms, self.const)


def parts(scene: Emission, node: Loop, lo: c.CExpr, hi: c.CExpr, ctx: Context) -> Iterator[Part]:
    """Yields the parts of a loop's range `lo` to `hi`, in order, and writes the declarations of their begins."""
    if node.within is None:
        yield Part(lo, hi, ctx)
        return
    ranges = _Ranges(scene, node, lo, hi, ctx)
    if not node.is_parallel:  # else what threads share out is cut: see `shared_part`
        lo, hi = ranges.outer()
    t = ranges.task
    decided = ctx.decided | {(t, cut) for cut in node.within.splits}
    left = [cut for cut in branch_cuts(scene.plan.tasks[t].task) if (t, cut) not in decided]
    inner = {loop_of(x, t) for x in loops_in(node.children)}
    if not node.within.splits or not all(cut.loops & inner for cut in left):
        yield Part(lo, hi, ctx)  # of a tile around it nothing is decided
        return
    first, last = ranges.inner(lo, hi)
    inside = replace(ctx, decided=decided, inside=ctx.inside if left else ctx.inside | {t})
    if first != lo:
        yield Part(lo, first, ctx)
    yield Part(first, last, inside, may_be_cut=False)
    yield Part(last, hi, ctx)


def shared_part(scene: Emission, node: Loop, ctx: Context) -> tuple[c.CExpr, c.CExpr]:
    """Declares and returns begin and end of a thread's range of a loop.

    The threads share only the iterations that are not wholly outside of cuts.
    """
    zero = c.Num("0")
    first, end = _Ranges(scene, node, zero, c.number(node.extent), ctx).outer()
    w = scene.w
    if node.is_cyclic:
        return c.add(first, c.Bin("*", c.Id("tid"), c.number(node.step))), end
    unit = node.unit
    units = c.Bin("-", end, first)
    if unit > 1:
        units = c.Bin("/", c.add(units, c.number(unit - 1)), c.number(unit))
    n, begin, stop = (c.Id(w.fresh(stem)) for stem in ("n_units", "part_begin", "part_end"))
    w.write(c.Declare("long", n.name, units, constant=True))
    for name, who in ((begin, c.Id("tid")), (stop, c.Bin("+", c.Id("tid"), c.Num("1")))):
        share: c.CExpr = c.Bin("/", c.Bin("*", n, who), c.Id("n_threads"))
        share = share if unit == 1 else c.Bin("*", share, c.number(unit))
        place = c.add(first, share)
        if name is stop and unit > 1:
            place = c.minimum(place, end)
        w.write(c.Declare("long", name.name, place, constant=True))
    w.multiples[begin.name] = gcd(w.multiple_of(first), unit)
    return begin, stop


class _Ranges:
    def __init__(self, scene: Emission, node: Loop, lo: c.CExpr, hi: c.CExpr, ctx: Context) -> None:
        self.scene, self.node, self.lo, self.hi, self.ctx = scene, node, lo, hi, ctx
        self.task = next(phases_of(node)).task
        self.name = loop_of(node, self.task)

    def outer(self) -> tuple[c.CExpr, c.CExpr]:
        """Returns begin and end of the iterations that are not wholly outside of the cuts."""
        assert self.node.within is not None
        begins: list[_Sum] = []
        ends: list[_Sum] = []
        for cut in self.node.within.cuts:
            least, most = self.rest(cut)
            first, last = self.bounds(cut, most, least)
            begins += [first] if first is not None else []
            ends += [last] if last is not None else []
        lo, hi = self.lo, self.hi
        for x in begins:
            lo = self.named("first", maximum(lo, self.whole(x, up=False)))
        for x in ends:
            hi = self.named("last", c.minimum(self.whole(x, up=True), hi), is_begin=False)
        return lo, hi

    def inner(self, lo: c.CExpr, hi: c.CExpr) -> tuple[c.CExpr, c.CExpr]:
        """Returns begin and end of the iterations in `lo` to `hi` that are wholly inside of the cuts."""
        assert self.node.within is not None
        begin, end = lo, self.aligned(hi)
        for cut in self.node.within.splits:
            least, most = self.rest(cut)
            first, last = self.bounds(cut, least, most)
            if first is not None:
                begin = maximum(begin, self.whole(first, up=True))
            if last is not None:
                end = c.minimum(end, self.whole(last, up=False))
        if self.node.is_cyclic:
            lo = self.named("turn", lo)
            begin, end = self.named("begin", begin), self.named("end", end)
            begin = self.named("begin", maximum(c.minimum(begin, hi), lo))
            begin = self.named("inside", self.in_turn(begin, lo))
            return begin, self.named("outside", self.in_turn(maximum(begin, end), begin))
        if self.node.step > 1 and self.may_begin_late:  # division rounds up then
            end = c.minimum(end, hi)
        begin = begin if begin == lo else self.named("inside", c.minimum(begin, hi))
        return begin, self.named("outside", maximum(begin, end))

    def in_turn(self, x: c.CExpr, lo: c.CExpr) -> c.CExpr:
        """Returns the first iteration of a thread at `x` or behind it, for iterations that threads take cyclically.

        `lo`: an iteration of this thread that is not behind `x`.
        """
        stride = c.Bin("*", c.Id("n_threads"), c.number(self.node.step))
        distance = c.add(c.Bin("-", x, lo), c.Bin("-", stride, c.Num("1")))
        return c.add(lo, c.Bin("*", c.Bin("/", distance, stride), stride))

    @property
    def may_begin_late(self) -> bool:
        """True if a range's begin may exceed its end, as in a time step without iterations."""
        assert self.node.within is not None
        steps = {loop.name for loop in self.scene.plan.tasks[self.task].task.steps}
        cuts = (*self.node.within.cuts, *self.node.within.splits)
        return any(name in steps for cut in cuts for name, _ in cut.affine.terms)

    def bounds(self, cut: Cut, for_low: _Sum, for_high: _Sum) -> tuple[_Sum | None, _Sum | None]:
        """Returns begin and end of the loop inside a cut; None where the cut does not restrict it.

        `for_low`, `for_high`: the sums of the cut's other terms that apply to its lower and to its
        upper bound.
        """
        if cut.affine.coefficient(self.name) > 0:
            first = for_low.negated.shifted(cut.low) if cut.low > -FAR else None
            last = for_high.negated.shifted(cut.high) if cut.high < FAR else None
        else:  # low <= rest - x < high
            first = for_high.shifted(1 - cut.high) if cut.high < FAR else None
            last = for_low.shifted(1 - cut.low) if cut.low > -FAR else None
        return first, last

    def rest(self, cut: Cut) -> tuple[_Sum, _Sum]:
        """Returns the least and the greatest value of a cut's terms other than this loop's, at this place of the tree."""
        task = self.scene.plan.tasks[self.task]
        terms: list[tuple[c.CExpr, int]] = []
        steps = {loop.name for loop in task.task.steps}
        least = most = cut.affine.const
        for name, k in cut.affine.terms:
            if name == self.name:
                continue
            if name in steps:
                terms.append((c.Id(name), k))
                continue
            p = task.loop(name)
            outer, mid = (self.ctx.variables.get((self.task, name, x)) for x in (OUTER, MID))
            span = p.loop.extent - 1
            if mid is not None:
                terms.append((mid, k))
                span = p.reach - 1
            elif outer is not None:
                terms.append((outer, k))
                span = p.tile - 1
            least, most = least + min(k * span, 0), most + max(k * span, 0)
        return _Sum(tuple(terms), least), _Sum(tuple(terms), most)

    def whole(self, x: _Sum, *, up: bool) -> c.CExpr:
        """Returns `x` rounded to the begin of an iteration of the loop: downwards, or upwards with `up`."""
        step = self.node.step
        terms, const = c.flatten(self.lo)
        if step == 1:
            return x.text()
        distance = c.linear(
            (*x.terms, *((y, -k) for y, k in terms)), x.const - const + (step - 1 if up else 0)
        )
        steps = c.Bin("*", c.Bin("/", distance, c.number(step)), c.number(step))
        return c.add(self.lo, steps)

    def aligned(self, hi: c.CExpr) -> c.CExpr:
        """Returns the end of the last whole iteration that ends at or before `hi`."""
        if self.node.step == 1:
            return hi
        terms, const = c.flatten(hi)
        return self.whole(_Sum(tuple(terms), const), up=False)

    def named(self, stem: str, x: c.CExpr, *, is_begin: bool = True) -> c.CExpr:
        w = self.scene.w
        name = w.fresh(f"{self.name}_{stem}")
        if is_begin:
            w.multiples[name] = gcd(w.multiple_of(self.lo), self.node.step)
        w.write(c.Declare("long", name, x, constant=True))
        return c.Id(name)


def maximum(a: c.CExpr, b: c.CExpr) -> c.CExpr:
    return c.Cond(c.Bin(">", a, b), a, b)
