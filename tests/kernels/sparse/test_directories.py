"""Directories beside tables of pointer nodes, and the reverse: what they leave in three periods is what the reference leaves."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.kernel import DType, Expr, Load, Local, Select
from kernelscape.kernels.ir.simplify import binary, const
from kernelscape.kernels.sparse.cells import I64, looked_for, number, place_of
from kernelscape.kernels.sparse.layout import CLAIMED
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import fix, restore, to_names
from kernelscape.testing import checking, gpu_checking, sparse_emulation, sparse_periods
from kernelscape.testing.calling import Arrays
from kernelscape.testing.sparse_emulation import Shape

ks: Any = import_module("kernelscape")

NESTED = Shape((("pointer", (2, 3)), ("pointer", (3, 2)), ("bitmasked", (2, 2))), 1, 3)
HASHED = Shape((("hash", (2, 3)), ("hash", (3, 2)), ("bitmasked", (2, 2))), 1, 3)
CHANGES = (("store", 5), ("add", 2), ("bump", 0), ("drop", 3), ("append", 4), ("store", 3), ("carry", 0))  # fmt: skip


def space_of(recording: Recording, own_bytes: int = 0) -> Space:
    """The space on a machine of two cores with so large a cache of their own: by default none, so that no table fits there."""
    target = checking.target(2, 32)
    *near, own, last = target.levels
    levels = (*near, replace(own, capacity_bytes=own_bytes), last)
    return build_space(normalise(recording), replace(target, levels=levels))


def drawn(space: Space, value: str, seed: int = 1) -> Candidate:
    return sparse_periods.drawn(space, ("directory", value), seed=seed)


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


def read_only(extent: int) -> tuple[Recording, Arrays]:
    """Look-ups in a hash node of so many cells, of which a few are active, and nothing else."""
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.i32), ks.field(ks.i32, 64)
    ks.root.hash(ks.i, extent).dense(ks.i, 2).place(x)

    @ks.kernel
    def gather():
        for k in range(64):
            y[k] += x[(k * 7919) % (2 * extent)]

    for k in (0, 7, 31):
        x[(k * 7919) % (2 * extent)] = k + 1
    recording, arrays = record_program(gather, ())
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


@pytest.mark.compiler
@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_table_of_a_hash_node_leaves_what_the_reference_leaves(
    is_read_only: bool, tmp_path: Path
) -> None:
    """Hash nodes within one another, whose cells come and go; and one that a sequence only looks cells up in."""
    changed = sparse_emulation.recorded(HASHED, CHANGES)
    recording, before = read_only(1000) if is_read_only else changed
    sources = [checking.source_of(drawn(space_of(recording), "TABLE", seed)) for seed in range(2)]
    assert all("places_of" in s.text for s in sources)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def test_a_table_of_a_hash_node_is_a_choice_where_it_has_room() -> None:
    small, large = (space_of(read_only(n)[0]) for n in (1 << 12, 1 << 28))
    assert not large.variables.of_trees["directory"]
    (var,) = small.variables.of_trees["directory"].values()
    assert small.choices[var].values == ("HASH", "TABLE")
    plain, other = (plan_of(drawn(small, v)) for v in ("HASH", "TABLE"))
    assert [t.task.name for t in other.tasks[len(plain.tasks) :]] == [
        "tree0_1.0.clear",
        "tree0_1.0.enter",
    ]
    names = [{s.state.name for s in p.tasks[0].task.body.sites} for p in (plain, other)]
    assert names[1] - names[0] == {"places_of"}
    assert not describe(drawn(small, "HASH")).get("layouts")
    assert any(
        "in a table of all its cells" in x for x in describe(drawn(small, "TABLE"))["layouts"]
    )
    bounder = Bounder(small)
    least = [bounder.ns(drawn(small, v)) for v in ("HASH", "TABLE")]
    assert least[1] - least[0] > small.target.launch_ns


def test_a_look_up_is_known_by_its_form() -> None:
    def seen(place: Expr, is_busy: bool, keys: str = "keys") -> Expr:
        found = Load(keys, (place,), DType.u64)
        return binary("bit_and", found, const(CLAIMED - 1, DType.u64)) if is_busy else found

    key, start = Local("key", DType.u64), Local("start", I64)
    for is_busy in (False, True):
        made = place_of(lambda p, busy=is_busy: seen(p, busy), (start, number(5)), key, number(9))
        assert looked_for(made) == ("keys", key)
        assert looked_for(made.b) == ("keys", key)
    mixed = place_of(lambda p: seen(p, False, "others"), (start,), key, made)
    assert looked_for(mixed) is None
    assert looked_for(Select(made.condition, number(1), start, I64)) is None
    assert looked_for(number(9)) is None


def test_a_directory_is_made_first_and_its_launches_are_in_the_bound(nested: Space) -> None:
    part = fix(nested, [("directory(tree0_0.1)", "HASH")])
    plain, other = (plan_of(drawn(s, v)) for s, v in ((nested, "TABLE"), (nested, "HASH")))
    assert len(other.launches) == len(plain.launches) + 2 * len(nested.problem.parts.tables)
    names = [t.task.name for t in other.tasks[len(plain.tasks) :]]
    tables = [f"tree0_0.{node}" for node in (0, 1)]  # either's may come first
    assert names[:2] in [[f"{table}.clear", f"{table}.enter"] for table in tables]
    roots = [s.root() for s in (fix(nested, [("directory(tree0_0.1)", "TABLE")]), part)]
    least = [Bounder(nested).ns(r) for r in roots if isinstance(r, Candidate)]
    assert least[1] - least[0] > nested.target.launch_ns


def test_directories_are_decided_by_name_and_said_in_words(nested: Space) -> None:
    chosen = drawn(nested, "HASH")
    names = sparse_periods.names_of(chosen)
    assert names["directory(tree0_0.1)"] == "HASH"
    assert any("tree0_0.1 is looked up in a directory" in x for x in describe(chosen)["layouts"])
    assert "tree0_0.1: a directory of active cells" in checking.source_of(chosen).text
    names = {k: v for k, v in names.items() if not k.startswith("directory")}
    older = restore(nested, names.items())
    assert isinstance(older, Candidate)
    assert dict(to_names(older)).get("directory(tree0_0.1)", "TABLE") == "TABLE"


def test_a_table_that_a_core_keeps_in_its_cache_has_no_directory() -> None:
    recording, _ = crowded()
    space = space_of(recording, 1 << 24)
    assert space.problem.parts.tables
    assert not space.variables.of_trees["directory"]


def test_on_a_gpu_hash_nodes_alone_have_the_choice(nested: Space) -> None:
    target = gpu_checking.target()
    assert not build_space(nested.problem, target).variables.of_trees["directory"]
    hashed = build_space(normalise(sparse_emulation.recorded(HASHED, CHANGES)[0]), target)
    assert [x.name for x in hashed.variables.of_trees["directory"]] == ["tree0_0.0", "tree0_0.1"]
