"""Vector functions: exp, sin, pow and their like on a whole vector at once, each with a stated error.

There are two sources: libmvec of glibc 2.35 or newer (`_LIBMVEC`), and polynomials of our own (`POLYNOMIALS`), inline and for every
machine with GNU vectors. Where neither has a function within the permitted error, the scalar function of <math.h> is called for
each lane. The coefficients are minimax fits (Remez exchange) rounded to their type. The reductions are those of Cody and Waite,
"Software Manual for the Elementary Functions" (1980), the sums in two parts those of Dekker (Numerische Mathematik 18, 1971).
No text relies on contraction: with and without fused multiply-adds the errors are below those stated.
`experiments/vector_functions.py` measures them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import OPS
from ..plan.plan import Plan, TaskPlan
from ..text.types import SCALAR_TYPES, mask_dtype, unsigned
from .vectors import Prelude, math_function

ULP1, ULP4 = 1.0, 4.0  # errors that a choice permits, in units in the last place
# At most 4 by glibc's manual, "Errors in Math Functions".
_LIBMVEC_ULP = 4.0
_LIBMVEC = frozenset(
    (
        *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
        *("pow", "atan2", "hypot", "erf"),
    )
)
_HAS_LIBMVEC = """\
#if defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define HAS_LIBMVEC /* in libm's linker script */
#endif
#endif"""
# Plain calls are compiled with sums in any order, which these functions do not stand.
_IN_ORDER = """\
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function"
#define IN_ORDER
#define KEEPS_ORDER _Pragma("clang fp reassociate(off)")
#elif defined(__ASSOCIATIVE_MATH__)
#define IN_ORDER __attribute__((optimize("no-associative-math", "no-reciprocal-math")))
#define KEEPS_ORDER
#else
#define IN_ORDER
#define KEEPS_ORDER
#endif"""
_REGISTERS = {64: ("e", "__AVX512F__"), 32: ("d", "__AVX2__"), 16: ("b", "__SSE4_1__")}


@dataclass(frozen=True)
class Polynomial:
    """C text of one function on a vector. `error_ulp`: greatest measured error, in units in the last place.

    In `text` V, I and U are the vectors of floats, of signed and of unsigned integers; SELECT, ANY
    and SCALE are helpers (`_HELPERS`), names with an @ are other functions of this table, and $ is
    the scalar function of <math.h>.
    """

    error_ulp: float
    text: str


@dataclass(frozen=True)
class _Format:
    """Constants of a floating-point format, as C literals."""

    suffix: str  # of a literal
    mantissa: int  # bits
    bias: int
    magic: str  # 1.5 * 2^mantissa: adding it rounds to a whole number, which stands in the low bits then
    magic_bits: str
    upper: str  # the bits of a number that half of the mantissa holds
    root_half: str  # the bits of sqrt(1/2)
    least: str  # the least normal number
    sign: str  # the bit of the sign
    ln2: tuple[
        str, str
    ]  # in two parts; products of the first with a whole number of 11 bits are exact


F32 = _Format(
    "f",
    23,
    127,
    "0x1.8p23f",
    "0x4b400000",
    "(int32_t)0xfffff000",
    "0x3f3504f3",
    "0x1p-126f",
    "INT32_MIN",
    ("0x1.62e4p-1f", "0x1.7f7d1cp-20f"),
)
F64 = _Format(
    "",
    52,
    1023,
    "0x1.8p52",
    "0x4338000000000000",
    "(int64_t)0xfffffffff8000000",
    "0x3fe6a09e667f3bcd",
    "0x1p-1022",
    "INT64_MIN",
    ("0x1.62e42fefa38p-1", "0x1.ef35793c7673p-45"),
)
_HELPERS = {
    "SELECT": "static inline V SELECT(I m, V a, V b) { return (V)((m & (I)a) | (~m & (I)b)); }",
    "ANY": """\
static inline int ANY(I m) {
    union { I whole; int64_t words[sizeof(I) / 8]; } u = {m};
    int64_t found = 0;
    for (unsigned k = 0; k < sizeof(I) / 8; ++k) found |= u.words[k];
    return found != 0;
}""",
    # In two steps, so that results that overflow or are subnormal are rounded once.
    "SCALE": """\
static inline V SCALE(V y, I n) {
    const I half = (I)((U)(n + 2 * BIAS) >> 1) - BIAS;
    return y * (V)((half + BIAS) << MANTISSA) * (V)((n - half + BIAS) << MANTISSA);
}""",
}


