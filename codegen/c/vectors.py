"""Helper functions that generated text may call: vector types, element-wise mathematics, reductions over lanes.

Each helper is named `<operation>_<type>`, e.g. `load_f32x16` or `min_f64`; the emitter notes the names it uses and `prelude`
writes down exactly those, with what they need themselves.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from ...kernels.ir.kernel import DType
from ...kernels.ir.meanings import MIX_FACTORS, MIX_SHIFTS
from ...kernels.ir.ops import OPS
from .source import MESSAGE, MESSAGE_BYTES

SCALAR_TYPES = {"f16": "_Float16", "f32": "float", "f64": "double", "bool_": "int"} | {
    d.name: f"{d.value}_t" for d in DType if d.is_integer
}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
}  # fmt: skip
_SHIFTS = {"shl": "<<", "shr": ">>", "bit_shr": ">>"}


def type_name(dtype: DType, lanes: int) -> str:
    """The C name of a scalar (`lanes` 0) or vector type."""
    return f"{dtype.name}x{lanes}" if lanes else SCALAR_TYPES[dtype.name]


def mask_dtype(dtype: DType) -> DType:
    """The integer type whose vectors hold the result of comparing vectors of `dtype`."""
    return DType(f"int{8 * dtype.size_bytes}")


def unsigned(dtype: DType) -> DType:
    """The integer type without a sign that is as wide."""
    return DType(f"uint{8 * dtype.size_bytes}")


def operator(op: str, dtype: DType) -> str | None:
    """The operator of C that does what `op` does to values of a type; None where a helper does.

    Sums of signed integers wrap around, which C leaves undefined, and C computes with small ones as int. Halves are computed in
    float and rounded once an operation.
    """
    if dtype is DType.f16 or (dtype.is_integer and not _is_plain(op, dtype)):
        return None
    return _INFIX.get(op)


def _is_plain(op: str, dtype: DType) -> bool:
    return op.startswith("bit_") or (dtype.size_bytes >= 4 and not dtype.is_signed)


class Helpers(ABC):
    """How one member of the C family spells vector types and helper functions."""

    @abstractmethod
    def vector_type(self, dtype: DType, lanes: int) -> dict[str, str]:
        """The definitions of a vector type and of what it rests on, by name."""

    @abstractmethod
    def function(
        self,
        prelude: Prelude,
        name: str,
        operation: str,
        dtype: DType,
        lanes: int,
        other: DType | None,
    ) -> str:
        """The definition of a helper; what it needs itself it takes from the prelude."""

    @abstractmethod
    def printing(self) -> tuple[str, str, tuple[str, ...]]:
        """What declares a function that prints in one of printf's formats, its name, and what it takes before the format."""


# The first assertion that fails leaves its message in `ks_message`, which is empty otherwise; bodies look at `ks_stopped` before
# they begin, and whoever calls sets both back.
FAILING = f"""\
#include <stdarg.h>
char {MESSAGE}[{MESSAGE_BYTES}];
static int ks_stopped;
static void ks_fail(const char *format, ...) {{
    if (__atomic_exchange_n(&ks_stopped, 1, __ATOMIC_RELAXED)) return;
    va_list values;
    va_start(values, format);
    vsnprintf({MESSAGE}, sizeof {MESSAGE}, format, values);
    va_end(values);
}}"""


