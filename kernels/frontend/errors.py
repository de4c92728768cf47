"""Errors of programs in the kernel language: the classes of `kernels/ir/errors.py`, which the fields below raise, too."""

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
