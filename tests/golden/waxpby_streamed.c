/* waxpby
 *   x: f32, 1000, input
 *   y: f32, 1000, input
 *   w: f32, 1000, output
 *
 * launch 0: scale0, add_scaled0
 * scale0: i (parallel, vector 32); stays on chip
 * add_scaled0: i (parallel, vector 32); streams
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
static inline void stream_f32x16(float *p, f32x16 x, int is_aligned) {
    (void)is_aligned;
#if defined(__AVX512F__)
    if (is_aligned || __builtin_expect(((uintptr_t)p & 63) == 0, 1)) {
        __asm__("vmovntps %1, %0" : "=m"(*(f32x16_unaligned *)p) : "v"(x));
        return;
    }
    if (((uintptr_t)p & 15) == 0) {
        typedef float piece __attribute__((vector_size(16), may_alias));
        union { f32x16 whole; piece pieces[4]; } u = {x};
        for (int k = 0; k < 4; ++k) {
            __asm__("vmovntps %1, %0" : "=m"(((piece *)p)[k]) : "x"(u.pieces[k]));
        }
        return;
    }
#endif
    *(f32x16_unaligned *)p = x;
}

/* scale0: t = beta * y[i]; add_scaled0: w = alpha * x[i] + t[i] */
static inline __attribute__((always_inline)) void launch_0_thread(const float *restrict x, const float *restrict y, float *w, float alpha, float beta, const int are_aligned, long tid, long n_threads) {
    const long begin = 32 * tid / n_threads * 32;
    const long end = 32 * (tid + 1) / n_threads * 32 < 1000 ? 32 * (tid + 1) / n_threads * 32 : 1000;
    {
        const long i0_whole = begin + (end - begin) / 32 * 32;
        for (long i0 = begin; i0 < i0_whole; i0 += 32) {
            f32x16 t_value_0;
            f32x16 t_value_1;
            const float *y_at = &y[i0];
            const f32x16 y_ = load_f32x16(&y_at[0]);
            t_value_0 = beta * y_;
            const f32x16 y_1 = load_f32x16(&y_at[16]);
            t_value_1 = beta * y_1;
            const float *x_at = &x[i0];
            const f32x16 x_ = load_f32x16(&x_at[0]);
            const f32x16 w_ = alpha * x_ + t_value_0;
            float *w_at = &w[i0];
            stream_f32x16(&w_at[0], w_, are_aligned);
            const f32x16 x_1 = load_f32x16(&x_at[16]);
            const f32x16 w_1 = alpha * x_1 + t_value_1;
            stream_f32x16(&w_at[16], w_1, are_aligned);
        }
        if (i0_whole < end) {
            const long i0 = i0_whole;
            float t_value1[32];
            for (long i = i0; i < (i0 + 32 < 1000 ? i0 + 32 : 1000); ++i) {
                const float y_2 = y[i];
                t_value1[i - i0] = beta * y_2;
            }
            for (long i = i0; i < (i0 + 32 < 1000 ? i0 + 32 : 1000); ++i) {
                const float x_2 = x[i];
                const float w_2 = alpha * x_2 + t_value1[i - i0];
                w[i] = w_2;
            }
        }
    }
}

struct launch_0_given { const float *x; const float *y; float *w; float alpha; float beta; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    (void)team;
    const struct launch_0_given *g = given;
    if (((uintptr_t)g->w & 63) == 0) {
        launch_0_thread(g->x, g->y, g->w, g->alpha, g->beta, 1, tid, n_threads);
    } else {
        launch_0_thread(g->x, g->y, g->w, g->alpha, g->beta, 0, tid, n_threads);
    }
}

static void launch_0(const float *restrict x, const float *restrict y, float *restrict w, float alpha, float beta) {
    struct launch_0_given given = {x, y, w, alpha, beta};
    ks_team_run(launch_0_part, &given, 4, 0);
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *x = args[0];
    float *y = args[1];
    float *w = args[2];
    float alpha = *(float *)args[3];
    float beta = *(float *)args[4];
    launch_0(x, y, w, alpha, beta);
#if defined(__SSE2__)
    __asm__ volatile("sfence" ::: "memory");
#endif
}
