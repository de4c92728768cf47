"""Calls of a tuned sequence: what they may be given, from several threads, in forked children, and from C."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu import calling
from kernelscape.runtime.cpu.guarded_arrays import CpuArray
from kernelscape.runtime.device import DeviceOptions, open_device
from kernelscape.runtime.records.replay import RebuiltRecord, make_tuned
from kernelscape.runtime.records.stored import bind_arguments
from kernelscape.search.starts.complete import first_candidates, sketched_candidates
from kernelscape.space.build import build_space
from kernelscape.space.decisions import fix
from kernelscape.testing import checking
from numpy.lib.stride_tricks import as_strided

pytestmark = pytest.mark.compiler
N = 40
WAYS = ("compiled", "plain")


@ks.kernel
def gemv(a: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray(), scale: ks.f32):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        y[i] = scale * acc


@ks.kernel
def count(n: ks.types.ndarray(), step: ks.i32):
    for i in range(n.shape[0]):
        n[i] = n[i] + step


def both(a, x, y, w, scale, shift=None):
    """y = scale a x and w = a (a y), through a temporary that is in memory."""
    t = ks.ndarray(ks.f32, (N,))
    gemv(a, x, y, scale)
    gemv(a, y, t, 1.0)
    gemv(a, t, w, 1.0)


def tuned(device, sequence, *args, change=lambda text: text, wanted=None, fixed=()):
    """The default implementation of a sequence, or the first `wanted` one of the sketches, as a function.

    `fixed`: names and values of choices that are decided.
    """
    recording = record_sequence(sequence, args, sequence.__name__)
    parameters, _ = bind_arguments(sequence, args, recording)
    problem = normalise(recording)
    target = device.machine.facts()
    space = build_space(problem, target if target.is_gpu else checking.target(2, 32))
    space = fix(space, fixed)
    [(_, candidate)] = first_candidates(space, limit=1)
    if wanted is not None:
        candidate = next(x for _, x in sketched_candidates(space) if wanted(x))
    source = print_source(lower(plan_of(candidate)), device.builder.dialect())
    source = replace(source, text=change(source.text))
    rebuilt = RebuiltRecord(recording, problem, space, candidate, source, ())
    return make_tuned(parameters, rebuilt, device)


def arguments(seed=3):
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, (N, N)).astype(np.float32) / 4
    x = rng.uniform(-1, 1, N).astype(np.float32)
    return a, x, np.zeros(N, np.float32), np.zeros(N, np.float32)


def right(a, x, y, w, scale) -> bool:
    want = scale * (a.astype(np.float64) @ x)
    return np.allclose(y, want, 1e-4, 1e-5) and np.allclose(w, a @ (a @ want), 1e-4, 1e-5)


@pytest.fixture(scope="module", params=WAYS)
def device(request, cpu):
    """The CPU, with Python's header and without."""
    has_header = bool(calling.header_folders())
    if request.param == "compiled" and not has_header:
        pytest.skip("Python.h is not installed")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(calling, "header_folders", lambda: ())
        yield cpu


@pytest.fixture(scope="module")
def f(device):
    made = tuned(device, both, *arguments(), 0.5)
    assert made.arguments[-1].kind == "workspace"
    return made


def test_right_calls_take_the_quick_way(f, monkeypatch):
    a, x, y, w = arguments()
    f(a, x, y, w, 0.25, None)  # now it knows what the constant is
    monkeypatch.setattr(f, "_signature", None)  # the other way begins with it
    y[:] = w[:] = 0
    f(a, x, y, w, 0.25, None)
    assert right(a, x, y, w, 0.25)


def test_compiled_calls_take_names_and_numbers_of_numpy(f, monkeypatch):
    if isinstance(f._caller, calling.PlainCaller):
        pytest.skip("names are for the compiled way")
    a, x, y, w = arguments()
    monkeypatch.setattr(f, "_signature", None)
    for scale in (0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5)):
        y[:] = w[:] = 0
        assert f(w=w, scale=scale, a=a, y=y, x=x) is None
        assert right(a, x, y, w, 0.5)
    f(a, x, y, w, scale=2)
    assert right(a, x, y, w, 2)


