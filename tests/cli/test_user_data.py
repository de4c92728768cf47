"""What is wrong with a user's data or program is one sentence: indices, empty arrays, kernels that do nothing, sys.exit."""

from __future__ import annotations

from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.language.errors import LanguageError

FILE = """
import sys
import numpy as np
import kernelscape as ks

nd = ks.types.ndarray()

@ks.kernel
def gather(x: nd, y: nd, p: nd):
    for i in range(y.shape[0]):
        y[i] = x[p[i]]

@ks.kernel
def nothing(x: nd):
    pass

@ks.kernel
def never(x: nd):
    for i in range(0):
        x[i] = 1.0

def gathers(x, y, p):
    gather(x, y, p)

def does_nothing(x, y, p):
    nothing(x)

def never_runs(x, y, p):
    never(x)

def leaves(x, y, p):
    sys.exit(0)

def make_arguments(sizes, dtype, rng):
    if sizes.get("leave"):
        sys.exit(0)
    return rng.random(8).astype(dtype), np.zeros(8, dtype), np.arange(8) + sizes.get("far", 0)
"""


@pytest.mark.parametrize(
    ("name", "size", "code", "said"),
    [
        ("gathers", "far=3", 2, "index 0 of x is 10, outside 0..7: no kernel may leave its arrays"),
        ("does_nothing", "", 2, "the sequence does_nothing computes nothing that lasts"),
        ("never_runs", "", 2, "the sequence never_runs computes nothing that lasts"),
        ("leaves", "", 2, "mine.py:leaves cannot be called: it ends the program in line 32"),
        ("gathers", "leave=1", 2, "make_arguments of mine.py failed: it ends the program in line"),
    ],
)
def test_it_is_a_sentence(name: str, size: str, code: int, said: str, explore) -> None:
    Path("mine.py").write_text(FILE)
    sizes = ("--size", size) if size else ()
    found, _, err = explore("run", f"mine.py:{name}", *sizes, "--target", "fake", "--max-evals", 1)
    assert (found, said in err, "Traceback" in err, err.count("\n")) == (code, True, False, 1), err


def test_a_file_that_ends_the_program_is_a_sentence(explore) -> None:
    Path("mine.py").write_text("import sys\nsys.exit(0)\n")
    code, _, err = explore("run", "mine.py:f")
    assert (code, err) == (2, "explore: mine.py cannot be loaded: it ends the program in line 2\n")


def test_empty_arrays_are_a_sentence() -> None:
    @ks.kernel
    def scale(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = 2.0 * x[i]

    empty = np.zeros(0, np.float32)
    with pytest.raises(LanguageError, match="the sequence scale computes nothing that lasts"):
        ks.explore(scale, empty, empty.copy(), target="fake")


def test_a_changed_file_is_said(explore) -> None:
    path = Path("mine.py")
    path.write_text(FILE)
    given = ("--target", "fake", "--max-evals", 1, "-q", "-o", "run")
    assert explore("run", "mine.py:gathers", *given)[0] == 0
    said = f"{path.absolute()} has changed since: this is the sequence as it was recorded"
    for text, is_changed in (
        (FILE + "# a comment\n", False),
        (FILE.replace("x[p", "2 * x[p"), True),
    ):
        path.write_text(text)
        _, out, _ = explore("replay", "run", "--tolerance", "1000%")
        assert (f"note: {said}" in out) == is_changed
        _, out, _ = explore("resume", "run", "--max-evals", 1)
        assert (f"note: {said}" in out) == is_changed
    path.unlink()
    _, out, _ = explore("replay", "run", "--tolerance", "1000%")
    assert f"note: {path.absolute()} is not here" in out


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
