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


def raised(call: Callable[[], Any]) -> list[str]:
    """The classes that what a call ends in is of: Taichi's, then Python's; "runs" where it ends by itself."""
    try:
        call()
        ti.sync()
    except Exception as e:  # its class is what is asked
        heard.append(e)
        return [name for name, kind in _classes().items() if isinstance(e, kind)]
    return ["runs"]


def _classes() -> dict[str, type[Exception]]:
    from taichi.lang import exception

    names = "Compilation Syntax Name Index Type Runtime RuntimeType Assertion"
    theirs = [f"Taichi{name}Error" for name in names.split()]
    pythons = (
        SyntaxError,
        NameError,
        AttributeError,
        LookupError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    )
    more = (RuntimeError, NotImplementedError, AssertionError, ArithmeticError)
    return {n: getattr(exception, n) for n in theirs} | {k.__name__: k for k in (*pythons, *more)}


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
