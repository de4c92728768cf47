"""Leaves that lie in another way while a sequence runs: what they leave in three periods is what the reference leaves."""

from collections.abc import Sequence
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.codegen.describe import describe
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.analysis.effects import arrays_read
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.ir.kernel import Const
from kernelscape.kernels.sparse.cells import number
from kernelscape.kernels.sparse.orders import CellOrder
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import DecisionError, fix, restore, to_names
from kernelscape.space.families.leaf_layout import AOS
from kernelscape.testing import checking, sparse_emulation, sparse_periods
from kernelscape.testing.sparse_emulation import Shape

POINTERS = Shape((("pointer", (2, 3)), ("dense", (3, 4))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("bitmasked", (2, 2))), 1, 3)
CHANGES = (("store", 5), ("bump", 0), ("drop", 3), ("append", 4), ("bump", 0))
LOOPS = (("bump", 0), ("bump", 0))
AS_KEPT = [("record", "SLOT_AND_COORDINATES")]  # of lists


def drawn(space: Space, value: str) -> Candidate:
    return sparse_periods.drawn(space, ("leaf_layout", value))


def test_what_converts_runs_first_and_last_and_is_in_the_bound() -> None:
    space = fix(sparse_periods.space_of(POINTERS, LOOPS), [*AS_KEPT, ("cell_order", "ROWS")])
    plain, other = (plan_of(drawn(space, value)) for value in ("SOA", "AOS"))
    assert len(other.launches) == len(plain.launches) + 2
    names = [t.task.name for t in other.tasks]
    assert names[-2:] == ["tree0_0.1.i32.enter", "tree0_0.1.i32.leave"]
    assert other.problem.array("cells").shape[1] == 2  # x and y
    bounder = Bounder(space)
    least = [bounder.ns(drawn(space, v)) for v in ("SOA", "AOS")]
    assert least[1] - least[0] >= space.target.launch_ns


def test_a_row_of_a_leaf_is_a_row_of_a_tile() -> None:
    """Eight cells along the last axis, and vectors of eight: no index is divided at run time."""
    shape = Shape((("pointer", (2, 3)), ("dense", (2, 8))), 0, 2)
    space = fix(sparse_periods.space_of(shape, LOOPS), AS_KEPT)
    text = checking.source_of(drawn(space, "AOSOA")).text
    loops = text[text.index("launch_1") : text.index("launch_2")]
    assert "& 7" not in loops
    assert "& 7" in text[: text.index("launch_1")]  # of the conversion


def test_layouts_are_decided_by_name_and_said_in_words() -> None:
    space = sparse_periods.space_of(POINTERS, LOOPS)
    chosen = drawn(space, "AOS")
    assert sparse_periods.names_of(chosen)["leaf_layout(tree0_0.1.i32)"] == "AOS"
    assert any("tree0_0.1.i32 has the components" in x for x in describe(chosen)["layouts"])
    with pytest.raises(DecisionError, match=r"there is SOA\|AOS\|AOSOA"):
        fix(space, [("leaf_layout", "ROWS")])


def test_fields_of_which_one_is_used_have_no_layout() -> None:
    space = sparse_periods.space_of(POINTERS, (("carry", 0),))  # reads x, and y nowhere
    assert not space.variables.of_trees["leaf_layout"]


# --- the order of the cells of a leaf

POWERS = Shape((("pointer", (2, 3)), ("dense", (4, 8))), 0, 2)


def in_order(space: Space, order: str, layout: str, seed: int = 1) -> Candidate:
    return sparse_periods.drawn(space, ("cell_order", order), ("leaf_layout", layout), seed=seed)


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("shape", "ways"),
    [
        (POINTERS, [("ROWS", "AOS"), ("ROWS", "AOSOA"), ("ROWS", "AOSOA")]),
        (HASHED, [("ROWS", "AOS"), ("ROWS", "AOSOA"), ("ROWS", "AOSOA")]),
        (POWERS, [("MORTON", "SOA"), ("COLUMNS", "AOSOA"), ("MORTON", "AOS")]),
        (POINTERS, [("COLUMNS", "SOA"), ("COLUMNS", "AOS")]),
        (HASHED, [("MORTON", "AOSOA")]),
    ],
)
def test_each_layout_and_order_of_cells_leaves_what_the_reference_leaves(
    shape: Shape, ways: Sequence[tuple[str, str]], tmp_path: Path
) -> None:
    recording, before = sparse_emulation.recorded(shape, CHANGES)
    space = build_space(normalise(recording), checking.target(2, 32))
    sources = [checking.source_of(in_order(space, *way, k)) for k, way in enumerate(ways)]
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def place(order: CellOrder, coordinates: Sequence[int]) -> int:
    x = order.place([number(k) for k in coordinates])
    assert isinstance(x, Const)
    return int(x.value)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_the_order_by_bits_has_each_cell_once_and_neighbours_near(logs: list[int]) -> None:
    extents = tuple(1 << n for n in logs)
    order = CellOrder.of_bits(extents)
    at = {x: place(order, x) for x in np.ndindex(*extents)}
    assert sorted(at.values()) == list(range(order.n_cells))
    corner = tuple(min(2, n) for n in extents)  # what two cells along each axis hold is one block
    assert {at[x] for x in np.ndindex(*corner)} == set(range(int(np.prod(corner))))


