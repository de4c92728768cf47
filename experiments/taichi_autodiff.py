"""Taichi's own tests of derivatives that pass here, and programs of DiffTaichi that run.

    python -m kernelscape.experiments.taichi_autodiff [--tests FOLDER] [--programs FOLDER] [--taichi PYTHON] [--beside FOLDER]

FOLDER of `--tests`: tests/python of Taichi's repository. Its files test_ad_*.py are copied and run by pytest, here and with the
Python of Taichi; the helpers that they import are in tests/experiments/taichi_harness.py. FOLDER of `--programs`: the examples of
DiffTaichi's repository. Each runs by itself until ten frames were shown, to its end, or until `--limit` seconds are over.
`--beside`: a folder of packages that programs import (opencv, imageio). Nothing is timed. Rows of programs that are there are
kept; `--again` forgets them. Writes experiments/results/taichi_autodiff.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .conditions import stamp, stamp_text, versions_in
from .taichi_programs import Asked, make_row, runs, verdict
from .turns import this_package, without_scratch
from .writing import parser_of, read_results, table, write_results

FILE = "taichi_autodiff"
TESTS = "test_ad_*.py"
LIMIT_S = 100.0  # of one program with one of the two
TESTS_LIMIT_S = 900.0
# Why a test can pass with Taichi alone, where that was looked into.
REASONS = {
    "test_ad_rand": "wants random numbers to be refused; here a gradient has the number that its function drew",
    "test_adjoint_checkbit_lazy_grad": "asks the C++ object of a field for its check bits",
    "test_adjoint_checkbit_place_grad": "asks the C++ object of a field for its check bits",
    "test_stack": "calls a test inside of Taichi's C++ runtime",
    "test_grad_tensor_in_kernel": "wants Taichi's wording; it is refused with a sentence",
    "test_ad_sum_vector": "asserts that 2 a equals the pair (2 a, 3 a), which any vector of Taichi's does",
    "test_snode_grad_type": "asks the C++ object of a field for its kind",
    "test_snode_grad_type_lazy": "asks the C++ object of a field for its kind",
}


def run_tests(folder: Path, python: str, harness: str) -> dict[str, dict[str, str]]:
    """The outcome of each test function and what it said: "passed" where all of its variants did."""
    with this_package() as (place, environment):
        files = [str(shutil.copy(file, place)) for file in sorted(folder.glob(TESTS))]
        outcomes = place / "outcomes.jsonl"
        command = [python, "-m", "pytest", "-q", "--assert=plain", "--noconftest"]
        command += ["-p", "kernelscape.tests.experiments.taichi_harness", "-p", "no:cacheprovider"]
        command += [f"--rootdir={place}", f"--outcomes={outcomes}", *files]
        environment |= {"KERNELSCAPE_HARNESS": harness, "PYTEST_ADDOPTS": ""}
        done = subprocess.run(
            command,
            cwd=place,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=TESTS_LIMIT_S,
        )
        if not outcomes.exists():
            last = ["no word", *(done.stderr or done.stdout).strip().splitlines()][-1]
            raise RuntimeError(f"no test ran with {python}: {last}")
        lines = outcomes.read_text().splitlines()
    found: dict[str, dict[str, str]] = {}
    worst = ("failed", "passed", "skipped")  # a function of which some variants are skipped was run
    for row in map(json.loads, lines):
        name, said = row["test"].split("[")[0], without_scratch(" ".join(row["said"]))
        new = {"outcome": row["outcome"], "said": said}
        before = found.get(name, new)
        found[name] = min(before, new, key=lambda x: worst.index(x["outcome"]))
    return found


def _tests_text(tests: Mapping[str, Any]) -> list[str]:
    ours, theirs = tests["ours"], tests.get("taichi", {})
    counts = Counter(x["outcome"] for x in ours.values())
    n = counts["passed"] + counts["failed"]
    failed = [name for name, x in ours.items() if x["outcome"] == "failed"]
    private = [name for name in failed if name.split("::")[-1] in REASONS]
    blocks = [
        "## Taichi's tests",
        f"{counts['passed']} of {n} functions pass ({counts['passed'] / max(1, n):.1%});"
        f" {counts['skipped']} more are skipped (they need PyTorch, or another backend)."
        f" Of the {len(failed)} that fail {len(private)} ask for what is Taichi's own, as the table says.",
    ]
    if theirs:
        other = Counter(x["outcome"] for x in theirs.values())
        blocks.append(
            f"Taichi {tests['version']} itself: {other['passed']} pass, {other['failed']} fail."
        )
    body = [
        [
            name,
            theirs.get(name, {}).get("outcome", "–"),
            REASONS.get(name.split("::")[-1], ours[name]["said"]).replace("|", "/"),
        ]
        for name in failed
    ]
    if body:
        blocks.append(table(["test", "Taichi", "why it fails here"], body))
    return blocks


def _ended(row: Mapping[str, Any], who: str) -> str:
    found = row[who]
    if runs(row, who):
        return f"{found['frames']} frames" if found["is_cut"] else "to its end"
    return str(found["why"]).replace("|", "/")


def _programs_text(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    good = [r for r in rows if runs(r)]
    n_both = sum(runs(r, "taichi") for r in good)
    n_long = sum("no end within" in r["ours"].get("why", "") for r in rows)
    return [
        "## DiffTaichi's programs",
        f"{len(good)} of {len(rows)} run to ten frames or to their end, {n_long} more had no error when their time was over;"
        f" with Taichi {sum(runs(r, 'taichi') for r in rows)} run, {n_both} with both. Programs run as they are.",
        table(
            ["program", "here", "Taichi", "equal"],
            [[r["name"], _ended(r, "ours"), _ended(r, "taichi"), verdict(r)] for r in rows],
        ),
    ]


def report(values: dict[str, Any]) -> str:
    """The results as Markdown."""
    blocks = ["# Taichi's tests of derivatives, and DiffTaichi", stamp_text(values["stamp"])]
    if values.get("tests"):
        blocks += _tests_text(values["tests"])
    if values.get("programs"):
        blocks += _programs_text(values["programs"])
    return "\n\n".join(blocks) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--tests", type=Path, metavar="FOLDER")
    parser.add_argument("--programs", type=Path, metavar="FOLDER")
    parser.add_argument("--taichi", metavar="PYTHON", help="with taichi and pytest")
    parser.add_argument("--beside", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds a program may take")
    parser.add_argument("--seconds", type=float, default=280, help="begin no program after so many")
    parser.add_argument("--again", action="store_true", help="forget rows that are there")
    given = parser.parse_args(arguments)
    if given.tests is None and given.programs is None:
        parser.error("give --tests FOLDER, --programs FOLDER, or both")
    for folder, pattern in ((given.tests, TESTS), (given.programs, "*.py")):
        if folder is not None and not any(folder.glob(pattern)):
            parser.error(f"{folder} has no {pattern}")
    version = versions_in({"taichi": given.taichi})["taichi"] if given.taichi else ""
    values: dict[str, Any] = read_results(FILE, given.results) | {"stamp": stamp()}
    if given.tests is not None:
        found: dict[str, Any] = {
            "ours": run_tests(given.tests, sys.executable, ""),
            "version": version,
        }
        if given.taichi:
            found["taichi"] = run_tests(given.tests, given.taichi, "taichi")
        values["tests"] = found
        write_results(FILE, report, values, given.results)
    if given.programs is not None:
        _run_programs(values, given, version)
    return 0


def _run_programs(values: dict[str, Any], given: Any, version: str) -> None:
    """Makes rows of programs for so many seconds."""
    folder = given.programs.resolve()
    beside = "" if given.beside is None else str(given.beside.resolve())
    asked = Asked(
        folder,
        given.taichi,
        limit_s=given.limit,
        version=version,
        beside=beside,
        finds_files=True,
    )
    named = (p for p in sorted(folder.rglob("*.py")) if "import taichi" in p.read_text())
    names = [p.relative_to(folder).with_suffix("").as_posix() for p in named]
    chosen = [x for x in names if not given.only or x in given.only]
    rows = {
        r["name"]: r
        for r in values.get("programs", ())
        if not (given.again and r["name"] in chosen)
    }
    left = [x for x in chosen if x not in rows]
    started_s = time.monotonic()
    while left and time.monotonic() - started_s < given.seconds:
        name = left.pop(0)
        rows[name] = row = make_row(asked, name)
        print(f"{name}: {_ended(row, 'ours')} | {_ended(row, 'taichi')}", flush=True)
        values["programs"] = [rows[key] for key in sorted(rows)]
        write_results(FILE, report, values, given.results)
    print(f"{len(left)} left")


if __name__ == "__main__":
    sys.exit(main())
