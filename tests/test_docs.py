"""The documentation is built without a warning, and names every command and every public function."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import kernelscape
import pytest
from kernelscape.cli import commands as cli

pytest.importorskip("sphinx")
pytest.importorskip("myst_parser")
pytest.importorskip("sphinx_click")

ROOT = Path(kernelscape.__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, from an empty folder, in a process that may change what it likes."""
    out = tmp_path_factory.mktemp("pages")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", out / "trees"]
    done = subprocess.run([*command, ROOT / "docs", out / "html"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return out / "html"


def test_every_command_has_its_section(built: Path) -> None:
    page = (built / "commands.html").read_text()
    context = click.Context(cli.explore)
    for name in cli.explore.list_commands(context):
        command = cli.explore.get_command(context, name)
        assert command is not None
        assert f'id="explore-{name}"' in page
        for option in (o for p in command.params for o in p.opts if o.startswith("--")):
            assert option in page, (name, option)


def test_every_concept_has_its_picture(built: Path) -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    sections = text.split("\n## ")[1:]
    assert len(sections) >= 5
    for section in sections:
        assert section.count("](") == section.count(".svg)") == 1, section.splitlines()[0]
    page = (built / "concepts.html").read_text()
    assert page.count("<img ") == len(sections)


def test_what_searches_and_what_is_called_is_described(built: Path) -> None:
    page = (built / "api.html").read_text()
    for name in ("explore", "load", "replay", "load_tuned", "kernel", "ndarray"):
        assert f'id="kernelscape.{name}"' in page
