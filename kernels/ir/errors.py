"""Errors of programs in the kernel language, reported at the place in the user's source.

The classes derive from Python's as Taichi's do; `compat/taichi/` has them under Taichi's names.
"""

from __future__ import annotations

from .kernel import Location


class LanguageError(Exception):
    """Error of a program that uses a construct outside of the language.

    The message is one sentence behind `file:line`. It names the construct and a remedy.
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
    """A kernel has syntax that the language does not support, or is called with a wrong number of arguments."""


class KernelNameError(KernelError, NameError):
    """A kernel uses a name that has no value."""


class KernelIndexError(KernelError, IndexError):
    """A kernel uses a wrong number of indices, or an index that is surely out of bounds."""


class KernelTypeError(KernelError, TypeError):
    """An operation of a kernel does not take operands of these types."""


class KernelValueError(KernelError, ValueError):
    """A kernel gives an operation a number outside of its range."""


class KernelRuntimeError(RuntimeError):
    """A kernel is aborted while it runs."""


class KernelAssertionError(KernelRuntimeError, AssertionError):
    """An assertion of a kernel fails."""


class KernelRuntimeIndexError(KernelAssertionError, IndexError):
    """An index of a kernel is out of its array's bounds."""


class KernelRuntimeValueError(KernelAssertionError, ValueError):
    """A number that is known only at run time is outside of an operation's range."""


class KernelArgumentError(LanguageError, KernelRuntimeError, TypeError):
    """An argument of a kernel, or an array made for one, has a type that it cannot have."""


class ProgramTypeError(LanguageError, TypeError):
    """A program gives a value of a wrong type, outside of kernels or as an argument of one."""


class ProgramValueError(LanguageError, ValueError):
    """A program gives a value that does not fit, outside of kernels or as an argument of one."""


class ProgramIndexError(LanguageError, IndexError):
    """A program indexes a vector, a matrix or an array out of bounds."""


class ProgramBoundsError(ProgramIndexError, AssertionError):
    """A program indexes a field out of bounds, or with a wrong number of indices."""


class ProgramKeyError(LanguageError, KeyError):
    """A program gives an option or a member that does not exist."""


class ProgramRuntimeError(LanguageError, RuntimeError):
    """A program requests an action at a time when it is not possible."""


ZERO_STEP = "the step of range is 0"  # in the sentence of a kernel that has one
# Classes of failed assertions: the first one whose words the message has.
OF_ASSERTIONS = ((ZERO_STEP, KernelRuntimeValueError), ("", KernelAssertionError))


def failed_assertion(text: str) -> KernelAssertionError:
    """Returns the exception of a failed assertion of a kernel, or of the check that is made for each range."""
    return next(kind for words, kind in OF_ASSERTIONS if words in text)(text)
