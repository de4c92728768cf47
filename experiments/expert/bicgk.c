/* q = A p; s = A'r: A is read once; each of its vectors is used for both products, and s is loaded and stored once a block of
 * rows. Every thread has a sum s of its own. */
#include "rows.h"

#ifndef ROWS
#define ROWS 8
#endif
#ifndef AHEAD
#define AHEAD 0 /* rows */
#endif

_Static_assert(WORKSPACE >= THREADS * PADDED(N) * sizeof(REAL), "workspace");

INLINE void step(vec *t, const vec *weight, REAL *s, const REAL *a, const REAL *p, long n, int rows) {
  const vec pj = get(p, n);
  vec sj = get(s, n);
  UNROLL for (int r = 0; r < rows; r++) {
    const REAL *at = a + (long)r * N;
    if (AHEAD) __builtin_prefetch(at + (long)AHEAD * N);
    const vec v = get(at, n);
    t[r] += v * pj;
    sj += v * weight[r];
  }
  put(s, sj, n);
}

INLINE void block(REAL *q, REAL *s, const REAL *a, const REAL *p, const REAL *r_, int rows) {
  vec t[MOST_ROWS], weight[MOST_ROWS];
  UNROLL for (int r = 0; r < rows; r++) t[r] = (vec){0}, weight[r] = r_[r] - (vec){0};
  long j = 0;
  for (; j + LANES <= N; j += LANES) step(t, weight, s + j, a + j, p + j, LANES, rows);
  if (j < N) step(t, weight, s + j, a + j, p + j, N - j, rows);
  UNROLL for (int r = 0; r < rows; r++) q[r] = sum(t[r]);
}

void bicgk(void **args) {
  const REAL *a = args[0], *p = args[1], *r = args[2];
  REAL *q = args[3], *s = args[4], *sums = args[5];
#pragma omp parallel num_threads(TEAM((long)M * N * (long)sizeof(REAL)))
  {
    const long tid = omp_get_thread_num();
    REAL *own = sums + tid * PADDED(N);
    memset(own, 0, N * sizeof(REAL));
    const span part = share(M, ROWS);
    long i = part.first;
    for (; i + ROWS <= part.end; i += ROWS) block(q + i, own, a + i * N, p, r + i, ROWS);
    for (; i < part.end; i++) block(q + i, own, a + i * N, p, r + i, 1);
#pragma omp barrier
    add_parts(s, sums, PADDED(N), N, 1, NULL);
  }
}
