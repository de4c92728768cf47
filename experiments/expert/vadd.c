/* x = w + y + z: one pass, no temporary. */
#include "expert.h"

void vadd(void **args) {
  const REAL *w = args[0], *y = args[1], *z = args[2];
  REAL *x = args[3];
  MAP(N, 4L * N * (long)sizeof(REAL), x, get(w + i, n) + get(y + i, n) + get(z + i, n))
}
