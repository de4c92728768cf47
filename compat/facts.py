"""Facts that Taichi's inner modules give: this machine's architectures and extensions, and installed packages."""

from __future__ import annotations

import resource
from dataclasses import replace
from enum import Enum
from importlib.util import find_spec
from typing import Any

from ..kernels.fields.program import Arch, cpu, element_dtype, needed_program
from ..kernels.frontend.dispatch import on_device
from ..program.tape import AutodiffMode as AutodiffMode


class Extension(Enum):
    """Feature of Taichi that some architectures lack. Features that no CPU has are not members."""

    sparse = "sparse"
    quant = "quant"
    quant_basic = "quant_basic"
    mesh = "mesh"
    data64 = "data64"
    adstack = "adstack"
    bls = "bls"
    assertion = "assertion"
    extfunc = "extfunc"


class SNodeGradType(Enum):
    """Kind of a field: of values, of one of their derivatives, or of marks of what was read."""

    PRIMAL = 0
    ADJOINT = 1
    DUAL = 2
    ADJOINT_CHECKBIT = 3


_HERE = frozenset(
    (
        Extension.sparse,
        Extension.quant,
        Extension.quant_basic,
        Extension.data64,
        Extension.bls,
        Extension.assertion,
        Extension.adstack,
    )
)


def is_extension_supported(arch: Arch, which: Extension) -> bool:
    """True if programs on the architecture `arch` have the feature `which` in this package."""
    return arch.is_cpu and which in _HERE


def is_arch_supported(arch: Arch, use_gles: bool = False) -> bool:
    """True if programs can run on the architecture `arch` on this machine."""
    return arch is cpu or (arch.is_device and not isinstance(on_device(arch.value), str))


def get_host_arch_list() -> list[Arch]:
    """Returns the CPU architectures of this machine."""
    return [cpu]


def has_pytorch() -> bool:
    """True if torch is installed."""
    return find_spec("torch") is not None


def has_paddle() -> bool:
    """True if Paddle is installed."""
    return find_spec("paddle") is not None


def to_numpy_type(dt: Any) -> Any:
    """Returns the NumPy type of an element type."""
    return element_dtype(dt).numpy.type


def to_taichi_type(dt: Any) -> Any:
    """Returns the element type of a NumPy type."""
    return element_dtype(dt)


class RunningProgram:
    """The program that `ti.init` began, in the form of Taichi's `impl.get_runtime().prog`."""

    def config(self) -> Any:
        """Returns the options of the program."""
        return needed_program("impl.get_runtime").config

    def get_total_compilation_time(self) -> float:
        """Returns the CPU seconds of the compilers that have ended, and of other processes that this one has waited for."""
        needed_program("impl.get_runtime")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


class Runtime:
    """The program in the form of Taichi's `impl.get_runtime()`.

    Its default types may be set before kernels are called.
    """

    @property
    def default_fp(self) -> Any:
        return needed_program("impl.get_runtime").config.default_fp

    @default_fp.setter
    def default_fp(self, dtype: Any) -> None:
        _configure(default_fp=element_dtype(dtype))

    @property
    def default_ip(self) -> Any:
        return needed_program("impl.get_runtime").config.default_ip

    @default_ip.setter
    def default_ip(self, dtype: Any) -> None:
        _configure(default_ip=element_dtype(dtype))

    def set_default_fp(self, dtype: Any) -> None:
        self.default_fp = dtype

    def set_default_ip(self, dtype: Any) -> None:
        self.default_ip = dtype

    def materialize(self) -> None:
        """Does nothing: fields get memory at their first use."""

    @property
    def prog(self) -> RunningProgram:
        """The program that `ti.init` began, as Taichi's inner modules hold it."""
        return RunningProgram()


def _configure(**options: Any) -> None:
    program = needed_program("impl.get_runtime")
    program.config = replace(program.config, **options)


def get_runtime() -> Runtime:
    """Returns the program that `ti.init` began."""
    return Runtime()
