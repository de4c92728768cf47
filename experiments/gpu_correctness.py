"""Are the generated kernels right, and does NVRTC take them? Random candidates of GPU spaces, against the interpreter.

    python -m kernelscape.experiments.gpu_correctness [--n 2000] [--seed 1]

writes experiments/results/gpu_correctness.md and .json. Every candidate is compiled by NVRTC for two architectures and run with its
threads in forward, backward and random order. The exit status is 1 when any is wrong, refused, or compiles with warnings.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import msgspec
import numpy as np

from ..codegen.plan import read_plan
from ..codegen.source import Source
from ..runtime.conditions import take_conditions
from ..space.candidate import Candidate, DeadEnd
from ..space.constraints import build_space
from . import checking, gpu_checking
from .correctness import RESULTS, Case, library_cases, random_cases

CANDIDATES_OF_A_PROBLEM = 4
BUILDS_AT_ONCE = 2
FEATURES = (
    "several launches", "several tasks in a launch", "BLOCK", "THREAD", "LOOP", "UNROLL", "VECTOR", "partial tiles", "TREE",
    "tree over warps", "PARTIALS", "LANES", "REGISTER", "SHARED", "STREAM", "COPY", "barrier", "opaque task",
)  # fmt: skip


@dataclass
class Tally:
    """What came out."""

    n_candidates: int = 0
    n_problems: int = 0
    n_dead_ends: int = 0
    n_left_out: int = 0  # problems where rounding alone decides
    of_library: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # by NVRTC, or with warnings
    texts: set[str] = field(default_factory=set)
    features: Counter[str] = field(default_factory=Counter)


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
    tally.n_problems += 1
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
            tally.features.update(features(made, source))
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


def random_for_ever(seed: int) -> Iterator[Case]:
    """Random sequences of the kernels in tests/."""
    for k in count(seed):
        yield from random_cases(20, k)


def run(n: int, seed: int, random_share: float, folder: Path) -> Tally:
    """Checks `n` candidates, a share of them of random sequences."""
    tally, rng = Tally(), np.random.default_rng(seed)
    for limit, cases in (
        (n - round(n * random_share), library_cases()),
        (n, random_for_ever(seed)),
    ):
        for case in cases:
            left = limit - tally.n_candidates
            if left <= 0:
                break
            check_case(case, tally, min(left, CANDIDATES_OF_A_PROBLEM), folder, rng)
        tally.of_library = tally.of_library or tally.n_candidates
    return tally


def report(tally: Tally, seconds: float, seed: int) -> str:
    """The tally as Markdown."""
    stamp = take_conditions()
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
        f"`python -m kernelscape.experiments.gpu_correctness --n {tally.n_candidates} --seed {seed}` in {seconds:.0f} s.",
        "",
        "| | count |",
        "|---|---:|",
        *(f"| {name} | {value} |" for name, value in counts),
        "",
        "| feature | candidates that use it |",
        "|---|---:|",
        *(f"| {name} | {tally.features[name]} |" for name in FEATURES),
        "",
        f"{stamp.taken}, {stamp.cpu}, {stamp.cores} cores, {stamp.kernel}.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=2000, help="candidates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random-share", type=float, default=0.5)
    parser.add_argument("-o", type=Path, default=RESULTS, help="folder for the results")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gpu-correctness-"))
    tally = run(options.n, options.seed, options.random_share, folder)
    text = report(tally, time.monotonic() - started, options.seed)
    print(text)
    options.o.mkdir(parents=True, exist_ok=True)
    (options.o / "gpu_correctness.md").write_text(text)
    record = {
        "n_candidates": tally.n_candidates,
        "n_problems": tally.n_problems,
        "n_wrong": len(tally.wrong),
        "n_refused": len(tally.refused),
        "n_dead_ends": tally.n_dead_ends,
        "n_left_out": tally.n_left_out,
        "features": {name: tally.features[name] for name in FEATURES},
        "conditions": msgspec.to_builtins(take_conditions()),
    }
    (options.o / "gpu_correctness.json").write_text(json.dumps(record, indent=2) + "\n")
    return 1 if tally.wrong or tally.refused else 0


if __name__ == "__main__":
    sys.exit(main())
