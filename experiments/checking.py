"""Compares generated C with the interpreter, in conditions made to show mistakes.

Arrays lie between guards (values that no result survives) at odd element offsets, arrays that are written before they are read
hold poison, and the workspace holds garbage. Calls run in a child with a deadline. The text is compiled with a delay at the start
of each team and after each barrier, which holds one thread back while the others go on: a barrier that is missing shows at once
and every time, where plain repetition shows it seldom.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.nest import Launch, LoopNode, TreeNode, build_launch
from ..codegen.plan import Plan, read_plan
from ..codegen.source import Source
from ..kernels.oracle import run_reference
from ..kernels.sequence import Recording
from ..kernels.tasks import Problem
from ..runtime.cpu.dialect import C_OPENMP
from ..runtime.verify import Expected, find_mismatch, poison_value
from ..space.candidate import Candidate, DeadEnd
from ..space.target import CacheLevel, Target

Arrays = dict[str, np.ndarray[Any, Any]]

# GCC notes where a vector is wider than a register of the machine, since callers in other files might pass it differently: there
# are none, all functions on vectors are static.
WARNINGS = ("-Wall", "-Wextra", "-Wno-psabi")
FLAGS = ("-std=gnu11", "-O1", "-march=native", "-fopenmp", "-fno-math-errno", "-shared", "-fPIC")
GUARD_BYTES = 192  # before and after each array: more than the widest vector
GARBAGE_BYTE = 0xAB  # of the workspace; also the bytes of the guards of integer arrays

_SETUP = C_OPENMP.thread_setup[0]
_LATE = "    hold_back(tid);"
_HOLD_BACK = """
#include <unistd.h>
extern int late_thread;
int late_thread = -1;
static void hold_back(long tid) {
    if (tid == late_thread) usleep(300);
}
"""

TARGET = Target(
    backend="cpu",
    name="checked",
    cores=2,
    vector_bytes=64,
    vector_registers=32,
    levels=(
        # So small that what is there for large arrays only is drawn at the sizes of tests.
        CacheLevel(name="L1", capacity_bytes=64, read_bytes_per_ns=400),
        CacheLevel(name="L2", capacity_bytes=1 << 20, read_bytes_per_ns=200),
    ),
    memory_read_bytes_per_ns=20,
    memory_write_bytes_per_ns=20,
    memory_mixed_bytes_per_ns=25,
    f32_flops_per_ns=100,
    f64_flops_per_ns=50,
    launch_ns=500,
    barrier_ns=200,
    call_ns=100,
)


def target(cores: int, vector_bytes: int) -> Target:
    """A machine to generate for; more cores than there are make threads meet in unlucky moments."""
    return replace(TARGET, cores=cores, vector_bytes=vector_bytes)


@dataclass(frozen=True)
class InputSet:
    """Arguments, and what the sequence makes of them in float64."""

    arrays: Arrays
    scalars: Mapping[str, Any]
    want: Arrays
    factor: float  # of the tolerance, in units of eps * magnitude
    magnitude: float


def make_inputs(
    recording: Recording,
    problem: Problem,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any],
    seed: int = 0,
) -> list[InputSet]:
    """The arguments given, small integers, only positive and only negative numbers (none of which a neutral element may stand for);
    sets on which rounding alone decides a comparison are left out.
    """
    rng = np.random.default_rng(seed)
    given: list[Arrays] = [{k: np.array(v) for k, v in arrays.items()}]
    given.append({k: rng.integers(-4, 5, v.shape).astype(v.dtype) for k, v in arrays.items()})
    given.append({k: (np.abs(v) + 1).astype(v.dtype) for k, v in given[1].items()})
    given.append({k: -v for k, v in given[2].items()})
    made = []
    for chosen in given:
        for a in problem.arrays:
            if a.role == "output":
                chosen[a.name] = np.full_like(chosen[a.name], poison_value(chosen[a.name].dtype))
        with np.errstate(all="ignore"):
            want = run_reference(recording, chosen, scalars, dtype=np.float64)
            rounded = run_reference(recording, chosen, scalars)
        one = InputSet(chosen, scalars, want, *_tolerance(problem, want))
        if all(_mismatch(rounded[k], one, k) is None for k in chosen):
            made.append(one)
    return made


def _tolerance(problem: Problem, want: Arrays) -> tuple[float, float]:
    """Rounding is relative to the largest number there is; each element takes part in sums of at most the longest reduction."""
    longest, n_reductions = 1, 0
    for task in problem.tasks:
        length = 1
        for loop in task.loops:
            length *= loop.extent if loop.is_reduction else 1
        longest, n_reductions = max(longest, length), n_reductions + (length > 1)
    values = [np.abs(a[np.isfinite(a)]).max(initial=1.0) for a in want.values() if a.size]
    factor = 32.0 * (1 + n_reductions) * np.sqrt(longest)
    return float(factor), float(max(values, default=1.0))


def _mismatch(got: np.ndarray[Any, Any], inputs: InputSet, name: str) -> str | None:
    expected = Expected(inputs.want[name], inputs.factor, inputs.magnitude)
    found = find_mismatch(got, expected)
    return None if found is None else f"{name}{found}"


# --- building ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """A compiled candidate; `library` is None where the compiler failed, `log` holds what it said."""

    source: Source
    library: Path | None
    log: str


def source_of(candidate: Candidate) -> Source:
    """The C text of a complete candidate."""
    return print_source(lower(candidate), C_OPENMP)


def with_delays(text: str) -> str:
    """The text with the delay described above."""
    text = text.replace(_SETUP, f"{_SETUP}\n{_LATE}")
    text = text.replace(C_OPENMP.barrier, f"{C_OPENMP.barrier}\n{_LATE}")
    at = text.index("#include")
    return text[:at] + _HOLD_BACK + text[at:] if _LATE in text else text


def build(
    source: Source, stem: Path, more_flags: tuple[str, ...] = (), compiler: str = "gcc"
) -> Build:
    """Compiles one text to `stem`.so; warnings are part of the log."""
    file, library = stem.with_suffix(".c"), stem.with_suffix(".so")
    file.write_text(with_delays(source.text))
    flags = (*FLAGS, *WARNINGS, *source.flags, *more_flags)
    command = [compiler, *flags, "-o", str(library), str(file), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return Build(source, None, "the compiler ran past 120 s")
    return Build(source, library if done.returncode == 0 else None, done.stderr)


def build_all(
    sources: Sequence[Source],
    folder: Path,
    stem: str,
    n_threads: int = 2,
    compiler: str = "gcc",
) -> list[Build]:
    """Compiles several texts at a time."""
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [
            pool.submit(build, s, folder / f"{stem}_{k}", compiler=compiler)
            for k, s in enumerate(sources)
        ]
        return [job.result() for job in jobs]


# --- running -------------------------------------------------------------------------------------


class _Guarded:
    """An array between guards, at an offset of a few elements from any alignment."""

    def __init__(self, array: np.ndarray[Any, Any], shift: int) -> None:
        size, item = array.nbytes, array.itemsize
        self.raw = np.full(size + 2 * GUARD_BYTES + 64, GARBAGE_BYTE, np.uint8)
        if array.dtype.kind == "f":
            n = len(self.raw) // item
            self.raw[: n * item] = np.full(n, np.nan, array.dtype).view(np.uint8)
        self.begin = GUARD_BYTES + (-(self.raw.ctypes.data + GUARD_BYTES)) % 64 + shift * item
        self.begin -= self.begin % item if array.dtype.kind == "f" else 0
        self.view = self.raw[self.begin : self.begin + size].view(array.dtype).reshape(array.shape)
        self.view[...] = array
        self.before = self.raw[: self.begin].copy()
        self.after = self.raw[self.begin + size :].copy()

    def is_intact(self) -> bool:
        end = self.begin + self.view.nbytes
        return bool(
            (self.raw[: self.begin] == self.before).all() and (self.raw[end:] == self.after).all()
        )


def call_once(
    entry: Callable[..., None], source: Source, inputs: InputSet, shift: int
) -> str | None:
    """Calls on fresh copies; what is wrong, or None."""
    guarded: dict[str, _Guarded] = {}
    pointers = (ctypes.c_void_p * len(source.arguments))()
    kept: list[Any] = []
    for k, a in enumerate(source.arguments):
        if a.kind == "array":
            guarded[a.name] = _Guarded(inputs.arrays[a.name], shift)
            pointers[k] = guarded[a.name].view.ctypes.data
        elif a.kind == "scalar":
            kept.append(np.array(inputs.scalars[a.name], dtype=a.dtype))
            pointers[k] = kept[-1].ctypes.data
        else:
            raw = np.full(a.shape[0] + 64 + 2 * GUARD_BYTES, GARBAGE_BYTE, np.uint8)
            kept.append(raw)
            start = GUARD_BYTES + (-(raw.ctypes.data + GUARD_BYTES)) % 64
            # NaN as f32 and as f64: an accumulator that nobody set spoils the result.
            raw[start : start + a.shape[0]] = 0xFF
            pointers[k] = raw.ctypes.data + start
            kept.append((start, a.shape[0]))
    entry(pointers)
    for k, item in enumerate(kept):
        if isinstance(item, tuple):
            raw, (start, size) = kept[k - 1], item
            if (raw[:start] != GARBAGE_BYTE).any() or (raw[start + size :] != GARBAGE_BYTE).any():
                return "the workspace was overrun"
    for name, g in guarded.items():
        if not g.is_intact():
            return f"{name} was overrun"
        found = _mismatch(g.view, inputs, name)
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class Way:
    """How often and with how many threads a library is called."""

    repeats: int = 20
    thread_limit: int = 0  # 0: as many as the text asks for
    seconds: int = 20


def check(built: Build, inputs: Sequence[InputSet], way: Way | None = None) -> str:
    """Runs a built candidate in a child: "" when all is right, else what is wrong, also when it crashed or ran on."""
    way = way or Way()
    assert built.library is not None
    return in_child(lambda: _run_all(built, inputs, way), way.seconds)


def in_child(work: Callable[[], str], seconds: float) -> str:
    """What `work` says, run in a child, or what became of the child."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        found = "the child failed"
        try:
            found = work()
        except BaseException as e:  # nothing may return into the parent's stack
            found = f"{type(e).__name__}: {e}"
        finally:
            os.write(writer, b"." + found.encode()[:4000])
            os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + seconds
    ready, _, _ = select.select([reader], [], [], seconds)
    answer = os.read(reader, 8000) if ready else b""
    os.close(reader)
    if not ready or time.monotonic() > deadline:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not ready:
        return f"ran past {seconds:g} s"
    if not answer:
        return f"crashed with signal {os.waitstatus_to_exitcode(status)}"
    return answer[1:].decode()


