"""Common parts of the tests of the space of a GPU: a GPU, and problems of the library."""

from __future__ import annotations

from itertools import islice

from kernelscape.kernels.library import names
from kernelscape.space.targets.target import CacheLevel, Target
from kernelscape.testing.cases import library_cases

GPU = Target(
    backend="cuda",
    name="some GPU",
    cores=8,
    vector_bytes=16,
    vector_registers=63,
    levels=(CacheLevel(name="L2", capacity_bytes=1 << 20, read_bytes_per_ns=100),),
    memory_read_bytes_per_ns=50,
    memory_write_bytes_per_ns=50,
    memory_mixed_bytes_per_ns=50,
    f32_flops_per_ns=1000,
    f64_flops_per_ns=500,
    launch_ns=1000,
    barrier_ns=10,
    call_ns=1,
    architecture="sm_90",
    max_threads_per_block=256,
    registers_per_core=1 << 16,
    shared_bytes_per_block=16 << 10,
)
N_LIBRARY = len(names())
SMALL, LARGE = 4, 6  # which sizes


def problem_of(name, sizes=SMALL):
    cases = islice(library_cases(), sizes * N_LIBRARY, (sizes + 1) * N_LIBRARY)
    return next(c.problem for c in cases if c.name.split()[0] == name)
