"""Dispatch of kernel calls to executors: that of the enclosing block, else that installed for the process.

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

    from ..fields.accessed_memory import HostAccess
    from ..fields.device_memory import DeviceMemory
    from .instance import KernelCall

Caller = Callable[..., bool]


class Executor(ABC):
    """Runs or defers calls of kernels. `behind`: the executor to which this one passes calls on, or None."""

    behind: Executor | None = None

    @property
    def waits(self) -> bool:
        """True if this executor holds calls that it has deferred."""
        return False

    @property
    def records(self) -> bool:
        """True if this executor, or one behind it, records calls and does not run them."""
        return self.behind is not None and self.behind.records

    def underived(self) -> Executor:
        """Returns the executor for calls that have no derivative, of Python's operations: without tapes and forward modes."""
        return self if self.behind is None else self.behind.underived()

    @abstractmethod
    def run(self, call: KernelCall) -> Any:
        """Runs or defers a call. Returns the kernel's result.

        None if it has none, or if the call was deferred.
        """

    def caller(self, call: KernelCall) -> Caller | None:
        """Returns a function for later calls of this instance, in place of `run`; None if all must use `run`.

        The function takes the arrays, then the numbers, of the instance on plain arrays (lowering.py), by position. It returns
        False, and does nothing, if the arguments do not fit.
        """
        return None

    def release(self) -> None:  # noqa: B027  # most defer nothing
        """Runs the deferred calls in the order in which they were made."""

    def give_way(self) -> bool:
        """Runs deferred calls before one that is not deferred; False if that one must use `run`, not a `caller`."""
        return True

    def start(self) -> None:  # noqa: B027  # most have nothing to prepare
        """Starts, in the background, to prepare resources that all calls need, such as a device."""


class AbstractDeferringExecutor(Executor):
    """Executor that may defer calls: until their code is compiled, or until they form a whole sequence.

    `repeats`: it can repeat a whole sequence, so `again` may return True. `holds_accesses`: it may also defer operations of Python
    on whole fields, such as `fill`, as calls of kernels.
    """

    repeats = True
    holds_accesses = False

    @abstractmethod
    def deferring(self, call: KernelCall) -> Caller | None:
        """Returns a function that may defer later calls of this instance; None if it defers none of them.

        The function takes arrays and numbers like that of `caller`, and the program's `kernel` object with its `args`: calls with
        the same objects are the same call. `numbers`: positions, among arrays and numbers, and among `args`, of those given as they
        are: with others of the same types the call is the same but for these.
        """

    @abstractmethod
    def again(self, kernel: object, args: tuple[Any, ...]) -> bool:
        """True if this call is the next one of the sequence that ran last. It is then deferred, or has run."""

    @abstractmethod
    def outdate(self) -> None:
        """Drops the sequence that ran last: its fields may be freed, or visible to other libraries."""

    @abstractmethod
    def release(self) -> None: ...

    def release_for(self, access: HostAccess) -> None:
        """Runs deferred calls in order, until an access of Python's conflicts with none that is left."""
        self.release()

    def lend(self, array: Any) -> DeviceMemory | None:
        """Returns the device memory of a field's array, for other libraries; None if it is in the host's memory."""
        return None

    def publish(self) -> None:  # most lend none
        """Copies what Python has written to the device memory that other libraries have."""

    @abstractmethod
    def end(self) -> None:
        """Completes the deferred calls at the end of the program."""


MakeEager = Callable[[], Executor]
MakeWindow = Callable[[int], AbstractDeferringExecutor]
MakeFollower = Callable[[object, Executor], AbstractDeferringExecutor | None]
MakeOnDevice = Callable[[str, int], "AbstractDeferringExecutor | str"]

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
    """Registers the factories of executors.

    `make_eager`: executor that runs calls at once. `make_window`: executor that defers a program's calls. `make_follower`: executor
    that replays decisions. `make_on_device`: executor for programs on a device.
    """
    global _make_eager, _make_window, _make_follower, _make_on_device
    _make_eager, _make_window, _make_follower = make_eager, make_window, make_follower
    _make_on_device = make_on_device


def eager() -> Executor:
    """Returns the executor that runs calls at once, the same one for the whole process."""
    global _eager
    if _eager is None:
        _eager = _make_eager()
    return _eager


def window(limit: int) -> AbstractDeferringExecutor:
    """Returns an executor that defers those calls of a program whose code is still being compiled.

    `limit` above 0: up to `limit` calls are deferred until Python needs their values, and run by one plan for all of them.
    """
    return _make_window(limit)


def follower(decisions: object, behind: Executor) -> AbstractDeferringExecutor | None:
    """Returns an executor that replays implementations found by a search; None if `decisions` cannot be used.

    `decisions`: results, as `ks.init` takes them. `behind`: executor of all other calls.
    """
    return _make_follower(decisions, behind)


def on_device(name: str, limit: int = 0) -> AbstractDeferringExecutor | str:
    """Returns an executor for a program's calls on the device `name`, or a sentence why there is none.

    `limit`: number of calls that it may defer.
    """
    return _make_on_device(name, limit)


@contextmanager
def watching(make: Callable[[], AbstractDeferringExecutor]) -> Iterator[None]:
    """Makes programs that begin within the block use executors that `make` returns, and replay no results."""
    global _make_window, _make_follower
    before = _make_window, _make_follower
    _make_window, _make_follower = lambda limit: make(), lambda decisions, behind: None
    try:
        yield
    finally:
        _make_window, _make_follower = before


def install(executor: Executor | None) -> None:
    """Makes `executor` the one for calls outside of blocks, in all threads.

    None restores the eager executor.
    """
    global _installed
    _installed = executor


def chosen() -> Executor | None:
    """Returns the executor of the enclosing `using` block; None outside of all blocks."""
    return _chosen.get()


def current() -> Executor:
    """Returns the executor that the next kernel call of this thread goes to."""
    executor = _chosen.get()
    if executor is None:
        executor = _installed
    if executor is None:
        executor = _eager
    return eager() if executor is None else executor


@contextmanager
def using(executor: Executor) -> Iterator[None]:
    """Sends kernel calls within the block to `executor`."""
    token = _chosen.set(executor)
    try:
        yield
    finally:
        _chosen.reset(token)
