/* One red-black Gauss-Seidel sweep of an N x N grid in place: z = (r + the four neighbours) / 4, where i + j is even, then odd.
 *
 * A row goes by in vectors. What is left and right of one is shifted out of the vectors before and behind it, which are held
 * in registers: a load would overlap with the store before it, and wait until that has reached the cache. */
#include "expert.h"

typedef __typeof__(_Generic((REAL)0, float: (int32_t)0, double: (int64_t)0)) whole;
typedef whole ints __attribute__((vector_size(VECTOR_BYTES)));

static const whole NUMBERS[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                  16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* first, first + 1 and so on, which compilers know where `first` is a constant: shuffles need that. */
INLINE ints counted(long first) {
  ints v;
  memcpy(&v, NUMBERS + first, sizeof v);
  return v;
}

INLINE void vector(REAL *z, const REAL *r, long j, vec before, vec now, vec behind, ints wanted) {
  const vec left = __builtin_shuffle(before, now, counted(LANES - 1)), right = __builtin_shuffle(now, behind, counted(1));
  const vec made = (get(r + j, LANES) + get(z + j - N, LANES) + get(z + j + N, LANES) + left + right) * (REAL)0.25;
  ints is_new = wanted;
  if (j == 0) is_new &= counted(0) > 0;
  if (j + LANES >= N) is_new &= counted(0) < (whole)(N - 1 - j);
  put(z + j, (vec)(((ints)made & is_new) | ((ints)now & ~is_new)), LANES);
}

INLINE void row(REAL *z, const REAL *r, long parity) {
  const ints wanted = (counted(0) & 1) == (ints){0} + (whole)parity;
  vec before = {0}, now = get(z, N), behind;
  long j = 0;
  for (; j + 2 * LANES <= N; j += LANES, before = now, now = behind) {
    behind = get(z + j + LANES, LANES);
    vector(z, r, j, before, now, behind, wanted);
  }
  for (; j + LANES <= N; j += LANES, before = now, now = behind) {
    behind = get(z + j + LANES, N - j - LANES);
    vector(z, r, j, before, now, behind, wanted);
  }
  for (; j < N - 1; j++)
    if (j > 0 && (j & 1) == parity) z[j] = (r[j] + z[j - N] + z[j + N] + z[j - 1] + z[j + 1]) * (REAL)0.25;
}

void red_black(void **args) {
  REAL *z = args[0];
  const REAL *r = args[1];
  _Pragma("omp parallel num_threads(THREADS)") {
    for (long colour = 0; colour < 2; colour++) {
      _Pragma("omp for schedule(static)") for (long i = 1; i < N - 1; i++) row(z + i * N, r + i * N, (i + colour) & 1);
    }
  }
}
