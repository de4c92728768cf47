"""Helper functions of lanes: masks, masked loads and stores, gathers and scatters, blends, functions of whole vectors.

A *lane* is one iteration of a loop of which `width` run at once. What they hold of a type is a vector of GNU C where it fits into a
register, else a structure of two halves, `lo` and `hi`. A mask has a bit a lane where there is AVX-512, else it is a vector of i32,
0 or -1. Each helper is there in both forms, so that one text is for all machines: those without vectors of this size are slower.
"""

from __future__ import annotations

from ...kernels.ir.kernel import DType
from .lanes_masks import I32, REGISTERS
from .lanes_operations import LaneOperations
from .vectors import SCALAR_TYPES, operator


class LaneHelpers(LaneOperations):
    """Loads, stores, gathers, scatters and updates, and by its bases all other helpers of lanes."""

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
        cast, of_index = self._register(dtype), f"{REGISTERS[max(16, self._size(I32))]}i"
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
        cast, of_index = self._register(dtype), f"{REGISTERS[max(16, self._size(I32))]}i"
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
