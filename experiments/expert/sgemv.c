/* z = alpha A x + beta y: blocks of rows, so that x is loaded once a block. */
#include "rows.h"

#ifndef ROWS
#define ROWS 4
#endif

INLINE void block(REAL *z, const REAL *a, const REAL *x, const REAL *y, REAL alpha, REAL beta, int rows) {
  REAL t[MOST_ROWS];
  dot_rows(t, a, N, x, N, rows, 0);
  UNROLL for (int r = 0; r < rows; r++) z[r] = alpha * t[r] + beta * y[r];
}

void sgemv(void **args) {
  const REAL *a = args[0], *x = args[1], *y = args[2], alpha = *(const REAL *)args[4], beta = *(const REAL *)args[5];
  REAL *z = args[3];
#pragma omp parallel num_threads(TEAM((long)M * N * (long)sizeof(REAL)))
  {
    const span part = share(M, ROWS);
    long i = part.first;
    for (; i + ROWS <= part.end; i += ROWS) block(z + i, a + i * N, x, y + i, alpha, beta, ROWS);
    for (; i < part.end; i++) block(z + i, a + i * N, x, y + i, alpha, beta, 1);
  }
}
