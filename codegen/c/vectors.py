"""Helper functions that generated text may call: vector types, element-wise mathematics, reductions over lanes.

Each helper is named `<operation>_<type>`, e.g. `load_f32x16` or `min_f64`; the emitter notes the names it uses and `prelude`
writes down exactly those, with what they need themselves.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import OPS

SCALAR_TYPES = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t", "bool_": "int"}


def type_name(dtype: DType, lanes: int) -> str:
    """The C name of a scalar (`lanes` 0) or vector type."""
    return f"{dtype.name}x{lanes}" if lanes else SCALAR_TYPES[dtype.name]


def mask_dtype(dtype: DType) -> DType:
    """The integer type whose vectors hold the result of comparing vectors of `dtype`."""
    return DType.i32 if dtype.size_bytes == 4 else DType.i64


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
FAILING = """\
#include <stdarg.h>
char ks_message[1024];
static int ks_stopped;
static void ks_fail(const char *format, ...) {
    if (__atomic_exchange_n(&ks_stopped, 1, __ATOMIC_RELAXED)) return;
    va_list values;
    va_start(values, format);
    vsnprintf(ks_message, sizeof ks_message, format, values);
    va_end(values);
}"""


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
            return scalar_helper(name, operation, c, dtype)
        v = f"{dtype.name}x{lanes}"
        one = f"static inline {v} {name}({v} x) {{\n"
        two = f"static inline {v} {name}({v} a, {v} b) {{\n"
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
            case "abs" if not dtype.is_float:
                return f"{one}    return {prelude.use('select', dtype, lanes)}(x < 0, -x, x);\n}}"
            case "floordiv" | "mod":
                scalar = prelude.use(operation, dtype, 0)
                return f"{two}    {v} r = a;\n{each}{scalar}(a[l], b[l]);\n    return r;\n}}"
            case "abs":
                mask = prelude.vector_type(mask_dtype(dtype), lanes)
                without_sign = "0x7fffffff" if dtype is DType.f32 else "0x7fffffffffffffffL"
                return f"{one}    return ({v})(({mask})x & {without_sign});\n}}"
        function = math_function(operation, dtype)
        assert function is not None, operation
        lane_by_lane = f"    {v} r = x;\n{each}{function}(x[l]);\n    return r;\n"
        instruction = self.instruction(prelude, operation, dtype, lanes)
        if instruction is None:
            return f"{one}{lane_by_lane}}}"
        feature, call = instruction
        return f"{one}#if defined({feature})\n    return {call};\n#else\n{lane_by_lane}#endif\n}}"

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


def scalar_helper(name: str, operation: str, c: str, dtype: DType) -> str:
    """The definition of an operation on scalars of C type `c`."""
    if operation.startswith("fetch_"):
        return _fetching(name, operation.removeprefix("fetch_"), c, dtype)
    if operation in ("min", "max"):
        return f"static inline {c} {name}({c} a, {c} b) {{ return {OPS[operation].combine}; }}"
    if operation == "floordiv":
        if dtype.is_float:
            return f"static inline {c} {name}({c} a, {c} b) {{ return ({c})floor(a / b); }}"
        quotient = "a / b - (a % b != 0 && (a < 0) != (b < 0))"
        least = {DType.i32: "INT32_MIN", DType.i64: "INT64_MIN"}[dtype]
        return _guarded_division(name, c, f"(a == {least} ? a : -a)", quotient)
    if operation == "mod":
        if dtype.is_float:
            return f"static inline {c} {name}({c} a, {c} b) {{ return a - b * ({c})floor(a / b); }}"
        rest = "a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0)"
        return _guarded_division(name, c, "0", rest)
    if operation == "abs" and not dtype.is_float:
        return f"static inline {c} {name}({c} x) {{ return x < 0 ? -x : x; }}"
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


def _guarded_division(name: str, c: str, by_minus_one: str, result: str) -> str:
    """A division of integers that is defined for all of them, as NumPy defines it: by zero it gives 0, and the least integer
    divided by -1 wraps. The instruction itself ends the process in both cases.
    """
    return (
        f"static inline {c} {name}({c} a, {c} b) {{\n"
        f"    return b == 0 ? 0 : b == -1 ? {by_minus_one} : {result};\n}}"
    )


def math_function(operation: str, dtype: DType) -> str | None:
    """The C library function of a unary operation on a floating-point scalar."""
    if not dtype.is_float or operation not in OPS or not OPS[operation].c:
        return None
    return OPS[operation].c + ("f" if dtype is DType.f32 else "")


def uses_math(text: str) -> bool:
    """Whether a text in C needs <math.h>."""
    names = "|".join(op.c for op in OPS.values() if op.c)
    return re.search(rf"\b(({names})f?|NAN|INFINITY)\b", text) is not None
