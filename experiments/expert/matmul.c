/* C = A B, with A's elements STRIDE apart: register tiles of a few rows by a few vectors over packed blocks of A (second cache) and
 * packed panels of B (last cache); without packing where B fits the first cache and A has no gaps; or with the next block of A
 * packed, a slice after each register tile, while one is used, and its lines asked for during the register tile before that. */
#include "expert.h"

#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef ENTRY
#define ENTRY matmul
#endif
#ifndef TILE /* rows of a register tile */
#if VECTOR_BYTES == 64
#define TILE 8
#else
#define TILE 6
#endif
#endif
#ifndef VECTORS /* across a register tile */
#define VECTORS 2
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
#ifndef AHEAD
#define AHEAD 0 /* whether blocks of A are packed ahead */
#endif
#ifndef SUMS
#define SUMS 0 /* whether what a register tile is added to is asked for before the tile */
#endif

#define WIDTH (VECTORS * LANES) /* columns of a register tile */
#define UP(n, multiple) (((long)(n) + (multiple) - 1) / (multiple) * (multiple))
#define A_SPACE PADDED(UP(BLOCK_ROWS, TILE) * BLOCK_DEPTH)
#define B_SPACE PADDED(UP(BLOCK_COLUMNS, WIDTH) * BLOCK_DEPTH)

_Static_assert(!PACKS || WORKSPACE >= (B_SPACE + THREADS * (1 + AHEAD) * A_SPACE) * sizeof(REAL), "workspace");

/* Where a tile finds its operands: A at r * a_row + k * a_step, B at k * b_step. */
typedef struct {
  const REAL *a, *b;
  long a_row, a_step, b_step;
} operands;

/* The lines of C that a whole register tile is added to. */
INLINE void ask_sums(const REAL *c) {
  UNROLL for (int r = 0; r < TILE; r++) UNROLL
    for (int at = 0; at < WIDTH; at += LINE_BYTES / (int)sizeof(REAL)) __builtin_prefetch(c + (long)r * N + at, 1, 3);
}

/* rows x columns of C, at most a tile: set, or added to. Packed operands are padded with zeros, so that whole tiles are computed;
 * of others nothing outside is read. */
