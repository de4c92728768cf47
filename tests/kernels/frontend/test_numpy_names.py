"""Names of NumPy and Python in kernels mean what they mean outside."""

import contextlib
import math

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError
from kernelscape.kernels.interpret.executor import interpret

nd = ks.types.ndarray()
OF_ONE = """abs absolute fabs sign square negative positive reciprocal cbrt sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan
arcsin arccos arctan sinh cosh tanh arcsinh arctanh floor ceil trunc rint round around fix deg2rad rad2deg radians degrees isnan
isinf isfinite signbit float32 float64 int32 int64 bool_ logical_not"""
OF_TWO = """maximum minimum fmax fmin hypot arctan2 power float_power mod remainder fmod floor_divide divide true_divide add
subtract multiply copysign heaviside logaddexp greater less equal not_equal greater_equal less_equal
logical_and logical_or logical_xor"""
OF_WHOLE = "bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd lcm floor_divide mod"
OF_MATH = """math.pi * p; math.tau * p; math.inf * p; math.sqrt(abs(p)); math.atan2(p, q); math.asin(p); math.sinh(p); math.tanh(p);
math.log1p(p + 1); math.expm1(p); math.hypot(p, q); math.ceil(p); math.floor(p); math.trunc(9 * p); math.fmod(p, q);
math.copysign(p, q); math.degrees(p); math.radians(p); math.isfinite(p); math.log(abs(p), 2); math.cbrt(p); math.exp2(p);
math.isclose(p, q); math.pow(abs(p), q); round(p); round(p, 1); min(p, q, 0.0); max(p, q); abs(p); pow(abs(p), 2); divmod(p, q)[0];
divmod(p, q)[1]; sum((p, q)); any((p > 0, q > 0)); all((p > 0, q > 0)); float(p); int(9 * p); bool(p)"""
OF_VECTORS = """np.sum(np.array([p, q, 1.0])); np.prod(np.array([p, q])); np.max(np.array([p, q])); np.min(np.array([p, q]));
np.mean(np.array([p, q])); np.any(np.array([p, q]) > 0); np.all(np.array([p, q]) > 0); np.linalg.norm(np.array([p, q]));
np.dot(np.array([p, 1.0]), np.array([q, 2.0])); np.cross(np.array([p, q, 1.0]), np.array([1.0, 2.0, 3.0]))[1];
np.outer(np.array([p, 1.0]), np.array([q, 2.0]))[0, 1]; np.trace(np.array([[p, 1.0], [2.0, q]]));
np.transpose(np.array([[p, 1.0], [2.0, q]]))[0, 1]; np.linalg.det(np.array([[p, 1.0], [2.0, q]]));
np.linalg.inv(np.array([[p, 1.0], [2.0, q]]))[0, 1]; (np.array([[p, 1.0], [2.0, q]]) @ np.array([q, 1.0]))[0];
np.eye(3)[1, 1] + np.identity(2)[0, 1]; np.arange(4)[2]; np.array([p, q], dtype=np.float32).sum(); np.stack([p, q])[0];
np.zeros(3)[1] + np.ones(3)[2] + np.full(2, p)[0]; np.select([p > 0, q > 0], [p, q], 7.0); np.clip(p, -0.5, 0.5); np.pi + np.e;
np.finfo(np.float64).eps * p; np.iinfo(np.int32).max + p; np.where(p > q, p, q);
np.inner(np.array([[p, q], [1.0, 2.0]]), np.array([[q, 3.0], [p, 4.0]]))[0, 1]; np.inner(np.array([p, q]), np.array([q, 2.0]));
np.vdot(np.array([[p, q], [1.0, 2.0]]), np.array([[q, 3.0], [p, 4.0]])); np.dot(p, q); np.dot(np.array([p, q]), p)[1];
np.inner(np.array([p, q]), np.array([[q, 3.0], [p, 4.0]]))[1]; np.arange(2, 5)[1] * p; np.arange(5, 0, -2)[2] * q;
np.roll(np.array([p, q, 1.0]), 1)[0]; np.roll(np.array([p, q, 1.0]), -4)[1]; np.roll(np.array([[p, q], [1.0, 2.0]]), 1)[1, 0];
np.roll(np.array([[p, q], [1.0, 2.0]]), 1, axis=1)[0, 1]; np.roll(np.array([[p, q], [1.0, 2.0]]), shift=1, axis=-2)[1, 1]"""


def one_kernel(folder, expressions, dtype, numbers=None):
    """A kernel of all the expressions of p and q, and its results."""
    lines = [f"        r[i, {k}] = {e.strip()}" for k, e in enumerate(expressions)]
    head = "def names(x: nd, y: nd, r: nd):\n    for i in range(x.shape[0]):\n        p, q = x[i], y[i]\n"
    file = folder / "names.py"
    file.write_text(head + "\n".join(lines) + "\n")
    found = {"nd": nd, "np": np, "math": math, "ks": ks}
    exec(compile(file.read_text(), str(file), "exec"), found)
    x = np.array([3, -7, 12, 0] if dtype is np.int64 else [0.3, -0.6, 0.9, -0.75], dtype)
    y = np.array([2, 5, 3, 4] if dtype is np.int64 else [0.5, 0.25, -0.75, -0.5], dtype)
    if numbers is not None:
        x, y = (n.ravel() for n in np.meshgrid(numbers, numbers))
    r = np.zeros((len(x), len(expressions)))
    ks.kernel(found["names"])(x, y, r)
    with np.errstate(all="ignore"):
        want = [
            [eval(e, found, {"p": p, "q": q}) for e in expressions]
            for p, q in zip(x, y, strict=True)
        ]
    for k, e in enumerate(expressions):
        np.testing.assert_allclose(r[:, k], [row[k] for row in want], 1e-12, 1e-15, err_msg=e)


