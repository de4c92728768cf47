/* x = alpha x: one pass in place; a line that was read is stored in the ordinary way, or past the caches with -DPAST=1. */
#include "expert.h"

#ifndef PAST
#define PAST 0
#endif

void sscal(void **args) {
  REAL *x = args[0];
  const REAL alpha = *(const REAL *)args[1];
  MAP(N, PAST ? (long)N * (long)sizeof(REAL) : least(LAST_CACHE, (long)N * (long)sizeof(REAL)), x, alpha * get(x + i, n))
}
