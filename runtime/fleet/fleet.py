"""Fleet: the slots (devices that time programs) and compilers that a driver can use, on any machines."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from ..api.errors import DeviceError
from ..measure.conditions import Conditions
from .host import Host
from .messages import SlotFacts, own_version


class SlotLostError(DeviceError):
    """A slot or a builder was lost together with its current work; one sentence."""


class AbstractSlot(ABC):
    """A slot of a fleet, as its driver uses it."""

    facts: SlotFacts

    @abstractmethod
    def call(self, message: bytes, is_over: Callable[[], bool]) -> bytes:
        """Sends a message to the slot's site and returns the answer.

        Raises SlotLostError, and Stopped once `is_over`.
        """

    @abstractmethod
    def end(self) -> None:
        """Ends this driver's programs on the slot, also during a call."""


class AbstractFleet(ABC):
    """The slots and builders of a fleet. `session` is the name of this driver's session on all of them."""

    session: str
    may_be_shared = True
    """True if processes may each have a slot at once: compilers of one do not run on the cores of another's."""

    def __init__(self) -> None:
        self.others: dict[str, str] = {}
        """Workers of other versions by name, with these versions: nothing is run on them."""

    @abstractmethod
    def slots(self) -> list[AbstractSlot]:
        """Returns the current slots in the order in which they were opened; each is the same object in every call."""

    @abstractmethod
    def n_builders(self, arch: str) -> int:
        """Returns the number of compilers with the compiler key `arch` that can build at once."""

    @abstractmethod
    def build(self, arch: str, message: bytes, is_over: Callable[[], bool]) -> bytes:
        """Sends a build message to a builder with the compiler key `arch` and returns the answer.

        Raises SlotLostError, and Stopped once `is_over`.
        """

    @abstractmethod
    def end_builds(self) -> None:
        """Ends builds for this driver, if the fleet can end them."""

    @abstractmethod
    def close(self) -> None:
        """Ends everything that runs for this driver."""


class LocalFleet(AbstractFleet):
    """Fleet of this machine's devices without a scheduler. It ends with this process."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.session = uuid.uuid4().hex
        self._host = host
        self.may_be_shared = host.has_cores
        self._slots: list[AbstractSlot] = [_LocalSlot(host, f, self.session) for f in host.facts]

    def slots(self) -> list[AbstractSlot]:
        return list(self._slots)

    def n_builders(self, arch: str) -> int:
        return self._host.n_builders if arch in self._host.archs else 0

    def build(self, arch: str, message: bytes, is_over: Callable[[], bool]) -> bytes:
        return self._host.build(arch, message, is_over)

    def end_builds(self) -> None:
        self._host.end_builds()

    def close(self) -> None:
        self._host.close()


class _LocalSlot(AbstractSlot):
    def __init__(self, host: Host, facts: SlotFacts, session: str) -> None:
        self._host, self.facts, self._session = host, facts, session

    def call(self, message: bytes, is_over: Callable[[], bool]) -> bytes:
        return self._host.call(self.facts.name, message, is_over)

    def end(self) -> None:
        self._host.end_slot(self.facts.name, self._session)


def keys_of(fleet: AbstractFleet, backend: str) -> list[str]:
    """Returns the distinct device keys of a backend's slots, in the order in which they were opened."""
    return [key for of, key in kinds_of(fleet) if of == backend]


def kinds_of(fleet: AbstractFleet) -> list[tuple[str, str]]:
    """Returns backend and key of all slots, each once, in the order in which they were opened."""
    return list(dict.fromkeys((s.facts.backend, s.facts.key) for s in usable(fleet)))


def usable(fleet: AbstractFleet) -> list[AbstractSlot]:
    """Returns the slots whose version is that of this installation."""
    return [s for s in fleet.slots() if s.facts.version == own_version()]


def chosen(
    fleet: AbstractFleet, backend: str, on: str | None = None, like: Conditions | None = None
) -> list[AbstractSlot]:
    """Returns the slots with one device key: `on`, else that of the backend's first slot with machine and compiler of `like`.

    Raises DeviceError, one sentence, if there are none.
    """
    every, slots = fleet.slots(), usable(fleet)
    found = [s for s in slots if s.facts.backend == backend]
    others = {s.facts.name: s.facts.version for s in every if s not in slots} | fleet.others
    if not found and others:
        name, version = next(iter(others.items()))
        raise DeviceError(
            f"{name} has version {version} of kernelscape, and this is {own_version()}: install one"
        )
    if not found:
        here = ", ".join(sorted({s.facts.backend for s in slots})) or "none at all"
        raise DeviceError(
            f"the fleet has no device of --target {backend} (it has {here}): start a worker there with explore worker"
        )
    if on is None:
        alike = [s for s in found if like is None or _are_alike(s.facts.conditions, like)]
        if not alike:
            assert like is not None
            compiler = f" with {like.compiler}" if like.compiler else ""
            raise DeviceError(
                f"no device of the fleet is of {like.machine}{compiler}, which the run is of"
            )
        on = alike[0].facts.key
    of_key = [s for s in found if s.facts.key == on]
    if not of_key:
        raise DeviceError(
            f"the fleet has no device of the key {on!r}: there are {_listed(keys_of(fleet, backend))}"
        )
    return of_key


def of_slot(slots: list[AbstractSlot], name: str | None) -> list[AbstractSlot]:
    """Returns the slot of a name, or all without one. Raises DeviceError where it has gone."""
    found = [slot for slot in slots if name in (None, slot.facts.name)]
    if not found:
        raise DeviceError(f"the slot {name} has gone")
    return found


def _are_alike(a: Conditions, b: Conditions) -> bool:
    """True for one machine with one compiler."""
    return (a.machine, a.compiler, a.flags) == (b.machine, b.compiler, b.flags)


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys)
