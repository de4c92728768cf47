"""Tests that were written for Taichi run here by their own helpers: what passes, fails and is for other backends."""

from __future__ import annotations

import sys

from kernelscape.experiments.taichi_autodiff import run_tests

TESTS = """
import pytest
import taichi as ti
from tests import test_utils


@pytest.mark.parametrize("n", [1, 3])
@test_utils.test()
def test_square(n):
    x = ti.field(ti.f32, shape=(), needs_grad=True)
    y = ti.field(ti.f32, shape=(), needs_grad=True)

    @ti.kernel
    def square():
        y[None] = x[None] * x[None]

    x[None] = n
    with ti.ad.Tape(y):
        square()
    assert x.grad[None] == test_utils.approx(2 * n)


@test_utils.test(default_fp=ti.f64)
def test_wrong():
    assert test_utils.allclose(1.0, 1.1), "one is not eleven tenths"


@test_utils.test(arch=[ti.cuda])
def test_elsewhere():
    raise AssertionError
"""


def test_outcomes_of_tests_of_another_library(tmp_path):
    (tmp_path / "test_ad_mine.py").write_text(TESTS)
    found = run_tests(tmp_path, sys.executable, "")
    outcomes = {name.split("::")[1]: x["outcome"] for name, x in found.items()}
    wanted = {"test_square": "passed", "test_wrong": "failed", "test_elsewhere": "skipped"}
    assert outcomes == wanted
    (wrong,) = (x["said"] for name, x in found.items() if name.endswith("test_wrong"))
    assert "one is not eleven tenths" in wrong
