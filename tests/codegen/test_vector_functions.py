"""Vector functions: errors are within those stated, special values as in C, with every size of vector, compiler and flag."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.vector_functions import POLYNOMIALS, vector_function
from kernelscape.codegen.bodies.vectors import Prelude
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
        ("exp", 4.0, ("exp_f32x8_ulp4", "exp_f32x8_inline")),  # libmvec, and in its place
        ("exp", 1.0, ("exp_f32x8_inline",)),
        ("tanh", 1.0, ("tanh_f32x8",)),  # lane by lane: the polynomial errs by more
        ("asin", 4.0, ("asin_f32x8_ulp4", "asin_f32x8")),
        ("lgamma", 4.0, ("lgamma_f32x8",)),
    ],
)
def test_the_permitted_error_decides_which_function_is_called(
    op: str, ulp: float, has: tuple[str, ...]
) -> None:
    prelude = Prelude(CHelpers())
    called = prelude.of_vectors(op, DType.f32, 8, ulp)
    assert called == has[0]
    assert {name for name in prelude.defined if name.startswith(f"{op}_f32x8")} == set(has)


def test_what_a_function_calls_is_defined_before_it() -> None:
    prelude = Prelude(CHelpers())
    for _ in range(2):
        vector_function(prelude, "tanh", DType.f32, 8, 4.0)
    names = [name for name in prelude.defined if name.endswith("_f32x8_inline")]
    assert names == ["exp_f32x8_inline", "tanh_f32x8_inline"]
