"""Lower bound on the time, in ns, of every completion of a candidate.

The bound is admissible: it counts guaranteed work only, at rates that were never exceeded. It holds
for a sequence that is called repeatedly, so caches may hold data of the last call. It is monotone
if the parent's bound is passed in. It names the limiting resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...space.candidate import Candidate, Space
from ...space.targets.kind import CPU, GPU
from . import common
from . import cpu as ct
from . import gpu as gt
from . import gpu_facts as gf
from .columns import Floats, Ints
from .gpu_tables import GpuTables, build_gpu_tables
from .operations import named_flops
from .overlap import MAYBE
from .port_costs import SUMS
from .tables import build_tables

__all__ = ["Bound", "Bounder", "Phase", "Roofline"]

Mask = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class _Terms:
    """Terms of the bound for one kind of target: their names, and a builder of the tables that only GPUs have."""

    names: tuple[str, ...]  # in the order of cpu.py or gpu.py
    has_levels: bool  # whether the target's levels of cache follow
    gpu_tables: Callable[[Space], GpuTables] | None  # in addition to the common tables


_TERMS: Mapping[str, _Terms] = {
    CPU: _Terms(
        (
            *("memory read", "memory write", "memory", "streams"),
            *("operations", "chain", "ports", "packing", "tiles", "tails"),
            *("atomics", "functions", "launches"),
        ),
        True,
        None,
    ),
    GPU: _Terms(
        (
            *("memory read", "memory write", "memory", "L2", "L1", "shared memory"),
            *("operations", "issue", "latency", "launches"),
        ),
        False,
        build_gpu_tables,
    ),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Tasks that may overlap in time.

    `read_bytes`, `written_bytes`: guaranteed traffic of each array; `n_runs`: executions per call.
    """

    tasks: tuple[str, ...]
    read_bytes: tuple[tuple[str, float], ...]
    written_bytes: tuple[tuple[str, float], ...]
    n_runs: int = 1  # in a call; the bytes are of each


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound.

    `ns`: its value; `terms`: ns of each resource alone; `limiting`: the resource with the largest
    term.
    `ns` can exceed every term: the times of successive phases add up, and different resources may
    limit them.
    """

    ns: float
    terms: tuple[tuple[str, float], ...]
    limiting: str
    phases: tuple[Phase, ...] = ()


@dataclass(frozen=True, slots=True)
class Roofline:
    """Compulsory traffic in bytes of a wholly fused implementation that starts with empty caches, and its operations."""

    read_bytes: float
    written_bytes: float
    flops: float

    @property
    def total_bytes(self) -> float:
        return self.read_bytes + self.written_bytes


class Bounder:
    """Computes the bounds of candidates of one space. Not thread-safe.

    Bodies count with the work that they do on any arguments. If the space has a profile, they count
    with the work on the measured arguments, and the bound holds for these. `compiler_vectorises`:
    on a CPU, True if the compiler may vectorise loops that were not decided to be vectors. By
    default it may not (runtime/cpu/compiler.py turns that off), so scalar code is bounded by the
    rate of scalar code.
    """

    def __init__(self, space: Space, *, compiler_vectorises: bool = False) -> None:
        self.space = space
        self.tables = build_tables(space, compiler_vectorises)
        counted = _TERMS[space.target.kind]
        self.gpu = None if counted.gpu_tables is None else counted.gpu_tables(space)
        levels = tuple(level.name for level in space.target.levels)
        self.names = (*counted.names, *levels) if counted.has_levels else counted.names
        self._apart = tuple(space.variables.apart)
        self._scratch = ct.make_scratch(self.tables, len(self.names))
        self._phase = np.zeros(len(space.problem.tasks), np.int64)
        self._terms = np.zeros(len(self.names))
        self._none_known = np.zeros(len(space.problem.tasks))
        self._no_line = np.zeros(2)

    def ns(
        self,
        candidate: Candidate | Mask,
        parent_ns: float = 0.0,
        registers: Sequence[float] | None = None,
    ) -> float:
        """Returns the lower bound in ns, at least `parent_ns`; 0 for implementations outside of a search's tree.

        `registers`: [n_tasks], on a GPU, the registers per thread of each task whose kernel is
        compiled, 0 for others.
        """
        domains = candidate.domains if isinstance(candidate, Candidate) else candidate
        if any(not int(domains[var]) & 1 for var in self._apart):  # the tables are about tasks
            self._phase[:], self._terms[:] = 0, 0.0
            return parent_ns
        if self.gpu is None:
            found = (self._phase, self._terms)
            return max(
                parent_ns, float(ct.lower_bound(self.tables, self._scratch, domains, *found))
            )
        known = self._none_known if registers is None else np.array(registers, np.float64)
        return max(parent_ns, self._gpu_ns(domains, known, self._no_line))

    def terms(self, candidate: Candidate | Mask) -> Floats:
        """Returns [n_terms]: the ns of each resource alone, in the order of `names`.

        The next call overwrites them.
        """
        self.ns(candidate)
        return self._terms

    def tiles_ns(self, candidate: Candidate | Mask) -> Floats:
        """Returns [n_tasks]: the ns in which each task of a CPU alone moves tiles between levels.

        The next call overwrites them.
        """
        self.ns(candidate)
        return self._scratch.moves

    def lost_ns(self) -> Floats:
        """Returns [2]: the ns in which a CPU likely reads evicted tiles again, from caches and from memory.

        They belong to the candidate of the last call, as those of `sums_ns`.
        """
        found: Floats = self.tables.runs @ self._scratch.lost
        return found

    def parallel(self) -> Ints:
        """Returns [n_tasks]: whether each task of a CPU may run on all cores (overlap.py), for the candidate of the last call."""
        return self._scratch.parallel

    def sums_ns(self) -> Floats:
        """Returns [n_tasks]: the ns of dependence chains of sums in each task of a CPU, if register tiles do not overlap."""
        found = self._scratch.least[:, SUMS]
        shared = np.where(self._scratch.parallel & MAYBE, self.tables.cores, 1.0)
        return np.where(np.isfinite(found), found, 0.0) / shared * self.tables.runs

    def expected_ns(self, candidate: Candidate | Mask, base: float, slope: float) -> float:
        """Returns the bound on a GPU if each thread with accumulators has `base + slope * counted` registers.

        `counted`: registers that the space counts. The result is an estimate.
        """
        domains = candidate.domains if isinstance(candidate, Candidate) else candidate
        return self._gpu_ns(domains, self._none_known, np.array([base, slope]))

    def registers(self, candidate: Candidate | Mask) -> tuple[int, ...]:
        """Returns [n_tasks]: the counted registers of a GPU thread's accumulators, at the least open value.

        0 without any.
        """
        assert self.gpu is not None
        domains = candidate.domains if isinstance(candidate, Candidate) else candidate
        return tuple(int(n) for n in gf.registers_counted(self.gpu, domains))

    def _gpu_ns(self, domains: Mask, registers: Floats, line: Floats) -> float:
        assert self.gpu is not None
        found = (self._phase, self._terms, registers, line)
        return float(gt.lower_bound(self.tables, self.gpu, domains, *found))

    def bound(
        self,
        candidate: Candidate | Mask,
        parent_ns: float = 0.0,
        registers: Sequence[float] | None = None,
    ) -> Bound:
        """Returns the bound with its terms, largest first, and the phases that it counted; arguments as in `ns`."""
        domains = candidate.domains if isinstance(candidate, Candidate) else candidate
        ns = self.ns(domains, parent_ns, registers)
        terms = sorted(
            ((name, float(t)) for name, t in zip(self.names, self._terms, strict=True) if t > 0),
            key=lambda term: -term[1],
        )
        limiting = terms[0][0] if terms else "launches"
        return Bound(ns, tuple(terms), limiting, self._named_phases(domains))

    def roofline(self) -> Roofline:
        """Returns the roofline of the best fused implementation: compulsory traffic, and operations by the usual count."""
        read = written = 0.0
        for a in self.space.problem.arrays:
            if a.role == "temp":
                continue
            read += a.size_bytes if a.role in ("input", "inout") else 0
            written += a.size_bytes if a.role in ("output", "inout") else 0
        return Roofline(
            read, written, sum(t.n_runs * named_flops(t) for t in self.space.problem.tasks)
        )

    def _named_phases(self, domains: Mask) -> tuple[Phase, ...]:
        tasks, arrays = self.space.problem.tasks, self.space.problem.arrays
        phases, nobody = [], np.eye(len(tasks), dtype=np.bool_)
        moved = np.zeros((len(tasks), common.N_MOVED))
        for p in sorted(set(self._phase.tolist())):
            reads, writes = [], []
            for a, array in enumerate(arrays):
                moved[:] = 0.0
                common.array_traffic(self.tables, domains, self._phase, nobody, a, moved)
                if moved[p, common.ARRAY_READS]:
                    reads.append((array.name, float(moved[p, common.ARRAY_READS])))
                if moved[p, common.ARRAY_WRITES]:
                    writes.append((array.name, float(moved[p, common.ARRAY_WRITES])))
            members = tuple(t.name for k, t in enumerate(tasks) if self._phase[k] == p)
            phases.append(Phase(members, tuple(reads), tuple(writes), tasks[p].n_runs))
        return tuple(phases)
