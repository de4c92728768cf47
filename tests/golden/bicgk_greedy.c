/* bicgk
 *   a: f32, 64 x 48, input
 *   p: f32, 48, input
 *   r: f32, 64, input
 *   q: f32, 64, output
 *   s: f32, 48, output
 *
 * launch 0: gemv0, add_gemvt0
 * gemv0: i (parallel, unroll 4), j (loop, vector 48)
 * add_gemvt0: i (parallel, unroll 4), j (loop, vector 48)
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

/* gemv0: q add a[i, j] * p[j]; add_gemvt0: s add a[i, j] * r[i] */
static void launch_0_thread(const float *restrict a, const float *restrict p, const float *restrict r, float *q, char *workspace, long tid, long n_threads) {
    float *s_sum = (float *)(workspace + tid * 4288);
    const long begin = 16 * tid / n_threads * 4;
    const long end = 16 * (tid + 1) / n_threads * 4;
    for (long k = 0; k < 48; k += 16) {
        const f32x16 s_sum_ = splat_f32x16(0.0f);
        store_f32x16(&s_sum[k], s_sum_);
    }
    for (long slot = tid + n_threads; slot < 4; ++slot) {
        for (long k = 0; k < 48; ++k) {
            ((float *)(workspace + slot * 4288))[k] = 0.0f;
        }
    }
    for (long i0 = begin; i0 < end; i0 += 4) {
        f32x16 q_acc_0_0 = splat_f32x16(0.0f);
        f32x16 q_acc_0_1 = splat_f32x16(0.0f);
        f32x16 q_acc_0_2 = splat_f32x16(0.0f);
        f32x16 q_acc_1_0 = splat_f32x16(0.0f);
        f32x16 q_acc_1_1 = splat_f32x16(0.0f);
        f32x16 q_acc_1_2 = splat_f32x16(0.0f);
        f32x16 q_acc_2_0 = splat_f32x16(0.0f);
        f32x16 q_acc_2_1 = splat_f32x16(0.0f);
        f32x16 q_acc_2_2 = splat_f32x16(0.0f);
        f32x16 q_acc_3_0 = splat_f32x16(0.0f);
        f32x16 q_acc_3_1 = splat_f32x16(0.0f);
        f32x16 q_acc_3_2 = splat_f32x16(0.0f);
        for (long j0 = 0; j0 < 48; j0 += 48) {
            const float *a_at = &a[i0 * 48 + j0];
            const f32x16 a_ = load_f32x16(&a_at[0]);
            const float *p_at = &p[j0];
            const f32x16 p_ = load_f32x16(&p_at[0]);
            q_acc_0_0 += a_ * p_;
            const f32x16 a_1 = load_f32x16(&a_at[16]);
            const f32x16 p_1 = load_f32x16(&p_at[16]);
            q_acc_0_1 += a_1 * p_1;
            const f32x16 a_2 = load_f32x16(&a_at[32]);
            const f32x16 p_2 = load_f32x16(&p_at[32]);
            q_acc_0_2 += a_2 * p_2;
            const f32x16 a_3 = load_f32x16(&a_at[48]);
            q_acc_1_0 += a_3 * p_;
            const f32x16 a_4 = load_f32x16(&a_at[64]);
            q_acc_1_1 += a_4 * p_1;
            const f32x16 a_5 = load_f32x16(&a_at[80]);
            q_acc_1_2 += a_5 * p_2;
            const f32x16 a_6 = load_f32x16(&a_at[96]);
            q_acc_2_0 += a_6 * p_;
            const f32x16 a_7 = load_f32x16(&a_at[112]);
            q_acc_2_1 += a_7 * p_1;
            const f32x16 a_8 = load_f32x16(&a_at[128]);
            q_acc_2_2 += a_8 * p_2;
            const f32x16 a_9 = load_f32x16(&a_at[144]);
            q_acc_3_0 += a_9 * p_;
            const f32x16 a_10 = load_f32x16(&a_at[160]);
            q_acc_3_1 += a_10 * p_1;
            const f32x16 a_11 = load_f32x16(&a_at[176]);
            q_acc_3_2 += a_11 * p_2;
            const float *r_at = &r[i0];
            const float r_ = r_at[0];
            const f32x16 sum_ = a_ * r_;
            const f32x16 sum_1 = a_1 * r_;
            const f32x16 sum_2 = a_2 * r_;
            const float r_1 = r_at[1];
            const f32x16 sum_3 = sum_ + a_3 * r_1;
            const f32x16 sum_4 = sum_1 + a_4 * r_1;
            const f32x16 sum_5 = sum_2 + a_5 * r_1;
            const float r_2 = r_at[2];
            const f32x16 sum_6 = sum_3 + a_6 * r_2;
            const f32x16 sum_7 = sum_4 + a_7 * r_2;
            const f32x16 sum_8 = sum_5 + a_8 * r_2;
            const float r_3 = r_at[3];
            const f32x16 sum_9 = sum_6 + a_9 * r_3;
            const f32x16 sum_10 = sum_7 + a_10 * r_3;
            const f32x16 sum_11 = sum_8 + a_11 * r_3;
            float *s_sum_at = &s_sum[j0];
            const f32x16 s_sum_1 = load_f32x16(&s_sum_at[0]);
            const f32x16 s_sum_2 = s_sum_1 + sum_9;
            store_f32x16(&s_sum_at[0], s_sum_2);
            const f32x16 s_sum_3 = load_f32x16(&s_sum_at[16]);
            const f32x16 s_sum_4 = s_sum_3 + sum_10;
            store_f32x16(&s_sum_at[16], s_sum_4);
            const f32x16 s_sum_5 = load_f32x16(&s_sum_at[32]);
            const f32x16 s_sum_6 = s_sum_5 + sum_11;
            store_f32x16(&s_sum_at[32], s_sum_6);
        }
        const float q_total_ = fold_add_f32x16(q_acc_0_0 + q_acc_0_1 + q_acc_0_2);
        float *q_at = &q[i0];
        q_at[0] = q_total_;
        const float q_total_1 = fold_add_f32x16(q_acc_1_0 + q_acc_1_1 + q_acc_1_2);
        q_at[1] = q_total_1;
        const float q_total_2 = fold_add_f32x16(q_acc_2_0 + q_acc_2_1 + q_acc_2_2);
        q_at[2] = q_total_2;
        const float q_total_3 = fold_add_f32x16(q_acc_3_0 + q_acc_3_1 + q_acc_3_2);
        q_at[3] = q_total_3;
    }
}

struct launch_0_given { const float *a; const float *p; const float *r; float *q; char *workspace; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    (void)team;
    const struct launch_0_given *g = given;
    launch_0_thread(g->a, g->p, g->r, g->q, g->workspace, tid, n_threads);
}

static void launch_0(const float *restrict a, const float *restrict p, const float *restrict r, float *restrict q, float *restrict s, char *restrict workspace) {
    struct launch_0_given given = {a, p, r, q, workspace};
    ks_team_run(launch_0_part, &given, 4, 0);
    for (long j = 0; j < 48; j += 16) {
        const f32x16 s_ = load_f32x16(&((float *)(workspace + 0))[j]) + load_f32x16(&((float *)(workspace + 4288))[j]) + load_f32x16(&((float *)(workspace + 8576))[j]) + load_f32x16(&((float *)(workspace + 12864))[j]);
        store_f32x16(&s[j], s_);
    }
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *a = args[0];
    float *p = args[1];
    float *r = args[2];
    float *q = args[3];
    float *s = args[4];
    char *workspace = args[5];
    launch_0(a, p, r, q, s, workspace);
}
