/* Products of a few rows of a matrix at a time: a vector of x, or of the sums over the rows, is loaded once for all of them. */
#include "expert.h"

/* out[r] = a[r] x for r < rows (a constant): two sums a row hide the latency of adding. `ahead` elements further on, the same
 * places are fetched into the caches, where it is not 0. */
INLINE void dot_rows(REAL *out, const REAL *a, long stride, const REAL *x, long columns, int rows, long ahead) {
  vec even[MOST_ROWS], odd[MOST_ROWS];
  UNROLL for (int r = 0; r < rows; r++) even[r] = odd[r] = (vec){0};
  long j = 0;
  for (; j + 2 * LANES <= columns; j += 2 * LANES) {
    const vec x0 = get(x + j, LANES), x1 = get(x + j + LANES, LANES);
    UNROLL for (int r = 0; r < rows; r++) {
      const REAL *at = a + r * stride + j;
      if (ahead) __builtin_prefetch(at + ahead), __builtin_prefetch(at + ahead + LANES);
      even[r] += get(at, LANES) * x0;
      odd[r] += get(at + LANES, LANES) * x1;
    }
  }
  for (; j < columns; j += LANES) {
    const vec x0 = get(x + j, columns - j);
    UNROLL for (int r = 0; r < rows; r++) even[r] += get(a + r * stride + j, columns - j) * x0;
  }
  UNROLL for (int r = 0; r < rows; r++) out[r] = sum(even[r] + odd[r]);
}

/* s += the sum over r < rows (a constant) of weight[r] a[r]. */
INLINE void add_rows(REAL *s, const REAL *a, long stride, const REAL *weight, long columns, int rows, long ahead) {
  vec w[MOST_ROWS];
  UNROLL for (int r = 0; r < rows; r++) w[r] = weight[r] - (vec){0};
  for (long j = 0; j < columns; j += LANES) {
    const long n = columns - j;
    vec t = get(s + j, n);
    UNROLL for (int r = 0; r < rows; r++) {
      const REAL *at = a + r * stride + j;
      if (ahead) __builtin_prefetch(at + ahead);
      t += w[r] * get(at, n);
    }
    put(s + j, t, n);
  }
}

/* out = factor * (the parts of all threads, `step` apart) + plus, by all threads; plus may be NULL. */
INLINE void add_parts(REAL *out, const REAL *parts, long step, long count, REAL factor, const REAL *plus) {
  const int team = omp_get_num_threads();
  const span part = share(count, LANES);
  for (long i = part.first; i < part.end; i += LANES) {
    const long n = part.end - i;
    vec t = get(parts + i, n);
    for (int k = 1; k < team; k++) t += get(parts + k * step + i, n);
    put(out + i, plus ? factor * t + get(plus + i, n) : factor * t, n);
  }
}
