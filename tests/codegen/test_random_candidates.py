"""Generated C against the interpreter: random candidates of random sequences."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Packing, Sketch, Tile
from kernelscape.search.starts.tiles import Blocks
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.checking import Way
from kernelscape.testing.strategies import (
    TEMPLATES,
    Example,
    combine_matrices,
    record_example,
    sequences,
)
from kernelscape.testing.syntax import array_of, calls, declared, names_in, nodes, program_of
from kernelscape.testing.templates import (
    PRODUCT_TEMPLATES,
    any_sequence,
    product_by_updates,
    product_rows,
    smooth,
)

CANDIDATES = 4  # of one sequence
pytestmark = [pytest.mark.compiler]

relaxed = settings(
    max_examples=26,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="candidates-"))
    yield made
    shutil.rmtree(made)


def wrong(example: Example, cores: int, vector_bytes: int, seed: int, folder: Path) -> list[str]:
    """What is wrong with some random candidates of a sequence, empty when nothing is."""
    problem = normalise(example.recording)
    inputs = checking.make_inputs(example.recording, problem, example.arrays, example.scalars)
    if not inputs:
        return []
    root = build_space(problem, checking.target(cores, vector_bytes)).root()
    assert isinstance(root, Candidate), root
    rng = np.random.default_rng(seed)
    drawn = [checking.random_candidate(root, rng) for _ in range(CANDIDATES)]
    candidates = [x for x in drawn if isinstance(x, Candidate)]
    found = []
    texts = (checking.crowded_source_of, checking.source_of)
    sources = [texts[k % 2](x) for k, x in enumerate(candidates)]
    for built in checking.build_all(sources, folder, "drawn", more_flags=checking.level(seed)):
        if built.library is None or built.log:
            found.append(f"{built.log}\n{built.source.text}")
            continue
        ways = Way(), Way(repeats=2, thread_limit=1), Way(repeats=8, adapts=True)
        said = checking.check(built, inputs, *ways)
        found += [f"{said}\n{built.source.text}"] if said else []
    return found


@pytest.mark.slow
@relaxed
@given(
    any_sequence(),
    st.sampled_from([1, 2, 2, 3, 4]),
    st.sampled_from([16, 32, 64]),
    st.integers(0, 2**20),
)
def test_generated_code_does_what_the_interpreter_does(folder, example, cores, vector_bytes, seed):
    found = wrong(example, cores, vector_bytes, seed, folder)
    assert not found, found[0]


POINTWISE = tuple(t for t in TEMPLATES if set(t[1]) <= {"n", "n!"})
SETTINGS = (st.sampled_from([1, 2, 3]), st.sampled_from([16, 32, 64]), st.integers(0, 2**20))


@settings(relaxed, max_examples=14)
@given(sequences(6, POINTWISE, extents=(16, 33, 64), dtypes=("float32",)), *SETTINGS)
def test_chains_in_place(folder, example, cores, vector_bytes, seed):
    """Few arrays, read and overwritten again and again: what a scope knows of them must not be stale."""
    found = wrong(example, cores, vector_bytes, seed, folder)
    assert not found, found[0]


@settings(relaxed, max_examples=10)
@given(sequences(3, PRODUCT_TEMPLATES, extents=(3, 16, 33)), *SETTINGS)
def test_products(folder, example, cores, vector_bytes, seed):
    """Three loops, operands with reuse: packed copies, register tiles of two loops, blocks."""
    found = wrong(example, cores, vector_bytes, seed, folder)
    assert not found, found[0]


def drawn(calls, shapes, seed=0):
    """A sequence of calls over arrays of these shapes."""
    rng = np.random.default_rng(seed)
    arrays = {k: rng.uniform(-1, 1, shape).astype(np.float32) for k, shape in shapes.items()}
    return record_example(
        [(fn, names, False) for fn, names in calls], arrays, {}, np.dtype("float32")
    )


@pytest.mark.parametrize(("m", "n"), [(3, 2), (5, 33), (16, 16)])
def test_a_finish_reads_each_register_of_a_tile(folder, m, n):
    """The sums lie in memory and are finished one by one with values that the producer left in registers."""
    shapes = {"x": (n,), "y": (n,), "s": (n,), "a": (m, n), "b": (m, n), "out": (m, n)}
    calls = [(smooth, ("x", "y", "s")), (product_rows, ("a", "b", "s", "out"))]
    for seed in range(3):
        found = wrong(drawn(calls, shapes), 2, 32, seed, folder)
        assert not found, found[0]


def test_an_array_read_in_the_finish_too_is_packed_for_the_sum_alone(folder):
    """`a` is read at [i, k] inside the sum and, where the initialiser joins it, at [i, j]: a block holds what the sum reads."""
    shapes = {"x": (16,), **dict.fromkeys(("a", "b", "c", "d", "out"), (33, 16))}
    calls = [(combine_matrices, ("a", "d", "out")), (product_by_updates, ("a", "x", "b", "out"))]
    example = drawn(calls, shapes)
    problem = normalise(example.recording)
    inputs = checking.make_inputs(example.recording, problem, example.arrays, example.scalars)
    root = build_space(problem, checking.target(2, 32)).root()
    read_twice = example.recording.calls[1].arrays[0]
    staged = root.space.variables.staged
    (operand,) = (o for o in staged if o.access.array == read_twice)
    assert operand.loops == ("k", "i")
    packed = root.decide(staged[operand], 1 << ch.COPY)
    rng = np.random.default_rng(0)
    ends = [checking.random_candidate(packed, rng) for _ in range(6)]
    whole = [x for x in ends if isinstance(x, Candidate)]
    assert len(whole) >= 3
    assert all(f"{read_twice}_packed" in names_in(program_of(x)) for x in whole)
    sources = [checking.crowded_source_of(x) for x in whole]
    for built in checking.build_all(sources, folder, "read_twice"):
        assert not checking.check(built, inputs), built.source.text


def is_whole(condition, loop, extent):
    """Whether it asks if a register tile of a loop ends before the loop does."""
    match condition:
        case c.Bin("<=", c.Bin("+", c.Id(name), c.Num()), c.Num(text)):
            return name[0] == loop and text == str(extent)
    return False


@pytest.mark.parametrize(
    ("dtype", "copies", "partial"),
    [
        ("float32", (), {"i", "j"}),
        (
            "float32",
            (1,),
            {"i"},
        ),  # rows of the first operand are read where they are: not beyond the last
        ("float32", (0, 1), set()),  # rows of sums have room for whole tiles, too
        ("float64", (1,), {"i"}),
        ("int32", (1,), {"i", "j"}),
    ],
)
def test_tiles_of_packed_operands_are_computed_whole(folder, dtype, copies, partial):
    """29 rows by 37 columns in register tiles of 4 by 8: what is computed beyond the ends is not stored."""
    rng = np.random.default_rng(1)
    shapes = {"a": (29, 21), "b": (21, 37), "c": (29, 37)}
    arrays = {name: rng.uniform(-8, 8, shape).astype(dtype) for name, shape in shapes.items()}
    example = record_example([(multiply, ("a", "b", "c"), False)], arrays, {}, np.dtype(dtype))
    problem = normalise(example.recording)
    root = build_space(problem, checking.target(2, 16 if dtype != "float64" else 32)).root()
    assert isinstance(root, Candidate)
    sketch = Sketch(
        tile=Tile(rows=4, vectors=2, blocks=Blocks(8, 16, 8)),
        packing=Packing(every=0 in copies) if bool(copies) else None,
    )
    made = complete_sketch(root, sketch)
    assert made is not None
    source = checking.crowded_source_of(made)
    program = program_of(made)
    named = names_in(program)
    assert tuple(k for k in (0, 1) if f"given{k}_packed" in named) == copies
    assert {x.name[0] for x in declared(program, "i0", "i1", "j0", "j1")} == partial
    whole = [
        [n for n in nodes(program) if isinstance(n, c.If) and is_whole(n.condition, loop, extent)]
        for loop, extent in (("i", 29), ("j", 37))
    ]
    assert all(whole[k] for k in copies), "whole tiles are packed apart"
    if 1 in copies and dtype != "int32":
        stores = [x for x in calls(whole[1][0].orelse, "store_") if x.function.endswith("x4")]
        assert any(array_of(x.args[0]) == "given1_packed" for x in stores), (
            "what is cut is packed in vectors, too"
        )
    (built,) = checking.build_all([source], folder, "padded")
    assert built.library is not None, built.log
    inputs = checking.make_inputs(example.recording, problem, example.arrays, example.scalars)
    assert not checking.check(built, inputs, Way(), Way(repeats=2, thread_limit=1))
