"""Random trees and programs against sets and dictionaries of Python."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernelscape.testing.sparse_trees import WORDS, Shape, at_once, check, plainly, programs, shapes

_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@settings(max_examples=12, **_SETTINGS)
@given(shapes(), st.lists(programs, min_size=3, max_size=3))
def test_lowered_kernels_leave_what_the_model_has(shape: Shape, steps) -> None:
    check(shape, steps, plainly)


@settings(max_examples=20, **_SETTINGS)
@given(shapes(), st.lists(programs, min_size=3, max_size=3))
def test_interpreted_kernels_leave_what_the_model_has(shape: Shape, steps) -> None:
    with ks.interpret():
        check(shape, steps, at_once)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(
            (("pointer", (2, 3)), ("bitmasked", (3, 2)), ("pointer", (2, 2)), ("dense", (2, 2))),
            1,
            2,
        ),
        Shape((("bitmasked", (2, 2)), ("hash", (3, 1)), ("bitmasked", (2, 3))), 1, 3),
    ],
)
def test_compiled_kernels_leave_what_the_model_has(shape: Shape) -> None:
    generator = np.random.default_rng(3)
    steps = [
        [
            (
                WORDS[generator.integers(len(WORDS))],
                int(generator.integers(4)),
                generator.integers(0, 80, (4, 2)).tolist(),
            )
            for _ in range(12)
        ]
        for _ in range(3)
    ]
    check(shape, steps, at_once)
