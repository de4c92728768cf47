"""Random sequences on random trees of sparse fields as CUDA text, on the emulator: what they leave is what the reference leaves.

States are compared as programs see them (kernels/fields/canonical_state.py): active cells, their values, and pools that are sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.plan.candidates import plan_of
from ..kernels.fields.canonical_state import canonical
from ..kernels.frontend.recorder import Recording, record_program
from ..kernels.sparse.naming import in_terms_of_trees, shared_parts
from ..kernels.tasks.naive_activation import cell_by_cell
from ..kernels.tasks.pipeline import normalise
from ..space.build import build_space
from ..space.candidate import Candidate
from ..space.decisions import fix
from . import checking, gpu_checking
from .calling import Arrays, InputSet
from .interpreted import run_reference

ks: Any = import_module(__package__.partition(".")[0])  # programs of users see it whole


@dataclass(frozen=True)
class Shape:
    """A tree: `beside` is the level that lists of `length` cells are at, in chunks of `chunk` cells."""

    chain: tuple[tuple[str, tuple[int, int]], ...]
    beside: int
    chunk: int
    length: int = 8


SHARED = ("spread", "fill", "lengthen", "carry")  # threads share the cells that these activate
CALLS = (*SHARED, "store", "add", "bump", "drop", "append")
_KINDS = ("pointer", "bitmasked", "hash", "dense")


def drawn(rng: np.random.Generator) -> tuple[Shape, list[tuple[str, int]]]:
    """A random tree and calls on it; the first of them activates cells by many threads."""
    chain = list[tuple[str, tuple[int, int]]]()
    for level in range(int(rng.integers(1, 4))):
        kind = str(rng.choice(_KINDS if level else _KINDS[:3]))
        chain.append((kind, (int(rng.integers(1, 5)), int(rng.integers(1, 5)))))
    shape = Shape(tuple(chain), int(rng.integers(len(chain))), int(rng.integers(1, 5)), 32)
    names = [rng.choice(SHARED), *rng.choice(CALLS, int(rng.integers(2, 5)))]
    return shape, [(str(name), int(rng.integers(40))) for name in names]


def recorded(shape: Shape, calls: Sequence[tuple[str, int]]) -> tuple[Recording, Arrays]:
    """A sequence of calls, each with a number that its cells follow from, and the states it begins with: half of a first call."""
    ks.init(arch=ks.cpu)
    x, y, other, items = (ks.field(ks.i32) for _ in range(4))
    nodes: list[Any] = []
    node: Any = ks.root
    for kind, extents in shape.chain:
        node = getattr(node, kind)(ks.ij, extents)
        nodes.append(node)
    node.place(x, y)
    lists = nodes[shape.beside].dynamic(ks.k, shape.length, chunk_size=shape.chunk)
    lists.place(items)
    ks.root.pointer(ks.ij, (3, 2)).dense(ks.ij, 2).place(other)
    rows, columns = x.shape
    sparse = [n for n in nodes if n.kind != "dense"]

    @ks.kernel
    def store(c: ks.template()):
        for k in range(3):
            x[(c + 2 * k) % rows, (3 * c + k) % columns] = c + 1

    @ks.kernel
    def add(c: ks.template()):
        for k in range(4):
            y[(c + k // 2) % rows, c % columns] += k + 1

    @ks.kernel
    def bump():
        for i, j in x:
            y[i, j] += x[i, j] + i

    @ks.kernel
    def drop(c: ks.template(), node: ks.template()):
        for k in range(2):
            ks.deactivate(node, [(c + k) % node.shape[0], c % node.shape[1]])

    @ks.kernel
    def carry():
        for i, j in x:
            other[i % 6, j % 4] += x[i, j]

    @ks.kernel
    def append(c: ks.template()):
        for k in range(2):
            ks.append(lists, [c % lists.shape[0], (c + k) % lists.shape[1]], c)

    @ks.kernel
    def spread(c: ks.template()):
        for k in range(48):
            y[(c + 3 * k) % rows, (k // 2) % columns] += k + 1

    @ks.kernel
    def fill(c: ks.template()):
        for i, j in ks.ndrange(rows, columns):
            if (i + c * j) % 3 == 0:
                x[i, j] = i + c

    @ks.kernel
    def lengthen(c: ks.template()):
        for i in range(lists.shape[0]):
            items[i, c % lists.shape[1], (i + c) % 8] = c

    kernels = {"store": store, "add": add, "append": append}
    kernels |= {"spread": spread, "fill": fill, "lengthen": lengthen}

    def call(what: str, c: int) -> None:
        if what in kernels:
            kernels[what](c)
        elif what == "drop":
            drop(c, sparse[c % len(sparse)])
        else:
            (bump if what == "bump" else carry)()

    with ks.interpret():
        store(1)
        add(2)

    def step() -> None:
        for what, c in calls:
            call(what, c)

    recording, arrays = record_program(step, ())
    before = {name: np.array(a) for name, a in arrays.items()}
    ks.reset()
    return recording, before


def random_candidate(root: Candidate, rng: np.random.Generator) -> Candidate:
    """A random complete candidate below `root`."""
    while True:
        found = checking.random_candidate(root, rng)
        if isinstance(found, Candidate):
            return found


def shares_activation(candidate: Candidate) -> bool:
    """True if several threads activate cells of one tree at once."""
    return any(t.activates and t.states for t in plan_of(candidate).tasks)


def fault(
    recording: Recording,
    before: Arrays,
    seed: int,
    folder: Path,
    n_candidates: int = 1,
    decided: Sequence[tuple[str, str]] = (),
    cores: int = 0,
) -> str:
    """The first fault of random candidates of a sequence on the emulator, "" for none; all have the decisions `decided`.

    `cores`: multiprocessors, as in `gpu_checking.target`.
    """
    root = fix(build_space(normalise(recording), gpu_checking.target(cores)), decided).root()
    if not isinstance(root, Candidate):
        return f"the space is empty: {root}"
    wanted = canonical(recording.trees, run_reference(cell_by_cell(recording), before, {}))
    kept = {name: n for name, (n, _) in shared_parts(recording.trees).items()}
    inputs = [InputSet(before, {}, {}, 0.0, 0.0, kept)]

    def judge(got: Arrays) -> str:
        found = canonical(recording.trees, before | got)
        wrong = [n for n, a in wanted.items() if not np.array_equal(found[n], a)]
        return f"{', '.join(wrong)} differ from the reference" if wrong else ""

    rng = np.random.default_rng(seed)
    for _ in range(n_candidates):
        source = gpu_checking.source_of(random_candidate(root, rng))
        said = gpu_checking.check(source, inputs, folder, judge=judge)
        if said:
            return in_terms_of_trees(recording.trees, said)
    return ""
