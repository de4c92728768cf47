/* Runs a candidate n times by the clock, and reports a fault before the signal ends the child. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* team.c, which is in the same library. */
struct ks_team;
typedef void ks_part(void *given, long tid, long n_threads, struct ks_team *team);
void ks_team_run(ks_part *part, void *given, long n_threads, int meets);
void ks_team_keep(int keeps);

typedef void (*entry_fn)(void **args);

/* Nanoseconds that n calls in a row take. */
double ks_run(entry_fn entry, void **args, int64_t n) {
  struct timespec t0, t1;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t0);
  for (int64_t k = 0; k < n; k++) entry(args);
  clock_gettime(CLOCK_MONOTONIC_RAW, &t1);
  return (double)(t1.tv_sec - t0.tv_sec) * 1e9 + (double)(t1.tv_nsec - t0.tv_nsec);
}

/* A team of n threads, started and bound before anything is measured, and the same in all that is measured. */
static void nothing(void *given, long tid, long n_threads, struct ks_team *team) {
  (void)given, (void)tid, (void)n_threads, (void)team;
}

void ks_start_team(int n) {
  ks_team_keep(1);
  ks_team_run(nothing, NULL, n, 1);
}

static int report_fd = -1;
static char alternate_stack[64 * 1024];

static char *put(char *p, const char *text) {
  while (*text) *p++ = *text++;
  return p;
}

static char *put_number(char *p, uint64_t v) {
  char digits[20];
  int n = 0;
  do digits[n++] = (char)('0' + v % 10);
  while (v /= 10);
  while (n) *p++ = digits[--n];
  return p;
}

/* Field 6 of statm: pages of private writable memory, what RLIMIT_DATA limits. */
static uint64_t data_pages(void) {
  char text[256];
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  uint64_t v = 0;
  int field = 0;
  for (ssize_t k = 0; k < n; k++) {
    if (text[k] == ' ') {
      if (++field == 6) return v;
      v = 0;
    } else if (text[k] >= '0' && text[k] <= '9') {
      v = v * 10 + (uint64_t)(text[k] - '0');
    }
  }
  return 0;
}

/* Protected pages that begin with something else: [page, begin) is written by who may. */
enum { MOST_FORGIVEN = 1024 };
static struct {
  uintptr_t page, begin;
} forgiven[MOST_FORGIVEN];
static int n_forgiven;

/* From now on a write between `page` and `begin` takes the protection from that page, in place of ending the process. 0: it does not,
   since nobody handles faults, or there are too many pages. */
int ks_forgive(void *page, void *begin) {
  int k = 0;
  while (k < n_forgiven && forgiven[k].page != (uintptr_t)page) k++;
  if (k == MOST_FORGIVEN || report_fd < 0) return 0;
  forgiven[k].page = (uintptr_t)page, forgiven[k].begin = (uintptr_t)begin;
  if (k == n_forgiven) n_forgiven++;
  return 1;
}

/* The pages of memory that is given back: others may get these addresses. */
int ks_unforgive(void *first, void *end) {
  int n = 0;
  for (int k = 0; k < n_forgiven; k++)
    if (forgiven[k].page < (uintptr_t)first || forgiven[k].page >= (uintptr_t)end) forgiven[n++] = forgiven[k];
  n_forgiven = n;
  return 1;
}

static int is_forgiven(uintptr_t address) {
  for (int k = 0; k < n_forgiven; k++)
    if (forgiven[k].page <= address && address < forgiven[k].begin)
      return mprotect((void *)forgiven[k].page, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE) == 0;
  return 0;
}

/* One framed JSON message, only async-signal-safe calls; the default action follows. SA_RESETHAND would take it too early: of threads
   that meet forgiven pages at once, the second would end the process. */
static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)context;
  if (sig == SIGSEGV && is_forgiven((uintptr_t)info->si_addr)) return;
  static atomic_flag is_said = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&is_said)) return; /* to the same fault, until who was first is through */
  char message[256], *p = message + 4;
  p = put(p, "{\"type\":\"Fault\",\"signal\":");
  p = put_number(p, (uint64_t)sig);
  p = put(p, ",\"address\":");
  p = put_number(p, (uint64_t)(uintptr_t)info->si_addr);
  p = put(p, ",\"used_bytes\":");
  p = put_number(p, data_pages() * (uint64_t)sysconf(_SC_PAGESIZE));
  p = put(p, "}");
  uint32_t n = (uint32_t)(p - message - 4);
  memcpy(message, &n, 4);
  ssize_t written = write(report_fd, message, (size_t)(p - message));
  (void)written;
  signal(sig, SIG_DFL);
}

void ks_report_faults(int fd) {
  static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  report_fd = fd;
  stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
  sigaltstack(&stack, NULL);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t k = 0; k < sizeof signals / sizeof *signals; k++) sigaction(signals[k], &action, NULL);
}
