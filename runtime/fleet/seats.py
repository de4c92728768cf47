"""Seats: the slots of one search, each with a worker. Work for a single machine uses the first seat."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ..api.artifact import Artifact
from ..api.outcome import Protocol
from ..worker.control import SharedControl
from ..worker.input_sets import InputSets
from ..worker.machine import Machine
from ..worker.worker import AbstractWorker, Outcome, Worker, WorkerError
from .fleet import AbstractFleet, AbstractSlot, SlotLostError, usable
from .remote import RemoteChannel, RemoteDevice

T = TypeVar("T")


class Seat:
    """A slot of a search, with its worker and its machine (control and timed programs)."""

    def __init__(
        self, slot: AbstractSlot, device: RemoteDevice, session: str, shared: SharedControl
    ) -> None:
        self.name = slot.facts.name
        self.slot = slot
        channel = RemoteChannel(slot, session, device.files)
        self.worker = Worker(device, channel=channel, files=lambda: device.files)
        self.machine = Machine(self.worker, device.builder, shared, self.name)
        self.is_lost = False
        self.is_prepared = False


class Seats:
    """The seats of one search. Slots with the same key that join later get a seat, too."""

    def __init__(
        self,
        fleet: AbstractFleet,
        slots: Sequence[AbstractSlot],
        device: RemoteDevice,
        *,
        may_grow: bool = True,
    ) -> None:
        """Without `may_grow` slots that join later are of other searches."""
        self._fleet = fleet
        self._may_grow = may_grow
        self._device = device
        self.key = slots[0].facts.key
        self.shared = SharedControl()
        self._seats: list[Seat] = []
        self._lock = threading.Lock()
        self.is_over: Callable[[], bool] = lambda: False
        self.is_stopping = False
        """True while nothing that runs is waited for."""
        self.why_lost = ""
        self.on_added: Callable[[Seat], None] = lambda seat: None
        for slot in slots:
            self._add(slot)

    @property
    def live(self) -> list[Seat]:
        """Seats whose slots are not lost, in the order in which they joined."""
        with self._lock:
            return [seat for seat in self._seats if not seat.is_lost]

    @property
    def first(self) -> Seat:
        """The first seat whose slot is not lost. Raises WorkerError if none is left."""
        live = self.live
        if not live:
            raise WorkerError(f"the fleet has no device left for this search: {self.why_lost}")
        return live[0]

    def find_new(self) -> list[Seat]:
        """Adds and returns seats for slots with the search's device key that have joined the fleet since."""
        if not self._may_grow:
            return []
        with self._lock:
            known = {id(seat.slot) for seat in self._seats}
        slots = [s for s in usable(self._fleet) if s.facts.key == self.key and id(s) not in known]
        return [self._add(slot) for slot in slots]

    def lose(self, seat: Seat, why: str) -> None:
        """Records that a seat's slot is lost, with the reason."""
        with self._lock:
            seat.is_lost, self.why_lost = True, why

    def prepare(self, seat: Seat) -> None:
        """Prepares a seat's worker with the inputs of an already prepared one.

        Raises WorkerError, SlotLostError and Stopped.
        """
        with self._lock:
            prepared = next(s for s in self._seats if s.is_prepared)
        if not seat.is_prepared:
            seat.worker.prepare_as(prepared.worker)
            seat.is_prepared = True

    def close(self) -> None:
        """Ends all workers of this search, and leaves the fleet."""
        with self._lock:
            seats = list(self._seats)
        for seat in seats:
            with suppress(SlotLostError):
                seat.worker.close()
        self._fleet.close()

    def _add(self, slot: AbstractSlot) -> Seat:
        seat = Seat(slot, self._device, self._fleet.session, self.shared)
        seat.worker.end_when(lambda: self.is_stopping or self.is_over())
        with self._lock:
            self._seats.append(seat)
        self.on_added(seat)
        return seat


class FleetWorker(AbstractWorker):
    """The worker of the first seat; if its slot is lost, that of the next seat."""

    def __init__(self, seats: Seats) -> None:
        super().__init__()
        self.seats = seats
        self.tell_user: Callable[[Callable[[], None]], None] = lambda say: say()
        """Calls a function in the thread of whoever uses the worker."""
        seats.on_added = self._watch
        for seat in seats.live:
            self._watch(seat)

    def start(self) -> None:
        """No effect: slots run already."""

    def prepare(self, input_sets: InputSets) -> None:
        def prepared(seat: Seat) -> None:
            seat.worker.prepare(input_sets)
            seat.is_prepared = True

        self._by_first(prepared, needs_inputs=False)

    def prepare_as(self, other: AbstractWorker) -> None:
        raise WorkerError("a fleet has one worker a slot")

    def evaluate(self, artifact: Artifact, protocol: Protocol, *, verify: bool = True) -> Outcome:
        return self._by_first(lambda s: s.worker.evaluate(artifact, protocol, verify=verify))

    def evaluate_beside(self, artifact: Artifact, control: Artifact, protocol: Protocol) -> Outcome:
        return self._by_first(lambda s: s.worker.evaluate_beside(artifact, control, protocol))

    def interleave(self, artifacts: Sequence[Artifact], protocol: Protocol) -> list[Outcome]:
        return self._by_first(lambda s: s.worker.interleave(artifacts, protocol))

    def interleave_beside(
        self,
        artifacts: Sequence[Artifact],
        protocol: Protocol,
        read_bytes: float,
        written_bytes: float,
    ) -> tuple[list[Outcome], dict[str, list[float]]]:
        moved = read_bytes, written_bytes
        return self._by_first(lambda s: s.worker.interleave_beside(artifacts, protocol, *moved))

    def second(self) -> tuple[str, AbstractWorker] | None:
        """Returns the name and the worker of a second slot; None if there is none."""
        for seat in self.seats.live[1:]:
            with suppress(WorkerError, SlotLostError):
                self.seats.prepare(seat)
                return seat.name, seat.worker
        return None

    def probe(self) -> float:
        return self._by_first(lambda s: s.worker.probe(), needs_inputs=False)

    def probe_state(self) -> dict[str, list[float]]:
        return self._by_first(lambda s: s.worker.probe_state(), needs_inputs=False)

    def end_when(self, is_over: Callable[[], bool]) -> None:
        self.seats.is_over = is_over

    def close(self) -> None:
        self.seats.close()

    def _by_first(self, act: Callable[[Seat], T], needs_inputs: bool = True) -> T:
        while True:
            seat = self.seats.first
            try:
                if needs_inputs:
                    self.seats.prepare(seat)
                return act(seat)
            except SlotLostError as e:
                self.seats.lose(seat, str(e))

    def _watch(self, seat: Seat) -> None:
        """Shares the branches (of rounding) that this seat's worker finds with all seats, since inputs are equal."""
        seat.worker.branches = self.branches
        seat.worker.on_measured = lambda number: self.tell_user(lambda: self.on_measured(number))
