"""Programs that libraries run by turns, each in a process of its own: the arguments of a comparison, and what a process says."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .conditions import versions_in
from .fresh_caches import fresh_caches
from .writing import parser_of


def last_said(
    command: Sequence[str],
    limit_s: float,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> dict[str, Any]:
    """What a command says in its last line. Raises RuntimeError with the last word where it fails or takes longer."""
    quiet = {"TI_LOG_LEVEL": "error", "QD_LOG_LEVEL": "error"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **quiet, **environment},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no end within {limit_s:.0f} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no word"])[-1])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def run_text(
    python: str, text: str, folder: Path, limit_s: float, *given: str, **environment: str
) -> dict[str, Any]:
    """What a program says in its last line, run in a folder. Raises RuntimeError."""
    place = folder / "program.py"
    place.write_text(text)
    return last_said([python, str(place), *given], limit_s, environment, folder)


def turns_parser(
    doc: str | None,
    rounds: int,
    programs: Sequence[str] = (),
    libraries: Sequence[str] = ("taichi",),
) -> argparse.ArgumentParser:
    """The arguments of every comparison: `--LIBRARY PYTHON` of each, the `programs` that are chosen, how many rounds."""
    parser = parser_of(doc)
    for library in libraries:
        parser.add_argument(f"--{library}", metavar="PYTHON")
    if programs:
        parser.add_argument("--only", nargs="*", action="extend", default=[], choices=programs)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser


def pythons_of(
    parser: argparse.ArgumentParser, asked: Mapping[str, str | None], *ours: str
) -> tuple[dict[str, str], dict[str, str]]:
    """The interpreter of each way, of `ours` and of the libraries that were given, and the versions of these; a mistake ends the
    program.
    """
    others = {name: python for name, python in asked.items() if python}
    try:
        return {**dict.fromkeys(ours, sys.executable), **others}, versions_in(others)
    except (OSError, ValueError) as e:
        parser.error(str(e))


_SCRATCH = "kernelscape-turns-"


def without_scratch(text: str) -> str:
    """A text without the path of the folder of `this_package`, which is another one in each run."""
    return re.sub(rf"[^\s'\"]*/{_SCRATCH}[^/]*/", "", text)


@contextmanager
def this_package() -> Iterator[tuple[Path, dict[str, str]]]:
    """An empty folder, and an environment in which another Python finds this package there, with no program compiled before."""
    with tempfile.TemporaryDirectory(prefix=_SCRATCH) as scratch:
        place = Path(scratch)
        (place / "kernelscape").symlink_to(Path(__file__).resolve().parents[1])
        yield (
            place,
            {
                "PYTHONPATH": scratch,
                **fresh_caches(place / "cache"),
                "TI_OFFLINE_CACHE_FILE_PATH": str(place / "taichi"),
                "QD_OFFLINE_CACHE_FILE_PATH": str(place / "quadrants"),
                "QD_ARCH": "x64",
                "TI_LOG_LEVEL": "error",
                "TI_ARCH": "x64",  # without a GPU, `ti.init(arch=ti.gpu)` may kill the process
            },
        )


Found = dict[str, dict[str, list[Any]]]
"""What processes said, by program and way: one a round."""


def by_turns(
    pythons: Mapping[str, str],
    names: Sequence[str],
    rounds: int,
    once: Callable[[str, str, str], dict[str, Any]],
) -> Found:
    """What `once` says of a way, its interpreter and a program; in each round every way has its turn with every program."""
    found: Found = {name: {way: [] for way in pythons} for name in names}
    for _ in range(rounds):
        for name in names:
            for way, python in pythons.items():
                found[name][way].append(once(way, python, name))
    return found