INLINE void tile(REAL *c, operands o, long depth, int rows, long columns, int is_packed, int adds) {
  const long n = is_packed ? WIDTH : columns;
  if (SUMS && adds && rows == TILE && columns == WIDTH) ask_sums(c);
  vec t[TILE][VECTORS];
  UNROLL for (int r = 0; r < TILE; r++) UNROLL for (int v = 0; v < VECTORS; v++) t[r][v] = (vec){0};
  for (long k = 0; k < depth; k++) {
    vec b[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) b[v] = get(o.b + k * o.b_step + v * LANES, n - v * LANES);
    UNROLL for (int r = 0; r < TILE; r++) {
      const REAL a = o.a[(is_packed || r < rows ? r : 0) * o.a_row + k * o.a_step];
      UNROLL for (int v = 0; v < VECTORS; v++) t[r][v] += a * b[v];
    }
  }
  UNROLL for (int r = 0; r < TILE; r++) if (r < rows) {
      REAL *at = c + (long)r * N;
      UNROLL for (int v = 0; v < VECTORS; v++) {
        if (adds) t[r][v] += get(at + v * LANES, columns - v * LANES);
        put(at + v * LANES, t[r][v], columns - v * LANES);
      }
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

/* Panels of a few vectors of columns of B, shared out to the threads. */
static void pack_b(REAL *to, const REAL *b, long depth, long columns) {
  const span part = share(columns, WIDTH);
  for (long j = part.first; j < part.end; j += WIDTH)
    for (long k = 0; k < depth; k++) UNROLL
      for (int v = 0; v < VECTORS; v++)
        put(to + j * depth + k * WIDTH + v * LANES, get(b + k * N + j + v * LANES, columns - j - v * LANES), LANES);
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

/* A block of A that is to be packed: from where, to where, how large. */
typedef struct {
  const REAL *a;
  REAL *to;
  long rows, depth;
} block;

/* A whole register tile, with a line of A asked for every so many steps: `chunk` in each of TILE rows. */
INLINE void asking_tile(REAL *c, operands o, long depth, int adds, const REAL *ask, long chunk, long every) {
  if (SUMS && adds) ask_sums(c);
  vec t[TILE][VECTORS];
  UNROLL for (int r = 0; r < TILE; r++) UNROLL for (int v = 0; v < VECTORS; v++) t[r][v] = (vec){0};
  long k = 0;
  for (int row = 0; row < TILE; row++)
    for (long column = 0; column < chunk && k < depth; column++) {
      __builtin_prefetch(ask + ((long)row * K + column) * STRIDE, 0, 0);
      const long end = row == TILE - 1 && column == chunk - 1 ? depth : least(depth, k + every);
      UNROLL for (; k < end; k++) {
        vec b[VECTORS];
        UNROLL for (int v = 0; v < VECTORS; v++) b[v] = get(o.b + k * o.b_step + v * LANES, LANES);
        UNROLL for (int r = 0; r < TILE; r++) {
          const REAL a = o.a[r * o.a_row + k * o.a_step];
          UNROLL for (int v = 0; v < VECTORS; v++) t[r][v] += a * b[v];
        }
      }
    }
  UNROLL for (int r = 0; r < TILE; r++) {
    REAL *at = c + (long)r * N;
    UNROLL for (int v = 0; v < VECTORS; v++) {
      if (adds) t[r][v] += get(at + v * LANES, LANES);
      put(at + v * LANES, t[r][v], LANES);
    }
  }
}

/* A register tile of rows of a block, `chunk` of its columns. */
INLINE void pack_slice(block next, long row, long column, long chunk) {
  if (row >= next.rows || column >= next.depth) return;
  REAL *to = next.to + row * next.depth + column * TILE;
  const REAL *a = next.a + (row * K + column) * STRIDE;
  chunk = least(chunk, next.depth - column);
  if (next.rows - row >= TILE)
    pack_rows(to, a, chunk, TILE);
  else
    pack_rows(to, a, chunk, (int)(next.rows - row));
}

static void packed_ahead(const REAL *a, const REAL *b, REAL *c, REAL *space) {
#pragma omp parallel num_threads(THREADS)
  {
    const long tid = omp_get_thread_num();
    REAL *b_panels = space, *a_tiles[2] = {space + B_SPACE + 2 * tid * A_SPACE, space + B_SPACE + (2 * tid + 1) * A_SPACE};
    const span part = share(M, TILE);
    for (long j0 = 0; j0 < N; j0 += BLOCK_COLUMNS) {
      const long columns = least(BLOCK_COLUMNS, N - j0), n_tiles = (columns + WIDTH - 1) / WIDTH;
      int now = 0;
      pack_a(a_tiles[0], a + part.first * K * STRIDE, least(BLOCK_ROWS, part.end - part.first), least(BLOCK_DEPTH, K));
      for (long k0 = 0; k0 < K; k0 += BLOCK_DEPTH) {
        const long depth = least(BLOCK_DEPTH, K - k0);
        pack_b(b_panels, b + k0 * N + j0, depth, columns);
#pragma omp barrier
        for (long i0 = part.first; i0 < part.end; i0 += BLOCK_ROWS, now = !now) {
          const long rows = least(BLOCK_ROWS, part.end - i0), is_last = i0 + BLOCK_ROWS >= part.end;
          const long i1 = is_last ? part.first : i0 + BLOCK_ROWS, k1 = is_last ? k0 + BLOCK_DEPTH : k0;
          const block next = {a + (i1 * K + k1) * STRIDE, a_tiles[!now], least(BLOCK_ROWS, part.end - i1),
                              most(0, least(BLOCK_DEPTH, K - k1))};
          const long chunk = (next.depth + n_tiles - 1) / n_tiles, every = chunk ? depth / (TILE * chunk) : 0;
          for (long j = 0; j < columns; j += WIDTH)
            for (long i = 0; i < rows; i += TILE) {
              const operands o = {a_tiles[now] + i * depth, b_panels + j * depth, 1, TILE, WIDTH};
              REAL *at = c + (i0 + i) * N + j0 + j;
              const int wraps = i + TILE >= rows; /* the slice after this one */
              const long row = wraps ? 0 : i + TILE, column = (j / WIDTH + wraps) * chunk;
              const int asks = every && row + TILE <= next.rows && column + chunk <= next.depth;
              if (!asks || rows - i < TILE || columns - j < WIDTH)
                any_tile(at, o, depth, rows - i, columns - j, 1, k0 > 0);
              else if (every == 4)
                asking_tile(at, o, depth, k0 > 0, next.a + (row * K + column) * STRIDE, chunk, 4);
              else
                asking_tile(at, o, depth, k0 > 0, next.a + (row * K + column) * STRIDE, chunk, every);
              pack_slice(next, i, j / WIDTH * chunk, chunk);
            }
          for (long i = UP(rows, TILE); i < next.rows; i += TILE) pack_slice(next, i, 0, next.depth);
        }
#pragma omp barrier
      }
    }
  }
}

void ENTRY(void **args) {
  if (PACKS && AHEAD)
    packed_ahead(args[0], args[1], args[2], args[3]);
  else if (PACKS)
    packed(args[0], args[1], args[2], args[3]);
  else
    unpacked(args[0], args[1], args[2]);
}