def _horner(x: str, coefficients: str, suffix: str) -> str:
    """Returns C text of a polynomial in `x` by Horner's rule. `coefficients`: from the constant term on."""
    *others, text = (c + suffix for c in coefficients.split())
    for c in reversed(others):
        text = f"({text} * {x} + {c})"
    return text


def _exp(f: _Format, low: str, high: str, p: str) -> str:
    return f"""\
static inline V exp@(V x) {{
    x = SELECT(x > {high}, (V){{0}} + {high}, x);
    x = SELECT(x < {low}, (V){{0}} + {low}, x);
    const V t = x * 0x1.71547652b82fep+0{f.suffix} + {f.magic}, n = t - {f.magic};
    const V r = (x - n * {f.ln2[0]}) - n * {f.ln2[1]};
    const V one = r + 1, rest = (r - (one - 1)) + r * r * {_horner("r", p, f.suffix)};
    return SCALE(one + rest, (I)t - {f.magic_bits});
}}"""


def _exp2(f: _Format, low: str, high: str, p: str) -> str:
    return f"""\
static inline V exp2@(V x) {{
    x = SELECT(x > {high}, (V){{0}} + {high}, x);
    x = SELECT(x < {low}, (V){{0}} + {low}, x);
    const V t = x + {f.magic}, r = x - (t - {f.magic});
    return SCALE(1 + r * {_horner("r", p, f.suffix)}, (I)t - {f.magic_bits});
}}"""


_SLOW = """\
    if (__builtin_expect(ANY(slow), 0)) {
        for (unsigned l = 0; l < sizeof(V) / sizeof(y[0]); ++l) if (slow[l]) y[l] = $(x[l]);
    }
    return y;
}"""


def _of_exponent(f: _Format, x: str) -> str:
    """Returns C text that splits a positive normal number `x` = 2^k (1 + g) with sqrt(1/2) <= 1 + g < sqrt(2)."""
    return f"""\
    const I b = (I){x} - {f.root_half}, e = (I)((U)(b + (((I){{0}} + {f.bias}) << {f.mantissa})) >> {f.mantissa}) - {f.bias};
    const V k = (V)(e + {f.magic_bits}) - {f.magic};
    const V m = (V)((b - (e << {f.mantissa})) + {f.root_half}), g = m - 1;"""


def _log(f: _Format, p: str, function: str, end: str) -> str:
    """Returns C text of log(1 + g) = g - (g^2/2 - s (g^2/2 + z R(z))) with s = g / (2 + g) and z = s^2."""
    return f"""\
static inline V {function}@(V x) {{
    const I slow = ~((x >= {f.least}) & (x < INFINITY_));
{_of_exponent(f, "x")}
    const V s = g / (2 + g), z = s * s, h = g * g * 0.5{f.suffix};
    const V r = s * (h + z * {_horner("z", p, f.suffix)});
{end}
{_SLOW}"""


def _log_end(f: _Format) -> str:
    return f"    V y = k * {f.ln2[0]} - ((h - (r + k * {f.ln2[1]})) - g);"


def _log2_end(f: _Format, high: str, low: str) -> str:
    return f"""\
    const V upper = (V)((I)(g - h) & {f.upper}), lower = ((g - upper) - h) + r;
    V y = ((lower + upper) * {low} + lower * {high}) + (upper * {high} + k);"""


