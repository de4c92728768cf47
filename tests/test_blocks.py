"""Every code block of README and docs/ runs, page by page in a folder of its own: Python as it is, commands of `explore` in small.

The kind: a page that shows what no longer works. Searches are cut to a few candidates, sizes are made small, and folders of runs
are those that the page has made.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest

ROOT = Path(ks.__file__).parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\S*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
# First words of lines that are not run here, with the reason.
NOT_RUN = {
    "make": "tests of their own, or minutes",
    "pip": "installs: tests/test_wheel.py",
    ".venv/bin/explore": "the command of a checkout",
    "eval": "for shells",
    "_EXPLORE_COMPLETE=fish_source": "for shells",
}
# Commands that would take long or need what is not here, with the reason.
TOO_MUCH = {
    "calibrate": "measures for ten seconds",
    "fleet": "processes that stay: tests/runtime/fleet",
    "worker": "a process that stays: tests/runtime/fleet",
    "--fleet": "needs workers: tests/runtime/fleet",
    "--device": "names more cores than may be here: tests/runtime/fleet",
}

# Files that a page names and does not show.
_PROGRAM = """import taichi as ti
ti.init()
x = ti.field(ti.f32, shape=8)

@ti.kernel
def step():
    for i in x:
        x[i] += 1.0

def function():
    step()

function()
"""
STAND_INS = {"program.py": _PROGRAM, "mpm88.py": _PROGRAM}
OPTIONAL = ("torch", "jax")  # imported by blocks that are about them


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(m[1], m[2]) for m in _BLOCK.finditer(page.read_text())]


def commands(language: str, text: str) -> list[str]:
    """The command lines of a block; none where it shows an output."""
    if language == "yaml":
        return re.findall(r"- run: (.*)", text)
    if language:
        return []
    lines = [line.partition("  #")[0].strip() for line in text.splitlines()]
    if any(line.startswith("$ ") for line in lines):
        return [line[2:] for line in lines if line.startswith("$ ")]
    known = ("explore", "cp", *NOT_RUN)
    return [line for line in lines if line.split(" ")[0] in known]


def is_run(line: str) -> bool:
    first, *words = shlex.split(line)
    return first not in NOT_RUN and not (first == "explore" and TOO_MUCH.keys() & set(words))


def has_code(page: Path) -> bool:
    return any(
        language == "python" or any(map(is_run, commands(language, text)))
        for language, text in blocks(page)
    )


class Page:
    """A page that is played from its top."""

    def __init__(self, path: Path, explore) -> None:
        self.path, self.explore = path, explore
        self.names = {"ks": ks, "np": np, "__name__": "__main__"}
        self.last_run = ""
        self.n_run = 0

    def play(self) -> None:
        for name, text in STAND_INS.items():
            Path(name).write_text(text)
        for language, text in blocks(self.path):
            if language == "python" and (name := _FILE.match(text)):
                Path(name[1]).write_text(text)
        for language, text in blocks(self.path):
            if language == "python":
                self.python(text)
            for line in commands(language, text):
                self.command(line)

    def python(self, text: str) -> None:
        file = Path(f"block_{self.n_run}.py")
        self.n_run += 1
        small = re.sub(r"time_limit=\d+", "max_evals=3", text)
        file.write_text(small)  # kernels are read from their files
        try:
            exec(compile(small, str(file), "exec"), self.names)
        except ModuleNotFoundError as e:
            if e.name not in OPTIONAL:
                raise

    def command(self, line: str) -> None:
        first, *words = shlex.split(line)
        if not is_run(line):
            return
        self.n_run += 1
        if first == "cp":
            shutil.copy(*words)
            return
        code, _, err = self.explore(*self.small(words))
        assert code in (0, *([6] if words[0] == "replay" else [])), f"{line}: {err}"
        if words[0] == "run" and "-o" not in words:
            self.last_run = str(max(Path("runs").iterdir(), key=lambda p: p.stat().st_mtime_ns))

    def small(self, words: list[str]) -> list[str]:
        """The same command on small arrays, with few candidates."""
        line = " ".join(words)
        line = re.sub(r"--time-limit \S+", "--max-evals 2", line)
        line = re.sub(r"\b([mn])=[0-9^kMe]+", lambda m: f"{m[1]}={8 + len(m[0])}", line)
        if words[0] == "run" and "--max-evals" not in line:
            line += " --max-evals 2"
        if self.last_run:
            line = re.sub(r"runs/\S+-001", self.last_run, line)
        return line.split(" ")


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield
    ks.reset()


@pytest.mark.compiler
@pytest.mark.parametrize("path", [p for p in PAGES if has_code(p)], ids=lambda p: p.stem)
def test_a_page_runs(path: Path, explore) -> None:
    page = Page(path, explore)
    page.play()
    assert page.n_run


def test_every_line_of_a_block_of_commands_is_known() -> None:
    """A block without a language whose first word is a program: each of its lines runs, or is not run for a reason."""
    for page in PAGES:
        for language, text in blocks(page):
            found = commands(language, text)
            if found and not language and not text.lstrip().startswith("$"):
                assert len(found) == sum(1 for line in text.splitlines() if line.strip()), text


def test_a_block_that_fails_is_seen(tmp_path: Path, explore) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```\nexplore lits\n```\n")
    with pytest.raises(AssertionError, match="did you mean list"):
        Page(page, explore).play()
