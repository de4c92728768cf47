"""Are the generated programs right? Thousands of random candidates, of random and of library sequences, against the interpreter.

    python -m kernelscape.experiments.correctness [--n 2000] [--seed 1] [--add]
    python -m kernelscape.experiments.correctness --operators
    python -m kernelscape.experiments.correctness --bounds [FIRST END]
    python -m kernelscape.experiments.correctness --windows [FIRST END]
    python -m kernelscape.experiments.correctness --combinations [FIRST END [MOST]]

writes experiments/results/correctness.md. With --add the pieces of other seeds that are there stay, and the counts are
those of all. The exit status is 1 when any candidate is wrong, does not compile, or compiles with warnings.
With --operators it prints the wrong cells of the whole table of operators (testing/operator_table.py), which is to have none.
With --windows it runs random programs on random trees whose calls wait, at five limits of a window (testing/sparse_windows.py).
With --combinations small ones are compiled and run with every combination of what windows have brought into the space, at most MOST
of each form of a program (testing/window_combinations.py).
With --bounds it compares terms of the bound with counts (admissible.py) at the ends of random descents, numbers FIRST to END.
Ranges of these three add up in experiments/results/counted.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path

import msgspec
import numpy as np

from ..codegen.text.source import Source
from ..runtime.measure.conditions import take_conditions
from ..testing import checking, window_combinations
from ..testing.calling import InputSet
from ..testing.checking import Build, Way
from ..testing.operator_runs import wrong_in_all_ways
from ..testing.operator_table import cells
from ..testing.sampling import Checker, Faults
from ..testing.sparse_windows import drawn, fault
from . import admissible, counted
from .counted import Counted
from .features import FEATURES, features
from .sampling import Sampling, run
from .writing import parser_of

_MACHINES = ((2, 64), (4, 32), (3, 16), (1, 64))  # cores, bytes of a vector


def _check(sources: Sequence[Source], inputs: Sequence[InputSet], stem: Path) -> list[Faults]:
    builds = checking.build_all(sources, stem.parent, stem.name, more_flags=())
    found = [_faults(built, inputs, k % 4 == 0) for k, built in enumerate(builds)]
    kept = {built.library for built, faults in zip(builds, found, strict=True) if faults}
    for library in {built.library for built in builds if built.library is not None} - kept:
        library.unlink()
        library.with_suffix(".c").unlink()
    return found


def _faults(built: Build, inputs: Sequence[InputSet], also_alone: bool) -> Faults:
    if built.library is None:
        return {"not_compiled": built.log}
    faults = {"with_warnings": built.log} if built.log else {}
    ways = [Way(repeats=20), *([Way(repeats=4, thread_limit=1)] * also_alone)]
    found = checking.check(built, inputs, *ways)
    return faults | ({"wrong": found} if found else {})


QUESTION = Sampling(
    file="correctness",
    heading="Correctness of generated programs",
    method=(
        "Random complete candidates, compiled and run 20 times each on several inputs with one thread held back in turn,\n"
        "a quarter of them once more with a single thread, against the interpreter in float64."
    ),
    faults={
        "wrong": "wrong",
        "not_compiled": "not compiled",
        "with_warnings": "with warnings (-Wall -Wextra)",
    },
    features=FEATURES,
    random_share=0.6,
    checker=Checker(
        candidates_of_a_problem=6,
        target=lambda number: checking.target(*_MACHINES[number % len(_MACHINES)]),
        source_of=checking.crowded_source_of,
        features_of=lambda candidate, _: features(candidate),
        check=_check,
    ),
    conditions=lambda: msgspec.to_builtins(take_conditions(compiler="gcc", flags=checking.FLAGS)),
)
report = QUESTION.page


_DESCENTS, _PROGRAMS, _SMALL = "descents", "programs in windows", "small programs"  # kinds


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--operators" in given:
        return operators()
    for option, (kind, ask) in RANGES.items():
        if option in given:
            parser = parser_of(__doc__)
            parser.add_argument(option, dest="numbers", type=int, nargs="*")
            asked = parser.parse_args(given)
            try:
                numbers = signature(ask).bind(*asked.numbers)
            except TypeError:
                parser.error(f"{option} takes FIRST and END")
            numbers.apply_defaults()
            first, end = numbers.arguments["first"], numbers.arguments["end"]
            fault_in_range = counted.overlap(kind, first, end, asked.results)
            if fault_in_range:
                parser.error(fault_in_range)
            return counted.keep(ask(*numbers.args), asked.results)
    return run(QUESTION, __doc__, arguments)


def windows(first: int = 0, end: int = 500) -> Counted:
    """Random programs of these numbers, with those whose windows leave anything but what the interpreter does."""
    n_planned, wrong = 0, list[str]()
    for number in range(first, end):
        found, n = fault(drawn(number))
        n_planned += n
        wrong += [f"{number}: {found}"] if found else []
    return Counted(_PROGRAMS, first, end, {"calls by plans": n_planned}, wrong)


def combinations(first: int = 0, end: int = 200, most: int = window_combinations.MOST) -> Counted:
    """Combinations of the small programs of these numbers, with what is wrong, and with the values that were drawn."""
    with tempfile.TemporaryDirectory(prefix="kernelscape-combinations-") as folder:
        programs = map(window_combinations.drawn, range(first, end))
        found = window_combinations.run(programs, Path(folder), most)
    counts = {
        "forms": found.n_forms,
        "combinations": found.n_combinations,
        "forms whole": found.n_whole,
        "texts": found.n_texts,
        "programs without room": found.n_full,
    }
    drawn_values = {f"{kind} {x}": n for (kind, x), n in sorted(found.values.items())}
    return Counted(_SMALL, first, end, counts, found.wrong, drawn_values)


def bounds(first: int = 0, end: int = 1000) -> Counted:
    """Random descents of these numbers, with the terms that are above their counts at the ends, or fell.

    Of each sequence the numbers lie `len(JOBS)` apart.
    """
    n_shares, wrong, n_jobs = 0, list[str](), len(admissible.JOBS)
    for k, job in enumerate(admissible.JOBS):
        numbers = range(first + (k - first) % n_jobs, end, n_jobs)
        if not numbers:
            continue
        descents = admissible.Descents(job, seed=1)
        for number in numbers:
            shares, n_fallen = descents.one(np.random.default_rng(number), by_steps=True)
            n_shares += len(shares)
            above = [(name, share) for name, share in shares if admissible.is_above(share)]
            wrong += [
                f"{number}, {job.name}: {x} are {share:.4f} of their count" for x, share in above
            ]
            wrong += [f"{number}, {job.name}: {n_fallen} terms fell"] * (n_fallen > 0)
    return Counted(_DESCENTS, first, end, {"terms": n_shares}, wrong)


RANGES: Mapping[str, tuple[str, Callable[..., Counted]]] = {
    "--bounds": (_DESCENTS, bounds),
    "--windows": (_PROGRAMS, windows),
    "--combinations": (_SMALL, combinations),
}


def operators(pieces: int = 16, chosen: Sequence[int] | None = None) -> int:
    """Prints what is wrong in so many pieces of the table, or in those chosen; 1 where anything is."""
    n_wrong = 0
    for k in range(pieces) if chosen is None else chosen:
        drawn = cells()[k::pieces]
        with tempfile.TemporaryDirectory(prefix="kernelscape-operators-") as folder:
            found = wrong_in_all_ways(drawn, Path(folder))
        lines = [f"  {way}: {line}" for way, wrong in found.items() for line in wrong]
        print(
            f"piece {k}: {len(drawn)} cells, {len(found)} ways, {len(lines)} wrong",
            *lines,
            sep="\n",
        )
        n_wrong += len(lines)
    return int(n_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
