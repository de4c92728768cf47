"""Random candidates of many problems, checked and counted."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from ..codegen.text.source import Source
from ..space.build import build_space
from ..space.candidate import Candidate, DeadEnd
from ..space.targets.target import Target
from . import checking
from .calling import InputSet
from .cases import Case, library_cases, random_cases

_KEY_DIGITS = 10  # of a text, by which texts of several pieces are told apart

Faults = dict[str, str]
"""Faults of one candidate by kind; {} for none."""


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Checker of candidates for one kind of target: makes and judges them."""

    candidates_of_a_problem: int
    target: Callable[[int], Target]  # of the problem of that number
    source_of: Callable[[Candidate], Source]
    features_of: Callable[[Candidate, Source], set[str]]
    # Builds and runs texts in files whose paths begin with a stem; those of faulty ones stay there.
    check: Callable[[Sequence[Source], Sequence[InputSet], Path], list[Faults]]


@dataclass
class Tally:
    """Counts of a sample. `texts` are the keys of the texts that were checked, here or in an earlier piece."""

    n_candidates: int = 0
    n_problems: int = 0
    n_dead_ends: int = 0
    n_repeated: int = 0  # candidates whose text was checked already
    n_left_out: int = 0  # problems where rounding alone decides
    of_library: int = 0
    faults: dict[str, list[str]] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    features: Counter[str] = field(default_factory=Counter)

    def add_fault(self, kind: str, what: str) -> None:
        self.faults.setdefault(kind, []).append(what)
        print(f"{kind.replace('_', ' ')}: {what}", file=sys.stderr, flush=True)


def check_case(
    checker: Checker,
    case: Case,
    tally: Tally,
    n: int,
    folder: Path,
    rng: np.random.Generator,
) -> None:
    """Checks up to `n` random candidates of one problem."""
    number = tally.n_problems
    tally.n_problems += 1
    inputs = checking.make_inputs(case.recording, case.problem, case.arrays, case.scalars)
    if not inputs:
        tally.n_left_out += 1
        return
    target = checker.target(number)
    root = build_space(case.problem, target).root()
    if isinstance(root, DeadEnd):
        tally.add_fault("wrong", f"{case.name}: the space is empty: {root.why}")
        return
    sources = []
    for _ in range(n):
        made = checking.random_candidate(root, rng)
        if isinstance(made, DeadEnd):
            tally.n_dead_ends += 1
            continue
        source = checker.source_of(made)
        key = source.key[:_KEY_DIGITS]
        if key in tally.texts:
            tally.n_repeated += 1
            continue
        tally.texts.add(key)
        tally.features.update(checker.features_of(made, source))
        sources.append(source)
    stem = folder / f"p{number}"
    for k, faults in enumerate(checker.check(sources, inputs, stem)):
        tally.n_candidates += 1
        where = f"{case.name}, {target.cores} cores, {target.vector_bytes} B, {stem}_{k}"
        for kind, what in faults.items():
            tally.add_fault(kind, f"{where}: {what}")


def sample(
    checker: Checker,
    n: int,
    seed: int,
    random_share: float,
    folder: Path,
    *,
    stops: bool = False,
    known: set[str] | None = None,
    only: Collection[str] = (),
) -> Tally:
    """Checks `n` candidates of texts that are not `known`, a share of them of random sequences; `stops` at the first fault.

    `only`: names of the library's sequences to take, all if empty.
    """
    tally, rng = Tally(texts=set(known or ())), np.random.default_rng(seed)
    n_library = n - round(n * random_share)

    def until(limit: int, cases: Iterator[Case]) -> None:
        for case in cases:
            left = limit - tally.n_candidates
            if left <= 0 or (stops and tally.faults):
                return
            n_here = min(left, checker.candidates_of_a_problem)
            check_case(checker, case, tally, n_here, folder, rng)

    # What has few implementations is exhausted, and then again and again: so often at most.
    until(n_library, islice(library_cases(seed, only), 10 * n_library))
    tally.of_library = tally.n_candidates
    until(n, random_cases(seed))
    return tally
