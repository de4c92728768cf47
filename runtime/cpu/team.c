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
 * A thread that loses its core inside a part keeps the others waiting. What that costs is weighed against what the thread has done, and
 * where it was too much the next launches go without the thread, one by one down to the caller alone, until they have taken KS_REST times
 * what was lost: so of the time of launches no more than that share is ever lost, whatever else the machine does.
 *
 * Who waits spins for a while, then sleeps. A caller that finds the team busy, another thread's or one inside a part, runs its launch
 * alone. A child of fork() starts a team of its own. */

/* --- meeting ---------------------------------------------------------------------------------------------------------------- */

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
  struct ks_member *m = ks_me = member;
  struct ks_team *t = &ks_the_team;
  for (uint32_t seen = atomic_load(&m->taken);;) {
    if (!ks_spin(&t->launch, seen, atomic_load_explicit(&m->rests, memory_order_relaxed) ? 0 : ks_spin_ns)) {
      atomic_store(&m->sleeps, 1);
      while (atomic_load(&t->launch) == seen && atomic_load(&m->sleeps)) ks_sleep(&m->sleeps, 1);
      atomic_store(&m->sleeps, 0);
    }
    const uint32_t launch = atomic_load(&t->launch);
    if (launch == 0) return NULL;
    if (launch == seen) continue;
    seen = launch;
    if (!ks_take(m, launch)) continue;
    for (uint32_t ready; (ready = atomic_load_explicit(&t->ready, memory_order_acquire)) != launch;) {
      ks_await(&t->ready, ready, &t->ready_sleeps); /* for those that the caller waits for, who may want this core */
    }
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
  t->worked = t->look_at = t->doubted = 0;
  t->first_tick = ks_ticks();
  t->first_ns = ks_now_ns();
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

/* Gives the launch's threads their numbers: the caller and the first of the others that do not rest. */
static void ks_number(struct ks_team *t, int here, int wanted) {
  int n_others = wanted - 1;
  t->here = here;
  t->planned = wanted;
  t->n_threads = 0;
  for (int k = 0; k < t->n_members; k++) {
    struct ks_member *m = &t->members[k];
    const int is_one = k == here || (!atomic_load_explicit(&m->rests, memory_order_relaxed) && n_others-- > 0);
    m->tid = is_one ? t->n_threads++ : -1;
  }
}

static int ks_asleep(const struct ks_team *t) {
  int n = 0;
  for (int k = 0; k < t->n_members; k++) n += ks_is_other(t, k) && atomic_load(&t->members[k].sleeps) != 0;
  return n;
}

/* Those who come in time are the team of this launch. */
static void ks_gather(struct ks_team *t, uint32_t launch) {
  const int64_t from_ns = ks_now_ns();
  long n = 0;
  t->planned = 0; /* numbered anew next time */
  for (int k = 0; k < t->n_members; k++) {
    struct ks_member *m = &t->members[k];
    if (ks_is_other(t, k)) {
      const int64_t rest = from_ns + KS_GATHER_NS - ks_now_ns();
      while (!ks_spin(&m->taken, launch - 1, rest) && ks_size) sched_yield();
      if (ks_take(m, launch)) {
        m->tid = -1;
        ks_charge(t, m, ks_now_ns() - from_ns);
        continue;
      }
    } else if (k != t->here) {
      continue;
    }
    m->tid = n++;
  }
  t->n_threads = n;
  atomic_store(&t->pending, (uint32_t)n - 1);
}

static void ks_finish(struct ks_team *t) {
  t->worked += ks_ticks() - t->from;
  atomic_store_explicit(&ks_is_busy, 0, memory_order_release);
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
  if (t->worked >= t->look_at) ks_readmit(t);
  if (here != t->here || wanted != t->planned) ks_number(t, here, (int)wanted);
  t->from = ks_ticks();
  if (t->n_threads == 1) { /* the others rest */
    part(given, 0, 1, NULL);
    ks_finish(t);
    return;
  }
  uint32_t launch = atomic_load_explicit(&t->launch, memory_order_relaxed) + 1;
  if (launch == 0) { /* after 2^32 launches: 0 would end the threads */
    ks_stop();
    atomic_store_explicit(&ks_is_busy, 0, memory_order_release);
    ks_team_run(part, given, wanted, meets);
    return;
  }
  if (ks_size) meets = 1;
  const int gathers = meets && (ks_asleep(t) || t->worked < t->doubted);
  t->part = part;
  t->given = given;
  for (int k = 0; k < t->n_members; k++) {
    if (k == here || t->members[k].tid < 0) atomic_store_explicit(&t->members[k].taken, launch, memory_order_relaxed);
  }
  if (!gathers) {
    atomic_store_explicit(&t->pending, (uint32_t)t->n_threads - 1, memory_order_relaxed);
    atomic_store_explicit(&t->ready, launch, memory_order_relaxed);
  }
  atomic_store(&t->launch, launch);
  for (int k = 0; k < t->n_members; k++) { /* also who has fallen asleep since */
    struct ks_member *m = &t->members[k];
    if (ks_is_other(t, k) && atomic_load(&m->sleeps) && atomic_exchange(&m->sleeps, 0)) {
      atomic_fetch_add_explicit(&t->n_wakes, 1, memory_order_relaxed);
      ks_wake(&m->sleeps);
    }
  }
  if (gathers) {
    ks_gather(t, launch);
    atomic_store(&t->ready, launch);
    if (atomic_load(&t->ready_sleeps)) ks_wake(&t->ready);
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
  ks_finish(t);
}

/* For measurements: launches keep threads that come late, so that all of them are run by as many. */
__attribute__((weak)) void ks_team_keep(int keeps) { ks_keeps = keeps; }

/* The number of threads that launches of this process have found asleep, and woken. */
__attribute__((weak)) uint64_t ks_team_wakes(void) { return atomic_load_explicit(&ks_the_team.n_wakes, memory_order_relaxed); }

/* For tests: launches get as many of n threads as they ask for, whatever the number of CPUs, and wait for all of them; 0: as usual. */
__attribute__((weak)) void ks_team_size(int n) {
  while (atomic_exchange(&ks_is_busy, 1)) sched_yield();
  ks_size = n;
  ks_stop();
  atomic_store(&ks_is_busy, 0);
}
