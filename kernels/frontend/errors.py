"""Errors of programs in the kernel language: names for the classes of `kernels/ir/errors.py`."""

from ..ir.errors import (
    ZERO_STEP,
    KernelArgumentError,
    KernelError,
    KernelIndexError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
    LanguageError,
    ProgramTypeError,
    ProgramValueError,
)

__all__ = [
    "ZERO_STEP",
    "KernelArgumentError",
    "KernelError",
    "KernelIndexError",
    "KernelNameError",
    "KernelSyntaxError",
    "KernelTypeError",
    "KernelValueError",
    "LanguageError",
    "ProgramTypeError",
    "ProgramValueError",
]
