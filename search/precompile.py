"""Ahead-of-time compilation of the search's numba functions, on all cores, unless they are in the cache.

A unit is a compiled function together with the functions that only it calls. Units that others call
are compiled first, so that their callers find them in the cache. A function that two units call
must have one type in both: numba gives the first type of each process the same file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from graphlib import TopologicalSorter
from os import sched_getaffinity
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from ..kernels.frontend.recorder import record_sequence
from ..kernels.library import load
from ..kernels.tasks.pipeline import normalise
from ..space.build import build_space
from ..space.engine import filters, propagate
from ..space.engine.jit import (
    cache_folder,
    compile_for,
    copy_hash,
    end_interpreting,
    interpret,
    is_compiling,
)
from ..space.targets.target import CacheLevel, Target
from .bound import cpu as cpu_bound
from .bound.tables import build_tables
from .learn import surrogate
from .tree import ordering

# Each unit with the units on which it depends; the longest to compile first.
_UNITS: dict[str, tuple[str, ...]] = {
    "lower_bound": (),
    "filter_budget": (),
    "filter_counter": (),
    "filter_table3": (),
    "filter_order": (),
    "_fixpoint": ("filter_budget", "filter_counter", "filter_table3", "filter_order"),
    "_complete": ("_fixpoint",),
    "expand": ("_fixpoint",),
    "constraint_blocks": (),
    "shave": ("_fixpoint",),
    "propagate_all": ("_fixpoint",),
    "_descend": ("_fixpoint",),
    "_share": (),
    "_first_open": (),
}
_MOST_PROCESSES = 4  # more would wait for one another
_LEAST_PRIORITY = 19
_LOOK_S = 0.1
_MACHINE = Target(
    backend="cpu",
    name="any",
    cores=2,
    vector_bytes=32,
    vector_registers=16,
    levels=(CacheLevel(name="L1", capacity_bytes=1 << 16, read_bytes_per_ns=100.0),),
    memory_read_bytes_per_ns=10.0,
    memory_write_bytes_per_ns=10.0,
    memory_mixed_bytes_per_ns=10.0,
    f32_flops_per_ns=100.0,
    f64_flops_per_ns=50.0,
    launch_ns=1000.0,
    barrier_ns=1000.0,
    call_ns=10.0,
)

Tell = Callable[[str], None]


def precompile(tell: Tell = lambda text: None) -> None:
    """Compiles all units, unless they are in the cache.

    `tell` gets a sentence at the beginning and after each unit.
    If a process fails on a unit, compilation stops here. The first call of the unit then reports
    the reason.
    """
    if not _is_due():
        return
    processes = _started()
    tell(f"compiling the search itself, once a version, in {len(processes)} processes")
    _compile_all(processes, tell)


class Precompilation:
    """Context that compiles all units while a search begins, which runs their Python sources until `settle`.

    So the first run of a version shows its first candidates before the compilers end. If all units
    are in the cache, it does nothing. Leaving the block waits for the compilers, since the next run
    would begin anew. An exception ends them, and so does `is_given_up`.
    """

    def __init__(self, tell: Tell, is_given_up: Callable[[], bool]) -> None:
        self._tell = tell
        self._is_given_up = is_given_up
        self._processes: list[subprocess.Popen[str]] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Precompilation:
        if _is_due():
            self._processes = _started()
            for process in self._processes:
                with suppress(ProcessLookupError):  # the search, and what it times, go first
                    os.setpriority(os.PRIO_PROCESS, process.pid, _LEAST_PRIORITY)
            self._thread = threading.Thread(
                target=_compile_all, args=(self._processes,), name="precompile", daemon=True
            )
            interpret()
            self._thread.start()
            self._tell(
                "compiling the search itself, once a version; until then it runs, more slowly, in Python"
            )
        return self

    def settle(self) -> None:
        """Switches to the compiled units if all are ready. None of the functions may be running."""
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
            end_interpreting()

    def wait(self) -> None:
        """Waits for the compilers, unless they are given up, and switches to the compiled units."""
        if self._thread is None:
            return
        if self._thread.is_alive():
            self._tell("waiting for the compilation of the search itself")
        while self._thread.is_alive() and not self._is_given_up():
            self._thread.join(_LOOK_S)
        self.settle()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            for process in self._processes:
                process.kill()
            if self._thread is not None:
                self._thread.join()
            self.settle()


def _is_due() -> bool:
    return is_compiling() and not _marker().exists()


def _started() -> list[subprocess.Popen[str]]:
    return [_start() for _ in range(min(len(sched_getaffinity(0)), _MOST_PROCESSES))]


def _compile_all(
    processes: Sequence[subprocess.Popen[str]], tell: Tell = lambda text: None
) -> None:
    """Compiles all units in these processes, then ends the processes."""
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    for process in processes:
        idle.put(process)

    def compile_apart(unit: str) -> bool:
        process = idle.get()
        try:
            assert process.stdin is not None and process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.write(f"{unit}\n")
                process.stdin.flush()
            return process.stdout.readline() == f"{unit}\n"
        finally:
            idle.put(process)

    waiting = TopologicalSorter(_UNITS)
    waiting.prepare()
    running: dict[Future[bool], str] = {}
    n_done = 0
    pool = ThreadPoolExecutor(len(processes), thread_name_prefix="precompile")
    try:
        while waiting.is_active():
            for unit in sorted(waiting.get_ready(), key=list(_UNITS).index):
                running[pool.submit(compile_apart, unit)] = unit
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                unit = running.pop(future)
                if not future.result():
                    return
                waiting.done(unit)
                n_done += 1
                tell(f"compiled {n_done} of {len(_UNITS)}")
        _marker().touch()
    finally:
        for process in processes:
            process.kill()  # readers of its output see the end of file
        pool.shutdown()
        for process in processes:
            with suppress(BrokenPipeError), process:
                process.wait()


def _marker() -> Path:
    """Returns the path of the marker file that exists once all units of this copy of the sources are in the cache."""
    return cache_folder() / f"complete-{copy_hash()}"


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # the user's Ctrl-C is for the process that started it
    )


@cache
def _signatures() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Returns, by unit, the compiled function, and arguments with the types that the search passes to it."""
    entry = load("axpydot")
    sizes = dict.fromkeys(entry.sizes, 8)
    arguments = entry.make_arguments(sizes, np.float32, np.random.default_rng(1))
    recording = record_sequence(entry.sequence, arguments, entry.name)
    space = build_space(normalise(recording, ""), _MACHINE)
    domains = space.model.initial.copy()
    at = (space.model.arrays, space.scratch, domains)
    tables = build_tables(space, False)
    n = len(space.problem.tasks)
    phase, terms = np.zeros(n, np.int64), np.zeros(n)
    scratch = cpu_bound.make_scratch(tables, n)
    preference, order = np.zeros((len(domains), 8), np.uint8), space.searchable
    children = np.zeros((2, len(domains)), np.uint32)
    results = (np.zeros(2, np.int64), np.zeros(2, np.int64))
    masks, shares = np.zeros((2, 2), np.uint32), np.zeros((2, 2))
    found: dict[Any, tuple[Any, ...]] = {
        cpu_bound.lower_bound: (tables, scratch, domains, phase, terms),
        filters.filter_budget: (*at, 0),
        filters.filter_counter: (*at, 0),
        filters.filter_table3: (*at, 0),
        filters.filter_order: (*at, 0),
        propagate._fixpoint: at,
        propagate._complete: (*at, preference, order, 1),
        propagate.expand: (*at, 0, children, *results),
        propagate.propagate_all: at,
        propagate.constraint_blocks: (space.model.arrays, order),
        propagate.shave: (*at, order, domains),
        propagate._descend: (*at, order, 1),
        surrogate._share: (masks, masks, shares[0], masks[0], shares[0], shares),
        ordering._first_open: (domains, order),
    }
    return {function.__name__: (function, given) for function, given in found.items()}


def _compile(unit: str) -> None:
    compile_for(*_signatures()[unit])


def main() -> None:
    """Compiles the units whose names arrive on standard input, one a line, and answers with each name."""
    for line in sys.stdin:
        _compile(line.strip())
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
