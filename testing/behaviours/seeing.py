"""Ways to see what a program does: what it refuses, what it prints."""

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import taichi as ti

heard: list[Exception] = []
"""What calls were refused with, so that who runs behaviours can look at the words."""


def refused(call: Callable[[], Any]) -> str:
    """ "refused" where a call ends in an error, else "runs"."""
    try:
        call()
        ti.sync()
    except Exception as e:  # which kind it is differs, and is looked at by whoever runs this
        heard.append(e)
        return "refused"
    return "runs"


def printed(call: Callable[[], Any]) -> str:
    """What a call writes to stdout, also from C."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            call()
            ti.sync()
            sys.stdout.flush()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


@ti.kernel
def n_active(x: ti.template()) -> ti.i32:
    """How many cells of a field or a node of one axis are active."""
    n = 0
    for _ in x:
        n += 1
    return n
