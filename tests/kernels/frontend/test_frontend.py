"""Errors of the language: each names the construct, the file and the line marked `# here`."""

import inspect
import re

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.frontend.kernel import kernel
from kernelscape.kernels.ir.kernel import For, Load
from kernelscape.kernels.ir.walk import walk

# The functions below are only read: decorators of `bad` compile them in the test.
BAD = []


def bad(message):
    def add(fn):
        BAD.append(pytest.param(fn, message, id=fn.__name__))
        return fn

    return add


@bad("with is not supported")
def with_block(x: ks.types.ndarray()):
    with open("file") as f:  # here
        x[0] = f


@bad("try is not supported")
def try_block(x: ks.types.ndarray()):
    try:  # here
        x[0] = 1
    finally:
        pass


@bad("a lambda")
def lambdas(x: ks.types.ndarray()):
    f = lambda v: v  # noqa: E731  # here
    x[0] = f(1)


@bad("for-else")
def for_else(x: ks.types.ndarray()):
    for i in range(2):  # here
        x[i] = 0
    else:
        x[2] = 1


@bad("a slice of x")
def slices(x: ks.types.ndarray()):
    x[1:] = 0  # here


@bad("@ takes vectors or matrices")
def matmul_operator(x: ks.types.ndarray()):
    x[0] = x[1] @ x[2]  # here


def undecorated(x):
    x[0] = 1


@bad("`undecorated` cannot be called in a kernel: decorate it with @ks.func")
def calls_python(x: ks.types.ndarray()):
    undecorated(x)  # here


@bad("the name `missing` has no value")
def undefined(x: ks.types.ndarray()):
    x[0] = missing  # noqa: F821  # here


@bad("the name `later` has no value")
def used_before(x: ks.types.ndarray()):
    x[0] = later  # noqa: F821  # here
    later = 1  # noqa: F841


@bad("the name `v` ends with the block")
def out_of_scope(x: ks.types.ndarray()):
    for i in range(2):
        v = x[i]
    x[0] = v  # here


@bad("the loop index `i` is assigned to")
def assigns_index(x: ks.types.ndarray()):
    for i in range(2):
        i = 3  # here
        x[0] = i


@bad("the loop index `i` is assigned to")
def updates_index(x: ks.types.ndarray()):
    for i in range(2):
        i += 3  # here
        x[0] = i


@bad("the loop index `i` is the index of a loop around")
def same_index(x: ks.types.ndarray()):
    for i in range(2):
        for i in range(2):  # here
            x[i] = i


@bad("the array `x` is assigned as a whole")
def assigns_array(x: ks.types.ndarray()):
    x = 3  # noqa: F841  # here


@bad("reaches 4, outside 0..3")
def beyond_the_end(x: ks.types.ndarray()):
    for i in range(x.shape[0]):
        x[i] = x[i + 1]  # here


@bad("reaches -1, outside 0..3")
def before_the_start(x: ks.types.ndarray()):
    x[0] = x[-1]  # here


@bad("x has 1 dimension but is indexed with 2")
def too_many_indices(x: ks.types.ndarray()):
    x[0, 0] = 1  # here


@bad("is f64 where an integer is needed")
def float_index(x: ks.types.ndarray()):
    x[x[0]] = 1  # here


@bad("the step of range")
def zero_step(x: ks.types.ndarray()):
    for i in range(0, 4, 0):  # here
        x[i] = 1


@bad("is an array where a number is needed")
def whole_array(x: ks.types.ndarray()):
    x[0] = x + 1  # here


@bad("needs `v` when the kernel is compiled")
def static_of_runtime(x: ks.types.ndarray()):
    v = x[0]
    if ks.static(v > 0):  # here
        x[0] = 1


@bad("division by zero")
def constant_division(x: ks.types.ndarray()):
    x[0] = 1 / 0  # here


@bad("the array attribute `.T`")
def transposed(x: ks.types.ndarray()):
    x[0] = x.T[0]  # here


@bad("has no effect")
def no_effect(x: ks.types.ndarray()):
    x[0] == 1  # noqa: B015  # here


@bad("keyword arguments")
def keyword(x: ks.types.ndarray()):
    x[0] = max(x[0], x[1], key=abs)  # here


@bad("2 names for 1 values")
def unpacks(x: ks.types.ndarray()):
    n, m = x.shape  # here
    x[n - m] = 0


@bad("`ks.ndrange(2, 2)` has 2 indices for 1 names")
def grouped(x: ks.types.ndarray()):
    for _ in ks.ndrange(2, 2):  # here
        x[0] = 0


@bad("`in` takes a tuple in a kernel")
def membership(x: ks.types.ndarray()):
    x[0] = 1 if x[0] in x else 0  # here


