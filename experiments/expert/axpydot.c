/* z = w - alpha v; r = z'u: z is multiplied while it is in a register; four sums a thread hide the latency of adding. */
#include "expert.h"

#define SUMS 4
#define MOVED (4L * N * (long)sizeof(REAL))

INLINE vec difference(const REAL *w, const REAL *v, REAL alpha, long n) { return get(w, n) - alpha * get(v, n); }

void axpydot(void **args) {
  const REAL *w = args[0], *v = args[1], *u = args[2], alpha = *(const REAL *)args[5];
  REAL *z = args[3], *r = args[4], total = 0;
#pragma omp parallel num_threads(TEAM(MOVED)) reduction(+ : total)
  {
    const span part = share(N, SUMS * LANES);
    long i = part.first;
    vec t[SUMS] = {{0}};
    if (goes_past(z, MOVED)) {
      for (; i + SUMS * LANES <= part.end; i += SUMS * LANES) UNROLL for (int k = 0; k < SUMS; k++) {
          const long at = i + k * LANES;
          const vec d = difference(w + at, v + at, alpha, LANES);
          stream(z + at, d);
          t[k] += d * get(u + at, LANES);
        }
      _mm_sfence();
    }
    for (; i + SUMS * LANES <= part.end; i += SUMS * LANES) UNROLL for (int k = 0; k < SUMS; k++) {
        const long at = i + k * LANES;
        const vec d = difference(w + at, v + at, alpha, LANES);
        put(z + at, d, LANES);
        t[k] += d * get(u + at, LANES);
      }
    for (; i < part.end; i += LANES) {
      const long n = part.end - i;
      const vec d = difference(w + i, v + i, alpha, n);
      put(z + i, d, n);
      t[0] += d * get(u + i, n);
    }
    total += sum(t[0] + t[1] + (t[2] + t[3]));
  }
  *r = total;
}
