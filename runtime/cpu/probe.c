/* What the machine can do: rates of every memory level, of arithmetic, and what starting work costs.
 *
 * Every function returns the nanoseconds of one repetition, measured by thread 0 between two barriers while all
 * threads work on arrays of their own. The caller repeats and takes the optimistic end. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define VECTOR_REGISTERS 32
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define VECTOR_REGISTERS 16
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 32
#else
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 16
#endif

typedef float vf __attribute__((vector_size(VECTOR_BYTES), may_alias));
typedef double vd __attribute__((vector_size(VECTOR_BYTES)));

static inline void stream(vf *p, vf v) {
#if defined(__AVX512F__)
  _mm512_stream_ps((float *)p, (__m512)v);
#elif defined(__AVX__)
  _mm256_stream_ps((float *)p, (__m256)v);
#elif defined(__SSE2__)
  _mm_stream_ps((float *)p, (__m128)v);
#else
  *p = v;
#endif
}

static inline void stream_fence(void) {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/* The team of threads (team.c), which the process has. */
struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_meet(struct ks_team *team);

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int ks_vector_bytes(void) { return VECTOR_BYTES; }
int ks_vector_registers(void) { return VECTOR_REGISTERS; }

enum { READ, WRITE, WRITE_NT, COPY, COPY_NT, TRIAD_NT, SCALE, READ3_WRITE_NT, TRIAD, READ3_WRITE, N_KINDS };

/* The register class of vectors in inline assembly. */
#if defined(__x86_64__) && defined(__AVX512F__)
#define IN_VECTOR "v"
#elif defined(__x86_64__)
#define IN_VECTOR "x"
#else
#define IN_VECTOR "w"
#endif
/* At -O2 gcc leaves these loops rolled and their accumulators in memory. */
#if defined(__clang__)
#define UNROLL(n) _Pragma("unroll")
#else
#define UNROLL(n) UNROLL_TEXT(GCC unroll n)
#define UNROLL_TEXT(text) _Pragma(#text)
#endif

/* A value the compiler knows nothing of: equal chains would be computed once. */
#define OPAQUE(value) __asm__ volatile("" : "+" IN_VECTOR(value))
#define KEEP(value) __asm__ volatile("" : : IN_VECTOR(value))

/* a, b, c, d: n vectors each, n a multiple of 8. */
static void pass(int kind, vf *restrict a, vf *restrict b, vf *restrict c, vf *restrict d, long n) {
  const vf s = (vf){0} + 0.999f;
  switch (kind) {
    case READ: {
      vf t[8] = {a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]};
      for (long i = 0; i < n; i += 8) UNROLL(8)
        for (int k = 0; k < 8; k++) t[k] += a[i + k];
      UNROLL(8) for (int k = 0; k < 8; k++) KEEP(t[k]);
      break;
    }
    case WRITE:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) a[i + k] = s;
      break;
    case WRITE_NT:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) stream(&a[i + k], s);
      break;
    case COPY:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) a[i + k] = b[i + k];
      break;
    case COPY_NT:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) stream(&a[i + k], b[i + k]);
      break;
    case TRIAD_NT:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) stream(&a[i + k], b[i + k] + s * c[i + k]);
      break;
    case SCALE:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) a[i + k] *= s;
      break;
    case READ3_WRITE_NT:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) stream(&a[i + k], b[i + k] + s * c[i + k] + d[i + k]);
      break;
    case TRIAD:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) a[i + k] = b[i + k] + s * c[i + k];
      break;
    case READ3_WRITE:
      for (long i = 0; i < n; i += 4) UNROLL(4)
        for (int k = 0; k < 4; k++) a[i + k] = b[i + k] + s * c[i + k] + d[i + k];
      break;
  }
  stream_fence();
  __asm__ volatile("" : : "r"(a) : "memory");
}

static const int n_arrays[N_KINDS] = {1, 1, 1, 2, 2, 3, 1, 4, 3, 4};

/* One thread's memory: touched by the thread itself, on huge pages. */
static char **arena;
static size_t arena_bytes;
static int arena_threads;

void ks_release(void) {
  for (int t = 0; t < arena_threads; t++) free(arena[t]);
  free(arena);
  arena = NULL;
  arena_threads = 0;
}

/* What all threads of a measurement share. */
struct run {
  int threads, is_done;
  int kind, passes;
  int64_t n, offset;
  size_t step;
  double start, elapsed;
};