def _run_all(built: Build, inputs: Sequence[InputSet], way: Way) -> str:
    os.environ["OMP_WAIT_POLICY"] = "passive"  # more threads than cores must not spin
    os.environ["OMP_DYNAMIC"] = "false"
    if way.thread_limit:
        os.environ["OMP_THREAD_LIMIT"] = str(way.thread_limit)
    library = ctypes.CDLL(str(built.library))
    entry = getattr(library, built.source.entry)
    entry.restype = None
    late = None
    if with_delays(built.source.text) != built.source.text:
        late = ctypes.c_int.in_dll(library, "late_thread")
    for repeat in range(way.repeats):
        if late is not None:
            held = repeat // len(inputs) if inputs else 0
            late.value = held if held < built.source.n_threads and not way.thread_limit else -1
        one = inputs[repeat % len(inputs)]
        found = call_once(entry, built.source, one, shift=repeat % 3)
        if found is not None:
            where = f"call {repeat}" + (f", thread {late.value} late" if late is not None else "")
            limit = f", at most {way.thread_limit} threads" if way.thread_limit else ""
            return f"{found} ({where}{limit})"
    return ""


# --- candidates ----------------------------------------------------------------------------------

RARE = ("staged", "mem_space", "cache", "prefetch", "reduction", "fused", "shift", "schedule")


