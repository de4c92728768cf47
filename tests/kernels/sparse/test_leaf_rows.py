"""Rows of leaves in explored sequences: who has choices about them, how they are written, and what they compute."""

from collections.abc import Iterator
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.c import csyntax as c
from kernelscape.codegen.lower import lower
from kernelscape.kernels.language.record import Recording, record_program
from kernelscape.kernels.offload.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.decisions import fix
from kernelscape.testing import checking, sparse_periods
from kernelscape.testing.calling import Arrays
from kernelscape.testing.syntax import nodes

Recorded = tuple[Recording, Arrays]


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
    return build_space(normalise(recording), checking.target(2, 32))


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
        made = lower(completed(fix(space, [("unrolled", value)])))
        texts[value] = [s for s in nodes(made) if isinstance(s, c.For)]
    kept = [s for s in texts["ALL"] if s.copies == 1]  # rows of four, in the two loops
    assert len(kept) == 8 and not any(s.copies for s in texts["NONE"])
    default = [s for s in nodes(lower(completed(space))) if isinstance(s, c.For)]
    assert len([s for s in default if s.copies == 1]) == 8


def test_what_a_form_of_a_body_does_not_have_is_not_decided_of_it(rows: Recorded) -> None:
    """In tiles no index decides anything."""
    space = space_of(rows[0])
    found = list(sparse_periods.combinations(space, ["staged", "unrolled"]))
    # Of each of the two loops: in rows, written out or not; in a tile.
    assert len(found) == 3 * 3


def test_all_choices_of_rows_leave_what_the_reference_leaves(
    rows: Recorded, tmp_path: Path
) -> None:
    recording, before = rows
    sources = sparse_periods.combined_sources(recording, ["staged", "unrolled"], 4)
    assert len(sources) == 4
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""
