"""The table of methods: what each means for any numbers."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.kernels.fields.matrix import python_do
from kernelscape.kernels.fields.methods import (
    MAKERS,
    METHODS,
    ComponentMethods,
    call,
    make,
    swizzle,
)
from kernelscape.kernels.ir.errors import LanguageError

A = ComponentMethods((3,), ("a", "b", "c"))
X = ComponentMethods((3,), ("x", "y", "z"))
M = ComponentMethods((2, 2), ("a", "b", "c", "d"))


def text_do(op, *operands):
    """Numbers that are texts: what a definition asks for."""
    return f"{op}({', '.join(str(x) for x in operands)})"


@pytest.mark.parametrize(
    ("name", "arguments", "meant"),
    [
        ("dot", (A, X), "add(add(mul(a, x), mul(b, y)), mul(c, z))"),
        ("norm_sqr", (ComponentMethods((2,), ("a", "b")),), "add(mul(a, a), mul(b, b))"),
        ("norm", (ComponentMethods((1,), ("a",)), "e"), "sqrt(add(mul(a, a), e))"),
        ("norm", (ComponentMethods((1,), ("a",)),), "sqrt(mul(a, a))"),
        ("norm_inv", (ComponentMethods((1,), ("a",)),), "div(1.0, sqrt(mul(a, a)))"),
        ("sum", (M,), "add(add(add(a, b), c), d)"),
        ("max", (A,), "max(max(a, b), c)"),
        ("min", (A,), "min(min(a, b), c)"),
        ("any", (A,), "or(or(ne(a, 0), ne(b, 0)), ne(c, 0))"),
        ("all", (A,), "and(and(ne(a, 0), ne(b, 0)), ne(c, 0))"),
        ("trace", (M,), "add(a, d)"),
        ("determinant", (M,), "sub(mul(a, d), mul(b, c))"),
        (
            "cross",
            (ComponentMethods((2,), ("a", "b")), ComponentMethods((2,), ("x", "y"))),
            "sub(mul(a, y), mul(b, x))",
        ),
    ],
)
def test_numbers_of_any_kind_need_nothing_but_their_operations(name, arguments, meant):
    assert call(text_do, name, *arguments) == meant


def test_results_of_several_components_keep_their_shape():
    assert call(text_do, "transpose", ComponentMethods((1, 2), ("a", "b"))) == ComponentMethods(
        (2, 1), ("a", "b")
    )
    made = call(
        text_do, "outer_product", ComponentMethods((2,), ("a", "b")), ComponentMethods((1,), ("x",))
    )
    assert made == ComponentMethods((2, 1), ("mul(a, x)", "mul(b, x)"))
    assert call(text_do, "cast", A, "f32").items[1] == "cast(b, f32)"
    inverse = call(text_do, "inverse", ComponentMethods((1, 1), ("a",)))
    assert inverse == ComponentMethods((1, 1), ("div(1.0, a)",))
    unit = call(text_do, "normalized", ComponentMethods((1,), ("a",)), "e")
    assert unit.items == ("mul(div(1.0, add(sqrt(mul(a, a)), e)), a)",)


@pytest.mark.parametrize(
    ("name", "arguments", "made"),
    [
        ("zero", ("t", 2), ComponentMethods((2,), ("cast(0, t)",) * 2)),
        ("one", ("t", 1, 2), ComponentMethods((1, 2), ("cast(1, t)",) * 2)),
        ("unit", (2, 1, "t"), ComponentMethods((2,), ("cast(0, t)", "cast(1, t)"))),
        ("identity", ("t", 1), ComponentMethods((1, 1), ("cast(1, t)",))),
        ("diag", (2, "a"), ComponentMethods((2, 2), ("a", 0, 0, "a"))),
        ("rows", ([A, ("x", "y", "z")],), ComponentMethods((2, 3), ("a", "b", "c", "x", "y", "z"))),
        ("cols", ([A, X],), ComponentMethods((3, 2), ("a", "x", "b", "y", "c", "z"))),
        (
            "rotation2d",
            ("t",),
            ComponentMethods((2, 2), ("cos(t)", "neg(sin(t))", "sin(t)", "cos(t)")),
        ),
    ],
)
def test_makers(name, arguments, made):
    assert make(text_do, name, *arguments) == made


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_determinant_and_inverse(n):
    matrix = np.random.default_rng(n).standard_normal((n, n))
    given = ComponentMethods((n, n), tuple(matrix.ravel()))
    assert call(python_do, "determinant", given) == pytest.approx(np.linalg.det(matrix))
    inverse = call(python_do, "inverse", given)
    assert np.allclose(np.array(inverse.items).reshape(n, n) @ matrix, np.eye(n))


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("dot", (A, M), "dot takes two vectors of one length"),
        ("dot", (A, 1), "dot takes two vectors of one length"),
        ("dot", (A,), r"dot takes \(b\): missing a required argument: 'b'"),
        ("norm", (A, 1, 2), r"norm takes \(eps\): too many positional arguments"),
        (
            "cross",
            (ComponentMethods((4,), (1,) * 4),) * 2,
            "vectors of 2 or 3 components, not of 4",
        ),
        ("outer_product", (A, M), "outer_product takes two vectors"),
        ("normalized", (M,), "normalized is a method of vectors"),
        (
            "trace",
            (ComponentMethods((1, 2), (1, 2)),),
            "trace takes a square matrix, not one of 1 x 2",
        ),
        ("determinant", (A,), "determinant takes a square matrix"),
        ("inverse", (ComponentMethods((5, 5), (1,) * 25),), "at most four rows, not one of 5 x 5"),
        ("transpose", (A,), "a vector has no transpose"),
    ],
)
def test_what_does_not_fit_is_one_sentence(name, arguments, sentence):
    with pytest.raises(LanguageError, match=sentence):
        call(text_do, name, *arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("rows", ([(1, 2), (3,)],), "rows and cols take vectors of one length"),
        ("cols", ([],), "rows and cols take vectors of one length"),
        ("unit", (2, 2), "there is no component 2 of 2"),
        ("identity", ("t",), r"identity takes \(dt, n\): missing"),
    ],
)
def test_makers_say_what_does_not_fit(name, arguments, sentence):
    with pytest.raises(LanguageError, match=sentence):
        make(text_do, name, *arguments)


def test_every_entry_has_its_meaning_in_words():
    assert all(f.__doc__ for f in (*METHODS.values(), *MAKERS.values()))
    assert {"dot", "sum", "max", "any", "all", "inverse"} <= METHODS.keys()


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("x", (0,)),
        ("wzyx", (3, 2, 1, 0)),
        ("xx", (0, 0)),
        ("bgr", (2, 1, 0)),
        ("st", (0, 1)),
        ("uv", (0, 1)),
        ("xr", None),
        ("xyzwx", None),
        ("norm", None),
    ],
)
def test_swizzles(name, pattern):
    assert swizzle(name) == pattern
