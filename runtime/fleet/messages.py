"""Messages between a driver and the sites that run its programs: bytes in, bytes out, nothing is pickled.

A call begins with the version of the driver, and a site of another version refuses it before decoding the rest.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import msgspec

from ...codegen.text.source import Source
from ...space.targets.target import Target
from ..api.artifact import Artifact
from ..api.outcome import Failure
from ..measure.conditions import Conditions
from ..worker.channel import Death
from ..worker.messages import Outcomes, Rates, Ready

_PROTOCOL = 2  # raised with each change of these messages, or of those that they hold


def own_version() -> str:
    """Returns the version of this installation, which drivers and sites must share."""
    try:
        return f"{version('kernelscape')}/{_PROTOCOL}"
    except PackageNotFoundError:  # a checkout that is not installed
        return f"0/{_PROTOCOL}"


class Put(msgspec.Struct, tag=True, frozen=True):
    """A chunk of a file named by content: bytes from position `at`, of `n_bytes` in all."""

    name: str
    at: int
    n_bytes: int
    chunk: bytes


class Forwarded(msgspec.Struct, tag=True, frozen=True):
    """A request for the session's process: a message of runtime/worker/messages.py with file names by content."""

    session: str
    request: bytes
    deadline_s: float


class End(msgspec.Struct, tag=True, frozen=True):
    """Request to end the session's process."""

    session: str


class Build(msgspec.Struct, tag=True, frozen=True):
    """Sources to build, in one compiler run if that is faster, or each alone.

    `timeout_s` is the limit of one source.
    """

    sources: list[Source]
    together: bool
    timeout_s: float


Call = Put | Forwarded | End | Build


class Envelope(msgspec.Struct, frozen=True):
    version: str
    call: msgspec.Raw


class Stored(msgspec.Struct, tag=True, frozen=True):
    """Answer: the request is done."""


class Missing(msgspec.Struct, tag=True, frozen=True):
    """Answer: nothing was run, since the site needs these files first."""

    names: list[str]


class Answered(msgspec.Struct, tag=True, frozen=True):
    """Answer of a session's process: a reply, its death, or a bug of its own.

    `is_alive`: the process runs with the arrays that it was prepared with.
    """

    is_alive: bool
    reply: Ready | Outcomes | Rates | None = None
    death: Death | None = None
    bug: str = ""


class Libraries(msgspec.Struct, tag=True, frozen=True):
    """Answer: builds in the order of the sources, with file names for paths, and the contents of these files."""

    artifacts: list[Artifact | None]
    failures: list[Failure | None]
    contents: dict[str, bytes]


class CallRefused(msgspec.Struct, tag=True, frozen=True):
    """Answer: the call cannot be served; the reason is one sentence."""

    why: str


class Gone(msgspec.Struct, tag=True, frozen=True):
    """Answer: the site's process ended before it answered. A new process answers the next call."""

    why: str


Answer = Stored | Missing | Answered | Libraries | CallRefused | Gone


class SlotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a slot: its device, which times one program at a time, and facts for drivers.

    Times of slots with equal `key` may be compared. `arch` is the key of its compiler: libraries built under it run there.
    """

    name: str
    version: str
    backend: str
    key: str
    arch: str
    opened_s: float  # seconds since 1970: the first of several keys is that of the slot that was opened first
    conditions: Conditions
    target: Target
    flags: list[str]
    factors: list[float]  # of the prediction
    cpu: str  # its instructions
    has_probe: bool
    times_count: bool
    makes_libraries: bool
    most_together: int
    builds_units: bool


_calls: msgspec.msgpack.Decoder[Call] = msgspec.msgpack.Decoder(Call)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_envelopes: msgspec.msgpack.Decoder[Envelope] = msgspec.msgpack.Decoder(Envelope)


def encode_call(call: Call) -> bytes:
    return msgspec.msgpack.encode(
        Envelope(own_version(), msgspec.Raw(msgspec.msgpack.encode(call)))
    )


def decode_call(message: bytes) -> Call | CallRefused:
    """Returns the decoded call; a refusal if a driver of another version sent it."""
    own = own_version()
    try:
        envelope = _envelopes.decode(message)
        if envelope.version != own:
            return CallRefused(f"its version is {own}, and that of the driver {envelope.version}")
        return _calls.decode(envelope.call)
    except msgspec.DecodeError as e:
        return CallRefused(f"it cannot read the call: {e}")


def encode_answer(answer: Answer) -> bytes:
    return msgspec.msgpack.encode(answer)


def decode_answer(message: bytes) -> Answer:
    """Returns the decoded answer. Raises msgspec.DecodeError if the site's version has other messages."""
    return _answers.decode(message)


def encode_facts(facts: list[SlotFacts]) -> bytes:
    return msgspec.msgpack.encode(facts)


def decode_facts(message: bytes) -> list[SlotFacts]:
    """Returns the slots of a worker. Raises msgspec.DecodeError if the worker's version has other messages."""
    return msgspec.msgpack.decode(message, type=list[SlotFacts])
