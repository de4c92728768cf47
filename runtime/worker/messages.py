"""Protocol between a worker and its child: one object per message, preceded by its length in four bytes.

Requests are MessagePack, since their numbers may be infinite or NaN, which JSON cannot express. Replies are JSON: a signal
handler writes one of them (runtime/cpu/timer.c).
"""

from __future__ import annotations

import os
from typing import Any, NewType

import msgspec

from ...codegen.text.source import Source
from ...kernels.sparse.recorded import UsedTree
from ..api.artifact import Artifact
from ..api.outcome import Failure, Measurement, Protocol

_LENGTH_BYTES = 4

Ticket = NewType("Ticket", int)
"""Number of submitted work, by which it is known again once it is done."""


class Work(msgspec.Struct, tag=True, frozen=True):
    """A program to build, verify and time: source text only, so that any machine can do it.

    `times_components`: each component of the program is also timed by itself, if there are several.
    """

    source: Source
    times_components: bool = False


class Done(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Outcome of submitted work, with the state of the machine that did it.

    Exactly one of `measured` and `failed` is not None. `artifact` is the build, None if building failed. `slowness` is
    that of the machine's state, `control` and `control_ns` are the source key and the time of its control. `worker` is the number
    of the process that ran it. With several slots, `slot` names the one that did it, and `number` counts its work from 0.
    """

    ticket: Ticket
    measured: Measurement | None = None
    failed: Failure | None = None
    artifact: Artifact | None = None
    run_s: float = 0.0
    slowness: float = 1.0
    control: str = ""
    control_ns: float = 0.0
    worker: int = 0
    slot: str = ""
    number: int = 0

    @property
    def found(self) -> Measurement | Failure:
        found = self.measured or self.failed
        assert found is not None
        return found


class BranchFiles(msgspec.Struct, frozen=True):
    """`UndecidedElements` whose arrays are .npy files."""

    at: str
    values: str
    reach: str
    n_allowed: int


class ExpectedFiles(msgspec.Struct, frozen=True):
    """An `Expected` whose arrays are .npy files."""

    want: str
    factor: float
    magnitude: str | float | None
    branches: BranchFiles | None = None


class SetFiles(msgspec.Struct, frozen=True):
    """An `InputSet` whose arrays are .npy files."""

    arrays: dict[str, str]
    scalars: dict[str, float | int | bool]
    expected: dict[str, ExpectedFiles]


class Prepare(msgspec.Struct, tag=True, frozen=True):
    roles: dict[str, str]
    sets: list[SetFiles]
    allowance_bytes: int  # private memory allowed beyond what the arrays take
    trees: tuple[UsedTree, ...] = ()


class Evaluate(msgspec.Struct, tag=True, frozen=True):
    """Request to verify a program and to time it.

    `control` is timed in turn with it. `n_right` is that of the failure of an earlier request for the same program: so many
    verifying runs are not repeated, and the others precede timing. None: there was no such failure.
    """

    artifact: Artifact
    protocol: Protocol
    verify: bool
    control: Artifact | None = None
    n_right: int | None = None


class MemoryProbe(msgspec.Struct, frozen=True):
    """Memory probe to run between rounds of interleaved timing, on arrays of that many distinct bytes."""

    library: str
    read_bytes: float
    written_bytes: float


class Interleave(msgspec.Struct, tag=True, frozen=True):
    artifacts: list[Artifact]
    protocol: Protocol
    beside: MemoryProbe | None = None


class Probe(msgspec.Struct, tag=True, frozen=True):
    library: str
    whole: bool = False


class Calibrate(msgspec.Struct, tag=True, frozen=True):
    libraries: tuple[str, ...]


class TimeFunction(msgspec.Struct, tag=True, frozen=True):
    module: str
    attribute: str
    protocol: Protocol


Request = Prepare | Evaluate | Interleave | Probe | Calibrate | TimeFunction


class Ready(msgspec.Struct, tag=True, frozen=True):
    """Reply: the child has started, or has loaded the input sets.

    `regions` are the address ranges of read-only inputs, to explain faults. `shared` are the ranges that inactive cells of sparse
    fields share, with the meaning of a write there. `n_verified` is the number of runs that verify a candidate.
    """

    regions: list[tuple[str, int, int]]
    limit_bytes: int  # of private memory; 0: none
    shared: list[tuple[str, int, int]] = []
    n_verified: int = 0


class Refused(msgspec.Struct, tag=True, frozen=True):
    """Reply: the request cannot be executed, for a reason other than a bug; one sentence."""

    why: str


class Broken(msgspec.Struct, tag=True, frozen=True):
    """Reply: the request failed by a bug in the child's own code; with its traceback."""

    traceback: str


class Outcomes(msgspec.Struct, tag=True, frozen=True):
    measured: list[Measurement | None]
    failed: list[Failure | None]  # exactly one of the two is not None, per artifact
    is_last: bool = False  # the child can run nothing any more
    rates: dict[
        str, list[float]
    ] = {}  # of memory meanwhile, by way of using it; bytes a nanosecond


class Rates(msgspec.Struct, tag=True, frozen=True):
    """Reply: samples of a probe by name; rates in bytes or flops per ns, latencies in ns."""

    samples: dict[str, list[float]]


class Fault(msgspec.Struct, tag=True, frozen=True):
    """Reply of the child's signal handler: a fatal signal ended the request."""

    signal: int
    address: int
    used_bytes: int


Reply = Ready | Refused | Broken | Outcomes | Rates | Fault

_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_replies: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def encode_request(request: Request) -> bytes:
    """Returns the encoded request, preceded by its length."""
    return _with_length(request_body(request))


def request_body(request: Request) -> bytes:
    """Returns the encoded request without its length."""
    return msgspec.msgpack.encode(request)


def encode_reply(reply: Reply) -> bytes:
    """Returns the encoded reply, preceded by its length."""
    return _with_length(msgspec.json.encode(reply))


def _with_length(body: bytes) -> bytes:
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


def decode_reply(body: bytes) -> Reply:
    """Returns the decoded reply. Raises msgspec.DecodeError for any other content."""
    return _replies.decode(body)


def read_request(fd: int) -> Request | None:
    """Reads the next request; None if the other end is closed."""
    body = read_message(fd)
    return None if body is None else decode_request(body)


def decode_request(body: bytes) -> Request:
    """Returns the decoded request. Raises msgspec.DecodeError for any other content."""
    return _requests.decode(body)


def read_message(fd: int) -> bytes | None:
    """Reads the bytes of the next message; None if the other end is closed."""
    head = _read_exactly(fd, _LENGTH_BYTES)
    return None if head is None else _read_exactly(fd, int.from_bytes(head, "little"))


def write_message(fd: int, body: bytes) -> None:
    """Writes a message, preceded by its length."""
    write_all(fd, _with_length(body))


def write_all(fd: int, content: bytes) -> None:
    """Writes all bytes to a blocking descriptor."""
    view: Any = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def _read_exactly(fd: int, n_bytes: int) -> bytes | None:
    parts = []
    while n_bytes:
        part = os.read(fd, min(n_bytes, 1 << 20))
        if not part:
            return None
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)