def _trigonometric(f: _Format, function: str, limit: str, parts: str, s: str, c: str) -> str:
    """Returns C text of a sine or cosine; |x| is reduced by n times pi / 2.

    `parts`: summands of pi / 2. The products of all but the last with n are exact.
    """
    first, *others = (p + f.suffix for p in parts.split())
    steps = "".join(f"    w = n * {p}; a = r - w; low += (r - a) - w; r = a;\n" for p in others)
    is_sine = function == "sin"
    sign = f"((I)x & {f.sign}) ^ " if is_sine else ""
    return f"""\
static inline V {function}@(V x) {{
    const V size = (V)((I)x & ~({f.sign} & ~(I){{0}}));
    const I slow = ~(size < {limit});
    const V t = size * 0x1.45f306dc9c883p-1{f.suffix} + {f.magic}, n = t - {f.magic};
    V r = size - n * {first}, low = (V){{0}}, w, a;
{steps}    const V z = r * r, h = z * 0.5{f.suffix}, one = 1 - h;
    const V sine = r + (r * z * {_horner("z", s, f.suffix)} + low * one);
    const V cosine = one + (((1 - one) - h) + (z * z * {_horner("z", c, f.suffix)} - r * low));
    const I q = (I)t{"" if is_sine else " + 1"};
    V y = SELECT(-(q & 1), cosine, sine);
    y = (V)((I)y ^ {sign}((q & 2) << {f.mantissa + (7 if f is F32 else 10)}));
{_SLOW}"""


def _tanh(f: _Format, top: str, p: str) -> str:
    return f"""\
static inline V tanh@(V x) {{
    const I sign = (I)x & {f.sign};
    const V size = (V)((I)x ^ sign), z = size * size;
    const V a = SELECT(size > {top}, (V){{0}} + {top}, size);
    const V near = size + size * z * {_horner("z", p, f.suffix)};
    const V far = 1 - 2 / (exp@(a + a) + 1);
    return (V)((I)SELECT(size < 0.625{f.suffix}, near, far) | sign);
}}"""


def _erf(f: _Format, top: str, middle: str, p: str, q: str) -> str:
    """Returns C text of erf(x): below 1 a polynomial in x^2.

    Above 1 it is 1 - exp(-x^2) Q(t) / (1 + 2x) with t = (x - c) / (x + c).
    """
    return f"""\
static inline V erf@(V x) {{
    const I sign = (I)x & {f.sign};
    const V size = (V)((I)x ^ sign), z = size * size;
    const V a = SELECT(size > {top}, (V){{0}} + {top}, size), t = (a - {middle}) / (a + {middle});
    const V near = size + size * {_horner("z", p, f.suffix)};
    const V far = 1 - exp@(-a * a) * {_horner("t", q, f.suffix)} / (1 + 2 * a);
    return (V)((I)SELECT(size < 1, near, far) | sign);
}}"""


