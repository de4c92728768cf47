"""Common parts of tests of generated CUDA text: sequences, candidates with wanted decisions, their inputs."""

from __future__ import annotations

import shutil
from itertools import islice

import numpy as np
import pytest
from kernelscape.kernels.library import names
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.decisions import restore
from kernelscape.testing import checking
from kernelscape.testing.cases import SIZES, library_cases

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
from kernelscape.runtime.device import requirements
from kernelscape.testing import gpu_checking as gpu

N_LIBRARY = len(names())
CASES = list(islice(library_cases(), len(SIZES) * N_LIBRARY))
NEEDS_COMPILER = [
    pytest.mark.compiler,
    pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++"),
]


def case_of(name, sizes=4):
    """A library sequence at the sizes of that number."""
    return next(c for c in CASES[sizes * N_LIBRARY :] if c.name.split()[0] == name)


def root_of(problem):
    root = build_space(problem, gpu.target()).root()
    assert isinstance(root, Candidate), root
    return root


def inputs_of(case):
    return checking.make_inputs(case.recording, case.problem, case.arrays, case.scalars)


def drawing(root, seed):
    """Random complete candidates without end."""
    rng = np.random.default_rng(seed)
    while True:
        made = checking.random_candidate(root, rng)
        if isinstance(made, Candidate):
            yield made


def drawn(root, seed, n):
    """`n` random complete candidates."""
    return list(islice(drawing(root, seed), n))


def decided(problem, decisions):
    """A completion of what is decided."""
    made = restore(build_space(problem, gpu.target()), decisions.items())
    assert isinstance(made, Candidate), made
    complete = made.complete()
    assert isinstance(complete, Candidate), complete
    return complete


def nvrtc_is_there():
    return any(r.what == "nvrtc" and r.found for r in requirements("cuda"))


MATMUL = {
    "dim_kind(multiply0.i.outer)": "PARALLEL",
    "dim_kind(multiply0.j.outer)": "PARALLEL",
    "dim_kind(multiply0.k.outer)": "LOOP",
    "dim_kind(multiply0.i.mid)": "THREAD",
    "dim_kind(multiply0.j.mid)": "THREAD",
    "dim_kind(multiply0.k.mid)": "LOOP",
    "size(multiply0.i.mid)": "16",
    "size(multiply0.j.mid)": "4",
    "size(multiply0.k.mid)": "8",
    "dim_kind(multiply0.i.inner)": "UNROLL",
    "size(multiply0.i.inner)": "2",
    "dim_kind(multiply0.j.inner)": "VECTOR",
    "size(multiply0.j.inner)": "4",
    "dim_kind(multiply0.k.inner)": "ABSENT",
    "staged(multiply0.a)": "COPY",
    "staged(multiply0.b)": "COPY",
}
# One launch for both products, each row read once: rows over blocks, columns over threads.
BICGK = {
    "fused(gemv0,add_gemvt0)": "SAME_LAUNCH",
    "order(gemv0.i.outer,add_gemvt0.i.outer)": "MERGED",
    "order(gemv0.j.outer,add_gemvt0.j.outer)": "MERGED",
    "dim_kind(gemv0.i.outer)": "PARALLEL",
    "dim_kind(gemv0.j.outer)": "LOOP",
    "dim_kind(gemv0.j.mid)": "THREAD",
    "size(gemv0.j.mid)": "32",
    "dim_kind(gemv0.i.inner)": "UNROLL",
    "size(gemv0.i.inner)": "4",
}
