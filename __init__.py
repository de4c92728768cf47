"""kernelscape: every implementation of a sequence of kernels as one space, searched with a bound and a gap.

The public names live in the table below and load on first use (PEP 562), so that importing the package costs nothing. Executors of
calls are registered by how they are made, in `kernels.frontend.dispatch`, which imports nothing slow. For type checkers the same
names are imports; names of the kernel language are those of `kernels/static_types.pyi`.
"""

from __future__ import annotations

from importlib import import_module

from .kernels.frontend import dispatch as _dispatch
from .kernels.frontend import lowering as _lowering

TYPE_CHECKING = False  # that of `typing`, whose import would take longer than all else here

if TYPE_CHECKING:
    from typing import Any

    from .kernels.frontend.instance import Instance

    __version__: str

    from . import compat as compat
    from . import errors as errors
    from . import program as ad  # noqa: F401 - public as `ks.ad`
    from .explorer.entry import explore as explore
    from .explorer.family import load_tuned as load_tuned
    from .explorer.results import load as load
    from .explorer.results import replay as replay
    from .explorer.stored_run import load_run as load_run
    from .kernels import math as math
    from .kernels.fields.addresses import get_addr as get_addr
    from .kernels.fields.dlpack import from_dlpack as from_dlpack
    from .kernels.fields.element_fields import MatrixField as MatrixField
    from .kernels.fields.element_fields import ScalarField as ScalarField
    from .kernels.fields.factories import field as field
    from .kernels.fields.fields_builder import FieldsBuilder as FieldsBuilder
    from .kernels.fields.fields_builder import deactivate_all_snodes as deactivate_all_snodes
    from .kernels.fields.fields_builder import root as root
    from .kernels.fields.ndarray import Ndarray as Ndarray
    from .kernels.fields.node_cells import activate as activate
    from .kernels.fields.node_cells import append as append
    from .kernels.fields.node_cells import deactivate as deactivate
    from .kernels.fields.node_cells import is_active as is_active
    from .kernels.fields.node_cells import length as length
    from .kernels.fields.node_cells import rescale_index as rescale_index
    from .kernels.fields.program import Arch as Arch
    from .kernels.fields.program import amdgpu as amdgpu
    from .kernels.fields.program import arm64 as arm64
    from .kernels.fields.program import cfg as cfg
    from .kernels.fields.program import cpu as cpu
    from .kernels.fields.program import cuda as cuda
    from .kernels.fields.program import dx11 as dx11
    from .kernels.fields.program import dx12 as dx12
    from .kernels.fields.program import emulator as emulator
    from .kernels.fields.program import gles as gles
    from .kernels.fields.program import gpu as gpu
    from .kernels.fields.program import metal as metal
    from .kernels.fields.program import opengl as opengl
    from .kernels.fields.program import vulkan as vulkan
    from .kernels.fields.program import x64 as x64
    from .kernels.fields.quantised import BitpackedFields as BitpackedFields
    from .kernels.fields.struct_field import StructField as StructField
    from .kernels.fields.structs import Struct as Struct
    from .kernels.fields.tree import Layout as Layout
    from .kernels.fields.tree import SNode as SNode
    from .kernels.fields.tree import axes as axes
    from .kernels.fields.tree import i as i
    from .kernels.fields.tree import ij as ij
    from .kernels.fields.tree import ijk as ijk
    from .kernels.fields.tree import ijkl as ijkl
    from .kernels.fields.tree import ijl as ijl
    from .kernels.fields.tree import ik as ik
    from .kernels.fields.tree import ikl as ikl
    from .kernels.fields.tree import il as il
    from .kernels.fields.tree import j as j
    from .kernels.fields.tree import jk as jk
    from .kernels.fields.tree import jkl as jkl
    from .kernels.fields.tree import jl as jl
    from .kernels.fields.tree import k as k
    from .kernels.fields.tree import kl as kl
    from .kernels.fields.tree import l as l
    from .kernels.frontend.dispatch import AbstractDeferringExecutor, Executor
    from .kernels.frontend.functions import acos as acos
    from .kernels.frontend.functions import acosh as acosh
    from .kernels.frontend.functions import asin as asin
    from .kernels.frontend.functions import asinh as asinh
    from .kernels.frontend.functions import atan as atan
    from .kernels.frontend.functions import atan2 as atan2
    from .kernels.frontend.functions import atanh as atanh
    from .kernels.frontend.functions import bit_shr as bit_shr
    from .kernels.frontend.functions import ceil as ceil
    from .kernels.frontend.functions import clz as clz
    from .kernels.frontend.functions import cos as cos
    from .kernels.frontend.functions import cosh as cosh
    from .kernels.frontend.functions import ctz as ctz
    from .kernels.frontend.functions import erf as erf
    from .kernels.frontend.functions import erfc as erfc
    from .kernels.frontend.functions import exp as exp
    from .kernels.frontend.functions import exp2 as exp2
    from .kernels.frontend.functions import expm1 as expm1
    from .kernels.frontend.functions import floor as floor
    from .kernels.frontend.functions import gamma as gamma
    from .kernels.frontend.functions import hypot as hypot
    from .kernels.frontend.functions import isinf as isinf
    from .kernels.frontend.functions import isnan as isnan
    from .kernels.frontend.functions import lgamma as lgamma
    from .kernels.frontend.functions import log as log
    from .kernels.frontend.functions import log1p as log1p
    from .kernels.frontend.functions import log2 as log2
    from .kernels.frontend.functions import log10 as log10
    from .kernels.frontend.functions import popcnt as popcnt
    from .kernels.frontend.functions import pow as pow
    from .kernels.frontend.functions import raw_div as raw_div
    from .kernels.frontend.functions import raw_mod as raw_mod
    from .kernels.frontend.functions import rint as rint
    from .kernels.frontend.functions import round as round
    from .kernels.frontend.functions import rsqrt as rsqrt
    from .kernels.frontend.functions import sin as sin
    from .kernels.frontend.functions import sinh as sinh
    from .kernels.frontend.functions import sqrt as sqrt
    from .kernels.frontend.functions import tan as tan
    from .kernels.frontend.functions import tanh as tanh
    from .kernels.frontend.functions import trunc as trunc
    from .kernels.frontend.init import init as init
    from .kernels.frontend.init import reset as reset
    from .kernels.frontend.init import sync as sync
    from .kernels.frontend.intrinsics import max as max
    from .kernels.frontend.intrinsics import min as min
    from .kernels.frontend.intrinsics import one as one
    from .kernels.frontend.intrinsics import randn as randn
    from .kernels.frontend.intrinsics import random as random
    from .kernels.frontend.intrinsics import stop_grad as stop_grad
    from .kernels.frontend.intrinsics import zero as zero
    from .kernels.frontend.kernel import atomic_add as atomic_add
    from .kernels.frontend.kernel import atomic_and as atomic_and
    from .kernels.frontend.kernel import atomic_max as atomic_max
    from .kernels.frontend.kernel import atomic_min as atomic_min
    from .kernels.frontend.kernel import atomic_mul as atomic_mul
    from .kernels.frontend.kernel import atomic_or as atomic_or
    from .kernels.frontend.kernel import atomic_sub as atomic_sub
    from .kernels.frontend.kernel import atomic_xor as atomic_xor
    from .kernels.frontend.kernel import bit_cast as bit_cast
    from .kernels.frontend.kernel import cast as cast
    from .kernels.frontend.kernel import grouped as grouped
    from .kernels.frontend.kernel import loop_config as loop_config
    from .kernels.frontend.kernel import ndrange as ndrange
    from .kernels.frontend.kernel import select as select
    from .kernels.frontend.kernel import static as static
    from .kernels.frontend.kernel import static_assert as static_assert
    from .kernels.frontend.kernel import static_print as static_print
    from .kernels.frontend.recorder import ndarray as ndarray
    from .kernels.frontend.recorder import record as record
    from .kernels.frontend.repeat import repeat as repeat
    from .kernels.frontend.sparse import block_local as block_local
    from .kernels.frontend.sparse import loop_unique as loop_unique
    from .kernels.frontend.sparse import no_activate as no_activate
    from .kernels.interpret.executor import interpret as interpret
    from .kernels.ir.errors import LanguageError as LanguageError
    from .kernels.linear import eig as eig
    from .kernels.linear import polar_decompose as polar_decompose
    from .kernels.linear import solve as solve
    from .kernels.linear import svd as svd
    from .kernels.linear import sym_eig as sym_eig
    from .kernels.static_types import Matrix as Matrix
    from .kernels.static_types import Vector as Vector
    from .kernels.static_types import data_oriented as data_oriented
    from .kernels.static_types import dataclass as dataclass
    from .kernels.static_types import f16 as f16
    from .kernels.static_types import f32 as f32
    from .kernels.static_types import f64 as f64
    from .kernels.static_types import func as func
    from .kernels.static_types import i8 as i8
    from .kernels.static_types import i16 as i16
    from .kernels.static_types import i32 as i32
    from .kernels.static_types import i64 as i64
    from .kernels.static_types import kernel as kernel
    from .kernels.static_types import pyfunc as pyfunc
    from .kernels.static_types import real_func as real_func
    from .kernels.static_types import template as template
    from .kernels.static_types import types as types
    from .kernels.static_types import u1 as u1
    from .kernels.static_types import u8 as u8
    from .kernels.static_types import u16 as u16
    from .kernels.static_types import u32 as u32
    from .kernels.static_types import u64 as u64
    from .program.torch_function import torch_function as torch_function
    from .report import plot as plot
    from .runtime import engine as engine
    from .runtime.cpu.guarded_arrays import empty as empty

