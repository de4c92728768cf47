"""Helper functions of CUDA text: vector types (loads of up to 16 bytes), element-wise mathematics, reductions.

Reductions combine lanes, threads of a warp, or threads of a block. Helper names are those of
codegen/bodies/vectors.py, so one lowering serves CPUs and GPUs. The definitions use no compiler
extension.
"""

from __future__ import annotations

from ...kernels.ir.kernel import DType
from ...kernels.ir.ops import OPS
from ..text.types import SCALAR_TYPES, mask_dtype
from .cuda_prelude import ATOMIC_EXTREMA
from .vectors import Helpers, Prelude, math_function, scalar_helper

_INLINE = "static __device__ __forceinline__"
# The types of the language that one load or store moves, by dtype and lanes.
_BUILT_IN = {
    ("f32", 2): "float2",
    ("f32", 4): "float4",
    ("f64", 2): "double2",
    ("i32", 2): "int2",
    ("i32", 4): "int4",
    ("i64", 2): "longlong2",
}
HINTED_LOADS = {"CG": "__ldcg", "READ_ONLY": "__ldg", "STREAM": "__ldcs"}
STREAMING_STORE = "__stcs"
_VECTORS = f"""\
template <typename T, int N> struct alignas(sizeof(T) * N) lanes_of {{
    T e[N];
    __device__ __forceinline__ T &operator[](int l) {{ return e[l]; }}
    __device__ __forceinline__ const T &operator[](int l) const {{ return e[l]; }}
}};
template <typename T> struct scalar_of {{ typedef T type; }};
template <typename T> struct mask_of {{ typedef int32_t type; }};
template <> struct mask_of<double> {{ typedef int64_t type; }};
template <> struct mask_of<int64_t> {{ typedef int64_t type; }};
#define LANES_ARITHMETIC(op) \\
template <typename T, int N> {_INLINE} lanes_of<T, N> operator op(lanes_of<T, N> a, const lanes_of<T, N> b) {{ \\
    for (int l = 0; l < N; ++l) a.e[l] = a.e[l] op b.e[l]; \\
    return a; }} \\
template <typename T, int N> {_INLINE} lanes_of<T, N> operator op(lanes_of<T, N> a, typename scalar_of<T>::type b) {{ \\
    for (int l = 0; l < N; ++l) a.e[l] = a.e[l] op b; \\
    return a; }} \\
template <typename T, int N> {_INLINE} lanes_of<T, N> operator op(typename scalar_of<T>::type a, lanes_of<T, N> b) {{ \\
    for (int l = 0; l < N; ++l) b.e[l] = a op b.e[l]; \\
    return b; }} \\
template <typename T, int N, typename U> {_INLINE} lanes_of<T, N> &operator op##=(lanes_of<T, N> &a, const U b) {{ \\
    a = a op b; \\
    return a; }}
#define LANES_BITS(op) \\
template <typename T, int N> {_INLINE} lanes_of<T, N> operator op(lanes_of<T, N> a, const lanes_of<T, N> b) {{ \\
    for (int l = 0; l < N; ++l) a.e[l] = a.e[l] op b.e[l]; \\
    return a; }}
#define LANES_COMPARISON(op) \\
template <typename T, int N> \\
{_INLINE} lanes_of<typename mask_of<T>::type, N> operator op(const lanes_of<T, N> a, const lanes_of<T, N> b) {{ \\
    lanes_of<typename mask_of<T>::type, N> r; \\
    for (int l = 0; l < N; ++l) r.e[l] = a.e[l] op b.e[l] ? -1 : 0; \\
    return r; }}
#define LANES_UNARY(op) \\
template <typename T, int N> {_INLINE} lanes_of<T, N> operator op(lanes_of<T, N> a) {{ \\
    for (int l = 0; l < N; ++l) a.e[l] = op a.e[l]; \\
    return a; }}
LANES_ARITHMETIC(+) LANES_ARITHMETIC(-) LANES_ARITHMETIC(*) LANES_ARITHMETIC(/)
LANES_BITS(&) LANES_BITS(|)
LANES_COMPARISON(<) LANES_COMPARISON(<=) LANES_COMPARISON(>) LANES_COMPARISON(>=) LANES_COMPARISON(==) LANES_COMPARISON(!=)
LANES_UNARY(-) LANES_UNARY(~)"""

# Only for integers: texts without integers stay as older versions wrote them.
_INTEGERS = "template <> struct mask_of<uint64_t> { typedef int64_t type; };\nLANES_BITS(^)"


# Only for small integers.
_SMALL_INTEGERS = "\n".join(
    f"template <> struct mask_of<{kind}{n}_t> {{ typedef int{n}_t type; }};"
    for n in (8, 16)
    for kind in ("int", "uint")
)


