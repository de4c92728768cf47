/* The entry of a sequence as data: calls of units in order, some of them repeated. */
#include <stdint.h>
#include <stddef.h>
#include <time.h>

struct ks_call {
  void (*run)(void **slots);
  void **slots;
  int64_t component; /* -1: of none */
};

/* Calls `first` to `stop - 1`, so many times, or until the integer of `n_bytes` at `end`, if there is one, is not 0.
   Outer ones come first; two are nested or disjoint. */
struct ks_repeat {
  int64_t first, stop, count;
  long *step;
  const void *end;
  int64_t n_bytes;
};

struct ks_table {
  int64_t n_calls, n_repeats;
  const struct ks_call *calls;
  const struct ks_repeat *repeats;
  int64_t *component_ns; /* of the last run, by component, with the cost of the clock */
  int64_t *component_runs;
};

static int64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t run_calls(const struct ks_table *t, int64_t first, int64_t stop, int64_t from_ns) {
  for (int64_t k = first; k < stop; k++) {
    const struct ks_call *call = &t->calls[k];
    call->run(call->slots);
    const int64_t now_ns = clock_ns();
    if (call->component >= 0) {
      t->component_ns[call->component] += now_ns - from_ns;
      t->component_runs[call->component]++;
    }
    from_ns = now_ns;
  }
  return from_ns;
}

static int is_over(const struct ks_repeat *x) {
  const char *end = x->end;
  for (int64_t k = 0; k < x->n_bytes; k++)
    if (end[k]) return 1;
  return 0;
}

/* Runs calls with the repeats from number r on that lie in them; the time after the last. */
static int64_t run_part(const struct ks_table *t, int64_t first, int64_t stop, int64_t r, int64_t from_ns) {
  while (r < t->n_repeats && t->repeats[r].first < stop) {
    const struct ks_repeat *x = &t->repeats[r];
    from_ns = run_calls(t, first, x->first, from_ns);
    for (*x->step = 0; *x->step < x->count; ++*x->step) {
      from_ns = run_part(t, x->first, x->stop, r + 1, from_ns);
      if (is_over(x)) break;
    }
    first = x->stop;
    while (r < t->n_repeats && t->repeats[r].first < first) r++;
  }
  return run_calls(t, first, stop, from_ns);
}

/* An entry, as `run_sequence` of a text is one; its argument vector is the table, bound to arguments. */
void ks_run_table(void **bound) {
  const struct ks_table *t = (const void *)bound;
  for (int64_t k = 0; k < t->n_calls; k++)
    if (t->calls[k].component >= 0) t->component_ns[t->calls[k].component] = t->component_runs[t->calls[k].component] = 0;
  run_part(t, 0, t->n_calls, 0, clock_ns());
}

/* Nanoseconds that one look at the clock adds to the time of a call. */
int64_t ks_clock_cost(void) {
  int64_t least = INT64_MAX;
  for (int k = 0; k < 1000; k++) {
    const int64_t from_ns = clock_ns(), taken_ns = clock_ns() - from_ns;
    if (taken_ns < least) least = taken_ns;
  }
  return least;
}
