/* Waiting for the threads of a team, and who of them has no core: the first part of team.c, which says what it is for. */
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
/* Who waits for longer asks whether those it waits for have a core: it takes the system 1 us a thread to say. */
#if !defined(KS_PROMPT_NS)
#define KS_PROMPT_NS 30000
#endif
/* So long a thread has to have done its work in time for its first lateness to be forgiven: what a quiet system does now and then. */
#define KS_CREDIT_NS 4000000
/* Who was late for longer rests: so many times as long, times the number of those that rest, each of which is tried again. */
#define KS_REST 16
/* What a launch may lose and still be paid for in full, by 16 s of launches. */
#define KS_MOST_LOST_NS 1000000000
/* Between two looks at the clock, 0.5 us apart: who was away for longer had to give up its core, and others want it. */
#define KS_AWAY_NS 20000

struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_meet(struct ks_team *team);
void ks_team_size(int n);
void ks_team_keep(int keeps);
uint64_t ks_team_wakes(void);

typedef _Atomic uint32_t ks_word;

/* The thread of one CPU. Lines in pairs are one to some prefetchers. */
struct ks_member {
  _Alignas(128) ks_word taken; /* the last launch of which somebody runs, or nobody needs, its part */
  _Alignas(128) ks_word sleeps;
  ks_word meets; /* asleep at a barrier: one more than its number */
  ks_word rests; /* has no part in launches */
  long tid;      /* in the present launch */
  int cpu, is_late;
  pthread_t thread;
  int64_t used_ns;       /* of its core, as the caller began to wait */
  uint64_t since, until; /* of `worked`: in time since then, rests until then */
};

struct ks_team {
  _Alignas(128) ks_word launch; /* the number of the present one; 0: the threads end */
  ks_word ready;                /* the launch whose n_threads and tids are known */
  ks_word ready_sleeps;
  ks_part *part;
  void *given;
  long n_threads; /* that run the present launch */
  _Alignas(128) ks_word pending; /* parts that others have to end */
  ks_word caller_sleeps;
  _Alignas(128) ks_word arrived; /* at the barrier */
  ks_word meeting; /* the number of barriers passed */
  ks_word meeting_sleeps;
  _Alignas(128) int n_members, here, planned; /* the last launch's caller and n_threads, for which the tids are */
  uint64_t worked, from;                      /* ticks of all launches before, and when the present one began */
  uint64_t look_at, doubted;                  /* of `worked`: when somebody has rested, until when who is awake may have no core */
  uint64_t first_tick;
  int64_t first_ns;
  _Atomic uint64_t n_wakes; /* of threads that launches found asleep */
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
static int ks_keeps;       /* threads that come late */
static int64_t ks_spin_ns; /* before who waits sleeps */
static _Thread_local struct ks_member *ks_me; /* NULL: a caller */

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

/* --- who has no core ---------------------------------------------------------------------------------------------------------- */

/* Evenly counted, and read in 20 ns where a clock takes 50. */
static inline uint64_t ks_ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return (uint64_t)ks_now_ns();
#endif
}

static uint64_t ks_in_ticks(const struct ks_team *t, int64_t ns) {
  const double passed_ns = (double)(ks_now_ns() - t->first_ns + 1);
  return (uint64_t)((double)(ks_ticks() - t->first_tick) / passed_ns * (double)ns);
}

/* The nanoseconds for which a thread has had a core; -1: the system does not say. */
static int64_t ks_used_ns(const struct ks_member *m) {
#if defined(__linux__)
  clockid_t clock;
  struct timespec used;
  if (pthread_getcpuclockid(m->thread, &clock) == 0 && clock_gettime(clock, &used) == 0) {
    return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
  }
#endif
  (void)m;
  return -1;
}

static int ks_is_other(const struct ks_team *t, int k) { return k != t->here && t->members[k].tid >= 0; }

/* Notes what the others have used so far, as long as the word has this value. */
static void ks_note_used(struct ks_team *t, ks_word *word, uint32_t value) {
  for (int k = 0; k < t->n_members && atomic_load(word) == value; k++) {
    if (ks_is_other(t, k)) t->members[k].used_ns = ks_used_ns(&t->members[k]);
  }
}

