/* z = alpha x + y: one pass, results past the caches where they do not fit. */
#include "expert.h"

void axpy(void **args) {
  const REAL *x = args[0], *y = args[1], alpha = *(const REAL *)args[3];
  REAL *z = args[2];
  MAP(N, 3L * N * (long)sizeof(REAL), z, alpha * get(x + i, n) + get(y + i, n))
}
