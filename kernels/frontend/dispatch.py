"""Dispatch of kernel calls: each call goes to the executor of the enclosing block, or else to the one installed for the process.

Executors are layered above the language. The package registers their factories (`__init__.py`), and each is imported at its first
use. This module is loaded with the package, so it imports nothing slow.
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
    """Runs calls of kernels, or defers them. `behind`: the executor that calls are handed on to, if there is one."""

    behind: Executor | None = None

    @property
    def waits(self) -> bool:
        """True if calls are deferred."""
        return False

    @abstractmethod
    def run(self, call: KernelCall) -> Any:
        """Runs or defers a call. Returns the kernel's result, None if there is none or the call has not run."""

    def caller(self, call: KernelCall) -> Caller | None:
        """Returns a function that later calls of this instance may use in place of `run`: arrays, then numbers, by position.

        These are of the instance on plain arrays (lowering.py). The function returns False, and does nothing, if the arguments do
        not fit. None: all calls use `run`.
        """
        return None

    def release(self) -> None:  # noqa: B027  # most defer nothing
        """Runs the deferred calls, one after the other."""

    def give_way(self) -> bool:
        """Runs deferred calls before one that is not deferred. False if that call must use `run` in place of its caller."""
        return True

    def start(self) -> None:  # noqa: B027  # most have nothing to prepare
        """Starts preparing resources that all calls need, in the background."""


class AbstractDeferringExecutor(Executor):
    """Executor that may defer calls: until their code is there, or until they form a whole sequence.

    `repeats`: it has a sequence that ran last, so `again` may be True. `holds_accesses`: operations of Python on whole fields are
    calls, which it may defer, too.
    """

    repeats = True
    holds_accesses = False

    @abstractmethod
    def deferring(self, call: KernelCall) -> Caller | None:
        """Returns a function that takes later calls of this instance and may defer them; None if it defers none of them.

        Besides arrays and numbers it accepts the `kernel` of the program, with its `args`: the same objects are the same call.
        """

    @abstractmethod
    def again(self, kernel: object, args: tuple[Any, ...]) -> bool:
        """True if this call continues the sequence that ran last. The call is then deferred, or has run."""

    @abstractmethod
    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be gone, or visible to others."""

    @abstractmethod
    def release(self) -> None: ...

    @abstractmethod
    def end(self) -> None:
        """Completes the deferred calls, since the program ends."""


MakeEager = Callable[[], Executor]
MakeWindow = Callable[[int], AbstractDeferringExecutor]
MakeFollower = Callable[[object, Executor], AbstractDeferringExecutor | None]
MakeOnDevice = Callable[[str], "AbstractDeferringExecutor | str"]

_make_eager: MakeEager
_make_window: MakeWindow
_make_follower: MakeFollower
_make_on_device: MakeOnDevice
_eager: Executor | None = None
_installed: Executor | None = None
_chosen: ContextVar[Executor | None] = ContextVar("executor", default=None)


def register(
    make_eager: MakeEager,
    make_window: MakeWindow,
    make_follower: MakeFollower,
    make_on_device: MakeOnDevice,
) -> None:
    """Registers the factories of executors: the eager one, that of a program's calls, the one that replays decisions, and that of
    programs on a device.
    """
    global _make_eager, _make_window, _make_follower, _make_on_device
    _make_eager, _make_window, _make_follower = make_eager, make_window, make_follower
    _make_on_device = make_on_device


def eager() -> Executor:
    """The executor that runs calls at once."""
    global _eager
    if _eager is None:
        _eager = _make_eager()
    return _eager


def window(limit: int) -> AbstractDeferringExecutor:
    """Returns an executor for the calls of a program: they wait for their code, not the program.

    With a limit so many of them wait until Python needs their values, and run by a plan for all.
    """
    return _make_window(limit)


def follower(decisions: object, behind: Executor) -> AbstractDeferringExecutor | None:
    """Returns an executor that replays found implementations; `behind` runs other calls. None if `decisions` are of no use."""
    return _make_follower(decisions, behind)


def on_device(name: str) -> AbstractDeferringExecutor | str:
    """Returns an executor for the calls of a program on a device; a sentence where there is none."""
    return _make_on_device(name)


@contextmanager
def watching(make: Callable[[], AbstractDeferringExecutor]) -> Iterator[None]:
    """Gives programs that begin within the block the executors that `make` returns. They replay nothing."""
    global _make_window, _make_follower
    before = _make_window, _make_follower
    _make_window, _make_follower = lambda limit: make(), lambda decisions, behind: None
    try:
        yield
    finally:
        _make_window, _make_follower = before


def install(executor: Executor | None) -> None:
    """Sends the calls of all threads outside of blocks to `executor`; None: to the eager one."""
    global _installed
    _installed = executor


def chosen() -> Executor | None:
    """The executor of the enclosing block; None outside of all blocks."""
    return _chosen.get()


def current() -> Executor:
    """The executor of the next call."""
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
