"""Numbers that calls are given, of every type that a scalar may have, at both ends of it, and by both ways to call."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.ir.kernel import DType
from kernelscape.runtime.cpu import calling
from kernelscape.runtime.engine.engine import Engine, EngineOptions

from .test_calls import WAYS, tuned

pytestmark = pytest.mark.compiler
INTEGERS = [d for d in DType if d.is_integer]
FLOATS = [d for d in DType if d.is_float]
LARGEST = {d: float(np.finfo(d.value).max) for d in FLOATS}
EXTREMES = (
    {d: (*d.range, 0, 1) for d in INTEGERS}
    | {d: (2.5, -m, m, float(np.finfo(d.value).tiny), math.inf, -math.inf, math.nan, -0.0) for d, m in LARGEST.items()}
    | {DType.bool_: (False, True)}
)  # fmt: skip
BEYOND = {d: (d.range[0] - 1, d.range[1] + 1) for d in INTEGERS} | {
    d: (4 * m,) for d, m in LARGEST.items() if m < 1e300
}


def is_same(found: np.ndarray, wanted: object) -> bool:
    """To the last bit, but for what a NaN holds."""
    right = np.array([wanted], found.dtype)
    return bool(np.isnan(wanted) and np.isnan(found[0])) or found.tobytes() == right.tobytes()


@contextmanager
def called(way: str) -> Iterator[None]:
    """Through the extension, or as without Python's header."""
    if way == "compiled" and not calling.header_folders():
        pytest.skip("Python.h is not installed")
    with pytest.MonkeyPatch.context() as patch:
        if way == "plain":
            patch.setattr(calling, "header_folders", lambda: ())
        yield


@pytest.fixture(scope="module", params=WAYS)
def engine(request, tmp_path_factory):
    with called(request.param):
        made = Engine(EngineOptions(folder=tmp_path_factory.mktemp("kernels"), cores=1))
        assert (made._load_extension() is None) == (request.param == "plain")
        made._extension = made._pool.submit(made._load_extension)
        made._extension.result()  # once and for all
    return made


def kernel_of(dtype: DType):
    """It stores its number; of a truth value, which branch it takes."""

    @ks.kernel
    def keep(y: ks.types.ndarray(), a: dtype):
        for i in range(y.shape[0]):
            y[i] = a

    @ks.kernel
    def take(y: ks.types.ndarray(), a: bool):
        for i in range(y.shape[0]):
            y[i] = 0
            if a:
                y[i] = 1

    return take if dtype is DType.bool_ else keep


def array_for(dtype: DType) -> np.ndarray:
    return np.full(1, 3, np.int32 if dtype is DType.bool_ else dtype.numpy)


@pytest.mark.parametrize("dtype", EXTREMES)
def test_kernels_get_the_number_that_is_given(engine, dtype):
    y = array_for(dtype)
    ir = kernel_of(dtype).instantiate(y, EXTREMES[dtype][0])
    assert [p.dtype for p in ir.scalars] == [dtype]
    caller = engine.prepared(ir)
    for value in EXTREMES[dtype]:
        y[0] = 3
        assert caller(y, value)  # at once: nothing is wrong with it
        assert is_same(y, value)
        y[0] = 3
        engine.run(ir, (y,), (dtype.numpy.type(value),))  # of NumPy
        assert is_same(y, value)
    for value in BEYOND.get(dtype, ()):
        with pytest.raises(TypeError, match=f"argument a must fit {dtype.value}"):
            engine.run(ir, (y,), (value,))


@ks.kernel
def place(y: ks.types.ndarray(), at: ks.types.ndarray(), a: bool, b: ks.f16):
    for i in range(at.shape[0]):
        if a:
            y[at[i] + int(b)] = 1


def test_indices_outside_are_told_of_with_numbers_of_every_size(engine):
    """The search for a wrong index reads the same numbers as the code."""
    y, at = np.zeros(4), np.array([2], np.int32)
    ir = place.instantiate(y, at, True, 1.5)
    engine.run(ir, (y, at), (False, 2.0))
    assert not y.any()
    engine.run(ir, (y, at), (True, 1.5))
    assert y.tolist() == [0, 0, 0, 1]
    with pytest.raises(IndexError, match="is 4 and must be from 0 to 3"):
        engine.run(ir, (y, at), (True, 2.0))


@pytest.fixture(params=WAYS)
def device(request, cpu):
    with called(request.param):
        yield cpu


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_tuned_code_gets_the_number_that_is_given(device, dtype):
    """Truth values are constants of it."""
    keep = kernel_of(dtype)

    def sequence(y, a: dtype):
        keep(y, a)

    y = array_for(dtype)
    f = tuned(device, sequence, y, EXTREMES[dtype][0])
    assert [p.dtype for p in f._signature.scalars.values()] == [dtype]
    for value in EXTREMES[dtype]:
        y[0] = 3
        assert f._caller(y, value)
        assert is_same(y, value)
        y[0] = 3
        f._module.run([y, value])  # what is not quick
        assert is_same(y, value)
        y[0] = 3
        f(y, dtype.numpy.type(value))
        assert is_same(y, value)
    for value in BEYOND.get(dtype, ()):
        with pytest.raises(TypeError, match=f"argument a must fit {dtype.value}"):
            f(y, value)
