"""Vector functions: errors are within those stated, special values as in C, with every size of vector, compiler and flag."""

from __future__ import annotations

import shutil
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.vector_functions import POLYNOMIALS, vector_function
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Fusion, Sketch, TileSizes
from kernelscape.space.build import build_space
from kernelscape.testing import checking, vector_errors
from kernelscape.testing.assembly import instructions
from kernelscape.testing.syntax import nodes, program_of

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


@kernel
def mean_by_exp(x: types.ndarray(), y: types.ndarray()):
    for i in range(x.shape[0]):
        s = 0.0
        t = 0.0
        for j in range(x.shape[1]):
            s += ks.exp(x[i, j])
            t += ks.exp(x[i, j]) * x[i, j]
        y[i] = t / s


@pytest.mark.compiler
def test_equal_values_of_sums_in_one_loop_are_computed_once(tmp_path: Path) -> None:
    """The kind of fault: a compiler that does not know of a function that it changes nothing calls it for each sum."""
    args = [np.zeros(shape, np.float32) for shape in ((8, 512), 8)]
    problem = normalise(record_sequence(lambda *a: mean_by_exp(*a), args, "mean"))
    space = build_space(problem, checking.target(1, 32))
    sketch = Sketch(fusion=Fusion(sums=True), tile=TileSizes(1, 2))
    made = complete_sketch(space.root(), sketch)
    assert made is not None
    called = [x.function for x in nodes(program_of(made)) if isinstance(x, c.Call)]
    assert called.count("exp_f32x8_ulp4") == 4
    (tmp_path / "mean.c").write_text(checking.source_of(made).text)
    given = [*checking.FLAGS, "-mavx2", str(tmp_path / "mean.c")]
    n_calls = instructions(["gcc", *given, "-o", str(tmp_path / "mean.s")]).count("call")
    if not n_calls:
        pytest.skip("no libmvec")
    assert n_calls == 2  # of two vectors, each for both sums


def test_what_a_function_calls_is_defined_before_it() -> None:
    prelude = Prelude(CHelpers())
    for _ in range(2):
        vector_function(prelude, "tanh", DType.f32, 8, 4.0)
    names = [name for name in prelude.defined if name.endswith("_f32x8_inline")]
    assert names == ["exp_f32x8_inline", "tanh_f32x8_inline"]
