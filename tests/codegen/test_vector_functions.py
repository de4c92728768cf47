"""Vector functions: errors are within those stated, special values as in C, with every size of vector, compiler and flag."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from kernelscape.codegen.c.c_vectors import CHelpers
from kernelscape.codegen.c.vector_functions import POLYNOMIALS, vector_function
from kernelscape.codegen.c.vectors import Prelude
from kernelscape.kernels.ir.kernel import DType
from kernelscape.testing import vector_errors

IN_ANY_ORDER = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
# Compilers with their flags, and the size of vectors in bytes.
WAYS = {
    "gcc native": (("gcc", "-O2", "-march=native", "-ffp-contract=fast"), 32),
    "gcc without FMA": (("gcc", "-O0", "-ffp-contract=off"), 16),
    "gcc in any order": (("gcc", "-O1", "-march=native", "-freciprocal-math", *IN_ANY_ORDER), 64),
    "clang native": (("clang", "-O1", "-march=native", "-ffp-contract=fast", *IN_ANY_ORDER), 64),
}


@pytest.mark.compiler
@pytest.mark.parametrize("way", WAYS)
def test_errors_are_within_those_stated(way: str, tmp_path) -> None:
    """Kind: a function of <math.h> that another implementation computes. The judge is the C library in a wider type."""
    compiler, n_bytes = WAYS[way]
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    functions = list(vector_errors.polynomials((n_bytes,)))
    compiled = vector_errors.VectorFunctions(functions, compiler, tmp_path)
    rng = np.random.default_rng(1)
    for f in functions:
        found = compiled.errors(f, *vector_errors.points(f.op, f.dtype, 1 << 11, rng))
        assert found.ulp <= POLYNOMIALS[f.op, f.dtype].error_ulp, (f, found)
        is_exact_zero = "any order" in way or "clang" in way  # these flags give up the sign of zero
        assert found.n_wrong == 0 or is_exact_zero, (f, found)


@pytest.mark.parametrize(
    ("op", "ulp", "has"),
    [
        ("exp", 4.0, ("_ZGVdN8v_expf", "exp_f32x8_inline")),
        ("exp", 1.0, ("exp_f32x8_inline",)),
        ("tanh", 1.0, ("tanhf(x[l])",)),  # the polynomial errs by more
        ("asin", 4.0, ("_ZGVdN8v_asinf", "asinf(x[l])")),
        ("lgamma", 4.0, ("lgammaf(x[l])",)),
    ],
)
def test_the_permitted_error_decides_which_function_is_called(
    op: str, ulp: float, has: tuple[str, ...]
) -> None:
    prelude = Prelude(CHelpers())
    prelude.of_vectors(op, DType.f32, 8, ulp)
    text = prelude.text()
    assert [name for name in has if name not in text] == []
    assert ("_ZGV" in text) is any("_ZGV" in name for name in has)


def test_a_function_that_is_used_twice_is_written_once() -> None:
    prelude = Prelude(CHelpers())
    for _ in range(2):
        vector_function(prelude, "tanh", DType.f32, 8, 4.0)
    assert prelude.text().count("exp_f32x8_inline(f32x8 x) {") == 1
