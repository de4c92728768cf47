/* y = alpha A x + beta B x: blocks of rows of both matrices at once, so that x is loaded once for all of them. */
#include "rows.h"

#ifndef ROWS
#define ROWS 4
#endif

INLINE void block(REAL *y, const REAL *a, const REAL *b, const REAL *x, REAL alpha, REAL beta, int rows) {
  vec s[MOST_ROWS], t[MOST_ROWS];
  UNROLL for (int r = 0; r < rows; r++) s[r] = t[r] = (vec){0};
  long j = 0;
  for (; j + LANES <= N; j += LANES) {
    const vec xj = get(x + j, LANES);
    UNROLL for (int r = 0; r < rows; r++) {
      s[r] += get(a + (long)r * N + j, LANES) * xj;
      t[r] += get(b + (long)r * N + j, LANES) * xj;
    }
  }
  if (j < N) {
    const vec xj = get(x + j, N - j);
    UNROLL for (int r = 0; r < rows; r++) {
      s[r] += get(a + (long)r * N + j, N - j) * xj;
      t[r] += get(b + (long)r * N + j, N - j) * xj;
    }
  }
  UNROLL for (int r = 0; r < rows; r++) y[r] = sum(alpha * s[r] + beta * t[r]);
}

void gesummv(void **args) {
  const REAL *a = args[0], *b = args[1], *x = args[2], alpha = *(const REAL *)args[4], beta = *(const REAL *)args[5];
  REAL *y = args[3];
#pragma omp parallel num_threads(TEAM(2L * M * N * (long)sizeof(REAL)))
  {
    const span part = share(M, ROWS);
    long i = part.first;
    for (; i + ROWS <= part.end; i += ROWS) block(y + i, a + i * N, b + i * N, x, alpha, beta, ROWS);
    for (; i < part.end; i++) block(y + i, a + i * N, b + i * N, x, alpha, beta, 1);
  }
}
