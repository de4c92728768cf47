"""What a program in the kernel language can get wrong, told at the place in the user's source.

The classes derive from Python's as Taichi's do; `compat/taichi/` has them under Taichi's names.
"""

from __future__ import annotations

from .kernel import Location


class LanguageError(Exception):
    """A program uses something the language does not have.

    The message is one sentence behind `file:line`; it names the construct and says what to do.
    """

    def __init__(self, sentence: str, where: Location | None = None) -> None:
        self.sentence = sentence
        self.where = where
        super().__init__(f"{where}: {sentence}" if where is not None else sentence)

    def __str__(self) -> str:
        return Exception.__str__(self)  # a KeyError would quote it


class KernelError(LanguageError):
    """A kernel, or a call of one, cannot be compiled."""


class KernelSyntaxError(KernelError, SyntaxError):
    """A kernel is written in a way that the language does not have, or called with another number of arguments."""


class KernelNameError(KernelError, NameError):
    """A name of a kernel has no value."""


class KernelIndexError(KernelError, IndexError):
    """A kernel indexes with a wrong number of indices, or by one that is surely outside."""


class KernelTypeError(KernelError, TypeError):
    """An operation of a kernel does not take operands of these types."""


class KernelValueError(KernelError, ValueError):
    """A kernel gives a number that an operation does not take."""


class KernelRuntimeError(RuntimeError):
    """A kernel ended before its time."""


class KernelAssertionError(KernelRuntimeError, AssertionError):
    """An assertion of a kernel does not hold."""


class KernelRuntimeIndexError(KernelAssertionError, IndexError):
    """An index of a kernel leaves its array."""


class KernelRuntimeValueError(KernelAssertionError, ValueError):
    """A number that is known only when a kernel runs is none that an operation takes."""


class KernelArgumentError(LanguageError, KernelRuntimeError, TypeError):
    """An argument of a kernel cannot be converted to the type that the kernel says."""


class ProgramTypeError(LanguageError, TypeError):
    """A program gives a value of a wrong type, outside of kernels or as an argument of one."""


class ProgramValueError(LanguageError, ValueError):
    """A program gives a value that does not fit, outside of kernels or as an argument of one."""


class ProgramIndexError(LanguageError, IndexError):
    """A program indexes a vector, a matrix or an array outside of what it has."""


class ProgramBoundsError(ProgramIndexError, AssertionError):
    """A program indexes a field outside of what it has, or by another number of indices."""


class ProgramKeyError(LanguageError, KeyError):
    """A program gives an option or a member that there is not."""


class ProgramRuntimeError(LanguageError, RuntimeError):
    """A program asks for something at a time when it cannot be done."""


ZERO_STEP = "the step of range is 0"  # in the sentence of a kernel that has one


def failed_assertion(text: str) -> KernelAssertionError:
    """The exception of an assertion of a kernel that does not hold, or of what is asserted of each range."""
    return (KernelRuntimeValueError if ZERO_STEP in text else KernelAssertionError)(text)
