/* The threads that run the parallel launches of generated code: one team for a process, started by its first launch.
 *
 * Each CPU that the process may use has a thread, bound to it. A launch is run by the thread that calls, which is never bound, and by
 * the threads of the other CPUs, so that no two of them want one core wherever the caller happens to be. Part k of a launch belongs
 * to CPU k, so that a part's data stay in the caches of one core.
 *
 * A part that its thread has not begun when the caller is done with its own is run by the caller: on a busy machine nothing waits for
 * a thread that has no core. Where parts meet at barriers they have to run at the same time: there the caller first waits a moment,
 * and divides the work among those that have come.
 *
 * Who waits spins for a while, then sleeps. A caller that finds the team busy, another thread's or one inside a part, runs its launch
 * alone. A child of fork() starts a team of its own. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

/* Nanoseconds. A thread that sleeps is running again after 5 to 50 us. Calls from Python follow one another after 5 to 20 us, and the
 * threads of a launch end as much as 100 us apart where memory is what they wait for. */
#if !defined(KS_SPIN_NS)
#define KS_SPIN_NS 200000
#endif
/* A thread that is awake comes within 1 us. Who has not come after so long has no core. */
#if !defined(KS_GATHER_NS)
#define KS_GATHER_NS 100000
#endif
/* Between two looks at the clock, 0.5 us apart: who was away for longer had to give up its core, and others want it. */
#define KS_AWAY_NS 20000

struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_meet(struct ks_team *team);
void ks_team_size(int n);

typedef _Atomic uint32_t ks_word;

/* The thread of one CPU. Lines in pairs are one to some prefetchers. */
struct ks_member {
  _Alignas(128) ks_word taken; /* the last launch of which somebody runs, or nobody needs, its part */
  _Alignas(128) ks_word sleeps;
  long tid; /* in the present launch */
  int cpu;
  pthread_t thread;
};

struct ks_team {
  _Alignas(128) ks_word launch; /* the number of the present one; 0: the threads end */
  ks_word ready;                /* the launch whose n_threads and tids are known */
  ks_part *part;
  void *given;
  long n_threads; /* that run the present launch */
  _Alignas(128) ks_word pending; /* parts that others have to end */
  ks_word caller_sleeps;
  _Alignas(128) ks_word arrived; /* at the barrier */
  ks_word meeting; /* the number of barriers passed */
  ks_word meeting_sleeps;
  _Alignas(128) int n_members, here, planned; /* the last launch's caller and n_threads, for which the tids are */
  struct ks_member *members;
  void *block; /* what `members` is in */
#if defined(__linux__)
  cpu_set_t cpus;
  short member_of[CPU_SETSIZE]; /* -1: not one of `cpus` */
#endif
};

static struct ks_team ks_the_team;
static ks_word ks_is_busy;
static int ks_size;        /* of the team; 0: as many as there are CPUs */
static int64_t ks_spin_ns; /* before who waits sleeps */

static int64_t ks_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* --- waiting ---------------------------------------------------------------------------------------------------------------- */

#if defined(__linux__)
static void ks_sleep(ks_word *word, uint32_t value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void ks_wake(ks_word *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0); }
#else
static pthread_mutex_t ks_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ks_woken = PTHREAD_COND_INITIALIZER;

static void ks_sleep(ks_word *word, uint32_t value) {
  pthread_mutex_lock(&ks_mutex);
  if (*word == value) pthread_cond_wait(&ks_woken, &ks_mutex);
  pthread_mutex_unlock(&ks_mutex);
}

static void ks_wake(ks_word *word) {
  (void)word;
  pthread_mutex_lock(&ks_mutex);
  pthread_cond_broadcast(&ks_woken);
  pthread_mutex_unlock(&ks_mutex);
}
#endif

static inline void ks_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");
#endif
}

/* Spins while the word has this value, for `limit_ns` at most; whether it has another one then. */
static int ks_spin(ks_word *word, uint32_t value, int64_t limit_ns) {
  int64_t first = 0, last = 0;
  for (int k = 0;; k++) {
    if (atomic_load_explicit(word, memory_order_acquire) != value) return 1;
    ks_pause();
    if (k % 32 != 31) continue;
    const int64_t now = ks_now_ns();
    if (first == 0) first = last = now;
    if (now - first > limit_ns || now - last > KS_AWAY_NS) return 0;
    last = now;
  }
}

/* Returns when the word has another value; `sleeps` is not 0 while somebody sleeps. */
static void ks_await(ks_word *word, uint32_t value, ks_word *sleeps) {
  if (ks_spin(word, value, ks_spin_ns)) return;
  atomic_fetch_add(sleeps, 1);
  while (atomic_load(word) == value) ks_sleep(word, value);
  atomic_fetch_sub(sleeps, 1);
}

__attribute__((weak)) void ks_team_meet(struct ks_team *t) {
  if (t == NULL) return;
  const uint32_t meeting = atomic_load_explicit(&t->meeting, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) + 1 < (uint32_t)t->n_threads) {
    ks_await(&t->meeting, meeting, &t->meeting_sleeps);
    return;
  }
  atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
  atomic_store(&t->meeting, meeting + 1);
  if (atomic_load(&t->meeting_sleeps)) ks_wake(&t->meeting);
}

