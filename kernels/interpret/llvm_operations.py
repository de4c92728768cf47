"""Operations of the language in LLVM, on one element at a time.

They are the counterpart of the NumPy operations in kernels/interpret/kernel.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ..ir.kernel import DType
from ..ir.op_semantics import MIX_FACTORS, MIX_SHIFTS
from ..ir.ops import OPS

Value = Any  # of llvmlite, which has no types
BIT, BYTE, WORD = ir.IntType(1), ir.IntType(8), ir.IntType(64)
_FLOATS: dict[DType, Any] = {DType.f32: ir.FloatType(), DType.f64: ir.DoubleType()}
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_INTRINSICS = {"sqrt", "floor", "ceil", "trunc", "rint", "round"}  # which LLVM rounds as C does
_PLAIN = {"add": "add", "sub": "sub", "mul": "mul"}
_SHIFTS = {"shl", "shr", "bit_shr"}
_BITS = {"and": "and_", "or": "or_", "bit_and": "and_", "bit_or": "or_", "bit_xor": "xor"}


def type_of(dtype: DType) -> Any:
    """The LLVM type of a value. A bool is a bit here, and a byte in memory."""
    if dtype is DType.bool_:
        return BIT
    return _FLOATS[dtype] if dtype.is_float else ir.IntType(8 * dtype.size_bytes)


def stored_type(dtype: DType) -> Any:
    """The LLVM type of an array element in memory."""
    return BYTE if dtype is DType.bool_ else type_of(dtype)


def constant(value: Any, dtype: DType) -> Value:
    """A number as an LLVM value."""
    if dtype.is_float:
        return ir.Constant(type_of(dtype), float(value))
    return ir.Constant(type_of(dtype), int(value))


def operation(build: Any, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """The result of an operation of the language on two operands of type `dtype`."""
    if op in _BITS:
        return getattr(build, _BITS[op])(a, b)
    if op in ("min", "max"):
        return _extreme(build, op, a, b, dtype)
    if dtype.is_float:
        return _of_floats(build, op, a, b, dtype)
    if op in _PLAIN:
        return getattr(build, _PLAIN[op])(a, b)
    if op in _SHIFTS:
        return _shifted(build, op, a, b, dtype)
    if op == "pow":
        return _power(build, a, b, dtype)
    if op in ("raw_div", "raw_mod", "floordiv", "mod"):
        return _quotient(build, op, a, b, dtype)
    raise TypeError(f"{op} of two {dtype.name} has no form in LLVM")


def unary(build: Any, op: str, x: Value, of: DType, dtype: DType) -> Value:
    """The result of an operation on one operand of type `of`, as a value of type `dtype`."""
    zero = constant(0, of)
    match op:
        case "not" | "bit_not":
            return build.not_(x)
        case "neg":
            return build.fneg(x) if of.is_float else build.neg(x)
        case "abs" if of.is_float:
            return call(build, "llvm.fabs", of, x)
        case "abs":
            negative = build.icmp_signed("<", x, zero)
            return build.select(negative, build.neg(x), x) if of.is_signed else x
        case "rsqrt":
            return build.fdiv(constant(1, of), call(build, "llvm.sqrt", of, x))
        case "isnan":
            return build.fcmp_unordered("uno", x, x)
        case "isinf":
            size = call(build, "llvm.fabs", of, x)
            return build.fcmp_ordered("==", size, constant(math.inf, of))
        case "popcnt":
            return convert(build, build.ctpop(x), of, dtype)
        case "clz":
            return convert(build, build.ctlz(x, ir.Constant(BIT, 0)), of, dtype)
        case "ctz":
            return convert(build, build.cttz(x, ir.Constant(BIT, 0)), of, dtype)
        case "mix64":
            return _mixed(build, x)
    return call(build, f"llvm.{op}" if op in _INTRINSICS else _function(op, of), of, x)


def compare(build: Any, op: str, a: Value, b: Value, of: DType) -> Value:
    """The result of a comparison of two operands of type `of`. With a NaN only != is true."""
    sign = _SIGNS[op]
    if of.is_float:
        return (build.fcmp_unordered if op == "ne" else build.fcmp_ordered)(sign, a, b)
    return (build.icmp_signed if of.is_signed else build.icmp_unsigned)(sign, a, b)


def convert(build: Any, x: Value, of: DType, dtype: DType) -> Value:
    """The value `x` of type `of` converted to type `dtype`, as C converts it."""
    if of is dtype:
        return x
    if dtype is DType.bool_:
        return compare(build, "ne", x, constant(0, of), of)
    to = type_of(dtype)
    if of.is_float and dtype.is_float:
        return (build.fpext if dtype.size_bytes > of.size_bytes else build.fptrunc)(x, to)
    if of.is_float:
        return _whole(build, x, of, dtype)
    is_signed = of.is_signed and of is not DType.bool_
    if dtype.is_float:
        return (build.sitofp if is_signed else build.uitofp)(x, to)
    n, m = type_of(of).width, to.width
    if m <= n:
        return build.trunc(x, to) if m < n else x
    return (build.sext if is_signed else build.zext)(x, to)


def loaded(build: Any, place: Value, held: DType, dtype: DType) -> Value:
    """The array element at an address, converted to type `dtype`; the array has type `held`."""
    x = build.load(place)
    if held is DType.bool_:
        x = build.icmp_unsigned("!=", x, ir.Constant(BYTE, 0))
    return convert(build, x, held, dtype)


def put(build: Any, x: Value, of: DType, place: Value, held: DType) -> None:
    """Stores a value of type `of` at an address in an array, converted to the array's type `held`."""
    x = convert(build, x, of, held)
    build.store(build.zext(x, BYTE) if held is DType.bool_ else x, place)


