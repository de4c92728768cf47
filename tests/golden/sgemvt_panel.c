/* sgemvt
 *   a: f32, 512 x 512, input
 *   y: f32, 512, input
 *   z: f32, 512, input
 *   x: f32, 512, output
 *   w: f32, 512, output
 *
 * launch 0: add_scaled_gemvt0, scaled_gemv0
 * add_scaled_gemvt0: i (loop, unroll 4), j (parallel, 4 steps, vector 16); prefetches 12 iterations ahead; keeps a
 * scaled_gemv0: i (loop, unroll 4), j (parallel, 4 steps, vector 16)
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

/* add_scaled_gemvt0: x add beta * a[i, j] * y[i]; scaled_gemv0: w add a[i, j] * x[j] */
static void launch_0_thread(const float *restrict a, const float *restrict y, const float *restrict z, float *x, float *w, float alpha, float beta, char *workspace, long tid, long n_threads, struct ks_team *team) {
    float *restrict x_sum = (float *)(workspace + tid * 4352);
    float *restrict x_row = (float *)(workspace + (tid * 4352 + 17408));
    float *restrict a_kept = (float *)(workspace + (tid * 135168 + 34816));
    float *w_sum = (float *)(workspace + (tid * 6144 + 575488));
    const long begin = 8 * tid / n_threads * 64;
    const long end = 8 * (tid + 1) / n_threads * 64;
    for (long k = 0; k < 512; k += 16) {
        const f32x16 w_sum_ = splat_f32x16(0.0f);
        store_f32x16(&w_sum[k], w_sum_);
    }
    for (long slot = tid + n_threads; slot < 4; ++slot) {
        for (long k = 0; k < 512; ++k) {
            ((float *)(workspace + (slot * 6144 + 575488)))[k] = 0.0f;
        }
    }
    for (long j0 = begin; j0 < end; j0 += 64) {
        for (long j = j0; j < j0 + 64; j += 16) {
            const f32x16 x_sum_ = splat_f32x16(0.0f);
            store_f32x16(&x_sum[j - j0], x_sum_);
        }
        for (long i0 = 0; i0 < 512; i0 += 4) {
            for (long j1 = j0; j1 < j0 + 64; j1 += 16) {
                __builtin_prefetch(&a[i0 * 512 + j1 + 6144], 0, 2);
                const float *a_at = &a[i0 * 512 + j1];
                const f32x16 a_ = load_f32x16(&a_at[0]);
                float *a_kept_at = &a_kept[i0 * 64 + j1 - j0];
                store_f32x16(&a_kept_at[0], a_);
                const float *y_at = &y[i0];
                const float y_ = y_at[0];
                const f32x16 sum_ = beta * y_ * a_;
                __builtin_prefetch(&a_at[6656], 0, 2);
                const f32x16 a_1 = load_f32x16(&a_at[512]);
                store_f32x16(&a_kept_at[64], a_1);
                const float y_1 = y_at[1];
                const f32x16 sum_1 = sum_ + beta * y_1 * a_1;
                __builtin_prefetch(&a_at[7168], 0, 2);
                const f32x16 a_2 = load_f32x16(&a_at[1024]);
                store_f32x16(&a_kept_at[128], a_2);
                const float y_2 = y_at[2];
                const f32x16 sum_2 = sum_1 + beta * y_2 * a_2;
                __builtin_prefetch(&a_at[7680], 0, 2);
                const f32x16 a_3 = load_f32x16(&a_at[1536]);
                store_f32x16(&a_kept_at[192], a_3);
                const float y_3 = y_at[3];
                const f32x16 sum_3 = sum_2 + beta * y_3 * a_3;
                const f32x16 x_sum_1 = load_f32x16(&x_sum[j1 - j0]);
                const f32x16 x_sum_2 = x_sum_1 + sum_3;
                store_f32x16(&x_sum[j1 - j0], x_sum_2);
            }
        }
        for (long j = j0; j < j0 + 64; ++j) {
            const float z_ = z[j];
            const float x_row_ = z_ + x_sum[j - j0];
            x_row[j - j0] = x_row_;
            const float x_ = z_ + x_sum[j - j0];
            x[j] = x_;
        }
        for (long i0 = 0; i0 < 512; i0 += 4) {
            f32x16 w_acc_0 = splat_f32x16(0.0f);
            f32x16 w_acc_1 = splat_f32x16(0.0f);
            f32x16 w_acc_2 = splat_f32x16(0.0f);
            f32x16 w_acc_3 = splat_f32x16(0.0f);
            for (long j1 = j0; j1 < j0 + 64; j1 += 16) {
                float *a_kept_at_1 = &a_kept[i0 * 64 + j1 - j0];
                const f32x16 a_kept_ = load_f32x16(&a_kept_at_1[0]);
                const f32x16 x_row_1 = load_f32x16(&x_row[j1 - j0]);
                w_acc_0 += a_kept_ * x_row_1;
                const f32x16 a_kept_1 = load_f32x16(&a_kept_at_1[64]);
                w_acc_1 += a_kept_1 * x_row_1;
                const f32x16 a_kept_2 = load_f32x16(&a_kept_at_1[128]);
                w_acc_2 += a_kept_2 * x_row_1;
                const f32x16 a_kept_3 = load_f32x16(&a_kept_at_1[192]);
                w_acc_3 += a_kept_3 * x_row_1;
            }
            const float w_total_ = fold_add_f32x16(w_acc_0);
            float *w_sum_at = &w_sum[i0];
            const float w_sum_1 = w_sum_at[0];
            const float w_sum_2 = w_sum_1 + w_total_;
            w_sum_at[0] = w_sum_2;
            const float w_total_1 = fold_add_f32x16(w_acc_1);
            const float w_sum_3 = w_sum_at[1];
            const float w_sum_4 = w_sum_3 + w_total_1;
            w_sum_at[1] = w_sum_4;
            const float w_total_2 = fold_add_f32x16(w_acc_2);
            const float w_sum_5 = w_sum_at[2];
            const float w_sum_6 = w_sum_5 + w_total_2;
            w_sum_at[2] = w_sum_6;
            const float w_total_3 = fold_add_f32x16(w_acc_3);
            const float w_sum_7 = w_sum_at[3];
            const float w_sum_8 = w_sum_7 + w_total_3;
            w_sum_at[3] = w_sum_8;
        }
    }
    ks_team_meet(team);
    for (long i = 32 * tid / n_threads * 16; i < 32 * (tid + 1) / n_threads * 16; i += 16) {
        const f32x16 w_ = alpha * (load_f32x16(&((float *)(workspace + 575488))[i]) + load_f32x16(&((float *)(workspace + 581632))[i]) + load_f32x16(&((float *)(workspace + 587776))[i]) + load_f32x16(&((float *)(workspace + 593920))[i]));
        store_f32x16(&w[i], w_);
    }
}

struct launch_0_given { const float *a; const float *y; const float *z; float *x; float *w; float alpha; float beta; char *workspace; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    const struct launch_0_given *g = given;
    launch_0_thread(g->a, g->y, g->z, g->x, g->w, g->alpha, g->beta, g->workspace, tid, n_threads, team);
}

static void launch_0(const float *restrict a, const float *restrict y, const float *restrict z, float *restrict x, float *restrict w, float alpha, float beta, char *restrict workspace) {
    struct launch_0_given given = {a, y, z, x, w, alpha, beta, workspace};
    ks_team_run(launch_0_part, &given, 4, 1);
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *a = args[0];
    float *y = args[1];
    float *z = args[2];
    float *x = args[3];
    float *w = args[4];
    float alpha = *(float *)args[5];
    float beta = *(float *)args[6];
    char *workspace = args[7];
    launch_0(a, y, z, x, w, alpha, beta, workspace);
}