/* Runs a part by as many threads as the run says. On a busy machine fewer may come: then again. Nanoseconds; -1 when they never come. */
static double run_by_all(ks_part *part, struct run *run) {
  run->is_done = 0;
  for (int k = 0; k < 10000 && !run->is_done; k++) ks_team_run(part, run, run->threads, 1);
  return run->is_done ? run->elapsed : -1;
}

/* Whether all have come; then thread 0 takes the time from here to `ended`. */
static int begun(struct run *run, long tid, long n_threads, struct ks_team *team) {
  if (n_threads != run->threads) return 0;
  ks_team_meet(team);
  if (tid == 0) run->start = now_ns();
  return 1;
}

static void ended(struct run *run, long tid, struct ks_team *team) {
  ks_team_meet(team);
  if (tid == 0) {
    run->elapsed = now_ns() - run->start;
    run->is_done = 1;
  }
}

static atomic_int n_failed;

static void reserve_part(void *given, long tid, long n_threads, struct ks_team *team) {
  struct run *run = given;
  if (!begun(run, tid, n_threads, team)) return;
  void *p = NULL;
  if (posix_memalign(&p, 2 << 20, arena_bytes) == 0) {
#if defined(MADV_HUGEPAGE)
    madvise(p, arena_bytes, MADV_HUGEPAGE);
#endif
    float *x = p;
    for (size_t i = 0; i < arena_bytes / sizeof(float); i++) x[i] = 1.0f;
    arena[tid] = p;
  } else {
    atomic_fetch_add(&n_failed, 1);
  }
  ended(run, tid, team);
}

/* The number of threads whose memory could not be had: 0 when all is well. */
int ks_reserve(int threads, int64_t bytes) {
  ks_release();
  arena = calloc((size_t)threads, sizeof *arena);
  arena_threads = threads;
  arena_bytes = (size_t)bytes;
  n_failed = 0;
  struct run run = {.threads = threads};
  return run_by_all(reserve_part, &run) < 0 ? threads : n_failed;
}

static void stream_part(void *given, long tid, long n_threads, struct ks_team *team) {
  struct run *run = given;
  if (n_threads != run->threads) return;
  char *base = arena[tid] + run->offset;
  vf *x[4];
  for (int k = 0; k < 4; k++) x[k] = (vf *)(base + (k < n_arrays[run->kind] ? (size_t)k * run->step : 0));
  begun(run, tid, n_threads, team);
  for (int p = 0; p < run->passes; p++) pass(run->kind, x[0], x[1], x[2], x[3], run->n);
  ended(run, tid, team);
}

/* `passes` passes of one kind, every thread on arrays of `bytes` bytes each that begin `offset` bytes into its memory.
 * -1 when they do not fit the reserve. */
double ks_stream(int kind, int64_t bytes, int passes, int64_t offset) {
  /* Each array starts one line and a bit later in its page than the one before. */
  size_t step = ((size_t)bytes / 4096 + 2) * 4096 + 832;
  step -= step % VECTOR_BYTES;
  if ((size_t)offset + step * (size_t)n_arrays[kind] > arena_bytes) return -1;
  struct run run = {.threads = arena_threads, .kind = kind, .passes = passes, .offset = offset, .step = step};
  run.n = (int64_t)((size_t)bytes / VECTOR_BYTES / 8 * 8);
  return run_by_all(stream_part, &run);
}