@pytest.mark.filterwarnings("ignore")
def test_functions_of_numpy(tmp_path):
    one_kernel(
        tmp_path,
        [*(f"np.{f}(p)" for f in OF_ONE.split()), *(f"np.{f}(p, q)" for f in OF_TWO.split())],
        np.float64,
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", [contextlib.nullcontext, interpret])
def test_functions_of_numbers_that_end_or_begin_the_line(tmp_path, where):
    names = ["sign", "cbrt", "signbit", "isfinite"]
    of_two = [
        "fmax",
        "fmin",
        "copysign",
        "heaviside",
        "logaddexp",
        "hypot",
        "arctan2",
        "logical_xor",
    ]
    expressions = [*(f"np.{f}(p)" for f in names), *(f"np.{f}(p, q)" for f in of_two)]
    numbers = [0.0, -0.0, 1.0, -2.5, 1e-10, -1e300, math.inf, -math.inf, math.nan]
    with where():
        one_kernel(tmp_path, [*expressions, "math.isclose(p, q)"], np.float64, numbers)


def test_functions_of_math_and_python(tmp_path):
    one_kernel(tmp_path, [e.strip() for e in OF_MATH.split(";")], np.float64)


def test_functions_of_small_vectors(tmp_path):
    one_kernel(tmp_path, [e.strip() for e in OF_VECTORS.split(";")], np.float64)


def test_functions_of_whole_numbers(tmp_path):
    more = ["np.invert(p)", "np.bitwise_not(q)", "math.gcd(p, q)", "math.lcm(p, q)", "np.abs(p)"]
    one_kernel(tmp_path, [*(f"np.{f}(p, q)" for f in OF_WHOLE.split()), *more], np.int64)


def test_a_name_assigned_in_both_branches_has_one_meaning_behind_them():
    @ks.kernel
    def either(x: nd, y: nd):
        for i in x:
            if x[i] > 2:
                a = x[i] * 2
                k = 1
            elif x[i] > 1:
                a, k = 1.5, 2
            else:
                a = 0
                k = 3
            y[i] = a + k

    y = np.zeros(4)
    either(np.array([0.0, 1.5, 2.5, 4.0]), y)
    assert y.tolist() == [3.0, 3.5, 6.0, 9.0]


def own(x):
    return x


@pytest.mark.parametrize(
    ("callee", "advice"),
    [
        (own, "decorate it with @ks.func"),
        (np.spacing, "the language has no such function"),
        (np.median, "the language has no such function"),
        (math.frexp, "the language has no such function"),
        (sorted, "the language has no such function"),
    ],
)
def test_advice_names_what_can_be_done(callee, advice):
    @ks.kernel
    def calling(x: nd):
        for i in x:
            x[i] = callee(x[i])

    with pytest.raises(LanguageError, match=f"cannot be called in a kernel: {advice}"):
        calling.instantiate(np.zeros(3))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("np.linalg.norm(np.array([p, q]), 1)", "takes one vector or matrix in a kernel, and no"),
        ("np.sum(np.array([p, q]), axis=0)", "takes one vector or matrix in a kernel, and no axis"),
        ("np.cross(np.array([p, q]))", "takes two vectors in a kernel"),
        ("np.select([p > 0], [p, q])", "takes two lists of one length"),
        ("np.roll(x, 1)[i]", "of an array read x[(i - shift) % x.shape[0]] in a loop"),
        ("np.roll(np.array([p, q]))[0]", "takes a vector, a shift and an axis"),
        ("np.roll(np.array([p, q]), 1, axis=1)[0]", "there is no axis 1"),
        ("np.roll(np.array([p, q]), p)[0]", "takes whole constants"),
        ("np.arange(p)", "takes whole constants"),
        ("np.arange(1, 5, 0)", "takes a start, a stop and a step"),
        ("np.arange(10**9)[0]", "has 1000000000 numbers, each of them a value of its own"),
        ("np.eye(1000)[0, 0]", "has 1000000 numbers, each of them a value of its own"),
        ("np.array([p, q], 5)", "None is not an element type"),
        ("np.iinfo(bool)", "bool_ has no such limits"),
        ("np.zeros(0)", "has no elements, or no axes"),
        ("np.full(3)", "takes a shape and a number"),
        ("int(p, 2)", "`int` takes 1 argument in a kernel, not 2"),
        ("ks.f32(p, q)", "`ks.f32` takes 1 argument in a kernel, not 2"),
    ],
)
def test_arguments_that_a_name_does_not_take_are_refused(tmp_path, expression, message):
    with pytest.raises(LanguageError) as refused:
        one_kernel(tmp_path, [expression], np.float64)
    assert message in str(refused.value)
