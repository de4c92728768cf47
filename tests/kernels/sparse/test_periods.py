"""Random candidates of sequences on sparse fields, compiled: what they leave in three periods is what the reference leaves."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kernelscape.testing import sparse_emulation, sparse_periods
from kernelscape.testing.sparse_emulation import Shape

pytestmark = pytest.mark.compiler
POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (3, 2))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("dense", (2, 2))), 1, 3)
LOOPS = (("bump", 0), ("bump", 0), ("carry", 0), ("bump", 0))
CHANGES = (("store", 5), ("bump", 0), ("drop", 3), ("append", 4), ("bump", 0))


@pytest.mark.parametrize(("shape", "calls"), [(POINTERS, LOOPS), (HASHED, CHANGES)])
def test_candidates_leave_what_the_reference_leaves(
    shape: Shape, calls: Sequence[tuple[str, int]], tmp_path: Path
) -> None:
    recording, before = sparse_emulation.recorded(shape, calls)
    sources = sparse_periods.drawn_sources(recording, 5, seed=1)
    assert len(sources) > 3
    assert any(s.team for s in sources)
    assert sparse_periods.fault(recording, before, sources, tmp_path) == ""


def test_states_that_differ_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording, before = sparse_emulation.recorded(POINTERS, [("bump", 0), ("drop", 3)])
    right = sparse_periods.periods(recording, before)

    def other(*given: object) -> list[dict[str, np.ndarray]]:
        return [*right[:2], {n: a + ("field" in n) for n, a in right[2].items()}]

    monkeypatch.setattr(sparse_periods, "periods", other)
    sources = sparse_periods.drawn_sources(recording, 1, seed=1)
    assert "in period 2" in sparse_periods.fault(recording, before, sources, tmp_path)
