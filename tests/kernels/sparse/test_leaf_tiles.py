"""Tiles of leaves with their borders: who may have them, what takes them without a search, and what they compute."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.problem_passes import PASSES, Decided
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.kernel import KernelIR, LocalArray
from kernelscape.kernels.ir.verify import check
from kernelscape.kernels.ir.walk import nested_statements
from kernelscape.kernels.sparse import calls
from kernelscape.kernels.sparse.lower import lower_trees
from kernelscape.kernels.sparse.lowered import Lowered
from kernelscape.kernels.tasks.as_kernels import recording_of, task_statements
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import by_kind
from kernelscape.space.families.leaf_tiles import IN_TILE
from kernelscape.testing import checking, sparse_candidates, sparse_periods
from kernelscape.testing.calling import Arrays
from kernelscape.testing.sparse_model import plain_ir

Recorded = tuple[Recording, Arrays]


@pytest.fixture
def around() -> Iterator[Recorded]:
    """Two loops that read two fields around their cells: along one axis, and across corners; what is deactivated between."""
    ks.init(arch=ks.cpu)
    x, y, z = ks.field(ks.f32), ks.Vector.field(2, ks.f32), ks.field(ks.f32)
    block = ks.root.pointer(ks.ij, (3, 4))
    block.dense(ks.ij, (4, 8)).place(x, y, z)

    @ks.kernel
    def spread() -> None:
        for i, j in x:
            y[i, j] = [x[i - 1, j] + x[i, j + 2], x[i + 1, j] - x[i, j - 1]]

    @ks.kernel
    def gather() -> None:
        for i, j in x:
            z[i, j] = y[i + 1, j - 1][0] + y[i, j + 1][1] + x[i - 4, j] * x[i, j]

    @ks.kernel
    def drop(n: ks.i32) -> None:
        ks.deactivate(block, [n, n])

    for i, j in ((0, 0), (0, 9), (4, 8), (4, 16), (8, 31), (9, 0)):
        x[i, j] = 1
    rows, columns = x.shape
    values = np.add.outer(3 * np.arange(rows), np.arange(columns)) % 11
    x.from_numpy((values * (x.to_numpy() > -1)).astype(np.float32))

    def step() -> None:
        spread()
        gather()
        drop(0)
        spread()

    yield record_program(step, ())
    ks.reset()


def test_fields_that_a_loop_reads_around_its_cell_may_be_in_tiles(around: Recorded) -> None:
    recording, _ = around
    tasks = normalise(recording).tasks
    found = {x.name: x for t in tasks if t.body is not None for x in t.body.trees.tiles}
    bytes_of = {name.partition(".")[0]: set[int]() for name in found}
    for name, site in found.items():
        bytes_of[name.partition(".")[0]].add(site.n_bytes)
    # 6 x 11 cells of x, then of two components of y; 8 x 8 of x.
    assert bytes_of == {"spread0": {264}, "gather0": {2 * 5 * 10 * 4, 8 * 8 * 4}, "spread1": {264}}
    assert {x.n_crossed for name, x in found.items() if name.startswith("spread")} == {1}


def test_all_choices_of_tiles_leave_what_the_reference_leaves(
    around: Recorded, tmp_path: Path
) -> None:
    recording, before = around
    space = build_space(normalise(recording), checking.target(2, 32))
    found = list(sparse_periods.combinations(space, ["staged"]))
    assert len(found) == 2**4
    sources = sparse_periods.combined_sources(recording, ["staged"], 6)
    assert len(sources) == 6
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def test_a_body_has_the_tiles_that_were_decided(around: Recorded) -> None:
    """And no more: of each combination the tasks have as many local arrays as fields in tiles, a vector field one a component."""
    recording, _ = around
    space = build_space(normalise(recording), checking.target(2, 32))
    rng = np.random.default_rng(1)
    for decided in sparse_periods.combinations(space, ["staged"]):
        made = checking.random_candidate(decided, rng)
        assert isinstance(made, Candidate)
        plan = plan_of(made)
        for t in plan.tasks:
            chosen = [name for name, value in plan.places("staged", t.index) if value == "HALO"]
            body: Any = t.task.body
            arrays = [s for s in nested_statements(body.statements) if isinstance(s, LocalArray)]
            wanted = sum(2 if "field1" in name else 1 for name in chosen)
            assert len(arrays) == wanted


def test_each_pass_leaves_a_problem_that_is_well_formed(around: Recorded) -> None:
    """Kind: passes whose fault shows in a text only. Each gives one more problem, whose tasks are kernels without a fault."""
    recording, _ = around
    problem, rng = normalise(recording), np.random.default_rng(4)
    changed = set[str]()
    for k in range(12):
        made = sparse_candidates.drawn(problem, sparse_candidates.machine(k), rng, Counter())
        assert made is not None
        decided, now = Decided(by_kind(made), made.space.target), problem
        for one in PASSES:
            before, now = now, one(now, decided)
            changed |= {one.__name__} if now != before else set()
            assert sorted((*now.entering, *now.leaving)) == [
                *range(len(problem.tasks), len(now.tasks))
            ]
            for call in recording_of(now, [task_statements(t) for t in now.tasks]).calls:
                check(call.ir)
    assert changed >= {"tiles", "layouts", "directories"}


def test_any_of_six_fields_may_be_in_tiles_and_a_kernel_is_lowered_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kind: variants that are bodies before anyone decides, so that their number limits what may be decided."""
    ks.init(arch=ks.cpu)
    fields, total = [ks.field(ks.f32) for _ in range(6)], ks.field(ks.f32)
    ks.root.pointer(ks.ij, (3, 4)).dense(ks.ij, (4, 8)).place(*fields, total)

    @ks.kernel
    def gather() -> None:
        for i, j in total:
            acc = 0.0
            for k in ks.static(range(6)):
                acc += fields[k][i + 1, j] + fields[k][i, j + 1]
            total[i, j] += acc

    @ks.kernel
    def double() -> None:
        for i, j in total:
            total[i, j] *= 2

    total[0, 0] = total[5, 9] = 1

    def step() -> None:
        gather()
        double()
        gather()

    lowered: list[str] = []

    def counted(ir: KernelIR, *decisions: Any) -> Lowered:
        lowered.append(ir.name)
        return lower_trees(ir, *decisions)

    monkeypatch.setattr(calls, "lower_trees", counted)
    recording, before = record_program(step, ())
    ks.reset()
    problem = normalise(recording)
    assert lowered == ["gather", "double"]  # each once, however often it is called
    space = build_space(problem, checking.target(2, 32))
    staged = [v for v in map(int, space.searchable) if space.choices[v].kind == "staged"]
    root = space.open_root()
    assert len(staged) == 2 * 6 and isinstance(root, Candidate)
    some = root
    for var in staged[1:5]:  # more than three of them, and not the first
        made = some.decide(var, 1 << IN_TILE)
        assert isinstance(made, Candidate)
        some = made
    done = checking.random_candidate(some, np.random.default_rng(3))
    assert isinstance(done, Candidate)
    assert sparse_periods.fault(recording, before, [checking.source_of(done)], tmp_path) == ""
    n_wanted = sum(done.value(v) == IN_TILE for v in staged)
    bodies = [t.task.body for t in plan_of(done).tasks if t.task.body is not None]
    every = (s for body in bodies for s in nested_statements(body.statements))
    assert sum(isinstance(s, LocalArray) for s in every) == n_wanted >= 4


