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

from ..codegen.text.source import Source
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
    """A tree: `beside` is the level that a list is at, in chunks of `chunk` cells."""

    chain: tuple[tuple[str, tuple[int, int]], ...]
    beside: int
    chunk: int


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
    lists = nodes[shape.beside].dynamic(ks.k, 8, chunk_size=shape.chunk)
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

    kernels = {"store": store, "add": add, "append": append}

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
        candidate = None
        while not isinstance(candidate, Candidate):
            candidate = checking.random_candidate(root, rng)
        source: Source = gpu_checking.source_of(candidate)
        said = gpu_checking.check(source, inputs, folder, judge=judge)
        if said:
            return in_terms_of_trees(recording.trees, said)
    return ""
