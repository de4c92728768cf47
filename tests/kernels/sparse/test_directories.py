"""Directories beside tables of pointer nodes: what they leave in three periods is what the reference leaves."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.reading import read_plan
from kernelscape.kernels.language.record import Recording, record_program
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import fix, restore, to_names
from kernelscape.testing import checking, sparse_emulation, sparse_periods
from kernelscape.testing.calling import Arrays
from kernelscape.testing.sparse_trees import Shape

ks: Any = import_module("kernelscape")

NESTED = Shape((("pointer", (2, 3)), ("pointer", (3, 2)), ("bitmasked", (2, 2))), 1, 3)
CHANGES = (("store", 5), ("add", 2), ("bump", 0), ("drop", 3), ("append", 4), ("store", 3), ("carry", 0))  # fmt: skip


def space_of(recording: Recording, own_bytes: int = 0) -> Space:
    """The space on a machine of two cores with so large a cache of their own: by default none, so that no table fits there."""
    target = checking.target(2, 32)
    *near, own, last = target.levels
    levels = (*near, replace(own, capacity_bytes=own_bytes), last)
    return build_space(normalise(recording), replace(target, levels=levels))


def drawn(space: Space, value: str, seed: int = 1) -> Candidate:
    part = fix(space, [("directory", value)])
    found = checking.random_candidate(part.root(), np.random.default_rng(seed))
    assert isinstance(found, Candidate)
    return found


def crowded() -> tuple[Recording, Arrays]:
    """A tree of 1,024 cells, most of which become active by and by: more than a directory for them has places."""
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.i32), ks.field(ks.i32)
    node = ks.root.pointer(ks.ij, (32, 32))
    node.place(x, y)

    @ks.kernel
    def grow():
        for i, j in ks.ndrange(32, 20):
            x[(i + 7 * j) % 32, j] += i + 1

    @ks.kernel
    def spread():
        for i, j in x:
            y[i, j] += x[(i + 3) % 32, (5 * j) % 32] + x[i, (j + 1) % 32]

    @ks.kernel
    def drop():
        for i in range(8):
            ks.deactivate(node, [3 * i, i])

    def step() -> None:
        spread()
        grow()
        spread()
        drop()
        spread()

    x[1, 2] = 3
    recording, arrays = record_program(step, ())
    before = {name: np.array(a) for name, a in arrays.items()}
    ks.reset()
    return recording, before


@pytest.fixture(scope="module")
def nested() -> Space:
    return space_of(sparse_emulation.recorded(NESTED, CHANGES)[0])


@pytest.mark.compiler
@pytest.mark.parametrize("is_crowded", [False, True])
def test_a_directory_leaves_what_the_reference_leaves(is_crowded: bool, tmp_path: Path) -> None:
    """Pools within pools, and a directory that is too small, with activations and deactivations within the sequence."""
    recording, before = crowded() if is_crowded else sparse_emulation.recorded(NESTED, CHANGES)
    space = space_of(recording)
    chosen = [drawn(space, "HASH", seed) for seed in range(2)]
    assert (
        sparse_periods.fault(recording, before, list(map(checking.source_of, chosen)), tmp_path)
        == ""
    )


def test_a_directory_is_made_first_and_its_launches_are_in_the_bound(nested: Space) -> None:
    part = fix(nested, [("directory(tree0_0.1)", "HASH")])
    plain, other = (read_plan(drawn(s, v)) for s, v in ((nested, "TABLE"), (nested, "HASH")))
    assert len(other.launches) == len(plain.launches) + 2 * len(nested.problem.parts.tables)
    names = [t.task.name for t in other.tasks[len(plain.tasks) :]]
    tables = [f"tree0_0.{node}" for node in (0, 1)]  # either's may come first
    assert names[:2] in [[f"{table}.clear", f"{table}.enter"] for table in tables]
    roots = [s.root() for s in (fix(nested, [("directory(tree0_0.1)", "TABLE")]), part)]
    least = [Bounder(nested).ns(r) for r in roots if isinstance(r, Candidate)]
    assert least[1] - least[0] > nested.target.launch_ns


def test_directories_are_decided_by_name_and_said_in_words(nested: Space) -> None:
    chosen = drawn(nested, "HASH")
    names = dict(to_names(chosen))
    assert names["directory(tree0_0.1)"] == "HASH"
    again = restore(nested, names.items())
    assert isinstance(again, Candidate)
    source = checking.source_of(again)
    assert source.text == checking.source_of(chosen).text
    assert any("tree0_0.1 is looked up in a directory" in x for x in describe(chosen)["layouts"])
    assert "tree0_0.1: a directory of active cells" in source.text
    names = {k: v for k, v in names.items() if not k.startswith("directory")}
    older = restore(nested, names.items())
    assert isinstance(older, Candidate)
    assert dict(to_names(older)).get("directory(tree0_0.1)", "TABLE") == "TABLE"


def test_a_table_that_a_core_keeps_in_its_cache_has_no_directory() -> None:
    recording, _ = crowded()
    space = space_of(recording, 1 << 24)
    assert space.problem.parts.tables
    assert not space.variables.of_trees["directory"]
