"""Shared by the tests of the command: a small run, a user's file, and the records that a run leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from kernelscape.cli import commands as cli
from kernelscape.cli.schema import events
from kernelscape.runtime.records.journal import read_journal
from kernelscape.runtime.records.record import EvaluationRecord

SMALL = ("axpydot", "--size", "n=1000")
USER_FILE = """
import numpy as np
import kernelscape as ks

@ks.kernel
def scale(x: ks.types.ndarray(), y: ks.types.ndarray(), f: float):
    for i in range(x.shape[0]):
        y[i] = f * x[i]

def both(x, y, z, f):
    scale(x, y, f)
    scale(y, z, f)

def make_arguments(sizes, dtype, rng):
    n = sizes["n"]
    return rng.random(n).astype(dtype), np.zeros(n, dtype), np.zeros(n, dtype), 0.5

def reference(x, y, z, f):
    y[:] = f * x
    z[:] = f * y
"""


def objects(text: str) -> list[dict]:
    """The lines of a command, each as its class says that it is: no field is missing, and none is unknown."""
    found = [json.loads(line) for line in text.splitlines()]
    for line in found:
        msgspec.convert(line, events()[line["event"]])
    return found


def made(folder: Path, *arguments: object) -> Path:
    """The folder of a run that the command makes, with its store and its settings beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        with pytest.raises(SystemExit) as ended:
            cli.main(["run", *map(str, arguments), "-q", "-o", str(folder / "run")])
    assert not ended.value.code
    return folder / "run"


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernelscape.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def evaluations(folder: Path) -> list[EvaluationRecord]:
    records = read_journal(folder / "journal.jsonl")
    return [r for r in records if isinstance(r, EvaluationRecord)]
