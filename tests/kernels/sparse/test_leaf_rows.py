"""Rows of leaves in explored sequences: who has choices about them, how they are written, and what they compute."""

from collections.abc import Iterator
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.analysis.prefetch_sites import blocks_of
from kernelscape.kernels.frontend.recorder import Recording, record_program
from kernelscape.kernels.ir.kernel import Binary, Const, DType, For, Load
from kernelscape.kernels.ir.walk import walk
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.kernels.tasks.standalone import standalone
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import DecisionError, fix, restore, to_names
from kernelscape.testing import checking, sparse_periods
from kernelscape.testing.calling import Arrays
from kernelscape.testing.sparse_candidates import machine
from kernelscape.testing.sparse_model import plain_ir
from kernelscape.testing.syntax import nodes

Recorded = tuple[Recording, Arrays]
KINDS = ("staged", "unrolled", "prefetch_distance")


@pytest.fixture
def rows() -> Iterator[Recorded]:
    """Two loops over leaves in which rows have neighbours, with a cell that is taken away between, and one of own cells only."""
    ks.init(arch=ks.cpu)
    x, y, z = ks.field(ks.f32), ks.field(ks.f32), ks.field(ks.f64)
    block = ks.root.pointer(ks.ij, (3, 4))
    block.dense(ks.ij, (4, 16)).place(x, y, z)

    @ks.kernel
    def smooth() -> None:
        for i, j in x:
            y[i, j] = x[i - 1, j] + 2 * x[i + 1, j] - x[i, j - 1]

    @ks.kernel
    def add() -> None:
        for i, j in x:
            z[i, j] += y[i, j] - y[i - 1, j]

    @ks.kernel
    def scale() -> None:
        for i, j in x:
            x[i, j] *= 2

    @ks.kernel
    def drop(n: ks.i32) -> None:
        ks.deactivate(block, [n, n])

    for i, j in ((0, 0), (0, 17), (4, 16), (4, 32), (8, 63), (9, 0)):
        x[i, j] = 1
    values = np.add.outer(3 * np.arange(12), np.arange(64)) % 11
    x.from_numpy((values * (x.to_numpy() > -1)).astype(np.float32))

    def step() -> None:
        smooth()
        add()
        scale()
        drop(0)

    yield record_program(step, ())
    ks.reset()


def space_of(recording: Recording) -> Space:
    """On a machine whose cores have no caches of their own: all arrays are beyond them."""
    return build_space(normalise(recording), machine(0))


def choices_of_smooth(space: Space) -> list[Candidate]:
    """All that can be decided of rows in the first loop."""
    root = space.open_root()
    found = [root] if isinstance(root, Candidate) else []
    for var, x in enumerate(space.choices):
        if x.kind in KINDS and x.objects[0].startswith("smooth"):
            made = [child for candidate in found for _, child in candidate.expand(var)]
            found = [one for one in made if isinstance(one, Candidate)]
    return found


def completed(space: Space) -> Candidate:
    root = space.open_root()
    assert isinstance(root, Candidate)
    made = complete_sketch(root, default_sketch(space))
    assert made is not None
    return made


def test_loops_over_rows_with_neighbours_may_be_written_out(rows: Recorded) -> None:
    """As those of a kernel by itself are; the loop over own cells has no such choice."""
    space = space_of(rows[0])
    found = [x.objects[0] for x in space.choices if x.kind == "unrolled"]
    assert [name.partition("0.")[0] for name in found] == ["smooth", "add"]
    texts = {}
    for value in ("ALL", "NONE"):
        made = lower(plan_of(completed(fix(space, [("unrolled", value)]))))
        texts[value] = [s for s in nodes(made) if isinstance(s, c.For)]
    kept = [s for s in texts["ALL"] if s.copies == 1]  # rows of four, in the two loops
    assert len(kept) == 8 and not any(s.copies for s in texts["NONE"])
    default = [s for s in nodes(lower(plan_of(completed(space)))) if isinstance(s, c.For)]
    assert len([s for s in default if s.copies == 1]) == 8


def test_what_a_form_of_a_body_does_not_have_is_not_decided_of_it(rows: Recorded) -> None:
    """In tiles no index decides anything."""
    # In rows, written out or not, with four distances; in a tile.
    assert len(choices_of_smooth(space_of(rows[0]))) == 2 * 4 + 1


