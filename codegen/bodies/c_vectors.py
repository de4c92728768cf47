"""Vector types and helper functions in C, with the vector extensions of GNU."""

from __future__ import annotations

from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import OPS
from ..text.types import SCALAR_TYPES, mask_dtype, unsigned
from .vector_functions import has_vector_function, vector_function
from .vectors import INFIX, SHIFTS, Helpers, Prelude, exact, math_function, scalar_helper


class CHelpers(Helpers):
    """Definitions of vector types and helper functions in C with GNU's vector extensions."""

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
                between = _between(other, dtype)
                if between is not None:
                    first = prelude.use(operation, between, lanes, other)
                    second = prelude.use(operation, dtype, lanes, between)
                    return (
                        f"static inline {v} {name}({source} x) {{ return {second}({first}(x)); }}"
                    )
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
                sign = INFIX.get(operation) or SHIFTS[operation]
                u = v if operation == "shr" else prelude.vector_type(unsigned(dtype), lanes)
                return f"{two}    return ({v})(({u})a {sign} ({u})b);\n}}"
            case "exact_add" | "exact_sub" | "exact_mul":
                two = f"static inline {v} {name}({v} a, {v} b) {{"
                return exact(operation.removeprefix("exact_"), two, dtype, lanes)
            case "floor_mod":
                floor, less = (prelude.use(x, dtype, lanes) for x in ("floor", "exact_sub"))
                product = prelude.use("exact_mul", dtype, lanes)
                return f"{two}    return {less}(a, {product}({floor}(a / b), b));\n}}"
            case "bit_not":
                return f"{one}    return ~x;\n}}"
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

    def of_vectors(
        self, prelude: Prelude, operation: str, dtype: DType, lanes: int, ulp: float
    ) -> str:
        if has_vector_function(operation, dtype):
            return vector_function(prelude, operation, dtype, lanes, ulp)
        return prelude.use(operation, dtype, lanes)

    def divided(
        self, prelude: Prelude, operation: str, dtype: DType, lanes: int, by: int
    ) -> str | None:
        """Returns the name of a helper that divides integer vectors by constant `by`; None unless it is positive.

        A compiler replaces a vector division by multiplications only if its divisor is a literal
        constant. In a helper for any divisor the divisor becomes constant after that replacement.
        """
        if by <= 0:
            return None
        v = prelude.vector_type(dtype, lanes)
        name = f"{operation}_{v}_by_{by}"
        # A mask is -1 where it holds: one less for each rest that is missing.
        floors = dtype.is_signed and operation in ("floordiv", "mod")
        found = "q" if operation in ("floordiv", "raw_div") else "a - q * d"
        prelude.defined.setdefault(
            name,
            f"static inline {v} {name}({v} a) {{\n"
            f"    const {v} d = {{{', '.join([str(by)] * lanes)}}};\n"
            f"    {v} q = a / d;\n"
            + (f"    q += ({v})(a - q * d < 0);\n" if floors else "")
            + f"    return {found};\n}}",
        )
        return name

    def aligned(self, prelude: Prelude, name: str, dtype: DType, lanes: int, first: int) -> str:
        """Returns the definition of a helper that selects `lanes` lanes, from lane `first` on, of two consecutive vectors."""
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
        """Returns (feature test, call) of the x86 instruction for `operation` on a whole vector.

        It returns None if there is none.
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
        """Returns the definition of a vector store around the caches (non-temporal).

        A vector aligned to its size is stored whole. One aligned to 16 bytes only, as NumPy's
        arrays are, is stored in pieces. Any other one is stored through the caches.
        The helper's argument `is_aligned` is nonzero if alignment to the vector's size is known;
        with 0 the helper tests the address.
        It is inline assembly, because the header of the intrinsics takes longer to compile than the
        rest of a text.
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
        """Returns the definition of a reduction over a vector's lanes, by halving: log2(lanes) steps instead of a chain."""
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


def _between(source: DType, dtype: DType) -> DType | None:
    """Returns the intermediate type of a conversion from or to a small integer; None if one step suffices.

    Compilers have instructions that double or halve the size of a vector's elements; they split
    other conversions into scalar ones.
    """
    if min(source.size_bytes, dtype.size_bytes) >= 4:
        return None
    if source.is_float or dtype.is_float:  # numbers of small integers are those of i32 too
        return None if DType.i32 in (source, dtype) else DType.i32
    small, wide = sorted((source, dtype), key=lambda d: d.size_bytes)
    if wide.size_bytes <= 2 * small.size_bytes:
        return None
    kind = "int" if source.is_signed else "uint"
    return DType(f"{kind}{16 * small.size_bytes if small is source else 4 * wide.size_bytes}")
