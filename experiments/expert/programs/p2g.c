/* The values of N particles added to the 27 nodes around each, with quadratic B-splines, in every way that a person would try.
 *
 * Arguments: places (N x 3 floats), values (N x 4), and the nodes (NODES^3 x 4), to which they are added. Every function computes
 * the same; what the best is depends on the order of particles and on the number of threads.
 *
 * Three nodes in a row are 12 floats, which are added to in vectors of 8 and 4. */
#include "expert.h"

enum { SIDE = 4, BLOCKS = NODES / SIDE, TILE = SIDE + 2, PLANE = NODES * NODES * 4 };

typedef float node __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint32_t bits __attribute__((may_alias));
typedef float two_nodes __attribute__((vector_size(32), aligned(4), may_alias));

typedef struct {
  int base[3];
  float w[3][3];
} spline;

INLINE int base_of(float x) { return (int)(x * NODES - 0.5f); }

INLINE spline spline_of(const float *x) {
  spline s;
  UNROLL for (int d = 0; d < 3; d++) {
    s.base[d] = base_of(x[d]);
    const float f = x[d] * NODES - s.base[d], far = 1.5f - f, near = f - 0.5f;
    s.w[d][0] = 0.5f * far * far;
    s.w[d][1] = 0.75f - (f - 1.0f) * (f - 1.0f);
    s.w[d][2] = 0.5f * near * near;
  }
  return s;
}

