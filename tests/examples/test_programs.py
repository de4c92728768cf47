"""The programs of examples/ compute what they say, in small; the same again, for random numbers are counted."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest

pytestmark = pytest.mark.compiler
EXAMPLES = Path(ks.__file__).parent / "examples"
PICTURES = EXAMPLES.parent / "docs"


def program(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    ks.reset()


def test_each_program_has_its_picture() -> None:
    names = {p.stem for p in EXAMPLES.glob("*.py")}
    assert names == {"automaton", "fluid", "particles", "renderer"}
    told = (PICTURES / "kernel.md").read_text()
    for name in names:
        assert (PICTURES / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert f"({name}.png)" in told


def test_the_forest_burns_and_grows() -> None:
    forest = program("automaton")["forest"]
    first, later = forest(48, 0), forest(48, 60)
    assert first.dtype == np.int32 and set(np.unique(first)) == {0, 1}
    assert 0.35 < (first == 1).mean() < 0.45  # as it was planted
    assert (later == 1).mean() > 0.6  # what is free grows again, at 1 % a step
    assert np.array_equal(later, forest(48, 60))
    assert not np.array_equal(later, forest(48, 60, seed=2))


def test_smoke_rises() -> None:
    smoke = program("fluid")["smoke"]
    few, many = smoke(32, 4), smoke(32, 40)
    assert np.isfinite(many).all() and many.min() >= 0
    height = np.arange(32)
    assert (many @ height).sum() / many.sum() > (few @ height).sum() / few.sum() + 1
    assert many.sum() > few.sum()


def test_particles_fall_and_stay_inside() -> None:
    simulate = program("particles")["simulate"]
    before, kinds = simulate(cells=32, count=900, time=0.0)
    after, same = simulate(cells=32, count=900, time=0.05)
    assert before.shape == (900, 2) and set(np.unique(kinds)) == {0, 1, 2}
    assert np.array_equal(kinds, same)
    assert (after > 0).all() and (after < 1).all()
    fallen = (before - after)[:, 1].mean()
    assert 0 < fallen < 1  # downwards


def test_light_is_finite_and_the_sky_has_no_noise() -> None:
    render = program("renderer")["render"]
    light = render(24, 16, samples=4)
    assert light.shape == (16, 24, 3)
    assert np.isfinite(light).all() and light.min() >= 0
    assert np.ptp(light[0], axis=0).max() < np.ptp(light[8:].reshape(-1, 3), axis=0).max()
    assert np.array_equal(light, render(24, 16, samples=4))
