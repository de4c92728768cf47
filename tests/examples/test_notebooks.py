"""The notebooks of examples/ run from end to end, and the pages that they show are drawn by a browser."""

from __future__ import annotations

import html
import json
import os
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
    assert {p.stem for p in NOTEBOOKS} >= {"exploring", "replaying", "taichi"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_they_are_kept_with_their_outputs(path: Path) -> None:
    """A site that shows notebooks runs nothing. So they hold pictures, no error, and nothing of the machine that made them."""
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    outputs = [o for c in cells for o in c["outputs"]]
    assert all(c["execution_count"] for c in cells)
    assert sum("image/png" in o.get("data", {}) for o in outputs) >= 2
    assert not [o for o in outputs if o["output_type"] == "error"]
    told = json.dumps([{k: v for k, v in o.items() if k != "data"} for o in outputs])
    assert not re.search(r"/(work|tmp|home|root)/", told)
    assert path.stat().st_size < 1_000_000


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
    # `!explore` of a cell is the command of this environment.
    path_of_commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path_of_commands},
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(result.read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]
