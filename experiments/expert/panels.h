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

/* w[i] += packed[i] x for all rows. */
INLINE void add_panel(REAL *w, const REAL *packed, const vec *x) {
  for (long i = 0; i < M; i++) {
    vec t = get(packed + i * PANEL, LANES) * x[0];
    UNROLL for (int k = 1; k < WIDTH; k++) t += get(packed + i * PANEL + k * LANES, LANES) * x[k];
    w[i] += sum(t);
  }
}
