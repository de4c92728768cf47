"""Do random bodies compute what the interpreter does, as random candidates?

    python -m kernelscape.experiments.random_bodies [--n 2000] [--way gcc] [--seconds 540] [--again]

Bodies have branches, indices from data, windows, scatters of every operator and type, while loops, rows of data, triangles,
loops of time and reductions, at extents from 0 to 1009, some on infinities and NaN: a corpus of testing/generator, by number.
The ways are gcc and clang, with one thread, two and three, each late once; emulator: CUDA text with threads in three orders; and
cuda: such text on the GPU of this machine.
Ways of `steps` are of sequences with loops of time, ranges of steps and of triangles, and sweeps, another corpus, two
candidates each, of which values are drawn that are seldom otherwise; Python itself says what must come out.
A run goes on behind the last body of the way, up to --n or for about --seconds, and keeps each batch; --again begins anew.
Bodies that were wrong with other sources run again first: those that are right now are counted as mended.
Writes experiments/results/random_bodies.md. The exit status is 1 where any body is wrong.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..space.targets.target import Target
from ..testing import checking, gpu_checking, gpu_running
from ..testing.batches import Work, faults
from ..testing.corpus import Drawn, drawn, machine
from ..testing.generator.features import BODIES, STEPS
from ..testing.generator.sequences import Program, program
from .conditions import stamp, stamp_text
from .sampling import corpus_hash, generator_hash
from .writing import parser_of, read_results, table, write_results

FILE = "random_bodies"
BATCH = 25  # texts of one call of a compiler
_FLAGS = ("-w", "-fopenmp-simd")
_OPTIMISED = 8  # each so manyth batch as users' builds are: they take long to compile
WAYS = {
    "gcc": "C, on one thread, two and three, each late once",
    "clang": "the same by another compiler",
    "emulator": "CUDA text on the emulator, threads in three orders",
    "cuda": "CUDA text on the GPU of this machine",
    "steps-gcc": "sequences with loops of time, as C",
    "steps-emulator": "the same as CUDA text",
    "steps-cuda": "the same text on the GPU of this machine",
}
_STEPS = "steps-"  # begins ways of sequences with loops of time


def target_of(way: str, number: int) -> Target:
    """The machine that candidates of a body are for."""
    kind = way.removeprefix(_STEPS)
    if kind == "emulator":
        return gpu_checking.target()
    return gpu_running.target() if kind == "cuda" else machine(number)


def body_of(way: str, number: int) -> Program:
    """The body that a way has by a number."""
    return program(STEPS if way.startswith(_STEPS) else BODIES, number)


Faults = Callable[[Sequence[Drawn], Path, int], list[str]]


def of_compiler(compiler: str) -> Faults:
    """What a compiler of C makes of candidates."""

    def found(made: Sequence[Drawn], stem: Path, batch: int) -> list[str]:
        flags = (*_FLAGS, "-O3") if batch % _OPTIMISED == 0 else _FLAGS
        works = [Work(checking.source_of(d.candidate), d.inputs) for d in made]
        return faults(works, stem, flags, compiler)

    return found


def on_emulator(made: Sequence[Drawn], stem: Path, batch: int) -> list[str]:
    """What the emulator says of candidates."""
    del batch
    sources = (gpu_checking.source_of(d.candidate) for d in made)
    return [gpu_checking.check(s, d.inputs, stem) for s, d in zip(sources, made, strict=True)]


def on_gpu(made: Sequence[Drawn], stem: Path, batch: int) -> list[str]:
    """What is wrong with candidates on the GPU of this machine."""
    del batch

    def run(loaded: gpu_running.Loaded, number: int) -> str:
        said = (loaded.call(inputs) for inputs in made[number].inputs)
        return next((f"{what} (inputs {k})" for k, what in enumerate(said) if what), "")

    return gpu_running.faults([gpu_checking.source_of(d.candidate) for d in made], run, stem)


_ON: dict[str, Faults] = {"emulator": on_emulator, "cuda": on_gpu}


def checked(bodies: Sequence[Program], way: str, stem: Path, batch: int) -> dict[str, Any]:
    """What came of some bodies: counts, and what is wrong by number."""
    made: list[Drawn] = []
    said: dict[int, str] = {}
    counts = Counter[str]()
    n = 2 if way.startswith(_STEPS) else 1
    for b in bodies:
        try:
            here = drawn(b, target_of(way, b.number), n)
        except Exception as e:  # whatever the product says to a body is an answer
            said[b.number] = f"{type(e).__name__}: {e}"
            continue
        counts["dead ends"] += not here
        counts["rounded"] += sum(not d.inputs for d in here)
        made += [d for d in here if d.inputs]
    traits = Counter(t for d in made for t in (*d.program.traits, *d.traits))
    kind = way.removeprefix(_STEPS)
    check = _ON.get(kind) or of_compiler(kind)
    for d, what in zip(made, check(made, stem, batch) if made else (), strict=True):
        if what:
            said[d.program.number] = what.replace(f"{stem.parent}/", "")
    return {
        "candidates": len(made),
        "dead ends": counts["dead ends"],
        "rounded": counts["rounded"],
        "traits": dict(traits),
        "wrong": {str(k): " ".join(what.split())[:300] for k, what in said.items()},
    }


def added(piece: dict[str, Any], more: dict[str, Any]) -> None:
    """Adds what came of some bodies to a piece."""
    for key, value in more.items():
        if isinstance(value, int):
            piece[key] = piece.get(key, 0) + value
        elif key == "traits":
            piece[key] = dict(Counter(piece.get(key, {})) + Counter(value))
        else:
            piece[key] = piece.get(key, {}) | value


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows, wrong, traits = [], [], Counter[str]()
    for p in values["pieces"]:
        counts = [p[k] for k in ("bodies", "candidates", "dead ends", "rounded")]
        counts += [len(p["wrong"]), len(p.get("mended", {}))]
        took = [f"{p['seconds']:.0f}", p["generator"]]
        rows.append([p["way"], *map(str, counts), *took, WAYS[p["way"]]])
        wrong += [[p["way"], k, what.replace("|", "/")] for k, what in p["wrong"].items()]
        traits.update(p["traits"])
    head = ["way", "bodies", "candidates", "dead ends", "left out", "wrong", "mended", "s"]
    head += ["sources", "how"]
    blocks = [
        "# Random bodies",
        stamp_text(values["stamp"]),
        "Random candidates, against the interpreter in float64. Left out is where rounding decides what comes out."
        " Mended were wrong, and are right with the sources of a later row.",
        f"Compilers of C on this machine: {', '.join(values['compilers'])}.",
        table(head, rows),
    ]
    if wrong:
        blocks.append(table(["way", "body", "what"], wrong))
    found = sorted(traits.items(), key=lambda pair: -pair[1])
    blocks += ["## What is in them", table(["", "candidates"], [[k, str(n)] for k, n in found])]
    return "\n\n".join(blocks) + "\n"


def mend(pieces: Sequence[dict[str, Any]], way: str, folder: Path) -> int:
    """Runs the bodies again that were wrong, and moves those that are right now to the mended ones; how many that are."""
    n = 0
    for piece in pieces:
        for key in [*piece["wrong"]]:
            found = checked(
                [body_of(way, int(key))], way, folder / f"again{key}", int(key) // BATCH
            )
            if not found["wrong"]:
                piece.setdefault("mended", {})[key] = piece["wrong"].pop(key)
                n += 1
    return n


def _keep(values: dict[str, Any], pieces: list[dict[str, Any]], folder: Path | None) -> None:
    compilers = [c for c in ("gcc", "clang") if shutil.which(c)]
    values |= {"pieces": pieces, "stamp": stamp(), "compilers": compilers}
    write_results(FILE, report, values, folder)


def run(way: str, n: int, seconds: float, folder: Path | None, is_new: bool = False) -> int:
    """Goes on with a way up to `n` bodies, or for `seconds`; how many are wrong."""
    values: dict[str, Any] = {"pieces": []} | read_results(FILE, folder)
    sources, programs = generator_hash(), corpus_hash()
    pieces = [p for p in values["pieces"] if not (is_new and p["way"] == way)]
    of_way = [p for p in pieces if p["way"] == way]
    first = sum(p["bodies"] for p in of_way)
    alike = [p for p in of_way if p.get("programs") == programs]  # a number is the same body there
    piece = next((p for p in alike if p["generator"] == sources), None)
    if piece is None:
        piece = {"way": way, "generator": sources, "programs": programs}
        piece |= {"bodies": 0, "seconds": 0.0, "wrong": {}}
    before = [p for p in alike if p["generator"] != sources]
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelscape-bodies-") as scratch:
        if mend(before, way, Path(scratch)):
            _keep(values, pieces, folder)
        while first < n and time.monotonic() - started_s < seconds:
            since_s = time.monotonic()
            bodies = [body_of(way, k) for k in range(first, min(n, first + BATCH))]
            stem = Path(scratch) / f"b{first}"
            added(piece, checked(bodies, way, stem, first // BATCH))
            first += len(bodies)
            pieces += [] if piece["bodies"] else [piece]
            piece["bodies"] += len(bodies)
            piece["seconds"] += time.monotonic() - since_s
            _keep(values, pieces, folder)
            print(f"{way}: {first} of {n} bodies, wrong: {[*piece['wrong']]}", flush=True)
    return sum(len(p["wrong"]) for p in pieces)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--n", type=int, default=2000, help="bodies of the way in all")
    parser.add_argument("--way", choices=tuple(WAYS), default="gcc")
    parser.add_argument("--seconds", type=float, default=540.0)
    parser.add_argument("--again", action="store_true", help="begin with body 0 again")
    given = parser.parse_args(arguments)
    if given.way.endswith("cuda") and (absent := gpu_running.why_not()):
        parser.error(absent)
    if given.way == "clang" and not shutil.which("clang"):
        parser.error("there is no clang on this machine: install it, or take --way gcc")
    return 1 if run(given.way, given.n, given.seconds, given.results, given.again) else 0


if __name__ == "__main__":
    sys.exit(main())
