/* A MacCormack step of three channels, each traced back by three stages of Runge-Kutta, on an N^3 grid in blocks of 8^3 cells.
 *
 * Arguments: the table of blocks (int32, (N/8)^3 of them: the number of each, 0 where there is none); the blocks' places in it, by
 * number; how many there are (int64); then fields of 512 floats a block, three each: velocities, channels before the step, behind
 * it, and traced back again. Block 0 of every field is zeros. -DDT= is the step in time.
 *
 * A row of a block, 8 cells, goes by in lanes. All three channels are done in one pass, so each place is traced back once. */
#include "expert.h"

enum { SIDE = 8, CELLS = SIDE * SIDE * SIDE, BLOCKS = N / SIDE };

typedef float lanes __attribute__((vector_size(32), may_alias));
typedef int32_t whole __attribute__((vector_size(32), may_alias));

typedef struct {
  const int32_t *table, *at;
  long n_blocks;
  const float *speed[3], *before[3];
  float *after[3], *back[3];
} fields;

/* The eight cells around a place, as offsets into a field, and how far it is from the first one along each axis. */
typedef struct {
  whole cell[8];
  lanes f[3];
} corners;

INLINE lanes least_of(lanes a, lanes b) { return (lanes)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE lanes most_of(lanes a, lanes b) { return (lanes)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE lanes mixed(lanes a, lanes b, lanes f) { return a + f * (b - a); }

INLINE whole inside(whole i) {
  const __m256i low = _mm256_max_epi32((__m256i)i, _mm256_setzero_si256());
  return (whole)_mm256_min_epi32(low, _mm256_set1_epi32(N - 1));
}

/* The elements at these offsets: by one instruction, or by a load for each lane, which some machines do in less time. */
INLINE lanes taken(const float *from, whole at, int gathers) {
  if (gathers) return (lanes)_mm256_i32gather_ps(from, (__m256i)at, 4);
  return (lanes){from[at[0]], from[at[1]], from[at[2]], from[at[3]], from[at[4]], from[at[5]], from[at[6]], from[at[7]]};
}

INLINE whole looked_up(const int32_t *table, whole at, int gathers) {
  if (gathers) return (whole)_mm256_i32gather_epi32(table, (__m256i)at, 4);
  return (whole){table[at[0]], table[at[1]], table[at[2]], table[at[3]], table[at[4]], table[at[5]], table[at[6]], table[at[7]]};
}

INLINE corners around(const fields *g, const lanes place[3], int gathers) {
  const int32_t block_step[3] = {BLOCKS * BLOCKS, BLOCKS, 1}, cell_step[3] = {SIDE * SIDE, SIDE, 1};
  whole block[3][2], cell[3][2];
  corners r;
  UNROLL for (int d = 0; d < 3; d++) {
    const lanes s = place[d] * (float)N - 0.5f, low = (lanes)_mm256_floor_ps((__m256)s);
    const whole first = (whole)_mm256_cvttps_epi32((__m256)low);
    r.f[d] = s - low;
    UNROLL for (int e = 0; e < 2; e++) {
      const whole i = inside(first + e);
      block[d][e] = (i >> 3) * block_step[d];
      cell[d][e] = (i & (SIDE - 1)) * cell_step[d];
    }
  }
  UNROLL for (int c = 0; c < 8; c++) {
    const int x = c & 1, y = c >> 1 & 1, z = c >> 2;
    const whole number = looked_up(g->table, block[0][x] + block[1][y] + block[2][z], gathers);
    r.cell[c] = number * CELLS + cell[0][x] + cell[1][y] + cell[2][z];
  }
  return r;
}

INLINE lanes between(const lanes v[8], const lanes f[3]) {
  const lanes low = mixed(mixed(v[0], v[1], f[0]), mixed(v[2], v[3], f[0]), f[1]);
  const lanes high = mixed(mixed(v[4], v[5], f[0]), mixed(v[6], v[7], f[0]), f[1]);
  return mixed(low, high, f[2]);
}

INLINE lanes sampled(const float *field, const corners *r, int gathers) {
  lanes v[8];
  UNROLL for (int c = 0; c < 8; c++) v[c] = taken(field, r->cell[c], gathers);
  return between(v, r->f);
}

/* The corners of where the fluid at `x` was a step `t` ago. */
INLINE corners traced(const fields *g, const lanes x[3], float t, int gathers) {
  const float share[3] = {2.0f / 9.0f * t, 1.0f / 3.0f * t, 4.0f / 9.0f * t}, ahead[2] = {0.5f * t, 0.75f * t};
  lanes place[3] = {x[0], x[1], x[2]}, origin[3] = {x[0], x[1], x[2]};
  UNROLL for (int stage = 0; stage < 3; stage++) {
    const corners r = around(g, place, gathers);
    UNROLL for (int d = 0; d < 3; d++) {
      const lanes speed = sampled(g->speed[d], &r, gathers);
      origin[d] -= share[stage] * speed;
      if (stage < 2) place[d] = x[d] - ahead[stage] * speed;
    }
  }
  return around(g, origin, gathers);
}

/* What is behind the step in a row: corrected by half the error of going forth and back, unless that leaves the values around. */
INLINE void correct(const float *before, float *after, const float *back, const corners *r, long o, int gathers) {
  lanes v[8];
  UNROLL for (int c = 0; c < 8; c++) v[c] = taken(before, r->cell[c], gathers);
  lanes low = v[0], high = v[0];
  UNROLL for (int c = 1; c < 8; c++) low = least_of(low, v[c]), high = most_of(high, v[c]);
  const lanes made = *(lanes *)(after + o) + 0.5f * (*(const lanes *)(before + o) - *(const lanes *)(back + o));
  const whole is_out = (whole)(made < low) | (whole)(made > high);
  *(lanes *)(after + o) = (lanes)_mm256_blendv_ps((__m256)made, (__m256)between(v, r->f), (__m256)is_out);
}

/* One of the three passes, over block `b`. */
INLINE void pass(int number, const fields *g, long b, int gathers) {
  const long at = g->at[b - 1];
  const float i0 = at / (BLOCKS * BLOCKS) * SIDE + 0.5f, j0 = at / BLOCKS % BLOCKS * SIDE + 0.5f, k0 = at % BLOCKS * SIDE + 0.5f;
  const float h = 1.0f / N;
  for (long row = 0; row < SIDE * SIDE; row++) {
    const lanes x[3] = {(lanes){0} + (i0 + row / SIDE) * h, (lanes){0} + (j0 + row % SIDE) * h,
                        ((lanes){0, 1, 2, 3, 4, 5, 6, 7} + k0) * h};
    const corners r = traced(g, x, number == 1 ? -DT : DT, gathers);
    const long o = b * CELLS + row * SIDE;
    UNROLL for (int c = 0; c < 3; c++) {
      if (number == 0) *(lanes *)(g->after[c] + o) = sampled(g->before[c], &r, gathers);
      if (number == 1) *(lanes *)(g->back[c] + o) = sampled(g->after[c], &r, gathers);
      if (number == 2) correct(g->before[c], g->after[c], g->back[c], &r, o, gathers);
    }
  }
}

INLINE fields fields_of(void **args) {
  fields g = {.table = args[0], .at = args[1], .n_blocks = *(const int64_t *)args[2]};
  for (int c = 0; c < 3; c++) {
    g.speed[c] = args[3 + c];
    g.before[c] = args[6 + c];
    g.after[c] = args[9 + c];
    g.back[c] = args[12 + c];
  }
  return g;
}

/* A macro, since a parallel region is a function of its own, in which `gathers` would be no constant. */
#define STEP(name, gathers)                                                                                         \
  void name(void **args) {                                                                                          \
    const fields g = fields_of(args);                                                                               \
    _Pragma("omp parallel num_threads(THREADS) firstprivate(g)") {                                                  \
      _Pragma("omp for schedule(static)") for (long b = 1; b <= g.n_blocks; b++) pass(0, &g, b, gathers);           \
      _Pragma("omp for schedule(static)") for (long b = 1; b <= g.n_blocks; b++) pass(1, &g, b, gathers);           \
      _Pragma("omp for schedule(static)") for (long b = 1; b <= g.n_blocks; b++) pass(2, &g, b, gathers);           \
    }                                                                                                               \
  }

STEP(maccormack_gathers, 1)
STEP(maccormack_loads, 0)
