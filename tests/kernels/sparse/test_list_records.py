"""Lists of places of cells: what they leave in three periods is what the reference leaves, whichever way they are made."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.plan.summary import decisions
from kernelscape.kernels.ir.kernel import DType, Load, Store, Update
from kernelscape.kernels.ir.task import Task
from kernelscape.kernels.ir.walk import children, nested_statements, walk
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.records.replay import restore_older
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import DecisionError, fix, to_names
from kernelscape.testing import checking, gpu_checking, sparse_emulation, sparse_periods
from kernelscape.testing.sparse_emulation import Shape

POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (3, 2))), 0, 2)
NESTED = Shape(
    (("dense", (2, 1)), ("pointer", (3, 2)), ("dense", (1, 2)), ("pointer", (2, 3))), 1, 3
)
DENSE = Shape((("pointer", (2, 3)), ("dense", (3, 4))), 0, 2)
HASHED = Shape((("hash", (3, 5)), ("dense", (2, 2))), 0, 3)
LOOPS = (("bump", 0), ("bump", 0))
REPEATED = (("bump", 0),) * 24
CHANGES = (("store", 5), ("bump", 0), ("append", 4), ("bump", 0), ("drop", 3), ("bump", 0))


def drawn(space: Space, value: str, seed: int = 1) -> Candidate:
    return sparse_periods.drawn(space, ("record", value), seed=seed)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("shape", "calls"), [(POINTERS, CHANGES), (NESTED, CHANGES), (NESTED, LOOPS), (DENSE, REPEATED)]
)
def test_each_record_leaves_what_the_reference_leaves(
    shape: Shape, calls: Sequence[tuple[str, int]], tmp_path: Path
) -> None:
    recording, before = sparse_emulation.recorded(shape, calls)
    space = build_space(normalise(recording), checking.target(2, 32))
    ways = ((), (("listgen", "GENERATE"),))
    made = [drawn(fix(space, way), "CELL", seed) for seed, way in enumerate(ways)]
    sources = [checking.source_of(c) for c in made]
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def test_a_repeat_takes_a_list_as_often_as_it_runs() -> None:
    space = sparse_periods.space_of(DENSE, REPEATED)
    assert [r.count for r in space.problem.repeats] == [24]
    plan = plan_of(drawn(space, "CELL"))
    assert (plan.repeats[0].first, plan.repeats[0].stop) == (1, len(plan.launches) - 1)


def test_each_list_of_a_tree_has_its_own_records() -> None:
    found = sparse_periods.space_of(NESTED, CHANGES).variables.of_trees["record"]
    assert [site.name for site in found] == ["tree0_0.1"]  # `drop` makes cells of node 3 inactive


def test_loops_read_one_number_a_cell_and_look_its_slot_up() -> None:
    space = sparse_periods.space_of(POINTERS, LOOPS)
    plain, other = (plan_of(drawn(space, v)) for v in ("SLOT_AND_COORDINATES", "CELL"))
    assert len(other.launches) == len(plain.launches) + 2
    names = [t.task.name for t in other.tasks]
    assert names[-2:] == ["list tree0_0.0.enter", "list tree0_0.0.leave"]
    places = other.problem.array("places")
    assert (places.dtype, places.shape, places.role) == (
        DType.u32,
        space.problem.array("tree0_0_list0").shape[1:],
        "temp",
    )
    used = [arrays_named(t.task) for t in other.tasks[:-2]]
    assert all("tree0_0_list0" not in names for names in used)
    assert sum("places" in names for names in used) == 3  # one makes it, two take it


def arrays_named(task: Task) -> set[str]:
    """What the statements of a body name."""
    every = list(nested_statements(task.body.statements)) if task.body else []
    read = {x.array for s in every for e in children(s) for x in walk(e) if isinstance(x, Load)}
    return read | {s.array for s in every if isinstance(s, Store | Update)}


def test_conversions_are_in_the_bound_and_the_first_candidates_have_none() -> None:
    space = sparse_periods.space_of(POINTERS, LOOPS)
    bounder = Bounder(space)
    least = [bounder.ns(drawn(space, v)) for v in ("SLOT_AND_COORDINATES", "CELL")]
    assert least[1] - least[0] >= space.target.launch_ns
    (name,) = (n for n, _ in to_names(drawn(space, "CELL")) if n.startswith("record"))
    for _, made in sketched_candidates(space, limit=3):
        assert dict(to_names(made))[name] == "SLOT_AND_COORDINATES"


def test_records_are_decided_by_name_and_said_in_words() -> None:
    space = sparse_periods.space_of(POINTERS, LOOPS)
    chosen = drawn(space, "CELL")
    names = sparse_periods.names_of(chosen)
    assert names["record(tree0_0.0)"] == "CELL"
    assert any("tree0_0.0 lists places of cells" in x for x in describe(chosen)["lists"])
    assert "tree0_0.0: a list of places" in decisions(plan_of(chosen))
    older = [(n, v) for n, v in names.items() if not n.startswith("record")]
    before = dict(to_names(restore_older(space, older)))
    assert before["record(tree0_0.0)"] == "SLOT_AND_COORDINATES"
    with pytest.raises(DecisionError, match=r"there is SLOT_AND_COORDINATES\|CELL"):
        fix(space, [("record", "SLOT")])


@pytest.mark.parametrize(
    ("shape", "calls"),
    [
        (DENSE, (*LOOPS, ("drop", 3))),  # a loop would not find what it has made inactive
        (HASHED, LOOPS),  # a walk would look for keys
        (POINTERS, LOOPS[:1]),  # read once only
    ],
)
def test_lists_whose_cells_a_walk_does_not_find_keep_their_records(
    shape: Shape, calls: Sequence[tuple[str, int]]
) -> None:
    assert not sparse_periods.space_of(shape, calls).variables.of_trees["record"]


def test_threads_of_a_gpu_convert_a_record_each_and_their_launches_are_in_the_bound() -> None:
    space = build_space(sparse_periods.space_of(POINTERS, LOOPS).problem, gpu_checking.target())
    made = [drawn(space, value) for value in ("SLOT_AND_COORDINATES", "CELL")]
    plain, other = map(plan_of, made)
    entering, leaving = (t.task for t in other.tasks[len(plain.tasks) :])
    (n,) = space.problem.array("tree0_0_list0").shape[1:]
    assert [loop.extent for loop in (*entering.loops, *leaving.loops)] == [n, n]
    assert all(t.n_threads > 32 for t in other.tasks[len(plain.tasks) :])
    assert len(other.launches) == len(plain.launches) + 2
    least = list(map(Bounder(space).ns, made))
    assert least[1] - least[0] >= space.target.launch_ns
