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
