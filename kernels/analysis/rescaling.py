"""Rescaled reductions: sums whose terms hold the maximum of their own loop, added up while the maximum is not yet known.

A maximum m and a sum of terms f(x, m) over one loop are one pass where the maps r(m, n) exist with f(x, n) = r(m, n)(f(x, m)), each
an endomorphism of the sum's monoid. Whenever the maximum grows from m to n, r(m, n) corrects the sum so far. Two families of such
maps are known here:

    f(x, m) = w exp(c (x - m))       r(m, n) multiplies by exp(c (m - n)), at most 1
    f(x, m) = w where x == m         r(m, n) leaves nothing where m differs from n: no earlier term was n

The first is the online normaliser of softmax (Milakov and Gimelshein, 2018). The second finds the position of a maximum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..ir.kernel import (
    Accumulator,
    Binary,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    Load,
    Local,
    LoopIndex,
    ReduceOp,
    Select,
    Unary,
)
from ..ir.task import Task
from ..ir.walk import Renaming, coerced, is_neutral, loads, neutral_of

BEFORE, NOW = (
    "before",
    "now",
)  # locals: the maximum when the sum was last corrected, and the maximum so far
_EXPONENTIALS = ("exp", "exp2")


@dataclass(frozen=True)
class Rescaling:
    """The correction of a sum so far, in terms of the locals BEFORE and NOW.

    Where `is_lost` holds, nothing is left of the sum. Elsewhere it is multiplied by `factor`; None is 1.
    """

    is_lost: Expr
    factor: Expr | None


def rescaling(base: Task, task: Task, pairs: Mapping[str, str]) -> Rescaling | None:
    """Returns the correction of the sums of `task` whenever the result of `base` changes; None if there is none.

    `pairs` maps all loops of `base` to loops of `task`. The target of `base` is what terms of `task` read.
    """
    assert base.value is not None
    assert task.value is not None
    if not (_is_greatest(base) and _are_loops_of(base, task, pairs)):
        return None
    renaming = Renaming(loops={old: LoopIndex(new) for old, new in pairs.items()})
    return _Terms(base, renaming.apply(base.value), task).rescaling()


def _is_greatest(base: Task) -> bool:
    """True if results are the greatest or the least term, and maybe of one more value: they only grow, or only fall."""
    if base.op not in ("max", "min") or base.condition is not None:
        return False
    match base.finish:
        case None | Accumulator():
            return True
        case Binary(op=op, a=a, b=b) if op == base.op:
            return isinstance(a, Accumulator) != isinstance(b, Accumulator)
    return False


def _are_loops_of(base: Task, task: Task, pairs: Mapping[str, str]) -> bool:
    """True if a result of `base` and one of `task` are reduced over the same iterations."""
    theirs = {x.name: x for x in task.loops}
    reduced = {pairs[x.name] for x in base.loops if x.is_reduction and x.name in pairs}
    return (
        pairs.keys() == {x.name for x in base.loops}
        and reduced == {x.name for x in task.loops if x.is_reduction}
        and all(theirs[pairs[x.name]].extent == x.extent for x in base.loops)
    )


class _Terms:
    """Terms of a sum that read a maximum, or a minimum, of values `x`."""

    def __init__(self, base: Task, x: Expr, task: Task) -> None:
        assert base.op is not None
        assert task.op is not None
        self.base, self.task = base, task
        self.base_op: ReduceOp = base.op
        self.op: ReduceOp = task.op
        self.values = [x]
        self._note_numbers()

    def rescaling(self) -> Rescaling | None:
        assert self.task.value is not None
        value = self.task.value
        if any(x.dtype is not self.base.dtype for x in loads(value) if self._is_result(x)):
            return None
        while isinstance(value, Select) and self._is_free(value.condition):
            if not self._adds_nothing(value.b):
                return None
            self._wanted_where(value.condition)
            value = value.a
        return self._of_selected(value) or self._of_product(value)

    def _wanted_where(self, condition: Expr) -> None:
        """Takes note that terms count where a condition holds, as a value of the maximum may do."""
        x = self.values[-1]
        if isinstance(x, Select) and x.condition == condition and is_neutral(self.base_op, x.b):
            self.values.append(x.a)
            self._note_numbers()

    def _note_numbers(self) -> None:
        """Takes note of a value that the maximum leaves out where it is no number: then it equals nothing."""
        match self.values[-1]:
            case Select(Compare("eq", a, b), x, other) if a == b == x and is_neutral(
                self.base_op, other
            ):
                self.values.append(x)

    def _adds_nothing(self, e: Expr) -> bool:
        """True if a term is neutral, or what a minimum or maximum is finished with, too."""
        if e == neutral_of(self.op, e.dtype) or is_neutral(self.op, e):
            return True
        match self.task.finish:
            case Binary(op=op, a=a, b=b) if op == self.op and op in ("min", "max"):
                return (a == e and isinstance(b, Accumulator)) or (
                    b == e and isinstance(a, Accumulator)
                )
        return False

    def _is_result(self, e: Expr) -> bool:
        return isinstance(e, Load) and e.array == self.base.target.array

    def _is_free(self, e: Expr) -> bool:
        """True if an expression does not depend on the maximum."""
        return not any(map(self._is_result, loads(e)))

    def _of_selected(self, value: Expr) -> Rescaling | None:
        """Terms that count where a value is the maximum."""
        match value:
            case Select(Compare("eq", a, b), wanted, other) if self._is_free(
                wanted
            ) and self._adds_nothing(other):
                is_own = (a in self.values and self._is_result(b)) or (
                    b in self.values and self._is_result(a)
                )
                dtype = self.base.dtype
                changed = Compare("ne", Local(BEFORE, dtype), Local(NOW, dtype))
                return Rescaling(changed, None) if is_own else None
        return None

    def _of_product(self, value: Expr) -> Rescaling | None:
        """Terms with an exponential of the distance to the maximum as a factor."""
        if not self.task.fast_math or self.op not in ("add", "min", "max"):
            return None
        factors = list(_factors(value))
        scaled = [(x, is_divisor) for x, is_divisor in factors if not self._is_free(x)]
        if len(scaled) != 1 or scaled[0][1]:
            return None
        match scaled[0][0]:
            case Unary(op=op, x=x, dtype=dtype) if op in _EXPONENTIALS:
                rate = self._rate(x)
                if rate is None or (rate > 0) != (self.base_op == "max"):
                    return None
                before, now = Local(BEFORE, dtype), Local(NOW, dtype)
                distance: Expr = Binary("sub", before, now, dtype)
                if rate != 1:
                    distance = Binary("mul", Const(rate, dtype), distance, dtype)
                # Without a value so far every term is lost: what was computed of infinities is no number.
                nothing = Compare("eq", before, neutral_of(self.base_op, dtype))
                return Rescaling(nothing, coerced(Unary(op, distance, dtype), self.task.dtype))
        return None

    def _rate(self, e: Expr) -> float | None:
        """Returns c where an expression is c (x - m); None if it is not."""
        if e.dtype is not self.base.dtype:
            return None
        match e:
            case Binary(op="sub", a=a, b=b):
                if a in self.values and self._is_result(b):
                    return 1.0
                return -1.0 if b in self.values and self._is_result(a) else None
            case Unary(op="neg", x=x):
                rate = self._rate(x)
                return None if rate is None else -rate
            case Binary(op="mul", a=Const(value=k), b=x) | Binary(op="mul", a=x, b=Const(value=k)):
                rate = self._rate(x)
                return None if rate is None or not k else rate * float(k)
            case Binary(op="div", a=x, b=Const(value=k)):
                rate = self._rate(x)
                return None if rate is None or not k else rate / float(k)
        return None


def _factors(e: Expr) -> Iterator[tuple[Expr, bool]]:
    """Yields the factors of a product of floats; with True those that divide it."""
    match e:
        case Binary(op="mul", a=a, b=b):
            yield from _factors(a)
            yield from _factors(b)
        case Binary(op="div", a=a, b=b):
            yield from _factors(a)
            yield b, True
        case Unary(op="neg", x=x):
            yield from _factors(x)
        case Cast(x=x) if x.dtype.is_float and e.dtype.is_float and e.dtype is not DType.f16:
            yield from _factors(x)
        case _:
            yield e, False
