"""`explore run --build-only`: what compiled kernels take of a GPU that is not there."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from kernelscape.cli.commands import explore

pytest.importorskip("kernelscape.runtime.cuda")
from kernelscape.runtime.device import requirements

nvrtc = pytest.mark.skipif(
    not any(r.what == "nvrtc" and r.found for r in requirements("cuda")), reason="no NVRTC"
)


def run(*arguments, n=64):
    given = ["run", "bicgk", "--size", f"n={n}", "--build-only", *arguments]
    return CliRunner().invoke(explore, given)


@nvrtc
def test_rows_and_objects_say_the_same():
    text = run("--target", "cuda", "--max-evals", "1")
    assert text.exit_code == 0, text.output
    assert "occupancy" in text.output.splitlines()[0]
    objects = [
        json.loads(line)
        for line in run("--target", "cuda", "--max-evals", "1", "--json").output.splitlines()
    ]
    assert [o["status"] for o in objects] == ["ok"]
    assert objects[0]["tag"] == "default"
    launches = [x for o in objects for x in o["launches"]]
    assert len(launches) == len(text.output.splitlines()) - 1
    assert all(x["registers"] > 0 for x in launches)
    assert {"counted", "expected", "registers"} <= set(text.output.splitlines()[0].split())


@nvrtc
def test_what_is_expected_follows_the_reports():
    """Without a GPU as well: the first count is taken at its word, and later ones are corrected."""
    given = ["run", "matmul", "--size", "n=512", "--build-only", "--target", "cuda"]
    ended = CliRunner().invoke(explore, [*given, "--max-evals", "12", "--json"])
    built = [json.loads(line) for line in ended.output.splitlines()]
    summed = [x for o in built for x in o["launches"] if x["registers_counted"]]
    assert len(summed) >= 10
    assert summed[0]["registers_expected"] == summed[0]["registers_counted"]
    later = summed[4:]
    as_counted = sum(abs(x["registers"] - x["registers_counted"]) for x in later)
    as_expected = sum(abs(x["registers"] - x["registers_expected"]) for x in later)
    assert as_expected < 0.8 * as_counted
    idle = [x for o in built for x in o["launches"] if not x["registers_counted"]]
    assert all(x["registers_expected"] is None for x in idle)


@nvrtc
def test_the_sheet_decides_what_is_compiled_for():
    given = ("--target", "cuda", "--max-evals", "1", "--json")
    bounds = {
        json.loads(run(*given, "--profile", profile, n=8192).output)["bound_ns"]
        for profile in ("h200", "rtx4090")
    }
    assert len(bounds) == 2


def test_the_sheet_decides_what_is_shown():
    given = ["show", "matmul", "--size", "n=512", "--target", "cuda", "--descents", "0"]
    bounds = set()
    for profile in ("h200", "rtx4090"):
        shown = CliRunner().invoke(explore, [*given, "--profile", profile, "--json"])
        bounds.add(json.loads(shown.output)["bound_ns"])
    assert len(bounds) == 2
    ended = CliRunner().invoke(explore, ["show", "axpydot", "--profile", "h200"])
    assert "the target cpu is none" in f"{ended.exception} {ended.output}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--target", "cpu"), "does not report"),
        (("--target", "cuda", "--profile", "b52"), "no data sheet 'b52'"),
        (("--target", "cuda", "-o", "nowhere"), "nothing is saved"),
    ],
)
def test_what_cannot_be_reported_gets_a_sentence(arguments, sentence):
    ended = run(*arguments, "--max-evals", "1")
    assert sentence in f"{ended.exception} {ended.output}"


DIVISIONS = """
import numpy as np
import kernelscape as ks

@ks.kernel
def divide(a: ks.types.ndarray(), b: ks.types.ndarray(), c: ks.types.ndarray()):
    for i in range(a.shape[0]):
        c[i] = a[i] // b[i] + a[i] % b[i]

def make_arguments(sizes, dtype, rng):
    return tuple(np.ones(64, INTEGER) for _ in range(3))
"""


@nvrtc
@pytest.mark.parametrize("integer", ["np.int32", "np.int64"])
def test_divisions_of_integers_are_taken(integer, tmp_path):
    file = tmp_path / "divisions.py"
    file.write_text(DIVISIONS.replace("INTEGER", integer))
    given = ["run", f"{file}:divide", "--build-only", "--target", "cuda", "--max-evals", "2"]
    ended = CliRunner().invoke(explore, [*given, "--json"])
    assert [json.loads(line)["status"] for line in ended.output.splitlines()] == ["ok", "ok"]
