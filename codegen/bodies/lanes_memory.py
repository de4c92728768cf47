"""C helpers of vectorised loops: loads, stores, gathers, scatters and updates (see codegen/bodies/lanes_masks.py)."""

from __future__ import annotations

from functools import cached_property

from ...kernels.ir.kernel import DType
from ..text.types import SCALAR_TYPES
from .lanes_masks import I32, REGISTERS, LaneMasks
from .lanes_operations import LaneOperations
from .vectors import operator


class LaneMemory:
    """Helpers for loads, stores, gathers, scatters and updates by the lanes of a mask `m`.

    Methods return their names.
    """

    def __init__(self, m: LaneMasks, ops: LaneOperations) -> None:
        self.m, self.ops = m, ops

    @cached_property
    def half(self) -> LaneMemory:
        return LaneMemory(self.m.half, self.ops.half)

    def load(self, dtype: DType) -> str:
        """Returns the helper `load(m, p)`: lane l gets p[l] if it is live in m, else 0."""
        v, t, n = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.width
        name = f"lane_load_{v}"
        opening = f"{v} {name}({self.m.mask} m, const {t} *p)"
        if self.m.is_pair(dtype):
            return self.m.made(name, lambda: self._pairs_at(opening, dtype, self.half.load(dtype)))
        return self.m.made(name, lambda: self._loading(name, dtype, opening, v, n))

    def load_all(self, dtype: DType) -> str:
        """Returns the helper `load_all(p)`: lane l gets p[l]."""
        v, t, n = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.width
        if not self.m.is_pair(dtype):
            return self.m.prelude.use("load", dtype, n)
        one, opening = self.half.load_all(dtype), f"static inline {v} load_{v}(const {t} *p)"
        text = f"{opening} {{ return ({v}){{{one}(p), {one}(p + {n // 2})}}; }}"
        return self.m.made(f"load_{v}", lambda: text)

    def store_all(self, dtype: DType) -> str:
        """Returns the helper `store_all(p, x)`: each lane l stores x[l] in p[l]."""
        v, t, n = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.width
        if not self.m.is_pair(dtype):
            return self.m.prelude.use("store", dtype, n)
        one, opening = self.half.store_all(dtype), f"static inline void store_{v}({t} *p, {v} x)"
        text = f"{opening} {{ {one}(p, x.lo); {one}(p + {n // 2}, x.hi); }}"
        return self.m.made(f"store_{v}", lambda: text)

    def _loading(self, name: str, dtype: DType, opening: str, v: str, n: int) -> str:
        bits, (each, lane) = self.m.bits(), self.m.each()
        one = (
            f"    if ({bits}(m) == {hex((1 << n) - 1)}) return *(const {v}_unaligned *)p;\n"
            f"    {v} r = {{0}};\n    {each} r[{lane}] = p[{lane}];\n    return r;"
        )
        if not self.m.has_registers(dtype):
            return f"static inline {opening} {{\n{one}\n}}"
        prefix, suffix = self.m.intrinsic(dtype)
        avx512 = f"return ({v}){prefix}_maskz_loadu_{suffix}(m, p);"
        return self.m.both(opening, avx512, one, self._masked(dtype, "return ({v}){call};", "load"))

    def _masked(self, dtype: DType, statement: str, way: str, more: str = "") -> str:
        """Returns a statement that calls the masked load or store of AVX2 (`way`); "" where AVX2 has none of this size.

        `statement`: its text, with {v} and {call}. `more`: further arguments.
        """
        if self.m.size(dtype) > 32:
            return ""
        prefix, suffix = self.m.intrinsic(dtype)
        mask, of_bits = "m", REGISTERS[self.m.size(dtype)]
        if dtype.size_bytes == 8:
            wide = self.m.prelude.vector_type(DType.i64, self.m.width)
            mask = f"__builtin_convertvector(m, {wide})"
        kind = {"epi32": "int", "epi64": "long long"}.get(suffix)
        place = f"({'const ' if way == 'load' else ''}{kind} *)p" if kind else "p"
        call = f"{prefix}_mask{way}_{suffix}({place}, ({of_bits}i){mask}{more})"
        return statement.format(v=self.m.type(dtype), call=call)

    def store(self, dtype: DType) -> str:
        """Returns the helper `store(p, m, x)`: each live lane l of m stores x[l] in p[l]."""
        v, t, n = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.width
        name = f"lane_store_{v}"
        opening = f"void {name}({t} *p, {self.m.mask} m, {v} x)"
        if self.m.is_pair(dtype):
            h, one = self.m.width // 2, self.half.store(dtype)
            m = DType.bool_
            return self.m.made(
                name,
                lambda: (
                    f"static inline {opening} {{\n    {one}(p, {self.m.lo('m', m)}, x.lo);\n"
                    f"    {one}(p + {h}, {self.m.lo('m', m, True)}, x.hi);\n}}"
                ),
            )
        bits, (each, lane) = self.m.bits(), self.m.each()
        one = (
            f"    if ({bits}(m) == {hex((1 << n) - 1)}) *(({v}_unaligned *)p) = x;\n"
            f"    else {each} p[{lane}] = x[{lane}];"
        )
        if not self.m.has_registers(dtype):
            return self.m.made(name, lambda: f"static inline {opening} {{\n{one}\n}}")
        prefix, suffix = self.m.intrinsic(dtype)
        cast = self.m.register(dtype)
        avx512 = f"{prefix}_mask_storeu_{suffix}(p, m, ({cast})x);"
        # Of all lanes no masked store: it takes several times as long on AMD's processors (Fog, 4: VMASKMOVPS).
        all_or_some = (
            f"if ({bits}(m) == {hex((1 << n) - 1)}) *(({v}_unaligned *)p) = x; else {{call}};"
        )
        avx2 = self._masked(dtype, all_or_some, "store", f", ({cast})x")
        return self.m.made(name, lambda: self.m.both(opening, avx512, one, avx2))

    def _pairs_at(self, opening: str, dtype: DType, one: str) -> str:
        h, v, m = self.m.width // 2, self.m.type(dtype), DType.bool_
        return (
            f"static inline {opening} {{\n    return ({v}){{{one}({self.m.lo('m', m)}, p), "
            f"{one}({self.m.lo('m', m, True)}, p + {h})}};\n}}"
        )

    def gather(self, dtype: DType) -> str:
        """Returns the helper `gather(m, p, i)`: lane l gets p[i[l]] if it is live in m, else 0; i holds i32."""
        v, t, i = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.type(I32)
        name = f"lane_gather_{v}"
        opening = f"{v} {name}({self.m.mask} m, const {t} *p, {i} i)"
        if self.m.is_pair(dtype):
            one, b = self.half.gather(dtype), DType.bool_
            parts = [
                f"{one}({self.m.lo('m', b, k)}, p, {self.m.lo('i', I32, k)})" for k in (False, True)
            ]
            return self.m.made(
                name,
                lambda: f"static inline {opening} {{\n    return ({v}){{{', '.join(parts)}}};\n}}",
            )
        (each, lane), is_small = self.m.each(), self._is_small(dtype)
        at = "at" if is_small else "i"
        one = f"    {v} r = {{0}};\n    {each} r[{lane}] = p[{at}[{lane}]];\n    return r;"
        if is_small:
            return self.m.made(name, lambda: self._of_small(opening, one))
        prefix, suffix = self.m.intrinsic(dtype)
        cast, of_index = self.m.register(dtype), f"{REGISTERS[self.m.size(I32)]}i"
        masked = "mask" if self.m.size(dtype) == 64 else "mmask"
        size = dtype.size_bytes
        call = f"{prefix}_{masked}_i32gather_{suffix}(({cast}){{0}}, m, ({of_index})i, p, {size})"
        avx2 = ""
        if self.m.size(dtype) <= 32:
            wide = "m" if size == 4 else f"__builtin_convertvector(m, i64x{self.m.width})"
            if size == 8:
                self.m.prelude.vector_type(DType.i64, self.m.width)
            kind = {"epi32": "int", "epi64": "long long"}.get(suffix)
            place = f"(const {kind} *)p" if kind else "p"
            avx2 = (
                f"return ({v}){prefix}_mask_i32gather_{suffix}"
                f"(({cast}){{0}}, {place}, ({of_index})i, ({cast}){wide}, {size});"
            )
        return self.m.made(name, lambda: self.m.both(opening, f"return ({v}){call};", one, avx2))

    def scatter(self, dtype: DType) -> str:
        """Returns the helper `scatter(p, m, i, x)`: each live lane l of m stores x[l] in p[i[l]], in the order of lanes."""
        v, t, i = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.type(I32)
        name = f"lane_scatter_{v}"
        opening = f"void {name}({t} *p, {self.m.mask} m, {i} i, {v} x)"
        if self.m.is_pair(dtype):
            one, b = self.half.scatter(dtype), DType.bool_
            parts = [
                f"    {one}(p, {self.m.lo('m', b, k)}, {self.m.lo('i', I32, k)}, {self.m.lo('x', dtype, k)});"
                for k in (False, True)
            ]
            return self.m.made(
                name, lambda: "\n".join([f"static inline {opening} {{", *parts, "}"])
            )
        (each, lane), is_small = self.m.each(), self._is_small(dtype)
        one = f"    {each} p[{'at' if is_small else 'i'}[{lane}]] = x[{lane}];"
        if is_small:
            return self.m.made(name, lambda: self._of_small(opening, one))
        prefix, suffix = self.m.intrinsic(dtype)
        cast, of_index = self.m.register(dtype), f"{REGISTERS[self.m.size(I32)]}i"
        call = f"{prefix}_mask_i32scatter_{suffix}(p, m, ({of_index})i, ({cast})x, {dtype.size_bytes});"
        return self.m.made(name, lambda: self.m.both(opening, call, one))

    def _is_small(self, dtype: DType) -> bool:
        """True if gathers of `dtype` load lane by lane: no gather instruction fits these sizes of elements or of indices."""
        return not (self.m.has_registers(dtype) and self.m.has_registers(I32))

    def _of_small(self, opening: str, one: str) -> str:
        """Returns a C function whose body `one` finds the lanes' indices `i` in an array `at`.

        The indices may exceed one register, so the function copies them to memory.
        """
        places = f"    int32_t at[{self.m.width}];\n    __builtin_memcpy(at, &i, sizeof at);\n"
        return f"static inline {opening} {{\n{places}{one}\n}}"

    def update(self, op: str, dtype: DType, atomic: bool) -> str:
        """Returns the helper `update(p, m, i, x)`: each live lane l of m does p[i[l]] op= x[l], in their order.

        The helper returns the old values of the elements.
        """
        v, t, i = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.type(I32)
        n = self.m.width
        name = f"lane_{'atomic_' if atomic else ''}{op}_at_{v}"

        def text() -> str:
            each, lane = self.m.each()
            if atomic:
                act = f"r[l] = {self.m.prelude.use(f'fetch_{op}', dtype, 0)}(&p[at[l]], b[l]);"
            else:
                sign = operator(op, dtype)
                joined = (
                    f"r[l] {sign} b[l]"
                    if sign
                    else f"{self.m.prelude.use(op, dtype, 0)}(r[l], b[l])"
                )
                act = f"r[l] = p[at[l]];\n        p[at[l]] = {joined};"
            return (
                f"static inline {v} {name}({t} *p, {self.m.mask} m, {i} i, {v} x) {{\n"
                f"    {t} b[{n}], r[{n}] = {{0}};\n    int32_t at[{n}];\n    {v} old;\n"
                f"    __builtin_memcpy(b, &x, sizeof b);\n    __builtin_memcpy(at, &i, sizeof at);\n"
                f"    {each} {{\n        const int l = {lane};\n        {act}\n    }}\n"
                f"    __builtin_memcpy(&old, r, sizeof r);\n    return old;\n}}"
            )

        return self.m.made(name, text)