class CudaHelpers(Helpers):
    """Definitions of vector types and helper functions in CUDA C++."""

    def printing(self) -> tuple[str, str, tuple[str, ...]]:
        return "", "printf", ()

    def vector_type(self, dtype: DType, lanes: int) -> dict[str, str]:
        name = f"{dtype.name}x{lanes}"
        typedef = f"typedef lanes_of<{SCALAR_TYPES[dtype.name]}, {lanes}> {name};"
        found = {"vectors": _VECTORS}
        if dtype.is_integer:
            found["integer_vectors"] = _INTEGERS
        if dtype.is_integer and dtype.size_bytes < 4:
            found["small_integer_vectors"] = _SMALL_INTEGERS
        return {**found, name: typedef}

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
        if operation == "last_block":
            return _LAST_BLOCK.format(name=name, type=c)
        if operation in ("warp_scan", "warp_room", "block_scan"):
            return _prefix_sums(prelude, name, operation, dtype)
        if operation.startswith(("warp_", "block_")):
            return _threads(name, operation, c)
        if operation == "fetch_add_together":
            return _added_together(name, prelude.use("fetch_add", dtype, 0), c)
        if operation.startswith(("atomic_", "fetch_")):
            kind, _, op = operation.partition("_")
            if dtype.is_float and op != "add":
                prelude.defined.setdefault("atomic_extrema", ATOMIC_EXTREMA)
            return _atomic(name, op, dtype, returns=kind == "fetch")
        if operation.startswith("exact_") and not lanes:
            kind = "f" if dtype is DType.f32 else "d"
            function = f"__{kind}{operation.removeprefix('exact_')}_rn"
            return f"{_INLINE} {c} {name}({c} a, {c} b) {{ return {function}(a, b); }}"
        if not lanes:
            text = scalar_helper(prelude, name, operation, dtype, other)
            return _counted(text.replace("static inline", _INLINE, 1))
        v = f"{dtype.name}x{lanes}"
        each = f"    for (int l = 0; l < {lanes}; ++l) r[l] = "
        end = ";\n    return r;\n}"
        if operation.startswith(("load", "store", "stream")):
            return _move(name, operation, dtype, lanes)
        match operation:
            case "splat":
                return f"{_INLINE} {v} {name}({c} x) {{\n    {v} r;\n{each}x{end}"
            case "make":
                items = ", ".join(f"{c} x{k}" for k in range(lanes))
                sets = "".join(f"    r[{k}] = x{k};\n" for k in range(lanes))
                return f"{_INLINE} {v} {name}({items}) {{\n    {v} r;\n{sets}    return r;\n}}"
            case "iota":
                return f"{_INLINE} {v} {name}({c} first) {{\n    {v} r;\n{each}first + l{end}"
            case "convert":
                assert other is not None
                source = prelude.vector_type(other, lanes)
                return f"{_INLINE} {v} {name}({source} x) {{\n    {v} r;\n{each}({c})x[l]{end}"
            case "min" | "max":
                less = "a[l] < b[l]" if operation == "min" else "a[l] > b[l]"
                return f"{_INLINE} {v} {name}({v} a, {v} b) {{\n    {v} r;\n{each}{less} ? a[l] : b[l]{end}"
            case "select":
                mask = prelude.vector_type(mask_dtype(dtype), lanes)
                return f"{_INLINE} {v} {name}({mask} m, {v} a, {v} b) {{\n    {v} r;\n{each}m[l] ? a[l] : b[l]{end}"
            case "fold_add" | "fold_mul" | "fold_min" | "fold_max":
                return _fold(name, operation.removeprefix("fold_"), c, v, lanes)
            case "bitcast":
                assert other is not None
                source, scalar = (
                    prelude.vector_type(other, lanes),
                    prelude.use(operation, dtype, 0, other),
                )
                return f"{_INLINE} {v} {name}({source} x) {{\n    {v} r;\n{each}{scalar}(x[l]){end}"
        row = OPS[operation.removeprefix("exact_")]
        function = math_function(operation, dtype) or prelude.use(operation, dtype, 0)
        if row.arity == 2:
            return f"{_INLINE} {v} {name}({v} a, {v} b) {{\n    {v} r;\n{each}{function}(a[l], b[l]){end}"
        if row.gives is DType.bool_:
            mask = prelude.vector_type(mask_dtype(dtype), lanes)
            return f"{_INLINE} {mask} {name}({v} x) {{\n    {mask} r;\n{each}-{function}(x[l]){end}"
        result = prelude.vector_type(row.result(dtype), lanes)
        return f"{_INLINE} {result} {name}({v} x) {{\n    {result} r;\n{each}{function}(x[l]){end}"


