"""Do random programs on random trees of sparse fields leave what sets and dictionaries of Python have?

    python -m kernelscape.experiments.sparse_trees [--examples 1000] [--trees 50] [--way WAY] [--seed 1]
    python -m kernelscape.experiments.sparse_trees --way sequences [--examples 1000] [--seconds 240]

Programs store, add, activate, deactivate, append, empty lists, and loop over every level, on trees to a depth of four. Values,
lists and active cells of every level are compared behind each step. Each tree runs in a process of its own.
Ways are compiled, lowered, interpreted; decided: sequences of calls as C of random decisions; emulated: as CUDA text of random
decisions, on the emulator; and cuda: as such text on the GPU of this machine. Way sequences is decided and emulated on the same
programs, of which the interpreter of trees is asked, too. Sequences go on behind the last tree of a --seed, up to --examples or for
about --seconds, and each batch is kept.
Writes experiments/results/sparse_trees.md, a row a way; the exit status is 1 where any program is wrong. 1,000 programs on 50 trees
take about six minutes compiled, which is mostly the compiler.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..kernels.interpret.executor import interpret
from ..testing import gpu_running
from ..testing.calling import in_child
from ..testing.sparse_batches import Found
from ..testing.sparse_batches import run as run_batch
from ..testing.sparse_drawn import Call, Tree
from ..testing.sparse_model import at_once, check, drawn
from ..testing.sparse_model import plainly as as_lowered
from .conditions import stamp, stamp_text
from .writing import parser_of, read_results, table, write_results

FILE = "sparse_trees"
LIMIT_S = 900.0  # of one tree
WAYS = {
    "compiled": "lowered to plain arrays, compiled by the engine, on all cores",
    "lowered": "lowered to plain arrays, in the interpreter of such kernels",
    "interpreted": "as they are, in the interpreter of trees",
    "decided": "as sequences, C of random decisions, over three periods (long ones two), each thread late, against the reference",
    "emulated": "as sequences, CUDA text of random decisions, on the emulator, over as many periods, against the reference",
    "cuda": "the same on the GPU of this machine, twice",
}
AS_SEQUENCES = ("decided", "emulated", "cuda")
SEQUENCES = "sequences"  # the first two of these
_TREES = 8  # of a batch, whose texts are compiled at once
_OPTIMISED = 4  # each so manyth batch is compiled with optimisation, which takes twice as long
_OF_A_SEED = 1000  # trees of sequences


def fault(way: str, tree: Tree, programs: Sequence[Sequence[Call]]) -> str:
    """What is wrong with programs on a tree, "" where nothing is."""

    def work() -> str:
        try:
            if way == "interpreted":
                with interpret():
                    check(tree, programs, at_once)
            else:
                check(tree, programs, as_lowered if way == "lowered" else at_once)
        except Exception as e:  # whatever it is, it is the answer
            return f"{type(e).__name__}: {e}"
        return ""

    return in_child(work, LIMIT_S)


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    rows, wrong = [], []
    drawn_values: dict[str, Counter[str]] = {}
    for way, r in values["ways"].items():
        pieces = r.get("pieces") or [r]
        counts = [sum(p[k] for p in pieces) for k in ("programs", "trees", "steps", "nodes")]
        for p in pieces:
            for name, n in p.get("values", {}).items():
                drawn_values.setdefault(name, Counter())[way] += n
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
    if drawn_values:
        shown = sorted(drawn_values.items())
        cells = [[name, *(str(n[way]) for way in AS_SEQUENCES)] for name, n in shown]
        blocks += ["## What was drawn", table(["", *AS_SEQUENCES], cells)]
    return "\n\n".join(blocks) + "\n"


def run(way: str, examples: int, trees: int, seed: int, folder: Path | None) -> int:
    """Runs programs one way; how many trees went wrong. Pieces with other seeds are kept beside this one."""
    each = -(-examples // trees)
    cases = drawn(trees, each, seed)
    wrong = []
    n_steps = 0
    for k, (tree, programs) in enumerate(cases):
        n_steps += sum(map(len, programs))
        said = fault(way, tree, programs)
        if said:
            wrong.append(f"{tree}: {_short(said)}")
        print(f"{way}: {k + 1} of {len(cases)} trees, {len(wrong)} wrong", flush=True)
    taken = stamp()
    piece = {
        "programs": each * len(cases),
        "trees": len(cases),
        "steps": n_steps,
        "nodes": sum(len(tree.chain) for tree, _ in cases),
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


def _short(said: str) -> str:
    return " ".join(said.split())[:400].replace("|", "/")


def run_sequences(
    ways: Sequence[str], examples: int, seed: int, seconds: float, folder: Path | None
) -> int:
    """Goes on with programs as sequences up to so many of each way, or for some seconds; how many were wrong in these."""
    began, n_wrong, least = time.monotonic(), 0, seed * _OF_A_SEED
    gc.disable()  # what programs are made of is large, and looking through it again and again takes a fifth of the time
    with tempfile.TemporaryDirectory(prefix="kernelscape-trees-") as scratch:
        while time.monotonic() - began < seconds:
            values: dict[str, Any] = {"ways": {}} | read_results(FILE, folder)
            pieces = {way: values["ways"].setdefault(way, {"pieces": []})["pieces"] for way in ways}
            if min(sum(p["programs"] for p in some) for some in pieces.values()) >= examples:
                break
            known = [p["seed"] for some in pieces.values() for p in some]
            first = max([least, *(s + _TREES for s in known if least <= s < least + _OF_A_SEED)])
            plainly = bool((first // _TREES) % _OPTIMISED)
            trees = range(first, first + _TREES)
            found = run_batch(ways, trees, Path(scratch), plainly=plainly)
            values["stamp"] = stamp()
            for way, one in found.items():
                pieces[way].append(_piece(one, first, values["stamp"]["load_1min"]))
                n_wrong += len(one.wrong)
            write_results(FILE, report, values, folder)
            gc.collect()
            n = {way: sum(p["programs"] for p in some) for way, some in pieces.items()}
            print(f"trees to {trees.stop}: {n}, {n_wrong} wrong", flush=True)
    gc.enable()
    return n_wrong


def _piece(found: Found, first: int, load: float) -> dict[str, Any]:
    counts = Counter({f"{kind} {value}": n for (kind, value), n in found.values.items()})
    return {
        "programs": found.programs,
        "trees": found.trees,
        "steps": found.calls,
        "nodes": found.nodes,
        "seed": first,
        "load": load,
        "wrong": [_short(what) for what in found.wrong],
        "values": dict(counts + Counter({f"call {k}": n for k, n in found.words.items()})),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--way", choices=(*WAYS, SEQUENCES), default="compiled")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=240.0, help="of sequences")
    given = parser.parse_args(arguments)
    if given.way == "cuda" and (absent := gpu_running.why_not()):
        parser.error(absent)
    if given.way in (SEQUENCES, *AS_SEQUENCES):
        ways = AS_SEQUENCES[:2] if given.way == SEQUENCES else (given.way,)
        n_wrong = run_sequences(ways, given.examples, given.seed, given.seconds, given.results)
    elif given.trees < 1 or given.examples < given.trees:
        parser.error("give at least one tree, and as many examples as trees")
    else:
        n_wrong = run(given.way, given.examples, given.trees, given.seed, given.results)
    return 1 if n_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