def test_a_kernel_by_itself_reads_across_corners_out_of_tiles() -> None:
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, 4).place(x, y)

    @ks.kernel
    def cross() -> None:
        for i, j in x:
            y[i, j] = x[i - 1, j] + x[i, j + 1]

    @ks.kernel
    def corners() -> None:
        for i, j in x:
            y[i, j] = x[i - 1, j - 1] + x[i, j + 1]

    @ks.kernel
    def in_place() -> None:
        for i, j in x:
            x[i, j] = x[i - 1, j - 1]

    found = [
        any(isinstance(s, LocalArray) for s in nested_statements(plain_ir(k).body))
        for k in (cross, corners, in_place)
    ]
    ks.reset()
    assert found == [False, True, False]


def test_tiles_of_a_kernel_by_itself_are_as_large_as_a_local_array_together() -> None:
    """Three fields would take 43 KB each, and three components of a vector 128 KB."""
    ks.init(arch=ks.cpu)
    x, y, z, r = (ks.field(ks.f64) for _ in range(4))
    v = ks.Vector.field(3, ks.f64)
    ks.root.pointer(ks.ij, 2).dense(ks.ij, (64, 64)).place(x, y, z, r, v)

    @ks.kernel
    def fields() -> None:
        for i, j in r:
            r[i, j] = x[i - 9, j - 9] + y[i - 9, j - 9] + z[i - 9, j - 9]

    @ks.kernel
    def components() -> None:
        for i, j in r:
            r[i, j] = v[i - 9, j - 9][0] + v[i - 9, j - 9][1] + v[i - 9, j - 9][2]

    found = [
        sum(isinstance(s, LocalArray) for s in nested_statements(plain_ir(k).body))
        for k in (fields, components)
    ]
    ks.reset()
    assert found == [1, 0]
