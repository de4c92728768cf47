"""Compiler process for CUDA text: one JSON request per message on stdin, one reply each on stdout, until stdin closes."""

from __future__ import annotations

import math
import os
import signal
import sys

import msgspec

from ..api.errors import DeviceError
from ..worker.messages import read_message, write_message
from .nvrtc import Compilation, compile_text


class CompileRequest(msgspec.Struct, frozen=True):
    """A text to compile. The parent gives up after `timeout_s` seconds.

    This process ends by itself 2 s later, with or without a parent.
    """

    text: str
    architecture: str
    extra: tuple[str, ...]
    timeout_s: float


def main() -> int:
    """Serves requests until stdin is closed."""
    replies = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no reply
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (body := read_message(sys.stdin.fileno())) is not None:
        request = msgspec.json.decode(body, type=CompileRequest)
        signal.alarm(math.ceil(request.timeout_s) + 2)
        try:
            compiled = compile_text(request.text, request.architecture, request.extra)
        except DeviceError as e:
            compiled = Compilation(None, str(e))
        signal.alarm(0)
        write_message(replies, msgspec.json.encode(compiled))
    return 0


if __name__ == "__main__":
    sys.exit(main())