def _pow(f: _Format, most: str, range_of_exp: str, two_thirds: str, u: str, p: str) -> str:
    """Returns C text of exp(y log x).

    Logarithm, product and reduced argument of exp are each a sum of two floats. log(1 + g) = 2 s +
    2/3 s^3 + s^5 U(s^2) with s = g / (2 + g). Names with an h have half of the bits, so products of
    two are exact.
    """
    third_h, third_l = two_thirds.split()
    upper = f"& {f.upper}"
    return f"""\
static inline V pow@(V x, V b_) {{
    const I zero = ((I)x == 0) & (b_ > 0);
    const I slow = ~(zero | ((x >= {f.least}) & (x < INFINITY_) & (b_ < {most}) & (b_ > -{most})));
{_of_exponent(f, "SELECT(slow | zero, (V){0} + 1, x)")}
    const V s = g / (m + 1), sh = (V)((I)s {upper});
    const V dh = (V)((I)(m + 1) {upper}), dl = m - (dh - 1);
    const V sl = ((g - sh * dh) - sh * dl) / (m + 1);
    const V z = s * s, zh = (V)((I)z {upper}), zl = (sh * sh - zh) + sl * (2 * sh + sl);
    const V c = sh * zh, ch = (V)((I)c {upper}), cl = (c - ch) + (sh * zl + sl * (zh + zl));
    const V third = ch * {third_h}, third_l = cl * {third_h} + (ch + cl) * {third_l};
    const V tail = z * z * s * {_horner("z", u, f.suffix)};
    const V l1 = 2 * sh + third, l2 = (third - (l1 - 2 * sh)) + ((2 * sl + third_l) + tail);
    const V k1 = k * {f.ln2[0]}, l = k1 + l1, v = l - k1;
    const V lh = (V)((I)l {upper}), ll = (l - lh) + (((k1 - (l - v)) + (l1 - v)) + (l2 + k * {f.ln2[1]}));
    const V y = SELECT(slow, (V){{0}}, b_), yh = (V)((I)y {upper});
    V product = yh * lh, rest = (y - yh) * lh + y * ll;
    const I beyond = ~((product < {range_of_exp}) & (product > -{range_of_exp}));
    product = SELECT(beyond, SELECT(product > 0, (V){{0}} + {range_of_exp}, (V){{0}} - {range_of_exp}), product);
    rest = SELECT(beyond, (V){{0}}, rest);
    const V t = (product + rest) * 0x1.71547652b82fep+0{f.suffix} + {f.magic}, n = t - {f.magic};
    const V r1 = product - n * {f.ln2[0]}, r2 = rest - n * {f.ln2[1]}, r = r1 + r2, rl = r2 - (r - r1);
    const V one = r + 1, more = (r - (one - 1)) + (r * r * {_horner("r", p, f.suffix)} + rl * one);
    V value = SELECT(zero, (V){{0}}, SCALE(one + more, (I)t - {f.magic_bits}));
    if (__builtin_expect(ANY(slow), 0)) {{
        for (unsigned l_ = 0; l_ < sizeof(V) / sizeof(x[0]); ++l_) if (slow[l_]) value[l_] = $(x[l_], b_[l_]);
    }}
    return value;
}}"""