def test_arguments_go_by_name_and_constants_may_be_left_out(f):
    a, x, y, w = arguments()
    assert f(a, x, w=w, y=y, scale=0.25) is None
    assert right(a, x, y, w, 0.25)


def test_outputs_that_are_left_out_are_returned(f):
    a, x, y, _ = arguments()
    made_y, made_w = f(a, x, scale=0.25)
    assert right(a, x, made_y, made_w, 0.25)
    one = f(a, x, y, scale=0.25)  # only w is left out
    assert right(a, x, y, one, 0.25)
    assert one.ctypes.data % 64 == 0


def test_calls_that_are_completed_take_the_quick_way(f, monkeypatch):
    a, x, y, w = arguments()
    f(a, x, y, w, 0.25, None)
    monkeypatch.setattr(f, "_module", None)  # what is not quick runs it
    made_y, made_w = f(a, x, scale=0.25, shift=None)
    assert right(a, x, made_y, made_w, 0.25)


def test_out_gives_the_arrays_that_are_returned(f):
    a, x, y, w = arguments()
    found = f(a, x, scale=0.5, out=(y, w))
    assert found[0] is y and found[1] is w
    assert right(a, x, y, w, 0.5)
    found = f(a, x, scale=0.25, out=(None, w))
    assert found[1] is w and right(a, x, found[0], w, 0.25)
    assert f(a, x, y, scale=0.5, out=w) is w
    assert right(a, x, y, w, 0.5)


def frozen(array):
    array.flags.writeable = False
    return array


def odd(array):
    """The same values at an address that is no multiple of an element's size."""
    raw = np.zeros(array.nbytes + 1, np.uint8)
    place = raw[1:].view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


