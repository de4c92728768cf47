"""Pools: they build, verify and time the programs of a search, in an order and on machines of their choice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from ...codegen.text.source import Source
from ..api.artifact import Artifact
from ..api.backend import AbstractBuilder
from ..api.outcome import Failure
from ..building.queue import BuildQueue, build_each, build_many
from ..forked import Stopped
from .channel import available_cores
from .machine import Machine
from .messages import Done, Ticket, Work
from .worker import AbstractWorker

# Compilers at once, before and never while times are taken; more than a batch has groups for are of no use.
JOBS = min(max(2, available_cores()), 8)
JOBS_AHEAD = available_cores() - 1  # of them, while the search still has a core


class AbstractPool(ABC):
    """Executes submitted work in an order of its own, and yields the outcomes."""

    def __init__(self) -> None:
        self.is_over: Callable[[], bool] = lambda: False
        """True once nothing more is to be done; it ends `done` between two programs."""
        self.before_timing: Callable[[], None] = lambda: None
        """Called now and then, when it may time something alone on the machine of `machine`."""

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """The machine for the final re-measurement."""

    @property
    def in_flight(self) -> int:
        """Number of submitted programs that keeps all slots busy; 0 if the pool works batch by batch."""
        return 0

    @abstractmethod
    def hear_changes(self, hear: Callable[[float], None]) -> None:
        """Registers `hear`, called with the ratio when a machine takes that many times as long as before.

        The call is made in the thread that uses the pool.
        """

    @abstractmethod
    def rest(self) -> None:
        """Waits until nothing else runs on the machine of `machine`. Raises Stopped."""

    @abstractmethod
    def build_each(
        self, sources: Sequence[Source], builder: AbstractBuilder | None = None
    ) -> list[Artifact | Failure]:
        """Builds each source in a compiler run of its own, with `builder` of the same dialect if given.

        Raises Stopped.
        """

    @abstractmethod
    def build_together(
        self, sources: Sequence[Source], builder: AbstractBuilder
    ) -> list[Artifact | Failure]:
        """Builds sources with `builder` of the same dialect, several in one compiler run. Raises Stopped."""

    def ahead(self, work: Work, n_to_come: int) -> None:  # noqa: B027  # not every pool can
        """Lets compilers begin with work that may be submitted soon; at most `n_to_come` more will follow."""

    def begin(self, works: Sequence[Work]) -> None:  # noqa: B027
        """Lets compilers begin with the work of the first batch, before it is submitted."""

    @abstractmethod
    def submit(self, work: Work) -> Ticket:
        """Queues work. Returns the ticket (number) under which `done` yields its outcome."""

    @abstractmethod
    def done(self) -> Iterator[Done]:
        """Yields outcomes until no submitted work is left, or until `is_over`: the rest is dropped.

        Work submitted meanwhile is included.
        """

    @abstractmethod
    def drop(self) -> list[Done]:
        """Drops all work and stops what runs. Returns outcomes that finished without being yielded."""


class LocalPool(AbstractPool):
    """Pool of this machine with one worker: builds all submitted work, then times it one by one on idle cores."""

    def __init__(
        self,
        builder: AbstractBuilder,
        worker: AbstractWorker,
        is_given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_given_up`: once true, running compilers are not waited for."""
        super().__init__()
        self._builder = builder
        self._is_given_up = is_given_up
        self._builds = BuildQueue(builder, JOBS, JOBS_AHEAD, is_given_up)
        self._tickets = count()
        self._submitted: list[tuple[Ticket, Work]] = []
        self._built: deque[tuple[Ticket, Work, Artifact | Failure]] = deque()
        self._machine = Machine(worker, builder)

    @property
    def machine(self) -> Machine:
        return self._machine

    def hear_changes(self, hear: Callable[[float], None]) -> None:
        self._machine.control.on_change = hear

    def ahead(self, work: Work, n_to_come: int) -> None:
        if not self.is_over():
            self._builds.put(work.source, n_to_come)

    def begin(self, works: Sequence[Work]) -> None:
        self._builds.begin([work.source for work in works])

    def rest(self) -> None:
        self._builds.rest()

    def submit(self, work: Work) -> Ticket:
        ticket = Ticket(next(self._tickets))
        self._submitted.append((ticket, work))
        return ticket

    def done(self) -> Iterator[Done]:
        try:
            while not self.is_over():
                if self._built:
                    yield self.machine.evaluate(*self._built.popleft())
                elif self._submitted:
                    self._build()
                else:
                    return
        except Stopped:  # a compiler or a run was not waited for any more
            pass
        self._submitted.clear()
        self._built.clear()

    def drop(self) -> list[Done]:
        self._submitted.clear()
        self._built.clear()
        self._builds.forget()
        return []

    def build_each(
        self, sources: Sequence[Source], builder: AbstractBuilder | None = None
    ) -> list[Artifact | Failure]:
        return build_each(builder or self._builder, sources, JOBS, self._is_given_up)

    def build_together(
        self, sources: Sequence[Source], builder: AbstractBuilder
    ) -> list[Artifact | Failure]:
        return build_many(builder, sources, JOBS, self._is_given_up)

    def _build(self) -> None:
        work, self._submitted = self._submitted, []
        built = self._builds.take([one.source for _, one in work])
        self._built.extend((*one, b) for one, b in zip(work, built, strict=True))
        if not self.is_over():
            self.before_timing()
            self.machine.control.look()
