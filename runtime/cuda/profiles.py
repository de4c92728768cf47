"""Facts of GPUs from their data sheets, for machines without a GPU: peak values, so that bounds hold."""

from __future__ import annotations

from dataclasses import dataclass

from ...space.targets.target import CacheLevel, Target
from ..api.errors import DeviceError


@dataclass(frozen=True, kw_only=True)
class DataSheet:
    """One data sheet. Rates are peaks of all multiprocessors together, at the boost clock."""

    name: str
    source: str
    architecture: str
    multiprocessors: int
    clock_ghz: float
    memory_bytes: int
    memory_bytes_per_ns: float
    f32_flops_per_ns: float
    f64_flops_per_ns: float
    l1_bytes: int  # of one multiprocessor, together with its shared memory
    l2_bytes: int
    shared_bytes_per_core: int  # at most, of one multiprocessor
    shared_bytes_per_block_most: int  # for a kernel that asks for it
    threads_per_core: int
    blocks_per_core: int


_KIB, _MIB, _GB = 1 << 10, 1 << 20, 10**9

PROFILES = {
    "h200": DataSheet(
        name="NVIDIA H200 SXM (data sheet)",
        source="NVIDIA H200 Tensor Core GPU data sheet; multiprocessor: NVIDIA H100 architecture white paper",
        architecture="sm_90",
        multiprocessors=132,
        clock_ghz=1.98,
        memory_bytes=141 * _GB,
        memory_bytes_per_ns=4800.0,
        f32_flops_per_ns=67_000.0,
        f64_flops_per_ns=34_000.0,
        l1_bytes=256 * _KIB,
        l2_bytes=50 * _MIB,
        shared_bytes_per_core=228 * _KIB,
        shared_bytes_per_block_most=227 * _KIB,
        threads_per_core=2048,
        blocks_per_core=32,
    ),
    "h100": DataSheet(
        name="NVIDIA H100 SXM 80 GB (data sheet)",
        source="NVIDIA H100 Tensor Core GPU data sheet and architecture white paper",
        architecture="sm_90",
        multiprocessors=132,
        clock_ghz=1.98,
        memory_bytes=80 * _GB,
        memory_bytes_per_ns=3350.0,
        f32_flops_per_ns=67_000.0,
        f64_flops_per_ns=34_000.0,
        l1_bytes=256 * _KIB,
        l2_bytes=50 * _MIB,
        shared_bytes_per_core=228 * _KIB,
        shared_bytes_per_block_most=227 * _KIB,
        threads_per_core=2048,
        blocks_per_core=32,
    ),
    "a100": DataSheet(
        name="NVIDIA A100 SXM 80 GB (data sheet)",
        source="NVIDIA A100 Tensor Core GPU data sheet and architecture white paper",
        architecture="sm_80",
        multiprocessors=108,
        clock_ghz=1.41,
        memory_bytes=80 * _GB,
        memory_bytes_per_ns=2039.0,
        f32_flops_per_ns=19_500.0,
        f64_flops_per_ns=9_700.0,
        l1_bytes=192 * _KIB,
        l2_bytes=40 * _MIB,
        shared_bytes_per_core=164 * _KIB,
        shared_bytes_per_block_most=163 * _KIB,
        threads_per_core=2048,
        blocks_per_core=32,
    ),
    "rtx4090": DataSheet(
        name="NVIDIA GeForce RTX 4090 (data sheet)",
        source="NVIDIA Ada GPU architecture white paper, appendix A",
        architecture="sm_89",
        multiprocessors=128,
        clock_ghz=2.52,
        memory_bytes=24 * _GB,
        memory_bytes_per_ns=1008.0,
        f32_flops_per_ns=82_600.0,
        f64_flops_per_ns=1_290.0,
        l1_bytes=128 * _KIB,
        l2_bytes=72 * _MIB,
        shared_bytes_per_core=100 * _KIB,
        shared_bytes_per_block_most=99 * _KIB,
        threads_per_core=1536,
        blocks_per_core=24,
    ),
}