#define PEAK(NAME, V, APART)                                                                           \
  static void NAME##_part(void *given, long tid, long n_threads, struct ks_team *team) {               \
    struct run *run = given;                                                                           \
    V a = (V){0} + 1, b = (V){0} + (V){0} + 0.5f;                                                      \
    V t0 = a, t1 = a, t2 = a, t3 = a, t4 = a, t5 = a, t6 = a, t7 = a, t8 = a, t9 = a;                  \
    OPAQUE(a); OPAQUE(b); OPAQUE(t0); OPAQUE(t1); OPAQUE(t2); OPAQUE(t3); OPAQUE(t4);                  \
    OPAQUE(t5); OPAQUE(t6); OPAQUE(t7); OPAQUE(t8); OPAQUE(t9);                                        \
    if (!begun(run, tid, n_threads, team)) return;                                                     \
    for (int64_t i = 0; i < run->n; i++) {                                                             \
      t0 = t0 * b + a; t1 = t1 * b + a; t2 = t2 * b + a; t3 = t3 * b + a;                              \
      t4 = t4 * b + a; t5 = t5 * b + a; t6 = t6 * b + a; t7 = t7 * b + a;                              \
      t8 = t8 * b + a; t9 = t9 * b + a;                                                                \
      APART                                                                                            \
    }                                                                                                  \
    ended(run, tid, team);                                                                             \
    KEEP(t0); KEEP(t1); KEEP(t2); KEEP(t3); KEEP(t4);                                                  \
    KEEP(t5); KEEP(t6); KEEP(t7); KEEP(t8); KEEP(t9);                                                  \
  }                                                                                                    \
  double NAME(int threads, int64_t n) {                                                                \
    struct run run = {.threads = threads, .n = n};                                                     \
    return run_by_all(NAME##_part, &run);                                                              \
  }

/* n rounds of ten independent chains: enough to hide the latency of four cycles on two units. */
PEAK(ks_peak_f32, vf, )
PEAK(ks_peak_f64, vd, )

/* The same of single elements, which no compiler may join to vectors. */
#define APART                                                                                          \
  OPAQUE(t0); OPAQUE(t1); OPAQUE(t2); OPAQUE(t3); OPAQUE(t4);                                          \
  OPAQUE(t5); OPAQUE(t6); OPAQUE(t7); OPAQUE(t8); OPAQUE(t9);
PEAK(ks_peak_scalar_f32, float, APART)
PEAK(ks_peak_scalar_f64, double, APART)
#undef APART

/* n rounds of eight chains of multiply-adds beside eight independent additions: some cores add in units of their own. */
#define MIXED(NAME, V)                                                                                 \
  static void NAME##_part(void *given, long tid, long n_threads, struct ks_team *team) {               \
    struct run *run = given;                                                                           \
    V a = (V){0} + 1, b = (V){0} + (V){0} + 0.5f;                                                      \
    V t0 = a, t1 = a, t2 = a, t3 = a, t4 = a, t5 = a, t6 = a, t7 = a;                                  \
    OPAQUE(a); OPAQUE(b); OPAQUE(t0); OPAQUE(t1); OPAQUE(t2); OPAQUE(t3);                              \
    OPAQUE(t4); OPAQUE(t5); OPAQUE(t6); OPAQUE(t7);                                                    \
    if (!begun(run, tid, n_threads, team)) return;                                                     \
    for (int64_t i = 0; i < run->n; i++) {                                                             \
      BESIDE(t0, V); BESIDE(t1, V); BESIDE(t2, V); BESIDE(t3, V);                                      \
      BESIDE(t4, V); BESIDE(t5, V); BESIDE(t6, V); BESIDE(t7, V);                                      \
    }                                                                                                  \
    ended(run, tid, team);                                                                             \
    KEEP(t0); KEEP(t1); KEEP(t2); KEEP(t3); KEEP(t4); KEEP(t5); KEEP(t6); KEEP(t7);                    \
  }                                                                                                    \
  double NAME(int threads, int64_t n) {                                                                \
    struct run run = {.threads = threads, .n = n};                                                     \
    return run_by_all(NAME##_part, &run);                                                              \
  }
/* A step of a chain, and a sum that no compiler takes from the step before. */
#define BESIDE(t, V)                                                                                   \
  {                                                                                                    \
    t = t * b + a;                                                                                     \
    OPAQUE(a);                                                                                         \
    V sum = a + b;                                                                                     \
    OPAQUE(sum);                                                                                       \
  }
MIXED(ks_peak_mixed_f32, vf)
MIXED(ks_peak_mixed_f64, vd)
#undef BESIDE

/* n rounds of sixteen loads or stores, side by side: of one element of each line some machines start fewer. */
#define PORT(NAME, T, QUALIFIER, ACTION)                                                               \
  static void NAME##_part(void *given, long tid, long n_threads, struct ks_team *team) {               \
    struct run *run = given;                                                                           \
    T elements[16] = {(T){0}}, value = (T){0};                                                         \
    QUALIFIER volatile T *p = elements;                                                                \
    if (!begun(run, tid, n_threads, team)) return;                                                     \
    for (int64_t i = 0; i < run->n; i++) UNROLL(16)                                                    \
      for (int k = 0; k < 16; k++) ACTION;                                                             \
    ended(run, tid, team);                                                                             \
    (void)value;                                                                                       \
  }                                                                                                    \
  double NAME(int threads, int64_t n) {                                                                \
    struct run run = {.threads = threads, .n = n};                                                     \
    return run_by_all(NAME##_part, &run) / AT_ONCE;                                                    \
  }
#if defined(__aarch64__)
#define AT_ONCE 2 /* a compiler may load or store two neighbours at once, but for volatile ones */
#else
#define AT_ONCE 1
#endif

PORT(ks_peak_loads, int32_t, const, (void)p[k])
PORT(ks_peak_vector_loads, vf, const, (void)p[k])
PORT(ks_peak_stores, int32_t, , p[k] = value)
PORT(ks_peak_vector_stores, vf, , p[k] = value)

/* n rounds of sixteen elements that vectors gather, as codegen/bodies/lanes_memory.py has them: by instructions or lane by lane. */
#define GATHER(NAME, V, I, LANES, T, ...)                                                              \
  static void NAME##_part(void *given, long tid, long n_threads, struct ks_team *team) {               \
    struct run *run = given;                                                                           \
    double elements[16] = {0};                                                                         \
    int32_t places[16];                                                                                \
    for (int k = 0; k < 16; k++) places[k] = run->kind * k;                                            \
    I at;                                                                                              \
    memcpy(&at, places, sizeof at);                                                                    \
    const T *p = (const T *)elements;                                                                  \
    __asm__ volatile("" : "+r"(p) : : "memory");                                                       \
    if (!begun(run, tid, n_threads, team)) return;                                                     \
    for (int64_t i = 0; i < run->n; i++) UNROLL(16)                                                    \
      for (int k = 0; k < 16; k += (LANES)) {                                                          \
        OPAQUE(at);                                                                                    \
        V r = {0};                                                                                     \
        __VA_ARGS__                                                                                    \
        KEEP(r);                                                                                       \
      }                                                                                                \
    ended(run, tid, team);                                                                             \
  }
