"""Random bodies as random candidates, against the interpreter: branches, windows, scatters, while loops, reductions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.kernels.language.kernel import kernel, types
from kernelscape.kernels.language.record import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.choices import SCATTER
from kernelscape.testing.batches import Work, faults
from kernelscape.testing.checked_bodies import Drawn, candidates, drawn, machine
from kernelscape.testing.checking import source_of
from kernelscape.testing.random_bodies import body

N, BATCH = 200, 50
FLAGS = ("-w", "-fopenmp-simd", "-O0")  # of many optimisers the experiment asks
nd: Any = types.ndarray()


@pytest.fixture(scope="module")
def bodies() -> list[Drawn]:
    """Small bodies, each with one of its two sets of inputs, and candidates of them."""
    which = (slice(0, 1), slice(1, 2))
    numbers = range(N)
    found = [drawn(body(k, is_small=True), machine(k), 1, which[k % 2]) for k in numbers]
    return [d for (d,) in found if d.inputs]


@pytest.mark.compiler
def test_random_bodies_compute_what_the_interpreter_does(
    bodies: list[Drawn], tmp_path: Path
) -> None:
    assert len(bodies) > 0.95 * N
    for at in range(0, len(bodies), BATCH):
        here = bodies[at : at + BATCH]
        works = [Work(source_of(d.candidate), d.inputs) for d in here]
        for d, said in zip(here, faults(works, tmp_path / f"b{at}", FLAGS), strict=True):
            assert not said, f"{said}\n{d.body.text}"


def test_bodies_have_what_they_are_for(bodies: list[Drawn]) -> None:
    traits = set[str]().union(*(d.body.traits | d.traits for d in bodies))
    wanted = {"branch", "select", "while", "window", "triangle", "rows of data", "length of data"}
    wanted |= {"time loop", "reduction", "recurrence", "computed index", "min", "max"}
    wanted |= {f"scatter {x}" for x in ("add", "min", "max", "float32", "float64", "int64", "int8")}
    assert wanted <= traits
    shared = {name.removesuffix(" of threads") for name in traits if name.endswith(" of threads")}
    assert shared >= {"ATOMIC", "PRIVATE", "SORTED", "TILE"}
    odd = [
        d for d in bodies for x in d.inputs for a in x.arrays.values() if not np.isfinite(a).all()
    ]
    assert odd
    assert {len(a) for d in bodies for a in d.body.arrays.values()} >= {0, 1, 3, 7, 64}


def test_a_number_gives_one_body() -> None:
    assert body(7).text == body(7).text != body(8).text


@pytest.mark.compiler
def test_what_is_wrong_is_said_of_the_text_that_it_is_of(
    bodies: list[Drawn], tmp_path: Path
) -> None:
    works = [Work(source_of(d.candidate), d.inputs) for d in bodies[:4]]
    crash = "#include <math.h>\nvoid crash(void **args) { (void)args; __builtin_trap(); }\n"
    source = replace(works[1].source, text=crash, entry="crash", team="")
    works[1] = replace(works[1], source=source)
    (inputs,) = works[2].inputs
    other = {name: a + 1 for name, a in inputs.want.items()}
    works[2] = replace(works[2], inputs=(replace(inputs, want=other),))
    works[3] = replace(works[3], source=replace(works[3].source, text="#include <math.h>\nno C;"))
    said = faults(works, tmp_path / "planted", FLAGS)
    assert said[0] == ""
    assert said[1].startswith("crashed with signal")
    assert "should be" in said[2]
    assert said[3].startswith("not compiled")


@kernel
def with_and_without_a_window(key: nd, near: nd, far: nd):
    for i in range(key.shape[0]):
        near[key[i] + 1, 0] += 1.0
        far[key[i]] += 1.0
        far[7 - key[i]] += 1.0


def both(key: Any, near: Any, far: Any) -> None:
    with_and_without_a_window(key, near, far)


def test_what_has_a_window_and_what_has_none_are_updated_in_one_body() -> None:
    key = np.arange(5, dtype=np.int32)
    given = (key, np.zeros((8, 2), np.float32), np.zeros(8, np.float32))
    recording = record_sequence(both, given)
    (one,) = candidates(normalise(recording), machine(0), np.random.default_rng(1))
    ways = {a: SCATTER[one.value(var)] for (_, a), var in one.space.variables.scatter.items()}
    assert ways.keys() == {"near", "far"}
