"""Are the generated kernels right, and does NVRTC take them? Random candidates of GPU spaces, against the interpreter.

    python -m kernelscape.experiments.gpu_correctness [--n 2000] [--seed 1] [--minutes 2]

writes experiments/results/gpu_correctness.md and .json. Every candidate is compiled by NVRTC for two architectures and run with its
threads in forward, backward and random order. With --minutes it stops when these are over; the same command goes on from there,
problem by problem, as long as the code that is tested is the same. The exit status is 1 when any is wrong, refused, or compiles
with warnings, 2 when it is not finished.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

import msgspec
import numpy as np

from ..codegen.plan import read_plan
from ..codegen.source import Source
from ..runtime.conditions import Conditions, take_conditions
from ..space.candidate import Candidate, DeadEnd
from ..space.constraints import build_space
from . import checking, gpu_checking
from .correctness import RESULTS, Case, library_cases, random_cases

CANDIDATES_OF_A_PROBLEM = 4
BUILDS_AT_ONCE = 2
BATCH = 20  # random sequences that are drawn together
FEATURES = (
    "several launches", "several tasks in a launch", "BLOCK", "THREAD", "LOOP", "UNROLL", "VECTOR", "partial tiles", "TREE",
    "tree over warps", "PARTIALS", "LANES", "REGISTER", "SHARED", "STREAM", "COPY", "barrier", "opaque task",
)  # fmt: skip


@dataclass
class Tally:
    """What came out so far."""

    key: str = ""  # of the code that was tested, and of what was asked
    seconds: float = 0.0
    n_candidates: int = 0
    n_library: int = 0  # problems, of the library's sequences
    n_random: int = 0  # problems, of random sequences
    n_dead_ends: int = 0
    n_left_out: int = 0  # problems where rounding alone decides
    of_library: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # by NVRTC, or with warnings
    texts: set[str] = field(default_factory=set)
    features: dict[str, int] = field(default_factory=dict)

    @property
    def n_problems(self) -> int:
        return self.n_library + self.n_random


def features(candidate: Candidate, source: Source) -> set[str]:
    """Which of FEATURES an implementation uses."""
    plan = read_plan(candidate)
    loops = [p for t in plan.tasks for p in t.loops]
    kernels = source.text[source.text.find("launch_0(") :]
    facts = {
        "several launches": len(source.launches) > 1,
        "several tasks in a launch": len(plan.launches) < len(plan.tasks),
        "BLOCK": any(p.is_parallel for p in loops),
        "THREAD": any(p.is_thread for p in loops),
        "LOOP": any(p.has_mid_loop for p in loops),
        "UNROLL": any(p.inner > 1 and not p.is_vector for p in loops),
        "VECTOR": any(p.is_vector for p in loops),
        "partial tiles": any(not p.divides for p in loops),
        "TREE": any(t.has_tree for t in plan.tasks),
        "tree over warps": " meeting[" in kernels,
        "PARTIALS": any(t.partials for t in plan.tasks),
        "LANES": any(p.has_lanes for p in loops),
        "REGISTER": any(t.registers for t in plan.tasks),
        "SHARED": any(t.shared for t in plan.tasks),
        "STREAM": any(t.is_streamed for t in plan.tasks),
        "COPY": any(t.copies for t in plan.tasks),
        "barrier": "__syncthreads" in kernels,
        "opaque task": any(t.task.opaque is not None for t in plan.tasks),
    }
    return {name for name, holds in facts.items() if holds}


def check_case(case: Case, tally: Tally, n: int, folder: Path, rng: np.random.Generator) -> None:
    """Checks up to `n` random candidates of one problem."""
    inputs = checking.make_inputs(case.recording, case.problem, case.arrays, case.scalars)
    if not inputs:
        tally.n_left_out += 1
        return
    root = build_space(case.problem, gpu_checking.target()).root()
    if isinstance(root, DeadEnd):
        tally.wrong.append(f"{case.name}: the space is empty: {root.why}")
        return
    sources = []
    for _ in range(n):
        made = checking.random_candidate(root, rng)
        if isinstance(made, DeadEnd):
            tally.n_dead_ends += 1
            continue
        source = gpu_checking.source_of(made)
        if source.key not in tally.texts:
            tally.texts.add(source.key)
            for name in features(made, source):
                tally.features[name] = tally.features.get(name, 0) + 1
            sources.append(source)
    with ThreadPoolExecutor(BUILDS_AT_ONCE) as pool:
        checked = pool.map(lambda s: gpu_checking.check(s, inputs, folder), sources)
        said = pool.map(lambda s: gpu_checking.compiler_says(s, folder), sources)
        for source, found, log in zip(sources, checked, said, strict=True):
            tally.n_candidates += 1
            if found or log:
                kept = folder / f"{source.key}.cu"
                kept.write_text(source.text)
                where = f"{case.name}, {kept}"
                tally.wrong += [f"{where}: {found}"] if found else []
                tally.refused += [f"{where}: {log}"] if log else []
                print(where, found, log, file=sys.stderr, flush=True)


def random_for_ever(seed: int, first: int = 0) -> Iterator[Case]:
    """Random sequences of the kernels in tests/, from number `first` on."""
    for k in count(first // BATCH):
        yield from random_cases(BATCH, seed + k)[first - k * BATCH if k == first // BATCH else 0 :]


def run(
    tally: Tally,
    n: int,
    seed: int,
    random_share: float,
    folder: Path,
    keep: Callable[[Tally], bool] = lambda _: True,
) -> bool:
    """Checks until there are `n` candidates, a share of them of random sequences; `keep` is told after each problem and says
    whether to go on. Whether all are there.

    Each problem has a random generator of its own, so that the work may stop anywhere and go on from the tally.
    """
    of_library = n - round(n * random_share)
    for case in islice(library_cases(), tally.n_library, None):
        if tally.of_library >= of_library:
            break
        rng = np.random.default_rng([seed, 0, tally.n_library])
        left = of_library - tally.n_candidates
        check_case(case, tally, min(left, CANDIDATES_OF_A_PROBLEM), folder, rng)
        tally.n_library += 1
        tally.of_library = tally.n_candidates
        if not keep(tally):
            return False
    for case in random_for_ever(seed, tally.n_random):
        if tally.n_candidates >= n:
            break
        rng = np.random.default_rng([seed, 1, tally.n_random])
        left = n - tally.n_candidates
        check_case(case, tally, min(left, CANDIDATES_OF_A_PROBLEM), folder, rng)
        tally.n_random += 1
        if not keep(tally):
            return False
    return True


def tested_code() -> str:
    """A digest of what generates, compiles and emulates kernels: tallies of different ones do not add up."""
    root, digest = Path(__file__).resolve().parents[1], hashlib.blake2b(digest_size=8)
    for name in ("kernels", "space", "codegen", "runtime/cuda", "runtime/emulator"):
        for path in sorted(p for p in (root / name).rglob("*") if p.suffix in (".py", ".h")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def stored_tally(place: Path, key: str) -> Tally:
    """What an earlier run of the same has left, or a new tally."""
    try:
        found = msgspec.json.decode(place.read_bytes(), type=Record).tally
    except (OSError, msgspec.DecodeError):
        return Tally(key)
    return found if found.key == key else Tally(key)


class Record(msgspec.Struct):
    """The file of results."""

    tally: Tally
    conditions: Conditions


def report(record: Record, seed: int) -> str:
    """The tally as Markdown."""
    tally, stamp = record.tally, record.conditions
    counts = [
        ("candidates, all of different texts", tally.n_candidates),
        ("of the library's sequences", tally.of_library),
        ("problems", tally.n_problems),
        ("**wrong**", len(tally.wrong)),
        ("**refused by NVRTC, or with warnings**", len(tally.refused)),
        ("descents that ended dead", tally.n_dead_ends),
        ("problems left out (rounding alone decides a comparison)", tally.n_left_out),
    ]
    lines = [
        "# Correctness of generated kernels",
        "",
        "Random complete candidates, compiled by NVRTC for sm_80 and sm_90, run on the emulator with",
        "threads in forward, backward and random order, against the interpreter in float64. Written by",
        f"`python -m kernelscape.experiments.gpu_correctness --n {tally.n_candidates} --seed {seed}` in {tally.seconds:.0f} s.",
        "",
        "| | count |",
        "|---|---:|",
        *(f"| {name} | {value} |" for name, value in counts),
        "",
        "| feature | candidates that use it |",
        "|---|---:|",
        *(f"| {name} | {tally.features.get(name, 0)} |" for name in FEATURES),
        "",
        f"{stamp.taken}, {stamp.cpu}, {stamp.cores} cores, {stamp.kernel}.",
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=2000, help="candidates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random-share", type=float, default=0.5)
    parser.add_argument("-o", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--minutes", type=float, help="stop after so many; the same goes on then")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    key = f"{tested_code()} {options.n} {options.seed} {options.random_share}"
    place = options.o / "gpu_correctness.json"
    tally = stored_tally(place, key)
    started, before_s = time.monotonic(), tally.seconds
    end_s = 60 * options.minutes if options.minutes else float("inf")
    options.o.mkdir(parents=True, exist_ok=True)

    def keep(tally: Tally) -> bool:
        tally.seconds = before_s + time.monotonic() - started
        record = Record(tally, take_conditions())
        place.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        (options.o / "gpu_correctness.md").write_text(report(record, options.seed))
        return time.monotonic() - started < end_s

    folder = Path(tempfile.mkdtemp(prefix="gpu-correctness-"))
    is_whole = run(tally, options.n, options.seed, options.random_share, folder, keep)
    print(report(Record(tally, take_conditions()), options.seed))
    if tally.wrong or tally.refused:
        return 1
    if not is_whole:
        print(f"{tally.n_candidates} of {options.n}: run the same again to go on")
    return 0 if is_whole else 2


if __name__ == "__main__":
    sys.exit(main())
