"""What a program in the kernel language can get wrong: the classes of `kernels/ir/errors.py`, which the fields below raise too."""

from ..ir.errors import (
    KernelArgumentError,
    KernelError,
    KernelIndexError,
    KernelNameError,
    KernelSyntaxError,
    KernelTypeError,
    LanguageError,
    ProgramTypeError,
    ProgramValueError,
)

__all__ = [
    "KernelArgumentError",
    "KernelError",
    "KernelIndexError",
    "KernelNameError",
    "KernelSyntaxError",
    "KernelTypeError",
    "LanguageError",
    "ProgramTypeError",
    "ProgramValueError",
]
