/* gemver
 *   a: f32, 512 x 512, input
 *   u1: f32, 512, input
 *   v1: f32, 512, input
 *   u2: f32, 512, input
 *   v2: f32, 512, input
 *   y: f32, 512, input
 *   z: f32, 512, input
 *   b: f32, 512 x 512, output
 *   x: f32, 512, output
 *   w: f32, 512, output
 *
 * launch 0: add_two_outer0, add_scaled_gemvt0, scaled_gemv0
 * add_two_outer0: i (loop), j (parallel, 4 steps, vector 32); prefetches 12 iterations ahead
 * add_scaled_gemvt0: i (loop), j (parallel, 4 steps, vector 32)
 * scaled_gemv0: i (loop), j (parallel, 4 steps, vector 32)
 */
#include <stdint.h>

/* The team of threads: team.c, which is at the end of a file that is to be compiled alone. */
struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_meet(struct ks_team *team);

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
static inline f32x16 splat_f32x16(float x) { return x - (f32x16){0}; }
static inline void store_f32x16(float *p, f32x16 x) { *(f32x16_unaligned *)p = x; }
static inline f32x16 load_f32x16(const float *p) { return *(const f32x16_unaligned *)p; }
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x8_unaligned __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x4_unaligned __attribute__((vector_size(16), aligned(4), may_alias));
typedef float f32x2 __attribute__((vector_size(8)));
typedef float f32x2_unaligned __attribute__((vector_size(8), aligned(4), may_alias));
static inline float fold_add_f32x2(f32x2 x) { return x[0] + x[1]; }
static inline float fold_add_f32x4(f32x4 x) {
    union { f32x4 whole; f32x2 h[2]; } u = {x};
    return fold_add_f32x2(u.h[0] + u.h[1]);
}
static inline float fold_add_f32x8(f32x8 x) {
    union { f32x8 whole; f32x4 h[2]; } u = {x};
    return fold_add_f32x4(u.h[0] + u.h[1]);
}
static inline float fold_add_f32x16(f32x16 x) {
    union { f32x16 whole; f32x8 h[2]; } u = {x};
    return fold_add_f32x8(u.h[0] + u.h[1]);
}

