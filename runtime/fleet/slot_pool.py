"""Pool of several slots: builds, timing on each slot, and the search itself run in parallel."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from ...codegen.text.source import Source
from ..api.artifact import Artifact
from ..api.backend import AbstractBuilder
from ..api.outcome import Failure
from ..building.queue import build_each, build_many
from ..forked import Stopped
from ..worker.machine import Machine
from ..worker.messages import Done, Ticket, Work
from ..worker.pool import AbstractPool
from ..worker.worker import WorkerError
from .fleet import SlotLostError
from .remote import RemoteBuilder
from .seats import FleetWorker, Seat

_LOOK_S = 0.1  # polling interval of all that waits
_NEW_EVERY = 20  # of these, between two looks for slots that have joined
_LOOK_EVERY = 8  # programs of a slot, before the first of which its control is timed
_TRIES = 3  # of a program whose slot is lost
_PATIENCE_S = 1.0  # for what runs when nothing more is to be done
_AHEAD = 2  # programs a slot: the one that it times, and the next


@dataclass
class _Build:
    """A source that is being built or was built, with the tickets of work that needs it."""

    source: Source
    made: Artifact | Failure | None = None
    waiting: list[tuple[Ticket, Work]] = field(default_factory=list)


@dataclass
class _Ready:
    """A built program that waits for a free slot."""

    ticket: Ticket
    work: Work
    built: Artifact | Failure
    n_lost: int = 0  # slots that were lost with it


_Message = Done | BaseException | Callable[[], None]


class SlotPool(AbstractPool):
    """Pool that builds with a fleet's builders, and times each program on the next free slot.

    A new slot first times the control, the program that the first slot has timed first, which shows differences between machines.
    If a slot is lost, another slot times its program.
    """

    def __init__(
        self,
        builder: RemoteBuilder,
        worker: FleetWorker,
        is_given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_given_up`: once true, running compilers are not waited for."""
        super().__init__()
        self._builder = builder
        self._seats = worker.seats
        self._is_given_up = is_given_up
        self._tickets = count()
        self._open: set[Ticket] = set()
        self._builds: dict[str, _Build] = {}
        self._unbuilt: deque[_Build] = deque()
        self._ready: deque[_Ready] = deque()
        self._changed = threading.Condition()
        """Guards all of the above."""
        self._told: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._serving: set[int] = set()  # seats that have a thread
        self._is_dropped = False
        self._n_looks = 0
        self._looking: threading.Thread | None = None
        self._hear: Callable[[float], None] = lambda ratio: None
        self._user = threading.get_ident()
        worker.tell_user = self._tell_user

    @property
    def in_flight(self) -> int:
        """Number of programs to keep submitted: two per slot and one per builder."""
        return _AHEAD * max(1, len(self._seats.live)) + self._builder.n_at_once

    @property
    def machine(self) -> Machine:
        return self._seats.first.machine

    def hear_changes(self, hear: Callable[[float], None]) -> None:
        self._hear = hear

    def begin(self, works: Sequence[Work]) -> None:
        with self._changed:
            for work in works:
                self._want(work.source)
        self._start_builders()

    def rest(self) -> None:
        """No effect, since compilers have their own cores, or alternate with timed programs."""

    def submit(self, work: Work) -> Ticket:
        ticket = Ticket(next(self._tickets))
        with self._changed:
            self._open.add(ticket)
            build = self._want(work.source)
            if build.made is None:
                build.waiting.append((ticket, work))
            else:
                self._ready.append(_Ready(ticket, work, build.made))
                self._changed.notify_all()
        self._start_builders()
        for seat in self._seats.live:
            self._start_seat(seat)
        return ticket

    def done(self) -> Iterator[Done]:
        self.before_timing()
        while self._open and not self.is_over():
            told = self._next()
            if isinstance(told, Done):
                self._open.discard(told.ticket)
                yield told
            elif isinstance(told, BaseException):
                raise told

    def drop(self) -> list[Done]:
        with self._changed:
            self._is_dropped = True
            self._unbuilt.clear()
            self._ready.clear()
            self._changed.notify_all()
        threads, self._threads = self._threads, []
        self._builder.end_builds()
        end_s = time.monotonic() + _PATIENCE_S
        for thread in threads:
            while thread.is_alive() and not self._is_given_up():
                if time.monotonic() > end_s:
                    break
                thread.join(_LOOK_S)
        self._seats.is_stopping = True
        for thread in threads:
            while thread.is_alive():
                self._builder.end_builds()  # a source that failed with others is built again alone
                thread.join(_LOOK_S)
        self._seats.is_stopping = False
        self._builder.begin()
        left: list[Done] = []
        while (told := self._taken(0.0)) is not None:
            if isinstance(told, Done):
                left.append(told)
        return left

    def build_each(
        self, sources: Sequence[Source], builder: AbstractBuilder | None = None
    ) -> list[Artifact | Failure]:
        jobs = self._builder.n_at_once
        return build_each(builder or self._builder, sources, jobs, self._is_given_up)

    def build_together(
        self, sources: Sequence[Source], builder: AbstractBuilder
    ) -> list[Artifact | Failure]:
        return build_many(builder, sources, self._builder.n_at_once, self._is_given_up)

    # ------------------------------------------------------------------ in the thread that uses it

    def _want(self, source: Source) -> _Build:
        """Returns the build of a source; queues it if it is new."""
        build = self._builds.get(source.key)
        if build is None:
            build = self._builds[source.key] = _Build(source)
            self._unbuilt.append(build)
            self._changed.notify_all()
        return build

    def _next(self) -> Done | BaseException | None:
        """Returns the next outcome or error of a slot; None if none arrives within a short wait.

        Also finds new slots from time to time. Raises WorkerError if no slot is left.
        """
        told = self._taken(_LOOK_S)
        if told is not None:
            return told
        self._n_looks += 1
        if self._n_looks % _NEW_EVERY == 0:
            self._look_for_new()
        _ = self._seats.first  # raises where none is left
        return None

    def _look_for_new(self) -> None:
        """Looks for new slots on a thread of its own, and queues the start of their seats; no effect while it still looks.

        The search does not wait for it: a worker that has just joined may be slow to describe its slots.
        """
        if self._looking is not None and self._looking.is_alive():
            return

        def look() -> None:
            with suppress(SlotLostError):  # seats find out for themselves
                for seat in self._seats.find_new():
                    self._told.put(partial(self._start_seat, seat))

        self._looking = threading.Thread(target=look, name="new slots", daemon=True)
        self._looking.start()

    def _taken(self, wait_s: float) -> Done | BaseException | None:
        """Returns the next outcome or error within `wait_s` seconds, else None; executes queued messages to the user."""
        while True:
            try:
                told = self._told.get(wait_s > 0, wait_s or None)
            except queue.Empty:
                return None
            if isinstance(told, Done | BaseException):
                return told
            told()

    def _tell_user(self, say: Callable[[], None]) -> None:
        if threading.get_ident() == self._user:
            say()
        else:
            self._told.put(say)

    def _start_builders(self) -> None:
        n_builders = self._builder.n_at_once
        names = {f"builder {k}" for k in range(n_builders)}
        for name in sorted(names - {t.name for t in self._threads if t.is_alive()}):
            self._start(name, self._build_all)

    def _start_seat(self, seat: Seat) -> None:
        if id(seat) in self._serving or self._is_dropped:
            return
        self._serving.add(id(seat))

        def changed(ratio: float) -> None:
            self._tell_user(lambda: self._hear(ratio))

        seat.machine.control.on_change = changed
        self._start(seat.name, lambda: self._serve(seat))

    def _start(self, name: str, run: Callable[[], None]) -> None:
        def watched() -> None:
            try:
                run()
            except Stopped:
                pass
            except BaseException as e:
                self._told.put(e)

        thread = threading.Thread(target=watched, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    # ------------------------------------------------------------------ in threads of builders and slots

    def _build_all(self) -> None:
        while (share := self._share()) is not None:
            made = self._builder.build_together([build.source for build in share])
            with self._changed:
                if self._is_dropped:  # what was ended is no candidate that failed
                    return
                for build, one in zip(share, made, strict=True):
                    build.made = one
                    self._ready += [_Ready(ticket, work, one) for ticket, work in build.waiting]
                    build.waiting.clear()
                self._changed.notify_all()

    def _share(self) -> list[_Build] | None:
        """Returns the next sources for one builder: its share of all unbuilt ones; None after `drop`."""
        with self._changed:
            while not self._unbuilt:
                if self._is_dropped:
                    return None
                self._changed.wait(_LOOK_S)
            n = -(-len(self._unbuilt) // self._builder.n_at_once)
            n = min(n, self._builder.most_together)
            return [self._unbuilt.popleft() for _ in range(n)]

    def _serve(self, seat: Seat) -> None:
        """Times programs on one seat's slot, until the slot is lost or work is dropped."""
        n_done = 0
        while (ready := self._next_for(seat)) is not None:
            try:
                self._seats.prepare(seat)
                if n_done % _LOOK_EVERY == 0:
                    seat.machine.control.look()
                done = seat.machine.evaluate(ready.ticket, ready.work, ready.built)
            except (SlotLostError, WorkerError) as e:
                self._seats.lose(seat, str(e))
                ready.n_lost += 1
                if ready.n_lost == _TRIES:
                    raise WorkerError(
                        f"{_TRIES} slots were lost with one program, the last because {e}"
                    ) from e
                self._give_back(ready)
                return
            except Stopped:
                self._give_back(ready)
                raise
            n_done += 1
            self._told.put(done)

    def _next_for(self, seat: Seat) -> _Ready | None:
        """Returns the next program for a seat; None after `drop` or if its slot is lost."""
        with self._changed:
            while not (self._ready and self._may_begin(seat)):
                if self._is_dropped or seat.is_lost:
                    return None
                self._changed.wait(_LOOK_S)
            return self._ready.popleft()

    def _may_begin(self, seat: Seat) -> bool:
        """True if a control exists; only the first slot times programs before."""
        return bool(self._seats.shared.contenders.n) or seat is self._seats.live[0]

    def _give_back(self, ready: _Ready) -> None:
        with self._changed:
            self._ready.appendleft(ready)
            self._changed.notify_all()
