"""Helper functions that generated text may call: vector types, element-wise mathematics, reductions over lanes.

Each helper is named `<operation>_<type>`, e.g. `load_f32x16` or `min_f64`. The emitter records the names it uses, and `Prelude`
writes exactly those helpers, with their own prerequisites.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from ...kernels.ir.kernel import DType
from ...kernels.ir.op_semantics import MIX_FACTORS, MIX_SHIFTS
from ...kernels.ir.ops import OPS
from ..text.source import MESSAGE, MESSAGE_BYTES
from ..text.types import SCALAR_TYPES, unsigned

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
}  # fmt: skip
SHIFTS = {"shl": "<<", "shr": ">>", "bit_shr": ">>"}


def operator(op: str, dtype: DType) -> str | None:
    """Returns the C operator that does `op` on values of `dtype`; None if a helper function does it.

    Sums of signed integers wrap around here but are undefined in C, and C computes small integers
    as int. Halves are computed in float, and rounded after each operation.
    """
    if dtype is DType.f16 or (dtype.is_integer and not _is_plain(op, dtype)):
        return None
    return INFIX.get(op)


def _is_plain(op: str, dtype: DType) -> bool:
    return op.startswith("bit_") or (dtype.size_bytes >= 4 and not dtype.is_signed)


class Helpers(ABC):
    """Definitions of vector types and helper functions in one C-like language."""

    @abstractmethod
    def vector_type(self, dtype: DType, lanes: int) -> dict[str, str]:
        """Returns the definitions of a vector type and of the types it requires, by name."""

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
        """Returns the definition of helper `name`; adds the helpers that it calls to `prelude`."""

    def of_vectors(
        self, prelude: Prelude, operation: str, dtype: DType, lanes: int, ulp: float
    ) -> str:
        """Adds a vector function for `operation`, with an error of at most `ulp`, to the prelude.

        Returns its name.
        """
        return prelude.use(operation, dtype, lanes)

    def divided(
        self, prelude: Prelude, operation: str, dtype: DType, lanes: int, by: int
    ) -> str | None:
        """Returns the name of a helper for a quotient or remainder (`operation`) of integer vectors by the constant `by`.

        None if the language has no such helper, as here.
        """
        return None

    @abstractmethod
    def printing(self) -> tuple[str, str, tuple[str, ...]]:
        """Returns declaration, name and leading arguments of a printf-like function.

        The format follows these arguments.
        """


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
    """Collects the helpers that a text uses, and returns their definitions, each behind the helpers that it calls."""

    def __init__(self, helpers: Helpers) -> None:
        self.helpers = helpers
        self.defined: dict[str, str] = {}  # by the name of a type or function
        self.streams = False
        self.intrinsics = False  # of x86

    def use(self, operation: str, dtype: DType, lanes: int, other: DType | None = None) -> str:
        """Adds the helper for `operation` on these types, and returns its name."""
        kind = f"{dtype.name}x{lanes}" if lanes else dtype.name
        name = f"{operation}_{kind}" + (f"_from_{other.name}" if other else "")
        if name not in self.defined:
            if lanes:
                self.vector_type(dtype, lanes)
            text = self.helpers.function(self, name, operation, dtype, lanes, other)
            self.defined[name] = text
        return name

    def of_vectors(self, operation: str, dtype: DType, lanes: int, ulp: float) -> str:
        """Adds a vector function for `operation` with an error of at most `ulp` units in the last place.

        Returns its name.
        """
        return self.helpers.of_vectors(self, operation, dtype, lanes, ulp)

    def divided(self, operation: str, dtype: DType, lanes: int, by: int) -> str | None:
        """Adds a division of integer vectors by the constant `by`, and returns its name; None if there is none."""
        return self.helpers.divided(self, operation, dtype, lanes, by)

    def vector_type(self, dtype: DType, lanes: int) -> str:
        """Adds a vector type, and returns its name."""
        name = f"{dtype.name}x{lanes}"
        if name not in self.defined:
            for part, text in self.helpers.vector_type(dtype, lanes).items():
                self.defined.setdefault(part, text)
        return name

    def printing(self) -> tuple[str, tuple[str, ...]]:
        """Adds a printf-like function. Returns its name, and the arguments that precede the format."""
        definition, name, first = self.helpers.printing()
        if definition:
            self.defined.setdefault("ks_printing", definition)
        return name, first

    def failing(self) -> str:
        """Adds the function with which a failed assertion ends the call (FAILING), and returns its name."""
        self.printing()
        self.defined.setdefault("ks_fail", FAILING)
        for name in ("ks_stopped", "ks_message"):
            self.defined.setdefault(name, "")
        return "ks_fail"

    @property
    def may_fail(self) -> bool:
        """True if an assertion in the text may end a call early."""
        return "ks_fail" in self.defined

    def text(self) -> str:
        return "\n".join(filter(None, self.defined.values()))


def scalar_helper(
    prelude: Prelude, name: str, operation: str, dtype: DType, other: DType | None = None
) -> str:
    """Returns the definition of helper `name`, which does `operation` on scalars."""
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
        return _of_floats(prelude, operation, one, two, dtype)
    return _of_integers(prelude, operation, one, two, dtype)


def _of_half(prelude: Prelude, operation: str, one: str, two: str) -> str:
    """Returns C text of an operation on halves, computed in float and rounded once.

    For + - * / and the square root this equals a computation in halves.
    """
    operation = operation.removeprefix("exact_")  # nothing is contracted with what is converted
    if operation in ("add", "sub", "mul", "div"):
        return f"{two} return (_Float16)((float)a {INFIX[operation]} (float)b); }}"
    if operation == "floor_mod":
        divided, product, less = (prelude.use(x, DType.f16, 0) for x in ("div", "mul", "sub"))
        below = prelude.use("floor", DType.f16, 0)
        return f"{two} return {less}(a, {product}({below}({divided}(a, b)), b)); }}"
    if operation == "neg":
        return f"{one} return (_Float16)-(float)x; }}"
    function = math_function(operation, DType.f32) or prelude.use(operation, DType.f32, 0)
    kind = "int" if OPS[operation].gives else "_Float16"
    if OPS[operation].arity == 2:
        return f"{two} return ({kind}){function}((float)a, (float)b); }}"
    return f"{one} return ({kind}){function}((float)x); }}"


def _with_near(dtype: DType, found: str, too_far: str) -> str:
    """Returns C text of // or % by a fused multiply-add, for small quotients; others fall through to later text.

    floor(a / b) = q may be one too large; then a - q * b is still exact. `found` is the text for a
    result, `too_far` the correction of a q too large. Infinities and NaNs fall through, too.
    """
    f, c = "f" if dtype is DType.f32 else "", SCALAR_TYPES[dtype.name]
    most = "0x1p22f" if dtype is DType.f32 else "0x1p51"
    return (
        f"#if defined(__FP_FAST_FMA{f.upper()}) || defined(__CUDACC__)\n"
        f"    {c} q = floor{f}(a / b), near = fma{f}(-q, b, a);\n"
        f"    if (fabs{f}(q) < {most} && near == near) {{\n"
        f"        if (near != 0 && (near < 0) != (b < 0)) {too_far.format(f=f)};\n"
        f"        {found.format(f=f)};\n"
        f"    }}\n"
        f"#endif\n"
    )


def exact(operation: str, opening: str, dtype: DType, lanes: int) -> str:
    """Returns the definition of a sum, difference or product of floats that compilers do not contract.

    Contraction fuses operations to a multiply-add. clang contracts within a statement only, so a
    function of its own suffices. gcc contracts across functions: sums get optimisation barriers,
    which gcc ignores in loops that it vectorises by itself. A product written as a multiply-add
    cannot be contracted again.
    """
    sign = INFIX[operation]
    plain = f"    return a {sign} b;\n"
    if operation == "mul" and not lanes:
        f = "f" if dtype is DType.f32 else ""
        zero = f"-0.0{f}"
        return (
            f"{opening}\n#if defined(__FP_FAST_FMA{f.upper()}) && !defined(__clang__)\n"
            f"    return __builtin_fma{f}(a, b, {zero});\n#else\n{plain}#endif\n}}"
        )
    apart = f"__builtin_assoc_barrier(a) {sign} __builtin_assoc_barrier(b)"
    if operation == "mul":
        apart = "__builtin_assoc_barrier(a * b)"
    return f"{opening}\n#if !defined(__clang__) && __GNUC__ >= 12\n    return {apart};\n#else\n{plain}#endif\n}}"


def _of_floats(prelude: Prelude, operation: str, one: str, two: str, dtype: DType) -> str:
    f, c = "f" if dtype is DType.f32 else "", SCALAR_TYPES[dtype.name]
    match operation:
        case "exact_add" | "exact_sub" | "exact_mul":
            return exact(operation.removeprefix("exact_"), two, dtype, 0)
        case "floor_mod":
            product = prelude.use("exact_mul", dtype, 0)
            difference = prelude.use("exact_sub", dtype, 0)
            return f"{two} return {difference}(a, {product}(floor{f}(a / b), b)); }}"
        case "isnan":
            return f"{one} return x != x; }}"
        case "isinf":
            return f"{one} return fabs{f}(x) == ({SCALAR_TYPES[dtype.name]})INFINITY; }}"
        case "rsqrt":
            return f"{one} return 1 / sqrt{f}(x); }}"
        case "mod":
            # As Python and NumPy: of the divisor's sign, also where it is zero.
            return (
                f"{two}\n{_with_near(dtype, 'return near == 0 ? copysign{f}(0, b) : near', 'near = fma{f}(1 - q, b, a)')}"
                f"    {c} rest = fmod{f}(a, b);\n"
                f"    if (rest == 0) return copysign{f}(0, b);\n"
                f"    return (rest < 0) != (b < 0) ? rest + b : rest;\n}}"
            )
        case "floordiv":
            # The quotient of what divides without a rest, which rounding may leave beside a whole number.
            return (
                f"{two}\n{_with_near(dtype, 'return q == 0 ? copysign{f}(0, a / b) : q', 'q -= 1')}"
                f"    {c} rest = fmod{f}(a, b), n, whole;\n"
                f"    if (b == 0) return a / b;\n"
                f"    n = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0));\n"
                f"    if (n == 0) return copysign{f}(0, a / b);\n"
                f"    whole = floor{f}(n);\n"
                f"    return n - whole > 0.5 ? whole + 1 : whole;\n}}"
            )
    raise AssertionError(operation)


def _fetching(name: str, operation: str, c: str, dtype: DType) -> str:
    """Returns the definition of an atomic update that returns the element's old value."""
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
    """Returns C text of an integer operation that wraps around.

    If C leaves it undefined, it is computed unsigned, in at least 32 bits.
    """
    c, own = SCALAR_TYPES[dtype.name], SCALAR_TYPES[unsigned(dtype).name]
    u = own if dtype.size_bytes >= 4 else "uint32_t"
    n_bits = 8 * dtype.size_bytes
    match operation:
        case "add" | "sub" | "mul":
            return f"{two} return ({c})(({u})a {INFIX[operation]} ({u})b); }}"
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
        case "pow":
            return two + _power(dtype)
        case "popcnt":
            wide = "ll" if n_bits == 64 else ""
            return f"{one} return __builtin_popcount{wide}(({own})x); }}"
        case "clz":
            wide = "ll" if n_bits == 64 else ""
            return f"{one} return x == 0 ? {n_bits} : __builtin_clz{wide}(({own})x); }}"
        case "ctz":
            wide = "ll" if n_bits == 64 else ""
            return f"{one} return x == 0 ? {n_bits} : __builtin_ctz{wide}(({own})x); }}"
        case "mix64":
            lines = [
                f"    x = (x ^ (x >> {n})) * {factor:#x}u;\n"
                for factor, n in zip(MIX_FACTORS, MIX_SHIFTS, strict=False)
            ]
            return f"{one}\n{''.join(lines)}    return x ^ (x >> {MIX_SHIFTS[-1]});\n}}"
    raise AssertionError(operation)


