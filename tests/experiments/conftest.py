"""Fixtures of the tests of tables: rows made in this process, and the state that the machine keeps between them."""

from __future__ import annotations

import json
import os
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import pytest
from kernelscape.experiments import rows, seeds


@pytest.fixture(scope="session")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("machine"))


@pytest.fixture
def machine(_kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that the user keeps is read or written, and timers and probes are compiled once."""
    monkeypatch.setenv("XDG_CACHE_HOME", _kept)


@pytest.fixture
def in_this_process(machine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the work of the children of tables in this process: each takes two seconds to start. The tables of searches and of
    libraries (`run_table`, `peers`) are tested with children.
    """

    def make(module: str, asked: dict[str, Any], limit_s: float) -> dict[str, Any] | str:
        said = StringIO()
        try:
            with redirect_stdout(said):
                main = import_module(f"{rows.__package__}.{module}").main
                assert main(["--child", json.dumps(asked)]) == 0
        except (ValueError, RuntimeError) as e:
            return f"exit 1: {type(e).__name__}: {e}"
        made: dict[str, Any] = json.loads(said.getvalue().splitlines()[-1])
        return made

    for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
        monkeypatch.delenv(name)
    for module in (rows, seeds):
        monkeypatch.setattr(module, "in_fresh_process", make)
