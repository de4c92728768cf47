"""The team of threads (runtime/cpu/team.c), through small programs in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.device import open_device

pytestmark = pytest.mark.compiler
two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")

# Parts that note who ran them: counts[tid] += 1, cpus[tid], and the sum over barriers of what all had added before.
TEXT = """
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>
struct noted { int counts[64], cpus[64]; _Atomic int met; int n_threads, is_wrong, n_rounds, slow; };

static void note(void *given, long tid, long n_threads, struct ks_team *team) {
  struct noted *n = given;
  n->counts[tid] += 1;
  n->cpus[tid] = sched_getcpu();
  if (tid == 0) n->n_threads = (int)n_threads;
  for (int k = 1; k <= n->n_rounds; k++) {
    if (tid == n_threads - 1) nanosleep(&(struct timespec){.tv_nsec = n->slow}, NULL);
    atomic_fetch_add(&n->met, 1);
    ks_team_meet(team);
    if (n->met != k * n_threads) n->is_wrong = 1;
    ks_team_meet(team);
  }
}

void run(struct noted *n, long n_threads) {
  n->met = 0;
  ks_team_run(note, n, n_threads, n->n_rounds > 0);
}

struct outer { struct noted inner[64]; long n_threads; };
static void nest(void *given, long tid, long n_threads, struct ks_team *team) {
  (void)n_threads, (void)team;
  struct outer *o = given;
  run(&o->inner[tid], o->n_threads);
}
void run_nested(struct outer *o) { ks_team_run(nest, o, o->n_threads, 1); }

#if defined(pthread_getcpuclockid)
int clock_of_all(pthread_t thread, clockid_t *clock) {
  (void)thread;
  *clock = CLOCK_MONOTONIC;
  return 0;
}
#endif

/* Each thread but the caller is without its core for a while: asleep, or computes for so long. */
struct tried { pthread_t caller; _Atomic int came; int n_threads, sleeps_us, works_us; };
static void work(int us) {
  struct timespec from, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  while ((now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000 < us);
}
static void try_one(void *given, long tid, long n_threads, struct ks_team *team) {
  struct tried *t = given;
  if (tid == 0) t->n_threads = (int)n_threads;
  if (pthread_equal(pthread_self(), t->caller)) {
    while (t->came < n_threads - 1) sched_yield(); /* else it runs their parts itself */
    if (n_threads == 1) work(t->works_us);
  } else {
    t->came += 1;
    nanosleep(&(struct timespec){.tv_nsec = 1000L * t->sleeps_us}, NULL);
    work(t->works_us);
  }
  ks_team_meet(team);
}
int run_tried(int sleeps_us, int works_us, int meets) {
  struct tried t = {.caller = pthread_self(), .sleeps_us = sleeps_us, .works_us = works_us};
  ks_team_run(try_one, &t, 2, meets);
  return t.n_threads;
}
"""

OPENING = """
import ctypes, os, sys, threading
class Noted(ctypes.Structure):
    _fields_ = [("counts", ctypes.c_int * 64), ("cpus", ctypes.c_int * 64), ("met", ctypes.c_int),
                ("n_threads", ctypes.c_int), ("is_wrong", ctypes.c_int), ("n_rounds", ctypes.c_int), ("slow", ctypes.c_int)]
class Outer(ctypes.Structure):
    _fields_ = [("inner", Noted * 64), ("n_threads", ctypes.c_long)]
library = ctypes.CDLL(sys.argv[1])
library.run.argtypes = [ctypes.POINTER(Noted), ctypes.c_long]
def call(n, n_rounds=0, slow=0):
    noted = Noted(n_rounds=n_rounds, slow=slow)
    library.run(noted, n)
    assert not noted.is_wrong
    assert list(noted.counts) == [1] * noted.n_threads + [0] * (64 - noted.n_threads), list(noted.counts)
    return noted
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("team"))


def build(folder: Path, *flags: str) -> Path:
    """The program and the team in one library."""
    text, library = folder / "noted.c", folder / "noted.so"
    program = TEXT.replace("struct noted {", C_TEAM.team_prelude + "struct noted {", 1)
    text.write_text(f"{program}\n{C_TEAM.team}")
    compiler = open_device("cpu").builder.compiler.unspared()
    warnings = ("-Wall", "-Wextra", "-Werror")
    subprocess.run(compiler.command(text, library, (*warnings, *flags)), check=True, timeout=60)
    return library


