"""Are the generated programs right? Thousands of random candidates, of random and of library sequences, against the interpreter.

    python -m kernelscape.experiments.correctness [--n 2000] [--seed 1]

writes experiments/results/correctness.md and .json. The exit status is 1 when any candidate is wrong, does not compile, or
compiles with warnings.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..kernels.library import load, names
from ..kernels.normalise import normalise
from ..kernels.sequence import Recording, record_sequence
from ..kernels.tasks import Problem
from ..runtime.conditions import take_conditions
from ..space.candidate import DeadEnd
from ..space.constraints import build_space
from . import checking
from .checking import FEATURES, Way

TESTS = Path(__file__).resolve().parent.parent / "tests"
RESULTS = Path(__file__).resolve().parent / "results"
SIZES = ((1, 1, 1), (2, 3, 5), (7, 13, 4), (17, 1, 31), (37, 53, 29), (64, 48, 16), (61, 130, 9))
MACHINES = ((2, 64), (4, 32), (3, 16), (1, 64))  # cores, bytes of a vector
CANDIDATES_OF_A_PROBLEM = 6
SPREAD = 5  # Hypothesis varies what it drew before: only each so manyth example is taken


@dataclass(frozen=True)
class Case:
    """A problem with arguments."""

    name: str
    recording: Recording
    problem: Problem
    arrays: dict[str, Any]
    scalars: dict[str, Any]


@dataclass
class Tally:
    """What came out."""

    n_candidates: int = 0
    n_problems: int = 0
    n_dead_ends: int = 0
    n_repeated: int = 0  # candidates whose text was checked already
    n_left_out: int = 0  # problems where rounding alone decides
    wrong: list[str] = field(default_factory=list)
    not_compiled: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    of_library: int = 0
    texts: set[str] = field(default_factory=set)
    features: Counter[str] = field(default_factory=Counter)


def library_cases() -> Iterator[Case]:
    """Every library sequence at small odd sizes, f32 and f64, for ever."""
    rng = np.random.default_rng(0)
    while True:
        for sizes in SIZES:
            for k, name in enumerate(names()):
                entry = load(name)
                dtype = np.float32 if (k + sizes[0]) % 3 else np.float64
                chosen = entry.complete(dict(zip(entry.sizes, sizes, strict=False)))
                args = entry.make_arguments(chosen, np.dtype(dtype), rng)
                recording = record_sequence(entry.sequence, args, name)
                given = [a for a in args if isinstance(a, np.ndarray)]
                numbers = [a for a in args if not isinstance(a, np.ndarray)]
                yield Case(
                    f"{name} {chosen}",
                    recording,
                    normalise(recording),
                    dict(zip((a.name for a in recording.arrays), given, strict=True)),
                    dict(zip((s.name for s in recording.scalars), numbers, strict=True)),
                )


def random_cases(n: int, seed: int) -> list[Case]:
    """Random sequences of the kernels in tests/."""
    sys.path[:0] = [str(TESTS), str(TESTS / "codegen")]
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from templates import any_sequence  # type: ignore[import-not-found]

    drawn: list[Any] = []
    found: list[Case] = []

    @seeded(seed)
    @settings(
        max_examples=n * SPREAD,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(any_sequence())
    def collect(example: Any) -> None:
        drawn.append(example)

    collect()
    for example in drawn[::SPREAD]:
        problem = normalise(example.recording)
        found.append(
            Case(repr(example), example.recording, problem, example.arrays, example.scalars)
        )
    return found


def check_case(case: Case, tally: Tally, n: int, folder: Path, rng: np.random.Generator) -> None:
    """Checks up to `n` random candidates of one problem."""
    cores, vector_bytes = MACHINES[tally.n_problems % len(MACHINES)]
    stem = f"p{tally.n_problems}"
    tally.n_problems += 1
    inputs = checking.make_inputs(case.recording, case.problem, case.arrays, case.scalars)
    if not inputs:
        tally.n_left_out += 1
        return
    root = build_space(case.problem, checking.target(cores, vector_bytes)).root()
    if isinstance(root, DeadEnd):
        tally.wrong.append(f"{case.name}: the space is empty: {root.why}")
        return
    candidates, sources = [], []
    for _ in range(n):
        made = checking.random_candidate(root, rng)
        if isinstance(made, DeadEnd):
            tally.n_dead_ends += 1
            continue
        source = checking.source_of(made)
        if source.key in tally.texts:
            tally.n_repeated += 1
            continue
        tally.texts.add(source.key)
        candidates.append(made)
        sources.append(source)
    builds = checking.build_all(sources, folder, stem)
    for k, (candidate, built) in enumerate(zip(candidates, builds, strict=True)):
        tally.n_candidates += 1
        tally.features.update(checking.features(candidate))
        where = f"{case.name}, {cores} cores, {vector_bytes} B, {folder}/{stem}_{k}.c"
        if built.library is None:
            tally.not_compiled.append(f"{where}: {built.log}")
            continue
        if built.log:
            tally.warned.append(f"{where}: {built.log}")
        ways = [Way()] if k % 4 else [Way(), Way(repeats=4, thread_limit=1)]
        for way in ways:
            found = checking.check(built, inputs, way)
            if found:
                tally.wrong.append(f"{where}: {found}")
                print(tally.wrong[-1], file=sys.stderr, flush=True)
                break
        else:
            if not built.log:
                built.library.unlink()
                built.library.with_suffix(".c").unlink()


def run(n: int, seed: int, random_share: float, folder: Path, stops: bool = False) -> Tally:
    """Checks `n` candidates, a share of them of random sequences; `stops` at the first one that is wrong."""
    tally, rng = Tally(), np.random.default_rng(seed)
    n_library = n - round(n * random_share)
    for case in library_cases():
        left = n_library - tally.n_candidates
        if left <= 0 or (stops and tally.wrong):
            break
        check_case(case, tally, min(left, CANDIDATES_OF_A_PROBLEM), folder, rng)
    tally.of_library = tally.n_candidates
    round_seed = seed
    while tally.n_candidates < n and not (stops and tally.wrong):
        for case in random_cases(max(10, (n - tally.n_candidates) // 6), round_seed):
            left = n - tally.n_candidates
            if left > 0 and not (stops and tally.wrong):
                check_case(case, tally, min(left, CANDIDATES_OF_A_PROBLEM), folder, rng)
        round_seed += 1
    return tally


def report(tally: Tally, seconds: float, seed: int) -> str:
    """The tally as Markdown."""
    stamp = take_conditions(compiler="gcc", flags=checking.FLAGS)
    counts = [
        ("candidates, all of different texts", tally.n_candidates),
        ("of the library's sequences", tally.of_library),
        ("of random sequences", tally.n_candidates - tally.of_library),
        ("problems", tally.n_problems),
        ("further candidates whose text was checked already", tally.n_repeated),
        ("**wrong**", len(tally.wrong)),
        ("**not compiled**", len(tally.not_compiled)),
        ("**with warnings** (-Wall -Wextra)", len(tally.warned)),
        ("descents that ended dead", tally.n_dead_ends),
        ("problems left out (rounding alone decides a comparison)", tally.n_left_out),
    ]
    lines = [
        "# Correctness of generated programs",
        "",
        "Random complete candidates, compiled and run 20 times each on several inputs with one thread held back in turn, a quarter",
        "of them once more with a single thread, against the interpreter in float64. Written by",
        f"`python -m kernelscape.experiments.correctness --n {tally.n_candidates} --seed {seed}` in {seconds:.0f} s.",
        "",
        "| | count |",
        "|---|---:|",
        *(f"| {name} | {value} |" for name, value in counts),
        "",
        "| feature | candidates that use it |",
        "|---|---:|",
        *(f"| {name} | {tally.features[name]} |" for name in FEATURES),
        "",
        f"{stamp.taken}, {stamp.cpu}, {stamp.cores} cores, {stamp.kernel}, "
        + ", ".join(f"{k} {v}" for k, v in stamp.versions.items())
        + ".",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=2000, help="candidates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random-share", type=float, default=0.6)
    parser.add_argument("-o", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--stop", action="store_true", help="stop at the first that is wrong")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="correctness-"))
    tally = run(options.n, options.seed, options.random_share, folder, options.stop)
    text = report(tally, time.monotonic() - started, options.seed)
    print(text)
    for line in (*tally.wrong[:20], *tally.not_compiled[:20], *tally.warned[:20]):
        print(line, file=sys.stderr)
    options.o.mkdir(parents=True, exist_ok=True)
    (options.o / "correctness.md").write_text(text)
    record = {
        "n_candidates": tally.n_candidates,
        "n_problems": tally.n_problems,
        "n_repeated": tally.n_repeated,
        "n_wrong": len(tally.wrong),
        "n_not_compiled": len(tally.not_compiled),
        "n_with_warnings": len(tally.warned),
        "n_dead_ends": tally.n_dead_ends,
        "n_left_out": tally.n_left_out,
        "features": {name: tally.features[name] for name in FEATURES},
        "conditions": msgspec.to_builtins(take_conditions(compiler="gcc", flags=checking.FLAGS)),
    }
    (options.o / "correctness.json").write_text(json.dumps(record, indent=2) + "\n")
    return 1 if tally.wrong or tally.not_compiled or tally.warned else 0


if __name__ == "__main__":
    sys.exit(main())
