"""Target: the facts of one machine that constraints, bounds and lowering read.

`explore calibrate` measures them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .kind import CPU, GPU

LINE_BYTES = 64  # of every cache of a CPU
PAGE_BYTES = 4096  # the least page: lower bits of addresses are the same in memory


@dataclass(frozen=True, kw_only=True)
class CacheLevel:
    """One cache level.

    `read_bytes_per_ns`: optimistic rate (upper end of the measurements) at which all cores together
    read it.
    """

    name: str  # "L1", "L2", "L3"
    capacity_bytes: int  # of all cores together
    read_bytes_per_ns: float
    shared_by: int = (
        1  # cores (hardware threads) that share one of the caches, where it is private to a core
    )
    ways: int = 0  # lines that one set holds (associativity); 0: unknown, then no conflicts count


@dataclass(frozen=True, kw_only=True)
class StreamCurve:
    """Bandwidth curve: the rate at which `cores` cores together traverse the same arrays again and again.

    The order is always the same, and so is the mix of reads and writes. Rates are the optimistic
    end of the measurements, for arrays of growing size. At point k, about `read_bytes[k]` distinct
    bytes are read and `written_bytes[k]` are written. An update in place counts as both.
    `bytes_per_ns[k]` is the sum of both per nanosecond.
    """

    kind: str  # of the probe, as in "triad_nt"
    cores: int
    read_bytes: tuple[int, ...]
    written_bytes: tuple[int, ...]
    bytes_per_ns: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class FunctionRate:
    """Optimistic rates, in elements a ns, at which all cores together compute a function such as exp.

    `vector_per_ns`: in vectors or one by one, whichever is quicker. `scalar_per_ns`: one by one.
    """

    op: str  # its name in the table of operations
    dtype: str  # "f32", "f64"
    vector_per_ns: float
    scalar_per_ns: float


@dataclass(frozen=True, kw_only=True)
class Target:
    """Facts of one machine as one backend uses it.

    Every rate is the optimistic end of its measurements, for all cores together.

    `levels` runs from the innermost cache outwards. `*_flops_per_ns` count one fused multiply-add as two.
    """

    backend: str  # "cpu", "cuda", "emulator"
    name: str  # for people
    cores: int
    vector_bytes: int
    vector_registers: int
    levels: tuple[CacheLevel, ...]
    memory_read_bytes_per_ns: float
    memory_write_bytes_per_ns: float
    memory_mixed_bytes_per_ns: float  # best sum of reads and writes over any mix of both
    f32_flops_per_ns: float
    f64_flops_per_ns: float
    launch_ns: float  # the cheapest start and end of a parallel launch
    barrier_ns: float
    call_ns: float  # the cheapest call of the whole sequence
    # Of operations on single elements; 0: not known.
    scalar_f32_flops_per_ns: float = 0.0
    scalar_f64_flops_per_ns: float = 0.0
    # Operations of as many multiply-adds as additions, in vectors: some cores add in units of their own; 0: not known.
    f32_mixed_flops_per_ns: float = 0.0
    f64_mixed_flops_per_ns: float = 0.0
    add_latency_ns: float = 0.3  # from one dependent floating-point addition to the next, at least
    # Loads and stores of one element each, and of whole vectors, that all cores together start; 0: not known.
    loads_per_ns: float = 0.0
    vector_loads_per_ns: float = 0.0
    stores_per_ns: float = 0.0
    vector_stores_per_ns: float = 0.0
    # Elements that vectors gather from L1, each at an index of its own, in the quickest way that code has; 0: not known.
    gathers_per_ns: float = 0.0
    line_bytes: int = LINE_BYTES  # the least that memory delivers
    calibrated: bool = False  # False: data sheet guesses, optimistic on purpose
    streams: tuple[
        StreamCurve, ...
    ] = ()  # of all cores and of one; (): not known, as in calibrations of older versions
    functions: tuple[FunctionRate, ...] = ()  # of CPUs; what is missing is not known
    # Of GPUs only. There `cores` counts the multiprocessors, and `vector_bytes` is the widest access of one thread.
    architecture: str = ""  # what code is compiled for, as in "sm_90"
    max_threads_per_block: int = 0
    max_threads_along_z: int = 64  # of a block; along x and y there may be as many as it has
    # For the bound alone, down to the latencies: 0 where nothing is known, and then nothing follows from it.
    max_threads_per_core: int = 0
    max_blocks_per_core: int = 0
    shared_bytes_per_core: int = 0
    core_read_bytes_per_ns: float = 0.0  # what one core alone reads from outside its own cache
    core_boost: float = 1.0  # by how much a core alone may be faster than its share of all
    shared_bytes_per_ns: float = 0.0  # of shared memory
    instructions_per_ns: float = 0.0  # of warps, that all cores together start
    load_latency_ns: float = 0.0  # of the nearest load: from shared memory or L1
    far_load_latency_ns: float = 0.0  # of a load from outside L1
    registers_per_core: int = 0  # of 32 bits
    # Of CPUs: atomic additions to elements that no other core wants, of all cores together; 0: not known.
    atomic_f32_per_ns: float = 0.0
    atomic_f64_per_ns: float = 0.0
    atomic_i32_per_ns: float = 0.0
    shared_bytes_per_block: int = 0  # that a kernel gets without asking for more
    shared_bytes_per_block_most: int = 0  # that it gets when it asks; 0: no more than that

    @property
    def is_gpu(self) -> bool:
        """True if programs are grids of blocks of threads (CUDA C), on a device or emulated."""
        return self.max_threads_per_block > 0

    @property
    def kind(self) -> str:
        """Name of the target's kind, CPU or GPU (space/targets/kind.py), which selects families of choices and passes."""
        return GPU if self.is_gpu else CPU

    @property
    def copies_asynchronously(self) -> bool:
        """True if threads of a GPU can copy into shared memory asynchronously (cp.async; sm_80 and later)."""
        number = "".join(x for x in self.architecture if x.isdigit())
        return bool(number) and int(number) >= 80

    def of_threads(self, n: int) -> Target:
        """Returns the target for calls that use at most `n` CPU cores; 0: all.

        The rates stay those of all cores, so bounds stay valid.
        """
        if self.is_gpu or not 0 < n < self.cores:
            return self
        levels = []
        for c in self.levels[:-1]:
            # Each may be the only one on its cache, which others share.
            n_shares = min(n * c.shared_by, self.cores)
            levels.append(replace(c, capacity_bytes=c.capacity_bytes // self.cores * n_shares))
        return replace(self, cores=n, levels=(*levels, *self.levels[-1:]))

    def lanes(self, size_bytes: int) -> int:
        """Returns the number of elements of `size_bytes` bytes in one vector register."""
        return max(1, self.vector_bytes // size_bytes)

    def scalar_slowdown(self, size_bytes: int) -> float:
        """Returns the least ratio of the rate of vector operations to that of single elements, for floats of `size_bytes`.

        Some cores begin as many operations on halves of vectors as on single elements (AVX-512 of Zen 4), so half of the lanes
        is the least where the second rate is not known.
        """
        is_double = size_bytes > 4
        vectors = self.f64_flops_per_ns if is_double else self.f32_flops_per_ns
        single = self.scalar_f64_flops_per_ns if is_double else self.scalar_f32_flops_per_ns
        return max(1.0, vectors / single if single else self.lanes(size_bytes) / 2)

    def mixed_flops(self, size_bytes: int) -> float:
        """Returns the most operations a ns on floats of `size_bytes` in any mix of multiply-adds and additions, in vectors.

        All units of multiply-adds are busy then, and additions start beside them.
        """
        fused = self.f64_flops_per_ns if size_bytes > 4 else self.f32_flops_per_ns
        return self.starts(size_bytes) + fused / 2

    def starts(self, size_bytes: int) -> float:
        """Returns the most elements a ns for which vector instructions of arithmetic start; a multiply-add is one instruction.

        Where it is not known, each multiply-add has an addition beside it (Zen: two units of each kind).
        """
        is_double = size_bytes > 4
        fused = self.f64_flops_per_ns if is_double else self.f32_flops_per_ns
        mixed = self.f64_mixed_flops_per_ns if is_double else self.f32_mixed_flops_per_ns
        # Two instructions, a multiply-add and an addition, have three operations.
        return max(fused / 2, (mixed or fused * 1.5) * 2 / 3)

    @property
    def own_cache_bytes(self) -> int:
        """Bytes of a core's private cache: its share of the last cache but one."""
        return self.levels[-2].capacity_bytes // self.cores if len(self.levels) > 1 else 0

    @property
    def last_cache_bytes(self) -> int:
        return self.levels[-1].capacity_bytes if self.levels else 0