@pytest.mark.parametrize(("fn", "message"), BAD)
def test_error_names_construct_file_and_line(fn, message):
    lines, first = inspect.getsourcelines(fn)
    line = first + next(k for k, text in enumerate(lines) if text.rstrip().endswith("# here"))
    with pytest.raises(LanguageError) as caught:
        kernel(fn).instantiate(np.zeros(4))
    assert message in str(caught.value)
    assert re.search(rf"test_frontend\.py:{line}: ", str(caught.value))
    assert "\n" not in str(caught.value)


@kernel
def two(x: ks.types.ndarray(dtype=ks.f64, ndim=1), alpha):
    x[0] = alpha


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((np.zeros(4),), r"takes 2 arguments \(x, alpha\), this call gives 1"),
        ((np.zeros(4), 1, 2), "this call gives 3"),
        ((np.zeros(4, "f8,f4")["f0"], 1), "x of the kernel two lie at no multiples of their size"),
        (
            (np.zeros(4, np.complex64), 1),
            "annotated with real elements, those of this array are complex",
        ),
        ((np.zeros(4, "U1"), 1), "elements of type <U1"),
        ((np.zeros(4, np.float32), 1), "annotated f64, this array is f32"),
        ((np.zeros((4, 4)), 1), "annotated with 1 dimensions"),
        (([1, 2], 1), "must be a NumPy array, not list"),
        ((np.zeros(4), "one"), "must be a number, not str"),
        ((np.zeros(4), np.zeros(4)), "alpha of the kernel two is an array: annotate it"),
    ],
)
def test_wrong_arguments_are_told_at_the_call(args, message):
    here = inspect.currentframe().f_lineno
    with pytest.raises(LanguageError, match=message) as caught:
        two(*args)
    assert f"test_frontend.py:{here + 2}: " in str(caught.value)


def test_an_int_argument_refuses_floats():
    @kernel
    def counted(x: ks.types.ndarray(), n: ks.i32):
        x[0] = n

    with pytest.raises(LanguageError, match="annotated i32 but this call gives a float"):
        counted(np.zeros(1), 2.5)


def test_one_memory_of_two_types_is_refused():
    @kernel
    def copy(x: ks.types.ndarray(), y: ks.types.ndarray()):
        y[0] = x[0]

    a = np.zeros(4)
    with pytest.raises(LanguageError, match="x and y of the kernel copy share memory and have"):
        copy(a, a.view(np.int64)[1:])


def test_a_kernel_without_source_is_told_so():
    names = {}
    exec("def typed(x):\n    x[0] = 1\n", names)
    with pytest.raises(
        LanguageError, match=r"source of typed cannot be read.*put the kernel into a file"
    ):
        kernel(names["typed"]).instantiate(1.0)


def test_a_kernel_in_a_kernel_is_refused():
    @kernel
    def outer(x: ks.types.ndarray()):
        two(x, 1.0)

    with pytest.raises(
        LanguageError, match="`two` cannot be called in a kernel: call it from a sequence"
    ):
        outer.instantiate(np.zeros(4))


def test_endless_inlining_is_refused():
    @ks.func
    def again(v):
        return again(v)

    @kernel
    def starts(x: ks.types.ndarray()):
        x[0] = again(x[0])

    with pytest.raises(LanguageError, match="again calls itself"):
        starts.instantiate(np.zeros(1))


def test_indices_beyond_the_array_are_allowed_under_a_condition():
    @kernel
    def guarded(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(x.shape[0]):
            if i > 0:
                y[i] = x[i - 1]

    y = np.zeros(4)
    guarded(np.arange(4.0), y)
    assert y.tolist() == [0, 0, 1, 2]


def test_only_indices_that_may_leave_the_array_are_clamped():
    @kernel
    def clamped(x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i] if i > 1 else x[i - 1]

    ir = clamped.instantiate(np.zeros(4), np.zeros(4))
    loads = [e for e in walk(ir.body[0].body[0].value) if isinstance(e, Load)]
    assert [type(e.indices[0]).__name__ for e in loads] == ["LoopIndex", "Binary"]


def test_extents_may_depend_on_indices_and_memory():
    @kernel
    def rows(start: ks.types.ndarray(), x: ks.types.ndarray(), y: ks.types.ndarray()):
        for i in range(y.shape[0]):
            for p in range(start[i], start[i + 1]):
                y[i] += x[p]

    y = np.zeros(3)
    start = np.array([0, 2, 2, 4], np.int32)
    rows(start, np.arange(4.0), y)
    assert y.tolist() == [1, 0, 5]
    outer = rows.instantiate(start, np.arange(4.0), y).body[0]
    assert isinstance(outer, For)
    assert outer.extent.value == 3


def test_errors_in_a_func_are_told_where_they_are_written():
    @ks.func
    def wrong(v):
        return v.real  # here

    @kernel
    def uses(x: ks.types.ndarray()):
        x[0] = wrong(x[0])

    lines, first = inspect.getsourcelines(wrong.fn)
    line = first + next(k for k, text in enumerate(lines) if "# here" in text)
    with pytest.raises(
        LanguageError, match=rf"test_frontend\.py:{line}: `\.real` is not supported"
    ):
        uses.instantiate(np.zeros(1))
