"""An engine for the tests of a file, which share what it has compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kernelscape as ks
import pytest
from kernelscape.runtime import engine as engine_room
from kernelscape.runtime.engine.engine import Engine, EngineOptions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def engine_of_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The current engine of a test; no program is left behind it."""
    made = Engine(EngineOptions(folder=folder, cores=2))
    monkeypatch.setattr(engine_room, "_engine", made)
    yield made
    ks.reset()
    made.close()
