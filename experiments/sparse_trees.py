"""Do random programs on random trees of sparse fields leave what sets and dictionaries of Python have?

    python -m kernelscape.experiments.sparse_trees [--examples 1000] [--trees 50] [--way WAY] [--seed 1]

Programs store, add, activate, deactivate, append, empty lists, and loop over every level, on trees to a depth of four. Values,
lists and active cells of every level are compared behind each step. Each tree runs in a process of its own.
Ways are compiled, lowered, interpreted; decided: sequences of calls as C of random decisions, of each combination of choices about
lists; and emulated: as CUDA text of random decisions, on the emulator.
Writes experiments/results/sparse_trees.md, a row a way; the exit status is 1 where any program is wrong. 1,000 programs on 50 trees
take about six minutes compiled, which is mostly the compiler.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.language.calling import interpreted
from ..kernels.language.record import Recording
from ..testing import sparse_emulation, sparse_periods
from ..testing.calling import Arrays, in_child
from ..testing.sparse_trees import Shape, Step, at_once, check, drawn, plainly
from .conditions import stamp, stamp_text
from .writing import read_results, table, write_results

FILE = "sparse_trees"
LIMIT_S = 900.0  # of one tree
WAYS = {
    "compiled": "lowered to plain arrays, compiled by the engine, on all cores",
    "lowered": "lowered to plain arrays, in the interpreter of such kernels",
    "interpreted": "as they are, in the interpreter of trees",
    "decided": "as sequences, C of every way to make lists and to activate cells, drawn, over three periods, against the reference",
    "emulated": "as sequences, CUDA text of random decisions, on the emulator, against the reference",
}
AS_SEQUENCES = ("decided", "emulated")
LIST_KINDS = ("listgen", "activate", "compaction", "record", "directory")
N_COMBINATIONS = 3  # of a sequence


def fault(way: str, shape: Shape, steps: Sequence[Sequence[Step]]) -> str:
    """What is wrong with programs on a tree, "" where nothing is."""

    def work() -> str:
        try:
            if way == "interpreted":
                with interpreted():
                    check(shape, steps, at_once)
            else:
                check(shape, steps, plainly if way == "lowered" else at_once)
        except Exception as e:  # whatever it is, it is the answer
            return f"{type(e).__name__}: {e}"
        return ""

    return in_child(work, LIMIT_S)


def fault_of_sequences(way: str, shape: Shape, n_sequences: int, seed: int) -> tuple[str, int]:
    """What is wrong with random sequences on a tree, "" where nothing is; and their calls."""
    rng, n_calls = np.random.default_rng(seed), 0
    with tempfile.TemporaryDirectory(prefix="kernelscape-trees-") as folder:
        for _ in range(n_sequences):
            calls = sparse_emulation.drawn_calls(rng)
            recording, before = sparse_emulation.recorded(shape, calls)
            while way == "decided" and not sparse_periods.has_room(recording, before):
                calls = sparse_emulation.drawn_calls(rng)  # three periods would fill a tree
                recording, before = sparse_emulation.recorded(shape, calls)
            n_calls += len(calls)
            said = _of_way(way, recording, before, seed, Path(folder))
            if said:
                return f"{calls}: {said}", n_calls
    return "", n_calls


def _of_way(way: str, recording: Recording, before: Arrays, seed: int, folder: Path) -> str:
    if way == "emulated":
        return sparse_emulation.fault(recording, before, seed, folder)
    sources = sparse_periods.combined_sources(recording, LIST_KINDS, N_COMBINATIONS, seed)
    return sparse_periods.fault(recording, before, sources, folder)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows, wrong = [], []
    for way, r in values["ways"].items():
        pieces = r.get("pieces") or [r]
        counts = [sum(p[k] for p in pieces) for k in ("programs", "trees", "steps", "nodes")]
        found = [what for p in pieces for what in p["wrong"]]
        most = max(p["load"] for p in pieces)
        rows.append([way, *map(str, counts), str(len(found)), f"{most:.1f}", WAYS[way]])
        wrong += [[way, what] for what in found]
    head = ["way", "programs", "trees", "steps", "nodes", "wrong trees", "load", "how kernels run"]
    blocks = [
        "# Random programs on random trees of sparse fields",
        stamp_text(values["stamp"]),
        "Against sets and dictionaries of Python: values, lists and active cells of every level, behind each step.",
        table(head, rows),
    ]
    if wrong:
        blocks.append(table(["way", "what"], wrong))
    return "\n\n".join(blocks) + "\n"


def run(way: str, examples: int, trees: int, seed: int, folder: Path | None) -> int:
    """Runs programs one way; how many trees went wrong. Pieces with other seeds are kept beside this one."""
    each = -(-examples // trees)
    cases = drawn(trees, each if way not in AS_SEQUENCES else 1, seed)
    wrong = []
    n_steps = 0
    for k, (shape, steps) in enumerate(cases):
        if way in AS_SEQUENCES:
            said, n = fault_of_sequences(way, shape, each, 1000 * seed + k)
        else:
            said, n = fault(way, shape, steps), sum(map(len, steps))
        n_steps += n
        if said:
            wrong.append(f"{shape}: {' '.join(said.split())[:300]}".replace("|", "/"))
        print(f"{way}: {k + 1} of {len(cases)} trees, {len(wrong)} wrong", flush=True)
    taken = stamp()
    piece = {
        "programs": each * len(cases),
        "trees": len(cases),
        "steps": n_steps,
        "nodes": sum(len(shape.chain) for shape, _ in cases),
        "seed": seed,
        "load": taken["load_1min"],
        "wrong": wrong,
    }
    values: dict[str, Any] = {"ways": {}} | read_results(FILE, folder)
    others = values["ways"].get(way, {}).get("pieces", [])
    values["ways"][way] = {"pieces": [*(p for p in others if p["seed"] != seed), piece]}
    values["stamp"] = taken
    write_results(FILE, report, values, folder)
    return len(wrong)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--way", choices=tuple(WAYS), default="compiled")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="folder of the results")
    given = parser.parse_args(arguments)
    if given.trees < 1 or given.examples < given.trees:
        parser.error("give at least one tree, and as many examples as trees")
    n_wrong = run(given.way, given.examples, given.trees, given.seed, given.results)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
