"""Arrays of truth values: NumPy's bool arrays are read, written, updated and reduced in kernels, and are arguments of sequences.

The kind: an array that NumPy has and a kernel refuses, or takes and writes bytes into that are neither 0 nor 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.records.signature import Signature
from kernelscape.runtime.records.stored import bind_arguments

nd: Any = ks.types.ndarray()
truths: Any = ks.types.ndarray(ks.u1)
N = 500


@ks.kernel
def everywhere(a: nd, b: truths, x: nd, m: nd, y: nd):
    for i in range(a.shape[0]):
        m[0, i] = a[i] and not b[i]
        m[1, i] = x[i]
        m[2, i] = a[i] ^ b[i]
        m[3, i] |= a[i]
        m[4, i] &= b[i] | (x[i] > 0.5)
        m[5, i] += a[i]
        m[6, i] *= b[i]
        m[7, i] ^= a[i]
        y[i] = ks.select(a[i], x[i], -1.0) + a[i]
        if b[i]:
            y[i] += 2.0


def in_numpy(a: Any, b: Any, x: Any, m: Any, y: Any) -> None:
    m[0] = a & ~b
    m[1] = x
    m[2] = a ^ b
    m[3] |= a
    m[4] &= b | (x > 0.5)
    m[5] += a
    m[6] *= b
    m[7] ^= a
    y[:] = np.where(a, x, -1.0) + a
    y[b] += 2.0


@ks.kernel
def reduced(a: nd, out: nd, n: nd):
    some = False
    every = True
    count = 0
    for i in range(a.shape[0]):
        some = some or a[i]
        every &= a[i]
        count += a[i]
    out[0] = some
    out[1] = every
    n[0] = count


@ks.kernel
def reduced_by_branches(a: nd, out: nd, n: nd):
    some = False
    every = True
    count = 0
    for i in range(a.shape[0]):
        if a[i]:
            some = True
            count += 1
        if not a[i]:
            every = False
    out[0] = some
    out[1] = every
    n[0] = count


def drawn() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    a, b, *m = (rng.random(N) < 0.5 for _ in range(10))
    return [a, b, rng.integers(0, 2, N) * rng.random(N), np.array(m), np.zeros(N)]


def test_elements_are_numpys() -> None:
    want = drawn()
    in_numpy(*want)
    for run in (everywhere, lambda *args: _interpreted(everywhere, *args)):
        got = drawn()
        run(*got)
        for x, y in zip(got, want, strict=True):
            np.testing.assert_array_equal(x.view(f"u{x.itemsize}"), y.view(f"u{y.itemsize}"))


def _interpreted(fn: Any, *args: Any) -> None:
    with interpret():
        fn(*args)


@pytest.mark.parametrize("fn", [reduced, reduced_by_branches])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_any_all_and_count(fn: Any, share: float) -> None:
    a = np.random.default_rng(1).random(N) < share
    for run in (fn, lambda *args: _interpreted(fn, *args)):
        out, n = np.zeros(2, bool), np.zeros(1, np.int64)
        run(a, out, n)
        assert (list(out), n[0]) == ([a.any(), a.all()], a.sum())


@pytest.mark.parametrize("fn", [everywhere, reduced, reduced_by_branches])
def test_all_of_it_is_structured(fn: Any) -> None:
    args = drawn()
    args = args if fn is everywhere else [args[0], np.zeros(2, bool), np.zeros(1, np.int64)]
    problem = normalise(record_sequence(fn, args, "truths"))
    closed = [t.body.reason.text for t in problem.tasks if t.body is not None]
    assert closed == []


def test_views_of_truths_are_taken_in_place() -> None:
    @ks.kernel
    def turned(a: nd, m: nd):
        for i, j in ks.ndrange(a.shape[0], a.shape[1]):
            m[i, j] = not a[i, j]

    a = np.random.default_rng(2).random((20, 30)) < 0.5
    m = np.zeros((15, 20), bool)
    turned(a.T[::2], m)
    np.testing.assert_array_equal(m, ~a.T[::2])


@pytest.mark.parametrize("given", [True, False, np.True_, np.bool_(0)])
def test_truth_values_are_scalars(given: Any) -> None:
    @ks.kernel
    def added(y: nd, plain, whole: int, real: float, truth: bool):
        y[0] = plain
        y[1] = whole
        y[2] = real
        y[3] = truth

    y = np.full(4, 7.0)
    added(y, given, given, given, given)
    assert list(y) == [float(given)] * 4


def test_what_truths_have_not_is_a_sentence() -> None:
    @ks.kernel
    def less(m: nd):
        for i in range(m.shape[0]):
            m[i] -= True

    with pytest.raises(LanguageError, match="truth values have no difference, use \\^"):
        less(np.ones(3, bool))
    with pytest.raises(LanguageError, match="b of the kernel everywhere is annotated bool_"):
        everywhere(*(x if k != 1 else np.zeros(N, np.uint8) for k, x in enumerate(drawn())))


def masks(x: nd, near: nd, found: nd) -> None:
    marked = ks.ndarray(bool, x.shape)
    mark(x, marked)
    grow(marked, near)
    look(near, found)


@ks.kernel
def mark(x: nd, m: nd):
    for i in range(x.shape[0]):
        m[i] = x[i] > 0.9


@ks.kernel
def grow(m: nd, near: nd):
    for i in range(1, m.shape[0] - 1):
        near[i] = m[i - 1] or m[i] or m[i + 1]


@ks.kernel
def look(near: nd, found: nd):
    some = False
    for i in range(near.shape[0]):
        some |= near[i]
    found[0] = some


def masks_in_numpy(x: Any, near: Any, found: Any) -> None:
    m = x > 0.9
    near[1:-1] = m[:-2] | m[1:-1] | m[2:]
    found[0] = near.any()


def of_masks() -> list[np.ndarray[Any, Any]]:
    return [np.random.default_rng(4).random(N), np.zeros(N, bool), np.zeros(1, bool)]


@pytest.mark.compiler
def test_a_sequence_of_truths_is_explored_and_called(tmp_path: Path) -> None:
    run = ks.explore(
        masks, *of_masks(), max_evals=3, directory=tmp_path / "run", reference=masks_in_numpy
    )
    tuned = run.best.compile()
    got, want = of_masks(), of_masks()
    tuned(*got)
    masks_in_numpy(*want)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)
    replayed = ks.load(run.best.save(tmp_path / "mine.json")).compile()
    again = of_masks()
    replayed(*again)
    np.testing.assert_array_equal(again[1], want[1])


def test_a_tuned_function_takes_and_makes_arrays_of_truths() -> None:
    args = of_masks()
    recording = record_sequence(masks, args, "masks")
    parameters, arguments = bind_arguments(masks, args, recording)
    assert [p.is_truth for p in parameters] == [False, True, True]
    assert arguments.arrays["near"].dtype == np.uint8
    signature = Signature(parameters, normalise(recording))
    given, made = signature.complete((args[0], args[1]), {})
    assert made is given["found"] and made.dtype == np.bool_
    assert [v.dtype for v in signature.values(given)] == [np.float64, np.uint8, np.uint8]
    with pytest.raises(TypeError, match="near must be a NumPy array of truth values, not uint8"):
        signature.values({**given, "near": np.zeros(N, np.uint8)})
