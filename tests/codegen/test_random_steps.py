"""Random sequences with loops of time as random candidates: as Python itself runs their text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernelscape.testing.batches import Work, faults
from kernelscape.testing.checked_bodies import Drawn, drawn, machine
from kernelscape.testing.checking import source_of
from kernelscape.testing.interpreted import run_reference
from kernelscape.testing.random_steps import body, in_python

N, BATCH = 40, 40
FLAGS = ("-w", "-fopenmp-simd", "-O0")


@pytest.fixture(scope="module")
def sequences() -> list[Drawn]:
    """Small ones, each with one of its two sets of inputs."""
    which = (slice(0, 1), slice(1, 2))
    found = [
        d for k in range(N) for d in drawn(body(k, is_small=True), machine(k), 1, which[k % 2])
    ]
    return [d for d in found if d.inputs]


@pytest.mark.compiler
def test_random_sequences_compute_what_python_does(sequences: list[Drawn], tmp_path: Path) -> None:
    assert len(sequences) > 0.9 * N
    for at in range(0, len(sequences), BATCH):
        here = sequences[at : at + BATCH]
        works = [Work(source_of(d.candidate), d.inputs) for d in here]
        for d, said in zip(here, faults(works, tmp_path / f"s{at}", FLAGS), strict=True):
            assert not said, f"{d.body.number}: {said}\n{d.body.text}"


def test_sequences_have_what_they_are_for(sequences: list[Drawn]) -> None:
    traits = set[str]().union(*(d.body.traits | d.traits for d in sequences))
    wanted = {"range of a step", "index of a step", "triangle", "empty range", "range backwards"}
    wanted |= {"guard", "guard of data", "rows of data", "while", "in order", "time loop inside"}
    wanted |= {"sum inside", "shared sum", "steps few", "steps many", "sequence swapped"}
    wanted |= {"schedule CYCLIC", "dim_kind PARALLEL", "dim_kind VECTOR", "dim_kind UNROLL"}
    assert wanted <= traits, wanted - traits


def test_python_and_the_interpreter_agree() -> None:
    for number in (1, 6):
        one = body(number, is_small=True)
        want = in_python(one.text, one.arrays)
        found = run_reference(one.recording, one.arrays, {}, dtype=np.float64)
        for name, a in want.items():
            np.testing.assert_array_equal(found[name], a)


def test_a_number_gives_one_sequence() -> None:
    assert body(7).text == body(7).text != body(8).text
