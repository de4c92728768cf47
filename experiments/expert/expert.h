/* What the expert programs share: vectors of the machine's width, how work is shared out, when stores go past the caches.
 *
 * Every program exports void NAME(void **args), called like generated code: arrays, then scalars, then its workspace. It is
 * compiled for one shape, with -DREAL=float or double, -DM= rows, -DN= columns or elements, -DK= depth, -DTHREADS= and
 * -DWORKSPACE= bytes of scratch. What only decides the speed has a default here or in the program, and -D changes it. */
#if defined(__GNUC__) && !defined(__clang__) && !defined(__AVX512F__) && __has_include(<avx2intrin.h>)
#define _IMMINTRIN_H_INCLUDED /* whose three parts are read in a tenth of the time that all of it takes */
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#else
#include <immintrin.h>
#endif
#include <omp.h>
#include <stdint.h>
#include <string.h>

#ifndef LAST_CACHE
#define LAST_CACHE (18L << 20) /* bytes: from here on results are stored past the caches */
#endif
#ifndef ALONE
#define ALONE (48L << 10) /* bytes: up to here a second thread costs more than it gives */
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#else
#define VECTOR_BYTES 32
#endif
#define LINE_BYTES 64
#define INLINE static inline __attribute__((always_inline, unused))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

typedef REAL vec __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef REAL loose_vec __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
enum { LANES = VECTOR_BYTES / sizeof(REAL), MOST_ROWS = 16 };

INLINE long least(long a, long b) { return a < b ? a : b; }
INLINE long most(long a, long b) { return a > b ? a : b; }

#if defined(__AVX512F__)
#define MASK(n) ((1u << most(n, 0)) - 1)
#endif

/* The first n numbers at p, zeros in the lanes after them; n may be anything. */
INLINE vec get(const REAL *p, long n) {
  if (n >= LANES) return *(const loose_vec *)p;
#if defined(__AVX512F__)
  if (sizeof(REAL) == 4) return (vec)_mm512_maskz_loadu_ps((__mmask16)MASK(n), p);
  return (vec)_mm512_maskz_loadu_pd((__mmask8)MASK(n), p);
#else
  vec v = {0};
  if (n > 0) memcpy(&v, p, (size_t)n * sizeof(REAL));
  return v;
#endif
}

/* Store the first n lanes. */
INLINE void put(REAL *p, vec v, long n) {
  if (n >= LANES) {
    *(loose_vec *)p = v;
    return;
  }
#if defined(__AVX512F__)
  if (sizeof(REAL) == 4)
    _mm512_mask_storeu_ps(p, (__mmask16)MASK(n), (__m512)v);
  else
    _mm512_mask_storeu_pd(p, (__mmask8)MASK(n), (__m512d)v);
#else
  if (n > 0) memcpy(p, &v, (size_t)n * sizeof(REAL));
#endif
}

/* Store a whole aligned vector past the caches. */
INLINE void stream(REAL *p, vec v) {
#if defined(__AVX512F__)
  _mm512_stream_si512((void *)p, (__m512i)v);
#else
  _mm256_stream_si256((void *)p, (__m256i)v);
#endif
}

INLINE REAL sum(vec v) {
#if defined(__AVX512F__)
  if (sizeof(REAL) == 4) return (REAL)_mm512_reduce_add_ps((__m512)v);
  return (REAL)_mm512_reduce_add_pd((__m512d)v);
#else
  REAL t[LANES];
  memcpy(t, &v, sizeof v);
  UNROLL for (int half = LANES / 2; half; half /= 2) UNROLL for (int l = 0; l < half; l++) t[l] += t[l + half];
  return t[0];
#endif
}

/* Whether results of a program that moves so many bytes go past the caches to p. */
INLINE int goes_past(const REAL *p, long moved_bytes) {
  return moved_bytes > LAST_CACHE && (uintptr_t)p % VECTOR_BYTES == 0;
}

#define TEAM(moved_bytes) ((moved_bytes) > ALONE ? THREADS : 1)

typedef struct {
  long first, end;
} span;

/* What this thread has of 0 .. n: whole grains, but for the end. */
INLINE span share(long n, long grain) {
  const long t = omp_get_thread_num(), team = omp_get_num_threads(), grains = (n + grain - 1) / grain;
  return (span){least(n, grains * t / team * grain), least(n, grains * (t + 1) / team * grain)};
}

/* Elements that a part of a workspace takes, with a page behind them: a prefetcher that runs ahead of one thread would take the first
 * lines of the next one's part. Five lines more, and parts do not begin at the same place of a page. */
#define PADDED(n) (((long)(n) * (long)sizeof(REAL) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES / (long)sizeof(REAL) + (4096 + 5 * LINE_BYTES) / (long)sizeof(REAL))

/* out[i] = value for all i < count: `value` is an expression in `i` and `n`, the lanes that count from there. */
#define MAP(count, moved_bytes, out, value)                                                  \
  const long moved = moved_bytes;                                                            \
  _Pragma("omp parallel num_threads(TEAM(moved))") {                                         \
    const span part = share(count, 4 * LANES);                                               \
    long begin = part.first;                                                                 \
    if (goes_past(out, moved)) {                                                             \
      for (; begin + 4 * LANES <= part.end; begin += 4 * LANES) UNROLL                       \
        for (long i = begin; i < begin + 4 * LANES; i += LANES) {                            \
          const long n = LANES;                                                              \
          stream(out + i, value);                                                            \
        }                                                                                    \
      _mm_sfence();                                                                          \
    }                                                                                        \
    for (; begin + 4 * LANES <= part.end; begin += 4 * LANES) UNROLL                         \
      for (long i = begin; i < begin + 4 * LANES; i += LANES) {                              \
        const long n = LANES;                                                                \
        put(out + i, value, n);                                                              \
      }                                                                                      \
    for (long i = begin; i < part.end; i += LANES) {                                         \
      const long n = part.end - i;                                                           \
      put(out + i, value, n);                                                                \
    }                                                                                        \
  }
