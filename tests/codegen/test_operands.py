"""Operands of which a task reads an array at several places: each has blocks of its own, and a choice of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernelscape.codegen.passes.pipeline import launches_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.runtime.records.replay import restore_older
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import default_sketch
from kernelscape.search.starts.roles import find_roles
from kernelscape.space import choices as ch
from kernelscape.space.decisions import to_names
from kernelscape.testing import checking
from kernelscape.testing.legality import illegal

from .packed_cases import random_copies
from .test_triangles import mirrored, opened, rank_k, triangle_by_square

nd: Any = types.ndarray()


@kernel
def two_products(x: nd, y: nd, z: nd):
    for i in range(x.shape[0]):
        for j in range(i + 1):
            acc = 0.0
            for k in range(y.shape[1]):
                acc += y[j, k] * z[i, k] + z[j, k] * y[i, k]
            x[i, j] = 0.5 * x[i, j] + acc


def rank_2k(x, y, z):
    two_products(x, y, z)


COPIES = (
    {"staged": ch.COPY, "packed_by": ch.BY_THREAD},
    {"staged": ch.COPY, "packed_by": ch.BY_TEAM},
    {"staged": ch.TWO_STAGES},
)
SITES = {
    rank_k: ["lower_product0.y[i][k]", "lower_product0.y[j][k]"],
    rank_2k: [f"two_products0.{x}[{i}][k]" for x, i in ("yj", "zi", "zj", "yi")],
    # The read that only finishes a sum is no operand.
    triangle_by_square: ["upper_product0.acc.x", "upper_product0.acc.y[k][j]"],
}


@pytest.mark.parametrize("sequence", SITES, ids=lambda f: f.__name__)
def test_an_operand_is_named_by_its_access_where_its_array_is_read_elsewhere(sequence: Any) -> None:
    _, _, _, root = opened(sequence, 37, np.float32, 32)
    assert [o.name for o in root.space.variables.staged] == SITES[sequence]


@pytest.mark.compiler
@pytest.mark.parametrize("sequence", [*SITES, mirrored], ids=lambda f: f.__name__)
def test_packed_blocks_of_one_array_compute_what_the_interpreter_does(
    sequence: Any, tmp_path: Path
) -> None:
    recording, arrays, problem, _ = opened(sequence, 37, np.float32, 32)
    inputs = checking.make_inputs(recording, problem, arrays, {})
    found = [c for k, x in enumerate(COPIES) for c in random_copies(recording, x, 1, 2, k)]
    assert len(found) == len(COPIES)
    with verifying():
        sources = [checking.crowded_source_of(c) for c in found]
    flags = () if sequence is mirrored else checking.PLAINLY
    assert not checking.fault(sources, inputs, tmp_path, more_flags=flags)


@pytest.mark.parametrize("sequence", [rank_k, triangle_by_square], ids=lambda f: f.__name__)
def test_a_judge_finds_nothing_in_packed_blocks_of_one_array(sequence: Any) -> None:
    recording, _, _, _ = opened(sequence, 6, np.float32, 16)
    found = [c for k, x in enumerate(COPIES) for c in random_copies(recording, x, 1, 2, k)]
    assert found
    with verifying():
        for candidate in found:
            launches_of(plan_of(candidate), candidate.space.target)
    assert [illegal(c) for c in found] == [""] * len(found)


def test_what_was_stored_before_a_product_by_itself_was_packed_means_the_same() -> None:
    _, _, _, root = opened(rank_k, 37, np.float32, 32)
    made = complete_sketch(root, default_sketch(root.space))
    assert made is not None
    kinds = ("staged(", "packed_by(")
    before = [(name, value) for name, value in to_names(made) if not name.startswith(kinds)]
    again = restore_older(root.space, before)
    assert not plan_of(again).tasks[0].copies
    assert checking.source_of(again).text == checking.source_of(made).text


def test_vectors_of_packed_products_are_of_results() -> None:
    """Rows by rows: where they lie decides but for packed blocks."""
    _, _, _, root = opened(rank_k, 37, np.float32, 32)
    assert find_roles(root.space, merge=True).vector == {0: "k"}
    assert find_roles(root.space, merge=True, packed=True).vector == {0: "j"}
