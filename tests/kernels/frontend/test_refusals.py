"""What a kernel cannot say is one sentence with its line, whatever is wrong with it."""

from __future__ import annotations

import re

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.kernels.frontend.errors import LanguageError

WRONG = {
    "a[0] = ks.bit_cast(a[0])": "takes 2 arguments",
    "a[0] = pow(a[0])": "takes 2 arguments",
    "a[0] = ks.zero()": "takes 1 argument",
    "a[0] = min(a[0], 1.0, **{})": "give arguments one by one",
    "v = ks.Vector()": "takes a list of numbers",
    "v = ks.Vector([1.0, a[0]]); v.fill()": "fill takes one value",
    "v = ks.Vector([1.0, a[0]]); a[0] = v.norm('x')": "cannot be evaluated",
    "v = ks.Vector.zero(ks.f32, 2.5)": "cannot be evaluated",
    "n = int(a[0]); v = np.zeros(n)": "must be a constant",
    "m = ks.Matrix([[1.0, 2.0], [3.0, a[0]]]); a[0] = m[5, :][0]": "there is no component 5, there are 2",
    "v = ks.Vector([1.0, 2.0]); a[0] = v[0:2:0][0]": "leaves a value of 2 components",
    "for i, v in enumerate(a): a[i] = v": "write `for i in range(x.shape[0])`, and x[i]",
    "a[0, 0] = 1.0": "a has 1 dimension but is indexed with 2: write a[i]",
    "ks.static_assert(1 == 2)": "`1 == 2` is false when the kernel is compiled",
    "m = ks.Matrix.zero(ks.f32, 4, 4); u, p = ks.polar_decompose(m)": "takes matrices of 2 x 2 and 3 x 3",
}
WRONG_FOR_NUMPY = {  # in a program these are numbers of its types
    "a[0] = 1 << -1": "shifts by -1 bits",
    "a[0] = (-8.0) ** 0.5": "is no real number",
}


def refused(written, body: str) -> str:
    """The sentence of a kernel in a file of its own."""
    names = written(f"@ks.kernel\ndef f(a: ks.types.ndarray()):\n    {body}")
    with pytest.raises(LanguageError) as error:
        names["f"].instantiate(np.ones(4, np.float32))
    assert re.match(r"\S+/mine\.py:4: ", str(error.value))
    return str(error.value)


@pytest.mark.parametrize("in_program", [False, True])
@pytest.mark.parametrize("body", WRONG)
def test_wrong_calls_are_sentences(written, body: str, in_program: bool) -> None:
    if in_program:
        ks.init()
    try:
        assert WRONG[body] in refused(written, body)
    finally:
        ks.reset()


@pytest.mark.parametrize("body", WRONG_FOR_NUMPY)
def test_constants_without_a_meaning_are_sentences(written, body: str) -> None:
    assert WRONG_FOR_NUMPY[body] in refused(written, body)


def test_a_name_of_one_side_ends_with_it() -> None:
    ks.init()

    @ks.kernel
    def f(a: ks.i32) -> ks.i32:
        r = 0
        if a > 0 or (n := a * 2) > -3:
            r = n
        return r

    with pytest.raises(LanguageError, match="`n` ends with the block"):
        f(5)
    ks.reset()


def test_options_that_are_none_are_refused() -> None:
    with pytest.raises(LanguageError, match=r"ks\.init has no option decide"):
        ks.init(decide="best.json")


def test_fast_math_of_the_program_is_that_of_its_kernels() -> None:
    @ks.kernel
    def total(x: ks.types.ndarray(), out: ks.types.ndarray()):
        for i in x:
            out[0] += x[i]

    arrays = np.ones(4, np.float32), np.zeros(1, np.float32)
    for fast in (True, False):
        ks.init(fast_math=fast)
        assert total.instantiate(*arrays).fast_math is fast
    ks.reset()


class Series:
    """A column of a table, as pandas has them."""

    def to_numpy(self):
        return np.ones(1)


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ([1.0, 2.0], "not list: pass np.array of it"),
        (Series(), r"not Series: pass its to_numpy\(\)"),
        ("text", "not str$"),
    ],
)
def test_what_is_no_array_is_named_with_the_way_out(written, given, way: str) -> None:
    f = written("@ks.kernel\ndef f(a: ks.types.ndarray()):\n    a[0] = 1.0")["f"]
    with pytest.raises(LanguageError, match=way):
        f(given)
