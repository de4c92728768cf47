"""C11 with a team of threads (team.c) and the vector extensions of GCC and Clang."""

from __future__ import annotations

from pathlib import Path

from ...codegen.c.dialect import Dialect

C_TEAM = Dialect(
    name="c",
    suffix=".c",
    headers=("<stdint.h>",),
    math_header="<math.h>",
    barrier="ks_team_meet(team);",
    team_prelude="""\
/* The team of threads: team.c, which is at the end of a file that is to be compiled alone. */
struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_meet(struct ks_team *team);
""",
    team=(Path(__file__).parent / "team.c").read_text(),
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
    independent_loop="""\
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif""",
    unrolled_loop="""\
#if defined(__clang__)
#pragma clang loop unroll_count({copies})
#else
#pragma GCC unroll {copies}
#endif""",
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
