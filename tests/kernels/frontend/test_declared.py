"""A value has the shape that is written for it: nothing is filled with zeros, laid out anew, or taken apart in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kernelscape as ks
import pytest
from kernelscape.kernels.frontend.errors import LanguageError

Written = Callable[[str], dict[str, Any]]
HEAD = """\
S = ks.types.struct(a=ks.f32, b=ks.f32)
T = ks.types.struct(a=ks.f32)
V = ks.types.struct(v=ks.types.vector(3, float), r=float)
L = ks.types.struct(l=V, b=ks.i32)
v3, m22 = ks.types.vector(3, float), ks.types.matrix(2, 2, float)
out = ks.field(ks.f32, shape=4)

@ks.func
def of_struct(s: S):
    return s.a + s.b

@ks.func
def of_vector(v: v3):
    return v.sum()

@ks.func
def of_matrix(m: m22):
    return m[1, 0]

@ks.real_func
def to_struct(x: float) -> S:
    return x

@ks.func
def over(i):
    for i in range(3):
        out[0] += i

"""
LINE = HEAD.count("\n") + 4


pytestmark = pytest.mark.usefixtures("program")


def kernel(written: Written, body: str, returns: str = "None", arguments: str = ""):
    lines = "\n    ".join(body.split("; "))
    names = written(f"{HEAD}@ks.kernel\ndef f({arguments}) -> {returns}:\n    {lines}")
    return names["f"], names


MADE = {  # as Taichi 1.7.4 has them: a struct is made of one value as of its first member
    "s = S(1); out[0] = s.a; out[1] = s.b": [1, 0],
    "s = L(1, 2); out[0] = s.l.v.sum(); out[1] = s.l.r; out[2] = s.b": [3, 0, 2],
    "s = L(l=v3(1, 2, 3)); out[0] = s.l.v[0]; out[1] = s.l.v[2]; out[2] = s.l.r": [1, 3, 0],
    "s = L(l=V(v3(1, 2, 3), 4)); out[0] = s.l.v[2]; out[1] = s.l.r": [3, 4],
    "out[0] = of_struct(S(1, 2)); out[1] = of_vector(v3(1, 2, 3))": [3, 6],
}


@pytest.mark.parametrize("body", MADE)
def test_a_struct_is_made_of_one_value_as_of_its_first_member(written: Written, body: str) -> None:
    """Kind: values that become zeros where a struct is wanted."""
    f, names = kernel(written, body)
    f()
    assert names["out"].to_numpy()[: len(MADE[body])].tolist() == MADE[body]


OTHER_SHAPES = [  # the body, what the kernel returns, and what is said of it
    ("return 5.0", "S", "gives a number where struct"),
    ("return v3(1, 2, 3)", "S", "gives a vector of 3 where struct"),
    ("return T(1)", "S", "gives a struct of a where struct"),
    ("return {'a': 1.0}", "S", "where struct"),
    ("return 5.0", "v3", "gives a number where vector"),
    ("return S(1, 2)", "v3", "gives a struct of a, b where vector"),
    ("return ks.Vector([1.0, 2.0, 3.0, 4.0])", "m22", "gives a vector of 4 where matrix"),
    ("return S(1, 2)", "float", "is a struct where a number is needed"),
    ("out[0] = of_struct(3.0)", "None", "gives a number where struct"),
    ("out[0] = of_struct(ks.Vector([1.0, 2.0]))", "None", "gives a vector of 2 where struct"),
    ("out[0] = of_struct(T(2.0))", "None", "gives a struct of a where struct"),
    ("out[0] = of_vector(3.0)", "None", "gives a number where vector"),
    ("out[0] = of_matrix(ks.Vector([1.0, 2.0, 3.0, 4.0]))", "None", "gives a vector of 4 where"),
    ("out[0] = to_struct(3.0).a", "None", "gives a number where struct"),
    ("s: S = 3.0; out[0] = s.a", "None", "gives a number where struct"),
    ("v: v3 = 3.0; out[0] = v[0]", "None", "gives a number where vector"),
    ("s = L(l=S(1, 2)); out[0] = s.l.r", "None", "gives a struct of a, b where struct"),
    ("s = S(1.0, a=2.0); out[0] = s.a", "None", "gives the member a twice"),
]


@pytest.mark.parametrize(("body", "returns", "said"), OTHER_SHAPES)
def test_values_of_other_shapes_are_refused(written: Written, body, returns, said) -> None:
    """Kind: conversions of values to the types of results, arguments, locals and members."""
    f, _ = kernel(written, body, returns)
    with pytest.raises(LanguageError, match=f"mine.py:{LINE}: .*{said}"):
        f.instantiate()


def test_structs_of_other_members_are_refused_by_python_too() -> None:
    """Of the same kind, outside of kernels."""
    inner, part = ks.types.struct(a=ks.f32, b=ks.f32), ks.types.struct(a=ks.f32)
    with pytest.raises(LanguageError, match="a struct of a is given where struct"):
        ks.types.struct(s=inner)(s=part(1.0))
    with pytest.raises(LanguageError, match="the member a twice"):
        inner(1.0, a=2.0)
    with pytest.raises(LanguageError, match="where one number is wanted"):
        inner(ks.Vector([1.0, 2.0]))


def test_an_argument_has_the_shape_of_its_type(written: Written) -> None:
    """Of the same kind, at calls of kernels."""
    f, _ = kernel(written, "out[0] = m[0, 1]", arguments="m: m22")
    with pytest.raises(LanguageError, match="takes matrix"):
        f(ks.Vector([1.0, 2.0, 3.0, 4.0]))


ROWS = [
    ("a, b = m; out[0] = a[1] + b[0]", 5),
    ("for x in ks.static(m): out[0] += x[1]", 6),
    ("for x in m: out[0] += x.sum()", 10),
    ("for a, b in ks.static([m]): out[0] += a[0] + b[1]", 5),
    ("v = sum(m); out[0] = v[1]", 6),
    ("out[0] = tuple(m)[1][0]", 3),
    ("out[0] = [x[0] * y for x, y in zip(m, (10, 1))][0]", 10),
    ("out[0] = ks.Vector([x.max() for x in m]).sum()", 6),
]


@pytest.mark.parametrize(("body", "found"), ROWS)
def test_the_items_of_a_matrix_are_its_rows(written: Written, body: str, found: int) -> None:
    """Kind: places that take a value apart, which all have Python's meaning."""
    f, names = kernel(written, f"m = ks.Matrix([[1.0, 2.0], [3.0, 4.0]]); {body}")
    f()
    assert names["out"].to_numpy()[0] == found