class Prelude:
    """Collects helpers and writes their definitions, each after what it uses."""

    def __init__(self, helpers: Helpers) -> None:
        self.helpers = helpers
        self.defined: dict[str, str] = {}  # by the name of a type or function
        self.streams = False
        self.intrinsics = False  # of x86

    def use(self, operation: str, dtype: DType, lanes: int, other: DType | None = None) -> str:
        """Makes a helper available and returns its name."""
        kind = f"{dtype.name}x{lanes}" if lanes else dtype.name
        name = f"{operation}_{kind}" + (f"_from_{other.name}" if other else "")
        if name not in self.defined:
            if lanes:
                self.vector_type(dtype, lanes)
            text = self.helpers.function(self, name, operation, dtype, lanes, other)
            self.defined[name] = text
        return name

    def vector_type(self, dtype: DType, lanes: int) -> str:
        """Makes a vector type available and returns its name."""
        name = f"{dtype.name}x{lanes}"
        if name not in self.defined:
            for part, text in self.helpers.vector_type(dtype, lanes).items():
                self.defined.setdefault(part, text)
        return name

    def printing(self) -> tuple[str, tuple[str, ...]]:
        """Makes what prints in a format available, and returns its name and what it takes before the format."""
        definition, name, first = self.helpers.printing()
        if definition:
            self.defined.setdefault("ks_printing", definition)
        return name, first

    def failing(self) -> str:
        """Makes what ends a call available and returns its name; see FAILING."""
        self.printing()
        self.defined.setdefault("ks_fail", FAILING)
        for name in ("ks_stopped", "ks_message"):
            self.defined.setdefault(name, "")
        return "ks_fail"

    @property
    def may_fail(self) -> bool:
        """Whether a call may end early."""
        return "ks_fail" in self.defined

    def text(self) -> str:
        return "\n".join(filter(None, self.defined.values()))