# CUDA C++ Programming Guide, technical specifications per compute capability: the same for all.
MAX_THREADS_PER_BLOCK, MAX_THREADS_ALONG_Z = 1024, 64
# Per clock: L1 of one multiprocessor, and all of L2 on the A100 (its white paper); no data sheet says it of the others.
_L1_BYTES_PER_CLOCK = 128
_L2_BYTES_PER_CLOCK = 5120
# No data sheet has these, and they are not measured yet: chosen low, so that bounds hold. In clocks, but for the launch.
_ADD_CLOCKS, _BARRIER_CLOCKS, _LAUNCH_NS = 4, 8, 700.0
_LOAD_CLOCKS, _FAR_LOAD_CLOCKS = 20, 150  # from shared memory or L1, and from L2
_PORT_BYTES_PER_CLOCK = 128  # from L2 into one multiprocessor
# CUDA C++ Programming Guide, for all of compute capability 7 to 9: 32 banks of 4 bytes, four schedulers.
_SHARED_BYTES_PER_CLOCK, _SCHEDULERS = 128, 4


def find_profile(name: str) -> DataSheet:
    """Returns the data sheet called `name`. Raises DeviceError with the names of all sheets."""
    if name not in PROFILES:
        raise DeviceError(f"there is no data sheet {name!r}; there are {', '.join(PROFILES)}")
    return PROFILES[name]


def profile_target(name: str, backend: str) -> Target:
    """Returns the target (machine facts) of the data sheet called `name`. Raises DeviceError if there is none."""
    return target_of(find_profile(name), backend)


def target_of(p: DataSheet, backend: str) -> Target:
    """Returns the target (machine facts) of a data sheet."""
    core_clocks = p.multiprocessors * p.clock_ghz
    levels = (
        CacheLevel(
            name="L1",
            capacity_bytes=p.l1_bytes * p.multiprocessors,
            read_bytes_per_ns=_L1_BYTES_PER_CLOCK * core_clocks,
        ),
        CacheLevel(
            name="L2",
            capacity_bytes=p.l2_bytes,
            read_bytes_per_ns=_L2_BYTES_PER_CLOCK * p.clock_ghz,
        ),
    )
    return Target(
        backend=backend,
        name=p.name,
        cores=p.multiprocessors,
        vector_bytes=16,  # the widest access of one thread
        vector_registers=63,  # of that width, in the 255 registers of one thread
        levels=levels,
        memory_read_bytes_per_ns=p.memory_bytes_per_ns,
        memory_write_bytes_per_ns=p.memory_bytes_per_ns,
        memory_mixed_bytes_per_ns=p.memory_bytes_per_ns,
        f32_flops_per_ns=p.f32_flops_per_ns,
        f64_flops_per_ns=p.f64_flops_per_ns,
        launch_ns=_LAUNCH_NS,
        barrier_ns=_BARRIER_CLOCKS / p.clock_ghz,
        call_ns=1.0,
        add_latency_ns=_ADD_CLOCKS / p.clock_ghz,
        architecture=p.architecture,
        max_threads_per_block=MAX_THREADS_PER_BLOCK,
        max_threads_along_z=MAX_THREADS_ALONG_Z,
        registers_per_core=1 << 16,
        shared_bytes_per_block=48 * _KIB,
        shared_bytes_per_block_most=p.shared_bytes_per_block_most,
        line_bytes=32,  # a sector
        max_threads_per_core=p.threads_per_core,
        max_blocks_per_core=p.blocks_per_core,
        shared_bytes_per_core=p.shared_bytes_per_core,
        core_read_bytes_per_ns=_PORT_BYTES_PER_CLOCK * p.clock_ghz,
        shared_bytes_per_ns=_SHARED_BYTES_PER_CLOCK * core_clocks,
        instructions_per_ns=_SCHEDULERS * core_clocks,
        load_latency_ns=_LOAD_CLOCKS / p.clock_ghz,
        far_load_latency_ns=_FAR_LOAD_CLOCKS / p.clock_ghz,
    )
