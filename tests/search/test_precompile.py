"""Compilation of the search, once a version: until then it runs in Python, with equal results, and goes over between batches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from kernelscape.explorer import session
from kernelscape.explorer.entry import explore_workload, library_workload
from kernelscape.explorer.workload import Options
from kernelscape.kernels.library import load
from kernelscape.search import precompile
from kernelscape.search.bound import cpu
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.precompile import Precompilation
from kernelscape.space import candidate
from kernelscape.space.build import build_space
from kernelscape.space.engine import jit, propagate
from kernelscape.space.engine.jit import end_interpreting, interpret, is_compiling

PACKAGE = Path(precompile.__file__).resolve().parent.parent
# Replies as a compiling process does, without compiling; the last one never replies.
AT_ONCE = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
NEVER = "import sys\nsys.stdin.read()"

pytestmark = pytest.mark.skipif(not is_compiling(), reason="NUMBA_DISABLE_JIT is set")


def results() -> list[object]:
    """Bounds and decisions of a few candidates."""
    problem = library_workload(load("bicgk"), {"m": 64, "n": 64}, "f32", 1).problem
    space = build_space(problem, precompile._MACHINE)
    root = space.root()
    bounder, rng = Bounder(space), np.random.default_rng(1)
    found = [root.random_completion(rng) for _ in range(3)]
    return [bounder.ns(root), root.domains.tolist()] + [
        (bounder.ns(c), c.domains.tolist()) for c in found
    ]


def is_compiled() -> bool:
    return hasattr(cpu.lower_bound, "py_func") and hasattr(propagate.expand, "py_func")


def test_python_and_compiled_code_give_the_same() -> None:
    compiled = results()
    interpret()
    try:
        assert not is_compiled()
        assert results() == compiled
    finally:
        end_interpreting()
    assert is_compiled()


def test_names_in_other_modules_are_exchanged_and_come_back() -> None:
    names = {n for n, value in vars(candidate).items() if hasattr(value, "py_func")}
    assert names
    interpret()
    interpret()
    end_interpreting()
    try:
        assert not any(hasattr(getattr(candidate, n), "py_func") for n in names)
    finally:
        end_interpreting()
    assert all(hasattr(getattr(candidate, n), "py_func") for n in names)


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that is there once all is compiled; it is not there yet."""
    place = tmp_path / "complete"
    monkeypatch.setattr(precompile, "_marker", lambda: place)
    yield place
    assert is_compiled()


def compilers(monkeypatch: pytest.MonkeyPatch, text: str) -> list[subprocess.Popen[str]]:
    """Compilers that do as this program does; those that were started."""
    started: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen([sys.executable, "-Sc", text], stdin=pipe, stdout=pipe, text=True)
        )
        return started[-1]

    monkeypatch.setattr(precompile, "_start", start)
    return started


def test_a_search_goes_over_to_compiled_code(marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, told = compilers(monkeypatch, AT_ONCE), list[str]()
    with Precompilation(told.append, lambda: False) as compilation:
        assert not is_compiled()
        compilation.wait()
        assert is_compiled()
        assert marker.exists()
    assert all(process.returncode is not None for process in started)
    assert told[0].startswith("compiling the search itself")
    with Precompilation(told.append, lambda: False):
        assert is_compiled()  # by the earlier one


@pytest.mark.parametrize("what", ["moved", "written anew", "on another processor"])
def test_another_copy_of_equal_sources_is_compiled_apart(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """numba finds no entry of the first: a search would compile within its time limit, before its first candidates."""
    first, second = tmp_path / "first", tmp_path / "second"
    for place in (first, second):
        for folder in ("space", "search"):
            (place / folder).mkdir(parents=True)
            source = place / folder / "one.py"
            source.write_text("x = 1\n")
            os.utime(source, (1e9, 1e9))
    monkeypatch.setattr(precompile, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(jit, "_PACKAGE", first)
    precompile._marker().touch()
    assert not precompile._is_due()
    if what == "moved":
        monkeypatch.setattr(jit, "_PACKAGE", second)
    elif what == "on another processor":
        monkeypatch.setattr(jit, "_compiled_for", lambda: ("znver9",))
    else:
        os.utime(first / "search" / "one.py", (2e9, 2e9))
    assert precompile._is_due()


@pytest.mark.parametrize("how", ["given up", "raised"])
def test_compilers_end_with_a_search_that_is_over(
    how: str, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = compilers(monkeypatch, NEVER)
    with (
        suppress(KeyError),
        Precompilation(lambda text: None, lambda: True) as compilation,
    ):
        compilation.settle()
        assert not is_compiled()
        if how == "raised":
            raise KeyError
    assert all(process.returncode is not None for process in started)
    assert not marker.exists()


def test_all_compiled_functions_are_loaded_before_a_search_begins() -> None:
    """One that is imported later would compile callers of Python sources."""
    modules = {
        "kernelscape." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for folder in ("space", "search")
        for path in (PACKAGE / folder).rglob("*.py")
        if re.search(r"^@jit", path.read_text(), re.M)
    }
    text = "import sys, kernelscape.explorer.session; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True
    )
    assert len(modules) > 10
    assert modules - set(loaded.stdout.split()) == set()


def test_a_large_space_is_propagated_by_compiled_code_only(
    marker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python would take the whole time limit: the first run of a version evaluated nothing in a sequence of 40 tasks."""
    compilers(monkeypatch, AT_ONCE)
    monkeypatch.setattr(session, "_MOST_INTERPRETED", 0)
    propagated, fixpoint = list[bool](), candidate.Space._fixpoint

    def seen(space: candidate.Space, domains: np.ndarray) -> object:
        propagated.append(is_compiled())
        return fixpoint(space, domains)

    monkeypatch.setattr(candidate.Space, "_fixpoint", seen)
    workload = library_workload(load("axpydot"), {"n": 64}, "f32", 1)
    options = Options(time_limit_s=60.0, max_evals=1, deterministic=True)
    run = explore_workload(workload, options, directory=tmp_path)
    assert run.best is not None
    assert propagated and all(propagated)
