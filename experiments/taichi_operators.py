"""Taichi's values of every operation on every pair of types, at the edges of these: kept, for ours to be compared with.

    python -m kernelscape.experiments.taichi_operators --taichi PYTHON [--only OP ...]

PYTHON is the interpreter of an environment with taichi 1.7.4. Writes experiments/results/raw/taichi_operators.xz: a row a cell
that Taichi computes; takes some minutes. An operation that ends Taichi's process has no row.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from ..testing.operator_programs import language_cells, name_of
from ..testing.taichi_values import PLACE, Found, kept
from .turns import this_package

LIMIT_S = 300.0


def asked(python: str, names: Sequence[str], scratch: Path) -> Found:
    """The results of these cells; where they end the process, those of each half of them."""
    file = scratch / "found.npz"
    file.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": str(scratch), "TI_LOG_LEVEL": "error"}
    command = [python, "-m", "kernelscape.testing.operator_programs", str(file), *names]
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, timeout=LIMIT_S, check=False
        )
    if file.exists():
        with np.load(file) as found:
            return dict(zip(map(str, found["names"]), found["values"], strict=True))
    if len(names) == 1:
        print(f"{names[0]}: none", flush=True)
        return {}
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    return {name: x for half in halves for name, x in asked(python, half, scratch).items()}


def keep(found: Found, place: Path) -> None:
    """Bytes of one significance lie together, which compresses best."""
    values = np.stack(list(found.values())).astype("<i8")
    shuffled = np.moveaxis(values.view(np.uint8).reshape(*values.shape, 8), -1, 0)
    head = json.dumps({"cells": list(found), "shape": values.shape}).encode()
    place.write_bytes(lzma.compress(head + b"\n" + shuffled.tobytes()))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--taichi", metavar="PYTHON", required=True)
    parser.add_argument("--to", type=Path, default=PLACE)
    parser.add_argument("--only", nargs="*", metavar="OP", help="these, beside what is kept")
    given = parser.parse_args(arguments)
    found: Found = kept(given.to) if given.only and given.to.exists() else {}
    with this_package() as (scratch, _):
        every = language_cells()
        for op in given.only or dict.fromkeys(c.op for c in every):
            found |= asked(given.taichi, [name_of(c) for c in every if c.op == op], scratch)
            keep(found, given.to)
            print(op, len(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
