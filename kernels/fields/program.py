"""Program state: created by `ks.init`, it owns the fields and selects the typing rules.

Without a program (`current_program() is None`) kernels take NumPy arrays and have NumPy's rules.
"""

from __future__ import annotations

import itertools
import platform
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir.errors import ProgramRuntimeError, ProgramValueError
from ..ir.kernel import DType
from .caller_location import fail
from .following import AbstractFollower
from .host_access import AbstractHostKernels, defer_by
from .tree import NodeTree, SNode

if TYPE_CHECKING:
    from .field import AbstractField


class Arch(Enum):
    """Architecture that a program may request."""

    x64 = "x64"
    arm64 = "arm64"
    cuda = "cuda"
    amdgpu = "amdgpu"
    vulkan = "vulkan"
    metal = "metal"
    opengl = "opengl"
    gles = "gles"
    dx11 = "dx11"
    dx12 = "dx12"
    emulator = "emulator"  # of GPUs, on the CPU

    @property
    def is_cpu(self) -> bool:
        return self in (Arch.x64, Arch.arm64)

    @property
    def is_device(self) -> bool:
        """True if a backend of this name runs programs on it: a GPU or the emulator."""
        return self in (Arch.cuda, Arch.emulator)


x64, arm64 = Arch.x64, Arch.arm64
cuda, amdgpu, vulkan, metal = Arch.cuda, Arch.amdgpu, Arch.vulkan, Arch.metal
opengl, gles, dx11, dx12 = Arch.opengl, Arch.gles, Arch.dx11, Arch.dx12
cpu = arm64 if platform.machine() in ("aarch64", "arm64") else x64
emulator = Arch.emulator
gpu = tuple(arch for arch in Arch if not arch.is_cpu and arch is not emulator)

# Options of Taichi's that say how its compiler and its devices work; they are taken and mean nothing here.
_TAICHIS = """
advanced_optimization allow_nv_shader_extension auto_mesh_local_default_occupacy cache_loop_invariant_global_vars
cfg_optimization check_out_of_bound cpu_block_dim_adaptive cuda_stack_limit default_cpu_block_dim default_gpu_block_dim
default_up demote_dense_struct_fors demote_no_access_mesh_fors detect_read_only device_memory_fraction device_memory_GB
dynamic_index enable_fallback experimental_auto_mesh_local flatten_if force_scalarize_matrix gdb_trigger gpu_max_reg
half2_vectorization kernel_profiler log_level lower_access make_block_local make_cpu_multithreading_loop make_mesh_block_local
make_thread_local max_block_dim mesh_localize_all_attr_mappings mesh_localize_from_end_mapping mesh_localize_to_end_mapping
move_loop_invariant_outside_if num_compile_threads offline_cache_cleaning_factor offline_cache_cleaning_policy
offline_cache_file_path offline_cache_max_size_of_files opt_level optimize_mesh_reordered_mapping packed print_accessor_ir
print_full_traceback print_ir print_ir_dbg_info print_kernel_amdgcn print_kernel_asm print_kernel_llvm_ir
print_kernel_llvm_ir_optimized print_preprocessed_ir print_struct_llvm_ir quant_opt_atomic_demotion quant_opt_store_fusion
real_matrix_scalarize require_version saturating_grid_dim short_circuit_operators simplify_after_lower_access
simplify_before_lower_access timeline unrolling_limit use_llvm verbose verbose_kernel_launches vk_api_version
"""
WITHOUT_MEANING = frozenset(_TAICHIS.split())


@dataclass(frozen=True)
class Config:
    """Options of a program that have an effect here; others are in `Program.ignored`.

    `cpu_max_num_threads` 0: one thread for each core. `ad_stack_size` 0: see kernels/frontend/adjoint_calls.py.
    `deterministic`: sums of floats keep their order, as without `fast_math`.
    `async_mode`: up to `async_flush_every` calls are deferred.
    """

    arch: Arch = cpu
    default_fp: DType = DType.f32
    default_ip: DType = DType.i32
    debug: bool = False
    random_seed: int = 0
    cpu_max_num_threads: int = 0
    fast_math: bool = True
    offline_cache: bool = True
    ad_stack_size: int = 0
    deterministic: bool = False
    async_mode: bool = False
    async_flush_every: int = 1024  # two periods of programs with some hundred calls

    @property
    def reorders_sums(self) -> bool:
        """True if sums of floats may be computed in any order."""
        return self.fast_math and not self.deterministic