/* --- the threads of the CPUs ------------------------------------------------------------------------------------------------ */

static int ks_take(struct ks_member *m, uint32_t launch) {
  uint32_t before = launch - 1;
  return atomic_load_explicit(&m->taken, memory_order_relaxed) == before && atomic_compare_exchange_strong(&m->taken, &before, launch);
}

static void *ks_serve(void *member) {
  struct ks_member *m = member;
  struct ks_team *t = &ks_the_team;
  for (uint32_t seen = atomic_load(&m->taken);;) {
    if (!ks_spin(&t->launch, seen, ks_spin_ns)) {
      atomic_store(&m->sleeps, 1);
      while (atomic_load(&t->launch) == seen && atomic_load(&m->sleeps)) ks_sleep(&m->sleeps, 1);
      atomic_store(&m->sleeps, 0);
    }
    const uint32_t launch = atomic_load(&t->launch);
    if (launch == 0) return NULL;
    if (launch == seen) continue;
    seen = launch;
    if (!ks_take(m, launch)) continue;
    /* Where threads share cores, who spins keeps away those that the caller waits for: 20 ms a launch of five threads on two cores. */
    while (atomic_load_explicit(&t->ready, memory_order_acquire) != launch) ks_size ? (void)sched_yield() : ks_pause();
    t->part(t->given, m->tid, t->n_threads, t);
    if (atomic_fetch_sub(&t->pending, 1) == 1 && atomic_load(&t->caller_sleeps)) ks_wake(&t->pending);
  }
}

static void ks_stop(void) {
  struct ks_team *t = &ks_the_team;
  atomic_store(&t->launch, 0);
  for (int k = 0; k < t->n_members; k++) {
    atomic_store(&t->members[k].sleeps, 0);
    ks_wake(&t->members[k].sleeps);
    pthread_join(t->members[k].thread, NULL);
  }
  t->n_members = 0;
  free(t->block);
  t->block = NULL;
}

static void ks_forget(void) { /* in a child of fork(), which has none of the threads */
  memset((void *)&ks_the_team, 0, sizeof ks_the_team);
  atomic_store(&ks_is_busy, 0);
}

/* As a library is closed, and at the end of the process: threads must not run on in code that is gone. */
__attribute__((destructor)) static void ks_end(void) {
  if (!atomic_exchange(&ks_is_busy, 1)) ks_stop();
}

