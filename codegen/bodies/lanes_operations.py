"""C helpers of vectorised loops: comparisons, blends, conversions and arithmetic (see codegen/bodies/lanes_masks.py)."""

from __future__ import annotations

from functools import cached_property

from ...kernels.ir.kernel import DType
from ...kernels.ir.op_semantics import MIX_FACTORS, MIX_SHIFTS
from ...kernels.ir.ops import DIVISIONS, OPS
from ..text.types import SCALAR_TYPES
from .lanes_masks import I32, LaneMasks
from .vectors import operator

_FLOAT_COMPARISONS = {"lt": 17, "le": 18, "gt": 30, "ge": 29, "eq": 0, "ne": 4}  # quiet
_INTEGER_COMPARISONS = {"lt": 1, "le": 2, "gt": 6, "ge": 5, "eq": 0, "ne": 4}
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_ROUNDING = {"rint": 8, "floor": 9, "ceil": 10, "trunc": 11}


class LaneOperations:
    """Helpers for comparisons, blends, conversions and arithmetic on values of all lanes.

    Methods return their names.
    """

    def __init__(self, m: LaneMasks) -> None:
        self.m = m

    @cached_property
    def half(self) -> LaneOperations:
        return LaneOperations(self.m.half)

    def splat(self, dtype: DType) -> str:
        v, t = self.m.type(dtype), SCALAR_TYPES[dtype.name]
        if not self.m.is_pair(dtype):
            return self.m.prelude.use("splat", dtype, self.m.width)
        one = self.half.splat(dtype)
        return self.m.made(
            f"splat_{v}",
            lambda: f"static inline {v} splat_{v}({t} x) {{ return ({v}){{{one}(x), {one}(x)}}; }}",
        )

    def iota(self, dtype: DType) -> str:
        """Returns the helper `iota(first)`: lane l gets first + l."""
        v, t = self.m.type(dtype), SCALAR_TYPES[dtype.name]
        if not self.m.is_pair(dtype):
            return self.m.prelude.use("iota", dtype, self.m.width)
        one, n = self.half.iota(dtype), self.m.width // 2
        return self.m.made(
            f"iota_{v}",
            lambda: (
                f"static inline {v} iota_{v}({t} x) {{ return ({v}){{{one}(x), {one}(x + {n})}}; }}"
            ),
        )

    def compare(self, op: str, dtype: DType) -> str:
        """Returns the helper `op(a, b)`: the mask of the lanes in which the comparison holds."""
        v = self.m.type(dtype)
        name = f"lane_{op}_{v}"
        if not (self.m.is_pair(dtype) or self.m.has_registers(dtype)):
            return self.m.made(name, lambda: self._in_wider(name, op, dtype))
        if self.m.is_pair(dtype):
            ab = ((dtype, "a"), (dtype, "b"))
            return self.m.made(
                name,
                lambda: self.m.by_halves(name, DType.bool_, self.half.compare(op, dtype), ab),
            )
        table = _FLOAT_COMPARISONS if dtype.is_float else _INTEGER_COMPARISONS
        prefix, suffix = self.m.intrinsic(dtype, signed=False)
        cast = self.m.register(dtype)
        plain = f"a {_SIGNS[op]} b"
        if dtype.size_bytes != 4:
            plain = f"__builtin_convertvector({plain}, i32x{self.m.width})"
        return self.m.made(
            name,
            lambda: self.m.both(
                f"{self.m.mask} {name}({v} a, {v} b)",
                f"return {prefix}_cmp_{suffix}_mask(({cast})a, ({cast})b, {table[op]});",
                f"    return {plain};",
            ),
        )

    def _in_wider(self, name: str, op: str, dtype: DType) -> str:
        wide = _wider(dtype)
        v, of, widen = self.m.type(dtype), self.compare(op, wide), self.convert(wide, dtype)
        return f"static inline {self.m.mask} {name}({v} a, {v} b) {{ return {of}({widen}(a), {widen}(b)); }}"

    def select(self, dtype: DType) -> str:
        """Returns the helper `select(m, a, b)`: a in the lanes of mask m, b in the others."""
        v, m = self.m.type(dtype), self.m.mask
        name = f"lane_select_{v}"
        if dtype is DType.bool_:
            both, either, without = map(self.m.mask_operation, ("and", "or", "without"))
            return self.m.made(
                name,
                lambda: (
                    f"static inline {m} {name}({m} m, {m} a, {m} b) "
                    f"{{ return {either}({both}(m, a), {without}(b, m)); }}"
                ),
            )
        args = ((DType.bool_, "m"), (dtype, "a"), (dtype, "b"))
        if self.m.is_pair(dtype):
            return self.m.made(
                name, lambda: self.m.by_halves(name, dtype, self.half.select(dtype), args)
            )
        mask_of = DType(f"int{8 * dtype.size_bytes}")
        wide = self.m.prelude.vector_type(mask_of, self.m.width)
        opening = f"{v} {name}({m} m, {v} a, {v} b)"
        if not self.m.has_registers(dtype):
            wider = _wider(dtype)
            widen, of, narrow = (
                self.convert(wider, dtype),
                self.select(wider),
                self.convert(dtype, wider),
            )
            return self.m.made(
                name,
                lambda: (
                    f"static inline {opening} {{ return {narrow}({of}(m, {widen}(a), {widen}(b))); }}"
                ),
            )
        prefix, suffix = self.m.intrinsic(dtype)
        cast = self.m.register(dtype)
        as_wide = "m" if dtype.size_bytes == 4 else f"__builtin_convertvector(m, {wide})"
        return self.m.made(
            name,
            lambda: self.m.both(
                opening,
                f"return ({v}){prefix}_mask_blend_{suffix}(m, ({cast})b, ({cast})a);",
                f"    const {wide} w = {as_wide};\n"
                f"    return ({v})((w & ({wide})a) | (~w & ({wide})b));",
            ),
        )

    def convert(self, dtype: DType, source: DType) -> str:
        """Returns the helper `convert(x)`: values of type `source` converted to `dtype`."""
        if not self.m.is_pair(dtype) and not self.m.is_pair(source):
            return self.m.prelude.use("convert", dtype, self.m.width, source)
        of = self.m.type(source) if self.m.is_pair(source) else source.name
        name = f"convert_{self.m.type(dtype)}_from_{of}"
        return self.m.made(
            name,
            lambda: self.m.by_halves(
                name, dtype, self.half.convert(dtype, source), ((source, "x"),)
            ),
        )

    def bitcast(self, dtype: DType, source: DType) -> str:
        """Returns the helper `bitcast(x)`: the bits of values of type `source`, read as `dtype`."""
        if not self.m.is_pair(dtype):
            self.m.prelude.vector_type(source, self.m.width)
            return self.m.prelude.use("bitcast", dtype, self.m.width, source)
        name = f"bitcast_{self.m.type(dtype)}_from_{source.name}"
        return self.m.made(
            name,
            lambda: self.m.by_halves(
                name, dtype, self.half.bitcast(dtype, source), ((source, "x"),)
            ),
        )

    def operation(self, op: str, dtype: DType) -> str:
        """Returns the helper for `op` of kernels/ir/ops.py whose results are not bools, or for "exact_" + `op`.

        Exact operations are not contracted. For results that are bools see `compare`.
        """
        row = OPS[op.removeprefix("exact_")]
        result = row.result(dtype)
        args = tuple((dtype, x) for x in ("ab" if row.arity == 2 else "x"))
        if self.m.is_pair(dtype) or self.m.is_pair(result):
            name = f"lane_{op}_{self.m.type(dtype)}"
            half = self.half.operation(op, dtype)
            return self.m.made(name, lambda: self.m.by_halves(name, result, half, args))
        if (sign := _sign(op, dtype)) is not None:
            return self._infix(op, dtype, sign)
        if op in DIVISIONS and dtype.is_integer and dtype.size_bytes <= 4:
            return self._division(op, dtype)
        if op in ("min", "max") and self.m.has_registers(dtype):
            return self._extreme(op, dtype)
        if op in _ROUNDING and self.m.has_registers(dtype):
            return self._rounding(op, dtype)
        if op == "mix64":
            return self._mix()
        if op == "rsqrt":
            v, root = self.m.type(dtype), self.m.prelude.use("sqrt", dtype, self.m.width)
            name = f"lane_rsqrt_{v}"
            return self.m.made(
                name, lambda: f"static inline {v} {name}({v} x) {{ return 1 / {root}(x); }}"
            )
        if self.m.ulp is not None:
            return self.m.prelude.of_vectors(op, dtype, self.m.width, self.m.ulp)
        return self.m.prelude.use(op, dtype, self.m.width)

    def _infix(self, op: str, dtype: DType, sign: str) -> str:
        """Returns the helper for an operation that is the C operator `sign`."""
        v = self.m.type(dtype)
        name, is_binary = f"lane_{op}_{v}", OPS[op].arity == 2
        given, made = (f"{v} a, {v} b", f"a {sign} b") if is_binary else (f"{v} x", f"{sign}x")
        return self.m.made(name, lambda: f"static inline {v} {name}({given}) {{ return {made}; }}")

    def _mix(self) -> str:
        v = self.m.type(DType.u64)
        steps = "".join(
            f"    x = (x ^ (x >> {shift})) * {factor:#x}u;\n"
            for factor, shift in zip(MIX_FACTORS, MIX_SHIFTS, strict=False)
        )
        name, last = f"lane_mix64_{v}", MIX_SHIFTS[-1]
        return self.m.made(
            name,
            lambda: f"static inline {v} {name}({v} x) {{\n{steps}    return x ^ (x >> {last});\n}}",
        )

    def _extreme(self, op: str, dtype: DType) -> str:
        v = self.m.type(dtype)
        name, plain = f"lane_{op}_{v}", self.m.prelude.use(op, dtype, self.m.width)
        prefix, suffix = self.m.intrinsic(dtype, signed=False)
        cast = self.m.register(dtype)
        return self.m.made(
            name,
            lambda: self.m.both(
                f"{v} {name}({v} a, {v} b)",
                f"return ({v}){prefix}_{op}_{suffix}(({cast})a, ({cast})b);",
                f"    return {plain}(a, b);",
            ),
        )

    def _rounding(self, op: str, dtype: DType) -> str:
        v = self.m.type(dtype)
        name, plain = f"lane_{op}_{v}", self.m.prelude.use(op, dtype, self.m.width)
        prefix, suffix = self.m.intrinsic(dtype)
        cast = self.m.register(dtype)
        return self.m.made(
            name,
            lambda: self.m.both(
                f"{v} {name}({v} x)",
                f"return ({v}){prefix}_roundscale_{suffix}(({cast})x, {_ROUNDING[op]});",
                f"    return {plain}(x);",
                f"return ({v}){prefix}_round_{suffix}(({cast})x, {_ROUNDING[op]});"
                if self.m.size(dtype) <= 32
                else "",
            ),
        )

    def _division(self, op: str, dtype: DType) -> str:
        """Returns the helper for a division or remainder of integers of at most 32 bits, computed in doubles.

        Doubles represent their quotients exactly. A division by zero gives 0, as in scalar code.
        """
        v, f64 = self.m.type(dtype), DType.f64
        name = f"lane_{op}_{v}"

        def text() -> str:
            wide, back = self.convert(f64, dtype), self.convert(dtype, f64)
            divide = self.operation("div", f64)
            rounded = self.operation("floor" if op in ("floordiv", "mod") else "trunc", f64)
            select, equal = self.select(dtype), self.compare("eq", dtype)
            zero = f"({v}){{0}}"
            lines = [
                f"static inline {v} {name}({v} a, {v} b) {{",
                f"    const {v} q = {back}({rounded}({divide}({wide}(a), {wide}(b))));",
            ]
            if op in ("mod", "raw_mod"):
                u = self.m.prelude.vector_type(DType(f"uint{8 * dtype.size_bytes}"), self.m.width)
                lines.append(f"    const {v} r = ({v})(({u})a - ({u})q * ({u})b);")
            found = "r" if op in ("mod", "raw_mod") else "q"
            lines.append(f"    return {select}({equal}(b, {zero}), {zero}, {found});\n}}")
            return "\n".join(lines)

        return self.m.made(name, text)

    def fold(self, op: str, dtype: DType) -> str:
        """Returns the helper `fold(x)`: the reduction of all lanes by `op` to a scalar."""
        v, t = self.m.type(dtype), SCALAR_TYPES[dtype.name]
        name = f"lane_fold_{op}_{v}"
        if self.m.is_pair(dtype):
            joined = self.half.operation(op, dtype)
            rest = self.half.fold(op, dtype)
            return self.m.made(
                name,
                lambda: (
                    f"static inline {t} {name}({v} x) {{ return {rest}({joined}(x.lo, x.hi)); }}"
                ),
            )
        if dtype.is_float:
            return self.m.prelude.use(f"fold_{op}", dtype, self.m.width)
        one = self.m.prelude.use(op, dtype, 0) if operator(op, dtype) is None else None
        joined = f"{one}(r, x[l])" if one else f"r {operator(op, dtype)} x[l]"
        return self.m.made(
            name,
            lambda: (
                f"static inline {t} {name}({v} x) {{\n    {t} r = x[0];\n"
                f"    for (int l = 1; l < {self.m.width}; ++l) r = {joined};\n    return r;\n}}"
            ),
        )


def _wider(dtype: DType) -> DType:
    """Returns a type of at least twice the size that represents all numbers of `dtype`."""
    if dtype.is_float:
        return DType.f64
    return I32 if dtype.size_bytes < 4 else DType.i64


def _sign(op: str, dtype: DType) -> str | None:
    """Returns the C operator that does `op` on vectors of `dtype`; None if there is none."""
    if op == "neg" and dtype.is_float:
        return "-"
    return "~" if op == "bit_not" else operator(op, dtype)
