"""The user's NumPy function: which it is, that it is compared, and the sentence where it disagrees."""

from __future__ import annotations

import time

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.cli.sequence_name import Named
from kernelscape.cli.user_file import find_workload
from kernelscape.explorer.entry import library_workload
from kernelscape.explorer.user_reference import (
    FailedReferenceError,
    UserReference,
    WrongReferenceError,
)
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.library import LibrarySequence, load
from kernelscape.runtime.api.outcome import Failure
from kernelscape.runtime.cutting import stopped_when
from kernelscape.runtime.fake.device import FakeRunner
from kernelscape.runtime.forked import Stopped
from kernelscape.runtime.worker.inputs import make_input_sets

from .command import USER_FILE, objects

LIMITS = ("--size", "n=50", "--max-evals", "1")


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "user.py"
        path.write_text(text)
        return path

    return write


def without_reference(text):
    return text[: text.index("def reference")]


def workload_of(path, name="both"):
    return find_workload(Named(f"{path}:{name}"), {"n": 50}, "f32", 1)


def compare(workload):
    rng = np.random.default_rng(1)
    input_sets = make_input_sets(workload.recording, workload.problem, workload.arguments, rng, 2)
    return workload.user_reference.compare(workload.stored.parameters, input_sets)


@pytest.mark.compiler
def test_a_reference_that_disagrees_ends_the_run(explore, file, tmp_path):
    path = file(USER_FILE.replace("z[:] = f * y", "z[:] = f * x"))
    code, _, err = explore("run", f"{path}:both", *LIMITS, "-o", tmp_path / "run")
    assert code == 8
    assert err.startswith("explore: the reference disagrees with the kernels: z[0] is ")
    assert "Traceback" not in err
    code, out, _ = explore("explain", tmp_path / "run")
    assert code == 0
    assert "the reference disagrees with the kernels: z[0]" in out


@pytest.mark.parametrize(
    ("body", "error", "sentence"),
    [
        ("    y[:] = f * x\n    z[:] = f * y", None, ""),
        ("    y[:] = f * x\n    z[:] = f * x", WrongReferenceError, r"kernels: z\[0\] is"),
        ("    return f * x, f * f * x", WrongReferenceError, "must write its results into"),
        ("    y[:] = x @ z[1:]", FailedReferenceError, "cannot be called .* ValueError"),
    ],
)
def test_it_is_compared_in_place(file, body, error, sentence):
    text = f"{without_reference(USER_FILE)}def reference(x, y, z, f):\n{body}\n"
    workload = workload_of(file(text))
    before = {name: a.copy() for name, a in workload.arguments.arrays.items()}
    if error is None:
        assert compare(workload) >= 0
    else:
        with pytest.raises(error, match=sentence):
            compare(workload)
    for name, a in workload.arguments.arrays.items():
        np.testing.assert_array_equal(a, before[name])


def test_what_the_sequence_does_not_write_is_not_compared():
    @ks.kernel
    def half(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(x.shape[0] // 2):
            y[i] = x[i] + 1.0

    def reference(x, y):
        y[:3] = x[:3] + 1.0

    def wrong(x, y):
        y[:2] = x[:2] + 1.0

    args = (np.arange(6.0), np.zeros(6))
    for function, error in ((reference, None), (wrong, WrongReferenceError)):
        workload = make_workload(half, args, sequence="t:half", name="half", reference=function)
        if error is None:
            compare(workload)
        else:
            with pytest.raises(error, match=r"y\[2\]"):
                compare(workload)


def test_the_function_that_runs_is_the_one_whose_reference_is_taken(file):
    two = f"""{USER_FILE}

def once(x, y, z, f):
    scale(x, y, f)

def reference_once(x, y, z, f):
    y[:] = f * x
"""
    assert workload_of(file(two), "once").user_reference.function.__name__ == "reference_once"
    assert (
        workload_of(file(two), "both").user_reference is None
    )  # whose `reference` is, nobody knows
    only = workload_of(file(USER_FILE)).user_reference
    assert only.function.__name__ == "reference"


def test_a_sequence_named_as_one_of_the_library_brings_its_own_reference():
    ours = load("axpydot")
    assert library_workload(ours, {"n": 100}, "f32", 1).reference is not None
    fields = {name: getattr(ours, name) for name in LibrarySequence.__dataclass_fields__}
    theirs = LibrarySequence(**fields | {"reference": lambda *a: None})
    workload = library_workload(theirs, {"n": 100}, "f32", 1)
    assert workload.reference is None
    assert workload.user_reference.function is theirs.reference
    assert workload.sequence != "axpydot"


def test_several_sets_of_arguments(file):
    text = USER_FILE.replace(
        "return rng.random(n).astype(dtype), np.zeros(n, dtype), np.zeros(n, dtype), 0.5",
        "return [(x * np.ones(n, dtype), np.zeros(n, dtype), np.zeros(n, dtype), x) for x in (1.0, 2.0, 3.0)]",
    )
    workload = workload_of(file(text))
    assert [a.scalars["f"] for a in (workload.arguments, *workload.more)] == [1.0, 2.0, 3.0]
    other = text.replace("np.ones(n, dtype)", "np.ones(n, dtype if x == 1 else np.float64)")
    with pytest.raises(LanguageError, match="all sets need the same shapes, types and constants"):
        workload_of(file(other))


@pytest.mark.compiler
def test_a_slow_reference_is_left(explore, file, tmp_path):
    slow = USER_FILE.replace("y[:] = f * x", "while True:\n        y[:] = f * x")
    path = file(slow)
    code, out, _ = explore(
        "run", f"{path}:both", *LIMITS, "--time-limit", "4s", "--json", "-o", tmp_path / "run"
    )
    told = objects(out)
    assert code == 0
    assert {"event": "reference_too_slow", "limit_s": 1.0, "compared": False} in told
    assert told[-1]["numpy_ns"] is None


def test_a_block_is_left_once_it_is_over():
    def endless():
        while True:
            time.sleep(0)

    with pytest.raises(Stopped), stopped_when(lambda: True):
        endless()


def test_the_first_wrong_is_named_in_the_log_and_by_explain(explore, tmp_path, monkeypatch):
    detail = "input set 0: w[3] is 1.0 and should be 2.0 within 1e-07 (1 of 10 elements are wrong)"
    monkeypatch.setattr(FakeRunner, "outcome", lambda self, artifact: Failure("wrong", detail))
    run = ("run", "axpydot", "--size", "n=64", "--target", "fake", "--max-evals", 3)
    code, out, err = explore(*run, "--json", "-o", tmp_path / "run")
    assert code == 4
    assert [o["detail"] for o in objects(out) if o["event"] == "first_wrong"] == [detail]
    assert err.count(f"wrong: {detail}") == 1
    failed = err.partition("kept as ")[2].split()[0]
    assert list((tmp_path / "run").glob(f"{failed}*"))
    code, out, _ = explore("explain", tmp_path / "run")
    assert code == 0
    assert f"first wrong: {detail}" in out
    assert "3 wrong of 3 evaluations" in out
    code, out, _ = explore("explain", tmp_path / "run", "--json")
    assert objects(out)[0]["failures"][0]["detail"] == detail


def test_a_reference_is_timed_on_copies():
    args = (np.zeros(3), 2.0)
    calls = []

    def reference(x, f):
        x += f
        calls.append(x[0])

    assert UserReference(reference, args).time_ns(1.0) > 0
    assert args[0].sum() == 0
    assert calls
