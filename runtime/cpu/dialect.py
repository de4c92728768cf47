"""CPU dialect: C11 with a team of threads (team.c) and the vector extensions of GCC and Clang."""

from __future__ import annotations

from pathlib import Path

from ...codegen.text.dialect import Dialect
from .compiler import FEWER_PASSES

# Bodies run as users write them: what our own texts gain nothing by is needed there, and rows of a few elements are written out
# and put into vectors. Three of four sequences on sparse fields take 0.04, 0.59 and 0.95 of the time by it; particles to a grid and
# advection take the same.
_CLOSED_PASSES = (
    "tree-vectorize",
    "tree-slp-vectorize",
    "peel-loops",
    *("unswitch-loops", "split-loops", "split-paths", "predictive-commoning", "tree-partial-pre"),
    *("gcse", "gcse-after-reload", "cse-follow-jumps", "rerun-cse-after-loop"),
    *("caller-saves", "peephole2", "crossjumping"),
    *(f.removeprefix("-fno-") for f in FEWER_PASSES if f.startswith("-fno-") and "ipa" not in f),
)

# The team of threads, in the order in which they are one text.
TEAM_FILES = ("waiting.c", "team.c")

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
    team="\n".join((Path(__file__).parent / name).read_text() for name in TEAM_FILES),
    # gcc takes flags of a function, clang hints at a loop; what cannot be put into vectors is no news.
    closed="VECTORISED ",
    closed_prelude=f"""\
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"
#define VECTORISED __attribute__((noinline))
#define ANY_ORDER _Pragma("clang loop vectorize(enable)")
#else
#define VECTORISED __attribute__((noinline, optimize({", ".join(f'"{x}"' for x in _CLOSED_PASSES)})))
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
    # gcc has a word for it from version 14 on; nothing with assembly in it becomes a vector.
    scalar_loop="""\
#if defined(__clang__)
#pragma clang loop vectorize(disable)
#endif""",
    scalar_body='__asm__ volatile("");',
    unrolled_loop="""\
#if defined(__clang__)
#pragma clang loop unroll_count({copies})
#else
#pragma GCC unroll {copies}
#endif""",
    inlined="inline __attribute__((always_inline)) ",
    # Without AVX-512 gcc reads three of that header's parts: all of it takes 0.3 s, longer than most texts take to compile.
    intrinsics_prelude="""\
#if defined(__SSE2__)
#if defined(__GNUC__) && !defined(__clang__) && !defined(__AVX512F__) && __has_include(<avx2intrin.h>)
#define _IMMINTRIN_H_INCLUDED
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#else
#include <immintrin.h>
#endif
#endif
""",
    stream_fence="""\
#if defined(__SSE2__)
__asm__ volatile("sfence" ::: "memory");
#endif""",
)