def test_a_loop_has_one_choice_whatever_is_in_tiles(rows: Recorded) -> None:
    """Kind: choices by a name that another choice changes. Stored ones of loops of other bodies are read past."""
    space = space_of(rows[0])
    made = completed(fix(space, [("unrolled", "ALL")]))
    names = to_names(made)
    unrolled = [name for name, _ in names if name.startswith("unrolled(")]
    assert [name.partition(".")[0] for name in unrolled] == ["unrolled(smooth0", "unrolled(add0"]
    older = (*names, (f"{unrolled[0][:-1]}11)", "NONE"))
    again = restore(space, older)
    assert isinstance(again, Candidate) and again.key == restore(space, names).key  # type: ignore[union-attr]
    with pytest.raises(DecisionError):
        restore(space, (*names, ("unrolled(smooth0)", "NONE")))


def test_all_choices_of_rows_leave_what_the_reference_leaves(
    rows: Recorded, tmp_path: Path
) -> None:
    recording, before = rows
    found = choices_of_smooth(space_of(recording))
    rng = np.random.default_rng(1)
    drawn = (checking.random_candidate(found[k], rng) for k in rng.permutation(len(found))[:8])
    sources = [checking.source_of(x) for x in drawn if isinstance(x, Candidate)]
    assert len({s.text for s in sources}) == 8
    assert any(c.PREFETCH in s.text for s in sources)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


@pytest.mark.parametrize(("value", "n_asked"), [("NONE", 0), ("ONE", 4 * 3), ("FOUR", 4 * 3)])
def test_rows_of_later_blocks_are_asked_for(rows: Recorded, value: str, n_asked: int) -> None:
    """Rows of one line, written out: of x and y in one loop, of y and z, with two lines a row, in the other."""
    made = lower(plan_of(completed(fix(space_of(rows[0]), [("prefetch_distance", value)]))))
    asked = [x for x in nodes(made) if isinstance(x, c.Call) and x.function == c.PREFETCH]
    written = [x for x in asked if x.args[1] == c.Num("1")]
    assert (len(asked), len(written)) == (n_asked * 5 // 3, n_asked)


def test_what_later_iterations_touch_is_read_from_statements() -> None:
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ijk, 8).dense(ks.ijk, 8).place(x, y)

    @ks.kernel
    def smooth() -> None:
        for i, j, k in x:
            y[i, j, k] = x[i, j - 1, k] + x[i, j, k] - x[i, j, k + 1]

    @ks.kernel
    def own() -> None:
        for i, j, k in x:
            y[i, j, k] += 2 * x[i, j, k]

    found = []
    for kernel in (smooth, own):
        ir = plain_ir(kernel)
        loops = [s for s in ir.body if isinstance(s, For)]
        found.append(blocks_of(loops[-1].loop, loops[-1].body, standalone(ir).array))
    ks.reset()
    blocks, nothing = found
    assert nothing is None  # one stream from the begin of a leaf to its end
    assert blocks is not None and blocks.pay
    told = {(x.array[-6:], x.is_written): x for x in blocks.rows}
    assert told.keys() == {("field0", False), ("field1", True)}
    for row in told.values():
        assert (row.n_bytes, row.step_bytes, row.block_bytes, row.n_lines) == (32, 32, 2048, 1)
    # Behind the end of the list its last element stands for all others.
    later = blocks.later(3)
    (index,) = (e.indices[-1] for e in walk(later) if isinstance(e, Load))
    assert isinstance(index, Binary) and (index.op, index.b) == ("min", Const(1024, DType.i64))


@pytest.mark.parametrize(("cells", "n_asked"), [(8, 4 * 2), (4, 0)])
def test_a_kernel_by_itself_asks_for_rows_of_large_leaves(cells: int, n_asked: int) -> None:
    """Two rows of 32 bytes are a line: of two fields, in the copies of eight rows."""
    ks.init(arch=ks.cpu)
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ijk, 64 // cells).dense(ks.ijk, cells).place(x, y)

    @ks.kernel
    def smooth() -> None:
        for i, j, k in x:
            y[i, j, k] = x[i, j - 1, k] + x[i, j, k]

    made = lower(default_plan(plain_ir(smooth), 1))
    ks.reset()
    asked = [e for e in nodes(made) if isinstance(e, c.Call) and e.function == c.PREFETCH]
    assert len(asked) == n_asked
