/* x = beta A'y + z; w = alpha A x: A is read from memory once, by column panels (panels.h); in two passes where it stays in the
 * caches. */
#include "panels.h"

typedef struct {
  const REAL *a, *y, *z;
  REAL *x, *w;
  REAL alpha, beta;
} problem;

/* Rows i .. i + rows of a panel: into the copy, and times y into the sums. */
INLINE void read_rows(const problem *p, REAL *packed, vec *sums, long i, long j, long columns, int rows) {
  UNROLL for (int r = 0; r < rows; r++) {
    const REAL *a = p->a + (i + r) * N + j;
    const REAL y = p->y[i + r];
    UNROLL for (int k = 0; k < WIDTH; k++) {
      __builtin_prefetch(a + (long)AHEAD * N + k * LANES);
      const vec v = get(a + k * LANES, lanes_of(k, columns));
      put(packed + (i + r) * PANEL + k * LANES, v, LANES);
      sums[k] += v * y;
    }
  }
}

INLINE void panel(const problem *p, REAL *packed, REAL *w, long j, long columns) {
  vec sums[WIDTH] = {{0}};
  for (long i = 0; i + ROWS <= M; i += ROWS) read_rows(p, packed, sums, i, j, columns, ROWS);
  for (long i = M - M % ROWS; i < M; i++) read_rows(p, packed, sums, i, j, columns, 1);
  finish_panel(p->x + j, p->z + j, p->beta, sums, columns);
  add_panel(w, packed, sums);
}

static void by_panels(const problem *p, REAL *space) {
  REAL *parts = space + THREADS * PANEL_SPACE;
#pragma omp parallel num_threads(TEAM((long)M * N * (long)sizeof(REAL)))
  {
    const long tid = omp_get_thread_num();
    REAL *packed = space + tid * PANEL_SPACE, *w = parts + tid * PADDED(M);
    memset(w, 0, M * sizeof(REAL));
    const span part = share(N, PANEL);
    long j = part.first;
    for (; j + PANEL <= part.end; j += PANEL) panel(p, packed, w, j, PANEL);
    if (j < part.end) panel(p, packed, w, j, part.end - j);
#pragma omp barrier
    add_parts(p->w, parts, PADDED(M), M, p->alpha, NULL);
  }
}

static void in_two_passes(const problem *p, REAL *parts) {
#pragma omp parallel num_threads(TEAM((long)M * N * (long)sizeof(REAL)))
  {
    const long tid = omp_get_thread_num();
    REAL *x = parts + tid * PADDED(N);
    memset(x, 0, N * sizeof(REAL));
    const span part = share(M, ROWS);
    long i = part.first;
    for (; i + ROWS <= part.end; i += ROWS) add_rows(x, p->a + i * N, N, p->y + i, N, ROWS, 0);
    for (; i < part.end; i++) add_rows(x, p->a + i * N, N, p->y + i, N, 1, 0);
#pragma omp barrier
    add_parts(p->x, parts, PADDED(N), N, p->beta, p->z);
#pragma omp barrier
    multiply(p->w, p->a, p->x, p->alpha, part);
  }
}

void sgemvt(void **args) {
  const problem p = {args[0], args[1], args[2], args[3], args[4], *(const REAL *)args[5], *(const REAL *)args[6]};
  if (PANELS)
    by_panels(&p, args[7]);
  else
    in_two_passes(&p, args[7]);
}
