"""Compares generated C with the interpreter, in conditions made to show mistakes.

Calls run in a child with a deadline, on arguments as in calling.py. The text is compiled with a delay at the start of each team and
after each barrier, which holds one thread back while the others go on: a barrier that is missing shows at once and every time,
where plain repetition shows it seldom.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
import threading
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.lower import lower, print_source
from ..codegen.passes.pipeline import CPU
from ..codegen.plan.candidates import plan_of
from ..codegen.text.source import Source
from ..kernels.frontend.recorder import Recording
from ..kernels.ir.task import Problem
from ..runtime.cpu.compiler import FEWER_PASSES, find_compiler
from ..runtime.cpu.dialect import C_TEAM
from ..runtime.library import load_library
from ..runtime.worker.verify import poison_value
from ..space.candidate import Candidate, DeadEnd
from ..space.targets.target import CacheLevel, Target
from .calling import Arrays, InputSet, call_once, first_fault, in_child, mismatch, set_team_size
from .interpreted import run_reference
from .joining import entry_of, joined

# GCC notes where a vector is wider than a register of the machine, since callers in other files might pass it differently: there
# are none, all functions on vectors are static.
WARNINGS = ("-Wall", "-Wextra", "-Wno-psabi")
FLAGS = ("-std=gnu11", "-O1", "-march=native", "-fno-math-errno", "-fPIC", "-fopenmp-simd")
# Most of what is wrong with a text shows without an optimiser, which takes half of a compiler's time. What tells it too much, such
# as `restrict`, and warnings of what is read before it is set, show with one alone: some texts of each kind are compiled by FLAGS.
PLAINLY = ("-O0",)
_COMPILE_S = 120
_MOST_TOGETHER = 16
_TEAM_LOCK = threading.Lock()

# Elements that arrays begin behind a line: none, at no vector, and at 16 bytes of f32.
SHIFTS = (0, 1, 4)
_THREAD = re.compile(r"void launch_\d+_thread\w*\(.*\) \{")
_LATE = "    { static int site[2] = {-1, 0}; hold_back(tid, site); }"
# At each place the first times that a thread is the late one, then now and then: an inner loop may have a thousand barriers.
_HOLD_BACK = """
#include <unistd.h>
extern int late_thread;
int late_thread = -1;
static void hold_back(long tid, int *site) {
    if (tid != late_thread) return;
    if (site[0] != late_thread) { site[0] = late_thread; site[1] = 0; }
    const int n = site[1]++;
    if (n < 8 || n % 7 == 0) usleep(300);
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
        if all(mismatch(rounded[k], one, k) is None for k in chosen):
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


# --- building ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Build:
    """A compiled candidate; `library` is None where the compiler failed, `log` holds what it said. A library may hold others too:
    `entry` is the name of this one's entry.
    """

    source: Source
    library: Path | None
    log: str
    entry: str


def level(number: int) -> tuple[str, ...]:
    """Flags for the n-th group of texts that were drawn alike: every fourth is optimised."""
    return PLAINLY if number % 4 else ()


def level_of(sources: Sequence[Source]) -> tuple[str, ...]:
    """The same for a group by what it says: the same texts have the same flags in every run."""
    return level(zlib.crc32("".join(s.text for s in sources).encode()))


def source_of(candidate: Candidate) -> Source:
    """The C text of a complete candidate."""
    return print_source(lower(plan_of(candidate)), C_TEAM)


def crowded_source_of(candidate: Candidate) -> Source:
    """The C text with nothing between what threads have for themselves: what one writes far beyond its own shows."""
    return print_source(lower(plan_of(candidate), passes=replace(CPU, apart_bytes=0)), C_TEAM)


def with_delays(text: str) -> str:
    """The text with the delay described above."""
    text = _THREAD.sub(lambda found: f"{found[0]}\n{_LATE}", text)
    text = text.replace(C_TEAM.barrier, f"{C_TEAM.barrier}\n{_LATE}")
    at = text.index("#include")
    return text[:at] + _HOLD_BACK + text[at:] if _LATE in text else text


def build(
    source: Source, stem: Path, more_flags: tuple[str, ...] = (), compiler: str = "gcc"
) -> Build:
    """Compiles one text to `stem`.so, with a team of its own; warnings are part of the log."""
    file, library = stem.with_suffix(".c"), stem.with_suffix(".so")
    file.write_text(with_delays(source.text))
    passes = FEWER_PASSES if compiler == "gcc" else ()  # as users' builds
    flags = (*FLAGS, *passes, *WARNINGS, *source.flags, *more_flags)
    given = [str(file)]
    if source.team:
        team = stem.with_suffix(".team.o")
        team.write_bytes(_team_object(source.team, compiler))
        given.append(str(team))
    try:
        done = _run([compiler, *flags, "-shared", "-o", str(library), *given, *_linked(compiler)])
    except subprocess.TimeoutExpired:
        return Build(source, None, f"the compiler ran past {_COMPILE_S} s", source.entry)
    made = library if done.returncode == 0 else None
    if made is not None:
        made.chmod(0o755)  # what a group may write is not loaded
    return Build(source, made, done.stderr, source.entry)


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S)