def _division(operation: str, dtype: DType) -> str:
    """Returns C text of an integer division or remainder that is defined for all operands, as in NumPy.

    Division by zero gives 0, and the least integer divided by -1 wraps around. The machine
    instruction ends the process in both cases.
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


def _power(dtype: DType) -> str:
    """Returns C text of an integer power by repeated squaring, modulo the type's range.

    See `power` of kernels/ir/op_semantics.py.
    """
    c, own = SCALAR_TYPES[dtype.name], SCALAR_TYPES[unsigned(dtype).name]
    u = own if dtype.size_bytes >= 4 else "uint32_t"
    negative = "    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;\n"
    return (
        f"\n{negative if dtype.is_signed else ''}"
        f"    {u} power = 1, square = ({u})a;\n"
        f"    for ({own} n = ({own})b; n; n >>= 1) {{\n"
        f"        if (n & 1) power *= square;\n"
        f"        square *= square;\n"
        f"    }}\n"
        f"    return ({c})power;\n}}"
    )


def math_function(operation: str, dtype: DType) -> str | None:
    """Returns the name of the <math.h> function for `operation` on scalars of `dtype`; None if there is none."""
    if dtype not in (DType.f32, DType.f64) or operation not in OPS or not OPS[operation].c:
        return None
    return OPS[operation].c + ("f" if dtype is DType.f32 else "")


def uses_math(text: str) -> bool:
    """True if C text `text` needs <math.h>."""
    names = "|".join((*(op.c for op in OPS.values() if op.c), "fma", "copysign"))
    return re.search(rf"\b(({names})f?|NAN|INFINITY)\b", text) is not None
