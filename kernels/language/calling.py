"""Where a kernel call goes: to the recorder that holds calls back, or to the interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from ..ir.kernel import DType, KernelIR, Location


class AbstractHolder(ABC):
    """What holds kernel calls back while a sequence is recorded."""

    @abstractmethod
    def hold(
        self, ir: KernelIR, arrays: Sequence[Any], scalars: Sequence[Any], where: Location
    ) -> None:
        """Takes one call: an object for each of `ir.arrays` (all different) and of `ir.scalars`."""

    @abstractmethod
    def temporary(
        self, dtype: DType, shape: tuple[int, ...], name: str | None, where: Location
    ) -> Any:
        """A temporary array of the sequence."""


_current: ContextVar[AbstractHolder | None] = ContextVar("holder", default=None)


def run_at_once(ir: KernelIR, arrays: Mapping[str, Any], scalars: Mapping[str, Any]) -> None:
    """Runs a call that nobody holds back, in place.

    The interpreter lies above the language: it is looked up here, by name, when the first kernel is run.
    """
    import_module("...interpret.kernel", __name__).run_kernel(ir, arrays, scalars)


def holder() -> AbstractHolder | None:
    """The recorder at work, or None: calls then run at once."""
    return _current.get()


@contextmanager
def held_by(new: AbstractHolder | None) -> Iterator[None]:
    """Sends kernel calls to `new` within the block."""
    token = _current.set(new)
    try:
        yield
    finally:
        _current.reset(token)
