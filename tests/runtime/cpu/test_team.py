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

# Parts that note who ran them: counts[tid] += 1, cpus[tid], and the sum over barriers of what all had added before.
TEXT = """
#define _GNU_SOURCE
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
    """The program and the team in one library."""
    folder = tmp_path_factory.mktemp("team")
    device = open_device("cpu")
    text, library = folder / "noted.c", folder / "noted.so"
    program = TEXT.replace("struct noted {", C_TEAM.team_prelude + "struct noted {", 1)
    text.write_text(f"{program}\n{C_TEAM.team}")
    compiler = device.builder.compiler.unspared()
    subprocess.run(
        compiler.command(text, library, ("-Wall", "-Wextra", "-Werror")), check=True, timeout=60
    )
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


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
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


def test_a_caller_with_one_cpu_runs_alone(library):
    run(
        library,
        "call(2, 1)\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import time; time.sleep(0.01)\n"  # threads that sleep: then the mask is looked at
        "assert call(2, 1).n_threads == 1",
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