/* Marks those of the others that want a core and had none for most of the time since then; whether there are any. */
static int ks_find_late(struct ks_team *t, int64_t passed_ns, ks_word *word, uint32_t value) {
  int n = 0;
  for (int k = 0; k < t->n_members; k++) {
    struct ks_member *m = &t->members[k];
    m->is_late = 0;
    if (!ks_is_other(t, k) || atomic_load(&m->sleeps) || atomic_load(word) != value) continue;
    if (word == &t->meeting && atomic_load(&m->meets) == value + 1) continue;
    const int64_t used_ns = ks_used_ns(m);
    m->is_late = used_ns >= 0 && 2 * (used_ns - m->used_ns) < passed_ns;
    n += m->is_late;
  }
  return n > 0;
}

/* A launch waited for this thread, which had no core. */
static void ks_charge(struct ks_team *t, struct ks_member *m, int64_t lost_ns) {
  if (ks_size || ks_keeps) return;
  const uint64_t lost = ks_in_ticks(t, lost_ns < KS_MOST_LOST_NS ? lost_ns : KS_MOST_LOST_NS);
  const uint64_t most = ks_in_ticks(t, KS_CREDIT_NS);
  const uint64_t now = t->worked + (ks_ticks() - t->from);
  const uint64_t earned = now > m->since + lost ? now - lost - m->since : 0;
  const uint64_t credit = earned < most ? earned : most;
  if (lost <= credit) {
    m->since = now - (credit - lost);
    return;
  }
  atomic_store_explicit(&m->rests, 1, memory_order_relaxed);
  uint64_t n_resting = 0; /* each of them is tried again, and may cost as much */
  for (int k = 0; k < t->n_members; k++) n_resting += atomic_load_explicit(&t->members[k].rests, memory_order_relaxed);
  m->until = (m->until > now ? m->until : now) + KS_REST * n_resting * (lost - credit);
  m->since = m->until;
  if (m->until < t->look_at) t->look_at = m->until;
  if (m->until + most > t->doubted) t->doubted = m->until + most;
  t->planned = 0; /* numbered anew next time */
}

/* Lets those have parts again that have rested for long enough. */
static void ks_readmit(struct ks_team *t) {
  t->look_at = UINT64_MAX;
  for (int k = 0; k < t->n_members; k++) {
    struct ks_member *m = &t->members[k];
    if (!atomic_load_explicit(&m->rests, memory_order_relaxed)) continue;
    if (m->until <= t->worked) {
      atomic_store_explicit(&m->rests, 0, memory_order_relaxed);
      t->planned = 0;
    } else if (m->until < t->look_at) {
      t->look_at = m->until;
    }
  }
}

/* --- waiting for one another -------------------------------------------------------------------------------------------------- */

/* Waits for longer than a moment. The caller of a launch sleeps as soon as somebody has no core, who may want this one. */
static void ks_await_long(ks_word *word, uint32_t value, ks_word *sleeps) {
  struct ks_team *t = &ks_the_team;
  struct ks_member *me = ks_me;
  const int looks = me == NULL && !ks_size;
  const int64_t from_ns = ks_now_ns();
  int64_t waited_ns = 0;
  int has_late = 0;
  if (looks) ks_note_used(t, word, value);
  while (!has_late && waited_ns < ks_spin_ns) {
    if (ks_spin(word, value, KS_PROMPT_NS)) return;
    waited_ns = ks_now_ns() - from_ns;
    if (looks) has_late = ks_find_late(t, waited_ns, word, value);
  }
  if (me != NULL && word == &t->meeting) atomic_store(&me->meets, value + 1);
  atomic_fetch_add(sleeps, 1);
  while (atomic_load(word) == value) ks_sleep(word, value);
  atomic_fetch_sub(sleeps, 1);
  if (me != NULL) atomic_store(&me->meets, 0);
  if (!has_late) return;
  const int64_t lost_ns = ks_now_ns() - from_ns + KS_PROMPT_NS;
  for (int k = 0; k < t->n_members; k++) {
    if (t->members[k].is_late) ks_charge(t, &t->members[k], lost_ns);
  }
}

/* Returns when the word has another value; `sleeps` is not 0 while somebody sleeps. */
static void ks_await(ks_word *word, uint32_t value, ks_word *sleeps) {
  if (!ks_spin(word, value, ks_size ? 0 : KS_PROMPT_NS)) ks_await_long(word, value, sleeps);
}
