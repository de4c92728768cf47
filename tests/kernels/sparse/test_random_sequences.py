"""Random sequences on random trees as random candidates: C and CUDA text leave what the reference leaves, in three periods.

experiments/sparse_trees.py has many more. What was wrong once is here by itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kernelscape.kernels.interpret.reference import run_reference
from kernelscape.testing import sparse_batches
from kernelscape.testing.sparse_drawn import Part, Tree
from kernelscape.testing.sparse_programs import World

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
WAYS = ("decided", "emulated")
TREES = range(4)
# A list below pools, of which cells are inactive.
LISTED = Tree((("hash", (1, 1)), ("pointer", (3, 3))), (("hash", (3, 1)),), 1, 3, "i32", 3)


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++")
def test_texts_leave_what_the_reference_leaves(tmp_path: Path) -> None:
    found = sparse_batches.run(WAYS, TREES, tmp_path, n_parts=1)
    assert [x.wrong for x in found.values()] == [[], []]
    assert all(x.programs - x.dead_ends >= 3 * len(TREES) - 2 for x in found.values())


def test_a_list_of_a_cell_that_is_inactive_is_emptied_without_a_store() -> None:
    """Slot 0 of a pool is what inactive cells share."""
    world = World(LISTED)
    world.begin(17)
    recording, before = world.recorded((Part(1, 0, (("empty", 4),)),))
    world.end()
    (name,) = (a for key, a in recording.trees[0].sections if key == "length2")
    before[name][0] = 7
    assert run_reference(recording, before, {})[name][0] == 7
