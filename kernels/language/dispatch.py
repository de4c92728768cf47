"""Every call of a kernel goes to one executor: that of the block around the call, or the one that is installed for the process.

Executors lie above the language. The package registers what makes them (`__init__.py`), and each is imported at its first use.
This module is loaded with the package: it imports nothing that takes time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

TYPE_CHECKING = (
    False  # that of `typing`, whose import would take longer than all else of the package
)

if TYPE_CHECKING:
    from typing import Any

    from .instance import KernelCall

Caller = Callable[..., bool]


class Executor(ABC):
    """Runs calls of kernels, or keeps them for later."""

    @abstractmethod
    def run(self, call: KernelCall) -> Any:
        """Takes a call. Returns what the kernel returns, None where that is nothing or it has not run."""

    def caller(self, call: KernelCall) -> Caller | None:
        """Returns a function that later calls of this instance may go to in place of `run`: arrays, then numbers, by position.

        It returns False, and does nothing, where they do not fit. None: all calls go through `run`.
        """
        return None

    def start(self) -> None:  # noqa: B027  # most have nothing to prepare
        """Begins to prepare what all calls need, while the program does something else."""


class AbstractDeferringExecutor(Executor):
    """An executor that may hold calls back until they are a whole sequence. `waits`: some are held back."""

    waits = False

    @abstractmethod
    def deferring(self, call: KernelCall) -> Caller | None:
        """Returns a function that takes later calls of this instance, and may hold them back; None where it holds none of them.

        Beside arrays and numbers it may be told the `kernel` of the program, with its `args`: the same objects are the same call.
        """

    @abstractmethod
    def again(self, kernel: object, args: tuple[Any, ...]) -> bool:
        """True if the sequence that ran last continues with this call, which then waits or has run."""

    @abstractmethod
    def outdate(self) -> None:
        """Forgets the sequence that ran last: its fields may be gone, or seen by others."""

    @abstractmethod
    def release(self) -> None:
        """Runs the calls that wait, one after the other."""

    @abstractmethod
    def end(self) -> None:
        """The program ends: runs the calls that wait."""


MakeEager = Callable[[], Executor]
MakeFollower = Callable[[object, Executor], AbstractDeferringExecutor | None]

_make_eager: MakeEager
_make_follower: MakeFollower
_eager: Executor | None = None
_installed: Executor | None = None
_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)


def register(make_eager: MakeEager, make_follower: MakeFollower) -> None:
    """Says how executors of programs are made: the one that runs calls at once, and the one that follows decisions."""
    global _make_eager, _make_follower
    _make_eager, _make_follower = make_eager, make_follower


def eager() -> Executor:
    """The executor that runs calls at once."""
    global _eager
    if _eager is None:
        _eager = _make_eager()
    return _eager


def follower(decisions: object) -> AbstractDeferringExecutor | None:
    """An executor that runs what was found where a program calls it, and all else at once; None where `decisions` are of no use."""
    return _make_follower(decisions, eager())


def install(executor: Executor | None) -> None:
    """Sends the calls of all threads outside of blocks to `executor`; None: to the eager one."""
    global _installed
    _installed = executor


def chosen() -> Executor | None:
    """The executor of the block around the call, None outside of all blocks."""
    return _chosen.get()


def current() -> Executor:
    """The executor that a call goes to."""
    executor = _chosen.get()
    if executor is None:
        executor = _installed
    if executor is None:
        executor = _eager
    return eager() if executor is None else executor


@contextmanager
def using(executor: Executor) -> Iterator[None]:
    """Sends calls to `executor` within the block."""
    token = _chosen.set(executor)
    try:
        yield
    finally:
        _chosen.reset(token)
