"""Derivatives of operations, each against differences of 50 digits: both modes share the table, so neither may judge it."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.ir import kernel as ir
from kernelscape.kernels.ir.ops import OPS
from kernelscape.kernels.transforms.derivatives.rules import RULES

mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
mp = mpmath.mp.clone()
mp.dps = 50


def mod(a, b):
    return a - b * mp.floor(a / b)


def fmod(a, b):
    q = a / b
    return a - b * (mp.floor(q) if q > 0 else mp.ceil(q))


# The function of each operation, and intervals of its operands that are inside of its domain and cross its kinks.
REAL, ABOVE, UNIT = ((-3.0, 3.0),), ((0.05, 4.0),), ((-0.95, 0.95),)
FUNCTIONS = {
    "neg": (lambda x: -x, REAL),
    "abs": (abs, REAL),
    "sqrt": (mp.sqrt, ABOVE),
    "rsqrt": (lambda x: 1 / mp.sqrt(x), ABOVE),
    "exp": (mp.exp, REAL),
    "exp2": (lambda x: mp.mpf(2) ** x, REAL),
    "expm1": (mp.expm1, REAL),
    "log": (mp.log, ABOVE),
    "log2": (lambda x: mp.log(x, 2), ABOVE),
    "log10": (mp.log10, ABOVE),
    "log1p": (mp.log1p, ABOVE),
    "sin": (mp.sin, REAL),
    "cos": (mp.cos, REAL),
    "tan": (mp.tan, ((-1.4, 1.4),)),
    "asin": (mp.asin, UNIT),
    "acos": (mp.acos, UNIT),
    "atan": (mp.atan, REAL),
    "sinh": (mp.sinh, REAL),
    "cosh": (mp.cosh, REAL),
    "tanh": (mp.tanh, REAL),
    "asinh": (mp.asinh, REAL),
    "acosh": (mp.acosh, ((1.01, 5.0),)),
    "atanh": (mp.atanh, UNIT),
    "erf": (mp.erf, REAL),
    "erfc": (mp.erfc, REAL),
    "gamma": (mp.gamma, ((-2.9, 6.0),)),
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), ((-2.9, 6.0),)),
    "floor": (mp.floor, REAL),
    "ceil": (mp.ceil, REAL),
    "trunc": (lambda x: mp.sign(x) * mp.floor(abs(x)), REAL),
    "rint": (mp.nint, REAL),
    "round": (lambda x: mp.sign(x) * mp.floor(abs(x) + 0.5), REAL),
    "add": (lambda a, b: a + b, REAL * 2),
    "sub": (lambda a, b: a - b, REAL * 2),
    "mul": (lambda a, b: a * b, REAL * 2),
    "div": (lambda a, b: a / b, REAL * 2),
    "floordiv": (lambda a, b: mp.floor(a / b), REAL * 2),
    "mod": (mod, REAL * 2),
    "floor_mod": (mod, REAL * 2),
    "raw_mod": (fmod, REAL * 2),
    "pow": (lambda a, b: a**b, (*ABOVE, *REAL)),
    "atan2": (mp.atan2, REAL * 2),
    "hypot": (lambda a, b: mp.sqrt(a * a + b * b), REAL * 2),
    "min": (min, REAL * 2),
    "max": (max, REAL * 2),
}


def value(e: ir.Expr, locals_: dict[str, np.float64]):
    match e:
        case ir.Const():
            return e.dtype.numpy.type(e.value)
        case ir.Local():
            return locals_[e.name]
        case ir.Unary():
            return OPS[e.op].numpy(value(e.x, locals_))
        case ir.Binary() | ir.Compare():
            return OPS[e.op].numpy(value(e.a, locals_), value(e.b, locals_))
        case ir.Select():
            return value(e.a if value(e.condition, locals_) else e.b, locals_)
        case ir.Cast():
            return e.dtype.numpy.type(value(e.x, locals_))
    raise AssertionError(e)


def derivatives(op: str, point: tuple[float, ...]) -> list[float]:
    """The partial derivatives that the table gives at a point."""
    given = {f"x{k}": np.float64(x) for k, x in enumerate(point)}
    operands = [ir.Local(name, ir.DType.f64) for name in given]
    with np.errstate(all="ignore"):
        result = OPS[op].numpy(*given.values())
        found = RULES[op](operands, ir.Local("result", ir.DType.f64))
        return [0.0 if e is None else float(value(e, given | {"result": result})) for e in found]


def test_each_operation_on_floats_has_a_rule_and_a_judge() -> None:
    floats = {
        n
        for n, op in OPS.items()
        if op.accepts(ir.DType.f64)
        and op.result(ir.DType.f64).is_float
        and op.sign not in ("<", "<=", ">", ">=", "==", "!=")
    }
    assert floats == set(RULES) == set(FUNCTIONS)


@pytest.mark.parametrize("op", FUNCTIONS)
def test_rule_against_differences(op: str) -> None:
    function, intervals = FUNCTIONS[op]
    rng = np.random.default_rng(len(op))
    for _ in range(100):
        point = tuple(rng.uniform(*interval) for interval in intervals)
        exact = [mp.mpf(x) for x in point]
        step = mp.mpf(10) ** -20
        for k, found in enumerate(derivatives(op, point)):
            moved = [[x + s * step * (j == k) for j, x in enumerate(exact)] for s in (1, -1)]
            wanted = (function(*moved[0]) - function(*moved[1])) / (2 * step)
            assert found == pytest.approx(float(wanted), rel=1e-11, abs=1e-12), (op, point, k)


@pytest.mark.parametrize(
    ("op", "point", "wanted"),
    [
        ("abs", (0.0,), [0.0]),
        ("min", (1.5, 1.5), [0.0, 1.0]),
        ("max", (1.5, 1.5), [0.0, 1.0]),
        ("pow", (0.0, 2.0), [0.0, 0.0]),
        ("pow", (0.0, 0.0), [0.0, 0.0]),
        ("pow", (-2.0, 3.0), [12.0, 0.0]),
    ],
)
def test_value_at_a_kink_is_that_of_one_side(
    op: str, point: tuple[float, ...], wanted: list[float]
) -> None:
    assert derivatives(op, point) == wanted