def random_candidate(root: Candidate, rng: np.random.Generator) -> Candidate | DeadEnd:
    """A random completion, in two of three cases after up to three choices of RARE kinds have got random values, so that no value
    is left to chance at the end of a descent.
    """
    choices = root.space.choices
    rare = [int(k) for k in root.open_choices() if choices[k].kind in RARE]
    wanted = rng.permutation(rare)[: rng.integers(1, 4)] if rng.integers(3) else []
    made = root
    for var in map(int, wanted):
        value = int(rng.choice(made.values(var)[1:] or made.values(var)))
        decided = made.decide(var, 1 << value)
        made = decided if isinstance(decided, Candidate) else made
    return made.random_completion(rng)


# --- features ------------------------------------------------------------------------------------

FEATURES = (
    "several launches", "several tasks in a launch", "merged loops", "PARALLEL", "PARALLEL in a LOOP",
    "barrier", "mid tiles", "UNROLL", "VECTOR", "partial tiles", "SEQUENTIAL reduction", "LANES", "PARTIALS",
    "accumulators in memory", "accumulators of the team", "REGISTER", "SHARED", "GLOBAL", "ELIDED", "COPY",
    "kept and written", "input kept", "STREAM", "PREFETCH", "one iteration late", "tiles in turn",
    "opaque task", "register tiles of two loops", "reduction in order",
)  # fmt: skip


