"""Random candidates of many problems, checked and counted: what the experiments on correctness of all backends have in common.

A large sample may be made in pieces, each with a seed of its own: they add up in one file of results, where each says its seed, its
versions and the sources of the generator that it checked.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.c.source import Source
from ..space.constraints import build_space
from ..space.engine.candidate import Candidate, DeadEnd
from ..space.targets.target import Target
from . import checking
from .calling import InputSet
from .cases import Case, library_cases, random_cases
from .writing import read_results, table, write_results

_PACKAGE = Path(__file__).resolve().parents[1]
_KEY_DIGITS = 10  # of a text, by which texts of several pieces are told apart

Faults = dict[str, str]
"""What is wrong with one candidate, by kind; {} for nothing."""


@dataclass(frozen=True, kw_only=True)
class Checker:
    """How candidates of one kind of target are made and checked."""

    file: str  # of the results, and the name of the experiment
    heading: str
    method: str  # how candidates are checked, as Markdown
    faults: Mapping[str, str]  # kinds, with their names for people
    features: Sequence[str]
    random_share: float  # of candidates that are of random sequences
    candidates_of_a_problem: int
    target: Callable[[int], Target]  # of the problem of that number
    source_of: Callable[[Candidate], Source]
    features_of: Callable[[Candidate, Source], set[str]]
    # Builds and runs texts in files whose paths begin with a stem; those of faulty ones stay there.
    check: Callable[[Sequence[Source], Sequence[InputSet], Path], list[Faults]]
    conditions: Callable[[], dict[str, Any]]  # the machine, and what compiled


@dataclass
class Tally:
    """What came out. `texts` are the keys of those that were checked, here or in an earlier piece."""

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
) -> Tally:
    """Checks `n` candidates of texts that are not `known`, a share of them of random sequences; `stops` at the first fault."""
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
    until(n_library, islice(library_cases(seed), 10 * n_library))
    tally.of_library = tally.n_candidates
    until(n, random_cases(seed))
    return tally


# --- pieces of a sample, in one file -------------------------------------------------------------


def piece_of(checker: Checker, tally: Tally, known: set[str]) -> dict[str, Any]:
    """The tally as JSON values, as it stands in the file."""
    return {
        "n_candidates": tally.n_candidates,
        "of_library": tally.of_library,
        "n_problems": tally.n_problems,
        "n_repeated": tally.n_repeated,
        "n_dead_ends": tally.n_dead_ends,
        "n_left_out": tally.n_left_out,
        **{f"n_{kind}": len(tally.faults.get(kind, ())) for kind in checker.faults},
        "features": {name: tally.features[name] for name in checker.features},
        "generator": generator_hash(),
        "conditions": checker.conditions(),
        "texts": " ".join(sorted(tally.texts - known)),
    }


def generator_hash() -> str:
    """Hash of the sources that make a text out of a kernel."""
    digest = hashlib.blake2b(digest_size=4)
    for layer in ("kernels", "space", "codegen"):
        for path in sorted((_PACKAGE / layer).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def stored_pieces(file: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """The pieces in a file of results, also in one of a time when it held a single one."""
    stored = read_results(file, folder)
    pieces: list[dict[str, Any]] = stored.get("pieces", [stored] if stored else [])
    return pieces


def texts_of(pieces: Sequence[Mapping[str, Any]]) -> set[str]:
    """Keys of all texts that were checked, where the pieces tell."""
    return {key for piece in pieces for key in piece.get("texts", "").split()}


def report(checker: Checker, pieces: Sequence[Mapping[str, Any]]) -> str:
    """The sum of the pieces as Markdown."""

    def total(key: str) -> str:
        return str(sum(p[key] for p in pieces)) if all(key in p for p in pieces) else "–"

    counts = [
        ("candidates, of different texts", total("n_candidates")),
        ("of the library's sequences", total("of_library")),
        ("problems", total("n_problems")),
        ("further candidates whose text was checked already", total("n_repeated")),
        *((f"**{name}**", total(f"n_{kind}")) for kind, name in checker.faults.items()),
        ("descents that ended dead", total("n_dead_ends")),
        ("problems left out (rounding alone decides a comparison)", total("n_left_out")),
    ]
    used = [(f, str(sum(p["features"].get(f, 0) for p in pieces))) for f in checker.features]
    parts = [f"# {checker.heading}", "", f"{checker.method} Made by", ""]
    parts += [f"- {_made(checker, piece)}" for piece in pieces]
    parts += ["", table(["", "count"], [[*line] for line in counts])]
    parts += ["", table(["feature", "candidates that use it"], [[*line] for line in used])]
    return "\n".join([*parts, ""])


def _made(checker: Checker, piece: Mapping[str, Any]) -> str:
    taken = piece["conditions"]
    options = ("seed", "random_share")
    asked = "".join(f" --{k.replace('_', '-')} {piece[k]}" for k in options if k in piece)
    seconds = f" in {piece['seconds']:.0f} s" if "seconds" in piece else ""
    generator = f", generator {piece['generator']}" if "generator" in piece else ""
    versions = ", ".join(f"{k} {v}" for k, v in taken["versions"].items())
    return (
        f"`python -m kernelscape.experiments.{checker.file} --n {piece['n_candidates']}{asked}`{seconds}: {taken['taken']},"
        f" {taken['cpu']}, {taken['cores']} cores, {taken['kernel']}, {versions}{generator}"
    )


def run(checker: Checker, doc: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command line of an experiment."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=2000, help="candidates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random-share", type=float, default=checker.random_share)
    parser.add_argument("--add", action="store_true", help="to the pieces that are there already")
    parser.add_argument("--stop", action="store_true", help="stop at the first fault")
    parser.add_argument("-o", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    stored = stored_pieces(checker.file, given.o) if given.add else []
    kept = [piece for piece in stored if piece.get("seed") != given.seed]
    known = texts_of(kept)
    started_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(
            prefix=f"{checker.file}-", ignore_cleanup_errors=True
        ) as scratch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        tally = sample(
            checker,
            given.n,
            given.seed,
            given.random_share,
            Path(scratch),
            stops=given.stop,
            known=known,
        )
    asked = {"seed": given.seed, "random_share": given.random_share}
    took = {"seconds": time.monotonic() - started_s}
    pieces = [*kept, asked | took | piece_of(checker, tally, known)]
    text = report(checker, pieces)
    write_results(checker.file, text, {"pieces": pieces}, given.o)
    print(text)
    return 1 if tally.faults else 0
