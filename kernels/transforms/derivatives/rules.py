"""Derivatives of operations: partial derivatives of each operation of kernels/ir/ops.py that returns a float.

Forward and reverse mode share the table. If two operands are equal, `min` and `max` are the second one, as in Taichi.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from ...ir.kernel import Binary, Const, DType, Expr, Local, Select, Unary
from ...ir.ops import OPS
from ...ir.simplify import binary, compare, const, select, unary
from ...ir.walk import locals_read

Partials = tuple[Expr | None, ...]  # one for each operand; None where it is zero everywhere
Rule = Callable[[Sequence[Expr], Expr], Partials]  # of the operands and the result

_N_SHIFTS = 8  # the series of digamma then has an error of 2e-14
# Terms of the asymptotic series of digamma: B(2k) / 2k.
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _like(value: float, x: Expr) -> Const:
    """Returns the constant `value` with the type of `x`."""
    return const(value, x.dtype)


def _of_operand(derivative: Callable[[Expr], Expr]) -> Rule:
    """Returns the rule of a function of one operand whose derivative is a function of the operand."""
    return lambda operands, _: (derivative(operands[0]),)


def _of_result(derivative: Callable[[Expr], Expr]) -> Rule:
    """Returns the rule of a function of one operand whose derivative is a function of the result."""
    return lambda _, result: (derivative(result),)


def _constant(_operands: Sequence[Expr], _result: Expr) -> Partials:
    """The rule of a piecewise constant function: no operand has a partial derivative."""
    return (None,) * len(_operands)


def _one_over(x: Expr) -> Expr:
    return binary("div", _like(1, x), x)


def _scaled(factor: float, x: Expr) -> Expr:
    return binary("mul", _like(factor, x), x)


def _square(x: Expr) -> Expr:
    return binary("mul", x, x)


def _one_plus(x: Expr) -> Expr:
    return binary("add", _like(1, x), x)


def _one_minus(x: Expr) -> Expr:
    return binary("sub", _like(1, x), x)


def _sign(x: Expr) -> Expr:
    zero = _like(0, x)
    negative = select(compare("lt", x, zero), _like(-1, x), zero)
    return select(compare("gt", x, zero), _like(1, x), negative)


def _bell(x: Expr) -> Expr:
    """Returns the derivative of erf at `x`."""
    return _scaled(2 / math.sqrt(math.pi), unary("exp", unary("neg", _square(x))))


def _above_one(x: Expr) -> Expr:
    """Returns the derivative of acosh at `x`; a product of roots is exact near 1."""
    one = _like(1, x)
    below, above = unary("sqrt", binary("sub", x, one)), unary("sqrt", binary("add", x, one))
    return _one_over(binary("mul", below, above))


def _digamma(x: Expr) -> Expr:
    """Returns the logarithmic derivative of the gamma function at `x`; below 1/2 by reflection."""
    low = compare("lt", x, _like(0.5, x))
    y = select(low, _one_minus(x), x)
    total: Expr = _like(0, x)
    for k in range(_N_SHIFTS):
        total = binary("sub", total, _one_over(binary("add", y, _like(k, x))))
    far = binary("add", y, _like(_N_SHIFTS, x))
    inverse = _one_over(_square(far))
    series: Expr = _like(0, x)
    for term in reversed(_BERNOULLI):
        series = binary("mul", inverse, binary("add", _like(term, x), series))
    logarithm = binary("sub", unary("log", far), binary("div", _like(0.5, x), far))
    total = binary("add", total, binary("sub", logarithm, series))
    reflected = binary("div", _like(math.pi, x), unary("tan", _scaled(math.pi, x)))
    return select(low, binary("sub", total, reflected), total)


def _add(operands: Sequence[Expr], _result: Expr) -> Partials:
    return _like(1, operands[0]), _like(1, operands[1])


def _subtract(operands: Sequence[Expr], _result: Expr) -> Partials:
    return _like(1, operands[0]), _like(-1, operands[1])


def _multiply(operands: Sequence[Expr], _result: Expr) -> Partials:
    return operands[1], operands[0]


def _divide(operands: Sequence[Expr], result: Expr) -> Partials:
    return _one_over(operands[1]), unary("neg", binary("div", result, operands[1]))


def _power(operands: Sequence[Expr], result: Expr) -> Partials:
    """The rule of a power. The derivative by the exponent is 0 at bases that are not positive."""
    a, b = operands
    zero = _like(0, a)
    less = binary("mul", b, binary("pow", a, binary("sub", b, _like(1, b))))
    by_base = select(compare("eq", b, zero), zero, less)
    by_exponent = binary("mul", result, unary("log", a))
    return by_base, select(compare("gt", a, zero), by_exponent, zero)


def _remainder(rounding: str) -> Rule:
    """Returns the rule of x - y * rounded(x / y). `rounding`: the operation that rounds."""

    def rule(operands: Sequence[Expr], _result: Expr) -> Partials:
        a, b = operands
        return _like(1, a), unary("neg", unary(rounding, binary("div", a, b)))

    return rule


def _arc(operands: Sequence[Expr], _result: Expr) -> Partials:
    """The rule of atan2 of y and x."""
    y, x = operands
    distance = binary("add", _square(x), _square(y))
    return binary("div", x, distance), unary("neg", binary("div", y, distance))


def _hypotenuse(operands: Sequence[Expr], result: Expr) -> Partials:
    return binary("div", operands[0], result), binary("div", operands[1], result)


def _extreme(comparison: str) -> Rule:
    """Returns the rule of min or max: the first operand has the derivative where `comparison` holds.

    Elsewhere the second operand has it.
    """

    def rule(operands: Sequence[Expr], _result: Expr) -> Partials:
        a, b = operands
        first = compare(comparison, a, b)  # type: ignore[arg-type]
        one, zero = _like(1, a), _like(0, a)
        return select(first, one, zero), select(first, zero, one)

    return rule


RULES: Final[dict[str, Rule]] = {
    "neg": _of_operand(lambda x: _like(-1, x)),
    "abs": _of_operand(_sign),
    "sqrt": _of_result(lambda r: binary("div", _like(0.5, r), r)),
    "rsqrt": lambda xs, r: (_scaled(-0.5, binary("div", r, xs[0])),),
    "exp": _of_result(lambda r: r),
    "exp2": _of_result(lambda r: _scaled(math.log(2), r)),
    "expm1": _of_result(_one_plus),
    "log": _of_operand(_one_over),
    "log2": _of_operand(lambda x: binary("div", _like(1 / math.log(2), x), x)),
    "log10": _of_operand(lambda x: binary("div", _like(1 / math.log(10), x), x)),
    "log1p": _of_operand(lambda x: _one_over(_one_plus(x))),
    "sin": _of_operand(lambda x: unary("cos", x)),
    "cos": _of_operand(lambda x: unary("neg", unary("sin", x))),
    "tan": _of_result(lambda r: _one_plus(_square(r))),
    "asin": _of_operand(lambda x: _one_over(unary("sqrt", _one_minus(_square(x))))),
    "acos": _of_operand(lambda x: unary("neg", _one_over(unary("sqrt", _one_minus(_square(x)))))),
    "atan": _of_operand(lambda x: _one_over(_one_plus(_square(x)))),
    "sinh": _of_operand(lambda x: unary("cosh", x)),
    "cosh": _of_operand(lambda x: unary("sinh", x)),
    "tanh": _of_result(lambda r: _one_minus(_square(r))),
    "asinh": _of_operand(lambda x: _one_over(unary("sqrt", _one_plus(_square(x))))),
    "acosh": _of_operand(_above_one),
    "atanh": _of_operand(lambda x: _one_over(_one_minus(_square(x)))),
    "erf": _of_operand(_bell),
    "erfc": _of_operand(lambda x: unary("neg", _bell(x))),
    "gamma": lambda xs, r: (binary("mul", r, _digamma(xs[0])),),
    "lgamma": _of_operand(_digamma),
    "floor": _constant,
    "ceil": _constant,
    "trunc": _constant,
    "rint": _constant,
    "round": _constant,
    "floordiv": _constant,
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "pow": _power,
    "mod": _remainder("floor"),
    "floor_mod": _remainder("floor"),
    "raw_mod": _remainder("trunc"),
    "atan2": _arc,
    "hypot": _hypotenuse,
    "min": _extreme("lt"),
    "max": _extreme("gt"),
}


def has_derivative(op: str) -> bool:
    """True if the operation has a derivative that is not zero everywhere."""
    return op in RULES and RULES[op] is not _constant


def operands_of(e: Unary | Binary) -> tuple[Expr, ...]:
    """Returns the operands of a unary or binary operation."""
    return (e.x,) if isinstance(e, Unary) else (e.a, e.b)


def partials(e: Unary | Binary, result: Expr) -> Partials:
    """Returns the partial derivative by each operand of an operation whose value is `result`; None for zero."""
    return RULES[e.op](operands_of(e), result)


RESULT: Final = -1  # in `values_needed`: the value of the operation itself


@cache
def values_needed(op: str, active: tuple[bool, ...]) -> frozenset[int]:
    """Returns the values that partial derivatives by active operands read: numbers of operands, and RESULT.

    `active`: for each operand, True if it is active.
    """
    names = {f"operand{k}": k for k in range(OPS[op].arity)} | {"result": RESULT}
    *operands, result = (Local(n, DType.f64) for n in names)
    found = RULES[op](operands, result)
    used = (e for e, is_active in zip(found, active, strict=True) if is_active and e is not None)
    return frozenset(names[n] for e in used for n in locals_read(e))


def times(g: Expr, factor: Expr) -> Expr:
    """Returns the expression `g * factor`.

    If `factor` selects among constants, the result selects among multiples of `g`, so that 0 times infinity is 0.
    """
    if isinstance(factor, Const):
        if factor.value == 0:
            return factor
        return unary("neg", g) if factor.value == -1 else binary("mul", g, factor)
    if isinstance(factor, Select) and _is_constant(factor):
        return select(factor.condition, times(g, factor.a), times(g, factor.b))
    return binary("mul", g, factor)


def _is_constant(e: Expr) -> bool:
    """True if an expression is a constant or a selection of constants."""
    if isinstance(e, Select):
        return _is_constant(e.a) and _is_constant(e.b)
    return isinstance(e, Const)
