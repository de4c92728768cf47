"""Samples of candidates as results: what the experiments on correctness of all backends have in common.

A large sample may be made in pieces, each with a seed of its own: they add up in one file of results, where each says its seed, its
versions and the sources of the generator that it checked.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..kernels.library import names
from ..testing.sampling import Checker, Tally, sample
from .writing import parser_of, read_results, table, write_results

_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What is asked of a sample, and how its page says it."""

    file: str  # of the results, and the name of the experiment
    heading: str
    method: str  # how candidates are checked, as Markdown
    faults: Mapping[str, str]  # kinds, with their names for people
    features: Sequence[str]
    random_share: float  # of candidates that are of random sequences
    checker: Checker
    conditions: Callable[[], dict[str, Any]]  # the machine, and what compiled

    def page(self, values: dict[str, Any]) -> str:
        """The pieces as Markdown."""
        return report(self, pieces_of(values))


def piece_of(question: Sampling, tally: Tally, known: set[str]) -> dict[str, Any]:
    """The tally as JSON values, as it stands in the file."""
    return {
        "n_candidates": tally.n_candidates,
        "of_library": tally.of_library,
        "n_problems": tally.n_problems,
        "n_repeated": tally.n_repeated,
        "n_dead_ends": tally.n_dead_ends,
        "n_left_out": tally.n_left_out,
        **{f"n_{kind}": len(tally.faults.get(kind, ())) for kind in question.faults},
        "features": {name: tally.features[name] for name in question.features},
        "generator": generator_hash(),
        "conditions": question.conditions(),
        "texts": " ".join(sorted(tally.texts - known)),
    }


def generator_hash() -> str:
    """Hash of the sources that make a text out of a kernel."""
    return _hash("kernels", "space", "codegen")


def backend_hash() -> str:
    """Hash of the sources that make a text, build and run it."""
    return _hash("kernels", "space", "codegen", "runtime")


def corpus_hash() -> str:
    """Hash of the sources that make a random program out of a number."""
    return _hash("testing/generator")


def _hash(*folders: str) -> str:
    digest = hashlib.blake2b(digest_size=4)
    for folder in folders:
        for path in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def stored_pieces(file: str, folder: Path | None = None) -> list[dict[str, Any]]:
    """The pieces that this machine has made before."""
    return pieces_of(read_results(file, folder))


def pieces_of(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The pieces in values of results, also in those of a time when there was a single one."""
    pieces: list[dict[str, Any]] = values.get("pieces", [values] if values else [])
    return pieces


def texts_of(pieces: Sequence[Mapping[str, Any]]) -> set[str]:
    """Keys of all texts that were checked, where the pieces tell."""
    return {key for piece in pieces for key in piece.get("texts", "").split()}


def report(question: Sampling, pieces: Sequence[Mapping[str, Any]]) -> str:
    """The sum of the pieces as Markdown."""

    def total(key: str) -> str:
        return str(sum(p[key] for p in pieces)) if all(key in p for p in pieces) else "–"

    counts = [
        ("candidates, of different texts", total("n_candidates")),
        ("of the library's sequences", total("of_library")),
        ("problems", total("n_problems")),
        ("further candidates whose text was checked already", total("n_repeated")),
        *((f"**{name}**", total(f"n_{kind}")) for kind, name in question.faults.items()),
        ("descents that ended dead", total("n_dead_ends")),
        ("problems left out (rounding alone decides a comparison)", total("n_left_out")),
    ]
    used = [(f, str(sum(p["features"].get(f, 0) for p in pieces))) for f in question.features]
    parts = [f"# {question.heading}", "", f"{question.method} Made by", ""]
    parts += [f"- {_made(question, piece)}" for piece in pieces]
    parts += ["", table(["", "count"], [[*line] for line in counts])]
    parts += ["", table(["feature", "candidates that use it"], [[*line] for line in used])]
    return "\n".join([*parts, ""])


def _made(question: Sampling, piece: Mapping[str, Any]) -> str:
    taken = piece["conditions"]
    options = ("seed", "random_share", "sequences")
    asked = "".join(
        f" --{k.replace('_', '-')} {piece[k]}" for k in options if piece.get(k, "") != ""
    )
    seconds = f" in {piece['seconds']:.0f} s" if "seconds" in piece else ""
    generator = f", generator {piece['generator']}" if "generator" in piece else ""
    versions = ", ".join(f"{k} {v}" for k, v in taken["versions"].items())
    return (
        f"`python -m kernelscape.experiments.{question.file} --n {piece['n_candidates']}{asked}`{seconds}: {taken['taken']},"
        f" {taken['cpu']}, {taken['cores']} cores, {taken['kernel']}, {versions}{generator}"
    )


def run(question: Sampling, doc: str | None, arguments: Sequence[str] | None = None) -> int:
    """The command line of an experiment."""
    parser = parser_of(doc)
    parser.add_argument("--n", type=int, default=2000, help="candidates")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random-share", type=float, default=question.random_share)
    parser.add_argument("--sequences", nargs="+", default=[], choices=names(), help="default: all")
    parser.add_argument("--add", action="store_true", help="to the pieces that are there already")
    parser.add_argument("--stop", action="store_true", help="stop at the first fault")
    given = parser.parse_args(arguments)
    stored = stored_pieces(question.file, given.results) if given.add else []
    kept = [piece for piece in stored if piece.get("seed") != given.seed]
    known = texts_of(kept)
    started_s = time.monotonic()
    with (
        tempfile.TemporaryDirectory(
            prefix=f"{question.file}-", ignore_cleanup_errors=True
        ) as scratch,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        tally = sample(
            question.checker,
            given.n,
            given.seed,
            given.random_share,
            Path(scratch),
            stops=given.stop,
            known=known,
            only=given.sequences,
        )
    asked = {"seed": given.seed, "random_share": given.random_share}
    asked |= {"sequences": " ".join(given.sequences)}
    took = {"seconds": time.monotonic() - started_s}
    pieces = [*kept, asked | took | piece_of(question, tally, known)]
    write_results(question.file, question.page, {"pieces": pieces}, given.results)
    print(report(question, pieces))
    return 1 if tally.faults else 0
