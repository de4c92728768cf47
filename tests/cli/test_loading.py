"""Loading of the command: who asks for a version or for help waits for no compiler and no solver.

The kind: an import at the top of a module that every command loads, of what only some commands need when they run.
"""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from kernelscape.cli.commands import explore

# Runs each line of its input as a command line, and says which packages are loaded then, and how many modules.
PROGRAM = """
import contextlib, io, sys
from kernelscape.cli import main
for line in sys.stdin:
    sys.argv = ["explore", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main()
    own = sum(name.startswith("kernelscape.") for name in sys.modules)
    print(own, *sorted({name.partition(".")[0] for name in sys.modules}))
"""
CHEAP = ("numpy", "msgspec")  # what texts of kernels and files of results need
HEAVY = (*CHEAP, "numba", "llvmlite", "scipy", "ortools", "pandas", "matplotlib", "PIL", "rich")
NAMES = explore.list_commands(click.Context(explore))
LIGHT = ("--help", "rnu", "run", "run axpydot --sed 1", *(f"{name} --help" for name in NAMES))
LOOKING = ("list", "doctor")
LINES = ("--version", *LIGHT, *LOOKING)  # in this order: a process keeps what it has loaded


@pytest.fixture(scope="module")
def loaded() -> dict[str, tuple[int, set[str]]]:
    """For each command line: how many of our modules a process has loaded after it, and the heavy packages."""
    given = "".join(f"{line}\n" for line in LINES)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=given, capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    found = ((int(own), set(HEAVY) & set(packages)) for own, *packages in rows)
    return dict(zip(LINES, found, strict=True))


def test_the_version_loads_next_to_nothing(loaded) -> None:
    n_own, heavy = loaded["--version"]
    assert heavy == set()
    assert n_own <= 22


@pytest.mark.parametrize("line", LIGHT)
def test_help_and_mistakes_load_nothing_that_computes(loaded, line: str) -> None:
    n_own, heavy = loaded[line]
    assert heavy == set()
    assert n_own <= 50


@pytest.mark.parametrize("line", LOOKING)
def test_commands_that_search_nothing_load_no_search(loaded, line: str) -> None:
    assert loaded[line][1] <= set(CHEAP)
