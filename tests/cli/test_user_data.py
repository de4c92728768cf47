"""A user's data: arrays that are empty, and what a search leaves behind. Sentences are in transcripts/user_files.txt."""

from __future__ import annotations

from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError


def test_empty_arrays_are_a_sentence() -> None:
    @ks.kernel
    def scale(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = 2.0 * x[i]

    empty = np.zeros(0, np.float32)
    with pytest.raises(LanguageError, match="the sequence scale computes nothing that lasts"):
        ks.explore(scale, empty, empty.copy(), target="fake")


@pytest.mark.compiler
def test_a_search_leaves_nothing_in_the_temporary_folder(
    explore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    for target in ("cpu", "emulator"):
        given = ("--size", "n=256", "--target", target, "--max-evals", 2, "-q", "-o", target)
        assert explore("run", "axpydot", *given)[0] == 0
        assert list(temporary.iterdir()) == []
