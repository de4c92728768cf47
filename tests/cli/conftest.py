"""The command, called in this process, in a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernelscape.cli import commands as cli


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, settings and the tuned store of a test are its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [n for n in os.environ if n.startswith("KERNELSCAPE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def explore(capfd: pytest.CaptureFixture[str]):
    """Run a command line; exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(a) for a in arguments])
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    return call