class CHelpers(Helpers):
    """In C with the vector extensions of GNU."""

    def vector_type(self, dtype: DType, lanes: int) -> dict[str, str]:
        name = f"{dtype.name}x{lanes}"
        c = SCALAR_TYPES[dtype.name]
        size = dtype.size_bytes * lanes
        anywhere = f"vector_size({size}), aligned({dtype.size_bytes}), may_alias"
        return {
            name: f"typedef {c} {name} __attribute__((vector_size({size})));",
            f"{name}_unaligned": f"typedef {c} {name}_unaligned __attribute__(({anywhere}));",
        }

    def function(
        self,
        prelude: Prelude,
        name: str,
        operation: str,
        dtype: DType,
        lanes: int,
        other: DType | None,
    ) -> str:
        c = SCALAR_TYPES[dtype.name]
        if not lanes:
            return scalar_helper(prelude, name, operation, dtype, other)
        v = f"{dtype.name}x{lanes}"
        one = f"static inline {v} {name}({v} x) {{\n"
        two = f"static inline {v} {name}({v} a, {v} b) {{\n"
        if operation.startswith("align"):
            return self.aligned(prelude, name, dtype, lanes, int(operation.removeprefix("align")))
        each = f"    for (int l = 0; l < {lanes}; ++l) r[l] = "
        match operation:
            case "load":
                return f"static inline {v} {name}(const {c} *p) {{ return *(const {v}_unaligned *)p; }}"
            case "store":
                return f"static inline void {name}({c} *p, {v} x) {{ *({v}_unaligned *)p = x; }}"
            case "stream":
                return self.stream(prelude, name, c, v, dtype.size_bytes * lanes)
            case "splat":
                # x - 0 keeps the sign of a negative zero, x + 0 does not.
                return f"static inline {v} {name}({c} x) {{ return x - ({v}){{0}}; }}"
            case "gather":
                items = ", ".join(f"p[{k} * stride]" for k in range(lanes))
                return f"static inline {v} {name}(const {c} *p, long stride) {{ return ({v}){{{items}}}; }}"
            case "iota":
                items = ", ".join(map(str, range(lanes)))
                return f"static inline {v} {name}({c} first) {{ return first + ({v}){{{items}}}; }}"
            case "convert":
                assert other is not None
                source = prelude.vector_type(other, lanes)
                return f"static inline {v} {name}({source} x) {{ return __builtin_convertvector(x, {v}); }}"
            case "min" | "max":
                less = prelude.use("select", dtype, lanes)
                return f"{two}    return {less}({'a < b' if operation == 'min' else 'a > b'}, a, b);\n}}"
            case "select":
                mask = prelude.vector_type(mask_dtype(dtype), lanes)
                blend = f"({v})((m & ({mask})a) | (~m & ({mask})b))"
                return f"static inline {v} {name}({mask} m, {v} a, {v} b) {{ return {blend}; }}"
            case "fold_add" | "fold_mul" | "fold_min" | "fold_max":
                return self.fold(prelude, name, operation.removeprefix("fold_"), dtype, lanes)
            case "abs" if not dtype.is_signed:
                return f"{one}    return x;\n}}"
            case "abs" if not dtype.is_float:
                return f"{one}    return {prelude.use('select', dtype, lanes)}(x < 0, -x, x);\n}}"
            case "add" | "sub" | "mul" | "shl" | "shr" | "bit_shr" if dtype.is_integer:
                sign = _INFIX.get(operation) or _SHIFTS[operation]
                u = v if operation == "shr" else prelude.vector_type(unsigned(dtype), lanes)
                return f"{two}    return ({v})(({u})a {sign} ({u})b);\n}}"
            case "neg" if dtype.is_integer:
                u = prelude.vector_type(unsigned(dtype), lanes)
                return f"{one}    return ({v})-({u})x;\n}}"
            case "bitcast":
                assert other is not None
                source = prelude.vector_type(other, lanes)
                return f"static inline {v} {name}({source} x) {{ return ({v})x; }}"
            case "isnan" | "isinf":
                mask = prelude.vector_type(mask_dtype(dtype), lanes)
                if operation == "isnan":
                    return f"static inline {mask} {name}({v} x) {{ return x != x; }}"
                size = prelude.use("abs", dtype, lanes)
                infinite = f"{size}(x) == ({c})INFINITY"
                return f"static inline {mask} {name}({v} x) {{ return {infinite}; }}"
            case "abs":
                mask = prelude.vector_type(mask_dtype(dtype), lanes)
                without_sign = "0x7fffffff" if dtype is DType.f32 else "0x7fffffffffffffffL"
                return f"{one}    return ({v})(({mask})x & {without_sign});\n}}"
        function = math_function(operation, dtype) or prelude.use(operation, dtype, 0)
        if OPS[operation].arity == 2:
            return f"{two}    {v} r = a;\n{each}{function}(a[l], b[l]);\n    return r;\n}}"
        result = prelude.vector_type(OPS[operation].result(dtype), lanes)
        if result != v:
            one = f"static inline {result} {name}({v} x) {{\n"
            return f"{one}    {result} r;\n{each}{function}(x[l]);\n    return r;\n}}"
        lane_by_lane = f"    {v} r = x;\n{each}{function}(x[l]);\n    return r;\n"
        instruction = self.instruction(prelude, operation, dtype, lanes)
        if instruction is None:
            return f"{one}{lane_by_lane}}}"
        feature, call = instruction
        return f"{one}#if defined({feature})\n    return {call};\n#else\n{lane_by_lane}#endif\n}}"

    def aligned(self, prelude: Prelude, name: str, dtype: DType, lanes: int, first: int) -> str:
        """Of two vectors that follow one another the lanes from `first` on."""
        v = f"{dtype.name}x{lanes}"
        mask = prelude.vector_type(mask_dtype(dtype), lanes)
        items = ", ".join(str(first + k) for k in range(lanes))
        return (
            f"static inline {v} {name}({v} a, {v} b) {{\n#if defined(__clang__)\n"
            f"    return __builtin_shufflevector(a, b, {items});\n#else\n"
            f"    return __builtin_shuffle(a, b, ({mask}){{{items}}});\n#endif\n}}"
        )

    def printing(self) -> tuple[str, str, tuple[str, ...]]:
        # To the descriptor, so that it comes behind what Python has flushed and before what it prints next.
        return "#include <stdio.h>", "dprintf", ("1",)

    def instruction(
        self, prelude: Prelude, operation: str, dtype: DType, lanes: int
    ) -> tuple[str, str] | None:
        """The feature test and the call of one x86 instruction for a whole vector, where there is one.

        Programs are built without the compiler's vectoriser, so lane-by-lane loops stay scalar.
        """
        size = dtype.size_bytes * lanes
        features = {
            ("sqrt", 64): ("__AVX512F__", "_mm512"),
            ("sqrt", 32): ("__AVX__", "_mm256"),
            ("sqrt", 16): ("__SSE2__", "_mm"),
            ("floor", 64): ("__AVX512F__", "_mm512"),
            ("floor", 32): ("__AVX__", "_mm256"),
            ("floor", 16): ("__SSE4_1__", "_mm"),
        }
        found = features.get((operation, size))
        if found is None:
            return None
        prelude.intrinsics = True
        feature, prefix = found
        register = {64: "__m512", 32: "__m256", 16: "__m128"}[size] + (
            "" if dtype is DType.f32 else "d"
        )
        suffix = "ps" if dtype is DType.f32 else "pd"
        return feature, f"({dtype.name}x{lanes}){prefix}_{operation}_{suffix}(({register})x)"

    def stream(self, prelude: Prelude, name: str, c: str, v: str, size: int) -> str:
        """A store around the caches: of a whole vector where it begins at a multiple of its size, of pieces where it begins at 16
        bytes, as NumPy's arrays do, else in the ordinary way. `is_aligned`: the first is known; 0: the store looks.

        In assembly, because the header of the intrinsics takes longer to compile than the rest.
        """
        prelude.streams = True
        opening = f"static inline void {name}({c} *p, {v} x, int is_aligned) {{\n"
        plain = f"    *({v}_unaligned *)p = x;\n"
        ways = {
            64: (("__AVX512F__", "vmovntps", "v"),),
            32: (("__AVX__", "vmovntps", "x"),),
            16: (("__AVX__", "vmovntps", "x"), ("__SSE2__", "movntps", "x")),
        }.get(size, ())
        if not ways:
            return f"{opening}    (void)is_aligned;\n{plain}}}"
        test = f"is_aligned || __builtin_expect(((uintptr_t)p & {size - 1}) == 0, 1)"
        pieces = ""
        if size > 16:
            pieces = (
                "    if (((uintptr_t)p & 15) == 0) {\n"
                "        typedef float piece __attribute__((vector_size(16), may_alias));\n"
                f"        union {{ {v} whole; piece pieces[{size // 16}]; }} u = {{x}};\n"
                f"        for (int k = 0; k < {size // 16}; ++k) {{\n"
                '            __asm__("vmovntps %1, %0" : "=m"(((piece *)p)[k]) : "x"(u.pieces[k]));\n'
                "        }\n        return;\n    }\n"
            )
        streamed = "".join(
            f"#{'elif' if k else 'if'} defined({feature})\n    if ({test}) {{\n"
            f'        __asm__("{instruction} %1, %0" : "=m"(*({v}_unaligned *)p) : "{register}"(x));\n'
            f"        return;\n    }}\n{pieces}"
            for k, (feature, instruction, register) in enumerate(ways)
        )
        return f"{opening}    (void)is_aligned;\n{streamed}#endif\n{plain}}}"

    def fold(self, prelude: Prelude, name: str, operation: str, dtype: DType, lanes: int) -> str:
        """Halves the vector until one lane is left: log2(lanes) steps instead of a chain of lanes."""
        c, v = SCALAR_TYPES[dtype.name], f"{dtype.name}x{lanes}"
        if lanes == 2:
            a_b = OPS[operation].combine.replace("a", "x[0]").replace("b", "x[1]")
            return f"static inline {c} {name}({v} x) {{ return {a_b}; }}"
        half = prelude.vector_type(dtype, lanes // 2)
        rest = prelude.use(f"fold_{operation}", dtype, lanes // 2)
        joined = (
            f"u.h[0] {'+' if operation == 'add' else '*'} u.h[1]"
            if operation in ("add", "mul")
            else f"{prelude.use(operation, dtype, lanes // 2)}(u.h[0], u.h[1])"
        )
        return (
            f"static inline {c} {name}({v} x) {{\n    union {{ {v} whole; {half} h[2]; }} u = {{x}};\n"
            f"    return {rest}({joined});\n}}"
        )


def scalar_helper(
    prelude: Prelude, name: str, operation: str, dtype: DType, other: DType | None = None
) -> str:
    """The definition of an operation on scalars."""
    c = SCALAR_TYPES[dtype.name]
    result = SCALAR_TYPES[OPS[operation].result(dtype).name] if operation in OPS else c
    one = f"static inline {result} {name}({c} x) {{"
    two = f"static inline {result} {name}({c} a, {c} b) {{"
    if operation == "bitcast":
        assert other is not None
        of = SCALAR_TYPES[other.name]
        return (
            f"static inline {c} {name}({of} x) {{\n"
            f"    union {{ {of} before; {c} after; }} u = {{x}};\n    return u.after;\n}}"
        )
    if operation.startswith("fetch_"):
        return _fetching(name, operation.removeprefix("fetch_"), c, dtype)
    if operation in ("min", "max"):
        return f"{two} return {OPS[operation].combine}; }}"
    if dtype is DType.f16:
        return _of_half(prelude, operation, one, two)
    if dtype.is_float:
        return _of_floats(operation, one, two, dtype)
    return _of_integers(prelude, operation, one, two, dtype)


def _of_half(prelude: Prelude, operation: str, one: str, two: str) -> str:
    """In float, rounded once: as if it had been computed in halves, for + - * / and the square root."""
    if operation in ("add", "sub", "mul", "div"):
        return f"{two} return (_Float16)((float)a {_INFIX[operation]} (float)b); }}"
    if operation == "neg":
        return f"{one} return (_Float16)-(float)x; }}"
    function = math_function(operation, DType.f32) or prelude.use(operation, DType.f32, 0)
    kind = "int" if OPS[operation].gives else "_Float16"
    if OPS[operation].arity == 2:
        return f"{two} return ({kind}){function}((float)a, (float)b); }}"
    return f"{one} return ({kind}){function}((float)x); }}"


def _of_floats(operation: str, one: str, two: str, dtype: DType) -> str:
    f = "f" if dtype is DType.f32 else ""
    match operation:
        case "isnan":
            return f"{one} return x != x; }}"
        case "isinf":
            return f"{one} return fabs{f}(x) == ({SCALAR_TYPES[dtype.name]})INFINITY; }}"
        case "rsqrt":
            return f"{one} return 1 / sqrt{f}(x); }}"
        case "mod":
            # As Python and NumPy: of the divisor's sign, also where it is zero.
            return (
                f"{two}\n    const {SCALAR_TYPES[dtype.name]} rest = fmod{f}(a, b);\n"
                f"    if (rest == 0) return copysign{f}(rest, b);\n"
                f"    return (rest < 0) != (b < 0) ? rest + b : rest;\n}}"
            )
        case "floordiv":
            # The quotient of what divides without a rest, which rounding may leave beside a whole number.
            return (
                f"{two}\n    {SCALAR_TYPES[dtype.name]} rest = fmod{f}(a, b), n, whole;\n"
                f"    if (b == 0) return a / b;\n"
                f"    n = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0));\n"
                f"    if (n == 0) return copysign{f}(0, a / b);\n"
                f"    whole = floor{f}(n);\n"
                f"    return n - whole > 0.5 ? whole + 1 : whole;\n}}"
            )
    raise AssertionError(operation)


def _fetching(name: str, operation: str, c: str, dtype: DType) -> str:
    """An atomic update of an element that gives its old value."""
    opening = f"static inline {c} {name}({c} *place, {c} b) {{\n"
    if not dtype.is_float and operation in ("add", "bit_and", "bit_or", "bit_xor"):
        built_in = f"__atomic_fetch_{operation.removeprefix('bit_')}"
        return f"{opening}    return {built_in}(place, b, __ATOMIC_RELAXED);\n}}"
    return (
        f"{opening}    {c} a, ab;\n"
        "    __atomic_load(place, &a, __ATOMIC_RELAXED);\n"
        "    do {\n"
        f"        ab = {OPS[operation].combine};\n"
        "    } while (!__atomic_compare_exchange(place, &a, &ab, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));\n"
        "    return a;\n}"
    )


def _of_integers(prelude: Prelude, operation: str, one: str, two: str, dtype: DType) -> str:
    """What C leaves undefined wraps around: computed without a sign, in 32 bits at least."""
    c, own = SCALAR_TYPES[dtype.name], SCALAR_TYPES[unsigned(dtype).name]
    u = own if dtype.size_bytes >= 4 else "uint32_t"
    n_bits = 8 * dtype.size_bytes
    match operation:
        case "add" | "sub" | "mul":
            return f"{two} return ({c})(({u})a {_INFIX[operation]} ({u})b); }}"
        case "shl":
            return f"{two} return ({c})(({u})a << b); }}"
        case "shr":
            return f"{two} return ({c})(a >> b); }}"
        case "bit_shr":
            return f"{two} return ({c})(({own})a >> b); }}"
        case "neg":
            return f"{one} return ({c})-({u})x; }}"
        case "bit_not":
            return f"{one} return ({c})~x; }}"
        case "abs":
            return f"{one} return {f'x < 0 ? ({c})-({u})x : x' if dtype.is_signed else 'x'}; }}"
        case "floordiv" | "mod" | "raw_div" | "raw_mod":
            return two + _division(operation, dtype)
        case "popcnt":
            wide = "ll" if n_bits == 64 else ""
            return f"{one} return __builtin_popcount{wide}(({own})x); }}"
        case "clz":
            wide = "ll" if n_bits == 64 else ""
            return f"{one} return x == 0 ? {n_bits} : __builtin_clz{wide}(({own})x); }}"
        case "mix64":
            lines = [
                f"    x = (x ^ (x >> {n})) * {factor:#x}u;\n"
                for factor, n in zip(MIX_FACTORS, MIX_SHIFTS, strict=False)
            ]
            return f"{one}\n{''.join(lines)}    return x ^ (x >> {MIX_SHIFTS[-1]});\n}}"
    raise AssertionError(operation)


def _division(operation: str, dtype: DType) -> str:
    """A division of integers that is defined for all of them, as NumPy defines it: by zero it gives 0, and the least integer
    divided by -1 wraps. The instruction itself ends the process in both cases.
    """
    is_quotient = operation in ("floordiv", "raw_div")
    plain = "a / b" if is_quotient else "a % b"
    if not dtype.is_signed:
        return f" return b == 0 ? 0 : {plain}; }}"
    by_minus_one = "0"
    if is_quotient:
        by_minus_one = f"(a == INT{8 * dtype.size_bytes}_MIN ? a : -a)"
    if operation == "floordiv":
        plain = "a / b - (a % b != 0 && (a < 0) != (b < 0))"
    if operation == "mod":
        plain = "a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0)"
    return f"\n    return b == 0 ? 0 : b == -1 ? {by_minus_one} : {plain};\n}}"


def math_function(operation: str, dtype: DType) -> str | None:
    """The C library function of an operation on floating-point scalars."""
    if dtype not in (DType.f32, DType.f64) or operation not in OPS or not OPS[operation].c:
        return None
    return OPS[operation].c + ("f" if dtype is DType.f32 else "")


def uses_math(text: str) -> bool:
    """Whether a text in C needs <math.h>."""
    names = "|".join((*(op.c for op in OPS.values() if op.c), "fmod", "copysign"))
    return re.search(rf"\b(({names})f?|NAN|INFINITY)\b", text) is not None