def run(library: Path, script: str) -> str:
    command = [sys.executable, "-S", "-c", OPENING + script, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_part_is_run_once(library):
    """Whoever runs it: also where threads are slow to wake, more are asked for than there are CPUs, or one."""
    run(
        library,
        "for k in range(3000): assert call(2 + k % 3).n_threads <= max(2, os.cpu_count())\n"
        "assert call(1).n_threads == 1",
    )


@pytest.mark.parametrize("n", [2, 5])
def test_all_of_a_forced_team_come_and_meet(library, n):
    """More threads than CPUs, which sleep at barriers rather than spin; one of them is late each time."""
    run(
        library,
        f"library.ks_team_size({n})\n"
        f"for k in range(30): assert call({n}, 5, 100_000 * (k % 2)).n_threads == {n}",
    )


@two_cpus
def test_parts_are_on_cpus_of_their_own_and_the_caller_is_free(library):
    """No two threads of a launch share a core, and what the process may use is as before, for callers too."""
    found = run(
        library,
        "before = os.sched_getaffinity(0)\n"
        "full = 0\n"
        "for k in range(2000):\n"
        "    noted = call(len(before), 1)\n"
        "    cpus = list(noted.cpus)[:noted.n_threads]\n"
        "    full += noted.n_threads == len(before) and sorted(cpus) == sorted(before)\n"
        "    assert os.sched_getaffinity(0) == before\n"
        "tasks = [os.sched_getaffinity(int(t)) for t in os.listdir('/proc/self/task')]\n"
        "assert sum(len(t) == 1 for t in tasks) == len(before), tasks\n"
        "print(full)",
    )
    assert int(found) > 0


# Of whatever machine two CPUs: then nobody takes the place of a thread that rests. Late threads come as soon as there are launches.
TRIED = """
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
run = library.run_tried
def until(n, sleeps_us, works_us, most):
    return any(run(sleeps_us, works_us, 1) == n for _ in range(most))
"""


@two_cpus
def test_launches_go_without_threads_that_lose_their_core_and_try_them_again(library):
    """Whatever keeps a thread off its core inside a part costs the others a share of their time, not a share of all launches."""
    run(
        library,
        TRIED + "assert until(2, 0, 500, 2000)\n"
        "assert until(1, 3000, 0, 100), 'late threads are waited for again and again'\n"
        "few = sum(run(0, 0, 1) == 1 for _ in range(100))\n"
        "assert few > 50, f'after a late one {few} of 100 launches without it'\n"
        "assert until(2, 0, 500, 2000), 'nobody is tried again'",
    )


@two_cpus
def test_launches_keep_threads_that_only_have_more_to_do(tmp_path):
    """Parts of different lengths are no reason to go without a thread: here all have their core for as long as they take."""
    library = build(tmp_path, "-Dpthread_getcpuclockid=clock_of_all")
    run(library, TRIED + "assert sum(run(1000, 0, 0) == 2 for _ in range(30)) == 30")


@two_cpus
def test_measured_launches_keep_late_threads(library):
    """Or times of one candidate would be of other numbers of threads than those of the next."""
    run(
        library,
        TRIED + "library.ks_team_keep(1)\n"
        "assert sum(run(2000, 0, 0) == 2 for _ in range(20)) == 20",
    )


@two_cpus
def test_launches_that_follow_directly_wake_each_thread_once(library):
    """Behind a pause, in which they fall asleep. On a busy machine they lose their cores: then it is tried again."""
    run(
        library,
        "import time\n"
        "library.ks_team_wakes.restype = ctypes.c_uint64\n"
        "n = len(os.sched_getaffinity(0))\n"
        "library.ks_team_keep(1)\n"
        "def wakes():\n"
        "    time.sleep(0.002)\n"
        "    before = library.ks_team_wakes()\n"
        "    for _ in range(50): call(n, 1)\n"
        "    return library.ks_team_wakes() - before\n"
        "assert any(0 < wakes() <= n for _ in range(1000))",
    )


def test_a_caller_with_one_cpu_runs_alone(library):
    run(
        library,
        "call(2, 1)\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        # The mask is looked at once the threads sleep, which takes as long as they need to get a core beside other work.
        "import time\n"
        "alone = lambda: time.sleep(0.01) or call(2, 1).n_threads == 1\n"
        "assert any(alone() for _ in range(2000))",
    )


def test_callers_at_the_same_time_do_not_disturb_one_another(library):
    run(
        library,
        "def some():\n"
        "    for k in range(500): call(2, k % 3)\n"
        "threads = [threading.Thread(target=some) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]",
    )


def test_a_launch_inside_a_launch_is_run_alone(library):
    run(
        library,
        "outer = Outer(n_threads=2)\n"
        "library.run_nested(ctypes.byref(outer))\n"
        "done = [list(n.counts)[:2] for n in outer.inner if sum(n.counts)]\n"
        "assert done and all(d == [1, 0] for d in done), done",
    )


def test_a_forked_child_has_a_team_of_its_own(library):
    run(
        library,
        "call(2, 1)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for k in range(100): call(2, 2)\n"
        "    n = len(os.listdir('/proc/self/task'))\n"
        "    os._exit(0 if n == 1 + len(os.sched_getaffinity(0)) or n == 1 else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "call(2, 2)",
    )


def test_a_library_with_a_team_can_be_closed(library):
    """Its threads have ended before their code is gone."""
    run(
        library,
        "import _ctypes\n"
        "for k in range(3):\n"
        "    call(2, 1)\n"
        "    handle = library._handle; del library\n"
        "    _ctypes.dlclose(handle)\n"
        "    assert len(os.listdir('/proc/self/task')) == 1\n"
        "    library = ctypes.CDLL(sys.argv[1])\n"
        "    library.run.argtypes = [ctypes.POINTER(Noted), ctypes.c_long]",
    )
