"""The compiled reference against the interpreter, and how it is ended."""

from __future__ import annotations

import os
import threading
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.interpret import llvm as llvm_text
from kernelscape.runtime import reference as module
from kernelscape.runtime.forked import Stopped, run_apart, shared_empty
from kernelscape.runtime.llvm import compile_kernel
from kernelscape.runtime.reference import Reference, choose_way, choose_ways
from kernelscape.testing.interpreted import run_reference

nd = ks.types.ndarray()


@ks.kernel
def lu(a: nd):
    for _ in range(1):
        for i in range(a.shape[0]):
            for j in range(i):
                for k in range(j):
                    a[i, j] -= a[i, k] * a[k, j]
                a[i, j] /= a[j, j]
            for j in range(i, a.shape[0]):
                for k in range(i):
                    a[i, j] -= a[i, k] * a[k, j]


@ks.kernel
def mixed(x: nd, i: nd, out: nd, ints: nd, alpha: float):
    for k in range(x.shape[0]):
        a = ks.sqrt(x[k]) + ks.exp(x[k]) - ks.log(x[k]) * ks.sin(x[k]) / ks.cos(x[k])
        out[k] = alpha * min(max(x[k], a), ks.floor(a)) if x[k] < 2.0 else abs(x[k])
        ints[k] = ints[k] * ints[k] + ks.cast(i[k] // 3 + i[k] % -4, ks.i32)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is compiled."""
    monkeypatch.setattr(module, "_COMPILE_NS", -np.inf)


def test_lu_is_compiled_and_right():
    n = 60
    a = np.random.default_rng(0).uniform(-1, 1, (n, n)) + n * np.eye(n)
    r = record_sequence(lu, (a,))
    assert choose_way(r.calls[0].ir).is_compiled
    found = Reference().run(r, {"a": a}, {})["a"]
    lower, upper = np.tril(found, -1) + np.eye(n), np.triu(found)
    np.testing.assert_allclose(lower @ upper, a, atol=1e-12)


def test_a_kernel_that_is_called_again_is_widened_and_compiled_once(compiled, monkeypatch):
    """The kind: work for each call of a long sequence that depends on its kernel alone."""
    made = []

    def noted(ir, held, **options):
        made.append(ir)
        return compile_kernel(ir, held, **options)

    monkeypatch.setattr(module, "compile_kernel", noted)

    @ks.kernel
    def add(x: nd, y: nd):
        for i in range(x.shape[0]):
            y[i] += x[i]

    def sequence(a: Any, b: Any, c: Any) -> None:
        add(a, b)
        add(b, c)
        add(c, a)

    args = [np.full(9, k, np.float32) for k in (1, 2, 4)]
    found = Reference().run(
        record_sequence(sequence, args), dict(zip("abc", args, strict=True)), {}
    )
    assert [found[name][0] for name in "abc"] == [8, 3, 7]
    assert len(made) == 1
    assert {p.dtype for p in made[0].arrays} == {ks.f64}


def test_products_stay_with_blas():
    a = np.zeros((512, 512))

    @ks.kernel
    def matmul(a: nd, b: nd, c: nd):
        for i in range(c.shape[0]):
            for j in range(c.shape[1]):
                acc = 0.0
                for k in range(a.shape[1]):
                    acc += a[i, k] * b[k, j]
                c[i, j] = acc

    r = record_sequence(matmul, (a, a.copy(), a.copy()))
    assert not choose_way(r.calls[0].ir).is_compiled


@pytest.mark.parametrize("wide", [True, False])
def test_operations_and_read_only_arrays(compiled, wide):
    x = np.array([1.5, 0.0, -1.0, np.nan, np.inf, 2.0, 0.3, -0.0, 700.0], np.float32)
    i = np.arange(-4, 5)
    ints = np.array([70000, -70000, 3, -1, 2**31 - 1, 0, 5, 6, 7], np.int32)
    args = (x, i, np.zeros(9, np.float32), ints, 0.1)
    r = record_sequence(mixed, args)
    arrays = {p.name: a for p, a in zip(r.arrays, args, strict=False)}
    x.flags.writeable = False
    wanted = run_reference(r, arrays, {"alpha": 0.1}, np.float64 if wide else None)
    found = Reference().run(r, arrays, {"alpha": 0.1}, wide=wide)
    np.testing.assert_allclose(found["out"], wanted["out"], rtol=1e-14 if wide else 1e-6)
    np.testing.assert_array_equal(found["ints"], wanted["ints"])
    assert found["out"].dtype == (np.float64 if wide else np.float32)


def test_an_index_outside_is_the_same_error(compiled):
    @ks.kernel
    def gather(i: nd, x: nd, y: nd):
        for k in range(y.shape[0]):
            y[k] = x[i[k]]

    args = {"i": np.array([0, 5, 2]), "x": np.zeros(4), "y": np.zeros(3)}
    r = record_sequence(gather, tuple(args.values()))
    with pytest.raises(IndexError, match=r"index 0 of x is 5, outside 0\.\.3"):
        Reference().run(r, args, {})


def test_a_run_that_is_over_ends_at_once():
    a = np.zeros(1)

    @ks.kernel
    def endless(a: nd):
        for _ in range(1):
            for i in range(1_000_000_000_000_000):
                a[0] = a[0] * 0.5 + i

    r = record_sequence(endless, (a,))
    for answers in ([], [False]):  # before it is compiled, and while it runs
        answer = iter(answers)
        with pytest.raises(Stopped):
            run_apart(
                lambda: Reference().run(r, {"a": a}, {}), lambda answer=answer: next(answer, True)
            )


def test_a_child_gives_back_what_it_returns_raises_and_writes():
    shared = shared_empty((2, 3), np.float32)

    def work() -> str:
        shared[1, 2] = 7
        return "x" * 200_000

    assert len(run_apart(work)) == 200_000
    assert shared[1, 2] == 7

    def fail() -> None:
        raise ValueError("of the child")

    with pytest.raises(ValueError, match="of the child"):
        run_apart(fail)


def test_an_ended_child_is_gone():
    pid = shared_empty((1,), np.int64)

    def work() -> None:
        pid[0] = os.getpid()
        threading.Event().wait()

    with pytest.raises(Stopped):
        run_apart(work, lambda: pid[0] > 0)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid[0]), 0)


