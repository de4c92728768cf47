/* gemver
 *   a: f32, 120 x 96, input
 *   u1: f32, 120, input
 *   v1: f32, 96, input
 *   u2: f32, 120, input
 *   v2: f32, 96, input
 *   y: f32, 120, input
 *   z: f32, 96, input
 *   b: f32, 120 x 96, output
 *   x: f32, 96, output
 *   w: f32, 120, output
 *
 * launch 0: add_two_outer0, add_scaled_gemvt0, scaled_gemv0
 * add_two_outer0: i (loop, unroll 2), j (parallel, vector 32)
 * add_scaled_gemvt0: i (loop, unroll 2), j (parallel, vector 32)
 * scaled_gemv0: i (loop, unroll 2), j (parallel, vector 32); one step of j late, beside add_scaled_gemvt0
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
static void launch_0_thread(const float *restrict a, const float *restrict u1, const float *restrict v1, const float *restrict u2, const float *restrict v2, const float *restrict y, const float *restrict z, float *b, float *x, float beta, char *workspace, long tid, long n_threads) {
    float *restrict b_row = (float *)(workspace + tid * 19456);
    float *restrict x_row = (float *)(workspace + (tid * 4224 + 77824));
    float *w_sum = (float *)(workspace + (tid * 4608 + 94720));
    const long begin = 3 * tid / n_threads * 32;
    const long end = 3 * (tid + 1) / n_threads * 32;
    for (long k = 0; k < 112; k += 16) {
        const f32x16 w_sum_ = splat_f32x16(0.0f);
        store_f32x16(&w_sum[k], w_sum_);
    }
    for (long k = 112; k < 120; ++k) {
        w_sum[k] = 0.0f;
    }
    for (long slot = tid + n_threads; slot < 4; ++slot) {
        for (long k = 0; k < 120; ++k) {
            ((float *)(workspace + (slot * 4608 + 94720)))[k] = 0.0f;
        }
    }
    for (long j0 = begin; j0 < end; j0 += 32) {
        f32x16 x_acc_0_0 = splat_f32x16(0.0f);
        f32x16 x_acc_0_1 = splat_f32x16(0.0f);
        f32x16 x_acc_1_0 = splat_f32x16(0.0f);
        f32x16 x_acc_1_1 = splat_f32x16(0.0f);
        for (long i0 = 0; i0 < 120; i0 += 2) {
            if (j0 > begin) {
                float *b_row_at = &b_row[i0 * 32];
                const f32x16 b_row_ = load_f32x16(&b_row_at[0]);
                const f32x16 x_row_ = load_f32x16(&x_row[0]);
                const f32x16 sum_ = b_row_ * x_row_;
                const f32x16 b_row_1 = load_f32x16(&b_row_at[16]);
                const f32x16 x_row_1 = load_f32x16(&x_row[16]);
                const f32x16 sum_1 = sum_ + b_row_1 * x_row_1;
                const f32x16 b_row_2 = load_f32x16(&b_row_at[32]);
                const f32x16 sum_2 = b_row_2 * x_row_;
                const f32x16 b_row_3 = load_f32x16(&b_row_at[48]);
                const f32x16 sum_3 = sum_2 + b_row_3 * x_row_1;
                float *w_sum_at = &w_sum[i0];
                const float w_sum_1 = w_sum_at[0];
                const float w_sum_2 = w_sum_1 + fold_add_f32x16(sum_1);
                w_sum_at[0] = w_sum_2;
                const float w_sum_3 = w_sum_at[1];
                const float w_sum_4 = w_sum_3 + fold_add_f32x16(sum_3);
                w_sum_at[1] = w_sum_4;
            }
            f32x16 b_value_0_0;
            f32x16 b_value_0_1;
            f32x16 b_value_1_0;
            f32x16 b_value_1_1;
            const float *a_at = &a[i0 * 96 + j0];
            const f32x16 a_ = load_f32x16(&a_at[0]);
            const float *u1_at = &u1[i0];
            const float u1_ = u1_at[0];
            const float *v1_at = &v1[j0];
            const f32x16 v1_ = load_f32x16(&v1_at[0]);
            const float *u2_at = &u2[i0];
            const float u2_ = u2_at[0];
            const float *v2_at = &v2[j0];
            const f32x16 v2_ = load_f32x16(&v2_at[0]);
            b_value_0_0 = a_ + u1_ * v1_ + u2_ * v2_;
            float *b_row_at_1 = &b_row[i0 * 32];
            store_f32x16(&b_row_at_1[0], b_value_0_0);
            float *b_at = &b[i0 * 96 + j0];
            store_f32x16(&b_at[0], b_value_0_0);
            const f32x16 a_1 = load_f32x16(&a_at[16]);
            const f32x16 v1_1 = load_f32x16(&v1_at[16]);
            const f32x16 v2_1 = load_f32x16(&v2_at[16]);
            b_value_0_1 = a_1 + u1_ * v1_1 + u2_ * v2_1;
            store_f32x16(&b_row_at_1[16], b_value_0_1);
            store_f32x16(&b_at[16], b_value_0_1);
            const f32x16 a_2 = load_f32x16(&a_at[96]);
            const float u1_1 = u1_at[1];
            const float u2_1 = u2_at[1];
            b_value_1_0 = a_2 + u1_1 * v1_ + u2_1 * v2_;
            store_f32x16(&b_row_at_1[32], b_value_1_0);
            store_f32x16(&b_at[96], b_value_1_0);
            const f32x16 a_3 = load_f32x16(&a_at[112]);
            b_value_1_1 = a_3 + u1_1 * v1_1 + u2_1 * v2_1;
            store_f32x16(&b_row_at_1[48], b_value_1_1);
            store_f32x16(&b_at[112], b_value_1_1);
            const float *y_at = &y[i0];
            const float y_ = y_at[0];
            x_acc_0_0 += beta * y_ * b_value_0_0;
            x_acc_0_1 += beta * y_ * b_value_0_1;
            const float y_1 = y_at[1];
            x_acc_1_0 += beta * y_1 * b_value_1_0;
            x_acc_1_1 += beta * y_1 * b_value_1_1;
        }
        const f32x16 x_total_ = x_acc_0_0 + x_acc_1_0;
        const float *z_at = &z[j0];
        const f32x16 z_ = load_f32x16(&z_at[0]);
        const f32x16 x_row_2 = z_ + x_total_;
        store_f32x16(&x_row[0], x_row_2);
        const f32x16 x_ = z_ + x_total_;
        float *x_at = &x[j0];
        store_f32x16(&x_at[0], x_);
        const f32x16 x_total_1 = x_acc_0_1 + x_acc_1_1;
        const f32x16 z_1 = load_f32x16(&z_at[16]);
        const f32x16 x_row_3 = z_1 + x_total_1;
        store_f32x16(&x_row[16], x_row_3);
        const f32x16 x_1 = z_1 + x_total_1;
        store_f32x16(&x_at[16], x_1);
    }
    if (begin < end) {
        for (long j0 = begin + (end - begin - 1) / 32 * 32; j0 < end; j0 += 32) {
            for (long i0 = 0; i0 < 120; i0 += 2) {
                float *b_row_at_2 = &b_row[i0 * 32];
                const f32x16 b_row_4 = load_f32x16(&b_row_at_2[0]);
                const f32x16 x_row_4 = load_f32x16(&x_row[0]);
                const f32x16 sum_4 = b_row_4 * x_row_4;
                const f32x16 b_row_5 = load_f32x16(&b_row_at_2[16]);
                const f32x16 x_row_5 = load_f32x16(&x_row[16]);
                const f32x16 sum_5 = sum_4 + b_row_5 * x_row_5;
                const f32x16 b_row_6 = load_f32x16(&b_row_at_2[32]);
                const f32x16 sum_6 = b_row_6 * x_row_4;
                const f32x16 b_row_7 = load_f32x16(&b_row_at_2[48]);
                const f32x16 sum_7 = sum_6 + b_row_7 * x_row_5;
                float *w_sum_at_1 = &w_sum[i0];
                const float w_sum_5 = w_sum_at_1[0];
                const float w_sum_6 = w_sum_5 + fold_add_f32x16(sum_5);
                w_sum_at_1[0] = w_sum_6;
                const float w_sum_7 = w_sum_at_1[1];
                const float w_sum_8 = w_sum_7 + fold_add_f32x16(sum_7);
                w_sum_at_1[1] = w_sum_8;
            }
        }
    }
}

struct launch_0_given { const float *a; const float *u1; const float *v1; const float *u2; const float *v2; const float *y; const float *z; float *b; float *x; float beta; char *workspace; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    (void)team;
    const struct launch_0_given *g = given;
    launch_0_thread(g->a, g->u1, g->v1, g->u2, g->v2, g->y, g->z, g->b, g->x, g->beta, g->workspace, tid, n_threads);
}

static void launch_0(const float *restrict a, const float *restrict u1, const float *restrict v1, const float *restrict u2, const float *restrict v2, const float *restrict y, const float *restrict z, float *restrict b, float *restrict x, float *restrict w, float alpha, float beta, char *restrict workspace) {
    struct launch_0_given given = {a, u1, v1, u2, v2, y, z, b, x, beta, workspace};
    ks_team_run(launch_0_part, &given, 4, 0);
    for (long i = 0; i < 112; i += 16) {
        const f32x16 w_ = alpha * (load_f32x16(&((float *)(workspace + 94720))[i]) + load_f32x16(&((float *)(workspace + 99328))[i]) + load_f32x16(&((float *)(workspace + 103936))[i]) + load_f32x16(&((float *)(workspace + 108544))[i]));
        store_f32x16(&w[i], w_);
    }
    for (long i = 112; i < 120; ++i) {
        const float w_1 = alpha * (((float *)(workspace + 94720))[i] + ((float *)(workspace + 99328))[i] + ((float *)(workspace + 103936))[i] + ((float *)(workspace + 108544))[i]);
        w[i] = w_1;
    }
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
