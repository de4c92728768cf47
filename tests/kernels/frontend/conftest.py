"""Shared by tests of the language: a program, and kernels in files of their own."""

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernelscape as ks
import pytest


@pytest.fixture
def program() -> Iterator[None]:
    """A program with Taichi's defaults."""
    ks.init(random_seed=3)
    yield
    ks.reset()


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Runs a text as the file mine.py, which messages name with its lines; returns what it defines."""

    def run(text: str) -> dict[str, Any]:
        file = tmp_path / "mine.py"
        file.write_text(f"import kernelscape as ks, numpy as np\n{text}\n")
        names: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), names)
        linecache.checkcache(str(file))
        return names

    return run
