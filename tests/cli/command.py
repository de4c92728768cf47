"""What the tests of the command share: a small run, a user's file, and what a run leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
    return [json.loads(line) for line in text.splitlines()]


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kernelscape.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def evaluations(folder: Path) -> list[EvaluationRecord]:
    records = read_journal(folder / "journal.jsonl")
    return [r for r in records if isinstance(r, EvaluationRecord)]