/* add_two_outer0: b = a[i, j] + u1[i] * v1[j] + u2[i] * v2[j]; add_scaled_gemvt0: x add beta * b[i, j] * y[i]; scaled_gemv0: w add b[i, j] * x[j] */
static void launch_0_thread(const float *restrict a, const float *restrict u1, const float *restrict v1, const float *restrict u2, const float *restrict v2, const float *restrict y, const float *restrict z, float *b, float *x, float *w, float alpha, float beta, char *workspace, long tid, long n_threads, struct ks_team *team) {
    float *restrict b_row = (float *)(workspace + tid * 266240);
    float *restrict x_sum = (float *)(workspace + (tid * 4608 + 1064960));
    float *restrict x_row = (float *)(workspace + (tid * 4608 + 1083392));
    float *w_sum = (float *)(workspace + (tid * 6144 + 1101824));
    const long begin = 4 * tid / n_threads * 128;
    const long end = 4 * (tid + 1) / n_threads * 128;
    for (long k = 0; k < 512; k += 16) {
        const f32x16 w_sum_ = splat_f32x16(0.0f);
        store_f32x16(&w_sum[k], w_sum_);
    }
    for (long slot = tid + n_threads; slot < 4; ++slot) {
        for (long k = 0; k < 512; ++k) {
            ((float *)(workspace + (slot * 6144 + 1101824)))[k] = 0.0f;
        }
    }
    for (long j0 = begin; j0 < end; j0 += 128) {
        for (long j = j0; j < j0 + 128; j += 16) {
            const f32x16 x_sum_ = splat_f32x16(0.0f);
            store_f32x16(&x_sum[j - j0], x_sum_);
        }
        for (long i = 0; i < 512; ++i) {
            for (long j1 = j0; j1 < j0 + 128; j1 += 32) {
                f32x16 b_value_0;
                f32x16 b_value_1;
                __builtin_prefetch(&a[i * 512 + j1 + 6144], 0, 2);
                const float *a_at = &a[i * 512 + j1];
                const f32x16 a_ = load_f32x16(&a_at[0]);
                const float u1_ = u1[i];
                const float *v1_at = &v1[j1];
                const f32x16 v1_ = load_f32x16(&v1_at[0]);
                const float u2_ = u2[i];
                const float *v2_at = &v2[j1];
                const f32x16 v2_ = load_f32x16(&v2_at[0]);
                b_value_0 = a_ + u1_ * v1_ + u2_ * v2_;
                float *b_row_at = &b_row[i * 128 + j1 - j0];
                store_f32x16(&b_row_at[0], b_value_0);
                float *b_at = &b[i * 512 + j1];
                store_f32x16(&b_at[0], b_value_0);
                __builtin_prefetch(&a_at[6160], 0, 2);
                const f32x16 a_1 = load_f32x16(&a_at[16]);
                const f32x16 v1_1 = load_f32x16(&v1_at[16]);
                const f32x16 v2_1 = load_f32x16(&v2_at[16]);
                b_value_1 = a_1 + u1_ * v1_1 + u2_ * v2_1;
                store_f32x16(&b_row_at[16], b_value_1);
                store_f32x16(&b_at[16], b_value_1);
                const float y_ = y[i];
                const f32x16 sum_ = beta * y_ * b_value_0;
                const f32x16 sum_1 = beta * y_ * b_value_1;
                float *x_sum_at = &x_sum[j1 - j0];
                const f32x16 x_sum_1 = load_f32x16(&x_sum_at[0]);
                const f32x16 x_sum_2 = x_sum_1 + sum_;
                store_f32x16(&x_sum_at[0], x_sum_2);
                const f32x16 x_sum_3 = load_f32x16(&x_sum_at[16]);
                const f32x16 x_sum_4 = x_sum_3 + sum_1;
                store_f32x16(&x_sum_at[16], x_sum_4);
            }
        }
        for (long j = j0; j < j0 + 128; ++j) {
            const float z_ = z[j];
            const float x_row_ = z_ + x_sum[j - j0];
            x_row[j - j0] = x_row_;
            const float x_ = z_ + x_sum[j - j0];
            x[j] = x_;
        }
        for (long i = 0; i < 512; ++i) {
            f32x16 w_acc_0 = splat_f32x16(0.0f);
            f32x16 w_acc_1 = splat_f32x16(0.0f);
            for (long j1 = j0; j1 < j0 + 128; j1 += 32) {
                float *b_row_at_1 = &b_row[i * 128 + j1 - j0];
                const f32x16 b_row_ = load_f32x16(&b_row_at_1[0]);
                float *x_row_at = &x_row[j1 - j0];
                const f32x16 x_row_1 = load_f32x16(&x_row_at[0]);
                w_acc_0 += b_row_ * x_row_1;
                const f32x16 b_row_1 = load_f32x16(&b_row_at_1[16]);
                const f32x16 x_row_2 = load_f32x16(&x_row_at[16]);
                w_acc_1 += b_row_1 * x_row_2;
            }
            const float w_total_ = fold_add_f32x16(w_acc_0 + w_acc_1);
            const float w_sum_1 = w_sum[i];
            const float w_sum_2 = w_sum_1 + w_total_;
            w_sum[i] = w_sum_2;
        }
    }
    ks_team_meet(team);
    for (long i = 32 * tid / n_threads * 16; i < 32 * (tid + 1) / n_threads * 16; i += 16) {
        const f32x16 w_ = alpha * (load_f32x16(&((float *)(workspace + 1101824))[i]) + load_f32x16(&((float *)(workspace + 1107968))[i]) + load_f32x16(&((float *)(workspace + 1114112))[i]) + load_f32x16(&((float *)(workspace + 1120256))[i]));
        store_f32x16(&w[i], w_);
    }
}

struct launch_0_given { const float *a; const float *u1; const float *v1; const float *u2; const float *v2; const float *y; const float *z; float *b; float *x; float *w; float alpha; float beta; char *workspace; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    const struct launch_0_given *g = given;
    launch_0_thread(g->a, g->u1, g->v1, g->u2, g->v2, g->y, g->z, g->b, g->x, g->w, g->alpha, g->beta, g->workspace, tid, n_threads, team);
}

static void launch_0(const float *restrict a, const float *restrict u1, const float *restrict v1, const float *restrict u2, const float *restrict v2, const float *restrict y, const float *restrict z, float *restrict b, float *restrict x, float *restrict w, float alpha, float beta, char *restrict workspace) {
    struct launch_0_given given = {a, u1, v1, u2, v2, y, z, b, x, w, alpha, beta, workspace};
    ks_team_run(launch_0_part, &given, 4, 1);
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *a = args[0];
    float *u1 = args[1];
    float *v1 = args[2];
    float *u2 = args[3];
    float *v2 = args[4];
    float *y = args[5];
    float *z = args[6];
    float *b = args[7];
    float *x = args[8];
    float *w = args[9];
    float alpha = *(float *)args[10];
    float beta = *(float *)args[11];
    char *workspace = args[12];
    launch_0(a, u1, v1, u2, v2, y, z, b, x, w, alpha, beta, workspace);
}