KNOWN = [
    "i = 5; for i in range(3): out[0] += i",
    "i = 5; for i in out: out[i] += 1",
    "i = 5; for i in ks.grouped(out): out[i] += 1",
    "for i, j in ks.ndrange(2, 2):; for i in range(3): out[0] += i",
    "for i in ks.static(range(2)):; for i in range(3): out[0] += i",
]


SECOND_LINES = [
    (
        "m = ks.Matrix([[1.0, 2.0], [3.0, 4.0]]); out[0] = max(m)",
        ".*max takes two or more numbers",
    ),
    *((x.replace(":; ", ":\n        "), "the loop index `[ij]` is") for x in KNOWN),
]


@pytest.mark.parametrize(("body", "said"), SECOND_LINES)
def test_what_python_means_and_taichi_refuses(written: Written, body: str, said: str) -> None:
    """Kinds: the greatest row of a matrix, which Python orders; a loop whose index Python would leave changed."""
    f, _ = kernel(written, body)
    with pytest.raises(LanguageError, match=f"mine.py:{LINE + 1}: {said}"):
        f.instantiate()


def test_an_argument_is_no_loop_index(written: Written) -> None:
    """Of the same kind, in kernels and functions."""
    f, _ = kernel(written, "for i in range(3): out[0] += i", arguments="i: int")
    with pytest.raises(LanguageError, match="the loop index `i` is already a name"):
        f.instantiate(3)
    g, _ = kernel(written, "over(3)")
    with pytest.raises(LanguageError, match="the loop index `i` is already a name"):
        g.instantiate()


def test_names_that_loops_may_use_again(written: Written) -> None:
    """Indices of boxes and of loops that are written out hide a name, as Taichi's do; a name of a block ends with it."""
    body = (
        "i = 5; for i, j in ks.ndrange(3, 2): out[0] += i; out[1] = i; for k in range(2): out[2] += k"
        "; for k in range(2): out[2] += k"
    )
    f, names = kernel(written, body)
    f()
    assert names["out"].to_numpy().tolist() == [6, 5, 2, 0]
