"""Recording of kernel sequences."""

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.kernel import template
from kernelscape.kernels.frontend.recorder import ndarray, record, record_sequence
from kernelscape.kernels.interpret.executor import interpret
from kernelscape.kernels.ir.kernel import ArrayParam, Cast, Const, DType, Param
from kernelscape.kernels.ir.text import show_expr
from kernelscape.kernels.ir.verify import check
from kernelscape.testing.interpreted import run_reference


@ks.kernel
def axpy(x: ks.types.ndarray(), y: ks.types.ndarray(), alpha):
    for i in range(x.shape[0]):
        y[i] += alpha * x[i]


@ks.kernel
def copy(x: ks.types.ndarray(), y: ks.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = x[i]


@ks.kernel
def exact(y: ks.types.ndarray(), alpha: ks.f64, k: int):
    for i in range(y.shape[0]):
        y[i] = alpha * k


def vectors(dtype=np.float32, n=5):
    rng = np.random.default_rng(0)
    return rng.random(n).astype(dtype), rng.random(n).astype(dtype)


def test_a_recording_holds_parameters_temporaries_and_calls():
    def seq(x, y, alpha):
        t = ndarray(ks.f32, x.shape)
        copy(x, t)
        axpy(t, y, 2 * alpha - 1)
        axpy(t, y, alpha=3)

    x, y = vectors()
    before = y.copy()
    r = record_sequence(seq, (x, y, 0.5))
    assert (y == before).all()
    assert r.name == "seq"
    assert r.arrays == (ArrayParam("x", DType.f32, (5,)), ArrayParam("y", DType.f32, (5,)))
    assert r.temps == (ArrayParam("tmp0", DType.f32, (5,)),)
    assert r.scalars == (Param("alpha", DType.f32),)
    assert [(c.ir.name, c.arrays) for c in r.calls] == [
        ("copy", ("x", "tmp0")),
        ("axpy", ("tmp0", "y")),
        ("axpy", ("tmp0", "y")),
    ]
    assert show_expr(r.calls[1].scalars[0]) == "2.0 * alpha - 1.0"
    assert r.calls[2].scalars == (Const(3, DType.i64),)
    line = seq.__code__.co_firstlineno
    assert [c.where.line - line for c in r.calls] == [2, 3, 4]
    assert all(c.where.file == __file__ for c in r.calls)
    for c in r.calls:
        check(c.ir)


def test_scalars_have_the_type_the_kernel_asks_for():
    def seq(y, alpha, k):
        exact(y, alpha, k + 1)
        exact(y, k / 2, k)

    r = record_sequence(seq, (vectors()[0], 0.5, 2))
    assert r.scalars == (Param("alpha", DType.f32), Param("k", DType.i64))
    assert r.calls[0].scalars[0] == Cast(Param("alpha", DType.f32), DType.f64)
    assert all(c.scalars[0].dtype is DType.f64 and c.scalars[1].dtype is DType.i64 for c in r.calls)


@pytest.mark.parametrize(("dtype", "expected"), [(np.float32, DType.f32), (np.float64, DType.f64)])
def test_python_floats_take_the_type_of_the_arrays(dtype, expected):
    r = record_sequence(lambda x, y, a: axpy(x, y, a), (*vectors(dtype), 0.1))
    assert r.scalars == (Param("a", expected),)


def test_names_of_arrays_and_temporaries():
    def seq(*v, tmp0=None):
        t = ndarray(ks.f64, 5)
        u = ndarray("float64", (5,), name="u")
        copy(v[0], t)
        copy(t, u)
        copy(u, v[1])

    r = record_sequence(seq, vectors(np.float64), name="chain")
    assert r.name == "chain"
    assert [p.name for p in r.arrays] == ["v0", "v1"]
    assert [p.name for p in r.temps] == ["tmp0", "u"]


def test_templates_and_other_objects_are_passed_as_they_are():
    def seq(x, y, n: template(), flag):
        for _ in range(n):
            if flag == "go":
                copy(x, y)

    r = record_sequence(seq, (*vectors(), 3, "go"))
    assert len(r.calls) == 3
    assert r.scalars == ()


def test_a_kernel_is_a_sequence_of_one_call():
    r = record_sequence(axpy, (*vectors(), 2.0))
    assert r.name == "axpy"
    assert [c.arrays for c in r.calls] == [("x", "y")]


def test_one_array_twice_in_a_call_is_one_parameter():
    r = record_sequence(lambda x, y: axpy(x, x, 2.0), vectors())
    assert r.calls[0].arrays == ("x",)
    x, y = vectors()
    found = run_reference(r, {"x": x, "y": y}, {})
    np.testing.assert_allclose(found["x"], 3 * x, rtol=1e-6)


def test_record_names_arrays_as_they_come():
    x, y = vectors()
    with record() as rec:
        copy(x, y)
        axpy(y, x, 2.0)
    assert [c.arrays for c in rec.calls] == [("a0", "a1"), ("a1", "a0")]
    assert not (x == y).all()
    axpy(x, y, 1.0)
    assert len(rec.calls) == 2


def test_interpret_runs_calls_at_once_within_a_recording():
    x, y = vectors()
    with record() as rec, interpret():
        copy(x, y)
    assert rec.calls == ()
    assert (x == y).all()


def test_ndarray_outside_a_recording_is_an_array_of_its_own():
    a = ndarray(ks.i32, (2, 3))
    assert isinstance(a, ks.Ndarray)
    assert a.array.dtype == np.int32
    assert a.shape == (2, 3)
    assert not a.to_numpy().any()


def branches(x, y, alpha):
    if alpha > 0:
        copy(x, y)


def takes_truth(x, y, alpha):
    if alpha:
        copy(x, y)


def counts(x, y, alpha):
    for _ in range(alpha):
        copy(x, y)


def reads(x, y, alpha):
    if x[0]:
        copy(x, y)


def adds(x, y, alpha):
    copy(x + y, y)


OUTSIDE = np.zeros(5, np.float32)


def captures(x, y, alpha):
    copy(OUTSIDE, y)


def does_nothing(x, y, alpha):
    pass


def asks_numpy(x, y, alpha):
    axpy(x, np.empty_like(x), alpha)


def asks_for_a_sum(x, y, alpha):
    if x.sum() > alpha:
        axpy(x, y, alpha)


def compares(x, y, alpha):
    if x > 0:
        axpy(x, y, alpha)


@pytest.mark.parametrize(
    ("seq", "alpha", "message"),
    [
        (branches, 0.5, "may not branch on a scalar argument"),
        (takes_truth, 0.5, "may not branch on a scalar argument"),
        (counts, 2, "or turn it into a Python number.*ks.template"),
        (reads, 0.5, "elements of the array x outside a kernel"),
        (adds, 0.5, "elements of the array x outside a kernel"),
        (captures, 0.5, "no argument of the sequence"),
        (asks_numpy, 0.5, "elements of the array x.*make temporaries with ks.ndarray"),
        (asks_for_a_sum, 0.5, r"used `.sum` of the array x: .*write a kernel"),
        (compares, 0.5, "elements of the array x outside a kernel"),
        (does_nothing, 0.5, "the sequence does_nothing calls no kernel"),
    ],
)
def test_what_a_sequence_may_not_do(seq, alpha, message):
    with pytest.raises(LanguageError, match=message) as caught:
        record_sequence(seq, (*vectors(), alpha))
    assert "test_sequence.py:" in str(caught.value)


def test_arguments_of_a_sequence():
    x, y = vectors()

    def seq(x, y):
        copy(x, y)

    with pytest.raises(LanguageError, match="cannot be called with 1 arguments"):
        record_sequence(seq, (x,))
    with pytest.raises(LanguageError, match="arrays x and y of the sequence share memory"):
        record_sequence(seq, (x, x))
    assert record_sequence(seq, (x[::2], y)).arrays[0].shape == (3,)
    with pytest.raises(LanguageError, match="takes an element type and a shape"):
        record_sequence(lambda x, y: ndarray(ks.f32, "ab"), (x, y))


def test_a_kernel_alone_is_blamed_where_it_is_written():
    @ks.kernel
    def plane(x: ks.types.ndarray(ndim=2)):
        for i in range(x.shape[0]):
            x[i, 0] = 1.0

    with pytest.raises(LanguageError, match="annotated with 2 dimensions") as caught:
        record_sequence(plane, (vectors()[0],))
    assert "test_sequence.py:" in str(caught.value)


@pytest.mark.parametrize(("k", "dtype"), [(2**70, "i64"), (-(2**63) - 1, "i64")])
def test_a_whole_number_that_no_type_holds(k, dtype):
    def seq(y, k):
        exact(y, 0.5, k)

    with pytest.raises(LanguageError, match=f"is {k}, which {dtype} cannot hold"):
        record_sequence(seq, (vectors()[1], k))
    with pytest.raises(LanguageError, match=f"is {k}, which {dtype} cannot hold"), ks.interpret():
        exact(vectors()[1], 0.5, k)


def test_reference_in_higher_precision():
    def seq(x, y, alpha):
        t = ndarray(ks.f32, x.shape)
        copy(x, t)
        axpy(t, y, alpha * alpha)

    x, y = vectors()
    arrays = {"x": x, "y": y}
    r = record_sequence(seq, (x, y, 0.1))
    near = run_reference(r, arrays, {"alpha": 0.1})
    wide = run_reference(r, arrays, {"alpha": 0.1}, dtype=np.float64)
    assert near["y"].dtype == np.float32
    assert wide["y"].dtype == wide["tmp0"].dtype == np.float64
    np.testing.assert_array_equal(
        wide["y"], y.astype(np.float64) + 0.1 * 0.1 * x.astype(np.float64)
    )
    np.testing.assert_allclose(near["y"], wide["y"], rtol=1e-6)
    assert (y == vectors()[1]).all()
