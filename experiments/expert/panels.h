/* Column panels: what SGEMVT and GEMVER share. A thread owns whole panels of a few vectors. In a first phase it reads a panel of the
 * matrix from memory and finishes its part of x; a copy without gaps stays in the caches (a power of two between rows would map the
 * panel to a few of their sets) and a second phase multiplies it by that part of x. */
#include "rows.h"

#ifndef WIDTH
#define WIDTH 4 /* vectors */
#endif
#ifndef ROWS
#define ROWS 4
#endif
#ifndef AHEAD
#define AHEAD 12 /* rows */
#endif
/* What panels spare is a second reading from memory: a matrix that stays in the caches is read twice. */
#ifndef PANELS
#define PANELS ((long)M * N * (long)sizeof(REAL) > LAST_CACHE)
#endif

#define PANEL (WIDTH * LANES)
#define PANEL_SPACE ((long)M * PANEL + PADDED(0))

_Static_assert(WORKSPACE >= THREADS * (PANELS ? PANEL_SPACE + PADDED(M) : PADDED(N)) * sizeof(REAL), "workspace");

/* The lanes of vector k in a panel of so many columns. */
INLINE long lanes_of(int k, long columns) { return columns >= PANEL ? LANES : columns - k * LANES; }

/* x = beta sums + z of the columns of a panel; the sums are these x, then. */
INLINE void finish_panel(REAL *x, const REAL *z, REAL beta, vec *sums, long columns) {
  UNROLL for (int k = 0; k < WIDTH; k++) {
    const long n = lanes_of(k, columns);
    sums[k] = beta * sums[k] + get(z + k * LANES, n);
    put(x + k * LANES, sums[k], n);
  }
}

/* w[i] += packed[i] x for all rows. */
INLINE void add_panel(REAL *w, const REAL *packed, const vec *x) {
  for (long i = 0; i < M; i++) {
    vec t = get(packed + i * PANEL, LANES) * x[0];
    UNROLL for (int k = 1; k < WIDTH; k++) t += get(packed + i * PANEL + k * LANES, LANES) * x[k];
    w[i] += sum(t);
  }
}

/* w[i] = alpha a[i] x for these rows: the second of two passes. */
INLINE void multiply(REAL *w, const REAL *a, const REAL *x, REAL alpha, span rows) {
  REAL t[MOST_ROWS];
  long i = rows.first;
  for (; i + ROWS <= rows.end; i += ROWS) {
    dot_rows(t, a + i * N, N, x, N, ROWS, 0);
    UNROLL for (int r = 0; r < ROWS; r++) w[i + r] = alpha * t[r];
  }
  for (; i < rows.end; i++) {
    dot_rows(t, a + i * N, N, x, N, 1, 0);
    w[i] = alpha * t[0];
  }
}