def call(build: Any, name: str, dtype: DType, *given: Value) -> Value:
    """The result of a function of the C library, or of LLVM, on floats of one type."""
    kind = type_of(dtype)
    signature = ir.FunctionType(kind, [kind] * len(given))
    if name.startswith("llvm."):
        return build.call(build.module.declare_intrinsic(name, [kind], signature), given)
    function = build.module.globals.get(name) or ir.Function(build.module, signature, name)
    return build.call(function, given)


def _function(op: str, dtype: DType) -> str:
    """The name of the C library's function for an operation on floats of this type."""
    return OPS[op].c + ("f" if dtype is DType.f32 else "")


def _extreme(build: Any, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """The "min" or "max" as in NumPy: NaN if an operand is NaN."""
    is_first = compare(build, "lt" if op == "min" else "gt", a, b, dtype)
    if dtype.is_float:
        is_first = build.or_(is_first, build.fcmp_unordered("uno", a, a))
    return build.select(is_first, a, b)


def _of_floats(build: Any, op: str, a: Value, b: Value, dtype: DType) -> Value:
    simple: dict[str, Callable[..., Any]] = {
        "add": build.fadd,
        "sub": build.fsub,
        "mul": build.fmul,
        "div": build.fdiv,
    }
    if op in simple:
        return simple[op](a, b)
    if op in ("floordiv", "mod"):
        return _floored(build, op, a, b, dtype)
    if op == "floor_mod":
        below = call(build, "llvm.floor", dtype, build.fdiv(a, b))
        return build.fsub(a, build.fmul(below, b))
    return call(build, _function(op, dtype), dtype, a, b)


def _floored(build: Any, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """The // or % of floats as in NumPy (npy_divmod).

    It stays exact where a / b is rounded to a whole number.
    """
    zero, one = constant(0, dtype), constant(1, dtype)
    rest = build.frem(a, b)
    has_rest = build.fcmp_unordered("!=", rest, zero)
    negative = build.fcmp_ordered("<", rest, zero)
    crosses = build.and_(has_rest, build.xor(negative, build.fcmp_ordered("<", b, zero)))
    is_whole = build.fcmp_ordered("==", b, zero)  # a / 0 is that, and a % 0 is no number
    if op == "mod":
        other = build.select(crosses, build.fadd(rest, b), rest)
        found = build.select(has_rest, other, call(build, "llvm.copysign", dtype, zero, b))
        return build.select(is_whole, rest, found)
    quotient = build.fdiv(build.fsub(a, rest), b)
    quotient = build.select(crosses, build.fsub(quotient, one), quotient)
    lower = call(build, "llvm.floor", dtype, quotient)
    is_over = build.fcmp_ordered(">", build.fsub(quotient, lower), constant(0.5, dtype))
    lower = build.select(is_over, build.fadd(lower, one), lower)
    plain = build.fdiv(a, b)
    signed = call(build, "llvm.copysign", dtype, zero, plain)
    lower = build.select(build.fcmp_unordered("!=", quotient, zero), lower, signed)
    return build.select(is_whole, plain, lower)


def _shifted(build: Any, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """A shift as in NumPy: a shift by the number of bits or more leaves only bits that were shifted in.

    LLVM leaves this value undefined, and an index may depend on it.
    """
    n_bits = 8 * dtype.size_bytes
    is_within = build.icmp_unsigned("<", b, constant(n_bits, dtype))
    if op == "shr" and dtype.is_signed:
        return build.ashr(a, build.select(is_within, b, constant(n_bits - 1, dtype)))
    found = build.shl(a, b) if op == "shl" else build.lshr(a, b)
    return build.select(is_within, found, constant(0, dtype))


def _whole(build: Any, x: Value, of: DType, dtype: DType) -> Value:
    """A float converted to an integer. Out of range the result is x86's.

    LLVM leaves this value undefined, and an index may depend on it.
    """
    is_word = dtype.size_bytes == 8 or dtype is DType.u32
    if dtype is not DType.u64:
        return convert(
            build, _truncated(build, x, of, is_word), DType.i64 if is_word else DType.i32, dtype
        )
    half = constant(2.0**63, of)
    is_upper = build.fcmp_ordered(">=", x, half)
    lower = _truncated(build, build.select(is_upper, build.fsub(x, half), x), of, True)
    return build.select(is_upper, build.xor(lower, constant(DType.i64.range[0], DType.i64)), lower)


def _truncated(build: Any, x: Value, of: DType, is_word: bool) -> Value:
    """A float truncated to an i64 if `is_word`, else to an i32; out of range the least integer of that type."""
    to = DType.i64 if is_word else DType.i32
    least = to.range[0]
    is_held = build.and_(
        build.fcmp_ordered(">=", x, constant(least, of)),
        build.fcmp_ordered("<", x, constant(-least, of)),
    )
    return build.select(is_held, build.fptosi(x, type_of(to)), constant(least, to))


def _quotient(build: Any, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """The quotient or remainder of integers: 0 for a divisor of 0, wrapped for a divisor of -1.

    LLVM leaves both undefined.
    """
    zero, one = constant(0, dtype), constant(1, dtype)
    by_zero = compare(build, "eq", b, zero, dtype)
    is_mod = op in ("raw_mod", "mod")
    if not dtype.is_signed:
        safe = build.select(by_zero, one, b)
        found = (build.urem if is_mod else build.udiv)(a, safe)
        return build.select(by_zero, zero, found)
    by_minus = compare(build, "eq", b, constant(-1, dtype), dtype)
    safe = build.select(build.or_(by_zero, by_minus), one, b)
    rest = build.srem(a, safe)
    # The sign of what is left is that of `a`, and that of `b` where the quotient is rounded down.
    has_other_sign = build.icmp_signed("<", build.xor(rest, safe), zero)
    crosses = build.and_(compare(build, "ne", rest, zero, dtype), has_other_sign)
    if is_mod:
        found = build.select(crosses, build.add(rest, b), rest) if op == "mod" else rest
        return build.select(build.or_(by_zero, by_minus), zero, found)
    found = build.sdiv(a, safe)
    if op == "floordiv":
        found = build.select(crosses, build.sub(found, one), found)
    found = build.select(by_minus, build.neg(a), found)
    return build.select(by_zero, zero, found)


def _power(build: Any, a: Value, b: Value, dtype: DType) -> Value:
    """An integer power by repeated squaring, one step for each bit of the exponent.

    A negative exponent gives the quotient rounded towards zero.
    """
    zero, one = constant(0, dtype), constant(1, dtype)
    power, square = one, a
    for bit in range(8 * dtype.size_bytes):
        is_set = build.trunc(build.lshr(b, constant(bit, dtype)), BIT)
        power = build.select(is_set, build.mul(power, square), power)
        square = build.mul(square, square)
    if not dtype.is_signed:
        return power
    minus = constant(-1, dtype)
    is_odd = build.trunc(b, BIT)
    quotient = build.select(compare(build, "eq", a, one, dtype), one, zero)
    of_minus = compare(build, "eq", a, minus, dtype)
    quotient = build.select(of_minus, build.select(is_odd, minus, one), quotient)
    return build.select(compare(build, "lt", b, zero, dtype), quotient, power)


def _mixed(build: Any, x: Value) -> Value:
    for factor, shift in zip(MIX_FACTORS, MIX_SHIFTS, strict=False):
        x = build.xor(x, build.lshr(x, ir.Constant(WORD, shift)))
        x = build.mul(x, ir.Constant(WORD, factor))
    return build.xor(x, build.lshr(x, ir.Constant(WORD, MIX_SHIFTS[-1])))