_EXP32 = "0x1p-1 0x1.555556p-3 0x1.55547p-5 0x1.1110acp-7 0x1.6da822p-10 0x1.a17e9cp-13"
_EXP64 = (
    "0x1p-1 0x1.5555555555558p-3 0x1.5555555555562p-5 0x1.111111110fd05p-7 0x1.6c16c16c10f14p-10 0x1.a01a01acd5f55p-13 "
    "0x1.a01a01be763c4p-16 0x1.71de0126c6ddbp-19 0x1.27e4ae8cdd35ap-22 0x1.af4db6c61ad5ep-26 0x1.1fb11d74283b6p-29"
)
_LOG32 = "0x1.555556p-1 0x1.9998bap-2 0x1.24a288p-2 0x1.d42b6ep-3"
_LOG64 = (
    "0x1.5555555555555p-1 0x1.9999999999d16p-2 0x1.249249242b18ep-2 0x1.c71c726fafce6p-3 0x1.745cd122c5d23p-3 "
    "0x1.3b23b22580371p-3 0x1.0f0b66f42827ap-3 0x1.129b8f65b782bp-3"
)
_SIN32 = "-0x1.555546p-3 0x1.11077ap-7 -0x1.9954aep-13"
_COS32 = "0x1.55554ep-5 -0x1.6c0e3ap-10 0x1.9a6c8ap-16"
_SIN64 = (
    "-0x1.555555555554cp-3 0x1.111111110fbf6p-7 -0x1.a01a019c689d7p-13 0x1.71de35b5b62d5p-19 -0x1.ae5e8f6edff72p-26 "
    "0x1.5d9d5f6f917dap-33"
)
_COS64 = (
    "0x1.5555555555553p-5 -0x1.6c16c16c15f17p-10 0x1.a01a019ddcaa4p-16 -0x1.27e4f8cbba0fdp-22 0x1.1eea63da3259ep-29 "
    "-0x1.8fe7c99299f02p-37"
)
_TANH32 = "-0x1.55553ap-2 0x1.110848p-3 -0x1.b85abp-5 0x1.52ccbcp-6 -0x1.786136p-8"
_TANH64 = (
    "-0x1.5555555555554p-2 0x1.1111111110e19p-3 -0x1.ba1ba1b9d1ecap-5 0x1.664f486a097e8p-6 -0x1.226e311637ba1p-7 "
    "0x1.d6d2f404e4e60p-9 -0x1.7d957e56f8693p-10 0x1.34c6920c80d53p-11 -0x1.ed9d3d4c25f03p-13 0x1.728a82a4853a8p-14 "
    "-0x1.bf60616c32276p-16 0x1.26a63c528a68ap-18"
)
_ERF32 = "0x1.06eba8p-3 -0x1.812740p-2 0x1.ce2d74p-4 -0x1.b80442p-6 0x1.548274p-8 -0x1.a993a4p-11 0x1.699caep-14 -0x1.233c5p-19"
_ERF64 = (
    "0x1.06eba8214db69p-3 -0x1.812746b037a25p-2 0x1.ce2f21a0458d5p-4 -0x1.b82ce31354b40p-6 0x1.565bcd2c5cbbap-8 "
    "-0x1.c02db9319acc9p-11 0x1.f9a3b91d01fdfp-14 -0x1.f4dcec90bcb84p-17 0x1.ba68cf0256aa7p-20 -0x1.638e392236373p-23 "
    "0x1.1311c30567e53p-26 -0x1.c45744c2e3892p-30 0x1.3b12ef7ecadd3p-33"
)
_ERFC32 = "0x1.46e80ep+0 -0x1.7bf5e4p-4 -0x1.54091ap-3 0x1.4ff71p-3 -0x1.bb7e7p-5 -0x1.018ac2p-7 0x1.05ae7ap-7"
_ERFC64 = (
    "0x1.43cc6f6c9672ap+0 -0x1.f52c5d7e2220ap-4 -0x1.959ac16f80862p-4 0x1.42d3799899b9dp-3 -0x1.a5c0c8a60e318p-4 "
    "0x1.0c6092a24111bp-5 0x1.e894b12659fbfp-11 -0x1.1f2f0bc732945p-8 0x1.01de4a099ba43p-11 0x1.4b64fa7723954p-11 "
    "-0x1.724f77c6573d6p-14 -0x1.da613fdc3def2p-14 0x1.6ec46b48d96bfp-18 0x1.591f13bf0facap-16 0x1.df6e7160c9e07p-19"
)
_EXP2_32 = "0x1.62e430p-1 0x1.ebfb94p-3 0x1.c6af80p-5 0x1.3b633ap-7 0x1.5f0d78p-10 0x1.1e3efap-13"
_EXP2_64 = (
    "0x1.62e42fefa39efp-1 0x1.ebfbdff82c592p-3 0x1.c6b08d704a25ep-5 0x1.3b2ab6fba42dap-7 0x1.5d87fe783a678p-10 "
    "0x1.430912fbbda3bp-13 0x1.ffcbff4e4101cp-17 0x1.62c014ee427f4p-20 0x1.b51b3dbe8888ap-24 0x1.e4ffc78f856d2p-28 "
    "0x1.0485fd272526cp-31 0x1.824e47d61b0ddp-36 -0x1.331872b126062p-35"
)
_U32 = "0x1.99999ap-2 0x1.24930ap-2 0x1.c67eb0p-3 0x1.8c9d08p-3"
_U64 = (
    "0x1.999999999999ap-2 0x1.249249249248bp-2 0x1.c71c71c71e7c4p-3 0x1.745d1743d3adbp-3 0x1.3b13b24a00a51p-3 "
    "0x1.1110bc21c4f97p-3 0x1.e20224d36093bp-4 0x1.ab8519a9a41dbp-4 0x1.beff123d0aca3p-4"
)
_PI32 = "0x1.921p+0 0x1.f6ap-13 0x1.11p-26 0x1.68c234p-39"
_PI64 = "0x1.921fb54440000p+0 0x1.68c234c4c0000p-39 0x1.98a2e03707344p-77"

