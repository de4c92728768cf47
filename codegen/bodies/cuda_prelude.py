"""Prelude of generated CUDA files: helper functions that CUDA C lacks.

The CUDA emulator compiles the same prelude.
"""

from __future__ import annotations

_COPY = """\
__device__ __forceinline__ void copy_async{n}(void *to, const void *from, int n_valid = {n}) {{
    asm volatile("cp.async.{cache}.shared.global [%0], [%1], {n}, %2;"
                 :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(n_valid) : "memory");
}}
"""

COPY_ASYNC = (
    """\
#if defined(__CUDACC__)
/* Copies from global into shared memory beside the thread, zeros behind the first n_valid bytes; groups end in a commit. */
"""
    + _COPY.format(n=4, cache="ca")
    + _COPY.format(n=8, cache="ca")
    + _COPY.format(n=16, cache="cg")
    + """\
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most n_open groups of this thread are not finished. */
template <int n_open> __device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(n_open) : "memory");
}
#endif
"""
)
"""Declares copy_async4, 8 and 16, copy_async_commit and copy_async_wait<n>; needs sm_80. The emulator has them built in."""


_EXTREMUM = """\
__device__ __forceinline__ {type} atomic_{op}({type} *place, {type} value) {{
    {bits} *bits = ({bits} *)place, seen = atomicCAS(bits, ({bits})0, ({bits})0), before;
    do {{
        before = seen;
        seen = atomicCAS(bits, before, ({bits}){to_bits}({function}(value, {from_bits}(before))));
    }} while (seen != before);
    return {from_bits}(before);
}}
"""
_FLOAT = {"type": "float", "bits": "int"}
_FLOAT |= {"to_bits": "__float_as_int", "from_bits": "__int_as_float"}
_DOUBLE = {"type": "double", "bits": "unsigned long long"}
_DOUBLE |= {"to_bits": "__double_as_longlong", "from_bits": "__longlong_as_double"}

ATOMIC_EXTREMA = "".join(
    _EXTREMUM.format(op=op, function=f"f{op}{suffix}", **words)
    for op in ("max", "min")
    for suffix, words in (("f", _FLOAT), ("", _DOUBLE))
)
"""Defines atomic_max and atomic_min for float and double, which CUDA has for integers only; for GPU and emulator alike."""

STRONG = """\
#if defined(__CUDACC__)
/* Accesses to elements that other threads change meanwhile: none is moved, left out, or answered by a core's own cache. */
template <typename T> __device__ __forceinline__ T load_strong(const T *p) { return *(const volatile T *)p; }
template <typename T, typename X> __device__ __forceinline__ void store_strong(T *p, X x) { *(volatile T *)p = (T)x; }
#endif
"""
"""Declares load_strong and store_strong. The emulator has them built in."""

PUBLISH = """\
/* Who finds x has all that this thread stored before. */
template <typename T, typename X> __device__ __forceinline__ void publish(T *p, X x) {
    __threadfence();
    store_strong(p, x);
}
"""
"""Defines publish; needs STRONG."""

MEET_GRID = """\
/* All blocks of a grid synchronise. The last one to arrive leaves the count of arrived blocks at 0, and turns the sense around,
   for which the others wait. */
__device__ __forceinline__ void meet_grid(int *n_arrived, int *sense) {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const unsigned last = gridDim.x * gridDim.y * gridDim.z - 1;
        const int before = load_strong(sense);
        __threadfence();
        if (atomicInc((unsigned *)n_arrived, last) == last) {
            publish(sense, before ^ 1);
        } else {
            while (load_strong(sense) == before) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
                __nanosleep(32);
#endif
            }
        }
        __threadfence();
    }
    __syncthreads();
}
"""
"""Defines meet_grid; needs STRONG and PUBLISH. Count and sense need no reset before a later launch; the first one begins at 0."""