def features(candidate: Candidate) -> set[str]:
    """Which of FEATURES an implementation uses."""
    plan = read_plan(candidate)
    launches = [build_launch(plan, roots) for roots in plan.launches]
    used = _task_features(plan) | {
        name for launch in launches for name in _tree_features(launch.roots, inside_loop=False)
    }
    used |= _accumulator_features(launches)
    used |= {"several launches"} if len(launches) > 1 else set()
    used |= {"several tasks in a launch"} if any(len(x.tasks) > 1 for x in launches) else set()
    on_chip = {f for t in plan.tasks for f in (*t.registers, *t.shared, *t.kept)}
    return used | ({"GLOBAL"} if set(plan.flows) - on_chip else set())


def _task_features(plan: Plan) -> set[str]:
    used: set[str] = set()
    for t in plan.tasks:
        facts = {
            "PARALLEL": t.is_parallel,
            "PARTIALS": t.partials,
            "LANES": any(p.has_lanes for p in t.loops),
            "SEQUENTIAL reduction": t.task.is_reduction
            and not t.partials
            and not any(p.has_lanes for p in t.loops),
            "UNROLL": any(p.inner > 1 and not p.is_vector for p in t.loops),
            "VECTOR": t.vector is not None,
            "partial tiles": any(not p.divides for p in t.loops),
            "mid tiles": any(p.mid > 1 for p in t.loops),
            "REGISTER": bool(t.registers),
            "SHARED": bool(t.shared),
            "kept and written": bool(t.shared) and t.is_stored,
            "input kept": bool(t.kept),
            "STREAM": t.is_streamed,
            "PREFETCH": t.prefetch_iterations > 0 and t.vector is not None,
            "tiles in turn": any(p.is_cyclic for p in t.loops),
            "one iteration late": t.shift is not None,
            "ELIDED": not t.is_stored,
            "COPY": bool(t.copies),
            "opaque task": t.task.opaque is not None,
            "register tiles of two loops": sum(p.inner > 1 for p in t.loops) > 1,
            "reduction in order": t.task.is_reduction and not t.task.fast_math,
        }
        used |= {name for name, holds in facts.items() if holds}
    return used


def _tree_features(nodes: list[TreeNode], inside_loop: bool) -> set[str]:
    used: set[str] = set()
    for n in nodes:
        if isinstance(n, LoopNode):
            used |= {"merged loops"} if len(n.members) > 1 else set()
            used |= {"PARALLEL in a LOOP"} if n.is_parallel and inside_loop else set()
            used |= _tree_features(n.children, inside_loop=True)
        elif type(n).__name__ == "Meet":
            used.add("barrier")
    return used


def _accumulator_features(launches: list[Launch]) -> set[str]:
    plans = [a for launch in launches for a in launch.accumulators.values()]
    used = {"accumulators in memory"} if any(a.in_memory for a in plans) else set()
    return used | ({"accumulators of the team"} if any(a.owner == "team" for a in plans) else set())
