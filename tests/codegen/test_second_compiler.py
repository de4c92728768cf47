"""Generated C with clang as with gcc: no warning, the same results, and no vector that was not written."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load, names
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.runtime.api.errors import DeviceError
from kernelscape.runtime.cpu.compiler import find_compiler
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.assembly import instructions, lanes_of
from kernelscape.testing.checking import Way

RANDOM = 2  # candidates of one sequence
EXTENTS = (5, 16, 23, 48, 67)


def usable(name):
    """None where a compiler works, else why it does not."""
    try:
        find_compiler(name)
    except DeviceError as e:
        return str(e)
    return None


def needs(name):
    why = None if shutil.which(name) is None else usable(name)
    return pytest.mark.skipif(
        shutil.which(name) is None or why is not None,
        reason=why or f"{name} is not installed (Debian: apt install clang libomp-dev)",
    )


@pytest.mark.compiler
@needs("clang")
@pytest.mark.parametrize("name", names())
def test_clang_builds_what_the_interpreter_computes(name, tmp_path):
    """Sequences take turns: every other one is of f64, and every fourth text is optimised."""
    entry, number = load(name), names().index(name)
    dtype = (np.float32, np.float64)[number % 2]
    rng = np.random.default_rng([number, np.dtype(dtype).itemsize])
    sizes = {k: int(rng.choice(EXTENTS)) for k in entry.sizes}
    args = entry.make_arguments(sizes, dtype, rng)
    recording = record_sequence(entry.sequence, args, name)
    problem = normalise(recording)
    n_arrays = len(recording.arrays)
    arrays = dict(zip((a.name for a in recording.arrays), args, strict=False))
    scalars = dict(zip((s.name for s in recording.scalars), args[n_arrays:], strict=True))
    inputs = checking.make_inputs(recording, problem, arrays, scalars)
    space = build_space(problem, checking.target(2, int(rng.choice([16, 32, 64]))))
    root = space.root()
    assert isinstance(root, Candidate)
    drawn = [checking.random_candidate(root, rng) for _ in range(RANDOM)]
    styles = [candidate for _, candidate in first_candidates(space)][:1]
    sources = [checking.crowded_source_of(c) for c in (*styles, *drawn) if isinstance(c, Candidate)]
    given = (sources, inputs, tmp_path, Way(repeats=6))
    assert not checking.fault(*given, compiler="clang", more_flags=checking.level(number))


STRAIGHT = """
void f(float *restrict a, const float *restrict b) {
    a[0] = 2 * b[0]; a[1] = 2 * b[1]; a[2] = 2 * b[2]; a[3] = 2 * b[3];
}
void g(float *restrict a, const float *restrict b) {
    for (long i = 0; i < 4096; ++i) a[i] = 2 * b[i];
}
"""


@pytest.mark.compiler
@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in ("gcc", "clang")])
def test_what_is_written_scalar_stays_scalar(name, tmp_path):
    """The bound rests on it: a candidate without a vector dim is pruned as one that is computed lane by lane."""
    compiler = find_compiler(name)
    if "-march=native" not in compiler.flags:
        pytest.skip("the names of instructions are those of x86")
    source, output = tmp_path / "straight.c", tmp_path / "straight.s"
    source.write_text(STRAIGHT)
    made = instructions([compiler.path, *compiler.flags, str(source), "-o", str(output)])
    assert lanes_of(made) == {"scalar"}


TILES = """
void f(float *restrict c, const float *restrict a, const float *restrict b, long n) {
    for (long k = 0; k < n; ++k)
        for (long j = 0; j < TRIPS * 5; j += 5) {
            c[j] += a[k] * b[k * 64 + j];
            c[j + 1] += a[k] * b[k * 64 + j + 1];
            c[j + 2] += a[k] * b[k * 64 + j + 2];
            c[j + 3] += a[k] * b[k * 64 + j + 3];
            c[j + 4] += a[k] * b[k * 64 + j + 4];
        }
}
"""


@pytest.mark.compiler
@pytest.mark.parametrize("trips", [2, 3, 8, 16])
@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(n)) for n in ("gcc", "clang")])
def test_a_loop_of_register_tiles_stays_a_loop(name, trips, tmp_path):
    """The bound rests on it: a candidate with small tiles is pruned as one whose loads no other tile shares."""
    compiler = find_compiler(name)
    if "-march=native" not in compiler.flags:
        pytest.skip("the names of instructions are those of x86")
    source, output = tmp_path / "tiles.c", tmp_path / "tiles.s"
    source.write_text(TILES.replace("TRIPS", str(trips)))
    made = instructions([compiler.path, *compiler.flags, str(source), "-o", str(output)])
    assert sum("fmadd" in m or m in ("mulss", "vmulss") for m in made) == 5
