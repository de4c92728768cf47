"""The expert programs compute what the library's NumPy references do, at shapes that nothing divides."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.experiments.expert import VARIANTS, can_build, expert_source, names
from kernelscape.experiments.peers_bars import SEQUENCES
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.library import names as library_names
from kernelscape.testing import checking
from kernelscape.testing.calling import InputSet
from kernelscape.testing.checking import Way

pytestmark = [pytest.mark.compiler]


COMPILERS = [
    pytest.param(
        c, marks=pytest.mark.skipif(not can_build(c), reason=f"{c} with OpenMP is not installed")
    )
    for c in ("gcc", "clang")
]
# Smaller than a vector, odd, longer than a block of everything, divided by everything.
SHAPES = ({"m": 1, "n": 1, "k": 1}, {"m": 7, "n": 45, "k": 5}, {"m": 61, "n": 331, "k": 67},
          {"m": 64, "n": 256, "k": 32})  # fmt: skip
LENGTHS = (1, 37, 1009, 40000)
# What a program computes is looked at, not how fast: of the strided product, -O1 takes 1.5 s to compile, and -O0 a fifth of that.
LEVEL = ("-O0",)


def shapes_of(name):
    entry = load(name)
    if set(entry.sizes) == {"n"}:
        return [{"n": n} for n in LENGTHS]
    return [{k: s[k] for k in entry.sizes} for s in SHAPES]


def input_set(name, sizes, dtype, seed=0):
    """A recording, and arguments with what NumPy makes of them in float64."""
    entry = load(name)
    args = entry.make_arguments(sizes, dtype, np.random.default_rng(seed))
    recording = record_sequence(entry.sequence, args, name)
    n_arrays = len(recording.arrays)
    exact = [a.astype(np.float64) for a in args[:n_arrays]]
    entry.reference(*exact, *args[n_arrays:])
    arrays = dict(zip((a.name for a in recording.arrays), args, strict=False))
    scalars = dict(zip((s.name for s in recording.scalars), args[n_arrays:], strict=True))
    want = dict(zip(arrays, exact, strict=True))
    magnitude = max(float(np.abs(a).max()) for a in exact)
    factor = 100.0 * np.sqrt(sizes.get("k", 1) * sizes["n"] * sizes.get("m", 1))
    return recording, InputSet(arrays, scalars, want, factor, max(1.0, magnitude))


def fault(name, sizes, dtype, folder, *, variant="", compiler="gcc"):
    """The fault of a program, "" for none."""
    recording, inputs = input_set(name, sizes, dtype)
    source = expert_source(recording, sizes, variant)
    built = checking.build(source, folder / "expert", LEVEL, compiler)
    if built.library is None or built.log:
        return built.log or "it was not built"
    return checking.check(built, [inputs], Way(repeats=6))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", names())
def test_an_expert_program_is_right_at_any_shape(name, compiler, tmp_path):
    """Types take turns with compilers and shapes. Of gcc each program has the shape that divides nothing and, in turn, a short one
    or the one that divides everything; of clang an odd one.
    """
    turn = names().index(name) + (compiler == "clang")
    shapes = shapes_of(name)
    of_gcc = [shapes[2], shapes[(0, 1, 3)[turn % 3]]]
    for k, sizes in enumerate(of_gcc if compiler == "gcc" else shapes[1:2]):
        dtype = (np.float32, np.float64)[(turn + k) % 2]
        found = fault(name, sizes, dtype, tmp_path, compiler=compiler)
        assert not found, (sizes, found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "variant"), [(name, v) for name in names() for v in VARIANTS[name]]
)
def test_every_variant_is_right(name, variant, tmp_path):
    sizes = shapes_of(name)[2]
    found = fault(name, sizes, np.float32, tmp_path, variant=variant)
    assert not found, (sizes, found)


@pytest.mark.parametrize("name", ["gemver", "sgemvt"])
def test_panels_are_right_where_results_go_past_the_caches(name, tmp_path):
    for sizes in ({"m": 40, "n": 1024}, {"m": 13, "n": 144}):
        found = fault(
            name, sizes, np.float32, tmp_path, variant="-DPANELS=1 -DLAST_CACHE=0L -DALONE=0L"
        )
        assert not found, (sizes, found)


@pytest.mark.parametrize("sizes", [{"m": 130, "n": 75, "k": 90}, {"m": 33, "n": 100, "k": 65}])
@pytest.mark.parametrize(("name", "ahead"), [("matmul", 0), ("matmul_strided", 1)])
def test_a_product_of_several_blocks_is_right(name, ahead, sizes, tmp_path):
    small = f"-DPACKS=1 -DBLOCK_DEPTH=32 -DBLOCK_ROWS=24 -DBLOCK_COLUMNS=64 -DAHEAD={ahead}"
    found = fault(name, sizes, np.float32, tmp_path, variant=small)
    assert not found, found


def test_there_is_a_program_for_every_sequence_of_the_bars():
    assert {*SEQUENCES, "axpy", "matmul", "matmul_strided"} <= set(names()) <= set(library_names())
    assert set(VARIANTS) == set(names())


def test_a_mistake_shows(tmp_path):
    """The check is no use if it passes a program that is wrong."""
    recording, inputs = input_set("waxpby", {"n": 1009}, np.float32)
    source = expert_source(recording, {"n": 1009})
    wrong = checking.Source(
        source.text.replace("beta * get", "alpha * get"),
        source.entry,
        source.arguments,
        source.n_threads,
        source.flags,
    )
    built = checking.build(wrong, tmp_path / "wrong")
    assert checking.check(built, [inputs], Way(repeats=2))