_PUBLIC = {
    "kernel": "kernels.frontend.kernel",
    "func": "kernels.frontend.kernel",
    "types": "kernels.frontend.kernel",
    "template": "kernels.frontend.kernel",
    "static": "kernels.frontend.kernel",
    "ndrange": "kernels.frontend.kernel",
    "atomic_add": "kernels.frontend.kernel",
    "atomic_max": "kernels.frontend.kernel",
    "atomic_min": "kernels.frontend.kernel",
    "real_func": "kernels.frontend.kernel",
    "pyfunc": "kernels.frontend.kernel",
    "data_oriented": "kernels.frontend.kernel",
    "grouped": "kernels.frontend.kernel",
    "select": "kernels.frontend.kernel",
    "bit_cast": "kernels.frontend.kernel",
    "loop_config": "kernels.frontend.kernel",
    "static_print": "kernels.frontend.kernel",
    "static_assert": "kernels.frontend.kernel",
    "atomic_sub": "kernels.frontend.kernel",
    "atomic_mul": "kernels.frontend.kernel",
    "atomic_and": "kernels.frontend.kernel",
    "atomic_or": "kernels.frontend.kernel",
    "atomic_xor": "kernels.frontend.kernel",
    "random": "kernels.frontend.intrinsics",
    "randn": "kernels.frontend.intrinsics",
    "zero": "kernels.frontend.intrinsics",
    "stop_grad": "kernels.frontend.intrinsics",
    "torch_function": "program.torch_function",
    "one": "kernels.frontend.intrinsics",
    "sqrt": "kernels.frontend.functions",
    "exp": "kernels.frontend.functions",
    "log": "kernels.frontend.functions",
    "sin": "kernels.frontend.functions",
    "cos": "kernels.frontend.functions",
    "floor": "kernels.frontend.functions",
    "ceil": "kernels.frontend.functions",
    "trunc": "kernels.frontend.functions",
    "rint": "kernels.frontend.functions",
    "round": "kernels.frontend.functions",
    "tan": "kernels.frontend.functions",
    "asin": "kernels.frontend.functions",
    "acos": "kernels.frontend.functions",
    "atan": "kernels.frontend.functions",
    "sinh": "kernels.frontend.functions",
    "cosh": "kernels.frontend.functions",
    "tanh": "kernels.frontend.functions",
    "asinh": "kernels.frontend.functions",
    "acosh": "kernels.frontend.functions",
    "atanh": "kernels.frontend.functions",
    "exp2": "kernels.frontend.functions",
    "expm1": "kernels.frontend.functions",
    "log2": "kernels.frontend.functions",
    "log10": "kernels.frontend.functions",
    "log1p": "kernels.frontend.functions",
    "erf": "kernels.frontend.functions",
    "erfc": "kernels.frontend.functions",
    "gamma": "kernels.frontend.functions",
    "lgamma": "kernels.frontend.functions",
    "rsqrt": "kernels.frontend.functions",
    "isnan": "kernels.frontend.functions",
    "isinf": "kernels.frontend.functions",
    "pow": "kernels.frontend.functions",
    "atan2": "kernels.frontend.functions",
    "hypot": "kernels.frontend.functions",
    "popcnt": "kernels.frontend.functions",
    "clz": "kernels.frontend.functions",
    "ctz": "kernels.frontend.functions",
    "bit_shr": "kernels.frontend.functions",
    "raw_div": "kernels.frontend.functions",
    "raw_mod": "kernels.frontend.functions",
    "svd": "kernels.linear",
    "polar_decompose": "kernels.linear",
    "eig": "kernels.linear",
    "sym_eig": "kernels.linear",
    "solve": "kernels.linear",
    "max": "kernels.frontend.intrinsics",
    "min": "kernels.frontend.intrinsics",
    "cast": "kernels.frontend.kernel",
    "f16": "kernels.frontend.kernel",
    "f32": "kernels.frontend.kernel",
    "f64": "kernels.frontend.kernel",
    "i8": "kernels.frontend.kernel",
    "i16": "kernels.frontend.kernel",
    "i32": "kernels.frontend.kernel",
    "i64": "kernels.frontend.kernel",
    "init": "kernels.frontend.init",
    "reset": "kernels.frontend.init",
    "sync": "kernels.frontend.init",
    "cfg": "kernels.fields.program",
    "Arch": "kernels.fields.program",
    "cpu": "kernels.fields.program",
    "gpu": "kernels.fields.program",
    "x64": "kernels.fields.program",
    "arm64": "kernels.fields.program",
    "cuda": "kernels.fields.program",
    "amdgpu": "kernels.fields.program",
    "vulkan": "kernels.fields.program",
    "metal": "kernels.fields.program",
    "opengl": "kernels.fields.program",
    "gles": "kernels.fields.program",
    "dx11": "kernels.fields.program",
    "dx12": "kernels.fields.program",
    "emulator": "kernels.fields.program",
    "axes": "kernels.fields.tree",
    "i": "kernels.fields.tree",
    "j": "kernels.fields.tree",
    "k": "kernels.fields.tree",
    "l": "kernels.fields.tree",
    "ij": "kernels.fields.tree",
    "ik": "kernels.fields.tree",
    "il": "kernels.fields.tree",
    "jk": "kernels.fields.tree",
    "jl": "kernels.fields.tree",
    "kl": "kernels.fields.tree",
    "ijk": "kernels.fields.tree",
    "ijl": "kernels.fields.tree",
    "ikl": "kernels.fields.tree",
    "jkl": "kernels.fields.tree",
    "ijkl": "kernels.fields.tree",
    "Layout": "kernels.fields.tree",
    "SNode": "kernels.fields.tree",
    "root": "kernels.fields.fields_builder",
    "deactivate_all_snodes": "kernels.fields.fields_builder",
    "activate": "kernels.fields.node_cells",
    "deactivate": "kernels.fields.node_cells",
    "is_active": "kernels.fields.node_cells",
    "append": "kernels.fields.node_cells",
    "length": "kernels.fields.node_cells",
    "rescale_index": "kernels.fields.node_cells",
    "get_addr": "kernels.fields.addresses",
    "no_activate": "kernels.frontend.sparse",
    "loop_unique": "kernels.frontend.sparse",
    "block_local": "kernels.frontend.sparse",
    "BitpackedFields": "kernels.fields.quantised",
    "FieldsBuilder": "kernels.fields.fields_builder",
    "field": "kernels.fields.factories",
    "ScalarField": "kernels.fields.element_fields",
    "MatrixField": "kernels.fields.element_fields",
    "StructField": "kernels.fields.struct_field",
    "Vector": "kernels.fields.matrix",
    "Matrix": "kernels.fields.matrix",
    "Struct": "kernels.fields.structs",
    "dataclass": "kernels.fields.compound",
    "Ndarray": "kernels.fields.ndarray",
    "from_dlpack": "kernels.fields.dlpack",
    "u1": "kernels.frontend.intrinsics",
    "u8": "kernels.frontend.kernel",
    "u16": "kernels.frontend.kernel",
    "u32": "kernels.frontend.kernel",
    "u64": "kernels.frontend.kernel",
    "ndarray": "kernels.frontend.recorder",
    "record": "kernels.frontend.recorder",
    "repeat": "kernels.frontend.repeat",
    "empty": "runtime.cpu.guarded_arrays",
    "LanguageError": "kernels.ir.errors",
    "interpret": "kernels.interpret.executor",
    "explore": "explorer.entry",
    "replay": "explorer.results",
    "load": "explorer.results",
    "plot": "report",
    "load_run": "explorer.stored_run",
    "load_tuned": "explorer.family",
}

