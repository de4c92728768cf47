"""Rescaled reductions: sums whose terms depend on another reduction over the same loop, in one pass with it.

The sum is accumulated before the other reduction's result is final, and is corrected whenever that result changes.
A result m and a sum of terms f(x, m) over one loop are one pass where the maps r(m, n) exist with f(x, n) = r(m, n)(f(x, m)), each
an endomorphism of the sum's monoid. Whenever the result so far changes from m to n, r(m, n) corrects the sum so far. Two families
of such maps are known here, of a maximum that grows:

    f(x, m) = w exp(c (x - m))       r(m, n) multiplies by exp(c (m - n)), at most 1
    f(x, m) = w where x == m         r(m, n) leaves nothing where m differs from n: no earlier term was n

The first is the online normaliser of softmax (Milakov and Gimelshein, 2018). The second finds the position of a maximum. A third
correction is of a mean m, of weights w:

    f(x, m) = w (x - m)^2            adds W (m - n)^2 where m is the mean of all terms so far, and W their weight

It is that of variances in one pass (Chan, Golub and LeVeque, 1983).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, prod

from ..ir import kernel as ir
from ..ir.task import Task
from ..ir.walk import Renaming, coerced, is_neutral, loads, neutral_of

_EXPONENTIALS = ("exp", "exp2")
COUNT = "count"  # local: iterations that were added up at the last correction


def before(array: str) -> str:
    """Returns the name of the local that holds the result of reduction `array` at the last correction of a sum."""
    return f"before {array}"


def now(array: str) -> str:
    """Returns the name of the local that holds the result of reduction `array` over the iterations so far."""
    return f"now {array}"


@dataclass(frozen=True)
class Rescaling:
    """Correction of a partial sum when a result changes, in terms of locals `before` and `now`, and of COUNT.

    Where `is_lost` holds, the partial sum becomes neutral. Elsewhere it is multiplied by `factor`, then `added` is added to it.
    `is_mean`: `before` and `now` hold the result scaled to all iterations, as if the others had the same mean as those so far.
    """

    is_lost: ir.Expr | None = None
    factor: ir.Expr | None = None
    added: ir.Expr | None = None
    is_mean: bool = False


@dataclass(frozen=True)
class Base:
    """Reduction whose result the terms of another reduction contain.

    `task`: the reduction. `pairs`: for each of its loops the loop of the other reduction that is fused with it.
    """

    task: Task
    pairs: Mapping[str, str]

    @property
    def value(self) -> ir.Expr:
        """The reduced value of `task` with its loops renamed to those of the other reduction."""
        assert self.task.value is not None
        renaming = Renaming(loops={old: ir.LoopIndex(new) for old, new in self.pairs.items()})
        return renaming.apply(self.task.value)


def rescaling(bases: Sequence[Base], task: Task) -> Rescaling | None:
    """Returns the correction of partial sums of `task` when results of `bases` change; None if none is known."""
    assert task.value is not None
    if task.is_guarded or not all(_are_loops_of(b.task, task, b.pairs) for b in bases):
        return None
    if any(b.task.is_guarded or b.task.target.array not in _read(task.value) for b in bases):
        return None
    first = bases[0].task
    if len(bases) == 1 and _is_greatest(first):
        return _RescaledTerms(first, bases[0].value, task).rescaling()
    if all(b.task.op == "add" and b.task.dtype is task.dtype for b in bases):
        return _of_squares(bases, task)
    return None


def _read(e: ir.Expr) -> set[str]:
    return {x.array for x in loads(e)}


def _is_greatest(base: Task) -> bool:
    """True if a reduction is a maximum or minimum, also with one more value in its `finish`.

    Its result changes in one direction only.
    """
    if base.op not in ("max", "min"):
        return False
    match base.finish:
        case None | ir.Accumulator():
            return True
        case ir.Binary(op=op, a=a, b=b) if op == base.op:
            return isinstance(a, ir.Accumulator) != isinstance(b, ir.Accumulator)
    return False


def _are_loops_of(base: Task, task: Task, pairs: Mapping[str, str]) -> bool:
    """True if `base` and `task` reduce over the same iterations. `pairs`: loops of `task` by those of `base`."""
    theirs = {x.name: x for x in task.loops}
    reduced = {pairs[x.name] for x in base.loops if x.is_reduction and x.name in pairs}
    return (
        pairs.keys() == {x.name for x in base.loops}
        and reduced == {x.name for x in task.loops if x.is_reduction}
        and all(theirs[pairs[x.name]].extent == x.extent for x in base.loops)
    )


# --- variances ------------------------------------------------------------------------------------


def _of_squares(bases: Sequence[Base], task: Task) -> Rescaling | None:
    """Returns the correction for squared distances to the mean of the same values; None for other terms.

    The terms may have weights, which are those of the mean.
    """
    assert task.value is not None
    if not (task.fast_math and task.op == "add" and task.dtype.is_float):
        return None
    results = {b.task.target.array for b in bases}
    factors = list(_factors(task.value))
    apart = [x for x, _ in factors if results & _read(x)]
    weights = [x for x, _ in factors if not results & _read(x)]
    if len(apart) != 2 or apart[0] != apart[1] or any(is_divisor for _, is_divisor in factors):
        return None
    match apart[0]:
        case ir.Binary(op="sub", a=a, b=b) if bool(results & _read(a)) != bool(results & _read(b)):
            x, centre = (b, a) if results & _read(a) else (a, b)
            if len(bases) == 1:
                return _of_mean(bases[0], task, x, centre, weights)
            return _of_weighted_mean(bases, task, x, centre, weights)
    return None


def _of_mean(
    base: Base, task: Task, x: ir.Expr, centre: ir.Expr, weights: list[ir.Expr]
) -> Rescaling | None:
    reduced = [loop.extent for loop in task.loops if loop.is_reduction]
    finish = base.task.finish if base.task.finish is not None else ir.Accumulator(task.dtype)
    scales = [_scale(finish), _scale(centre)]
    if weights or base.value != x or len(reduced) != 1 or None in scales:
        return None
    if not isclose(prod(k for k in scales if k is not None) * reduced[0], 1.0, rel_tol=1e-6):
        return None
    array, dtype = base.task.target.array, task.dtype
    distance = _distance(centre, [array], dtype)
    weight = ir.Local(COUNT, dtype)
    return Rescaling(added=_product([weight, distance, distance], dtype), is_mean=True)


def _of_weighted_mean(
    bases: Sequence[Base], task: Task, x: ir.Expr, centre: ir.Expr, weights: list[ir.Expr]
) -> Rescaling | None:
    match centre:
        case ir.Binary(op="div", a=ir.Load(array=total), b=ir.Load(array=weight)):
            by_array = {b.task.target.array: b for b in bases}
        case _:
            return None
    if len(bases) != 2 or by_array.keys() != {total, weight}:
        return None
    if not all(isinstance(b.task.finish, ir.Accumulator | None) for b in bases):
        return None
    if not _equal_factors(by_array[weight].value, weights):
        return None
    if not _equal_factors(by_array[total].value, [*weights, x]):
        return None
    if not _is_never_negative(weights):
        return None  # they may cancel: there is no mean so far, and the sum depends on it
    dtype, zero = task.dtype, ir.Const(0.0, task.dtype)
    earlier = ir.Local(before(weight), dtype)
    distance = _distance(centre, [total, weight], dtype)
    added = _product([earlier, distance, distance], dtype)
    nothing = ir.Compare("eq", earlier, zero)  # so far: no mean, and only terms without weight
    return Rescaling(is_lost=nothing, added=ir.Select(nothing, zero, added, dtype))


def _is_never_negative(factors: Sequence[ir.Expr]) -> bool:
    """True if the product of these factors is proved never negative, whatever values the arrays have."""
    alone = [x for x in factors if factors.count(x) % 2]
    return all(_is_positive_or_zero(x) for x in alone)


def _is_positive_or_zero(e: ir.Expr) -> bool:
    match e:
        case ir.Const(value=x):
            return x >= 0
        case ir.Unary(op="abs" | "sqrt" | "exp" | "exp2"):
            return True
        case ir.Select(a=a, b=b):
            return _is_positive_or_zero(a) and _is_positive_or_zero(b)
        case ir.Binary(op="mul"):
            factors = list(_factors(e))
            is_quotient = any(is_divisor for _, is_divisor in factors)
            return not is_quotient and _is_never_negative([x for x, _ in factors])
    return False


def _scale(e: ir.Expr) -> float | None:
    """Returns the constant c of an expression c * m, where m is a result; None for other expressions."""
    match e:
        case ir.Accumulator() | ir.Load():
            return 1.0
        case ir.Binary(op="div", a=x, b=ir.Const(value=k)) if k:
            inner = _scale(x)
            return None if inner is None else inner / float(k)
        case (
            ir.Binary(op="mul", a=x, b=ir.Const(value=k))
            | ir.Binary(op="mul", a=ir.Const(value=k), b=x)
        ):
            inner = _scale(x)
            return None if inner is None else inner * float(k)
    return None


def _distance(centre: ir.Expr, arrays: Sequence[str], dtype: ir.DType) -> ir.Expr:
    """Returns the distance between the value of `centre` now and at the last correction.

    `arrays`: the results of which `centre` is a function.
    """

    def at(when: Mapping[str, ir.Expr], e: ir.Expr) -> ir.Expr:
        if isinstance(e, ir.Load):
            return when[e.array]
        assert isinstance(e, ir.Binary | ir.Const)
        return (
            e if isinstance(e, ir.Const) else ir.Binary(e.op, at(when, e.a), at(when, e.b), e.dtype)
        )

    earlier = at({x: ir.Local(before(x), dtype) for x in arrays}, centre)
    return ir.Binary(
        "sub", earlier, at({x: ir.Local(now(x), dtype) for x in arrays}, centre), dtype
    )


def _product(factors: Sequence[ir.Expr], dtype: ir.DType) -> ir.Expr:
    made = factors[0]
    for x in factors[1:]:
        made = ir.Binary("mul", made, x, dtype)
    return made


def _equal_factors(e: ir.Expr, wanted: Sequence[ir.Expr]) -> bool:
    """True if an expression is the product of the `wanted` factors, in any order."""
    left = list(wanted)
    for x, is_divisor in _factors(e):
        if is_divisor or x not in left:
            return False
        left.remove(x)
    return not left


# --- maxima ---------------------------------------------------------------------------------------


class _RescaledTerms:
    """Terms of a reduction that depend on a maximum or minimum of values `x`, reduced by task `base`."""

    def __init__(self, base: Task, x: ir.Expr, task: Task) -> None:
        assert base.op is not None
        assert task.op is not None
        self.base, self.task = base, task
        self.base_op: ir.ReduceOp = base.op
        self.op: ir.ReduceOp = task.op
        self.values = [x]
        self._note_numbers()

    def rescaling(self) -> Rescaling | None:
        assert self.task.value is not None
        value = self.task.value
        if any(x.dtype is not self.base.dtype for x in loads(value) if self._is_result(x)):
            return None
        while isinstance(value, ir.Select) and self._is_free(value.condition):
            if not self._adds_nothing(value.b):
                return None
            self._wanted_where(value.condition)
            value = value.a
        return self._of_selected(value) or self._of_product(value)

    def _wanted_where(self, condition: ir.Expr) -> None:
        """Records a further expression of the maximum's values, valid where `condition` holds.

        The maximum selects its values by the same condition, so terms count only there.
        """
        x = self.values[-1]
        if isinstance(x, ir.Select) and x.condition == condition and is_neutral(self.base_op, x.b):
            self.values.append(x.a)
            self._note_numbers()

    def _note_numbers(self) -> None:
        """Records the operand x as an expression of the maximum's values if the maximum ignores NaN.

        A NaN equals no maximum.
        """
        match self.values[-1]:
            case ir.Select(ir.Compare("eq", a, b), x, other) if a == b == x and is_neutral(
                self.base_op, other
            ):
                self.values.append(x)

    def _adds_nothing(self, e: ir.Expr) -> bool:
        """True if a term leaves the sum, minimum or maximum of the task unchanged.

        It is the neutral element, or the value with which `finish` combines a minimum or maximum.
        """
        if e == neutral_of(self.op, e.dtype) or is_neutral(self.op, e):
            return True
        match self.task.finish:
            case ir.Binary(op=op, a=a, b=b) if op == self.op and op in ("min", "max"):
                return (a == e and isinstance(b, ir.Accumulator)) or (
                    b == e and isinstance(a, ir.Accumulator)
                )
        return False

    def _is_result(self, e: ir.Expr) -> bool:
        return isinstance(e, ir.Load) and e.array == self.base.target.array

    def _is_free(self, e: ir.Expr) -> bool:
        """True if an expression does not load the maximum."""
        return not any(map(self._is_result, loads(e)))

    def _of_selected(self, value: ir.Expr) -> Rescaling | None:
        """Returns the correction for terms that count only where a value equals the maximum; else None."""
        match value:
            case ir.Select(ir.Compare("eq", a, b), wanted, other) if self._is_free(
                wanted
            ) and self._adds_nothing(other):
                is_own = (a in self.values and self._is_result(b)) or (
                    b in self.values and self._is_result(a)
                )
                array, dtype = self.base.target.array, self.base.dtype
                changed = ir.Compare(
                    "ne", ir.Local(before(array), dtype), ir.Local(now(array), dtype)
                )
                return Rescaling(changed) if is_own else None
        return None

    def _of_product(self, value: ir.Expr) -> Rescaling | None:
        """Returns the correction for terms with a factor exp(c (x - m)), m the maximum; None for other terms."""
        if not self.task.fast_math or self.op != "add":
            return None
        factors = list(_factors(value))
        scaled = [(x, is_divisor) for x, is_divisor in factors if not self._is_free(x)]
        if len(scaled) != 1 or scaled[0][1]:
            return None
        match scaled[0][0]:
            case ir.Unary(op=op, x=x, dtype=dtype) if op in _EXPONENTIALS:
                rate = self._rate(x)
                if rate is None or (rate > 0) != (self.base_op == "max"):
                    return None
                array = self.base.target.array
                earlier = ir.Local(before(array), dtype)
                distance: ir.Expr = ir.Binary("sub", earlier, ir.Local(now(array), dtype), dtype)
                if rate != 1:
                    distance = ir.Binary("mul", ir.Const(rate, dtype), distance, dtype)
                # A first value makes nothing of all terms before it, of which infinities made no numbers. While the maximum
                # stays, also at infinity, the sum does.
                changes = ir.Compare("ne", earlier, ir.Local(now(array), dtype))
                nothing = ir.Compare("eq", earlier, neutral_of(self.base_op, dtype))
                factor = ir.Select(
                    changes, ir.Unary(op, distance, dtype), ir.Const(1.0, dtype), dtype
                )
                is_lost = ir.Binary("and", changes, nothing, ir.DType.bool_)
                return Rescaling(is_lost, coerced(factor, self.task.dtype))
        return None

    def _rate(self, e: ir.Expr) -> float | None:
        """Returns c if an expression is c (x - m), m the maximum; None if it is not."""
        if e.dtype is not self.base.dtype:
            return None
        match e:
            case ir.Binary(op="sub", a=a, b=b):
                if a in self.values and self._is_result(b):
                    return 1.0
                return -1.0 if b in self.values and self._is_result(a) else None
            case ir.Unary(op="neg", x=x):
                rate = self._rate(x)
                return None if rate is None else -rate
            case (
                ir.Binary(op="mul", a=ir.Const(value=k), b=x)
                | ir.Binary(op="mul", a=x, b=ir.Const(value=k))
            ):
                rate = self._rate(x)
                return None if rate is None or not k else rate * float(k)
            case ir.Binary(op="div", a=x, b=ir.Const(value=k)):
                rate = self._rate(x)
                return None if rate is None or not k else rate / float(k)
        return None


def _factors(e: ir.Expr) -> Iterator[tuple[ir.Expr, bool]]:
    """Yields each factor of a product of floats, with True if the product is divided by it, else False."""
    match e:
        case ir.Binary(op="mul", a=a, b=b):
            yield from _factors(a)
            yield from _factors(b)
        case ir.Binary(op="div", a=a, b=b):
            yield from _factors(a)
            yield b, True
        case ir.Unary(op="neg", x=x):
            yield ir.Const(-1.0, x.dtype), False
            yield from _factors(x)
        case ir.Cast(x=x) if x.dtype.is_float and e.dtype.is_float and e.dtype is not ir.DType.f16:
            yield from _factors(x)
        case _:
            yield e, False
