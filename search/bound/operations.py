"""Floating-point operation counts of tasks: the guaranteed number, and the usual number.

The guaranteed count stays valid under compiler optimisations that hardly change the result. An
operation runs once for each iteration of the loops on which its operands depend. Chains of one
operator may be regrouped so that invariant operands are combined first. Values common to two tasks
are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from ...kernels.analysis.domain_bounds import branch_cuts, cuts_of, points, taken
from ...kernels.analysis.must_execute import surely
from ...kernels.ir import kernel as ir
from ...kernels.ir.affine import Affine, to_affine
from ...kernels.ir.task import Task, extents
from ...kernels.ir.walk import rewrite
from ...kernels.tasks.guarded_bodies import followed
from ...kernels.tasks.profile import Profile
from .bodies import body_operations
from .traffic import wanted_iterations
from .weights import (
    Amounts,
    chain,
    expression_weight,
    flops_of,
    function_of,
    operands,
    products,
    told,
    weight,
)

_PARTLY = "in some iterations: "


def named_flops(task: Task) -> float:
    """Returns the operations of a task by the usual count: every node once per iteration, a reduction step as one."""
    if not task.is_structured:
        return 0.0
    outputs = points(task, [loop.name for loop in task.loops if not loop.is_reduction])
    step = 1.0 if task.is_reduction and task.dtype.is_float else 0.0
    value = taken(task) if branch_cuts(task) else task.value
    each = expression_weight(value) + step
    return points(task) * each + outputs * expression_weight(task.finish)


class SureOperations:
    """Counter of guaranteed operations, task by task.

    Values that an earlier task computes are not counted again.
    """

    def __init__(self, profile: Profile | None = None) -> None:
        self._profile = profile
        self._seen: set[str] = set()
        self._residues: dict[str, set[int]] = {}

    def count(self, task: Task) -> tuple[float, float]:
        """Returns the guaranteed number of f32 and of f64 operations of `task`."""
        return flops_of(self.amounts(task))

    def amounts(self, task: Task, along: dict[str, Amounts] | None = None) -> Amounts:
        """Returns the guaranteed operations of `task`, those of functions apart.

        `along`: is filled, by loop of a structured task, with those that each of its iterations
        repeats; a reduction's finish is left out.
        """
        by_loop: dict[str, Amounts] = {} if along is None else along
        shown = followed(task)
        if not shown.is_structured:
            return body_operations(shown, self._profile).amounts(self._seen)
        is_cut = bool(cuts_of(task)) and (not task.is_guarded or branch_cuts(task) != ())
        iterations = [extents(task)] if is_cut else wanted_iterations(task)
        if not iterations:  # of conditions of several kinds nothing is known
            return {}
        wanted = max(iterations, key=lambda x: prod(x.values()))
        sums: Amounts = {}
        counter = _TaskOperations(task, self._seen, wanted, is_cut)
        if task.is_guarded and not is_cut:
            self._apart(task, counter)
        value = taken(task) if branch_cuts(task) else task.value
        for e in (value, task.finish):
            certain = frozenset(map(id, surely(e))) if e is not None else frozenset[int]()
            for loops, key, n in counter.of(e, certain) if e is not None else ():
                _add(sums, key, n)
                for loop in loops if e is value else ():
                    _add(by_loop.setdefault(loop, {}), key, n)
        if task.is_reduction and task.dtype.is_float and task.value is not None:
            shape = "".join(f"{x.extent}{'r' if x.is_reduction else ''} " for x in task.loops)
            if counter.is_new(f"{task.op} {shape} {counter.text(task.value)}"):
                for found in (sums, *(by_loop.setdefault(x.name, {}) for x in task.loops)):
                    _add(found, (task.dtype.size_bytes, ""), counter.reduction_steps())
        return sums

    def _apart(self, task: Task, counter: _TaskOperations) -> None:
        """Counts the iterations of each residue class (index mod n = r) of a guard separately.

        A value of one residue is computed for no other residue of the same modulus. If residues are
        of different kinds, only the first kind counts.
        """
        part = task.guard.residues[0]
        kind = counter.text_of(part.affine, part.modulus)
        if self._residues and kind not in self._residues:
            counter.is_counted = False
        self._residues.setdefault(kind, set()).add(part.remainder)
        counter.prefix = f"{kind} {part.remainder}: "


def _add(sums: Amounts, key: tuple[int, str], n: float) -> None:
    sums[key] = sums.get(key, 0.0) + n


class _TaskOperations:
    def __init__(self, task: Task, seen: set[str], wanted: Mapping[str, int], is_cut: bool) -> None:
        self.task, self.seen, self.wanted, self.is_cut = task, seen, wanted, is_cut
        self.names = {loop.name: str(loop.extent) for loop in task.loops}
        self.names |= {loop.name: loop.name for loop in task.steps}
        self.prefix, self.is_counted = "", True

    def text_of(self, affine: Affine, modulus: int) -> str:
        terms = sorted((self.names[name], k) for name, k in affine.terms)
        return f"{terms} {affine.const} mod {modulus}"

    def reduction_steps(self) -> float:
        outputs = points(self.task, [x.name for x in self.task.loops if not x.is_reduction])
        return float(points(self.task) - outputs)

    def iterations(self, loops: frozenset[str]) -> int:
        """Returns the guaranteed number of computations of a value that depends on `loops` alone."""
        if self.is_cut:
            return points(self.task, loops)
        return prod(self.wanted[loop] for loop in loops)

    def is_new(self, text: str) -> bool:
        if not self.is_counted or text in self.seen or self.prefix + text in self.seen:
            return False
        is_partly_known = not self.prefix and _PARTLY + text in self.seen
        self.seen.add(self.prefix + text)
        if self.prefix:
            self.seen.add(_PARTLY + text)
        return not is_partly_known

    def of(
        self, e: ir.Expr, certain: frozenset[int]
    ) -> Iterator[tuple[frozenset[str], tuple[int, str], float]]:
        """Yields the operations of every node of `e` that was not counted before: its loops, and an item of `Amounts`.

        `certain`: the nodes, by `id`, that are evaluated whatever value each condition has. The
        functions of others are counted as operations only: a compiler may leave them out.
        """
        nodes, leaves = chain(e)
        loops = self.loops(e)
        new = [x for x in nodes if self.is_new(self.text(x))]
        if new:
            n = sum(weight(x) for x in new if self.loops(x) == loops)
            if len(nodes) > 1:
                varying = sum(self.loops(x) == loops for x in leaves)
                n = min(n, max(1.0, varying - (varying == len(leaves))))
            size_bytes = (e.a if isinstance(e, ir.Compare) else e).dtype.size_bytes
            if n:
                times, k = self.iterations(loops), products(e, leaves, n)
                yield loops, (size_bytes, "mul"), k * times
                yield loops, (size_bytes, self.call_of(e, certain)), (n - k) * times
        for leaf in leaves:
            if leaf is not e:
                yield from self.of(leaf, certain)

    def call_of(self, e: ir.Expr, certain: frozenset[int]) -> str:
        """Returns the name of the function that a node surely computes anew; "" if there is none.

        Neighbouring iterations may share a value: unrolled, `exp(x[i + 1])` is `exp(x[i])` of the
        next one. Signs are left out, since some functions have equal values for both.
        """
        name = function_of(e) if id(e) in certain else ""
        if not name:
            return ""
        text = f"call {self.text(rewrite(e, self._in_place))}"
        is_new = text not in self.seen
        self.seen.add(text)
        return name if is_new else ""

    def _in_place(self, x: Any) -> Any:
        """Returns a load without the constants of its indices, and an operand without its sign; anything else as it is."""
        match x:
            case ir.Unary(op="neg"):
                return x.x
            case ir.Load():
                terms = [self._terms(i) for i in x.indices]
                return x if None in terms else ir.Param(f"{x.array}{terms}", x.dtype)
        return x

    def _terms(self, index: ir.Expr) -> list[tuple[str, int]] | None:
        affine = to_affine(index)
        if affine is None:
            return None
        return sorted((self.names.get(name, name), k) for name, k in affine.terms)

    def loops(self, e: ir.Expr) -> frozenset[str]:
        """Returns the loops on whose indices the value of `e` depends."""
        match e:
            case ir.LoopIndex():
                return frozenset([e.loop])
            case ir.Load():
                return frozenset[str]().union(*(self.loops(x) for x in e.indices))
            case _:
                return frozenset[str]().union(*(self.loops(x) for x in operands(e)))

    def text(self, e: ir.Expr) -> str:
        """Returns the canonical text of an expression: a compiler could compute equal texts once."""
        match e:
            case ir.LoopIndex():
                return f"<{self.names[e.loop]}>"
            case ir.Load():
                return f"{e.array}[{','.join(self.text(x) for x in e.indices)}]"
            case ir.Unary() | ir.Binary() | ir.Compare() | ir.Select() | ir.Cast() | ir.Bitcast():
                return told(e, [self.text(x) for x in operands(e)])
            case _:
                return repr(e)
