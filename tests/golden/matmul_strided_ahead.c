/* matmul_strided
 *   a: f32, 61 x 4096, input
 *   b: f32, 128 x 37, input
 *   c: f32, 61 x 37, output
 *
 * launch 0: multiply0
 * multiply0: i (parallel, 4 steps, unroll 4), j (loop, 4 steps, vector 16), k (loop, 64 steps); packs a in 2 stages; packs b
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

/* multiply0: c add a[i, 32*k] * b[k, j] */
static void launch_0_thread(const float *restrict a, const float *restrict b, float *c, char *workspace, long tid, long n_threads) {
    float *restrict a_packed = (float *)(workspace + tid * 12288);
    float *restrict b_packed = (float *)(workspace + (tid * 20480 + 49152));
    const long begin = 4 * tid / n_threads * 16;
    const long end = 4 * (tid + 1) / n_threads * 16 < 61 ? 4 * (tid + 1) / n_threads * 16 : 61;
    for (long i = begin; i < end; ++i) {
        for (long j = 0; j < 32; j += 16) {
            const f32x16 c_ = splat_f32x16(0.0f);
            store_f32x16(&c[i * 37 + j], c_);
        }
        for (long j = 32; j < 37; ++j) {
            c[i * 37 + j] = 0.0f;
        }
    }
    for (long k0 = 0; k0 < 128; k0 += 64) {
        for (long j0 = 0; j0 < 37; j0 += 64) {
            for (long j1 = j0; j1 < 37; j1 += 16) {
                if (j1 + 16 <= 37) {
                    for (long k1 = k0; k1 < k0 + 64; ++k1) {
                        const f32x16 b_2 = load_f32x16(&b[k1 * 37 + j1]);
                        store_f32x16(&b_packed[j1 * 64 - j0 * 64 + k1 * 16 - k0 * 16], b_2);
                    }
                } else {
                    for (long k1 = k0; k1 < k0 + 64; ++k1) {
                        for (long j = j1; j < j1 + ((j1 + 16 < 37 ? j1 + 16 : 37) - j1) / 16 * 16; j += 16) {
                            const f32x16 b_ = load_f32x16(&b[k1 * 37 + j]);
                            store_f32x16(&b_packed[-(j0 * 64) + j1 * 63 + k1 * 16 - k0 * 16 + j], b_);
                        }
                        for (long j = j1 + ((j1 + 16 < 37 ? j1 + 16 : 37) - j1) / 16 * 16; j < (j1 + 16 < 37 ? j1 + 16 : 37); ++j) {
                            const float b_1 = b[k1 * 37 + j];
                            b_packed[-(j0 * 64) + j1 * 63 + k1 * 16 - k0 * 16 + j] = b_1;
                        }
                    }
                }
            }
            if (begin < end) {
                for (long i1 = begin; i1 < (begin + 16 < 61 ? begin + 16 : 61); i1 += 4) {
                    if (i1 + 4 <= 61) {
                        for (long k1 = k0; k1 < k0 + 64; ++k1) {
                            const float *a_at = &a[i1 * 4096 + k1 * 32];
                            const float a_1 = a_at[0];
                            float *a_packed_at = &a_packed[i1 * 64 - begin * 64 + k1 * 4 - k0 * 4];
                            a_packed_at[0] = a_1;
                            const float a_2 = a_at[4096];
                            a_packed_at[1] = a_2;
                            const float a_3 = a_at[8192];
                            a_packed_at[2] = a_3;
                            const float a_4 = a_at[12288];
                            a_packed_at[3] = a_4;
                        }
                    } else {
                        for (long k1 = k0; k1 < k0 + 64; ++k1) {
                            for (long i = i1; i < (i1 + 4 < 61 ? i1 + 4 : 61); ++i) {
                                const float a_ = a[i * 4096 + k1 * 32];
                                a_packed[-(begin * 64) + i1 * 63 + k1 * 4 - k0 * 4 + i] = a_;
                            }
                        }
                    }
                }
            }
            for (long i0 = begin; i0 < end; i0 += 16) {
                const long a_half = (i0 - begin) / 16 % 2 * 1024;
                const long i_ahead = i0 + 16;
                const long a_slices = i_ahead < end ? ((i_ahead + 16 < 61 ? i_ahead + 16 : 61) - i_ahead + 3) / 4 * 32 : 0;
                long a_slice = 0;
                for (long j1 = j0; j1 < 37; j1 += 16) {
                    for (long i1 = i0; i1 < (i0 + 16 < 61 ? i0 + 16 : 61); i1 += 4) {
                        f32x16 c_acc_0 = splat_f32x16(0.0f);
                        f32x16 c_acc_1 = splat_f32x16(0.0f);
                        f32x16 c_acc_2 = splat_f32x16(0.0f);
                        f32x16 c_acc_3 = splat_f32x16(0.0f);
                        for (long k_strip = k0; k_strip < k0 + 64; k_strip += 8) {
                            if (a_slice + 8 < a_slices) {
                                const long i_asked = i_ahead + (a_slice + 8) / 32 * 4;
                                const long k_asked = k0 + (a_slice + 8) % 32 * 2;
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 32], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 4096], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 4128], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 8192], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 8224], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 12288], 0, 0);
                                __builtin_prefetch(&a[i_asked * 4096 + k_asked * 32 + 12320], 0, 0);
                            }
                            if (a_slice < a_slices) {
                                const long i_slice = i_ahead + a_slice / 32 * 4;
                                const long k_slice = k0 + a_slice % 32 * 2;
                                if (i_slice + 4 <= 61) {
                                    for (long k1 = k_slice; k1 < k_slice + 2; ++k1) {
                                        const float *a_at_1 = &a[i_slice * 4096 + k1 * 32];
                                        const float a_6 = a_at_1[0];
                                        float *a_packed_at_1 = &a_packed[i_slice * 64 - i_ahead * 64 + k1 * 4 - k0 * 4 - a_half + 1024];
                                        a_packed_at_1[0] = a_6;
                                        const float a_7 = a_at_1[4096];
                                        a_packed_at_1[1] = a_7;
                                        const float a_8 = a_at_1[8192];
                                        a_packed_at_1[2] = a_8;
                                        const float a_9 = a_at_1[12288];
                                        a_packed_at_1[3] = a_9;
                                    }
                                } else {
                                    for (long k1 = k_slice; k1 < k_slice + 2; ++k1) {
                                        for (long i = i_slice; i < (i_slice + 4 < 61 ? i_slice + 4 : 61); ++i) {
                                            const float a_5 = a[i * 4096 + k1 * 32];
                                            a_packed[-(i_ahead * 64) + i_slice * 63 + k1 * 4 - k0 * 4 + i + (1024 - a_half)] = a_5;
                                        }
                                    }
                                }
                                a_slice += 1;
                            }
                            for (long k = k_strip; k < k_strip + 8; ++k) {
                                float *a_packed_at_2 = &a_packed[i1 * 64 - i0 * 64 + k * 4 - k0 * 4 + a_half];
                                const float a_packed_ = a_packed_at_2[0];
                                const f32x16 b_packed_ = load_f32x16(&b_packed[j1 * 64 - j0 * 64 + k * 16 - k0 * 16]);
                                c_acc_0 += a_packed_ * b_packed_;
                                const float a_packed_1 = a_packed_at_2[1];
                                c_acc_1 += a_packed_1 * b_packed_;
                                const float a_packed_2 = a_packed_at_2[2];
                                c_acc_2 += a_packed_2 * b_packed_;
                                const float a_packed_3 = a_packed_at_2[3];
                                c_acc_3 += a_packed_3 * b_packed_;
                            }
                        }
                        if (i1 + 4 <= 61 && j1 + 16 <= 37) {
                            float *c_at = &c[i1 * 37 + j1];
                            const f32x16 c_1 = load_f32x16(&c_at[0]);
                            const f32x16 c_2 = c_1 + c_acc_0;
                            store_f32x16(&c_at[0], c_2);
                            const f32x16 c_3 = load_f32x16(&c_at[37]);
                            const f32x16 c_4 = c_3 + c_acc_1;
                            store_f32x16(&c_at[37], c_4);
                            const f32x16 c_5 = load_f32x16(&c_at[74]);
                            const f32x16 c_6 = c_5 + c_acc_2;
                            store_f32x16(&c_at[74], c_6);
                            const f32x16 c_7 = load_f32x16(&c_at[111]);
                            const f32x16 c_8 = c_7 + c_acc_3;
                            store_f32x16(&c_at[111], c_8);
                        } else {
                            float c_part[64];
                            store_f32x16(&c_part[0], c_acc_0);
                            store_f32x16(&c_part[16], c_acc_1);
                            store_f32x16(&c_part[32], c_acc_2);
                            store_f32x16(&c_part[48], c_acc_3);
                            for (long i = i1; i < (i1 + 4 < 61 ? i1 + 4 : 61); ++i) {
                                for (long j = j1; j < (j1 + 16 < 37 ? j1 + 16 : 37); ++j) {
                                    const float c_total_ = c_part[(i - i1) * 16 + (j - j1)];
                                    const float c_9 = c[i * 37 + j];
                                    const float c_10 = c_9 + c_total_;
                                    c[i * 37 + j] = c_10;
                                }
                            }
                        }
                    }
                }
                for (long slice = a_slice; slice < a_slices; ++slice) {
                    const long i_slice = i_ahead + slice / 32 * 4;
                    const long k_slice = k0 + slice % 32 * 2;
                    if (i_slice + 4 <= 61) {
                        for (long k1 = k_slice; k1 < k_slice + 2; ++k1) {
                            const float *a_at_2 = &a[i_slice * 4096 + k1 * 32];
                            const float a_11 = a_at_2[0];
                            float *a_packed_at_3 = &a_packed[i_slice * 64 - i_ahead * 64 + k1 * 4 - k0 * 4 - a_half + 1024];
                            a_packed_at_3[0] = a_11;
                            const float a_12 = a_at_2[4096];
                            a_packed_at_3[1] = a_12;
                            const float a_13 = a_at_2[8192];
                            a_packed_at_3[2] = a_13;
                            const float a_14 = a_at_2[12288];
                            a_packed_at_3[3] = a_14;
                        }
                    } else {
                        for (long k1 = k_slice; k1 < k_slice + 2; ++k1) {
                            for (long i = i_slice; i < (i_slice + 4 < 61 ? i_slice + 4 : 61); ++i) {
                                const float a_10 = a[i * 4096 + k1 * 32];
                                a_packed[-(i_ahead * 64) + i_slice * 63 + k1 * 4 - k0 * 4 + i + (1024 - a_half)] = a_10;
                            }
                        }
                    }
                }
            }
        }
    }
}

struct launch_0_given { const float *a; const float *b; float *c; char *workspace; };
static void launch_0_part(void *given, long tid, long n_threads, struct ks_team *team) {
    (void)team;
    const struct launch_0_given *g = given;
    launch_0_thread(g->a, g->b, g->c, g->workspace, tid, n_threads);
}

static void launch_0(const float *restrict a, const float *restrict b, float *restrict c, char *restrict workspace) {
    struct launch_0_given given = {a, b, c, workspace};
    ks_team_run(launch_0_part, &given, 4, 0);
}

void run_sequence(void **args);
void run_sequence(void **args) {
    float *a = args[0];
    float *b = args[1];
    float *c = args[2];
    char *workspace = args[3];
    launch_0(a, b, c, workspace);
}