_ENDED = "its program has ended: ks.init and ks.reset end the program before"


class Program:
    """Program: its options, and its fields in order of creation."""

    def __init__(self, config: Config, ignored: dict[str, Any]) -> None:
        self.config = config
        self.ignored = ignored
        self.fields: list[AbstractField] = []
        self.unplaced: list[AbstractField] = []  # that were made since the last `check_placed`
        self.root = SNode("root", None, NodeTree(is_final=True))
        self.n_trees = itertools.count(1)  # of builders; the root's is 0
        self.builders: list[NodeTree] = []
        self.draws = itertools.count()  # calls of kernels that draw random numbers
        self.follower: AbstractFollower | None = None
        self.host_kernels: AbstractHostKernels | None = None  # where calls wait
        self.n_destroyed = (
            0  # trees of fields: what was prepared with arrays before is not right any more
        )

    def outdate(self) -> None:
        """Invalidates prepared calls: fields were freed, or their memory is shared with other libraries."""
        self.n_destroyed += 1
        if self.follower is not None:
            self.follower.outdate()

    def check_placed(self) -> None:
        """Raises ProgramRuntimeError for a field without a place, and for a derivative without one that a field asks for."""
        for field in self.unplaced:
            for leaf in field.leaves():
                _ = leaf.place
        self.unplaced.clear()

    def end(self) -> None:
        """Frees the memory of the program's fields; later uses of them raise an error."""
        if self.follower is not None:
            self.follower.end()
        for field in self.fields:
            for leaf in field.leaves():
                leaf.release(_ENDED)
        for tree in (self.root.tree, *self.builders):
            tree.released = tree.released or _ENDED
        self.fields.clear()
        self.unplaced.clear()

    def deactivate_all(self) -> None:
        """Makes all cells of all sparse fields inactive."""
        for tree in (self.root.tree, *self.builders):
            for top in tree.tops if tree.is_final else ():
                top.deactivate_all()


_current: Program | None = None


def current_program() -> Program | None:
    """Returns the program that the last `ks.init` began; None if there is none."""
    return _current


def begin(program: Program) -> None:
    """Makes `program` the current program."""
    global _current
    _current = program
    defer_by(program.follower, program.host_kernels)


def end() -> None:
    """Ends the current program, if there is one."""
    global _current
    if _current is not None:
        _current.end()
    _current = None
    defer_by(None, None)


def needed_program(what: str) -> Program:
    """Returns the current program. LanguageError if there is none; `what` names the use that needs one."""
    return _current or fail(f"{what} needs a program: call ks.init() first", ProgramRuntimeError)


class _Options:
    """`ks.cfg`: the options of the program, as attributes; None for Taichi's options that were not given."""

    def __getattr__(self, name: str) -> Any:
        program = _current
        if name in Config.__dataclass_fields__:
            return getattr(program.config if program else Config(), name)
        if name in WITHOUT_MEANING:
            return program.ignored.get(name) if program else None
        raise AttributeError(f"ks.cfg has no option {name!r}")


cfg = _Options()


class uint:  # noqa: N801 - written as `int` is
    """Element type: unsigned integers with as many bits as the program's `default_ip`, u32 without a program."""


def element_dtype(x: Any) -> DType:
    """Returns `x` as an element type: a DType, the program's `float`, `int` or `uint`, or a type NumPy accepts.

    LanguageError for anything else.
    """
    if isinstance(x, DType):
        return x
    if _current is not None and (x is float or x is int):
        return _current.config.default_fp if x is float else _current.config.default_ip
    if x is uint:
        bits = 32 if _current is None else 8 * _current.config.default_ip.size_bytes
        return DType(f"uint{bits}")
    try:
        return DType(np.dtype(x).name)
    except (TypeError, ValueError):
        return fail(
            f"{x!r} is no type of elements: use one such as ks.f32, ks.i32 or ks.u8",
            ProgramValueError,
        )
