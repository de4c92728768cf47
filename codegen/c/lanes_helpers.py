"""Helper functions of lanes: masks, masked loads and stores, gathers and scatters, blends, functions of whole vectors.

A *lane* is one iteration of a loop of which `width` run at once. What they hold of a type is a vector of GNU C where it fits into a
register, else a structure of two halves, `lo` and `hi`. A mask has a bit a lane where there is AVX-512, else it is a vector of i32,
0 or -1. Each helper is there in both forms, so that one text is for all machines: those without vectors of this size are slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from ...kernels.ir.kernel import DType
from ...kernels.ir.meanings import MIX_FACTORS, MIX_SHIFTS
from ...kernels.ir.ops import OPS
from .vectors import SCALAR_TYPES, Prelude, math_function, operator, type_name

FEATURES = """\
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define LANES_AVX512
#endif
#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define LANES_LIBMVEC /* sin and the like of vectors; in libm's linker script */
#endif
#endif
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LANES_SHUFFLE
#endif
#endif"""
_PREFIX = {16: "_mm", 32: "_mm256", 64: "_mm512"}
_REGISTER = {16: "__m128", 32: "__m256", 64: "__m512"}
_FLOAT_COMPARISONS = {"lt": 17, "le": 18, "gt": 30, "ge": 29, "eq": 0, "ne": 4}  # quiet
_INTEGER_COMPARISONS = {"lt": 1, "le": 2, "gt": 6, "ge": 5, "eq": 0, "ne": 4}
_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_ROUNDING = {"rint": 8, "floor": 9, "ceil": 10, "trunc": 11}
# Of libmvec of glibc 2.35: at most 4 ulp (its manual, "Errors in Math Functions").
_LIBMVEC = frozenset(
    (
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("pow", "atan2", "hypot"),
    )
)
_DIVISIONS = ("floordiv", "mod", "raw_div", "raw_mod")
I32 = DType.i32