@ks.kernel
def smooth(a: nd, b: nd):
    for i in range(1, a.shape[0] - 1):
        b[i] = 0.5 * a[i - 1] + 0.5 * a[i + 1]


def test_steps_that_are_made_often_are_compiled():
    """One of them is sooner interpreted than compiled, four thousand are not."""
    a = np.ones(20_000)

    b = a.copy()
    once = record_sequence(lambda a, b: repeated(a, b, 1), (a, b))
    often = record_sequence(lambda a, b: repeated(a, b, 2000), (a, b))
    assert all(not way.is_compiled for way in choose_ways(once).values())
    assert all(way.is_compiled for way in choose_ways(often).values())


def repeated(a, b, n):
    for _ in range(n):
        smooth(a, b)
        smooth(b, a)


@ks.kernel
def fold(a: nd):
    for r in range(a.shape[0]):
        i = a.shape[0] - 1 - r
        for j in range(i + 1, a.shape[0]):
            for k in range(i + 1, j):
                a[i, j] = max(a[i, j], a[i, k] + a[k, j])


def test_loops_between_locals_count():
    assert choose_way(record_sequence(fold, (np.zeros((150, 150)),)).calls[0].ir).is_compiled


@ks.kernel
def scaled(x: nd, y: nd):
    for k in range(y.shape[0]):
        y[k] = 3.0 * x[k]


def test_a_kernel_is_compiled_once(compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each of its calls."""
    n = 0

    def counting(*given: Any, **options: Any) -> Any:
        nonlocal n
        n += 1
        return compile_kernel(*given, **options)

    monkeypatch.setattr(module, "compile_kernel", counting)
    x = np.arange(4.0)
    r = record_sequence(scaled, (x, x.copy()))
    reference = Reference()
    for _ in range(2):
        np.testing.assert_array_equal(reference.run(r, {"x": x, "y": x.copy()}, {})["y"], 3.0 * x)
    assert n == 1


def test_large_kernels_move_results_as_small_ones_do(
    compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: code that is shared by operations, and counts or rounds in another way than code that is not."""
    n = 40
    rng = np.random.default_rng(3)
    given = {
        "x": rng.uniform(0.5, 3, n).astype(np.float32),
        "i": rng.integers(-9, 9, n),
        "out": np.zeros(n, np.float32),
        "ints": rng.integers(0, 9, n).astype(np.int32),
    }
    r = record_sequence(lambda x, i, out, ints: mixed(x, i, out, ints, 0.3), tuple(given.values()))
    found = []
    for least in (1 << 30, 0):
        monkeypatch.setattr(llvm_text, "_LARGE", least)
        found.append(Reference().run(r, given, {}, wide=False, seed=5)["out"])
    plain = Reference().run(r, given, {}, wide=False)["out"]
    np.testing.assert_array_equal(*found)
    assert (found[0] != plain).any()
