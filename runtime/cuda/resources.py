"""What kernels take of a multiprocessor, as the compiler reports it, and how many blocks that leaves room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..build import build_many
from ..outcome import Failure
from .nvrtc import KernelReport
from .profiles import Profile

if TYPE_CHECKING:
    from ...codegen.source import KernelLaunch, Source
    from .device import CudaDevice

# CUDA C++ Programming Guide, technical specifications per compute capability.
_REGISTERS_A_CORE = 1 << 16
_REGISTERS_A_STEP = 256  # given to a warp in steps of so many
_SHARED_STEP_BYTES = 128
_SHARED_OWN_BYTES = 1024  # of every block, kept by the system from sm_80 on
_WARP = 32


@dataclass(frozen=True)
class LaunchResources:
    """One launch: what its kernel takes, and the blocks of it that one multiprocessor holds at once."""

    kernel: str
    block: tuple[int, int, int]
    registers: int  # per thread
    shared_bytes: int  # per block, static and dynamic
    spill_bytes: int  # stored per thread
    stack_bytes: int  # per thread
    blocks_per_core: int  # 0: it cannot be launched
    occupancy: float  # warps held of the warps there is room for
    limit: str  # what keeps it from more: "threads", "registers", "shared memory" or "blocks"


@dataclass(frozen=True)
class BuildReport:
    """A source that compiled: every launch, in order, and what the compiler warned of ("" for nothing)."""

    launches: tuple[LaunchResources, ...]
    warnings: str
    build_ns: int


def report_builds(
    device: CudaDevice, sources: Sequence[Source], jobs: int
) -> list[BuildReport | Failure]:
    """Compile sources and say what they take, without a GPU; results in the order of `sources`.

    Raises DeviceError where there is no NVRTC.
    """
    built = build_many(device, sources, jobs)
    return [
        b if isinstance(b, Failure) else report_build(device, s)
        for s, b in zip(sources, built, strict=True)
    ]


def report_build(device: CudaDevice, source: Source) -> BuildReport | Failure:
    """The same for one source."""
    cubin = device.compile(source)
    if isinstance(cubin, Failure):
        return cubin
    by_name = {r.kernel: r for r in cubin.reports}
    launches = tuple(
        launch_resources(by_name[launch.kernel], launch, device.profile)
        for launch in source.launches
    )
    return BuildReport(launches, cubin.log, cubin.build_ns)


def launch_resources(report: KernelReport, launch: KernelLaunch, p: Profile) -> LaunchResources:
    """How a kernel with these needs fills a multiprocessor of the profile."""
    n_threads = launch.block[0] * launch.block[1] * launch.block[2]
    n_warps = -(-n_threads // _WARP)
    shared_bytes = report.shared_bytes + launch.shared_bytes
    warp_registers = _round_up(max(1, report.registers) * _WARP, _REGISTERS_A_STEP)
    block_shared = _round_up(shared_bytes + _SHARED_OWN_BYTES, _SHARED_STEP_BYTES)
    room = {
        "threads": p.threads_per_core // _WARP // n_warps,
        "registers": _REGISTERS_A_CORE // warp_registers // n_warps,
        "shared memory": p.shared_bytes_per_core // block_shared,
        "blocks": p.blocks_per_core,
    }
    limit = min(room, key=room.__getitem__)
    if n_threads > 1024 or shared_bytes > p.shared_bytes_per_block_most:
        limit = "threads" if n_threads > 1024 else "shared memory"
        room[limit] = 0
    return LaunchResources(
        kernel=report.kernel,
        block=launch.block,
        registers=report.registers,
        shared_bytes=shared_bytes,
        spill_bytes=report.spill_store_bytes,
        stack_bytes=report.stack_bytes,
        blocks_per_core=room[limit],
        occupancy=room[limit] * n_warps / (p.threads_per_core // _WARP),
        limit=limit,
    )


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step