_MODULES = {
    "ad": "program",
    "engine": "runtime.engine",
    "math": "kernels.math",
    "errors": "errors",
    "compat": "compat",
}

__all__ = sorted((*_PUBLIC, *_MODULES))


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # to whom a module with this function has every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return _version()
        if name in _PUBLIC:
            found = getattr(import_module("." + _PUBLIC[name], __name__), name)
            globals()[name] = found  # where Python looks first
            return found
        if name in _MODULES:
            return import_module("." + _MODULES[name], __name__)
        raise AttributeError(_no_such_name(name))


def _no_such_name(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, n=1)
    known = f"did you mean {near[0]}?" if near else f"it has {', '.join(__all__)}"
    return f"kernelscape has no public name {name!r}; {known}"


def _make_eager() -> Executor:
    from .runtime.engine.executor import Eager

    return Eager()


def _make_window(limit: int) -> AbstractDeferringExecutor:
    from .runtime.engine.window import DeferralWindow

    if not limit:
        return DeferralWindow()
    from .runtime.engine.planned_window import PlannedWindow

    return PlannedWindow(DeferralWindow(), limit)


def _make_follower(decisions: object, behind: Executor) -> AbstractDeferringExecutor | None:
    from .explorer.plan_replay import follow

    return follow(decisions, behind)


def _make_on_device(name: str, limit: int) -> AbstractDeferringExecutor | str:
    from .explorer.device_executor import executor_on

    return executor_on(name, limit)


def _lower(instance: Instance) -> Instance:
    """Returns an instance on sparse fields lowered to plain arrays, by default decisions."""
    from .kernels.tasks.default_lowering import lower_instance

    return lower_instance(instance)


_dispatch.register(_make_eager, _make_window, _make_follower, _make_on_device)
_lowering.register(_lower)


def _version() -> str:
    """Returns the version of the installed package, or of a checkout on the path that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kernelscape")
    except PackageNotFoundError:
        import tomllib
        from pathlib import Path

        settings = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text())
        return str(settings["project"]["version"])