NAMES = "6 arguments are needed (a, x, y, w, scale, shift)"
REFUSED = {
    "too few": (lambda a, x, y, w: ((a, x, y, w), {}), f"{NAMES}, 4 given"),
    "too many": (lambda a, x, y, w: ((a, x, y, w, 1.0, None, 1), {}), f"{NAMES}, 7 given"),
    "unknown": (lambda a, x, y, w: ((a, x, y, w, 1.0), {"q": 1}), "there is no argument q; the arguments are a, x"),
    "twice": (lambda a, x, y, w: ((a, x, y, w, 1.0), {"y": y}), "argument y is given twice"),
    "dtype": (lambda a, x, y, w: ((a.astype("f8"), x, y, w, 1.0), {}), "argument a must be float32 of shape (40, 40), not float64"),
    "byte order": (lambda a, x, y, w: ((a, x.astype(">f4"), y, w, 1.0), {}), "x must be float32 of shape (40,), not >f4"),
    "shape": (lambda a, x, y, w: ((a, x[:-1], y, w, 1.0), {}), "argument x must be float32 of shape (40,)"),
    "axes": (lambda a, x, y, w: ((a, x[None], y, w, 1.0), {}), "argument x must be float32 of shape (40,)"),
    "zero axes": (lambda a, x, y, w: ((a, np.float32(1) * np.ones(()), y, w, 1.0), {}), "argument x must be"),
    "broadcast": (
        lambda a, x, y, w: ((a, x, y, as_strided(w, w.shape, (0,)), 1.0), {}),
        "argument w is written, and its elements are one and the same",
    ),
    "odd address": (lambda a, x, y, w: ((a, odd(x), y, w, 1.0), {}), "argument x must begin at a multiple of the 4 bytes"),
    "list": (lambda a, x, y, w: ((a.tolist(), x, y, w, 1.0), {}), "argument a must be a NumPy array, not list"),
    "mask": (lambda a, x, y, w: ((a, np.ma.masked_array(x), y, w, 1.0), {}), "argument x is a MaskedArray, of which only the data"),
    "same output": (lambda a, x, y, w: ((a, x, y, y, 1.0), {}), "arguments y and w share memory"),
    "input is output": (lambda a, x, y, w: ((a, x, y, a[3], 1.0), {}), "arguments a and w share memory"),
    "read-only": (lambda a, x, y, w: ((a, x, y, frozen(w), 1.0), {}), "argument w is written and must not be read-only"),
    "text": (lambda a, x, y, w: ((a, x, y, w, "1"), {}), "argument scale must be a number, not str"),
    "bool": (lambda a, x, y, w: ((a, x, y, w, True), {}), "argument scale must be a number, not bool"),
    "complex": (lambda a, x, y, w: ((a, x, y, w, np.complex64(1)), {}), "argument scale must be a number, not complex64"),
    "duration": (lambda a, x, y, w: ((a, x, y, w, np.timedelta64(1)), {}), "argument scale must be a number, not timedelta64"),
    "array of one": (lambda a, x, y, w: ((a, x, y, w, np.ones(())), {}), "argument scale must be a number, not ndarray"),
    "too large": (lambda a, x, y, w: ((a, x, y, w, 1e39), {}), "argument scale must fit float32, and 1e+39 does not"),
    "huge": (lambda a, x, y, w: ((a, x, y, w, 10**400), {}), "argument scale must fit float32"),
    "constant": (lambda a, x, y, w: ((a, x, y, w, 1.0, 3), {}), "argument shift is a constant of the tuned code: it must be None"),
    "out and all": (lambda a, x, y, w: ((a, x, y, w, 1.0), {"out": y}), "out must be left out"),
    "out of few": (lambda a, x, y, w: ((a, x), {"scale": 1.0, "out": y}), "out must be 2 arrays (y, w), not 1"),
    "out of another shape": (lambda a, x, y, w: ((a, x, y), {"scale": 1.0, "out": w[1:]}), "w must be float32 of shape (40,)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_a_sentence_and_nothing_is_written(f, case):
    change, sentence = REFUSED[case]
    given = arguments()
    before = [array.copy() for array in given]
    args, named = change(*given)
    with pytest.raises(TypeError) as caught:
        f(*args, **named)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)
    for array, kept in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_views_are_copied_in_and_out(f):
    a, x, _, _ = arguments()
    whole = np.zeros((N, 2), np.float32)
    a, x, y, w = np.asfortranarray(a), np.repeat(x, 2)[::2], whole[::-1, 0], whole[:, 1]
    assert f(a, x, y, w, 1.5) is None and right(a, x, y, w, 1.5)
    with pytest.raises(TypeError, match="arguments y and w share memory"):
        f(a, x, y, whole[:, 0], 1.5)


def test_integers_are_integers_and_fit(device):
    g = tuned(device, count, np.zeros(5, np.int64), 1)
    n = np.zeros(5, np.int64)
    for step in (1, np.int64(1), np.uint8(1), -3):
        g(n, step)
    assert (n == 0).all()
    g(n.view(np.longlong), 2)  # another name of the same dtype
    assert (n == 2).all()
    for step, sentence in (
        (1.0, "must be an integer, not 1.0"),
        (2**31, "must fit int32"),
        (-(2**70), "must fit int32"),
    ):
        with pytest.raises(TypeError, match=sentence):
            g(n, step)
    assert (n == 2).all()


def test_other_spellings_of_the_same_array_are_taken(f, tmp_path):
    """A file in memory, a dtype that was unpickled, arrays that are only read and share memory."""
    a, x, y, w = arguments()
    x.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", np.float32, "r")
    f(a, mapped, y, w, 0.5)
    assert right(a, x, y, w, 0.5)
    y[:] = w[:] = 0
    f(a, pickle.loads(pickle.dumps(x)), y, w, 0.5)
    f(a, frozen(a[0]), y, w, 0.5)
    assert right(a, a[0], y, w, 0.5)


def test_references_are_given_back(f):
    a, x, y, w = arguments()
    counts = [sys.getrefcount(v) for v in (a, x, y, w, None)]
    for _ in range(200):
        f(a, x, y, w, 0.5)
        f(a, x, w=w, y=y, scale=0.5)
        with pytest.raises(TypeError):
            f(a, x, y, y, 0.5)
    after = [sys.getrefcount(v) for v in (a, x, y, w, None)]
    assert after[:4] == counts[:4]
    assert abs(after[4] - counts[4]) < 100


def run_in_threads(work: Callable[[int], None], n: int) -> None:
    """Runs a function in `n` threads at the same time, each with its number."""
    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_calls_from_several_threads_have_their_own_temporaries(f):
    """8 threads, 1,000 calls each: with one workspace for all, results are those of other threads."""
    wrong = []

    def work(k):
        a, x, y, w = arguments(k)
        for n in range(1000):
            f(a, x, y, w, 0.5)
            if n % 50 == 0:
                if not right(a, x, y, w, 0.5):
                    wrong.append((k, n))
                y[:] = w[:] = 0

    run_in_threads(work, 8)
    assert wrong == []


@ks.kernel
def add_at_ends(edge: ks.types.ndarray(), w: ks.types.ndarray(), f: ks.types.ndarray()):
    for e in range(edge.shape[0]):
        f[edge[e, 0]] += w[e]
        f[edge[e, 1]] -= w[e]


def at_ends(edge, w, f):
    add_at_ends(edge, w, f)


def keeps_colours(candidate) -> bool:
    v, space = candidate.space.variables, candidate.space
    kept = v.of_tasks["colouring"].values()
    return any(space.choices[var].values[candidate.value(var)] == "IF_CHANGED" for var in kept)


def mesh(k, n=400):
    rng = np.random.default_rng(k)
    edge, w = rng.integers(0, 90, (n, 2)).astype(np.int32), rng.integers(1, 9, n).astype(np.float32)
    return edge, w, np.zeros(90, np.float32)


def sums_at_ends(edge, w):
    want = np.zeros(90, np.float32)
    np.add.at(want, edge[:, 0], w)
    np.subtract.at(want, edge[:, 1], w)
    return want


def test_kept_colours_are_made_again_when_an_index_changes(device):
    """First no two iterations meet, then all do: with the colours of the first call updates are lost."""
    n = 100_000
    apart = np.arange(2 * n, dtype=np.int32).reshape(n, 2)
    edge, w, f = apart.copy(), np.full(n, 2.0, np.float32), np.zeros(2 * n, np.float32)
    g = tuned(device, at_ends, edge, w, f, wanted=keeps_colours)
    for _ in range(4):
        for ends in (apart, np.array([0, 1])):
            edge[:], f[:] = ends, 0
            g(edge, w, f)
            want = np.bincount(edge[:, 0], w, 2 * n) - np.bincount(edge[:, 1], w, 2 * n)
            assert np.array_equal(f, want)


def test_calls_from_several_threads_have_colours_of_their_own(device):
    """With one memory for the colours of all, iterations are left out, or run twice."""
    g, wrong = tuned(device, at_ends, *mesh(1), wanted=keeps_colours), []

    def work(k):
        edge, w, f = mesh(k)
        want = sums_at_ends(edge, w)
        for n in range(300):
            f[:] = 0
            g(edge, w, f)
            if not np.array_equal(f, want):
                wrong.append((k, n))

    run_in_threads(work, 4)
    assert wrong == []


@ks.kernel
def sum_rows(start: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(y.shape[0]):
        total = 0.0
        for k in range(start[i], start[i + 1]):
            total += x[k]
        y[i] = total


def sums_of_rows(start, x, y):
    sum_rows(start, x, y)


def keeps_lengths(candidate) -> bool:
    v, space = candidate.space.variables, candidate.space
    kept = v.of_tasks["length_sort"].values()
    return any(space.choices[var].values[candidate.value(var)] == "IF_CHANGED" for var in kept)


def test_calls_from_several_threads_have_orders_of_their_own(device):
    """With the order of another call, rows are left out, or summed up twice; a wrong result stays, since each call clears it."""
    n, per_row = 400, 40
    x, wrong = np.ones(n * per_row, np.float32), []

    def rows(k):
        lengths = np.random.default_rng(k).integers(0, per_row, n)
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)

    g = tuned(device, sums_of_rows, rows(1), x, np.zeros(n, np.float32), wanted=keeps_lengths)

    def work(k):
        start, y = rows(k), np.zeros(n, np.float32)
        for times in range(300):
            y[:] = -1
            g(start, x, y)
            if not np.array_equal(y, np.diff(start)):
                wrong.append((k, times))

    run_in_threads(work, 4)
    assert wrong == []


@ks.kernel
def add_twice_at_ends(edge: ks.types.ndarray(), w: ks.types.ndarray(), g: ks.types.ndarray()):
    for e in range(edge.shape[0]):
        g[edge[e, 1]] -= 2 * w[e]
        g[edge[e, 0]] += 2 * w[e]


def at_ends_of_both(edge, w, f, g):
    add_at_ends(edge, w, f)
    add_twice_at_ends(edge, w, g)


# In a launch of its own the second task has the colours that the first keeps.
BOTH = (
    ("scatter", "GREEDY"),
    ("fused", "SEPARATE"),
    ("colouring(add_at_ends0)", "IF_CHANGED"),
    ("colouring(add_twice_at_ends0)", "REUSE"),
)


def test_kept_colours_belong_to_a_call_until_its_last_launch_has_used_them(device):
    """Four threads with a mesh each: who gives the memory back too early runs by the colours of another mesh."""
    g, wrong = tuned(device, at_ends_of_both, *mesh(1), mesh(1)[2], fixed=BOTH), []

    def work(k):
        edge, w, f = mesh(k)
        want, twice = sums_at_ends(edge, w), np.zeros_like(f)
        for n in range(300):
            f[:] = twice[:] = 0
            g(edge, w, f, twice)
            if not (np.array_equal(f, want) and np.array_equal(twice, 2 * want)):
                wrong.append((k, n))

    run_in_threads(work, 4)
    assert wrong == []


def test_the_interpreter_runs_while_a_call_does(device):
    """The code waits for what another thread of Python writes; after 20 s it gives up."""

    def waiting(text):
        head, name = "void run_sequence(void **args) {", "n"
        body = f"""{head}
    volatile int64_t *{name} = args[0];
    struct timespec now, begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    {name}[1] = 1;
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ({name}[0] == 0 && now.tv_sec - begin.tv_sec < 20);
    {name}[2] = {name}[0];
}}
"""
        return "#include <time.h>\n" + text.split(head)[0] + body

    g = tuned(device, count, np.zeros(5, np.int64), 1, change=waiting)
    n = np.zeros(5, np.int64)
    thread = threading.Thread(target=g, args=(n, 1))
    thread.start()
    while n[1] == 0:
        pass
    n[0] = 1
    thread.join()
    assert n[2] == 1


def test_a_forked_child_calls_again(f):
    """A child has one thread: it must not wait for the team that its parent had."""
    a, x, y, w = arguments()
    f(a, x, y, w, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of forking beside threads, of newer Pythons
        child = os.fork()
    if child == 0:
        signal.alarm(30)  # ends a child that waits for ever
        y[:] = w[:] = 0
        f(a, x, y, w, 0.5)
        os._exit(0 if right(a, x, y, w, 0.5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    y[:] = w[:] = 0
    f(a, x, y, w, 0.5)
    assert right(a, x, y, w, 0.5)


def test_what_c_callers_get_is_right(f):
    """The pointer takes a vector of pointers in the order of `arguments`, with a workspace of the size that is said there."""
    a, x, y, w = arguments()
    scale = ctypes.c_float(0.5)
    [workspace] = [z for z in f.arguments if z.kind == "workspace"]
    held = CpuArray(workspace.shape, np.dtype(np.uint8))
    places = {"a": a, "x": x, "y": y, "w": w, "workspace": held.host}
    pointers = (ctypes.c_void_p * len(f.arguments))(
        *(
            ctypes.addressof(scale) if z.kind == "scalar" else places[z.name].ctypes.data
            for z in f.arguments
        )
    )
    f.pointer(pointers)
    assert right(a, x, y, w, 0.5)
    assert held.trespass() is None
    assert f"_WORKSPACE_BYTES {workspace.shape[0]}\n" in f.header
    order = [f.header.index(text) for text in ("*a,", "*x,", "*y,", "*w,", "float scale,")]
    assert order == sorted(order)


def test_a_header_that_is_missing_is_no_failure(cpu, monkeypatch):
    monkeypatch.setattr(calling, "header_folders", lambda: ())
    built = calling.build_extension(cpu.builder.compiler, DeviceOptions())
    assert "python3-dev" in built.advice
    assert calling.load_extension(cpu.builder.compiler, DeviceOptions()) is None


@ks.kernel
def scatter(idx: ks.types.ndarray(), v: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(idx.shape[0]):
        y[idx[i]] += v[i]


def test_an_index_out_of_range_is_found_before_anything_is_written(device):
    y = np.zeros(6, np.float32)
    idx, v = np.array([0, 5, 5], np.int32), np.ones(3, np.float32)
    g = tuned(device, scatter, idx, v, y)
    g(idx, v, y)
    assert y.tolist() == [1, 0, 0, 0, 0, 2]
    for bad in (6, -1, 2**31 - 1):
        with pytest.raises(IndexError) as caught:
            g(np.array([0, 1, bad], np.int32), v, y)
        assert f"of y is {bad} and must be from 0 to 5 (axis 0; kernel scatter" in str(caught.value)
        assert y.tolist() == [1, 0, 0, 0, 0, 2]


def test_checks_of_indices_can_be_left_out(cpu):
    y = np.zeros(6, np.float32)
    idx, v = np.zeros(3, np.int32), np.ones(3, np.float32)
    g = tuned(cpu, scatter, idx, v, y)
    assert g._module.index_check is not None
    recording = record_sequence(scatter, (idx, v, y), "scatter")
    rebuilt = RebuiltRecord(recording, g._problem, None, None, g._source, ())
    unchecked = make_tuned(g._signature.parameters, rebuilt, cpu, check_indices=False)
    assert unchecked._module.index_check is None
    unchecked(idx, v, y)
    assert y.tolist() == [3, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("shape", [(), 0, 7, (3, 5), (0, 4), (1 << 20, 2)])
@pytest.mark.parametrize("dtype", [ks.f32, np.float64, "int32"])
def test_empty_arrays_begin_at_a_cache_line(shape, dtype):
    array = ks.empty(shape, dtype)
    assert type(array) is np.ndarray
    assert array.shape == np.empty(shape, bool).shape
    assert array.dtype == (np.float32 if dtype is ks.f32 else np.dtype(dtype))
    assert array.size == 0 or array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous and array.flags.aligned and array.flags.writeable
    array[...] = 3
    assert (array == 3).all()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_large_empty_arrays_ask_for_huge_pages_and_begin_at_different_lines():
    arrays = [ks.empty(1 << 20, ks.f64) for _ in range(4)]
    assert len({a.ctypes.data % 4096 for a in arrays}) == 4
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            begin, end = (int(x, 16) for x in found.groups())
            inside = begin <= arrays[0].ctypes.data < end
        elif inside and line.startswith("VmFlags:"):
            flags = line
    assert not flags or " hg" in flags or not Path("/sys/kernel/mm/transparent_hugepage").exists()


@pytest.mark.parametrize(
    ("shape", "dtype", "error"),
    [(-1, "f4", ValueError), (2.5, "f4", TypeError), ((2, -3), "f4", ValueError), (2, object, TypeError), ("x", "f4", TypeError)],
)  # fmt: skip
def test_empty_arrays_that_cannot_be_are_refused(shape, dtype, error):
    with pytest.raises(error):
        ks.empty(shape, dtype)


def test_the_emulator_is_called_in_the_same_way(tmp_path):
    pytest.importorskip("kernelscape.runtime.emulator")
    device = open_device("emulator", DeviceOptions(build_folder=tmp_path))
    n = np.zeros(5, np.int64)
    g = tuned(device, count, n, 1)
    g(step=2, n=n)
    assert (n == 2).all()
    with pytest.raises(TypeError, match="there is no argument m"):
        g(n, m=1)
    with pytest.raises(TypeError, match="no function that C could call"):
        _ = g.pointer
