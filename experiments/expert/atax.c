/* y = A'(A x): A is read from memory once: a block of rows is multiplied by x, and is in the second cache when it is added to y.
 * While it is added, the block after it is fetched. Every thread has a sum y of its own. */
#include "rows.h"

#ifndef ROWS
#define ROWS 4
#endif
#ifndef PREFETCH
#define PREFETCH 1
#endif

_Static_assert(WORKSPACE >= THREADS * PADDED(N) * sizeof(REAL), "workspace");

INLINE void block(REAL *y, const REAL *a, const REAL *x, int rows) {
  REAL t[MOST_ROWS];
  dot_rows(t, a, N, x, N, rows, 0);
  add_rows(y, a, N, t, N, rows, PREFETCH ? (long)rows * N : 0);
}

void atax(void **args) {
  const REAL *a = args[0], *x = args[1];
  REAL *y = args[2], *sums = args[3];
#pragma omp parallel num_threads(TEAM((long)M * N * (long)sizeof(REAL)))
  {
    const long tid = omp_get_thread_num();
    REAL *own = sums + tid * PADDED(N);
    memset(own, 0, N * sizeof(REAL));
    const span part = share(M, ROWS);
    long i = part.first;
    for (; i + ROWS <= part.end; i += ROWS) block(own, a + i * N, x, ROWS);
    for (; i < part.end; i++) block(own, a + i * N, x, 1);
#pragma omp barrier
    add_parts(y, sums, PADDED(N), N, 1, NULL);
  }
}
