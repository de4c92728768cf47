"""What a program in the kernel language can get wrong: `LanguageError`, which the fields below raise too."""

from ..ir.errors import LanguageError

__all__ = ["LanguageError"]