POLYNOMIALS: dict[tuple[str, DType], Polynomial] = {
    ("exp", DType.f32): Polynomial(0.9, _exp(F32, "-110.0f", "100.0f", _EXP32)),
    ("exp", DType.f64): Polynomial(0.9, _exp(F64, "-760.0", "720.0", _EXP64)),
    ("exp2", DType.f32): Polynomial(1.2, _exp2(F32, "-160.0f", "140.0f", _EXP2_32)),
    ("exp2", DType.f64): Polynomial(1.1, _exp2(F64, "-1090.0", "1040.0", _EXP2_64)),
    ("log", DType.f32): Polynomial(0.9, _log(F32, _LOG32, "log", _log_end(F32))),
    ("log", DType.f64): Polynomial(0.9, _log(F64, _LOG64, "log", _log_end(F64))),
    ("log2", DType.f32): Polynomial(
        1.1, _log(F32, _LOG32, "log2", _log2_end(F32, "0x1.714p+0f", "0x1.47652ap-12f"))
    ),
    ("log2", DType.f64): Polynomial(
        1.1, _log(F64, _LOG64, "log2", _log2_end(F64, "0x1.7154760p+0", "0x1.4ae0bf85ddf43p-26"))
    ),
    ("sin", DType.f32): Polynomial(
        0.9, _trigonometric(F32, "sin", "1600.0f", _PI32, _SIN32, _COS32)
    ),
    ("cos", DType.f32): Polynomial(
        0.9, _trigonometric(F32, "cos", "1600.0f", _PI32, _SIN32, _COS32)
    ),
    ("sin", DType.f64): Polynomial(
        0.9, _trigonometric(F64, "sin", "100000.0", _PI64, _SIN64, _COS64)
    ),
    ("cos", DType.f64): Polynomial(
        0.9, _trigonometric(F64, "cos", "100000.0", _PI64, _SIN64, _COS64)
    ),
    ("tanh", DType.f32): Polynomial(1.5, _tanh(F32, "10.0f", _TANH32)),
    ("tanh", DType.f64): Polynomial(1.5, _tanh(F64, "20.0", _TANH64)),
    ("erf", DType.f32): Polynomial(1.3, _erf(F32, "4.0f", "2.0f", _ERF32, _ERFC32)),
    ("erf", DType.f64): Polynomial(1.4, _erf(F64, "6.0", "2.5", _ERF64, _ERFC64)),
    ("pow", DType.f32): Polynomial(
        0.9, _pow(F32, "0x1p20f", "110.0f", "0x1.554p-1f 0x1.555554p-13f", _U32, _EXP32)
    ),
    ("pow", DType.f64): Polynomial(
        1.2, _pow(F64, "0x1p60", "760.0", "0x1.555555p-1 0x1.5555555555555p-27", _U64, _EXP64)
    ),
}


def permitted_ulp(plan: Plan, task: TaskPlan) -> float | None:
    """Returns the permitted error, in ulp, of a task's vector functions; None: it calls <math.h> lane by lane."""
    if not task.task.fast_math:
        return None
    return ULP1 if plan.choice("accuracy", task.index) == "ULP1" else ULP4


def has_vector_function(op: str, dtype: DType) -> bool:
    """True if `op` on `dtype` has a vector function at some permitted error."""
    known = op in _LIBMVEC or (op, dtype) in POLYNOMIALS
    return known and math_function(op, dtype) is not None


