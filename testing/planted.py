"""Planted faults: changes that make the product wrong, and the tests that must see it.

    python -m kernelscape.testing.planted [--only TEXT ...] [--tests PATH ...] [--list]

Each fault is planted in a copy of the checkout, by itself, and its tests are run until one fails. They must be green without it.
A test that is merged with another, or left out, is no loss where the same faults are caught. Takes minutes, and is no test itself.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from .planted_faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[1]
_VERDICTS = {0: "MISSED", 1: "caught"}  # by the exit status of pytest


class PlantedError(Exception):
    """A fault that cannot be planted, or tests that fail without one."""


def place_of(fault: Fault, root: Path = ROOT) -> Path:
    """The one file of the room that has the text. Raises PlantedError where there is none, or where it stands twice."""
    found = [p for p in sorted((root / fault.room).rglob("*.py")) if fault.old in p.read_text()]
    n = sum(p.read_text().count(fault.old) for p in found)
    if n != 1:
        raise PlantedError(
            f"{n} places in {fault.room} have the text `{fault.old}`: it must be one"
        )
    return found[0]


@final
@dataclass(frozen=True)
class Copy:
    """A copy of what git tracks, in which tests can be run."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Copy:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        (folder / ".types").mkdir()
        (folder / ".types/kernelscape").symlink_to("..")
        return cls(folder)

    def run(self, tests: Sequence[str]) -> int:
        """The exit status of pytest, which ends with the first test that fails."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = os.environ | {"PYTHONPATH": str(self.folder / ".types")}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True)
        return done.returncode

    def verdict(self, fault: Fault) -> str:
        """`caught`, `MISSED`, or that the tests could not be run."""
        place = place_of(fault, self.folder)
        right = place.read_text()
        place.write_text(right.replace(fault.old, fault.new))
        try:
            status = self.run(fault.tests)
        finally:
            place.write_text(right)
        return _VERDICTS.get(status, f"NOT RUN (exit status {status})")


def judge(faults: Sequence[Fault], copy: Copy) -> bool:
    """Prints a line a fault; True if all are caught. Raises PlantedError where tests fail without a fault."""
    tests = sorted({t for f in faults for t in f.tests})
    status = copy.run(tests)
    if status:
        raise PlantedError(f"without any fault pytest ends with {status}: {' '.join(tests)}")
    verdicts = []
    for fault in faults:
        begin = time.monotonic()
        verdicts.append(copy.verdict(fault))
        place = place_of(fault, ROOT).relative_to(ROOT)
        seconds = time.monotonic() - begin
        print(f"{verdicts[-1]:7} {seconds:5.1f} s  {place}: {fault.kind}", flush=True)
    n_caught = verdicts.count("caught")
    print(f"{n_caught} of {len(faults)} are caught")
    return n_caught == len(faults)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 1 where a fault is missed, 2 where none could be judged."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", metavar="TEXT", help="of a kind, a room or an old text"
    )
    parser.add_argument("--tests", nargs="*", metavar="PATH", help="instead of those of the faults")
    parser.add_argument("--list", action="store_true", help="show the faults and run nothing")
    given = parser.parse_args(arguments)
    chosen = [
        f
        for f in FAULTS
        if not given.only or any(x in f"{f.kind} {f.room} {f.old}" for x in given.only)
    ]
    if given.tests:
        chosen = [replace(f, tests=tuple(given.tests)) for f in chosen]
    try:
        if given.list:
            for f in chosen:
                print(f"{place_of(f).relative_to(ROOT)}: {f.kind}: {f.old} -> {f.new}")
            return 0
        with tempfile.TemporaryDirectory(prefix="kernelscape-planted-") as scratch:
            return 0 if judge(chosen, Copy.made(Path(scratch) / "copy")) else 1
    except PlantedError as e:
        print(e, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