def _counted(text: str) -> str:
    """Returns `text` with an #ifdef: CUDA's compiler sees CUDA's names of popcount, clz and ctz, other compilers GNU's."""
    for ours, theirs in (
        ("popcountll", "__popcll("),
        ("popcount", "__popc("),
        ("clzll", "__clzll("),
        ("clz", "__clz("),
        ("ctzll", "-1 + __ffsll("),
        ("ctz", "-1 + __ffs("),
    ):
        name = f"__builtin_{ours}("
        if name in text:
            lines = text.replace(name, theirs)
            return f"#if defined(__CUDACC__)\n{lines}\n#else\n{text}\n#endif"
    return text


def _move(name: str, operation: str, dtype: DType, lanes: int) -> str:
    """Returns the CUDA definition of function `name`, a load or store of `lanes` contiguous elements.

    They move as one built-in vector of 8 or 16 bytes where CUDA has that type and `operation` does not end in `_unaligned`;
    else one by one.
    """
    c, v = SCALAR_TYPES[dtype.name], f"{dtype.name}x{lanes}"
    what = operation.removesuffix("_unaligned")
    whole = _BUILT_IN.get((dtype.name, lanes)) if what == operation else None
    fields = "xyzw"[:lanes]
    if what.startswith("load"):
        hinted = HINTED_LOADS.get(what.removeprefix("load_").upper())
        head = f"{_INLINE} {v} {name}(const {c} *p) {{\n    {v} r;\n"
        if whole is None:
            each = f"{hinted}(p + l)" if hinted else "p[l]"
            return f"{head}    for (int l = 0; l < {lanes}; ++l) r[l] = {each};\n    return r;\n}}"
        parts = "".join(f"    r[{k}] = q.{f};\n" for k, f in enumerate(fields))
        place = f"(const {whole} *)p"
        moved = f"{hinted}({place})" if hinted else f"*{place}"
        return f"{head}    const {whole} q = {moved};\n{parts}    return r;\n}}"
    head = f"{_INLINE} void {name}({c} *p, {v} x) {{\n"
    streams = what == "stream"
    if whole is None:
        each = f"{STREAMING_STORE}(p + l, x[l])" if streams else "p[l] = x[l]"
        return f"{head}    for (int l = 0; l < {lanes}; ++l) {each};\n}}"
    made = f"make_{whole}({', '.join(f'x[{k}]' for k in range(lanes))})"
    move = f"{STREAMING_STORE}(({whole} *)p, {made})" if streams else f"*({whole} *)p = {made}"
    return f"{head}    {move};\n}}"


def _fold(name: str, operation: str, c: str, v: str, lanes: int) -> str:
    """Returns the definition of a reduction over a vector's lanes: combines neighbours pairwise until one value is left."""
    step = OPS[operation].combine.replace("a", "x[l]").replace("b", "x[l + n]")
    return (
        f"{_INLINE} {c} {name}({v} x) {{\n"
        f"    for (int n = {lanes // 2}; n > 0; n /= 2)\n"
        f"        for (int l = 0; l < n; ++l) x[l] = {step};\n"
        f"    return x[0];\n}}"
    )


_ATOMICS = {
    "add": "atomicAdd",
    "min": "atomicMin",
    "max": "atomicMax",
    "bit_and": "atomicAnd",
    "bit_or": "atomicOr",
    "bit_xor": "atomicXor",
}


def _atomic(name: str, op: str, dtype: DType, returns: bool) -> str:
    """Returns the definition of an atomic update, for an element that several threads update.

    `returns`: the helper returns the element's old value.
    """
    c = SCALAR_TYPES[dtype.name]
    # Of words of 64 bits CUDA has a signed variant of minimum and maximum only, and its names for them are other types.
    wide = "long long" if op in ("min", "max") and dtype.is_signed else "unsigned long long"
    is_wide = dtype.is_integer and dtype.size_bytes == 8
    place, value = (f"({wide} *)p", f"({wide})x") if is_wide else ("p", "x")
    function = f"atomic_{op}" if dtype.is_float and op != "add" else _ATOMICS[op]
    update = f"{function}({place}, {value})"
    if not returns:
        return f"{_INLINE} void {name}({c} *p, {c} x) {{ {update}; }}"
    return f"{_INLINE} {c} {name}({c} *p, {c} x) {{ return ({c}){update}; }}"


def _added_together(name: str, fetch_add: str, c: str) -> str:
    """Returns the definition of an atomic addition of one `x` by all lanes that run together: one operation an element.

    Each lane gets the old value as if the lanes had added one after the other.
    """
    return (
        f"{_INLINE} {c} {name}({c} *p, {c} x) {{\n"
        f"    const unsigned here = __match_any_sync(__activemask(), (unsigned long long)p);\n"
        f"    const int tid = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
        f"    const int lane = tid % 32, first = __ffs(here) - 1;\n"
        f"    {c} old = 0;\n"
        f"    if (lane == first) old = {fetch_add}(p, x * __popc(here));\n"
        f"    old = __shfl_sync(here, old, first);\n"
        f"    return old + x * __popc(here & ((1u << lane) - 1));\n}}"
    )


