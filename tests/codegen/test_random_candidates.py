"""Generated C against the interpreter: random candidates of random sequences."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernelscape.experiments import checking
from kernelscape.experiments.checking import Way
from kernelscape.kernels.normalise import normalise
from kernelscape.space.candidate import Candidate
from kernelscape.space.constraints import build_space
from strategies import TEMPLATES, Example, sequences
from templates import PRODUCT_TEMPLATES, any_sequence

CANDIDATES = 4  # of one sequence
pytestmark = [pytest.mark.compiler]

relaxed = settings(
    max_examples=55,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="candidates-"))
    yield made
    shutil.rmtree(made)


def wrong(example: Example, cores: int, vector_bytes: int, seed: int, folder: Path) -> list[str]:
    """What is wrong with some random candidates of a sequence, empty when nothing is."""
    problem = normalise(example.recording)
    inputs = checking.make_inputs(example.recording, problem, example.arrays, example.scalars)
    if not inputs:
        return []
    root = build_space(problem, checking.target(cores, vector_bytes)).root()
    assert isinstance(root, Candidate), root
    rng = np.random.default_rng(seed)
    drawn = [checking.random_candidate(root, rng) for _ in range(CANDIDATES)]
    candidates = [c for c in drawn if isinstance(c, Candidate)]
    found = []
    for built in checking.build_all([checking.source_of(c) for c in candidates], folder, "drawn"):
        if built.library is None or built.log:
            found.append(f"{built.log}\n{built.source.text}")
            continue
        for way in (Way(), Way(repeats=2, thread_limit=1)):
            said = checking.check(built, inputs, way)
            found += [f"{said}\n{built.source.text}"] if said else []
    return found


@pytest.mark.slow
@relaxed
@given(
    any_sequence(),
    st.sampled_from([1, 2, 2, 3, 4]),
    st.sampled_from([16, 32, 64]),
    st.integers(0, 2**20),
)
def test_generated_code_does_what_the_interpreter_does(folder, example, cores, vector_bytes, seed):
    found = wrong(example, cores, vector_bytes, seed, folder)
    assert not found, found[0]


POINTWISE = tuple(t for t in TEMPLATES if set(t[1]) <= {"n", "n!"})
SETTINGS = (st.sampled_from([1, 2, 3]), st.sampled_from([16, 32, 64]), st.integers(0, 2**20))


@settings(relaxed, max_examples=20)
@given(sequences(6, POINTWISE, extents=(16, 33, 64), dtypes=("float32",)), *SETTINGS)
def test_chains_in_place(folder, example, cores, vector_bytes, seed):
    """Few arrays, read and overwritten again and again: what a scope knows of them must not be stale."""
    found = wrong(example, cores, vector_bytes, seed, folder)
    assert not found, found[0]


@settings(relaxed, max_examples=15)
@given(sequences(3, PRODUCT_TEMPLATES, extents=(3, 16, 33)), *SETTINGS)
def test_products(folder, example, cores, vector_bytes, seed):
    """Three loops, operands with reuse: packed copies, register tiles of two loops, blocks."""
    found = wrong(example, cores, vector_bytes, seed, folder)
    assert not found, found[0]
