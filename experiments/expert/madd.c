/* C = A + B: matrices are contiguous, so that one loop runs over all their elements. */
#include "expert.h"

void madd(void **args) {
  const REAL *a = args[0], *b = args[1];
  REAL *c = args[2];
  MAP((long)M * N, 3L * M * N * (long)sizeof(REAL), c, get(a + i, n) + get(b + i, n))
}
