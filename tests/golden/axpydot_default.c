/* axpydot
 *   w: f32, 1000, input
 *   v: f32, 1000, input
 *   u: f32, 1000, input
 *   z: f32, 1000, output
 *   r: f32, 1, output
 *
 * launch 0: subtract_scaled0
 * launch 1: dot0
 * subtract_scaled0: i (parallel, vector 16)
 * dot0: i (parallel, vector 16)
 */
#include <stdint.h>

/* The team of threads: team.c, which is at the end of a file that is to be compiled alone. */
struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_meet(struct ks_team *team);

typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x16_unaligned __attribute__((vector_size(64), aligned(4), may_alias));
static inline f32x16 load_f32x16(const float *p) { return *(const f32x16_unaligned *)p; }
static inline void store_f32x16(float *p, f32x16 x) { *(f32x16_unaligned *)p = x; }
static inline f32x16 splat_f32x16(float x) { return x - (f32x16){0}; }
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

/* subtract_scaled0: z = w[i] - alpha * v[i] */
static void launch_0_thread(const float *restrict w, const float *restrict v, float *z, float alpha, long tid, long n_threads) {
    const long begin = 63 * tid / n_threads * 16;
    const long end = 63 * (tid + 1) / n_threads * 16 < 1000 ? 63 * (tid + 1) / n_threads * 16 : 1000;
    {
        const long i0_whole = begin + (end - begin) / 16 * 16;
        for (long i0 = begin; i0 < i0_whole; i0 += 16) {
            const f32x16 w_ = load_f32x16(&w[i0]);
            const f32x16 v_ = load_f32x16(&v[i0]);
            const f32x16 z_ = w_ - alpha * v_;
            store_f32x16(&z[i0], z_);
        }
        if (i0_whole < end) {
            const long i0 = i0_whole;
            for (long i = i0; i < (i0 + 16 < 1000 ? i0 + 16 : 1000); ++i) {
                const float w_1 = w[i];
                const float v_1 = v[i];
                const float z_1 = w_1 - alpha * v_1;
                z[i] = z_1;
            }
        }
    }
}

struct launch_0_given { const float *w; const float *v; float *z; float alpha; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    (void)team;
    const struct launch_0_given *g = given;
    launch_0_thread(g->w, g->v, g->z, g->alpha, tid, n_threads);
}

static void launch_0(const float *restrict w, const float *restrict v, float *restrict z, float alpha) {
    struct launch_0_given given = {w, v, z, alpha};
    ks_team_run(launch_0_part, &given, 4, 0);
}

/* dot0: r add z[i] * u[i] */
static void launch_1_thread(const float *restrict u, const float *restrict z, char *workspace, long tid, long n_threads) {
    float *r_sum = (float *)(workspace + tid * 4160);
    const long begin = 63 * tid / n_threads * 16;
    const long end = 63 * (tid + 1) / n_threads * 16 < 1000 ? 63 * (tid + 1) / n_threads * 16 : 1000;
    f32x16 r_acc = splat_f32x16(0.0f);
    {
        const long i0_whole = begin + (end - begin) / 16 * 16;
        for (long i0 = begin; i0 < i0_whole; i0 += 16) {
            const f32x16 z_ = load_f32x16(&z[i0]);
            const f32x16 u_ = load_f32x16(&u[i0]);
            r_acc += z_ * u_;
        }
        if (i0_whole < end) {
            const long i0 = i0_whole;
            for (long i = i0; i < (i0 + 16 < 1000 ? i0 + 16 : 1000); ++i) {
                const float z_1 = z[i];
                const float u_1 = u[i];
                r_acc[0] += z_1 * u_1;
            }
        }
    }
    const float r_total_ = fold_add_f32x16(r_acc);
    r_sum[0] = r_total_;
    for (long slot = tid + n_threads; slot < 4; ++slot) {
        for (long k = 0; k < 1; ++k) {
            ((float *)(workspace + slot * 4160))[k] = 0.0f;
        }
    }
}

struct launch_1_given { const float *u; const float *z; char *workspace; };
static void launch_1_part(void *given, long tid, long n_threads, struct ks_team *team) {
    (void)team;
    const struct launch_1_given *g = given;
    launch_1_thread(g->u, g->z, g->workspace, tid, n_threads);
}

static void launch_1(const float *restrict u, const float *restrict z, float *restrict r, char *restrict workspace) {
    struct launch_1_given given = {u, z, workspace};
    ks_team_run(launch_1_part, &given, 4, 0);
    {
        const float r_ = ((float *)(workspace + 0))[0] + ((float *)(workspace + 4160))[0] + ((float *)(workspace + 8320))[0] + ((float *)(workspace + 12480))[0];
        r[0] = r_;
    }
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *w = args[0];
    float *v = args[1];
    float *u = args[2];
    float *z = args[3];
    float *r = args[4];
    float alpha = *(float *)args[5];
    char *workspace = args[6];
    launch_0(w, v, z, alpha);
    launch_1(u, z, r, workspace);
}