@cache
def _linked(compiler: str) -> tuple[str, ...]:
    return find_compiler(compiler).unspared().linked


def _team_object(text: str, compiler: str) -> bytes:
    """The team, compiled once a process: a compiler takes as long for it as for a short kernel."""
    with _TEAM_LOCK:
        return _compiled_team(text, compiler)


@cache
def _compiled_team(text: str, compiler: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "team.c"
        file.write_text(text)
        done = _run([compiler, *FLAGS, *WARNINGS, "-c", "-o", f"{folder}/team.o", str(file)])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return (Path(folder) / "team.o").read_bytes()


def build_all(
    sources: Sequence[Source],
    folder: Path,
    stem: str,
    n_threads: int = 2,
    compiler: str = "gcc",
    more_flags: tuple[str, ...] | None = None,
) -> list[Build]:
    """Compiles several texts, equal ones once: those of equal flags as one text, and each for itself where the compiler has
    something to say. Without flags of their own every fourth group is optimised.
    """
    alike: dict[tuple[str, ...], list[Source]] = {}
    for source in dict.fromkeys(sources):
        alike.setdefault(source.flags, []).append(source)
    groups = [
        some[k : k + _MOST_TOGETHER]
        for some in alike.values()
        for k in range(0, len(some), _MOST_TOGETHER)
    ]

    def build_group(number: int) -> list[Build]:
        group, path = groups[number], folder / f"{stem}_{number}"
        flags = level_of(group) if more_flags is None else more_flags
        if len(group) > 1:
            built = build(joined(group), path, flags, compiler)
            if built.library is not None and not built.log:
                return [Build(s, built.library, "", entry_of(s, k)) for k, s in enumerate(group)]
        return [
            build(s, path.with_name(f"{path.name}_{k}"), flags, compiler)
            for k, s in enumerate(group)
        ]

    with ThreadPoolExecutor(n_threads) as pool:
        made = {b.source: b for some in pool.map(build_group, range(len(groups))) for b in some}
    return [made[s] for s in sources]


# --- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """Calls of a library: their number and their threads. `repeats` 0: once on all inputs with each thread late, and with none."""

    repeats: int = 0
    thread_limit: int = 0  # 0: as many as the text asks for
    adapts: bool = False  # as in a user's process: threads that come late are left out of launches
    seconds: int = 90  # long enough for thousands of delays, at a barrier in an inner loop


def check(built: Build, inputs: Sequence[InputSet], *ways: Way) -> str:
    """Runs a built candidate in a child, which is forked once for all ways: "" when all is right, else what is wrong, also when it
    crashed or ran on.
    """
    ways = ways or (Way(),)
    assert built.library is not None
    return in_child(partial(_run_in_ways, built, inputs, ways), sum(w.seconds for w in ways))


def fault(
    sources: Sequence[Source], inputs: Sequence[InputSet], folder: Path, *ways: Way, **options: Any
) -> str:
    """The first fault of texts of one sequence, with the text; "" for none. `options` as in `fault_of_any`."""
    return fault_of_any([(s, inputs) for s in sources], folder, *ways, **options)


def fault_of_any(
    works: Sequence[tuple[Source, Sequence[InputSet]]],
    folder: Path,
    *ways: Way,
    stem: str = "text",
    may_warn: bool = False,
    compiler: str = "gcc",
    more_flags: tuple[str, ...] | None = None,
) -> str:
    """The fault of the first wrong text of several, each with its inputs; "" for none.

    They are built together, and run in one child.
    """
    built = build_all([s for s, _ in works], folder, stem, 2, compiler, more_flags)
    for b in built:
        if b.library is None or (b.log and not may_warn):
            return f"{b.log}\n{b.source.text}"
    ways = ways or (Way(),)
    pairs = zip(built, (inputs for _, inputs in works), strict=True)
    runs = [partial(_run_in_ways, b, inputs, ways) for b, inputs in pairs]
    found = first_fault(runs, sum(way.seconds for way in ways))
    return f"{found[1]}\n{built[found[0]].source.text}" if found else ""


def _run_in_ways(built: Build, inputs: Sequence[InputSet], ways: Sequence[Way]) -> str:
    library = load_library(str(built.library))
    return next(filter(None, (_run_all(library, built, inputs, way) for way in ways)), "")


def _run_all(library: ctypes.CDLL, built: Build, inputs: Sequence[InputSet], way: Way) -> str:
    if built.source.team:
        set_team_size(library, 0 if way.adapts else way.thread_limit or built.source.n_threads)
    entry = getattr(library, built.entry)
    entry.restype = None
    late = None
    if with_delays(built.source.text) != built.source.text:
        late = ctypes.c_int.in_dll(library, "late_thread")
    n_late = 1 if late is None or way.thread_limit else built.source.n_threads + 1
    for repeat in range(way.repeats or n_late * len(inputs)):
        if late is not None:
            held = repeat // len(inputs) if inputs else 0
            late.value = held if held < built.source.n_threads and not way.thread_limit else -1
        one = inputs[repeat % len(inputs)]
        found = call_once(entry, built.source, one, shift=SHIFTS[repeat % len(SHIFTS)])
        if found is not None:
            where = f"call {repeat}" + (f", thread {late.value} late" if late is not None else "")
            limit = f", at most {way.thread_limit} threads" if way.thread_limit else ""
            return f"{found} ({where}{limit})"
    return ""


# --- candidates ----------------------------------------------------------------------------------

RARE = (
    "staged",
    "packed_by",
    "mem_space",
    "cache",
    "load_cache",
    "prefetch",
    "prefetch_accumulators",
    "reduction",
    "fused",
    "shift",
    "schedule",
    "guard",
    "rows",
    "scatter",
    "scatter_cells",
    "layout",
    "thread_level",
    "warp_tile",
    "grid_stride",
    "team",
)


def random_candidate(root: Candidate, rng: np.random.Generator) -> Candidate | DeadEnd:
    """A random completion, in two of three cases after choices of up to three RARE kinds have got random values, so that no value
    is left to chance at the end of a descent.
    """
    choices, rare = root.space.choices, dict[str, list[int]]()
    for k in root.open_choices():
        if choices[k].kind in RARE:
            rare.setdefault(choices[k].kind, []).append(int(k))
    n_wanted = int(rng.integers(1, 4)) if rng.integers(3) else 0
    kinds: list[str] = rng.permutation(sorted(rare))[:n_wanted].tolist()
    wanted = [int(rng.choice(rare[kind])) for kind in kinds]
    made = root
    for var in wanted:
        value = int(rng.choice(made.values(var)[1:] or made.values(var)))
        decided = made.decide(var, 1 << value)
        made = decided if isinstance(decided, Candidate) else made
    return made.random_completion(rng)


def unusual_candidate(root: Candidate, rng: np.random.Generator) -> Candidate | DeadEnd:
    """A random completion, after up to a dozen choices, of a kind each that is as likely as any other, have got values that are as
    likely as others; the first value of a choice less so.
    """
    choices, made = root.space.choices, root
    for _ in range(int(rng.choice((0, 2, 5, 12)))):
        kinds: dict[str, list[int]] = {}
        for k in made.open_choices():
            kinds.setdefault(choices[k].kind, []).append(int(k))
        if not kinds:
            break
        var = int(rng.choice(kinds[str(rng.choice(sorted(kinds)))]))
        values = made.values(var)[1:] if rng.integers(3) else made.values(var)
        decided = made.decide(var, 1 << int(rng.choice(values)))
        made = decided if isinstance(decided, Candidate) else made
    return made.random_completion(rng)