def vector_function(prelude: Prelude, op: str, dtype: DType, lanes: int, ulp: float) -> str:
    """Adds the vector function for `op`, with an error of at most `ulp`, to the prelude; returns its name.

    `op` has a vector function (`has_vector_function`). Functions of <math.h> count as accurate
    enough for every `ulp`.
    """
    polynomial = POLYNOMIALS.get((op, dtype))
    own = (op, dtype, lanes) if polynomial is not None and polynomial.error_ulp <= ulp else None
    registers = _REGISTERS.get(dtype.size_bytes * lanes)
    if ulp < _LIBMVEC_ULP or op not in _LIBMVEC or registers is None:
        return _polynomial(prelude, *own) if own else prelude.use(op, dtype, lanes)
    vector = prelude.vector_type(dtype, lanes)
    name = f"{op}_{vector}_ulp4"
    if name not in prelude.defined:
        other = _polynomial(prelude, *own) if own else prelude.use(op, dtype, lanes)
        prelude.defined.setdefault("HAS_LIBMVEC", _HAS_LIBMVEC)
        prelude.defined[name] = _of_libmvec(name, op, dtype, lanes, other, registers)
    return name


def _of_libmvec(
    name: str, op: str, dtype: DType, lanes: int, other: str, registers: tuple[str, str]
) -> str:
    """Returns the definition of helper `name`: it calls libmvec if the target has these `registers`, else `other`.

    The helper's attribute lets compilers merge equal calls of several tasks in a loop.
    """
    letter, feature = registers
    v, n = f"{dtype.name}x{lanes}", OPS[op].arity
    symbol = f"_ZGV{letter}N{lanes}{'v' * n}_{math_function(op, dtype)}"
    parameters, given = ", ".join(f"{v} {x}" for x in "ab"[:n]), ", ".join("ab"[:n])
    head = f"static inline {v} {name}({parameters})"
    return (
        f"#if defined(HAS_LIBMVEC) && defined({feature})\n"
        f"__attribute__((const)) {v} {symbol}({', '.join([v] * n)});\n"
        f"{head} {{ return {symbol}({given}); }}\n#else\n"
        f"{head} {{ return {other}({given}); }}\n#endif"
    )


def _polynomial(prelude: Prelude, op: str, dtype: DType, lanes: int) -> str:
    """Adds a function of POLYNOMIALS, and those it calls, to the prelude; returns its name."""
    vector = prelude.vector_type(dtype, lanes)
    name = f"{op}_{vector}_inline"
    if name in prelude.defined:
        return name
    text = POLYNOMIALS[op, dtype].text
    for other in re.findall(r"(\w+)@\(", text):
        if other != op:
            _polynomial(prelude, other, dtype, lanes)
    for helper in _HELPERS:
        if re.search(rf"\b{helper}\b", text):
            spelled = _spelled(prelude, _HELPERS[helper], op, dtype, lanes)
            prelude.defined.setdefault(f"{helper}_{vector}", spelled)
    prelude.defined[name] = _spelled(prelude, text, op, dtype, lanes)
    return name


def _spelled(prelude: Prelude, text: str, op: str, dtype: DType, lanes: int) -> str:
    """Returns `text` of POLYNOMIALS or `_HELPERS` with its placeholders replaced for one vector type."""
    prelude.defined.setdefault("IN_ORDER", _IN_ORDER)
    text = f"IN_ORDER {text}".replace("{\n", "{\n    KEEPS_ORDER\n", 1)
    of = F32 if dtype is DType.f32 else F64
    vector = prelude.vector_type(dtype, lanes)
    names = {
        "V": vector,
        "I": prelude.vector_type(mask_dtype(dtype), lanes),
        "U": prelude.vector_type(unsigned(dtype), lanes),
        "BIAS": str(of.bias),
        "MANTISSA": str(of.mantissa),
        "INFINITY_": f"({SCALAR_TYPES[dtype.name]})INFINITY",
    } | {helper: f"{helper.lower()}_lanes_{vector}" for helper in _HELPERS}
    text = re.sub(r"\b[A-Z]+_?\b", lambda found: names.get(found[0], found[0]), text)
    text = re.sub(r"(\w+)@", lambda found: f"{found[1]}_{vector}_inline", text)
    return text.replace("$", math_function(op, dtype) or "")