class LaneHelpers:
    """Of loops that run `width` iterations at once on registers of `vector_bytes`; names of functions, which it makes available."""

    def __init__(self, prelude: Prelude, width: int, vector_bytes: int, strict: bool) -> None:
        """`strict`: functions of <math.h> are called lane by lane, with the results that they have for scalars."""
        self.prelude, self.width, self.vector_bytes = prelude, width, vector_bytes
        self.strict = strict
        if "LANES_AVX512" not in prelude.defined:
            prelude.defined["LANES_AVX512"] = FEATURES
            prelude.intrinsics = True

    @cached_property
    def half(self) -> LaneHelpers:
        return LaneHelpers(self.prelude, self.width // 2, self.vector_bytes, self.strict)

    # --- types

    def is_pair(self, dtype: DType) -> bool:
        """Whether the values of the lanes take two registers."""
        return dtype.size_bytes * self.width > self.vector_bytes

    def type(self, dtype: DType) -> str:
        """The name of the type of values of all lanes; of bools a mask."""
        if dtype is DType.bool_:
            return self.mask
        if not self.is_pair(dtype):
            return self.prelude.vector_type(dtype, self.width)
        name = type_name(dtype, self.width)
        if name not in self.prelude.defined:
            half = self.half.type(dtype)
            self.prelude.defined[name] = f"typedef struct {{ {half} lo, hi; }} {name};"
        return name

    @property
    def mask(self) -> str:
        """The name of the type of masks."""
        name, n = f"mask{self.width}", self.width
        if name not in self.prelude.defined:
            if self.is_pair(I32):
                half = self.half.mask
                self.prelude.defined[name] = f"typedef struct {{ {half} lo, hi; }} {name};"
            else:
                wide = self.prelude.vector_type(I32, n)
                self.prelude.defined[name] = (
                    f"#ifdef LANES_AVX512\ntypedef uint{max(8, n)}_t {name};\n"
                    f"#else\ntypedef {wide} {name};\n#endif"
                )
        return name

    def _size(self, dtype: DType) -> int:
        return dtype.size_bytes * self.width

    def _made(self, name: str, text: Callable[[], str]) -> str:
        """The name of a helper, made available; `text` may ask for others."""
        if name not in self.prelude.defined:
            written = text()
            self.prelude.defined[name] = written
        return name

    def _both(self, opening: str, avx512: str, other: str, avx2: str = "") -> str:
        """A function whose body has a form for masks of bits and one for vectors of them."""
        lines = [f"static inline {opening} {{"]
        lines += ["#ifdef LANES_AVX512", f"    {avx512}"]
        if avx2:
            lines += ["#elif defined(__AVX2__)", f"    {avx2}"]
        lines += ["#else", other, "#endif"]
        return "\n".join([*lines, "}"])

    # --- masks

    def first(self) -> str:
        """`lane_first(n)`: the mask of the first n lanes."""
        m, n = self.mask, self.width
        name, iota = f"lane_first_{n}", ", ".join(map(str, range(n)))
        if self.is_pair(I32):
            one, h = self.half.first(), n // 2
            return self._made(
                name,
                lambda: (
                    f"static inline {m} {name}(long n) {{ return ({m}){{{one}(n), {one}(n - {h})}}; }}"
                ),
            )
        return self._made(
            name,
            lambda: self._both(
                f"{m} {name}(long n)",
                f"return n >= {n} ? {hex((1 << n) - 1)} : n <= 0 ? 0 : ({m})((1u << n) - 1);",
                f"    const int32_t most = n > {n} ? {n} : n < 0 ? 0 : (int32_t)n;\n"
                f"    return ({m}){{{iota}}} < most;",
            ),
        )

    def mask_operation(self, op: str) -> str:
        """`op(a, b)` of masks: "and", "or", "xor", or "without": a where not b. Masks stay in registers of their own."""
        m, n = self.mask, self.width
        name, b = f"lane_{op}_{n}", DType.bool_
        if self.is_pair(I32):
            one = self.half.mask_operation(op)
            return self._made(name, lambda: self._by_halves(name, b, one, ((b, "a"), (b, "b"))))
        plain = {"and": "a & b", "or": "a | b", "xor": "a ^ b", "without": "a & ~b"}[op]
        instruction = {"and": "kand", "or": "kor", "xor": "kxor", "without": "kandn"}[op]
        args = "b, a" if op == "without" else "a, b"
        return self._made(
            name,
            lambda: self._both(
                f"{m} {name}({m} a, {m} b)",
                f"return ({m})_{instruction}_mask{max(8, n)}({args});",
                f"    return {plain};",
            ),
        )

    def bits(self) -> str:
        """`lane_bits(m)`: a bit a lane."""
        n = self.width
        name = f"lane_bits_{n}"
        if self.is_pair(I32):
            one, h = self.half.bits(), n // 2
            return self._made(
                name,
                lambda: (
                    f"static inline unsigned {name}({self.mask} m) "
                    f"{{ return {one}(m.lo) | {one}(m.hi) << {h}; }}"
                ),
            )
        return self._made(
            name,
            lambda: self._both(
                f"unsigned {name}({self.mask} m)",
                f"return m & {hex((1 << n) - 1)};",
                f"    unsigned bits = 0;\n    for (int l = 0; l < {n}; ++l) bits |= (m[l] & 1u) << l;\n"
                "    return bits;",
                "return (unsigned)_mm256_movemask_ps((__m256)m);"
                if n == 8
                else "return (unsigned)_mm_movemask_ps((__m128)m);"
                if n == 4
                else "",
            ),
        )

    def any(self) -> str:
        """`lane_any(m)`: whether a lane is live."""
        n, bits = self.width, self.bits()
        name = f"lane_any_{n}"
        if self.is_pair(I32):
            one, join = self.half.any(), self.half.mask_operation("or")
            return self._made(
                name,
                lambda: (
                    f"static inline int {name}({self.mask} m) {{ return {one}({join}(m.lo, m.hi)); }}"
                ),
            )
        if n < 8:
            return self._made(
                name,
                lambda: f"static inline int {name}({self.mask} m) {{ return {bits}(m) != 0; }}",
            )
        return self._made(
            name,
            lambda: self._both(
                f"int {name}({self.mask} m)",
                f"return !_kortestz_mask{n}_u8(m, m);",
                f"    return {bits}(m) != 0;",
            ),
        )

    def of_bool(self) -> str:
        """`lane_mask(x)`: all lanes where x, else none."""
        m, n = self.mask, self.width
        name = f"lane_mask_{n}"
        if self.is_pair(I32):
            one = self.half.of_bool()
            return self._made(
                name,
                lambda: (
                    f"static inline {m} {name}(int x) {{ return ({m}){{{one}(x), {one}(x)}}; }}"
                ),
            )
        return self._made(
            name,
            lambda: self._both(
                f"{m} {name}(int x)",
                f"return x ? {hex((1 << n) - 1)} : 0;",
                f"    return ({m}){{0}} - (x != 0);",
            ),
        )

    def part(self, is_high: bool) -> str:
        """`lane_lo(m)`, `lane_hi(m)`: half a mask that is no pair."""
        n, which = self.width, "hi" if is_high else "lo"
        h = self.half
        shift = f"_kshiftri_mask{n}(m, {n // 2})" if is_high else "m"
        if n <= 8:
            shift = f"m >> {n // 2}" if is_high else f"m & {hex((1 << n // 2) - 1)}"
        return self._made(
            f"lane_{which}_{n}",
            lambda: self._both(
                f"{h.mask} lane_{which}_{n}({self.mask} m)",
                f"return ({h.mask})({shift});",
                f"    return {self._half_of(I32, is_high)}(m);",
            ),
        )

    def _half_of(self, dtype: DType, is_high: bool) -> str:
        """Half of a vector of GNU C."""
        n, which = self.width, "hi" if is_high else "lo"
        whole, half = self._vectors(dtype)
        name = f"lane_{which}_{whole}"
        lanes = ", ".join(str(k + (n // 2 if is_high else 0)) for k in range(n // 2))
        return self._made(
            name,
            lambda: (
                f"static inline {half} {name}({whole} x) {{\n#ifdef LANES_SHUFFLE\n"
                f"    return __builtin_shufflevector(x, x, {lanes});\n#else\n"
                f"    union {{ {whole} x; {half} h[2]; }} u = {{x}};\n"
                f"    return u.h[{int(is_high)}];\n#endif\n}}"
            ),
        )

    def _join(self, dtype: DType) -> str:
        """A vector of GNU C of its halves."""
        whole, half = self._vectors(dtype)
        name, lanes = f"lane_join_{whole}", ", ".join(map(str, range(self.width)))
        return self._made(
            name,
            lambda: (
                f"static inline {whole} {name}({half} lo, {half} hi) {{\n#ifdef LANES_SHUFFLE\n"
                f"    return __builtin_shufflevector(lo, hi, {lanes});\n#else\n"
                f"    union {{ {half} h[2]; {whole} x; }} u = {{{{lo, hi}}}};\n"
                f"    return u.x;\n#endif\n}}"
            ),
        )

    def _vectors(self, dtype: DType) -> tuple[str, str]:
        """The types of a vector and of half of it."""
        return self.type(dtype), self.half.type(dtype)

    def lo(self, x: str, dtype: DType, is_high: bool = False) -> str:
        """The text of one half of the value `x`."""
        if dtype is DType.bool_ and not self.is_pair(I32):
            return f"{self.part(is_high)}({x})"
        if dtype is DType.bool_:
            dtype = I32
        if self.is_pair(dtype):
            return f"{x}.{'hi' if is_high else 'lo'}"
        return f"{self._half_of(dtype, is_high)}({x})"

    def _by_halves(
        self, name: str, dtype: DType, function: str, args: tuple[tuple[DType, str], ...]
    ) -> str:
        """A function of values by that of half as many lanes."""
        parameters = ", ".join(f"{self.type(d)} {x}" for d, x in args)
        halves = [
            f"{function}({', '.join(self.lo(x, d, is_high) for d, x in args)})"
            for is_high in (False, True)
        ]
        result = self.type(dtype)
        made = f"({result}){{{', '.join(halves)}}}"
        if dtype is DType.bool_ and not self.is_pair(I32):
            made = f"{self._join_masks()}({', '.join(halves)})"
        elif dtype is not DType.bool_ and not self.is_pair(dtype):
            made = f"{self._join(dtype)}({', '.join(halves)})"
        return f"static inline {result} {name}({parameters}) {{ return {made}; }}"

    def _join_masks(self) -> str:
        n, m, h = self.width, self.mask, self.half.mask
        return self._made(
            f"lane_join_{n}",
            lambda: self._both(
                f"{m} lane_join_{n}({h} lo, {h} hi)",
                f"return ({m})_mm512_kunpackb(hi, lo);"
                if n == 16
                else f"return ({m})((lo & {hex((1 << n // 2) - 1)}) | hi << {n // 2});",
                f"    return {self._join(I32)}(lo, hi);",
            ),
        )

    # --- values

    def splat(self, dtype: DType) -> str:
        v, t = self.type(dtype), SCALAR_TYPES[dtype.name]
        if not self.is_pair(dtype):
            return self.prelude.use("splat", dtype, self.width)
        one = self.half.splat(dtype)
        return self._made(
            f"splat_{v}",
            lambda: f"static inline {v} splat_{v}({t} x) {{ return ({v}){{{one}(x), {one}(x)}}; }}",
        )

    def iota(self, dtype: DType) -> str:
        """`iota(first)`: first, first + 1 and so on."""
        v, t = self.type(dtype), SCALAR_TYPES[dtype.name]
        if not self.is_pair(dtype):
            return self.prelude.use("iota", dtype, self.width)
        one, n = self.half.iota(dtype), self.width // 2
        return self._made(
            f"iota_{v}",
            lambda: (
                f"static inline {v} iota_{v}({t} x) {{ return ({v}){{{one}(x), {one}(x + {n})}}; }}"
            ),
        )

    def compare(self, op: str, dtype: DType) -> str:
        """`op(a, b)`: the mask of lanes where it holds."""
        v = self.type(dtype)
        name = f"lane_{op}_{v}"
        if dtype.size_bytes < 4 and not self.is_pair(dtype):
            return self._made(name, lambda: self._by_i32(name, op, dtype))
        if self.is_pair(dtype):
            ab = ((dtype, "a"), (dtype, "b"))
            return self._made(
                name,
                lambda: self._by_halves(name, DType.bool_, self.half.compare(op, dtype), ab),
            )
        table = _FLOAT_COMPARISONS if dtype.is_float else _INTEGER_COMPARISONS
        prefix, suffix = self._intrinsic(dtype, signed=False)
        cast = self._register(dtype)
        plain = f"a {_SIGNS[op]} b"
        if dtype.size_bytes != 4:
            plain = f"__builtin_convertvector({plain}, i32x{self.width})"
        return self._made(
            name,
            lambda: self._both(
                f"{self.mask} {name}({v} a, {v} b)",
                f"return {prefix}_cmp_{suffix}_mask(({cast})a, ({cast})b, {table[op]});",
                f"    return {plain};",
            ),
        )

    def _by_i32(self, name: str, op: str, dtype: DType) -> str:
        v, of, widen = self.type(dtype), self.compare(op, I32), self.convert(I32, dtype)
        return f"static inline {self.mask} {name}({v} a, {v} b) {{ return {of}({widen}(a), {widen}(b)); }}"

    def _intrinsic(self, dtype: DType, signed: bool = True) -> tuple[str, str]:
        """Prefix and suffix of the intrinsics for a type. Without `signed` that of numbers without a sign is another one."""
        bits = 8 * dtype.size_bytes
        if dtype.is_float:
            suffix = "ps" if bits == 32 else "pd"
        else:
            suffix = f"ep{'i' if signed or dtype.is_signed else 'u'}{bits}"
        return _PREFIX[self._size(dtype)], suffix

    def _register(self, dtype: DType) -> str:
        register = _REGISTER[self._size(dtype)]
        return register + {"ps": "", "pd": "d"}.get(self._intrinsic(dtype)[1], "i")

    def select(self, dtype: DType) -> str:
        """`select(m, a, b)`: a where m, else b."""
        v, m = self.type(dtype), self.mask
        name = f"lane_select_{v}"
        if dtype is DType.bool_:
            both, either, without = map(self.mask_operation, ("and", "or", "without"))
            return self._made(
                name,
                lambda: (
                    f"static inline {m} {name}({m} m, {m} a, {m} b) "
                    f"{{ return {either}({both}(m, a), {without}(b, m)); }}"
                ),
            )
        args = ((DType.bool_, "m"), (dtype, "a"), (dtype, "b"))
        if self.is_pair(dtype):
            return self._made(
                name, lambda: self._by_halves(name, dtype, self.half.select(dtype), args)
            )
        mask_of = DType(f"int{8 * dtype.size_bytes}")
        wide = self.prelude.vector_type(mask_of, self.width)
        opening = f"{v} {name}({m} m, {v} a, {v} b)"
        if dtype.size_bytes < 4:
            widen, of, narrow = self.convert(I32, dtype), self.select(I32), self.convert(dtype, I32)
            return self._made(
                name,
                lambda: (
                    f"static inline {opening} {{ return {narrow}({of}(m, {widen}(a), {widen}(b))); }}"
                ),
            )
        prefix, suffix = self._intrinsic(dtype)
        cast = self._register(dtype)
        as_wide = "m" if dtype.size_bytes == 4 else f"__builtin_convertvector(m, {wide})"
        return self._made(
            name,
            lambda: self._both(
                opening,
                f"return ({v}){prefix}_mask_blend_{suffix}(m, ({cast})b, ({cast})a);",
                f"    const {wide} w = {as_wide};\n"
                f"    return ({v})((w & ({wide})a) | (~w & ({wide})b));",
            ),
        )

    def convert(self, dtype: DType, source: DType) -> str:
        """`convert(x)`: the values in another type."""
        if not self.is_pair(dtype) and not self.is_pair(source):
            return self.prelude.use("convert", dtype, self.width, source)
        name = f"convert_{type_name(dtype, self.width)}_from_{source.name}"
        return self._made(
            name,
            lambda: self._by_halves(
                name, dtype, self.half.convert(dtype, source), ((source, "x"),)
            ),
        )

    def bitcast(self, dtype: DType, source: DType) -> str:
        """`bitcast(x)`: the same bits."""
        if not self.is_pair(dtype):
            self.prelude.vector_type(source, self.width)
            return self.prelude.use("bitcast", dtype, self.width, source)
        name = f"bitcast_{type_name(dtype, self.width)}_from_{source.name}"
        return self._made(
            name,
            lambda: self._by_halves(
                name, dtype, self.half.bitcast(dtype, source), ((source, "x"),)
            ),
        )

    # --- operations

    def operation(self, op: str, dtype: DType) -> str:
        """The function of an operation of kernels/ir/ops.py that gives no bools; comparisons are `compare`."""
        result = OPS[op].result(dtype)
        args = tuple((dtype, x) for x in ("ab" if OPS[op].arity == 2 else "x"))
        if self.is_pair(dtype) or self.is_pair(result):
            name = f"lane_{op}_{type_name(dtype, self.width)}"
            half = self.half.operation(op, dtype)
            return self._made(name, lambda: self._by_halves(name, result, half, args))
        if (sign := _sign(op, dtype)) is not None:
            return self._infix(op, dtype, sign)
        if op in _DIVISIONS and dtype.is_integer and dtype.size_bytes <= 4:
            return self._division(op, dtype)
        if op in ("min", "max") and dtype.size_bytes >= 4:
            return self._extreme(op, dtype)
        if op in _ROUNDING:
            return self._rounding(op, dtype)
        if op == "mix64":
            return self._mix()
        if op == "rsqrt":
            v, root = self.type(dtype), self.prelude.use("sqrt", dtype, self.width)
            name = f"lane_rsqrt_{v}"
            return self._made(
                name, lambda: f"static inline {v} {name}({v} x) {{ return 1 / {root}(x); }}"
            )
        if not self.strict and op in _LIBMVEC and math_function(op, dtype):
            return self._library(op, dtype)
        return self.prelude.use(op, dtype, self.width)

    def _infix(self, op: str, dtype: DType, sign: str) -> str:
        """A function of what is an operator of C."""
        v = self.type(dtype)
        name, is_binary = f"lane_{op}_{v}", OPS[op].arity == 2
        given, made = (f"{v} a, {v} b", f"a {sign} b") if is_binary else (f"{v} x", f"{sign}x")
        return self._made(name, lambda: f"static inline {v} {name}({given}) {{ return {made}; }}")

    def _mix(self) -> str:
        v = self.type(DType.u64)
        steps = "".join(
            f"    x = (x ^ (x >> {shift})) * {factor:#x}u;\n"
            for factor, shift in zip(MIX_FACTORS, MIX_SHIFTS, strict=False)
        )
        name, last = f"lane_mix64_{v}", MIX_SHIFTS[-1]
        return self._made(
            name,
            lambda: f"static inline {v} {name}({v} x) {{\n{steps}    return x ^ (x >> {last});\n}}",
        )

    def _extreme(self, op: str, dtype: DType) -> str:
        v = self.type(dtype)
        name, plain = f"lane_{op}_{v}", self.prelude.use(op, dtype, self.width)
        prefix, suffix = self._intrinsic(dtype, signed=False)
        cast = self._register(dtype)
        return self._made(
            name,
            lambda: self._both(
                f"{v} {name}({v} a, {v} b)",
                f"return ({v}){prefix}_{op}_{suffix}(({cast})a, ({cast})b);",
                f"    return {plain}(a, b);",
            ),
        )

    def _rounding(self, op: str, dtype: DType) -> str:
        v = self.type(dtype)
        name, plain = f"lane_{op}_{v}", self.prelude.use(op, dtype, self.width)
        prefix, suffix = self._intrinsic(dtype)
        cast = self._register(dtype)
        return self._made(
            name,
            lambda: self._both(
                f"{v} {name}({v} x)",
                f"return ({v}){prefix}_roundscale_{suffix}(({cast})x, {_ROUNDING[op]});",
                f"    return {plain}(x);",
                f"return ({v}){prefix}_round_{suffix}(({cast})x, {_ROUNDING[op]});"
                if self._size(dtype) <= 32
                else "",
            ),
        )

    def _division(self, op: str, dtype: DType) -> str:
        """Of integers of at most 32 bits in doubles, which hold their quotients: by zero it is 0, as of scalars."""
        v, f64 = self.type(dtype), DType.f64
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
                u = self.prelude.vector_type(DType(f"uint{8 * dtype.size_bytes}"), self.width)
                lines.append(f"    const {v} r = ({v})(({u})a - ({u})q * ({u})b);")
            found = "r" if op in ("mod", "raw_mod") else "q"
            lines.append(f"    return {select}({equal}(b, {zero}), {zero}, {found});\n}}")
            return "\n".join(lines)

        return self._made(name, text)

    def _library(self, op: str, dtype: DType) -> str:
        """A function of libmvec, where there is one for vectors of this size."""
        v, size = self.type(dtype), self._size(dtype)
        name, plain = f"lane_{op}_{v}", self.prelude.use(op, dtype, self.width)
        letter, feature = {
            64: ("e", "__AVX512F__"),
            32: ("d", "__AVX2__"),
            16: ("b", "__SSE4_1__"),
        }[size]
        function = math_function(op, dtype)
        n = OPS[op].arity
        symbol = f"_ZGV{letter}N{self.width}{'v' * n}_{function}"
        parameters, given = ", ".join(f"{v} {x}" for x in "ab"[:n]), ", ".join("ab"[:n])
        test = f"#if defined(LANES_LIBMVEC) && defined({feature})"
        return self._made(
            name,
            lambda: (
                f"{test}\n{v} {symbol}({', '.join([v] * n)});\n#endif\n"
                f"static inline {v} {name}({parameters}) {{\n{test}\n    return {symbol}({given});\n"
                f"#else\n    return {plain}({given});\n#endif\n}}"
            ),
        )

    def fold(self, op: str, dtype: DType) -> str:
        """`fold(x)`: all lanes combined."""
        v, t = self.type(dtype), SCALAR_TYPES[dtype.name]
        name = f"lane_fold_{op}_{v}"
        if self.is_pair(dtype):
            joined = self.half.operation(op, dtype)
            rest = self.half.fold(op, dtype)
            return self._made(
                name,
                lambda: (
                    f"static inline {t} {name}({v} x) {{ return {rest}({joined}(x.lo, x.hi)); }}"
                ),
            )
        if dtype.is_float:
            return self.prelude.use(f"fold_{op}", dtype, self.width)
        one = self.prelude.use(op, dtype, 0) if operator(op, dtype) is None else None
        joined = f"{one}(r, x[l])" if one else f"r {operator(op, dtype)} x[l]"
        return self._made(
            name,
            lambda: (
                f"static inline {t} {name}({v} x) {{\n    {t} r = x[0];\n"
                f"    for (int l = 1; l < {self.width}; ++l) r = {joined};\n    return r;\n}}"
            ),
        )

    # --- memory

    def load(self, dtype: DType) -> str:
        """`load(m, p)`: p[0], p[1] and so on where m, else 0."""
        v, t, n = self.type(dtype), SCALAR_TYPES[dtype.name], self.width
        name = f"lane_load_{v}"
        opening = f"{v} {name}({self.mask} m, const {t} *p)"
        if self.is_pair(dtype):
            return self._made(name, lambda: self._pairs_at(opening, dtype, self.half.load(dtype)))
        return self._made(name, lambda: self._loading(name, dtype, opening, v, n))

    def _loading(self, name: str, dtype: DType, opening: str, v: str, n: int) -> str:
        bits = self.bits()
        one = (
            f"    if ({bits}(m) == {hex((1 << n) - 1)}) return *(const {v}_unaligned *)p;\n"
            f"    {v} r = {{0}};\n"
            f"    for (unsigned left = {bits}(m); left; left &= left - 1) "
            "r[__builtin_ctz(left)] = p[__builtin_ctz(left)];\n    return r;"
        )
        if dtype.size_bytes < 4:
            return f"static inline {opening} {{\n{one}\n}}"
        prefix, suffix = self._intrinsic(dtype)
        return self._both(opening, f"return ({v}){prefix}_maskz_loadu_{suffix}(m, p);", one)

    def store(self, dtype: DType) -> str:
        """`store(p, m, x)`: p[0] = x[0] and so on where m."""
        v, t, n = self.type(dtype), SCALAR_TYPES[dtype.name], self.width
        name = f"lane_store_{v}"
        opening = f"void {name}({t} *p, {self.mask} m, {v} x)"
        if self.is_pair(dtype):
            h, one = self.width // 2, self.half.store(dtype)
            m = DType.bool_
            return self._made(
                name,
                lambda: (
                    f"static inline {opening} {{\n    {one}(p, {self.lo('m', m)}, x.lo);\n"
                    f"    {one}(p + {h}, {self.lo('m', m, True)}, x.hi);\n}}"
                ),
            )
        bits = self.bits()
        one = (
            f"    if ({bits}(m) == {hex((1 << n) - 1)}) *(({v}_unaligned *)p) = x;\n"
            f"    else for (unsigned left = {bits}(m); left; left &= left - 1) "
            "p[__builtin_ctz(left)] = x[__builtin_ctz(left)];"
        )
        if dtype.size_bytes < 4:
            return self._made(name, lambda: f"static inline {opening} {{\n{one}\n}}")
        prefix, suffix = self._intrinsic(dtype)
        cast = self._register(dtype)
        return self._made(
            name,
            lambda: self._both(opening, f"{prefix}_mask_storeu_{suffix}(p, m, ({cast})x);", one),
        )

    def _pairs_at(self, opening: str, dtype: DType, one: str) -> str:
        h, v, m = self.width // 2, self.type(dtype), DType.bool_
        return (
            f"static inline {opening} {{\n    return ({v}){{{one}({self.lo('m', m)}, p), "
            f"{one}({self.lo('m', m, True)}, p + {h})}};\n}}"
        )

    def gather(self, dtype: DType) -> str:
        """`gather(m, p, i)`: p[i] where m, else 0; i are i32."""
        v, t, i = self.type(dtype), SCALAR_TYPES[dtype.name], self.type(I32)
        name = f"lane_gather_{v}"
        opening = f"{v} {name}({self.mask} m, const {t} *p, {i} i)"
        if self.is_pair(dtype):
            one, b = self.half.gather(dtype), DType.bool_
            parts = [
                f"{one}({self.lo('m', b, k)}, p, {self.lo('i', I32, k)})" for k in (False, True)
            ]
            return self._made(
                name,
                lambda: f"static inline {opening} {{\n    return ({v}){{{', '.join(parts)}}};\n}}",
            )
        bits = self.bits()
        one = (
            f"    {v} r = {{0}};\n"
            f"    for (unsigned left = {bits}(m); left; left &= left - 1) "
            "r[__builtin_ctz(left)] = p[i[__builtin_ctz(left)]];\n    return r;"
        )
        if dtype.size_bytes < 4:
            return self._made(name, lambda: f"static inline {opening} {{\n{one}\n}}")
        prefix, suffix = self._intrinsic(dtype)
        cast, of_index = self._register(dtype), f"{_REGISTER[max(16, self._size(I32))]}i"
        masked = "mask" if self._size(dtype) == 64 else "mmask"
        size = dtype.size_bytes
        call = f"{prefix}_{masked}_i32gather_{suffix}(({cast}){{0}}, m, ({of_index})i, p, {size})"
        avx2 = ""
        if self._size(dtype) <= 32:
            wide = "m" if size == 4 else f"__builtin_convertvector(m, i64x{self.width})"
            if size == 8:
                self.prelude.vector_type(DType.i64, self.width)
            kind = {"epi32": "int", "epi64": "long long"}.get(suffix)
            place = f"(const {kind} *)p" if kind else "p"
            avx2 = (
                f"return ({v}){prefix}_mask_i32gather_{suffix}"
                f"(({cast}){{0}}, {place}, ({of_index})i, ({cast}){wide}, {size});"
            )
        return self._made(name, lambda: self._both(opening, f"return ({v}){call};", one, avx2))

    def scatter(self, dtype: DType) -> str:
        """`scatter(p, m, i, x)`: p[i] = x where m, from the first lane to the last."""
        v, t, i = self.type(dtype), SCALAR_TYPES[dtype.name], self.type(I32)
        name = f"lane_scatter_{v}"
        opening = f"void {name}({t} *p, {self.mask} m, {i} i, {v} x)"
        if self.is_pair(dtype):
            one, b = self.half.scatter(dtype), DType.bool_
            parts = [
                f"    {one}(p, {self.lo('m', b, k)}, {self.lo('i', I32, k)}, {self.lo('x', dtype, k)});"
                for k in (False, True)
            ]
            return self._made(name, lambda: "\n".join([f"static inline {opening} {{", *parts, "}"]))
        bits = self.bits()
        one = (
            f"    for (unsigned left = {bits}(m); left; left &= left - 1) "
            "p[i[__builtin_ctz(left)]] = x[__builtin_ctz(left)];"
        )
        if dtype.size_bytes < 4:
            return self._made(name, lambda: f"static inline {opening} {{\n{one}\n}}")
        prefix, suffix = self._intrinsic(dtype)
        cast, of_index = self._register(dtype), f"{_REGISTER[max(16, self._size(I32))]}i"
        call = f"{prefix}_mask_i32scatter_{suffix}(p, m, ({of_index})i, ({cast})x, {dtype.size_bytes});"
        return self._made(name, lambda: self._both(opening, call, one))

    def update(self, op: str, dtype: DType, atomic: bool) -> str:
        """`update(p, m, i, x)`: p[i] op= x where m, one lane after the other; gives what the elements held before."""
        v, t, i = self.type(dtype), SCALAR_TYPES[dtype.name], self.type(I32)
        n = self.width
        name = f"lane_{'atomic_' if atomic else ''}{op}_at_{v}"

        def text() -> str:
            bits = self.bits()
            if atomic:
                act = f"r[l] = {self.prelude.use(f'fetch_{op}', dtype, 0)}(&p[at[l]], b[l]);"
            else:
                sign = operator(op, dtype)
                joined = (
                    f"r[l] {sign} b[l]" if sign else f"{self.prelude.use(op, dtype, 0)}(r[l], b[l])"
                )
                act = f"r[l] = p[at[l]];\n        p[at[l]] = {joined};"
            return (
                f"static inline {v} {name}({t} *p, {self.mask} m, {i} i, {v} x) {{\n"
                f"    {t} b[{n}], r[{n}] = {{0}};\n    int32_t at[{n}];\n    {v} old;\n"
                f"    __builtin_memcpy(b, &x, sizeof b);\n    __builtin_memcpy(at, &i, sizeof at);\n"
                f"    for (unsigned left = {bits}(m); left; left &= left - 1) {{\n"
                f"        const int l = __builtin_ctz(left);\n        {act}\n    }}\n"
                f"    __builtin_memcpy(&old, r, sizeof r);\n    return old;\n}}"
            )

        return self._made(name, text)


def _sign(op: str, dtype: DType) -> str | None:
    """How C spells an operation on vectors, where it has an operator for it."""
    if op == "neg" and dtype.is_float:
        return "-"
    return "~" if op == "bit_not" else operator(op, dtype)
