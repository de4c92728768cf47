"""Rows in vectorised loops: contiguous elements that one lane loads, stores or updates, e.g. components of a grid node.

A value of all lanes is a vector over lanes, a row is a vector along memory. A transposition in
registers converts one into the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...kernels.analysis.neighbour_loads import GROUP_BYTES, row_length
from ...kernels.analysis.write_rows import STORE
from ...kernels.ir.kernel import DType
from ..text.types import SCALAR_TYPES, mask_dtype
from .lanes_masks import I32, LaneMasks
from .vectors import operator

_INLINED = "static inline __attribute__((always_inline))"  # results then are in registers


class LaneRows:
    """Helpers that update, store and load rows (contiguous elements of one lane) for the lanes of a mask.

    Methods return their names.
    """

    def __init__(self, m: LaneMasks) -> None:
        self.m = m

    def has(self, dtype: DType) -> bool:
        """True if vectors of `dtype` consist of 16-byte groups within which instructions can transpose."""
        if self.m.is_pair(dtype) or self.m.is_pair(I32):
            return self.m.width > 1 and LaneRows(self.m.half).has(dtype)
        return self.m.has_registers(dtype)

    def can_load(self, dtype: DType) -> bool:
        """True if vectors of `dtype`, and vectors of i32 indices, consist of 16-byte groups that instructions can transpose."""
        if self.m.is_pair(dtype) or self.m.is_pair(I32):
            return self.m.width > 1 and LaneRows(self.m.half).can_load(dtype)
        return self.m.has_registers(dtype) and self.m.has_registers(I32)

    def update(self, op: str, dtype: DType, n_rows: int) -> str:
        """Returns the helper `update(p, m, i, x0, x1 ...)`: each live lane l does p[i[l] + k] op= xk[l], all k.

        Lanes follow one another; each updates its row at once. The operator STORE stores the elements.
        """
        v, t, i, n = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.type(I32), self.m.width
        name = f"lane_{op}_row{n_rows}_at_{v}"
        rows = [f"x{k}" for k in range(n_rows)]
        opening = (
            f"static inline void {name}({t} *p, {self.m.mask} m, {i} i, "
            f"{', '.join(f'{v} {x}' for x in rows)}) {{"
        )
        if self.m.is_pair(dtype) or self.m.is_pair(I32):
            one, b = LaneRows(self.m.half).update(op, dtype, n_rows), DType.bool_
            halves = [
                f"    {one}(p, {self.m.lo('m', b, k)}, {self.m.lo('i', I32, k)}, "
                f"{', '.join(self.m.lo(x, dtype, k) for x in rows)});"
                for k in (False, True)
            ]
            return self.m.made(name, lambda: "\n".join([opening, *halves, "}"]))

        def text() -> str:
            made, places = self._transposed(dtype, rows)
            each, lane = self.m.each()
            act = "\n".join(f"        {x}" for x in self._pieces(op, dtype, n_rows))
            own = f"        {t} *q = p + at[l];\n        const {t} *r = b + place[l];\n{act}"
            lines = (
                opening,
                f"    {t} b[{len(made) * n}];",
                f"    int32_t at[{n}];",
                f"    static const int place[{n}] = {{{', '.join(map(str, places))}}};",
                "    __builtin_memcpy(at, &i, sizeof at);",
                *(f"    *({v}_unaligned *)(b + {k * n}) = {x};" for k, x in enumerate(made)),
                f"    if ({self.m.bits()}(m) == {hex((1 << n) - 1)}) {{",
                f"#pragma GCC unroll {n}",
                f"        for (int l = 0; l < {n}; ++l) {{",
                own,
                "        }",
                "        return;",
                "    }",
                f"    {each} {{",
                f"        const int l = {lane};",
                own,
                "    }",
                "}",
            )
            return "\n".join(lines)

        return self.m.made(name, text)

    def places(self) -> str:
        """Returns the helper `places(m, i, at)`: at[l] = i[l] for live lanes l of m, 0 for others."""
        i, n = self.m.type(I32), self.m.width
        name = f"lane_places_{n}"
        opening = f"static inline void {name}({self.m.mask} m, {i} i, int64_t *at)"
        if self.m.is_pair(I32):
            one, b = LaneRows(self.m.half).places(), DType.bool_
            halves = [
                f"    {one}({self.m.lo('m', b, k)}, {self.m.lo('i', I32, k)}, at + {n // 2 * k});"
                for k in (False, True)
            ]
            return self.m.made(name, lambda: "\n".join([f"{opening} {{", *halves, "}"]))
        prefix, register = self.m.intrinsic(I32)[0], self.m.register(I32)
        bits = f"i = ({i}){prefix}_maskz_mov_epi32(m, ({register})i);"
        each = f"    for (int l = 0; l < {n}; ++l) at[l] = i[l];"
        return self.m.made(
            name,
            lambda: (
                f"{opening} {{\n#ifdef LANES_AVX512\n    {bits}\n#else\n    i &= m;\n#endif\n"
                f"#pragma GCC unroll {n}\n{each}\n}}"
            ),
        )

    def load(self, dtype: DType, n_rows: int) -> str:
        """Returns the helper `load(p, at, x)`: x[k][l] = p[at[l] + k]; each lane l loads its row at once.

        The helper reads `at` again for each row: compilers that try to hold all indices in
        registers spend most of their time on it.
        """
        v, t, n = self.m.type(dtype), SCALAR_TYPES[dtype.name], self.m.width
        name = f"lane_row{n_rows}_{v}"
        opening = f"{_INLINED} void {name}(const {t} *p, const volatile int64_t *at, {v} *x) {{"
        if self.m.is_pair(dtype) or self.m.is_pair(I32):
            half = LaneRows(self.m.half)
            one, kind = half.load(dtype, n_rows), half.m.type(dtype)
            parts = (
                f"    {kind} lo[{n_rows}], hi[{n_rows}];",
                f"    {one}(p, at, lo);",
                f"    {one}(p, at + {n // 2}, hi);",
                *(
                    f"    x[{k}] = {self.m.joined(dtype, f'lo[{k}]', f'hi[{k}]')};"
                    for k in range(n_rows)
                ),
            )
            return self.m.made(name, lambda: "\n".join([opening, *parts, "}"]))

        def text() -> str:
            group, held = row_length(dtype), list[str]()
            one = self._row_of_one(dtype, n_rows)
            for k in range(group):
                lanes = [f"{one}(p + at[{lane}])" for lane in range(k, n, group)]
                held.append(f"    const {v} r{k} = {self._side_by_side(dtype, lanes)};")
            made, places = self._transposed(dtype, [f"r{k}" for k in range(group)])
            rows = (f"    x[{k}] = {made[places[k] // n]};" for k in range(n_rows))
            return "\n".join((opening, *held, *rows, "}"))

        return self.m.made(name, text)

    def _row_of_one(self, dtype: DType, n: int) -> str:
        """Returns the helper `row(p)`: p[0] to p[n - 1] in a vector of 16 bytes, 0 beyond."""
        group, t = row_length(dtype), SCALAR_TYPES[dtype.name]
        kind = self.m.prelude.vector_type(dtype, group)
        name = f"lane_near{n}_{kind}"
        opening = f"static inline {kind} {name}(const {t} *p) {{"
        items = ", ".join(f"p[{k}]" for k in range(n))
        one = f"    return ({kind}){{{items}}};"
        if n == group:
            one = f"    return *(const {kind}_unaligned *)p;"
        elif n == 2:
            two = self.m.prelude.vector_type(DType.i64, 2)
            one = (
                "    int64_t both;\n    __builtin_memcpy(&both, p, sizeof both);\n"
                f"    return ({kind})({two}){{both}};"
            )
        elif n == 3:
            cast, suffix = ("float", "ps") if dtype.is_float else ("int", "epi32")
            call = f"_mm_maskload_{suffix}((const {cast} *)p, _mm_setr_epi32(-1, -1, -1, 0))"
            one = f"#if defined(__AVX2__)\n    return ({kind}){call};\n#else\n{one}\n#endif"
        return self.m.made(name, lambda: f"{opening}\n{one}\n}}")

    def _side_by_side(self, dtype: DType, parts: Sequence[str]) -> str:
        """Returns C text that concatenates vectors of 16 bytes, the texts `parts`, to one vector."""
        if len(parts) == 1:
            return parts[0]
        half = len(parts) // 2
        masks = self.m
        while masks.size(dtype) > GROUP_BYTES * len(parts):
            masks = masks.half
        lo, hi = (self._side_by_side(dtype, x) for x in (parts[:half], parts[half:]))
        if masks.size(dtype) == 2 * GROUP_BYTES:
            return f"{_two(masks, dtype)}({lo}, {hi})"
        return masks.joined(dtype, lo, hi)

    def _transposed(self, dtype: DType, rows: Sequence[str]) -> tuple[list[str], list[int]]:
        """Returns C texts of vectors that hold each lane's row contiguously, and the position of each lane's row.

        `rows`: C texts of the vectors over lanes, one per element of a row. A missing one repeats
        the last.
        """
        n, group = self.m.width, row_length(dtype)
        x = [*rows, *[rows[-1]] * (len(rows) % 2)]
        held = [[(k, lane) for lane in range(n)] for k in range(len(x))]
        # Element by element of two rows, then pair by pair of what comes of two such.
        for size in (1,) if len(x) == 2 else (1, 2):
            pairs = (
                ((0, 1),) if len(x) == 2 else ((0, 1), (2, 3)) if size == 1 else ((0, 2), (1, 3))
            )
            made, found = list[str](), list[list[tuple[int, int]]]()
            for a, b in pairs:
                for half in (0, 1):
                    lanes = _interleaved(n, group, size, half)
                    made.append(f"{self._mix(dtype, lanes, size, half)}({x[a]}, {x[b]})")
                    found.append([(held[a] + held[b])[k] for k in lanes])
            x, held = made, found
        flat = [place for vector in held for place in vector]
        return x, [flat.index((0, lane)) for lane in range(n)]

    def _mix(self, dtype: DType, lanes: Sequence[int], size: int, half: int) -> str:
        """Returns the helper that selects the elements `lanes` out of two concatenated vectors."""
        v, mask = self.m.type(dtype), self.m.prelude.vector_type(mask_dtype(dtype), self.m.width)
        items = ", ".join(map(str, lanes))
        name = f"lane_mix{size}_{'hi' if half else 'lo'}_{v}"
        return self.m.made(
            name,
            lambda: (
                f"static inline {v} {name}({v} a, {v} b) {{\n#ifdef LANES_SHUFFLE\n"
                f"    return __builtin_shufflevector(a, b, {items});\n#else\n"
                f"    return __builtin_shuffle(a, b, ({mask}){{{items}}});\n#endif\n}}"
            ),
        )

    def _pieces(self, op: str, dtype: DType, n_rows: int) -> Iterator[str]:
        """Yields C statements that update the elements at `q` by the row at `r`: four, two or one at a time."""
        prelude, first = self.m.prelude, 0
        while first < n_rows:
            n = 4 if n_rows - first >= 4 else 2 if n_rows - first >= 2 else 1
            there, here = f"q[{first}]", f"r[{first}]"
            if n > 1:
                kind = f"{prelude.vector_type(dtype, n)}_unaligned"
                there, here = f"*({kind} *)(q + {first})", f"*(const {kind} *)(r + {first})"
            sign = "=" if op == STORE else operator(op, dtype)
            joined = here if op == STORE else f"{there} {sign} {here}"
            if sign is None:
                joined = f"{prelude.use(op, dtype, n if n > 1 else 0)}({there}, {here})"
            yield f"{there} = {joined};"
            first += n


def _two(m: LaneMasks, dtype: DType) -> str:
    """Returns the helper `two(lo, hi)`: a vector of 32 bytes of two halves, by one instruction.

    gcc clears the upper half of `lo` before it joins halves in other ways.
    """
    v, half = m.type(dtype), m.half.type(dtype)
    name, joined = f"lane_two_{v}", m.joined(dtype, "lo", "hi")
    wide = "_mm256_castsi128_si256((__m128i)lo)"
    call = f"({v})_mm256_insertf128_si256({wide}, (__m128i)hi, 1)"
    return m.made(
        name,
        lambda: (
            f"static inline {v} {name}({half} lo, {half} hi) {{\n#if defined(__AVX__)\n    return {call};\n"
            f"#else\n    return {joined};\n#endif\n}}"
        ),
    )


def _interleaved(n: int, group: int, size: int, half: int) -> list[int]:
    """Returns the element numbers that interleave one half of each group of two vectors of `n` elements.

    `group`: elements of a group. `half`: 0 for its lower, 1 for its upper half. Pieces of `size`
    elements of the first and of the second vector alternate; elements of the second are numbered
    from n on.
    """
    return [
        start + half * (group // 2) + piece * size + k + vector * n
        for start in range(0, n, group)
        for piece in range(group // 2 // size)
        for vector in (0, 1)
        for k in range(size)
    ]
