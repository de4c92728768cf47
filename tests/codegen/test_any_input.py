"""Inputs at the edge: nothing to do, one element, integers, additions whose order is fixed, arrays that begin anywhere."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.bodies.c_vectors import CHelpers
from kernelscape.codegen.bodies.vectors import Prelude
from kernelscape.codegen.text import csyntax as c
from kernelscape.kernels.frontend.functions import floor
from kernelscape.kernels.frontend.kernel import cast, f32, kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.ir.kernel import DType
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.starts.complete import complete_sketch
from kernelscape.search.starts.proposals import greedy_sketch
from kernelscape.search.starts.sketches import Along, TileSizes
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.syntax import array_of, calls, program_of

pytestmark = [pytest.mark.compiler]
nd = types.ndarray()


def built_candidates(problem, folder, n=4, cores=2, seed=0):
    sources = sources_of(problem, n, cores, seed)
    built = checking.build_all(sources, folder, f"edge{seed}")
    assert [b.log for b in built] == [""] * len(built)
    return built


def sources_of(problem, n=4, cores=2, seed=0):
    """Texts of random candidates."""
    root = build_space(problem, checking.target(cores, 32)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(seed)
    drawn = [checking.random_candidate(root, rng) for _ in range(n)]
    return [checking.crowded_source_of(c) for c in drawn if isinstance(c, Candidate)]


@kernel(fast_math=False)
def sum_in_order(x: nd, out: nd):
    acc = 0.0
    for i in range(x.shape[0]):
        acc += x[i]
    out[0] = acc


@kernel(fast_math=False)
def gemv_in_order(a: nd, x: nd, out: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * x[j]
        out[i] = acc


@kernel(fast_math=False)
def gemvt_in_order(a: nd, x: nd, out: nd):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[j] += a[i, j] * x[i]


def sequence_in_order(a, x, total, rows, columns):
    sum_in_order(x, total)
    gemv_in_order(a, x, rows)
    gemvt_in_order(a, rows, columns)


def results_in_order(a, x, total, rows, columns):
    """One rounding after the other, as the loops are written."""
    total = np.add.accumulate(np.concatenate([np.zeros(1, x.dtype), x]))[-1:]
    terms = np.concatenate([np.zeros((len(a), 1), x.dtype), a * x], axis=1)
    rows = np.add.accumulate(terms, axis=1)[:, -1]
    columns = np.add.accumulate(np.concatenate([columns[None], a * rows[:, None]]), axis=0)[-1]
    return total, rows, columns


@pytest.mark.parametrize("shape", [(1, 1), (7, 33), (64, 17)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fixed_order_is_kept_to_the_last_bit(shape, dtype, tmp_path):
    """Without contraction to fused multiplications every rounding is that of the loops as written."""
    rng = np.random.default_rng(0)
    m, n = shape
    args = [rng.uniform(-1, 1, s).astype(dtype) for s in ((m, n), (n,), (1,), (m,), (n,))]
    recording = record_sequence(sequence_in_order, args, "in_order")
    names = [a.name for a in recording.arrays]
    want = dict(zip(names[2:], results_in_order(*args), strict=True))
    root = build_space(normalise(recording), checking.target(2, 32)).root()
    drawn = [checking.random_candidate(root, rng) for _ in range(6)]
    for k, candidate in enumerate(x for x in drawn if isinstance(x, Candidate)):
        source = checking.source_of(candidate)
        built = checking.build(source, tmp_path / f"o{k}", ("-ffp-contract=off",))
        assert built.log == ""
        arrays = dict(zip(names, args, strict=True))
        said = checking.in_child(lambda b=built, a=arrays: same_bits(b, a, want), seconds=20)
        assert said == "", source.text


def same_bits(built, given, want):
    source = built.source
    arrays = {k: v.copy() for k, v in given.items()}
    workspace = np.zeros(4096 + max((a.shape[0] for a in source.arguments if a.shape), default=0))
    pointers = (ctypes.c_void_p * len(source.arguments))()
    for k, a in enumerate(source.arguments):
        pointers[k] = (arrays[a.name] if a.kind == "array" else workspace).ctypes.data
    getattr(ctypes.CDLL(str(built.library)), built.entry)(pointers)
    for name, wanted in want.items():
        if not np.array_equal(arrays[name], wanted):
            return f"{name}: {arrays[name]} should be {wanted}"
    return ""


@kernel
def double_rows(a: nd, out: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j]
        out[i] = acc


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_do(shape, tmp_path):
    def sequence(a, x):
        double_rows(a, x)

    args = (np.ones(shape, np.float32), np.full(shape[0], 7.0, np.float32))
    recording = record_sequence(sequence, args, "empty")
    problem = normalise(recording)
    arrays = dict(zip((p.name for p in recording.arrays), args, strict=True))
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert not checking.fault(sources_of(problem), inputs, tmp_path)


@kernel
def mix(a: nd, b: nd, k: nd, out: nd):
    for i in range(out.shape[0]):
        t = a[i] * k[i] + b[i]
        out[i] = t if k[i] < 2 and b[i] < 0.5 else cast(floor(a[i] * 10.0), f32)


@kernel
def count(k: nd, b: nd, out: nd):
    for i in range(k.shape[0]):
        out[i] = k[i] % 3 - (1 if b[i] > 0.0 else i)


@kernel
def mixed_product(a: nd, b: nd, out: nd):
    for i in range(a.shape[0]):
        acc = 0.0
        for j in range(a.shape[1]):
            acc += a[i, j] * b[j]
        out[i] += acc


def mixed_types(a, b, k, n, m, x, y):
    mix(a, b, k, x)
    count(k, b, n)
    mixed_product(m, x, y)
    count(n, y, k)


@pytest.mark.parametrize(("n", "cores"), [(1, 3), (13, 1), (13, 3), (64, 3)])
def test_types_of_different_widths_in_one_loop(n, cores, tmp_path):
    rng = np.random.default_rng(n)
    floats = [rng.uniform(-1, 1, n) for _ in range(4)]
    args = (
        floats[0],
        floats[1].astype(np.float32),
        rng.integers(-5, 6, n).astype(np.int32),
        rng.integers(-5, 6, n),
        rng.uniform(-1, 1, (n, n)).astype(np.float32),
        floats[2].astype(np.float32),
        floats[3],
    )
    recording = record_sequence(mixed_types, args, "mixed")
    problem = normalise(recording)
    arrays = dict(zip((p.name for p in recording.arrays), args, strict=True))
    inputs = checking.make_inputs(recording, problem, arrays, {})
    assert inputs
    assert not checking.fault(sources_of(problem, 4, cores, n), inputs, tmp_path)


@kernel
def divide(a: nd, b: nd, quotient: nd, rest: nd):
    for i in range(a.shape[0]):
        quotient[i] = a[i] // b[i]
        rest[i] = a[i] % b[i]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_division_of_integers_never_ends_the_process(dtype, tmp_path):
    """By zero it gives 0, and the least integer divided by -1 wraps, as in NumPy."""
    least = np.iinfo(dtype).min
    a, b = np.meshgrid(np.array([least, -7, -1, 0, 5, 8]), np.array([-4, -1, 0, 1, 3, least]))
    a, b = a.reshape(-1).astype(dtype), b.reshape(-1).astype(dtype)
    args = (a, b, np.zeros_like(a), np.zeros_like(a))
    recording = record_sequence(divide, args, "divide")
    with np.errstate(all="ignore"):
        want = {"quotient": a // b, "rest": a % b}
    arrays = dict(zip((p.name for p in recording.arrays), args, strict=True))
    for built in built_candidates(normalise(recording), tmp_path, n=6):
        said = checking.in_child(lambda c=built: same_bits(c, arrays, want), seconds=20)
        assert said == "", built.source.text


def copy_doubled(x, y):
    double_elements(x, y)


@kernel
def double_elements(x: nd, y: nd):
    for i in range(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = x[i, j] + x[i, j]


@pytest.mark.parametrize(
    ("dtype", "vector_bytes"),
    [(np.float32, 16), (np.float64, 16), (np.float32, 32), (np.float64, 64)],
)
@pytest.mark.parametrize("shape", [(13, 33), (13, 64)])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"threads": Along(schedule=ch.CYCLIC), "tile": TileSizes(rows=1, vectors=4)},
        {"tile": TileSizes(rows=4, vectors=1, panel=32)},
        {"threads": Along(team=False)},
    ],
)
def test_stores_around_the_caches_go_where_arrays_begin_anywhere(
    more, shape, vector_bytes, dtype, tmp_path
):
    """At the start of a vector, at 16 bytes as arrays of NumPy, and at an element; what lies beside the array is left alone."""
    x = np.arange(shape[0] * shape[1], dtype=dtype).reshape(shape)
    recording = record_sequence(copy_doubled, [x, np.zeros_like(x)], "streamed")
    space = build_space(normalise(recording), checking.target(2, vector_bytes))
    given = {"threads": Along(), "stores": ch.STREAM, **more}
    sketch = replace(greedy_sketch(space), **given)
    made = complete_sketch(space.root(), sketch)
    assert made is not None
    source = checking.source_of(made)
    # Where rows begin at any element each store looks for itself.
    stores = calls(program_of(made), "stream_")
    told = {x.args[-1] for x in stores}
    lanes = vector_bytes // np.dtype(dtype).itemsize
    assert all(x.function.endswith(f"x{lanes}") for x in stores)
    if sketch.threads.team:
        assert c.Num("0") in told if shape[1] % 2 else told == {c.ARE_ALIGNED}
    else:
        assert told == {c.Num("0")}  # one thread asks at every store
    built = checking.build(source, tmp_path / "streamed", ())
    assert built.log == ""
    assert checking.in_child(lambda: stored_anywhere(built, x), seconds=20) == ""


def test_golden_stores_around_the_caches(golden):
    """Of vectors of 16 bytes, and of longer ones, which may begin between two of their own length."""
    prelude = Prelude(CHelpers())
    for lanes in (4, 8):
        prelude.use("stream", DType.f32, lanes)
    golden(prelude.text(), "stores_around_caches.c.txt")


def stored_anywhere(built, x):
    entry = getattr(ctypes.CDLL(str(built.library)), built.entry)
    n, size = x.size, x.itemsize
    room = np.zeros((n + 64) * size + 64, np.uint8)
    aligned = 64 + -room.ctypes.data % 64
    for offset in (0, 16, 32, 48, size, 16 + size):
        whole = room[(aligned + offset) % size :]
        whole = whole[: len(whole) // size * size].view(x.dtype)
        whole[:] = -1
        first = (aligned + offset) // size
        y = whole[first : first + n]
        entry((ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data))
        if not np.array_equal(y, 2 * x.ravel()):
            return f"{offset} bytes behind a line: {y} is not twice {x.ravel()}"
        if np.count_nonzero(whole == -1) != len(whole) - n:
            return f"{offset} bytes behind a line: something beside the array was written over"
    return ""


@kernel
def double_and_halve(x: nd, y: nd, z: nd):
    for i in range(y.shape[0]):
        y[i] = x[i] + x[i]
        z[i] = 0.5 * x[i]


def test_one_of_two_arrays_that_are_streamed_begins_elsewhere(tmp_path):
    x = np.arange(256, dtype=np.float32)
    arrays = [x, np.zeros_like(x), np.zeros_like(x)]
    recording = record_sequence(lambda x, y, z: double_and_halve(x, y, z), arrays, "two")
    space = build_space(normalise(recording), checking.target(2, 32))
    made = complete_sketch(
        space.root(),
        replace(greedy_sketch(space), threads=Along(), stores=ch.STREAM, tile=TileSizes(rows=4)),
    )
    assert made is not None
    source = checking.source_of(made)
    program = program_of(made)
    streams = calls(program, "stream_")
    assert {array_of(x.args[0]) for x in streams if x.args[-1] == c.ARE_ALIGNED} == {"y", "z"}
    assert len(program.functions) == 1
    built = checking.build(source, tmp_path / "two", ())
    assert built.log == ""
    assert checking.in_child(lambda: two_stored_anywhere(built, x), seconds=20) == ""


def two_stored_anywhere(built, x):
    entry = getattr(ctypes.CDLL(str(built.library)), built.entry)
    for of_y, of_z in ((0, 0), (0, 4), (4, 0), (0, 1), (1, 0), (4, 1)):
        y, z = (aligned_zeros(len(x) + 16)[k : k + len(x)] for k in (of_y, of_z))
        entry((ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data, z.ctypes.data))
        if not (np.array_equal(y, 2 * x) and np.array_equal(z, x / 2)):
            return f"{of_y} and {of_z} elements behind a line: {y} and {z}"
    return ""


def aligned_zeros(n):
    room = np.zeros(n + 16, np.float32)
    first = -room.ctypes.data % 64 // 4
    return room[first : first + n]
