"""Plans of standalone kernels: default decisions for any CPU with given cores and vector registers."""

from __future__ import annotations

from ...codegen.plan.defaults import defaults
from ...codegen.plan.plan import Plan
from ...codegen.plan.reading import read_plan
from ...kernels.ir.kernel import KernelIR
from ...kernels.tasks.standalone import standalone
from ...space.draft import Decisions
from ...space.targets.target import CacheLevel, Target

_OWN_BYTES = 1 << 18  # that a core has in its own cache, on any machine


def default_plan(ir: KernelIR, cores: int, vector_bytes: int = 0) -> Plan:
    """Returns the default plan of a kernel for `cores` cores and vector registers of `vector_bytes` (0: no vectors)."""
    problem, target = standalone(ir), _any_cpu(cores, vector_bytes)
    return read_plan(problem, defaults(problem, target, ir.independent), target)


def decided_plan(ir: KernelIR, decisions: Decisions, cores: int, vector_bytes: int) -> Plan:
    """Returns the plan of a kernel by given decisions instead of the default ones."""
    return read_plan(standalone(ir), decisions, _any_cpu(cores, vector_bytes))


def _any_cpu(cores: int, vector_bytes: int) -> Target:
    """Returns a CPU target with given cores and registers, minimal caches, and all rates 0 (unknown)."""
    own = CacheLevel(name="L2", capacity_bytes=cores * _OWN_BYTES, read_bytes_per_ns=0.0)
    last = CacheLevel(name="L3", capacity_bytes=cores * _OWN_BYTES, read_bytes_per_ns=0.0)
    return Target(
        backend="cpu",
        name="any CPU",
        cores=cores,
        vector_bytes=vector_bytes,
        vector_registers=0,
        levels=(own, last),
        memory_read_bytes_per_ns=0.0,
        memory_write_bytes_per_ns=0.0,
        memory_mixed_bytes_per_ns=0.0,
        f32_flops_per_ns=0.0,
        f64_flops_per_ns=0.0,
        launch_ns=0.0,
        barrier_ns=0.0,
        call_ns=0.0,
    )
