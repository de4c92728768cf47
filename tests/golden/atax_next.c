/* atax
 *   a: f32, 512 x 512, input
 *   x: f32, 512, input
 *   y: f32, 512, output
 *
 * launch 0: gemv0, add_gemvt0
 * gemv0: i (parallel, unroll 2), j (loop, vector 32); prefetches 2 iterations ahead, into the first cache; stays on chip
 * add_gemvt0: i (parallel, unroll 2), j (loop, vector 32); prefetches 2 iterations ahead, into the first cache
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

/* gemv0: t add a[i, j] * x[j]; add_gemvt0: y add a[i, j] * t[i] */
static void launch_0_thread(const float *restrict a, const float *restrict x, float *y, char *workspace, long tid, long n_threads, struct ks_team *team) {
    float *y_sum = (float *)(workspace + tid * 6144);
    const long begin = 256 * tid / n_threads * 2;
    const long end = 256 * (tid + 1) / n_threads * 2;
    for (long k = 0; k < 512; k += 16) {
        const f32x16 y_sum_ = splat_f32x16(0.0f);
        store_f32x16(&y_sum[k], y_sum_);
    }
    for (long slot = tid + n_threads; slot < 4; ++slot) {
        for (long k = 0; k < 512; ++k) {
            ((float *)(workspace + slot * 6144))[k] = 0.0f;
        }
    }
    for (long i0 = begin; i0 < end; i0 += 2) {
        f32x16 t_acc_0_0 = splat_f32x16(0.0f);
        f32x16 t_acc_0_1 = splat_f32x16(0.0f);
        f32x16 t_acc_1_0 = splat_f32x16(0.0f);
        f32x16 t_acc_1_1 = splat_f32x16(0.0f);
        for (long j0 = 0; j0 < 512; j0 += 32) {
            __builtin_prefetch(&a[i0 * 512 + j0 + 1024], 0, 3);
            const float *a_at = &a[i0 * 512 + j0];
            const f32x16 a_ = load_f32x16(&a_at[0]);
            const float *x_at = &x[j0];
            const f32x16 x_ = load_f32x16(&x_at[0]);
            t_acc_0_0 += a_ * x_;
            __builtin_prefetch(&a_at[1040], 0, 3);
            const f32x16 a_1 = load_f32x16(&a_at[16]);
            const f32x16 x_1 = load_f32x16(&x_at[16]);
            t_acc_0_1 += a_1 * x_1;
            __builtin_prefetch(&a_at[1536], 0, 3);
            const f32x16 a_2 = load_f32x16(&a_at[512]);
            t_acc_1_0 += a_2 * x_;
            __builtin_prefetch(&a_at[1552], 0, 3);
            const f32x16 a_3 = load_f32x16(&a_at[528]);
            t_acc_1_1 += a_3 * x_1;
        }
        float t_value_0;
        float t_value_1;
        const float t_total_ = fold_add_f32x16(t_acc_0_0 + t_acc_0_1);
        t_value_0 = t_total_;
        const float t_total_1 = fold_add_f32x16(t_acc_1_0 + t_acc_1_1);
        t_value_1 = t_total_1;
        for (long j0 = 0; j0 < 512; j0 += 32) {
            __builtin_prefetch(&a[i0 * 512 + j0 + 1024], 0, 3);
            const float *a_at_1 = &a[i0 * 512 + j0];
            const f32x16 a_4 = load_f32x16(&a_at_1[0]);
            const f32x16 sum_ = a_4 * t_value_0;
            __builtin_prefetch(&a_at_1[1040], 0, 3);
            const f32x16 a_5 = load_f32x16(&a_at_1[16]);
            const f32x16 sum_1 = a_5 * t_value_0;
            __builtin_prefetch(&a_at_1[1536], 0, 3);
            const f32x16 a_6 = load_f32x16(&a_at_1[512]);
            const f32x16 sum_2 = sum_ + a_6 * t_value_1;
            __builtin_prefetch(&a_at_1[1552], 0, 3);
            const f32x16 a_7 = load_f32x16(&a_at_1[528]);
            const f32x16 sum_3 = sum_1 + a_7 * t_value_1;
            float *y_sum_at = &y_sum[j0];
            const f32x16 y_sum_1 = load_f32x16(&y_sum_at[0]);
            const f32x16 y_sum_2 = y_sum_1 + sum_2;
            store_f32x16(&y_sum_at[0], y_sum_2);
            const f32x16 y_sum_3 = load_f32x16(&y_sum_at[16]);
            const f32x16 y_sum_4 = y_sum_3 + sum_3;
            store_f32x16(&y_sum_at[16], y_sum_4);
        }
    }
    ks_team_meet(team);
    for (long j = 32 * tid / n_threads * 16; j < 32 * (tid + 1) / n_threads * 16; j += 16) {
        const f32x16 y_ = load_f32x16(&((float *)(workspace + 0))[j]) + load_f32x16(&((float *)(workspace + 6144))[j]) + load_f32x16(&((float *)(workspace + 12288))[j]) + load_f32x16(&((float *)(workspace + 18432))[j]);
        store_f32x16(&y[j], y_);
    }
}

struct launch_0_given { const float *a; const float *x; float *y; char *workspace; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    const struct launch_0_given *g = given;
    launch_0_thread(g->a, g->x, g->y, g->workspace, tid, n_threads, team);
}

static void launch_0(const float *restrict a, const float *restrict x, float *restrict y, char *restrict workspace) {
    struct launch_0_given given = {a, x, y, workspace};
    ks_team_run(launch_0_part, &given, 4, 1);
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *a = args[0];
    float *x = args[1];
    float *y = args[2];
    char *workspace = args[3];
    launch_0(a, x, y, workspace);
}