typedef float f32_apart __attribute__((may_alias)); /* of an array of double */
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));
#define LANE_BY_LANE(LANES) UNROLL(LANES) for (int l = 0; l < (LANES); l++) r[l] = p[at[l]];
GATHER(gather_one_f32, vf, vi, VECTOR_BYTES / 4, f32_apart, LANE_BY_LANE(VECTOR_BYTES / 4))
GATHER(gather_one_f64, vd, vi, VECTOR_BYTES / 8, double, LANE_BY_LANE(VECTOR_BYTES / 8))
#if defined(__AVX512F__) && defined(__AVX512VL__)
GATHER(gather_16_f32, __m512, __m512i, 16, f32_apart, r = _mm512_mask_i32gather_ps(r, 0xffff, at, p, 4);)
GATHER(gather_8_f32, __m256, __m256i, 8, f32_apart, r = _mm256_mmask_i32gather_ps(r, 0xff, at, p, 4);)
GATHER(gather_4_f32, __m128, __m128i, 4, f32_apart, r = _mm_mmask_i32gather_ps(r, 0xf, at, p, 4);)
GATHER(gather_8_f64, __m512d, __m256i, 8, double, r = _mm512_mask_i32gather_pd(r, 0xff, at, p, 8);)
GATHER(gather_4_f64, __m256d, __m128i, 4, double, r = _mm256_mmask_i32gather_pd(r, 0xf, at, p, 8);)
GATHER(gather_2_f64, __m128d, __m128i, 2, double, r = _mm_mmask_i32gather_pd(r, 0x3, at, p, 8);)
#define BY_INSTRUCTIONS                                                                                \
  gather_16_f32_part, gather_8_f32_part, gather_4_f32_part, gather_8_f64_part, gather_4_f64_part, gather_2_f64_part,
#elif defined(__AVX2__)
GATHER(gather_8_f32, __m256, __m256i, 8, float, r = _mm256_i32gather_ps(p, at, 4);)
GATHER(gather_4_f32, __m128, __m128i, 4, float, r = _mm_i32gather_ps(p, at, 4);)
GATHER(gather_4_f64, __m256d, __m128i, 4, double, r = _mm256_i32gather_pd(p, at, 8);)
GATHER(gather_2_f64, __m128d, __m128i, 2, double, r = _mm_i32gather_pd(p, at, 8);)
#define BY_INSTRUCTIONS gather_8_f32_part, gather_4_f32_part, gather_4_f64_part, gather_2_f64_part,
#else
#define BY_INSTRUCTIONS
#endif
double ks_peak_gathers(int threads, int64_t n) {
  ks_part *const ways[] = {BY_INSTRUCTIONS gather_one_f32_part, gather_one_f64_part};
  double least = -1;
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
    for (int apart = 0; apart < 2; apart++) { /* of one element, and of neighbours */
      struct run run = {.threads = threads, .n = n, .kind = apart};
      const double ns = run_by_all(ways[k], &run);
      if (ns > 0 && (least < 0 || ns < least)) least = ns;
    }
  return least;
}

