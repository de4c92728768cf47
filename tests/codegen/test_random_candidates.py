"""Generated C against the interpreter: random candidates of known sequences; test_corpus.py has random ones."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.functions import exp, sin, sqrt
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library.matmul import multiply
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.sketches import Packing, Sketch, TileSizes
from kernelscape.search.starts.tiles import BlockSizes
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.cases import Case
from kernelscape.testing.checking import Way
from kernelscape.testing.syntax import array_of, calls, declared, names_in, nodes, program_of

CANDIDATES = 4  # of one sequence
pytestmark = [pytest.mark.compiler]
nd = types.ndarray()


@kernel
def smooth(x: nd, y: nd, out: nd):
    for i in range(out.shape[0]):
        out[i] = sqrt(abs(x[i])) + sin(y[i]) * exp(-abs(x[i]))


@kernel
def product_rows(a: nd, b: nd, y: nd, out: nd):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            acc = 0.0
            for k in range(a.shape[1]):
                acc += a[i, k] * b[i, k]
            out[i, j] = 0.125 * acc * y[j]


@kernel
def product_by_updates(a: nd, x: nd, b: nd, out: nd):
    for k in range(a.shape[1]):
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] += 0.125 * a[i, k] * x[k] * b[i, j]


@kernel
def combine_matrices(a: nd, b: nd, out: nd):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = 0.5 * a[i, j] - b[i, j]


def recorded(calls, arrays):
    """A sequence of these calls, each a kernel with names of arrays."""

    def sequence(*given):
        here = dict(zip(arrays, given, strict=True))
        for fn, names in calls:
            fn(*(here[k] for k in names))

    recording = record_sequence(sequence, tuple(arrays.values()), name="drawn")
    given = dict(zip((p.name for p in recording.arrays), arrays.values(), strict=True))
    return Case("drawn", recording, normalise(recording), given, {})


@pytest.fixture(scope="module")
def folder():
    made = Path(tempfile.mkdtemp(prefix="candidates-"))
    yield made
    shutil.rmtree(made)


def wrong(example: Case, cores: int, vector_bytes: int, seed: int, folder: Path) -> list[str]:
    """Returns the faults of some random candidates of a sequence."""
    problem = example.problem
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


def drawn(calls, shapes, seed=0):
    """A sequence of calls over arrays of these shapes."""
    rng = np.random.default_rng(seed)
    arrays = {k: rng.uniform(-1, 1, shape).astype(np.float32) for k, shape in shapes.items()}
    return recorded(calls, arrays)


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
    problem = example.problem
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
    assert not checking.fault(sources, inputs, folder, stem="read_twice", may_warn=True)


def is_whole(condition, loop, extent):
    """True if it tests that a register tile of a loop ends before the loop does."""
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
    example = recorded([(multiply, ("a", "b", "c"))], arrays)
    problem = example.problem
    root = build_space(problem, checking.target(2, 16 if dtype != "float64" else 32)).root()
    assert isinstance(root, Candidate)
    sketch = Sketch(
        tile=TileSizes(rows=4, vectors=2, blocks=BlockSizes(8, 16, 8)),
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
