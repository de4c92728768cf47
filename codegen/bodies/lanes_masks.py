"""Vector types and masks of vectorised loops, as C helpers.

Other helpers: lanes_operations.py, lanes_memory.py.
A *lane* is one iteration of a loop of which `width` run at once. A value of all lanes is a vector
of GNU C if it fits into a register, otherwise a structure of two halves, `lo` and `hi`. A mask is
an integer with a bit per lane with AVX-512, otherwise a vector of i32 with lanes 0 or -1. The
helpers of masks have both definitions behind an #ifdef. So one text compiles on all machines;
machines without vectors of this size run it more slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Self

from ...kernels.ir.kernel import DType
from ..text.types import type_name
from .vectors import Prelude

FEATURES = """\
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#define LANES_AVX512
#endif
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function" /* there are helpers for more than one kind of machine */
#endif
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LANES_SHUFFLE
#endif
#endif"""
_PREFIX = {16: "_mm", 32: "_mm256", 64: "_mm512"}
REGISTERS = {16: "__m128", 32: "__m256", 64: "__m512"}
I32 = DType.i32


class LaneMasks:
    """Types and masks of a loop that runs `width` iterations at once on registers of `vector_bytes` bytes.

    Methods return the names of C helpers, and add their definitions to the prelude.
    """

    def __init__(self, prelude: Prelude, width: int, vector_bytes: int, ulp: float | None) -> None:
        """`ulp`: permitted error of mathematical functions; None: functions of <math.h> are called lane by lane."""
        self.prelude, self.width, self.vector_bytes = prelude, width, vector_bytes
        self.ulp = ulp
        if "LANES_AVX512" not in prelude.defined:
            prelude.defined["LANES_AVX512"] = FEATURES
            prelude.intrinsics = True

    @cached_property
    def half(self) -> Self:
        return type(self)(self.prelude, self.width // 2, self.vector_bytes, self.ulp)

    def is_pair(self, dtype: DType) -> bool:
        """True if a value of all lanes exceeds one register, and so is a structure of two halves."""
        return dtype.size_bytes * self.width > self.vector_bytes

    def type(self, dtype: DType) -> str:
        """Returns the C type of a value of all lanes; for bools, the type of masks."""
        if dtype is DType.bool_:
            return self.mask
        if not self.is_pair(dtype):
            return self.prelude.vector_type(dtype, self.width)
        # Not the name of the vector of so many, which a loop beside this one may use.
        name = f"{type_name(dtype, self.width)}_pair"
        if name not in self.prelude.defined:
            half = self.half.type(dtype)
            self.prelude.defined[name] = f"typedef struct {{ {half} lo, hi; }} {name};"
        return name

    @property
    def mask(self) -> str:
        """Name of the C type of masks."""
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

    def size(self, dtype: DType) -> int:
        return dtype.size_bytes * self.width

    def made(self, name: str, text: Callable[[], str]) -> str:
        """Adds helper `name` to the prelude, and returns the name.

        `text` gives the definition; it may add other helpers.
        """
        if name not in self.prelude.defined:
            written = text()
            self.prelude.defined[name] = written
        return name

    def both(self, opening: str, avx512: str, other: str, avx2: str = "") -> str:
        """Returns a C function with a body for masks that are bits (AVX-512), and one for masks that are vectors."""
        lines = [f"static inline {opening} {{"]
        lines += ["#ifdef LANES_AVX512", f"    {avx512}"]
        if avx2:
            lines += ["#elif defined(__AVX2__)", f"    {avx2}"]
        lines += ["#else", other, "#endif"]
        return "\n".join([*lines, "}"])

    def first(self) -> str:
        """Returns the helper `lane_first(n)`: the mask of the first n lanes."""
        m, n = self.mask, self.width
        name, iota = f"lane_first_{n}", ", ".join(map(str, range(n)))
        if self.is_pair(I32):
            one, h = self.half.first(), n // 2
            return self.made(
                name,
                lambda: (
                    f"static inline {m} {name}(long n) {{ return ({m}){{{one}(n), {one}(n - {h})}}; }}"
                ),
            )
        return self.made(
            name,
            lambda: self.both(
                f"{m} {name}(long n)",
                f"return n >= {n} ? {hex((1 << n) - 1)} : n <= 0 ? 0 : ({m})((1u << n) - 1);",
                f"    const int32_t most = n > {n} ? {n} : n < 0 ? 0 : (int32_t)n;\n"
                f"    return ({m}){{{iota}}} < most;",
            ),
        )

    def mask_operation(self, op: str) -> str:
        """Returns the helper `op(a, b)` of two masks: "and", "or", "xor", or "without" (a and not b).

        With AVX-512 the masks stay in mask registers.
        """
        m, n = self.mask, self.width
        name, b = f"lane_{op}_{n}", DType.bool_
        if self.is_pair(I32):
            one = self.half.mask_operation(op)
            return self.made(name, lambda: self.by_halves(name, b, one, ((b, "a"), (b, "b"))))
        plain = {"and": "a & b", "or": "a | b", "xor": "a ^ b", "without": "a & ~b"}[op]
        instruction = {"and": "kand", "or": "kor", "xor": "kxor", "without": "kandn"}[op]
        args = "b, a" if op == "without" else "a, b"
        return self.made(
            name,
            lambda: self.both(
                f"{m} {name}({m} a, {m} b)",
                f"return ({m})_{instruction}_mask{max(8, n)}({args});",
                f"    return {plain};",
            ),
        )

    @property
    def word(self) -> str:
        """C type of an unsigned integer with a bit per lane."""
        return "unsigned" if self.width <= 32 else "uint64_t"

    def each(self) -> tuple[str, str]:
        """Returns the head of a C loop over the live lanes of mask m, and C text of the current lane's number.

        The loop's variable `left` holds a bit for each remaining lane.
        """
        head = f"for ({self.word} left = {self.bits()}(m); left; left &= left - 1)"
        return head, f"__builtin_ctz{'' if self.width <= 32 else 'll'}(left)"

    def bits(self) -> str:
        """Returns the helper `lane_bits(m)`: an integer with a bit per live lane."""
        n = self.width
        name = f"lane_bits_{n}"
        if self.is_pair(I32):
            one, h = self.half.bits(), n // 2
            return self.made(
                name,
                lambda: (
                    f"static inline {self.word} {name}({self.mask} m) "
                    f"{{ return {one}(m.lo) | ({self.word}){one}(m.hi) << {h}; }}"
                ),
            )
        return self.made(
            name,
            lambda: self.both(
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
        """Returns the helper `lane_any(m)`: true if a lane of mask m is live."""
        n, bits = self.width, self.bits()
        name = f"lane_any_{n}"
        if self.is_pair(I32):
            one, join = self.half.any(), self.half.mask_operation("or")
            return self.made(
                name,
                lambda: (
                    f"static inline int {name}({self.mask} m) {{ return {one}({join}(m.lo, m.hi)); }}"
                ),
            )
        if n < 8:
            return self.made(
                name,
                lambda: f"static inline int {name}({self.mask} m) {{ return {bits}(m) != 0; }}",
            )
        return self.made(
            name,
            lambda: self.both(
                f"int {name}({self.mask} m)",
                f"return !_kortestz_mask{n}_u8(m, m);",
                f"    return {bits}(m) != 0;",
            ),
        )

    def of_bool(self) -> str:
        """Returns the helper `lane_mask(x)`: the mask of all lanes if scalar x is true, else of none."""
        m, n = self.mask, self.width
        name = f"lane_mask_{n}"
        if self.is_pair(I32):
            one = self.half.of_bool()
            return self.made(
                name,
                lambda: (
                    f"static inline {m} {name}(int x) {{ return ({m}){{{one}(x), {one}(x)}}; }}"
                ),
            )
        return self.made(
            name,
            lambda: self.both(
                f"{m} {name}(int x)",
                f"return x ? {hex((1 << n) - 1)} : 0;",
                f"    return ({m}){{0}} - (x != 0);",
            ),
        )

    def part(self, is_high: bool) -> str:
        """Returns the helper `lane_lo(m)` or `lane_hi(m)`: one half of a mask that is not a pair of halves."""
        n, which = self.width, "hi" if is_high else "lo"
        h = self.half
        shift = f"_kshiftri_mask{n}(m, {n // 2})" if is_high else "m"
        if n <= 8:
            shift = f"m >> {n // 2}" if is_high else f"m & {hex((1 << n // 2) - 1)}"
        return self.made(
            f"lane_{which}_{n}",
            lambda: self.both(
                f"{h.mask} lane_{which}_{n}({self.mask} m)",
                f"return ({h.mask})({shift});",
                f"    return {self._half_of(I32, is_high)}(m);",
            ),
        )

    def _half_of(self, dtype: DType, is_high: bool) -> str:
        """Returns the helper that gives the lower or upper half of a vector of GNU C."""
        n, which = self.width, "hi" if is_high else "lo"
        whole, half = self._vectors(dtype)
        name = f"lane_{which}_{whole}"
        lanes = ", ".join(str(k + (n // 2 if is_high else 0)) for k in range(n // 2))
        return self.made(
            name,
            lambda: (
                f"static inline {half} {name}({whole} x) {{\n#ifdef LANES_SHUFFLE\n"
                f"    return __builtin_shufflevector(x, x, {lanes});\n#else\n"
                f"    union {{ {whole} x; {half} h[2]; }} u = {{x}};\n"
                f"    return u.h[{int(is_high)}];\n#endif\n}}"
            ),
        )

    def _join(self, dtype: DType) -> str:
        """Returns the helper that joins two half vectors to a vector of GNU C."""
        whole, half = self._vectors(dtype)
        name, lanes = f"lane_join_{whole}", ", ".join(map(str, range(self.width)))
        return self.made(
            name,
            lambda: (
                f"static inline {whole} {name}({half} lo, {half} hi) {{\n#ifdef LANES_SHUFFLE\n"
                f"    return __builtin_shufflevector(lo, hi, {lanes});\n#else\n"
                f"    union {{ {half} h[2]; {whole} x; }} u = {{{{lo, hi}}}};\n"
                f"    return u.x;\n#endif\n}}"
            ),
        )

    def _vectors(self, dtype: DType) -> tuple[str, str]:
        """Returns the C types of a vector of all lanes and of half of it."""
        return self.type(dtype), self.half.type(dtype)

    def lo(self, x: str, dtype: DType, is_high: bool = False) -> str:
        """Returns C text of the lower half of value `x`; of the upper one with `is_high`."""
        if dtype is DType.bool_ and not self.is_pair(I32):
            return f"{self.part(is_high)}({x})"
        if dtype is DType.bool_:
            dtype = I32
        if self.is_pair(dtype):
            return f"{x}.{'hi' if is_high else 'lo'}"
        return f"{self._half_of(dtype, is_high)}({x})"

    def by_halves(
        self, name: str, dtype: DType, function: str, args: tuple[tuple[DType, str], ...]
    ) -> str:
        """Returns the definition of helper `name`, which calls `function` for each half of its arguments.

        `args`: type and name of each argument.
        """
        parameters = ", ".join(f"{self.type(d)} {x}" for d, x in args)
        halves = [
            f"{function}({', '.join(self.lo(x, d, is_high) for d, x in args)})"
            for is_high in (False, True)
        ]
        result = self.type(dtype)
        made = self.joined(dtype, *halves)
        return f"static inline {result} {name}({parameters}) {{ return {made}; }}"

    def joined(self, dtype: DType, lo: str, hi: str) -> str:
        """Returns C text of the value that consists of the halves `lo` and `hi`."""
        if dtype is DType.bool_ and not self.is_pair(I32):
            return f"{self._join_masks()}({lo}, {hi})"
        if dtype is not DType.bool_ and not self.is_pair(dtype):
            return f"{self._join(dtype)}({lo}, {hi})"
        return f"({self.type(dtype)}){{{lo}, {hi}}}"

    def _join_masks(self) -> str:
        n, m, h = self.width, self.mask, self.half.mask
        return self.made(
            f"lane_join_{n}",
            lambda: self.both(
                f"{m} lane_join_{n}({h} lo, {h} hi)",
                f"return ({m})_mm512_kunpackb(hi, lo);"
                if n == 16
                else f"return ({m})((lo & {hex((1 << n // 2) - 1)}) | hi << {n // 2});",
                f"    return {self._join(I32)}(lo, hi);",
            ),
        )

    def has_registers(self, dtype: DType) -> bool:
        """True if elements have 4 or 8 bytes, and a vector of all lanes has at least 16 bytes.

        Vectors of these sizes have masked instructions to compare, blend, load and store.
        """
        return dtype.size_bytes >= 4 and self.size(dtype) >= 16

    def intrinsic(self, dtype: DType, signed: bool = True) -> tuple[str, str]:
        """Returns prefix and suffix of the x86 intrinsics for `dtype`.

        Without `signed` unsigned types have a suffix of their own.
        """
        bits = 8 * dtype.size_bytes
        if dtype.is_float:
            suffix = "ps" if bits == 32 else "pd"
        else:
            suffix = f"ep{'i' if signed or dtype.is_signed else 'u'}{bits}"
        return _PREFIX[self.size(dtype)], suffix

    def register(self, dtype: DType) -> str:
        register = REGISTERS[self.size(dtype)]
        return register + {"ps": "", "pd": "d"}.get(self.intrinsic(dtype)[1], "i")
