"""Decisions that versions wrote in which the kinds `prefetch`, `cache` and `staged` named two choices each."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.records.record import EvaluationRecord
from kernelscape.runtime.records.replay import restore_complete, restore_older
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import fix, to_names
from kernelscape.space.renamed import renamed
from kernelscape.testing import checking
from kernelscape.tests.codegen.packed_cases import decided, recorded
from kernelscape.tests.codegen.test_ahead import SUMS_AHEAD
from kernelscape.tests.codegen.test_team_copy import PRODUCT

from .gpu_target import GPU, LARGE, problem_of

STORED = json.loads(
    (Path(__file__).parents[1] / "golden/decisions_before_renaming.json").read_text()
)


def read(decisions):
    """The decisions of a journal's line of then, as they are read."""
    line = {
        "event": "evaluation",
        "at_s": 1.0,
        "decisions": decisions,
        "source_key": "k",
        "status": "ok",
        "time_ns": 1.0,
    }
    return msgspec.convert(line, EvaluationRecord).decisions


def test_a_product_on_a_cpu_is_the_one_that_it_was():
    recording, _ = recorded("matmul", np.float32, m=288, n=1024, k=96)
    made = decided(recording, SUMS_AHEAD, 2)
    assert ["prefetch(multiply0.c)", "AHEAD"] in STORED["sums"]
    again = restore_complete(made.space, read(STORED["sums"]))
    assert again.key == made.key
    assert checking.source_of(again).key == checking.source_of(made).key


@pytest.mark.parametrize(("staged", "by"), [("TEAM_COPY", "TEAM"), ("COPY", "THREAD")])
def test_a_copy_is_packed_by_whom_it_was(staged, by):
    """Who packs was a value of `staged`, and a copy without one was of each thread."""
    recording, _ = recorded("matmul", np.float32, m=64, n=64, k=48)
    made = decided(recording, PRODUCT | {"packed_by(multiply0.b)": by}, 2)
    assert ["staged(multiply0.b)", "TEAM_COPY"] in STORED["team"]
    stored = [[x, staged if value == "TEAM_COPY" else value] for x, value in STORED["team"]]
    again = restore_older(made.space, read(stored))
    assert again.key == made.key
    assert checking.source_of(again).key == checking.source_of(made).key


@kernel
def triangular_product(a: types.ndarray(), b: types.ndarray()):
    for j in range(b.shape[1]):
        for i in range(b.shape[0]):
            acc = b[i, j]
            for k in range(i + 1, b.shape[0]):
                acc += a[k, i] * b[k, j]
            b[i, j] = 1.5 * acc


def test_a_task_may_have_a_name_with_a_dot():
    """Its prefetches are no prefetches of sums."""
    n = 300
    given = (np.zeros((n, n)), np.zeros((n, n)))
    problem = normalise(record_sequence(lambda a, b: triangular_product(a, b), given, "product"))
    root = build_space(problem, checking.target(2, 32)).root()
    name = "prefetch(triangular_product0.acc)"
    assert name in root.space.model.positions
    made = checking.random_candidate(root, np.random.default_rng(1))
    again = restore_complete(root.space, read([[*pair] for pair in to_names(made)]))
    assert again.key == made.key
    assert fix(root.space, [(name, "NEAR")]).fixed == ((name, "NEAR"),)


def test_a_product_on_a_gpu_is_the_one_that_it_was():
    space = build_space(problem_of("matmul", LARGE), GPU)
    assert ["cache(b->multiply0)", "STREAM"] in STORED["loads"]
    later = {"block_order(multiply0)": "BY_ROWS", "register_stages(multiply0)": "ONE"}
    later["warp_tile(multiply0.i.mid,multiply0.j.mid)"] = "LINEAR"
    later |= {f"fragments(multiply0.{x})": "ELEMENTS" for x in "ab"}
    later |= {f"grid_stride(multiply0.{x}.outer)": "NONE" for x in "ijk"}
    stored = (*read(STORED["loads"]), *later.items())
    made = restore_complete(space, stored)
    assert isinstance(made, Candidate)
    held = dict(to_names(made))
    assert held == dict(stored)
    assert held["load_cache(b->multiply0)"] == "STREAM"
    assert held["cache(multiply0.c)"] == "DEFAULT"


@pytest.mark.parametrize(
    "name",
    ["prefetch(dot0)", "cache(dot0.y)", "prefetch_accumulators(dot0.y)", "load_cache(x->dot0)"],
)
def test_names_of_today_stay(name):
    assert renamed([(name, "NONE")]) == ((name, "NONE"),)
