"""Sequences on sparse fields as CUDA text: what they leave on the emulator is what the reference leaves."""

import shutil

import numpy as np
import pytest
from kernelscape.testing.sparse_emulation import Shape

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
from kernelscape.testing import sparse_emulation as emulation

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++"),
]
POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (3, 2))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("dense", (2, 2))), 1, 3)

# More than one word, the last of which is not whole.
WORDS = Shape((("bitmasked", (9, 12)), ("pointer", (1, 2))), 1, 2)


@pytest.mark.parametrize(
    ("shape", "decided"),
    [
        (POINTERS, [("leaf_layout", "AOSOA"), ("cell_order", "COLUMNS")]),
        (HASHED, [("directory", "TABLE"), ("leaf_layout", "AOS"), ("cell_order", "MORTON")]),
    ],
)
def test_random_candidates_leave_what_the_reference_leaves(
    shape: Shape, decided: list[tuple[str, str]], tmp_path
) -> None:
    """Parts of trees lie otherwise than the program has them, converted by kernels of their own."""
    calls = [("store", 5), ("drop", 3), ("append", 4), ("bump", 0)]
    recording, before = emulation.recorded(shape, calls)
    assert emulation.fault(recording, before, 2, tmp_path, decided=decided) == ""


@pytest.mark.parametrize("way", ["BLOCK_SCAN", "APPEND"])
@pytest.mark.parametrize("shape", [POINTERS, HASHED, WORDS])
def test_many_threads_make_a_list(shape: Shape, way: str, tmp_path) -> None:
    """It is made again after cells have become active and inactive, and twice in one task."""
    calls = [("bump", 0), ("drop", 3), ("store", 35), ("bump", 0), ("bump", 0)]
    recording, before = emulation.recorded(shape, calls)
    decided = [("listgen", "GENERATE"), ("compaction", way)]
    assert emulation.fault(recording, before, 2, tmp_path, decided=decided) == ""


DEEP = Shape((("pointer", (2, 2)), ("pointer", (2, 2)), ("hash", (2, 2))), 2, 1)
SETTLED = [("settling", "ALL_BLOCKS")]


@pytest.mark.parametrize("shape", [POINTERS, HASHED, DEEP])
def test_many_threads_reclaim_pools(shape: Shape, tmp_path) -> None:
    """Cells of all levels become inactive, and their slots are taken by others; a hash node's cell returns twice."""
    calls = [
        ("fill", 1),
        ("lengthen", 3),
        ("drop", 3),
        ("store", 5),
        ("drop", 3),
        ("fill", 2),
        ("lengthen", 3),
    ]
    recording, before = emulation.recorded(shape, calls)
    assert emulation.fault(recording, before, 2, tmp_path, decided=SETTLED) == ""


def test_threads_reclaim_more_slots_than_a_grid_has_threads(tmp_path) -> None:
    """A thread clears several slots, a grid apart."""
    shape = Shape((("pointer", (2, 1)), ("pointer", (40, 40))), 0, 2)
    recording, before = emulation.recorded(shape, [("fill", 0), ("drop", 0), ("fill", 1)])
    assert emulation.fault(recording, before, 2, tmp_path, 1, SETTLED, cores=1) == ""


def test_lists_of_places_leave_what_the_reference_leaves(tmp_path) -> None:
    recording, before = emulation.recorded(POINTERS, [("bump", 0), ("bump", 0)])
    decided = [("record", "CELL"), ("leaf_layout", "SOA"), ("cell_order", "ROWS")]
    assert emulation.fault(recording, before, 2, tmp_path, decided=decided) == ""


def test_states_that_differ_are_seen(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, before = emulation.recorded(POINTERS, [("store", 5)])
    reference = emulation.run_reference

    def other(*args):
        found = reference(*args)
        return {n: np.zeros_like(a) if "table0" in n else a for n, a in found.items()}

    monkeypatch.setattr(emulation, "run_reference", other)
    assert "cells0" in emulation.fault(recording, before, 2, tmp_path)
