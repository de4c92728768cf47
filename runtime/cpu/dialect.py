"""C11 with OpenMP and the vector extensions of GCC and Clang."""

from __future__ import annotations

from ...codegen.dialect import Dialect

C_OPENMP = Dialect(
    name="c",
    suffix=".c",
    headers=("<stdint.h>", "<omp.h>"),
    math_header="<math.h>",
    barrier="#pragma omp barrier",
    parallel_open="#pragma omp parallel num_threads({threads})",
    thread_setup=(
        "const long tid = omp_get_thread_num();",
        "const long n_threads = omp_get_num_threads();",
    ),
    # gcc takes flags of a function, clang hints at a loop; what cannot be put into vectors is no news.
    closed="VECTORISED ",
    closed_prelude="""\
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#define VECTORISED __attribute__((noinline))
#define ANY_ORDER _Pragma("clang loop vectorize(enable)")
#else
#define VECTORISED __attribute__((noinline, optimize("tree-vectorize")))
#define ANY_ORDER
#endif
""",
    sum_loop="#pragma omp simd {reductions}",
    free_loop="ANY_ORDER",
    inlined="inline __attribute__((always_inline)) ",
    intrinsics_prelude="""\
#if defined(__SSE2__)
#include <immintrin.h>
#endif
""",
    stream_fence="""\
#if defined(__SSE2__)
__asm__ volatile("sfence" ::: "memory");
#endif""",
)
