/* w = alpha x + beta y: one pass, no temporary. */
#include "expert.h"

void waxpby(void **args) {
  const REAL *x = args[0], *y = args[1], alpha = *(const REAL *)args[3], beta = *(const REAL *)args[4];
  REAL *w = args[2];
  MAP(N, 3L * N * (long)sizeof(REAL), w, alpha * get(x + i, n) + beta * get(y + i, n))
}