/* Starts a thread for each of n CPUs; fewer where the system gives no more. */
static void ks_start(int n) {
  struct ks_team *t = &ks_the_team;
  static int is_known;
  if (!is_known) pthread_atfork(NULL, NULL, ks_forget);
  is_known = 1;
  t->block = calloc(1, sizeof(struct ks_member) * (size_t)n + 128);
  if (t->block == NULL) return;
  t->members = (struct ks_member *)(((uintptr_t)t->block + 127) / 128 * 128);
  t->planned = 0;
  atomic_store(&t->launch, 1);
  sigset_t all, before;
  sigfillset(&all); /* what is sent to the process is not for these threads; what they do wrong themselves is */
  sigdelset(&all, SIGSEGV), sigdelset(&all, SIGBUS), sigdelset(&all, SIGILL), sigdelset(&all, SIGFPE), sigdelset(&all, SIGABRT);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
#if defined(__linux__)
  for (int k = 0; k < CPU_SETSIZE; k++) t->member_of[k] = -1;
  int cpu = -1;
#endif
  for (int k = 0; k < n; k++) {
    struct ks_member *m = &t->members[k];
    atomic_store(&m->taken, 1);
#if defined(__linux__)
    do cpu = (cpu + 1) % CPU_SETSIZE;
    while (!CPU_ISSET(cpu, &t->cpus));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_attr_setaffinity_np(&attributes, sizeof one, &one);
    if (t->member_of[cpu] < 0) t->member_of[cpu] = (short)k;
    m->cpu = cpu;
#endif
    if (pthread_create(&m->thread, &attributes, ks_serve, m) != 0) break;
    t->n_members = k + 1;
  }
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Looks again at the CPUs that the caller may use, and sees to a team for them; whether there are several. */
static int ks_renew(void) {
  struct ks_team *t = &ks_the_team;
#if defined(__linux__)
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 0; /* more CPUs than a set has */
  const int n = ks_size ? ks_size : CPU_COUNT(&cpus);
  if (n < 2) return 0; /* a team may be there for other callers */
  if (t->block != NULL && CPU_EQUAL(&cpus, &t->cpus)) return 1;
  if (t->block != NULL) ks_stop();
  t->cpus = cpus;
#else
  const int n = ks_size ? ks_size : (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (n < 2) return 0;
  if (t->block != NULL) return 1;
#endif
  ks_spin_ns = ks_size ? 0 : KS_SPIN_NS;
  ks_start(n);
  return t->n_members > 1;
}

/* --- the caller ------------------------------------------------------------------------------------------------------------- */

static int ks_here(const struct ks_team *t) {
#if defined(__linux__)
  const int cpu = sched_getcpu();
  if (t->n_members == 0 || cpu < 0 || cpu >= CPU_SETSIZE) return -1;
  return t->member_of[cpu] < t->n_members ? t->member_of[cpu] : -1;
#else
  return t->n_members ? 0 : -1;
#endif
}

/* Gives the launch's threads their numbers: the caller and the first of the others. */
static void ks_number(struct ks_team *t, int here, int wanted) {
  const int n = wanted < t->n_members ? wanted : t->n_members;
  t->here = here;
  t->planned = wanted;
  t->n_threads = 0;
  for (int k = 0; k < t->n_members; k++) {
    const int is_one = k == here || (here < n ? k < n : k < n - 1);
    t->members[k].tid = is_one ? t->n_threads++ : -1;
  }
}

static int ks_asleep(const struct ks_team *t) {
  int n = 0;
  for (int k = 0; k < t->n_members; k++) n += k != t->here && t->members[k].tid >= 0 && atomic_load(&t->members[k].sleeps) != 0;
  return n;
}

/* Those who come in time are the team of this launch. */
static void ks_gather(struct ks_team *t, uint32_t launch) {
  const int64_t end = ks_now_ns() + KS_GATHER_NS;
  long n = 0;
  for (int k = 0; k < t->n_members; k++) {
    struct ks_member *m = &t->members[k];
    if (k != t->here && m->tid >= 0) {
      const int64_t rest = end - ks_now_ns();
      while (!ks_spin(&m->taken, launch - 1, rest) && ks_size) sched_yield();
      if (ks_take(m, launch)) continue;
    } else if (k != t->here) {
      continue;
    }
    m->tid = n++;
  }
  t->n_threads = n;
  t->planned = 0; /* numbered anew next time */
  atomic_store(&t->pending, (uint32_t)n - 1);
}

__attribute__((weak)) void ks_team_run(ks_part *part, void *given, long wanted, int meets) {
  struct ks_team *t = &ks_the_team;
  if (wanted <= 1 || atomic_load_explicit(&ks_is_busy, memory_order_relaxed) || atomic_exchange(&ks_is_busy, 1)) {
    part(given, 0, 1, NULL);
    return;
  }
  int here = ks_here(t);
  if (here < 0 || ks_asleep(t)) here = ks_renew() ? ks_here(t) : -1;
  if (here < 0) {
    atomic_store_explicit(&ks_is_busy, 0, memory_order_release);
    part(given, 0, 1, NULL);
    return;
  }
  if (here != t->here || wanted != t->planned) ks_number(t, here, (int)wanted);
  uint32_t launch = atomic_load_explicit(&t->launch, memory_order_relaxed) + 1;
  if (launch == 0) { /* after 2^32 launches: 0 would end the threads */
    ks_stop();
    atomic_store_explicit(&ks_is_busy, 0, memory_order_release);
    ks_team_run(part, given, wanted, meets);
    return;
  }
  if (ks_size) meets = 1;
  const int n_asleep = ks_asleep(t);
  t->part = part;
  t->given = given;
  for (int k = 0; k < t->n_members; k++) {
    if (k == here || t->members[k].tid < 0) atomic_store_explicit(&t->members[k].taken, launch, memory_order_relaxed);
  }
  if (!(meets && n_asleep)) {
    atomic_store_explicit(&t->pending, (uint32_t)t->n_threads - 1, memory_order_relaxed);
    atomic_store_explicit(&t->ready, launch, memory_order_relaxed);
  }
  atomic_store(&t->launch, launch);
  for (int k = 0; k < t->n_members; k++) { /* also who has fallen asleep since */
    struct ks_member *m = &t->members[k];
    if (k != here && m->tid >= 0 && atomic_load(&m->sleeps) && atomic_exchange(&m->sleeps, 0)) ks_wake(&m->sleeps);
  }
  if (meets && n_asleep) {
    ks_gather(t, launch);
    atomic_store_explicit(&t->ready, launch, memory_order_release);
  }
  const long n_threads = t->n_threads;
  part(given, t->members[here].tid, n_threads, n_threads > 1 ? t : NULL);
  if (!meets && atomic_load_explicit(&t->pending, memory_order_acquire) != 0) {
    for (int k = 0; k < t->n_members; k++) {
      if (t->members[k].tid >= 0 && ks_take(&t->members[k], launch)) {
        part(given, t->members[k].tid, n_threads, t);
        atomic_fetch_sub(&t->pending, 1);
      }
    }
  }
  for (uint32_t left; (left = atomic_load_explicit(&t->pending, memory_order_acquire)) != 0;) {
    ks_await(&t->pending, left, &t->caller_sleeps);
  }
  atomic_store_explicit(&ks_is_busy, 0, memory_order_release);
}

/* For tests: launches get as many of n threads as they ask for, whatever the number of CPUs, and wait for all of them; 0: as usual. */
__attribute__((weak)) void ks_team_size(int n) {
  while (atomic_exchange(&ks_is_busy, 1)) sched_yield();
  ks_size = n;
  ks_stop();
  atomic_store(&ks_is_busy, 0);
}
