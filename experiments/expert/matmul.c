/* C = A B, with A's elements STRIDE apart: register tiles of a few rows by two vectors over packed blocks of A (second cache) and
 * packed panels of B (last cache); without packing where B fits the first cache and A has no gaps. */
#include "expert.h"

#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef ENTRY
#define ENTRY matmul
#endif
#ifndef TILE
#define TILE 8 /* rows of a register tile */
#endif
#ifndef BLOCK_DEPTH
#define BLOCK_DEPTH 384
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 192
#endif
#ifndef BLOCK_COLUMNS
#define BLOCK_COLUMNS 2048
#endif
#ifndef PACKS
#define PACKS (STRIDE > 1 || (long)K * N * (long)sizeof(REAL) > (40L << 10))
#endif

#define WIDTH (2 * LANES) /* columns of a register tile */
#define UP(n, multiple) (((long)(n) + (multiple) - 1) / (multiple) * (multiple))
#define A_SPACE PADDED(UP(BLOCK_ROWS, TILE) * BLOCK_DEPTH)
#define B_SPACE PADDED(UP(BLOCK_COLUMNS, WIDTH) * BLOCK_DEPTH)

_Static_assert(!PACKS || WORKSPACE >= (B_SPACE + THREADS * A_SPACE) * sizeof(REAL), "workspace");

/* Where a tile finds its operands: A at r * a_row + k * a_step, B at k * b_step. */
typedef struct {
  const REAL *a, *b;
  long a_row, a_step, b_step;
} operands;

/* rows x columns of C, at most a tile: set, or added to. Packed operands are padded with zeros, so that whole tiles are computed;
 * of others nothing outside is read. */
INLINE void tile(REAL *c, operands o, long depth, int rows, long columns, int is_packed, int adds) {
  const long n = is_packed ? WIDTH : columns;
  vec t[TILE][2];
  UNROLL for (int r = 0; r < TILE; r++) t[r][0] = t[r][1] = (vec){0};
  for (long k = 0; k < depth; k++) {
    const vec b0 = get(o.b + k * o.b_step, n), b1 = get(o.b + k * o.b_step + LANES, n - LANES);
    UNROLL for (int r = 0; r < TILE; r++) {
      const REAL a = o.a[(is_packed || r < rows ? r : 0) * o.a_row + k * o.a_step];
      t[r][0] += a * b0;
      t[r][1] += a * b1;
    }
  }
  UNROLL for (int r = 0; r < TILE; r++) if (r < rows) {
      REAL *at = c + (long)r * N;
      if (adds) {
        t[r][0] += get(at, columns);
        t[r][1] += get(at + LANES, columns - LANES);
      }
      put(at, t[r][0], columns);
      put(at + LANES, t[r][1], columns - LANES);
    }
}

/* Whole tiles apart from those at the edges: their extents are constants. */
INLINE void any_tile(REAL *c, operands o, long depth, long rows, long columns, int is_packed, int adds) {
  if (rows >= TILE && columns >= WIDTH)
    tile(c, o, depth, TILE, WIDTH, is_packed, adds);
  else
    tile(c, o, depth, (int)least(rows, TILE), least(columns, WIDTH), is_packed, adds);
}

static void unpacked(const REAL *a, const REAL *b, REAL *c) {
#pragma omp parallel num_threads(TEAM((long)M * N * K / 4))
  {
    const span part = share(M, TILE);
    for (long i = part.first; i < part.end; i += TILE)
      for (long j = 0; j < N; j += WIDTH) {
        const operands o = {a + i * K, b + j, K, 1, N};
        any_tile(c + i * N + j, o, K, part.end - i, N - j, 0, 0);
      }
  }
}

/* Tiles of rows of A, the numbers of a column side by side. */
INLINE void pack_rows(REAL *to, const REAL *a, long depth, int rows) {
  for (long k = 0; k < depth; k++) UNROLL
    for (int r = 0; r < TILE; r++) to[k * TILE + r] = r < rows ? a[((long)r * K + k) * STRIDE] : 0;
}

static void pack_a(REAL *to, const REAL *a, long rows, long depth) {
  long i = 0;
  for (; i + TILE <= rows; i += TILE) pack_rows(to + i * depth, a + i * K * STRIDE, depth, TILE);
  if (i < rows) pack_rows(to + i * depth, a + i * K * STRIDE, depth, (int)(rows - i));
}

/* Panels of two vectors of columns of B, shared out to the threads. */
static void pack_b(REAL *to, const REAL *b, long depth, long columns) {
  const span part = share(columns, WIDTH);
  for (long j = part.first; j < part.end; j += WIDTH)
    for (long k = 0; k < depth; k++) {
      put(to + j * depth + k * WIDTH, get(b + k * N + j, columns - j), LANES);
      put(to + j * depth + k * WIDTH + LANES, get(b + k * N + j + LANES, columns - j - LANES), LANES);
    }
}

static void packed(const REAL *a, const REAL *b, REAL *c, REAL *space) {
#pragma omp parallel num_threads(THREADS)
  {
    const long tid = omp_get_thread_num();
    REAL *b_panels = space, *a_tiles = space + B_SPACE + tid * A_SPACE;
    const span part = share(M, TILE);
    for (long j0 = 0; j0 < N; j0 += BLOCK_COLUMNS)
      for (long k0 = 0; k0 < K; k0 += BLOCK_DEPTH) {
        const long columns = least(BLOCK_COLUMNS, N - j0), depth = least(BLOCK_DEPTH, K - k0);
        pack_b(b_panels, b + k0 * N + j0, depth, columns);
#pragma omp barrier
        for (long i0 = part.first; i0 < part.end; i0 += BLOCK_ROWS) {
          const long rows = least(BLOCK_ROWS, part.end - i0);
          pack_a(a_tiles, a + (i0 * K + k0) * STRIDE, rows, depth);
          for (long j = 0; j < columns; j += WIDTH)
            for (long i = 0; i < rows; i += TILE) {
              const operands o = {a_tiles + i * depth, b_panels + j * depth, 1, TILE, WIDTH};
              any_tile(c + (i0 + i) * N + j0 + j, o, depth, rows - i, columns - j, 1, k0 > 0);
            }
        }
#pragma omp barrier
      }
  }
}

void ENTRY(void **args) {
  if (PACKS)
    packed(args[0], args[1], args[2], args[3]);
  else
    unpacked(args[0], args[1], args[2]);
}
