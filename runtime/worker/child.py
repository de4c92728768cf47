"""Child process of a worker: executes requests that arrive by a pipe until its parent ends.

Run as `python -P -m kernelscape.runtime.worker.child REQUEST_FD REPLY_FD OPTIONS_JSON`. Every crash of it is expected: its parent
classifies the death and starts another.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path

import msgspec

from ..device import open_device
from .evaluator import Evaluator
from .messages import Ready, encode_reply, read_request, write_all

SCRATCH_PREFIX = "kernelscape-worker-"


class ChildOptions(msgspec.Struct, frozen=True):
    """Options of the child process, passed once on its command line."""

    device: str
    library: (
        str | None
    )  # required by the device; None: none is required, or no generated code will be run
    n_threads: int


def die_with_parent(request_fd: int) -> None:
    """Ends the whole process group when the parent closes its end of the pipe, also during generated code."""
    poll = select.poll()
    poll.register(request_fd, 0)  # hang-ups are always reported
    while not poll.poll():
        pass
    here = Path.cwd()
    if here.name.startswith(SCRATCH_PREFIX):
        shutil.rmtree(here, ignore_errors=True)  # the parent cannot any more
    os.killpg(0, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Executes requests until the parent closes the pipe; returns the exit code."""
    request_fd, reply_fd = int(arguments[0]), int(arguments[1])
    options = msgspec.json.decode(arguments[2], type=ChildOptions)
    watcher = threading.Thread(target=partial(die_with_parent, request_fd), daemon=True)
    watcher.start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    device = open_device(options.device)
    if options.library is not None:
        device.runner.enter_child(Path(options.library), reply_fd, options.n_threads)
    evaluator = Evaluator(device.machine, device.runner, options.n_threads)
    write_all(reply_fd, encode_reply(Ready([], 0)))
    while True:
        request = read_request(request_fd)
        if request is None:
            watcher.join()  # ends this process
            return 0
        write_all(reply_fd, encode_reply(evaluator.answer(request)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
