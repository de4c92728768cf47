"""Names from Python in C: every identifier of the language works as the name of an array, a scalar or a loop."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.text.names import RESERVED, c_names, identifier
from kernelscape.codegen.text.source import CHECK, ENTRY, FIND, MESSAGE, UNIT_ENTRY
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.engine.planning import default_plan
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking

nd = types.ndarray()


@kernel
def scaled_sums(double: nd, x_acc_0: nd, x: nd, register: float):
    for int in range(double.shape[0]):  # noqa: A001
        short = 0.0
        for begin in range(double.shape[1]):
            short += double[int, begin] * x_acc_0[begin]
        x[int] = register * short


def unlucky(double, x_acc_0, x, exp, load_f32, tid, unix):
    scaled_sums(double, x_acc_0, x, exp)
    scaled_sums(double, load_f32, tid, exp)
    scaled_sums(double, x_acc_0, unix, exp)


@pytest.mark.compiler
def test_names_with_a_meaning_in_c(tmp_path):
    rng = np.random.default_rng(0)
    vectors = [rng.uniform(-1, 1, 33).astype(np.float32) for _ in range(5)]
    matrix = rng.uniform(-1, 1, (33, 33)).astype(np.float32)
    args = (matrix, vectors[0], vectors[1], 0.5, *vectors[2:])
    recording = record_sequence(unlucky, args, "unlucky")
    names = [a.name for a in recording.arrays]
    assert {"double", "x_acc_0", "tid", "unix"} <= set(names)
    arrays = dict(zip(names, [a for a in args if isinstance(a, np.ndarray)], strict=True))
    problem = normalise(recording)
    inputs = checking.make_inputs(
        recording, problem, arrays, {s.name: 0.5 for s in recording.scalars}
    )
    root = build_space(problem, checking.target(2, 32)).root()
    candidates = [root.random_completion(rng) for k in range(4)]
    sources = [checking.crowded_source_of(c) for c in candidates if isinstance(c, Candidate)]
    assert not checking.fault(sources, inputs, tmp_path)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("x", "x"),
        ("a0.acc", "a0_acc"),
        ("int", "v_int_"),
        ("α", "v__"),
        ("launch_0_thread", "v_launch_0_thread_"),
        *((name, f"v_{name}_") for name in (ENTRY, UNIT_ENTRY, CHECK, FIND, MESSAGE)),
        *((name, f"v_{name}_") for name in ("IN_ORDER", "lane_any_8")),
    ],
)
def test_identifiers(name, plain):
    assert identifier(name) == plain


@kernel
def uneven(y: nd, n: nd):
    for i in range(y.shape[0]):
        for k in range(n[i]):
            y[i] += k


def test_no_user_has_a_name_that_a_text_defines():
    """The kind: an array named as a function of the text, which hides it or takes its place."""
    plan = default_plan(uneven.instantiate(np.zeros(1 << 18), np.zeros(1 << 18, np.int32)), 4, 32)
    names = print_source(lower(plan), C_TEAM).names
    assert "take_part" in names
    assert [name for name in names if identifier(name) == name] == []


words = st.one_of(
    st.sampled_from(sorted(RESERVED)),
    st.from_regex(r"[A-Za-z_α]\w{0,4}(\.\w{1,3})?", fullmatch=True),
)


@settings(deadline=None)
@given(st.lists(words, unique=True))
def test_different_names_stay_different(names):
    found = c_names(names)
    assert list(found) and set(found) == set(names) if names else not found
    assert len(set(found.values())) == len(names)
    assert all(n.isascii() and n.isidentifier() and n not in RESERVED for n in found.values())
