"""Resources of kernels on a multiprocessor by the compiler's report, and the number of resident blocks."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..api.artifact import BuildReport, LaunchResources
from ..api.outcome import Failure
from .nvrtc import KernelReport
from .profiles import MAX_THREADS_ALONG_Z, MAX_THREADS_PER_BLOCK, DataSheet

if TYPE_CHECKING:
    from ...codegen.text.source import KernelLaunch, Source
    from .compiler import Cubin

# CUDA C++ Programming Guide, technical specifications per compute capability.
_REGISTERS_A_CORE = 1 << 16
_REGISTERS_A_STEP = 256  # given to a warp in steps of so many
_SHARED_STEP_BYTES = 128
_SHARED_OWN_BYTES = 1024  # of every block, kept by the system from sm_80 on
_WARP = 32


def build_report(source: Source, cubin: Cubin, p: DataSheet) -> BuildReport | Failure:
    """Returns the resources of a compiled source on the GPU of data sheet `p`; a Failure if a kernel is missing."""
    by_name = {r.kernel: r for r in cubin.reports}
    absent = [x.kernel for x in source.launches if x.kernel not in by_name]
    if absent:
        return Failure("launch", f"the built module does not export {absent[0]}")
    launches = tuple(launch_resources(by_name[x.kernel], x, p) for x in source.launches)
    return BuildReport(launches, cubin.log, cubin.build_ns)


def refusal(report: BuildReport, gpu: str) -> Failure | None:
    """Returns a Failure if a block of some kernel needs more than a multiprocessor has; else None.

    The compiler's counts decide, so no candidate is refused because of the space's estimates.
    """
    for x in report.launches:
        if x.blocks_per_core > 0:
            continue
        n_threads = prod(x.block)
        needs = {
            "threads": f"{x.shape} threads",
            "registers": f"{x.registers} registers in each of {n_threads} threads",
            "shared memory": f"{x.shared_bytes} bytes of shared memory",
        }
        return Failure("launch", f"{x.kernel}: a block needs {needs[x.limit]}, too many for {gpu}")
    return None


def unheld_grid(source: Source, report: BuildReport, p: DataSheet) -> Failure | None:
    """Returns a Failure if blocks of some launch wait for each other, and the GPU of data sheet `p` does not hold all at once."""
    for launch, x in zip(source.launches, report.launches, strict=True):
        if launch.stays:
            found = too_many_blocks(launch, x.blocks_per_core * p.multiprocessors, p.name)
            if found is not None:
                return found
    return None


def too_many_blocks(launch: KernelLaunch, most: int, gpu: str) -> Failure | None:
    """Returns a Failure if a launch has more blocks than `most`, those that a GPU holds at once."""
    n = prod(launch.grid)
    if n <= most:
        return None
    return Failure(
        "launch", f"{launch.kernel}: {n} blocks wait for each other, and {gpu} holds {most} at once"
    )


def launch_resources(report: KernelReport, launch: KernelLaunch, p: DataSheet) -> LaunchResources:
    """Returns the resources and the occupancy of one launch on the GPU of data sheet `p`."""
    n_threads = prod(launch.block)
    n_warps = -(-n_threads // _WARP)
    shared_bytes = report.shared_bytes + launch.shared_bytes
    warp_registers = _round_up(max(1, report.registers) * _WARP, _REGISTERS_A_STEP)
    block_shared = _round_up(shared_bytes + _SHARED_OWN_BYTES, _SHARED_STEP_BYTES)
    room = {
        "threads": p.threads_per_core // _WARP // n_warps,
        # A multiprocessor has four parts, each with registers for whole warps.
        "registers": _REGISTERS_A_CORE // warp_registers // 4 * 4 // n_warps,
        "shared memory": p.shared_bytes_per_core // block_shared,
        "blocks": p.blocks_per_core,
    }
    limit = min(room, key=room.__getitem__)
    is_too_large = n_threads > MAX_THREADS_PER_BLOCK or launch.block[2] > MAX_THREADS_ALONG_Z
    if is_too_large or shared_bytes > p.shared_bytes_per_block_most:
        limit = "threads" if is_too_large else "shared memory"
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
