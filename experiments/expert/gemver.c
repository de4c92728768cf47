/* B = A + u1 v1' + u2 v2'; x = beta B'y + z; w = alpha B x: A is read once and B stored once, past the caches where it does not fit;
 * what the second product reads is the copy of a column panel of B (panels.h). In two passes where all stays in the caches. */
#include "panels.h"

#define MOVED (2L * M * N * (long)sizeof(REAL))

typedef struct {
  const REAL *a, *u1, *v1, *u2, *v2, *y, *z;
  REAL *b, *x, *w;
  REAL alpha, beta;
} problem;

/* Rows i .. i + rows of a panel of B: stored, into the copy, and times y into the sums. */
INLINE void make_rows(
    const problem *p, REAL *packed, vec *sums, const vec *v1, const vec *v2, long i, long j, long columns, int rows, int past) {
  UNROLL for (int r = 0; r < rows; r++) {
    const REAL *a = p->a + (i + r) * N + j;
    REAL *b = p->b + (i + r) * N + j;
    const REAL u1 = p->u1[i + r], u2 = p->u2[i + r], y = p->y[i + r];
    UNROLL for (int k = 0; k < WIDTH; k++) {
      const long n = lanes_of(k, columns);
      __builtin_prefetch(a + (long)AHEAD * N + k * LANES);
      const vec t = get(a + k * LANES, n) + u1 * v1[k] + u2 * v2[k];
      if (past)
        stream(b + k * LANES, t);
      else
        put(b + k * LANES, t, n);
      put(packed + (i + r) * PANEL + k * LANES, t, LANES);
      sums[k] += t * y;
    }
  }
}

INLINE void panel(const problem *p, REAL *packed, REAL *w, long j, long columns, int past) {
  vec sums[WIDTH] = {{0}}, v1[WIDTH], v2[WIDTH];
  UNROLL for (int k = 0; k < WIDTH; k++) {
    v1[k] = get(p->v1 + j + k * LANES, lanes_of(k, columns));
    v2[k] = get(p->v2 + j + k * LANES, lanes_of(k, columns));
  }
  for (long i = 0; i + ROWS <= M; i += ROWS) make_rows(p, packed, sums, v1, v2, i, j, columns, ROWS, past);
  for (long i = M - M % ROWS; i < M; i++) make_rows(p, packed, sums, v1, v2, i, j, columns, 1, past);
  finish_panel(p->x + j, p->z + j, p->beta, sums, columns);
  add_panel(w, packed, sums);
}

static void by_panels(const problem *p, REAL *space) {
  REAL *parts = space + THREADS * PANEL_SPACE;
#pragma omp parallel num_threads(TEAM(MOVED))
  {
    const long tid = omp_get_thread_num();
    const int past = goes_past(p->b, MOVED) && N % LANES == 0;
    REAL *packed = space + tid * PANEL_SPACE, *w = parts + tid * PADDED(M);
    memset(w, 0, M * sizeof(REAL));
    const span part = share(N, PANEL);
    long j = part.first;
    if (past)
      for (; j + PANEL <= part.end; j += PANEL) panel(p, packed, w, j, PANEL, 1);
    for (; j + PANEL <= part.end; j += PANEL) panel(p, packed, w, j, PANEL, 0);
    if (j < part.end) panel(p, packed, w, j, part.end - j, 0);
    _mm_sfence();
#pragma omp barrier
    add_parts(p->w, parts, PADDED(M), M, p->alpha, NULL);
  }
}

/* One vector of some rows of B: stored, and times y into x. */
INLINE void make_step(const problem *p, REAL *x, long i, long j, long n, int rows, int past) {
  const vec v1 = get(p->v1 + j, n), v2 = get(p->v2 + j, n);
  vec t = get(x + j, n);
  UNROLL for (int r = 0; r < rows; r++) {
    const vec b = get(p->a + (i + r) * N + j, n) + p->u1[i + r] * v1 + p->u2[i + r] * v2;
    if (past)
      stream(p->b + (i + r) * N + j, b);
    else
      put(p->b + (i + r) * N + j, b, n);
    t += b * p->y[i + r];
  }
  put(x + j, t, n);
}

INLINE void make_block(const problem *p, REAL *x, long i, int rows, int past) {
  long j = 0;
  for (; j + LANES <= N; j += LANES) make_step(p, x, i, j, LANES, rows, past);
  if (j < N) make_step(p, x, i, j, N - j, rows, 0);
}

static void in_two_passes(const problem *p, REAL *parts) {
#pragma omp parallel num_threads(TEAM(MOVED))
  {
    const long tid = omp_get_thread_num();
    const int past = goes_past(p->b, MOVED) && N % LANES == 0;
    REAL *x = parts + tid * PADDED(N);
    memset(x, 0, N * sizeof(REAL));
    const span part = share(M, ROWS);
    long i = part.first;
    if (past)
      for (; i + ROWS <= part.end; i += ROWS) make_block(p, x, i, ROWS, 1);
    for (; i + ROWS <= part.end; i += ROWS) make_block(p, x, i, ROWS, 0);
    for (; i < part.end; i++) make_block(p, x, i, 1, 0);
    _mm_sfence();
#pragma omp barrier
    add_parts(p->x, parts, PADDED(N), N, p->beta, p->z);
#pragma omp barrier
    multiply(p->w, p->b, p->x, p->alpha, part);
  }
}

void gemver(void **args) {
  const problem p = {args[0], args[1], args[2], args[3], args[4], args[5], args[6], args[7], args[8], args[9],
                     *(const REAL *)args[10], *(const REAL *)args[11]};
  if (PANELS)
    by_panels(&p, args[12]);
  else
    in_two_passes(&p, args[12]);
}
