"""Several threads that change which cells are active, and pools that have what they began with."""

from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.fields.canonical_state import unsound
from kernelscape.kernels.fields.storage import TreeStorage
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.backend import AbstractModule
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_candidates, sparse_periods

N_CELLS = 256


def in_use(node: ks.SNode) -> int:
    """Slots of a pool that are neither free nor fresh."""
    structure = node.structure
    assert structure is not None
    number = structure.numbers[id(node)]
    structure.storage.settle(number)
    free, taken, fresh = structure.storage.arrays["counters"][number][:3]
    assert taken == 0
    kept = structure.storage.arrays[f"free{number}"][:free]
    assert len(set(kept.tolist())) == free
    return int(fresh - 1 - free)


def test_threads_that_activate_one_block_find_one_slot() -> None:
    """Each of many iterations adds to one of few cells, in two levels of blocks that begin inactive."""
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    upper = ks.root.pointer(ks.i, 4)
    lower = upper.pointer(ks.i, 8)
    lower.dense(ks.i, 8).place(x)

    @ks.kernel
    def add(n: ks.i32):
        for k in range(n):
            x[(k * 37) % N_CELLS] += 1

    for _ in range(20):
        upper.deactivate_all()
        add(1 << 15)
        assert (x.to_numpy() == (1 << 15) // N_CELLS).all()
        assert in_use(upper) == 4 and in_use(lower) == 32
    ks.reset()


@pytest.mark.parametrize("kind", ["pointer", "hash"])
def test_threads_that_pass_each_other_find_one_slot(kind: str) -> None:
    """Two threads activate the same cells, one in order, one back and forth around it: they meet often at the same moment."""
    ks.init(arch=ks.cpu)
    n = 1 << 14
    x, at = ks.field(ks.i32), ks.field(ks.i32, 2 * n)
    node = getattr(ks.root, kind)(ks.i, n)
    node.place(x)
    near = np.arange(n) + np.random.default_rng(1).integers(-300, 300, n)
    at.from_numpy(np.concatenate([np.arange(n), near % n]).astype(np.int32))
    counts = np.bincount(at.to_numpy(), minlength=n)

    @ks.kernel
    def add():
        for k in range(2 * n):
            x[at[k]] += 1

    for _ in range(20):
        node.deactivate_all()
        add()
        np.testing.assert_array_equal(x.to_numpy(), counts)
        assert in_use(node) == n
    ks.reset()


@pytest.mark.parametrize(("above", "below"), [("pointer", "pointer"), ("hash", "hash")])
def test_a_million_activations_and_deactivations_leave_no_slot_behind(
    above: str, below: str
) -> None:
    ks.init(arch=ks.cpu)
    x = ks.field(ks.i32)
    upper = getattr(ks.root, above)(ks.i, 16)
    lower = getattr(upper, below)(ks.i, 16)
    lower.bitmasked(ks.i, 4).place(x)
    n_steps = 200
    at, what = ks.field(ks.i32, n_steps), ks.field(ks.i32, n_steps)

    @ks.kernel
    def change(n: ks.i32):
        for k in range(n):
            if what[k] == 0:
                x[at[k]] = 7
            elif what[k] == 1:
                ks.deactivate(lower, [at[k] // 4])
            elif what[k] == 2:
                ks.deactivate(upper, [at[k] // 64])

    generator = np.random.default_rng(4)
    for _ in range(5000):
        at.from_numpy(generator.integers(0, 1024, n_steps, dtype=np.int32))
        what.from_numpy(generator.choice(3, n_steps, p=[0.5, 0.49, 0.01]).astype(np.int32))
        change(n_steps)
    structure = upper.structure
    assert structure is not None
    storage = structure.storage
    assert in_use(upper) == len(storage.active(0)[0])
    assert in_use(lower) == len(storage.active(1)[0])
    assert set(np.unique(x.to_numpy())) <= {0, 7}
    upper.deactivate_all()
    assert in_use(upper) == in_use(lower) == 0
    for k, section in storage.arrays.items():
        if k.startswith(("field", "mask", "table")):
            assert not section[..., :4096].any()
    ks.reset()


def test_what_one_call_could_not_write_is_said_once_of_several_trees() -> None:
    """Both are full, and an index is outside; the next call begins anew."""
    ks.init(arch=ks.cpu)
    x, y, z = (ks.field(ks.i32) for _ in range(3))
    first = ks.root.pointer(ks.i, 2).dynamic(ks.j, 8, chunk_size=2)
    first.place(x)
    second = ks.root.pointer(ks.i, 2).dynamic(ks.j, 4)
    second.place(y)
    ks.root.pointer(ks.i, 8).place(z)

    @ks.kernel
    def collect(n: ks.i32, at: ks.i32):
        for i in range(n):
            ks.append(first, 0, i)
            ks.append(second, 0, 10 + i)
            z[at] = i

    with pytest.raises(AssertionError, match=r"full \(pointer 2, dynamic 8\)"):
        collect(12, 30)
    collect(0, 0)
    assert x.to_numpy()[0].tolist() == list(range(8))  # nothing is lost
    assert y.to_numpy()[0].tolist() == list(range(10, 14))
    first.deactivate_all()
    with pytest.raises(AssertionError, match=r"full \(pointer 2, dynamic 4\)"):
        collect(1, 0)
    collect(0, 0)
    assert x.to_numpy()[0].tolist() == [0] * 8 and z[0] == 0
    ks.reset()


OF_TREES = [
    ("pointer", ("compaction(over*)", "APPEND")),
    ("hash", ("directory(tree0_0*)", "TABLE")),
]


@pytest.mark.compiler
@pytest.mark.parametrize(("kind", "way"), OF_TREES)
def test_a_sequence_of_threads_leaves_no_slot_behind(
    kind: str, way: tuple[str, str], tmp_path: Path
) -> None:
    """40,000 random changes; then two threads make the list, or look cells up, and activate cells of blocks that both meet."""
    ks.init(arch=ks.cpu)
    x, y, n = ks.field(ks.i32), ks.field(ks.i32), 200
    upper = getattr(ks.root, kind)(ks.i, 16)
    lower = getattr(upper, kind)(ks.i, 16)
    lower.bitmasked(ks.i, 4).place(x)
    getattr(ks.root, kind)(ks.i, 64).dense(ks.i, 16).place(y)
    at, what = ks.field(ks.i32, n), ks.field(ks.i32, n)

    @ks.kernel
    def change() -> None:
        for k in range(n):
            if what[k] == 0:
                x[at[k]] = 7
            elif what[k] == 1:
                ks.deactivate(lower, [at[k] // 4])
            elif what[k] == 2:
                ks.deactivate(upper, [at[k] // 64])

    @ks.kernel
    def over() -> None:
        for i in x:
            y[(i * 37) % 1024] += 1

    recording, arrays = record_program(lambda: (change(), over()), ())
    before = {name: np.array(a) for name, a in arrays.items()}
    ks.reset()
    space = fix(
        build_space(normalise(recording), checking.target(2, 32)),
        [("dim_kind(over*.outer)", "PARALLEL"), way],
    )
    made, generator = None, np.random.default_rng(1)
    while not isinstance(made, Candidate):
        made = checking.random_candidate(space.root(), generator)
    source = checking.source_of(made)
    assert source.team
    device = open_device("cpu", DeviceOptions(build_folder=tmp_path))
    built = device.builder.build(source)
    assert isinstance(built, Artifact), built
    module = device.runner.load(built)
    assert isinstance(module, AbstractModule), module
    values = [before[a.name] for a in source.arguments if a.kind == "array"]
    for _ in range(200):
        before["at"][:] = generator.integers(0, 1024, n)
        before["what"][:] = generator.choice(3, n, p=[0.5, 0.49, 0.01])
        module.run(values)
    for used in recording.trees:  # what is in blocks that were given back last has slots until then
        TreeStorage(used.layout, {k: before[array] for k, array in used.sections}).settle(0)
    assert unsound(recording.trees, before) == ""
    module.close()


def growing(kind: str):
    """A recording whose loop over a tree activates neighbours in the same tree, and adds to them; a bit mask, too."""
    x, y = ks.field(ks.f64), ks.field(ks.i32)
    above = getattr(ks.root, kind)(ks.ij, 5)
    above.dense(ks.ij, 4).place(x)
    ks.root.pointer(ks.i, 5).bitmasked(ks.i, 4).place(y)

    @ks.kernel
    def begin():
        for i, j in ks.ndrange(12, 12):
            if (i // 4 + 2 * (j // 4)) % 3 == 1:
                x[i, j] = 3 * i - j

    @ks.kernel
    def grow():
        for i, j in x:
            if i < 18 and j > 0:
                x[i + 2, j] += 1.0
                x[i, j - 1] += 2.0
                y[i] += j

    begin()
    return record_program(lambda: grow(), ())


@pytest.mark.compiler
@pytest.mark.parametrize("kind", ["pointer", "hash"])
def test_loops_over_a_tree_that_activate_its_cells_are_shared_out(
    kind: str, tmp_path: Path
) -> None:
    """The counter of a list, which ends the loop, is another element than those that activations change."""
    ks.init(arch=ks.cpu)
    recording, before = growing(kind)
    ks.reset()
    problem, wanted = normalise(recording), sparse_periods.periods(recording, before)
    works = []
    for cores, way in ((2, "ATOMIC"), (3, "PRIVATE"), (5, "ATOMIC"), (2, "SERIAL")):
        threads = "LOOP" if way == "SERIAL" else "PARALLEL"
        space = build_space(problem, checking.target(cores, 32))
        outer = [d.name for d in space.variables.kind if d.name.endswith("element.outer")]
        assert len(outer) == 1
        root = fix(space, (("scatter", way), (f"dim_kind({outer[0]})", threads))).root()
        made = checking.random_candidate(root, np.random.default_rng(cores))
        assert isinstance(made, Candidate)
        works.append(sparse_candidates.Work(checking.source_of(made), recording, before, wanted))
    assert sparse_candidates.faults_built(works, tmp_path / "grow") == [""] * len(works)
