"""What a program in the kernel language can get wrong, told at the place in the user's source."""

from __future__ import annotations

from .kernel import Location


class LanguageError(Exception):
    """A kernel or a sequence uses something the language does not have.

    The message is one sentence behind `file:line`; it names the construct and says what to do.
    """

    def __init__(self, sentence: str, where: Location | None = None) -> None:
        self.sentence = sentence
        self.where = where
        super().__init__(f"{where}: {sentence}" if where is not None else sentence)
