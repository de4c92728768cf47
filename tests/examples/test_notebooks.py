"""The notebooks of examples/ run from end to end, and the pages that they show are drawn by a browser."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import kernelscape
import pytest
from kernelscape.testing.browser import Browser, find_browser

pytest.importorskip("ipykernel")
pytest.importorskip("matplotlib")
pytest.importorskip("nbclient")

EXAMPLES = Path(kernelscape.__file__).parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert {p.name for p in NOTEBOOKS} >= {"exploring.ipynb", "replaying.ipynb"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_they_are_kept_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None


@pytest.mark.compiler
@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_they_run_and_their_pages_are_drawn(path: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    # Paths of sockets have at most some hundred characters.
    with tempfile.TemporaryDirectory(prefix="kernelscape-nb-") as sockets:
        outputs = executed(path, tmp_path, Path(sockets) / "kernel")
    pictures = [o for o in outputs if "image/png" in o.get("data", {})]
    assert len(pictures) >= 2
    pages = ["".join(o["data"]["text/html"]) for o in outputs if "text/html" in o.get("data", {})]
    assert len(pages) == (path.stem == "exploring")
    executable = find_browser()
    if executable is None:
        pytest.skip("the notebook ran; its page is not drawn: no Chromium is installed")
    for shown in pages:
        srcdoc = re.search(r'srcdoc="([^"]*)"', shown)
        assert srcdoc is not None
        (tmp_path / "page.html").write_text(html.unescape(srcdoc[1]))
        with Browser(executable) as browser:
            marks = browser.open(tmp_path / "page.html", "drawnMs")
            assert browser.console == [] and "error" not in marks
        assert marks["rootCell"] == "all implementations"


def executed(path: Path, folder: Path, socket: Path) -> list[dict[str, Any]]:
    """The outputs of all cells."""
    script, result = Path(__file__).with_name("execute.py"), folder / "executed.ipynb"
    command = [sys.executable, script, path, folder, socket, result]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cells = json.loads(result.read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]
