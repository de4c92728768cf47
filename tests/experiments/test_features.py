"""Features that correctness is counted by: each is named where a candidate has it, and nowhere else."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from kernelscape.experiments.features import FEATURES, GPU_FEATURES, features, gpu_features
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.cases import library_cases

from ..codegen.gpu_cases import MATMUL, N_LIBRARY, case_of, decided, gpu


@pytest.mark.parametrize(
    ("layout", "feature"),
    [
        ("PADDED", "PADDED"),
        ("SWIZZLED", "SWIZZLED"),
        ("TRANSPOSED_PADDED", "transposed copies"),
        ("TRANSPOSED_SWIZZLED", "transposed copies"),
    ],
)
def test_layouts_of_copies_are_named(layout, feature):
    found = {}
    for chosen in (layout, "PLAIN"):
        decisions = {**MATMUL, "layout(multiply0.a)": chosen, "layout(multiply0.b)": "PLAIN"}
        candidate = decided(case_of("matmul").problem, decisions)
        found[chosen] = gpu_features(candidate, gpu.source_of(candidate))
    assert feature in found[layout]
    assert feature not in found["PLAIN"]


@pytest.mark.parametrize("known", [FEATURES, GPU_FEATURES], ids=["cpu", "gpu"])
def test_random_candidates_have_known_features_alone(known):
    """Every library sequence: what a plan leaves out is no feature, and no error."""
    rng, used = np.random.default_rng(0), set()
    for case in islice(library_cases(), 4 * N_LIBRARY, 5 * N_LIBRARY):
        target = gpu.target() if known is GPU_FEATURES else checking.target(2, 64)
        root = build_space(case.problem, target).root()
        for _ in range(6):
            made = checking.random_candidate(root, rng)
            if isinstance(made, Candidate) and known is GPU_FEATURES:
                used |= gpu_features(made, gpu.source_of(made))
            elif isinstance(made, Candidate):
                used |= features(made)
    assert used <= set(known)
    assert len(used) > len(known) / 2