/* The float at *p grows by v, whoever else adds to it. */
INLINE void add_atomically(float *p, float v) {
  bits old, new;
  float sum;
  __atomic_load((bits *)p, &old, __ATOMIC_RELAXED);
  do {
    memcpy(&sum, &old, sizeof sum);
    sum += v;
    memcpy(&new, &sum, sizeof new);
  } while (!__atomic_compare_exchange((bits *)p, &old, &new, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* A particle's values, weighted, are added to three rows of three nodes in each of three planes; `to` is the first node. */
INLINE void add(float *to, long plane, long row, const spline *s, const float *q) {
  const node value = *(const node *)q, a = s->w[2][0] * value, b = s->w[2][1] * value, last = s->w[2][2] * value;
  const two_nodes first = {a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]};
  UNROLL for (int i = 0; i < 3; i++) UNROLL for (int j = 0; j < 3; j++) {
    const float w = s->w[0][i] * s->w[1][j];
    float *at = to + i * plane + j * row;
    *(two_nodes *)at += w * first;
    *(node *)(at + 8) += w * last;
  }
}

INLINE void add_in_place(float *grid, const float *x, const float *q) {
  const spline s = spline_of(x);
  add(grid + s.base[0] * (long)PLANE + s.base[1] * (NODES * 4L) + s.base[2] * 4L, PLANE, NODES * 4, &s, q);
}

/* --- in the order that they have --------------------------------------------------------------- */

void p2g_in_order(void **args) {
  const float *x = args[0], *q = args[1];
  for (long p = 0; p < N; p++) add_in_place(args[2], x + 3 * p, q + 4 * p);
}

void p2g_atomic(void **args) {
  const float *x = args[0], *q = args[1];
  float *grid = args[2];
  _Pragma("omp parallel for num_threads(THREADS) schedule(static)") for (long p = 0; p < N; p++) {
    const spline s = spline_of(x + 3 * p);
    float *to = grid + s.base[0] * (long)PLANE + s.base[1] * (NODES * 4L) + s.base[2] * 4L;
    UNROLL for (int i = 0; i < 3; i++) UNROLL for (int j = 0; j < 3; j++) UNROLL for (int k = 0; k < 3; k++) {
      const float w = s.w[0][i] * s.w[1][j] * s.w[2][k];
      UNROLL for (int d = 0; d < 4; d++) add_atomically(to + i * PLANE + (j * NODES + k) * 4 + d, w * q[4 * p + d]);
    }
  }
}

/* Every thread but the first has nodes of its own, which are zeros between calls; `first` and `end` are the planes it has touched. */
static float copies[THREADS][NODES][PLANE] __attribute__((aligned(64)));

void p2g_copies(void **args) {
  const float *x = args[0], *q = args[1];
  float *grid = args[2];
  static span touched[THREADS][8];
  _Pragma("omp parallel num_threads(THREADS)") {
    const int me = omp_get_thread_num(), team = omp_get_num_threads();
    float *mine = me ? copies[me][0] : grid;
    const span part = share(N, 1);
    long low = NODES, high = 0;
    for (long p = part.first; p < part.end; p++) {
      const long plane = base_of(x[3 * p]);
      low = least(low, plane), high = most(high, plane + 3);
      add_in_place(mine, x + 3 * p, q + 4 * p);
    }
    touched[me][0] = (span){low, high};
    _Pragma("omp barrier") _Pragma("omp for schedule(static)") for (long i = 0; i < NODES; i++)
      for (int t = 1; t < team; t++) {
        if (i < touched[t][0].first || i >= touched[t][0].end) continue;
        for (long k = 0; k < PLANE; k++) grid[i * PLANE + k] += copies[t][i][k], copies[t][i][k] = 0;
      }
  }
}

/* --- in the order of blocks --------------------------------------------------------------------- */

enum { MOST_BLOCKS = BLOCKS * BLOCKS * BLOCKS };
static int32_t counts[THREADS][MOST_BLOCKS], begins[MOST_BLOCKS + 1], order[N];

INLINE int tile_of(const float *x) {
  return (base_of(x[0]) / SIDE * BLOCKS + base_of(x[1]) / SIDE) * BLOCKS + base_of(x[2]) / SIDE;
}
INLINE int slab_of(const float *x) { return base_of(x[0]) / SIDE; }

/* A counting sort by all threads of a team, which leaves where the particles of each block begin. The result says whether they have
 * that order already: then there is no need for `order`. */
INLINE int sort(const float *x, long n_blocks, int (*block_of)(const float *)) {
  static int is_sorted;
  const int me = omp_get_thread_num(), team = omp_get_num_threads();
  const span part = share(N, 1);
  int is_ascending = 1, last = part.first ? block_of(x + 3 * (part.first - 1)) : 0;
  memset(counts[me], 0, n_blocks * sizeof counts[me][0]);
  _Pragma("omp single") is_sorted = 1;
  for (long p = part.first; p < part.end; p++) {
    const int block = block_of(x + 3 * p);
    is_ascending &= last <= block;
    last = block;
    counts[me][block]++;
  }
  if (!is_ascending) __atomic_store_n(&is_sorted, 0, __ATOMIC_RELAXED);
  _Pragma("omp barrier") _Pragma("omp single") {
    int32_t at = 0;
    for (long b = 0; b < n_blocks; b++) {
      begins[b] = at;
      for (int t = 0; t < team; t++) {
        const int32_t here = counts[t][b];
        counts[t][b] = at;
        at += here;
      }
    }
    begins[n_blocks] = at;
  }
  if (!is_sorted) {
    for (long p = part.first; p < part.end; p++) order[counts[me][block_of(x + 3 * p)]++] = (int32_t)p;
    _Pragma("omp barrier")
  }
  return is_sorted;
}

/* The particles of a block are added up in a tile of its nodes, and the tile then to the nodes. */
INLINE void add_tile(float *grid, const float *x, const float *q, long block, int is_sorted, int atomically) {
  const long i0 = block / (BLOCKS * BLOCKS) * SIDE, j0 = block / BLOCKS % BLOCKS * SIDE, k0 = block % BLOCKS * SIDE;
  const long rows[2] = {least(TILE, NODES - i0), least(TILE, NODES - j0)}, length = 4 * least(TILE, NODES - k0);
  float tile[TILE][TILE][TILE * 4] __attribute__((aligned(64)));
  if (begins[block] == begins[block + 1]) return;
  memset(tile, 0, sizeof tile);
  for (long n = begins[block]; n < begins[block + 1]; n++) {
    const long p = is_sorted ? n : order[n];
    const spline s = spline_of(x + 3 * p);
    add(&tile[s.base[0] - i0][s.base[1] - j0][(s.base[2] - k0) * 4], TILE * TILE * 4, TILE * 4, &s, q + 4 * p);
  }
  for (long i = 0; i < rows[0]; i++)
    for (long j = 0; j < rows[1]; j++) {
      float *to = grid + (i0 + i) * PLANE + ((j0 + j) * NODES + k0) * 4;
      if (atomically)
        for (long k = 0; k < length; k++) add_atomically(to + k, tile[i][j][k]);
      else
        for (long k = 0; k < length; k++) to[k] += tile[i][j][k];
    }
}

void p2g_tiles_atomic(void **args) {
  const float *x = args[0], *q = args[1];
  _Pragma("omp parallel num_threads(THREADS)") {
    const int is_sorted = sort(x, MOST_BLOCKS, tile_of);
    _Pragma("omp for schedule(dynamic, 8)") for (long b = 0; b < MOST_BLOCKS; b++) add_tile(args[2], x, q, b, is_sorted, 1);
  }
}

/* Tiles of blocks that are two apart along an axis share no node: each of eight colours is done by all threads. */
void p2g_tiles_by_colour(void **args) {
  enum { COLOURS = THREADS > 1 ? 8 : 1, STEP = THREADS > 1 ? 2 : 1, HALF = BLOCKS / STEP };
  const float *x = args[0], *q = args[1];
  _Pragma("omp parallel num_threads(THREADS)") {
    const int is_sorted = sort(x, MOST_BLOCKS, tile_of);
    for (int colour = 0; colour < COLOURS; colour++) {
      _Pragma("omp for schedule(dynamic, 8)") for (long n = 0; n < HALF * HALF * HALF; n++) {
        const long i = n / (HALF * HALF) * STEP + (colour >> 2), j = n / HALF % HALF * STEP + (colour >> 1 & 1);
        add_tile(args[2], x, q, (i * BLOCKS + j) * BLOCKS + n % HALF * STEP + (colour & 1), is_sorted, 0);
      }
    }
  }
}

/* Particles of every other slab of blocks share no node either, and are added in place. */
void p2g_slabs_by_colour(void **args) {
  const float *x = args[0], *q = args[1];
  _Pragma("omp parallel num_threads(THREADS)") {
    const int is_sorted = sort(x, BLOCKS, slab_of);
    for (int colour = 0; colour < 2; colour++) {
      _Pragma("omp for schedule(dynamic)") for (long b = colour; b < BLOCKS; b += 2)
        for (long n = begins[b]; n < begins[b + 1]; n++) {
          const long p = is_sorted ? n : order[n];
          add_in_place(args[2], x + 3 * p, q + 4 * p);
        }
    }
  }
}
