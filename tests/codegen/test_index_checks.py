"""Checks of indices: they say of all arguments what the interpreter finds when it runs the sequence, and its first wrong index."""

from __future__ import annotations

import ctypes

import kernelscape as ks
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernelscape.codegen.bodies.index_checks import index_checks
from kernelscape.codegen.write.program_text import arguments_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.cpu.compiler import find_compiler
from kernelscape.runtime.cpu.index_check import build_check
from kernelscape.runtime.device import DeviceOptions
from kernelscape.testing.interpreted import run_reference


@ks.kernel
def rows(
    ptr: ks.types.ndarray(), col: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray()
):
    for i in range(y.shape[0]):
        acc = 0.0
        for k in range(ptr[i], ptr[i + 1]):
            acc += x[col[k]]
        y[i] = acc


@ks.kernel
def padded(idx: ks.types.ndarray(), x: ks.types.ndarray(), z: ks.types.ndarray(), shift: ks.i32):
    for i in range(idx.shape[0]):
        j = idx[i]
        if j >= 0:
            z[i, j + shift] = x[2 * j]


@ks.kernel
def chained(idx: ks.types.ndarray(), ptr: ks.types.ndarray(), z: ks.types.ndarray()):
    for i in range(idx.shape[0]):
        z[i, ptr[idx[i]] % 3] += 1.0


@ks.kernel
def mark(col: ks.types.ndarray()):
    for k in range(col.shape[0]):
        col[k] = 1


def whole(ptr, col, idx, x, y, z, shift):
    rows(ptr, col, x, y)
    padded(idx, x, z, shift)
    chained(idx, ptr, z)


def late(ptr, col, idx, x, y, z, shift):
    mark(col)  # whatever it was before
    rows(ptr, col, x, y)


SHAPES = {"ptr": (4,), "col": (6,), "idx": (3,), "x": (5,), "y": (3,), "z": (3, 4)}
KINDS = {"ptr": np.int32, "col": np.int64, "idx": np.int64}


def made(sequence, folder):
    args = [np.zeros(shape, KINDS.get(name, np.float32)) for name, shape in SHAPES.items()]
    recording = record_sequence(sequence, (*args, 1), sequence.__name__)
    checks = index_checks(recording, arguments_of(normalise(recording), 0))
    assert checks is not None
    check = build_check(checks, find_compiler(), DeviceOptions(build_folder=folder))
    return recording, check


@pytest.fixture(scope="module", params=[whole, late])
def checked(request, tmp_path_factory):
    return made(request.param, tmp_path_factory.mktemp("build"))


def draw(data, name, low, high):
    n = SHAPES[name][0]
    values = data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n), label=name)
    return np.array(values, KINDS[name])


@pytest.mark.compiler
@given(data=st.data())
def test_a_check_fails_where_the_interpreter_leaves_an_array(checked, data):
    recording, check = checked
    arrays = {name: np.zeros(shape, KINDS.get(name, np.float32)) for name, shape in SHAPES.items()}
    arrays["ptr"] = np.sort(draw(data, "ptr", *data.draw(st.sampled_from([(0, 6), (-1, 7)]))))
    arrays["col"] = draw(data, "col", *data.draw(st.sampled_from([(0, 4), (-1, 5)])))
    arrays["idx"] = draw(data, "idx", *data.draw(st.sampled_from([(-1, 2), (0, 2), (-2, 4)])))
    shift = data.draw(st.integers(-1, 2), label="shift")
    given = {p.name: arrays[p.name] for p in recording.arrays}
    scalars = {p.name: shift for p in recording.scalars}
    try:
        run_reference(recording, given, scalars)
    except IndexError:
        is_right = False
    else:
        is_right = True
    held = {p.name: p.dtype.numpy.type(shift) for p in recording.scalars}
    values = [*given.values(), *(np.array(v) for v in held.values())]
    pointers = (ctypes.c_void_p * len(values))(*(v.ctypes.data for v in values))
    assert check.passes(pointers) == is_right
    wrong = check.wrong(pointers)
    assert (wrong is None) == is_right
    if wrong is not None:
        assert wrong.startswith("the index `") and wrong.endswith("; nothing was written")


