"""Candidates of a GPU, which are drawn once."""

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.library import names
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.violations import violations

from .gpu_target import GPU, N_LIBRARY, problem_of


@pytest.fixture(scope="session")
def plans():
    """Random candidates of every library sequence on a GPU, with their plans."""
    found = []
    rng = np.random.default_rng(3)
    for name in names():
        space = build_space(problem_of(name), GPU)
        root = space.root()
        assert isinstance(root, Candidate), root
        for _ in range(18):
            made = random_candidate(root, rng)
            if isinstance(made, Candidate):
                assert not violations(space.model, made.assignment())
                found.append((made, plan_of(made)))
    assert len(found) > 16 * N_LIBRARY
    return found