def _threads(name: str, operation: str, c: str) -> str:
    """Returns the CUDA definition of function `name`, a reduction of one value a thread, of C type `c`.

    It combines threads whose flat numbers differ in some digits. Every thread takes part and receives the result. An `operation`
    `warp_OP` combines threads at the distances `first`, 2 * `first`, 4 * `first` and so on below `end`, arguments of the function.
    `block_OP` combines threads at distances below `count` * `first`, through shared memory; there `first` is at least a warp, so
    only the numbers of warps differ.
    """
    scope, op = operation.split("_")
    combined = OPS[op].combine
    if scope == "warp":
        return (
            f"{_INLINE} {c} {name}({c} a, int first, int end) {{\n"
            f"    for (int n = first; n < end; n *= 2) {{\n"
            f"        const {c} b = __shfl_xor_sync(0xffffffffu, a, n);\n"
            f"        a = {combined};\n"
            f"    }}\n"
            f"    return a;\n}}"
        )
    return (
        f"{_INLINE} {c} {name}({c} x, {c} *meeting, int tid, int first, int count) {{\n"
        f"    const int base = tid % first + tid / (first * count) * (first * count);\n"
        f"    meeting[tid] = x;\n"
        f"    __syncthreads();\n"
        f"    {c} a = meeting[base];\n"
        f"    for (int k = 1; k < count; ++k) {{\n"
        f"        const {c} b = meeting[base + k * first];\n"
        f"        a = {combined};\n"
        f"    }}\n"
        f"    __syncthreads();\n"
        f"    return a;\n}}"
    )


# What a block has stored is seen before it counts as finished, and seen by the last one once that has counted all others.
# `atomicInc` leaves 0 behind the last one, for the next launch.
_LAST_BLOCK = f"""\
{_INLINE} int {{name}}({{type}} *n_finished, int n_blocks, int tid) {{{{
    int is_last = 0;
    __threadfence();
    __syncthreads();
    if (tid == 0) {{{{
        is_last = atomicInc((unsigned *)n_finished, n_blocks - 1) == n_blocks - 1;
        __threadfence();
    }}}}
    return __syncthreads_or(is_last);
}}}}"""


def _prefix_sums(prelude: Prelude, name: str, operation: str, dtype: DType) -> str:
    """Returns the CUDA definition of function `name`, about the sum of the values of the threads before.

    Every thread takes part; `tid` is its number in a block of one dimension. `warp_scan`: the sum of the values of a warp up
    to the own one. `warp_room`: adds all values of a warp to `*length` by one atomic operation, and returns the old length plus
    the values of the warp's threads before. `block_scan` does so for a block of `count` threads and for each thread's own
    `*length`, through an element of `sums` a warp.
    """
    t = SCALAR_TYPES[dtype.name]
    if operation == "warp_scan":
        return (
            f"{_INLINE} {t} {name}({t} a, int tid) {{\n"
            f"    for (int n = 1; n < 32; n *= 2) {{\n"
            f"        const {t} b = __shfl_up_sync(0xffffffffu, a, n);\n"
            f"        if (tid % 32 >= n) a += b;\n"
            f"    }}\n"
            f"    return a;\n}}"
        )
    scan = prelude.use("warp_scan", dtype, 0)
    if operation == "warp_room":
        return (
            f"{_INLINE} {t} {name}({t} *length, {t} x, int tid) {{\n"
            f"    const {t} upto = {scan}(x, tid);\n"
            f"    {t} first = 0;\n"
            f"    if (tid % 32 == 31 && upto != 0)\n"
            f"        first = ({t})atomicAdd((unsigned long long *)length, (unsigned long long)upto);\n"
            f"    return __shfl_sync(0xffffffffu, first, 31) + upto - x;\n}}"
        )
    return (
        f"{_INLINE} {t} {name}({t} *length, {t} x, {t} *sums, int tid, int count) {{\n"
        f"    const {t} upto = {scan}(x, tid);\n"
        f"    if (tid % 32 == 31) sums[tid / 32] = upto;\n"
        f"    __syncthreads();\n"
        f"    {t} before = *length, all = 0;\n"
        f"    for (int k = 0; k < count / 32; ++k) {{\n"
        f"        before += k < tid / 32 ? sums[k] : 0;\n"
        f"        all += sums[k];\n"
        f"    }}\n"
        f"    __syncthreads();\n"
        f"    *length += all;\n"
        f"    return before + upto - x;\n}}"
    )