@pytest.mark.parametrize("name", names())
def test_dense_sequences_are_not_looked_at(name):
    entry = load(name)
    args = entry.make_arguments(
        entry.complete(dict.fromkeys(entry.sizes, 32)), np.float32, np.random.default_rng(0)
    )
    recording = record_sequence(entry.sequence, args, name)
    assert index_checks(recording, arguments_of(normalise(recording), 0)) is None


@ks.kernel
def upper(a: ks.types.ndarray(), k: ks.i32):
    for i in range(k + 1, a.shape[0]):
        for j in range(i, a.shape[0]):
            for m in range(a.shape[1]):
                a[i, j] -= a[i, m] * a[j, k]


@ks.kernel
def upper_where(c: ks.types.ndarray(), a: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(i, a.shape[0]):
            if c[j] > 0:
                y[i] += a[j + 1]


def test_triangles_are_proved_and_not_looked_at():
    """Also those of a step; what a condition keeps inside, nobody has proved."""

    def steps(a):
        for k in range(8):
            upper(a, k)

    recording = record_sequence(steps, [np.zeros((8, 8))], "steps")
    assert index_checks(recording, arguments_of(normalise(recording), 0)) is None
    recording = record_sequence(upper_where, [np.zeros(8, np.int32), np.zeros(8), np.zeros(8)])
    checks = index_checks(recording, arguments_of(normalise(recording), 0))
    assert [(s.array, s.text) for s in checks.sites] == [("a", "`j + i + 1`")]


@ks.kernel
def named(bad: ks.types.ndarray(), value: ks.types.ndarray(), args: ks.types.ndarray()):
    for i in range(bad.shape[0]):
        value[bad[i]] = args[bad[i]]


@pytest.mark.compiler
def test_arrays_may_have_the_names_of_what_a_check_uses(tmp_path):
    arrays = np.array([0, 2], np.int32), np.zeros(3, np.float32), np.ones(3, np.float32)
    recording = record_sequence(named, arrays, "named")
    checks = index_checks(recording, arguments_of(normalise(recording), 0))
    assert {s.array for s in checks.sites} == {"value", "args"}
    check = build_check(checks, find_compiler(), DeviceOptions(build_folder=tmp_path))
    pointers = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
    assert check.passes(pointers) and check.wrong(pointers) is None
    arrays[0][1] = 3
    assert not check.passes(pointers)
    assert "is 3 and must be from 0 to 2 (axis 0; kernel named" in check.wrong(pointers)


@pytest.mark.compiler
def test_ranges_that_no_memory_has_are_found_without_running_through_them(tmp_path):
    """Ends of rows may be anything: the sum of a beginning and a length may not even fit a number."""
    recording, check = made(whole, tmp_path)
    for low, high in ((0, 2**31 - 1), (-(2**31), 2**31 - 1), (2**31 - 2, 2**31 - 1)):
        arrays = [np.zeros(shape, KINDS.get(name, np.float32)) for name, shape in SHAPES.items()]
        arrays[0][1:] = high
        arrays[0][0] = low
        held = {p.name: a for p, a in zip(recording.arrays, arrays, strict=True)}
        values = [*held.values(), np.array(0, np.int32)]
        pointers = (ctypes.c_void_p * len(values))(*(v.ctypes.data for v in values))
        assert not check.passes(pointers)
        assert check.wrong(pointers) is not None


@ks.kernel
def doubled(idx: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(idx.shape[0]):
        y[i] = x[idx[i] * 2]


@pytest.mark.compiler
def test_indices_of_tuned_code_wrap_around_as_it_does(tmp_path):
    arrays = np.array([0, -(2**31)], np.int32), np.ones(3, np.float32), np.zeros(2, np.float32)
    recording = record_sequence(doubled, arrays, "doubled")
    checks = index_checks(recording, arguments_of(normalise(recording), 0))
    check = build_check(checks, find_compiler(), DeviceOptions(build_folder=tmp_path))
    pointers = (ctypes.c_void_p * 3)(*(a.ctypes.data for a in arrays))
    assert check.passes(pointers)
    arrays[0][1] = 2
    assert "is 4 and must be from 0 to 2" in check.wrong(pointers)
