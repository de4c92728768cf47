"""Fragments of operand blocks: a thread loads neighbours of a row as one vector, also in swizzled rows, and results are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.describe import describe
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, DeadEnd
from kernelscape.space.decisions import fix, restore
from kernelscape.testing import checking
from kernelscape.testing.syntax import array_of, declared, innermost, program_of

from .gpu_cases import MATMUL, NEEDS_COMPILER, case_of, decided, drawn, gpu, inputs_of

# Four steps of the sum are copies of a thread, and rows of the block of `a` go along the sum.
DEEP = {
    **MATMUL,
    "size(multiply0.k.mid)": "2",
    "dim_kind(multiply0.k.inner)": "UNROLL",
    "size(multiply0.k.inner)": "4",
    "reduction(multiply0.k.inner)": "SEQUENTIAL",
    "fragments(multiply0.a)": "IN_VECTORS",
}


def product(n_rows, depth, n_columns, dtype=np.float32):
    """A product of random matrices: its recording, its problem, and the inputs."""
    rng = np.random.default_rng(1)
    shapes = (n_rows, depth), (depth, n_columns), (n_rows, n_columns)
    arrays = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    recording = record_sequence(lambda a, b, c: multiply(a, b, c), arrays, "product")
    problem = normalise(recording)
    given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
    return problem, checking.make_inputs(recording, problem, given, {})


def loads_of(program, array):
    """The loads from an array in the innermost loops: vectors, and elements."""
    made = [x.init for loop in innermost(program) for x in declared(loop)]
    vectors = [x for x in made if isinstance(x, c.Call) and x.function.startswith("load_")]
    elements = [x for x in made if isinstance(x, c.Index)]
    return tuple(
        sum(array_of(x) == array for x in found) for found in (addresses(vectors), elements)
    )


def addresses(loads):
    """The addresses of vectors."""
    return [x.args[0] for x in loads]


@pytest.mark.parametrize("layout", ["PLAIN", "PADDED", "SWIZZLED"])
def test_a_fragment_is_loaded_once(layout):
    """A thread has two rows of `a` and four steps of the sum: eight elements, or two vectors of f32."""
    problem, _ = product(64, 32, 64)
    deep = {**DEEP, "layout(multiply0.a)": layout}
    assert loads_of(program_of(decided(problem, deep)), "a_tile") == (2, 0)
    one_by_one = {**deep, "fragments(multiply0.a)": "ELEMENTS"}
    assert loads_of(program_of(decided(problem, one_by_one)), "a_tile") == (0, 8)


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("layout", ["PLAIN", "PADDED", "SWIZZLED"])
@pytest.mark.parametrize(("depth", "dtype"), [(32, np.float32), (21, np.float32), (30, np.float64)])
def test_a_product_in_fragments_is_right(layout, depth, dtype, tmp_path):
    """Also where the last steps of a sum are no whole register tile, and have their elements one by one."""
    problem, inputs = product(37, depth, 29, dtype)
    stages = {"staged(multiply0.a)": "TWO_STAGES", "layout(multiply0.a)": layout}
    source = gpu.source_of(decided(problem, {**DEEP, **stages}))
    assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("depth", [32, 21])
def test_threads_along_a_row_have_neighbours(depth, tmp_path):
    """Threads share the sum: each adds four steps that are one vector, and not every second or fourth one."""
    threads = {"dim_kind(multiply0.k.mid)": "THREAD", "reduction(multiply0.k.mid)": "TREE"}
    problem, inputs = product(37, depth, 29)
    made = decided(problem, {**DEEP, **threads})
    assert depth == 21 or loads_of(program_of(made), "a_tile") == (2, 0)
    source = gpu.source_of(made)
    assert gpu.check(source, inputs, tmp_path) == "", source.text


@NEEDS_COMPILER[1]
@pytest.mark.parametrize("name", ["matmul", "matmul_strided", "sgemv"])
def test_random_candidates_with_fragments_are_right(name, tmp_path):
    case = case_of(name)
    space = build_space(case.problem, gpu.target())
    operands = [o.name for o in space.variables.of_operands["fragments"]]
    inputs = inputs_of(case)
    for operand in operands:
        root = fix(space, [(f"fragments({operand})", "IN_VECTORS")]).root()
        assert isinstance(root, Candidate), root
        for candidate in drawn(root, 3, 3):
            assert plan_of(candidate).tasks[0].fragments
            source = gpu.source_of(candidate)
            assert gpu.check(source, inputs, tmp_path) == "", source.text
    assert operands


@pytest.mark.parametrize(
    "without",
    [
        {"staged(multiply0.a)": "DIRECT"},
        {"layout(multiply0.a)": "ODD"},
        {
            "dim_kind(multiply0.k.inner)": "ABSENT",
            "size(multiply0.k.inner)": "1",
            "layout(multiply0.a)": "PLAIN",
        },
    ],
    ids=["memory", "an odd row", "one step"],
)
def test_fragments_are_neighbours_in_a_row_of_a_copy(without):
    problem, _ = product(64, 32, 64)
    space = build_space(problem, gpu.target())
    assert isinstance(restore(space, DEEP.items()), Candidate)
    changed = {x: y for x, y in {**DEEP, **without}.items() if x != "reduction(multiply0.k.inner)"}
    assert isinstance(restore(space, changed.items()), DeadEnd)
    elements = {**changed, "fragments(multiply0.a)": "ELEMENTS"}
    assert isinstance(restore(space, elements.items()), Candidate)


@kernel
def by_rows(a: types.ndarray(), b: types.ndarray(), c: types.ndarray()):
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * b[j, k]
            c[i, j] = acc


def test_lanes_in_several_rows_have_no_fragments_in_vectors():
    """Vectors of results take an element of `b` from each of their rows; without them a thread has four of each row."""
    arrays = [np.zeros((32, 32), np.float32) for _ in range(3)]
    problem = normalise(record_sequence(lambda a, b, c: by_rows(a, b, c), arrays, "by_rows"))
    space = build_space(problem, gpu.target())
    deep = {x.replace("multiply0", "by_rows0"): y for x, y in DEEP.items()}
    both = {**deep, "fragments(by_rows0.b)": "IN_VECTORS"}
    assert isinstance(restore(space, deep.items()), Candidate)
    assert isinstance(restore(space, both.items()), DeadEnd)
    unrolled = {**both, "dim_kind(by_rows0.j.inner)": "UNROLL"}
    assert isinstance(restore(space, unrolled.items()), Candidate)


def test_fragments_are_said_and_ill_formed_ones_refused():
    problem, _ = product(64, 32, 64)
    made = decided(problem, DEEP)
    plan = plan_of(made)
    (launch,) = launches_of(plan, made.space.target)
    said = [x for phrases in describe(made).values() for x in phrases]
    assert any(x.endswith("and reads them in vectors of 4") for x in said), said
    assert "read in vectors of 4" in program_of(made).decisions[-1]
    verify(launch, plan)
    (task,) = plan.tasks
    faults = [
        (replace(task, fragments={**task.fragments, "elsewhere": 4}), "which is not copied"),
        (replace(task, fragments=dict.fromkeys(task.fragments, 3)), "across its rows"),
        (replace(task, layouts=dict.fromkeys(task.fragments, "ODD")), "across its rows"),
    ]
    for wrong, said in faults:
        with pytest.raises(IllFormedError, match=said):
            verify(launch, replace(plan, tasks=(wrong,)))