@given(st.permutations(range(3)))
def test_orders_of_axes_are_transposed_arrays(axes: Sequence[int]) -> None:
    extents = (2, 3, 5)
    order = CellOrder.of_axes(extents, axes)
    lying = np.array([place(order, x) for x in np.ndindex(*extents)]).reshape(extents)
    wanted = np.arange(order.n_cells).reshape([extents[a] for a in axes])
    assert np.array_equal(lying.transpose(axes), wanted)


def test_a_row_of_a_leaf_is_a_column_without_divisions() -> None:
    """Loops over the cells of a leaf have their indices in the address, whatever the order is."""
    space = fix(sparse_periods.space_of(POINTERS, LOOPS), AS_KEPT)
    text = checking.source_of(in_order(space, "COLUMNS", "SOA")).text
    loops = text[text.index("launch_1") : text.index("launch_2")]
    assert "raw_div" not in loops and "raw_mod" not in loops


def test_orders_are_decided_by_name_and_said_in_words() -> None:
    space = sparse_periods.space_of(POWERS, LOOPS)
    chosen = in_order(space, "MORTON", "SOA")
    names = sparse_periods.names_of(chosen)
    assert names["cell_order(tree0_0.1.i32)"] == "MORTON"
    assert any("in Morton order" in x for x in describe(chosen)["layouts"])
    with pytest.raises(DecisionError, match="COLUMNS"):
        fix(
            sparse_periods.space_of(POINTERS, LOOPS), [("cell_order", "MORTON")]
        )  # three cells along an axis
    older = [(n, v) for n, v in names.items() if not n.startswith("cell_order")]
    plain = restore(space, older)
    assert isinstance(plain, Candidate)
    assert ("cell_order(tree0_0.1.i32)", "MORTON") not in to_names(plain)


def test_a_field_alone_has_an_order_where_its_leaf_has_two_axes() -> None:
    one = sparse_periods.space_of(POINTERS, (("carry", 0), ("carry", 0)))  # reads x, and y nowhere
    assert [x.name for x in one.variables.of_trees["cell_order"]] == ["tree0_0.1.i32"]
    assert not one.variables.of_trees["leaf_layout"]
    line = sparse_periods.space_of(Shape((("pointer", (2, 3)), ("dense", (1, 4))), 0, 2), LOOPS)
    assert not line.variables.of_trees["cell_order"]


def test_fields_that_a_colouring_reads_keep_their_layout() -> None:
    """Rows are found before the loop, in the program's arrays: a copy in another layout may have other indices by then."""
    ks.init()
    ends, free = (ks.Vector.field(2, ks.i32) for _ in range(2))
    total = ks.field(ks.f64, shape=40)
    for x in (ends, free):
        ks.root.pointer(ks.i, 5).dense(ks.i, 4).place(x)

    @ks.kernel
    def move():
        for e in ends:
            ends[e] += free[e]

    @ks.kernel
    def add():
        for e in range(20):
            total[ends[e][0]] += 1.0
            total[ends[e][1]] -= 2.0

    def both() -> None:
        move()
        add()

    problem = normalise(record_program(both, ())[0])
    space = build_space(problem, checking.target(2, 32))
    (var,) = space.variables.scatter.values()
    root = space.root()
    assert isinstance(root, Candidate)
    assert "GREEDY" in values(root, var)
    (read,) = (x for x in problem.parts.leaves if {*x.arrays} & {*arrays_read(problem.tasks[-1])})
    layouts = space.variables.of_trees["leaf_layout"]
    assert len(layouts) == 2
    for site, layout in layouts.items():
        copied = root.decide(layout, 1 << AOS)
        assert isinstance(copied, Candidate)
        assert ("GREEDY" in values(copied, var)) == (site.name != read.name)


def values(candidate: Candidate, var: int) -> set[str]:
    return {candidate.space.choices[var].values[k] for k in candidate.values(var)}