/* n rounds of sixteen atomic additions to elements that no other thread wants, as codegen/bodies/vectors.py has them: side by side or all
   to one, whichever is quicker: on a Zen 3 one for additions of integers, others for what is exchanged. */
#define ATOMIC_PART(NAME, T, WHICH, ...)                                                               \
  static void NAME(void *given, long tid, long n_threads, struct ks_team *team) {                      \
    struct run *run = given;                                                                           \
    T elements[64] = {0}; /* the middle is in lines of its own */                                      \
    if (!begun(run, tid, n_threads, team)) return;                                                     \
    for (int64_t i = 0; i < run->n; i++) UNROLL(16)                                                    \
      for (int k = 0; k < 16; k++) {                                                                   \
        T *const place = &elements[16 + (WHICH)];                                                      \
        __VA_ARGS__                                                                                    \
      }                                                                                                \
    ended(run, tid, team);                                                                             \
    __asm__ volatile("" : : "r"(elements) : "memory");                                                 \
  }
#define ATOMICS(NAME, T, ...)                                                                          \
  ATOMIC_PART(NAME##_apart, T, k, __VA_ARGS__)                                                         \
  ATOMIC_PART(NAME##_one, T, 0, __VA_ARGS__)                                                           \
  double NAME(int threads, int64_t n) {                                                                \
    struct run apart = {.threads = threads, .n = n}, one = apart;                                      \
    const double apart_ns = run_by_all(NAME##_apart, &apart), one_ns = run_by_all(NAME##_one, &one);   \
    return apart_ns < one_ns ? apart_ns : one_ns;                                                      \
  }
#define EXCHANGED(T)                                                                                   \
  {                                                                                                    \
    T a, b;                                                                                            \
    __atomic_load(place, &a, __ATOMIC_RELAXED);                                                        \
    do b = a + 1;                                                                                      \
    while (!__atomic_compare_exchange(place, &a, &b, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));          \
  }

ATOMICS(ks_atomic_f32, float, EXCHANGED(float))
ATOMICS(ks_atomic_f64, double, EXCHANGED(double))
ATOMICS(ks_atomic_i32, int32_t, { __atomic_fetch_add(place, 1, __ATOMIC_RELAXED); })

/* n dependent vector additions by one thread: the latency of one, n times. */
double ks_add_latency(int64_t n) {
  vf t = (vf){0} + 1, a = (vf){0} + 1e-9f;
  OPAQUE(t);
  OPAQUE(a);
  double start = now_ns();
  for (int64_t i = 0; i < n; i++) {
    t += a;
    OPAQUE(t);
  }
  double elapsed = now_ns() - start;
  KEEP(t);
  return elapsed;
}

static void empty_part(void *given, long tid, long n_threads, struct ks_team *team) {
  (void)tid, (void)n_threads, (void)team;
  __asm__ volatile("" : : "r"(given) : "memory");
}

/* n launches of nothing. A thread that is not there at once is not waited for: no launch takes less. */
double ks_launch(int threads, int64_t n) {
  double start = now_ns();
  for (int64_t i = 0; i < n; i++) ks_team_run(empty_part, NULL, threads, 0);
  return now_ns() - start;
}

static void barrier_part(void *given, long tid, long n_threads, struct ks_team *team) {
  struct run *run = given;
  if (!begun(run, tid, n_threads, team)) return;
  for (int64_t i = 0; i < run->n; i++) ks_team_meet(team);
  ended(run, tid, team);
}

double ks_barrier(int threads, int64_t n) {
  struct run run = {.threads = threads, .n = n};
  return run_by_all(barrier_part, &run);
}

static void nothing(void **args) { __asm__ volatile("" : : "r"(args) : "memory"); }

double ks_call(int64_t n) {
  void (*volatile entry)(void **) = nothing;
  double start = now_ns();
  for (int64_t i = 0; i < n; i++) entry(NULL);
  return now_ns() - start;
}
