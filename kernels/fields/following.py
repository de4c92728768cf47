"""What holds calls of a program back while they may turn out to be a sequence that was explored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ..ir.kernel import KernelIR


class AbstractFollower(ABC):
    """Made by `ks.init(decisions=...)`; explorer/plan_replay.py has the one there is. `waits`: calls are held back."""

    waits = False

    @abstractmethod
    def caller(self, ir: KernelIR) -> Callable[..., bool] | None:
        """What takes calls of a kernel with fields alone, arrays and then numbers by position; None where it is in no sequence.

        It may be told which `kernel` of the program was called, with its `args`: the same objects are the same call again.
        """

    @abstractmethod
    def again(self, kernel: object, args: tuple[Any, ...]) -> bool:
        """Whether the sequence that ran last goes on with this call, which then waits or has run."""

    @abstractmethod
    def outdate(self) -> None:
        """Forgets the sequence that ran last: its fields may be gone, or seen by others."""

    @abstractmethod
    def release(self) -> None:
        """Runs what waits, one kernel after the other: somebody looks at the fields."""

    @abstractmethod
    def end(self) -> None:
        """The program ends: runs what waits, and says what was never met."""
