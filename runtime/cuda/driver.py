"""CUDA driver through PyCUDA: search, initialisation once per process, explanation of its errors."""

from __future__ import annotations

import atexit
import ctypes
import threading
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ..api.errors import DeviceError
from ..api.outcome import Failure, FailureKind
from ..installing import extra

# PyCUDA has no types. Modules and contexts of it are Any here and nowhere else than in this folder.
Driver = Any
_thread = threading.local()

_NO_DRIVER = "the NVIDIA driver (libcuda.so.1) was not found; a GPU and its driver are needed"


def pycuda_advice() -> str:
    """Returns the command that installs PyCUDA."""
    return f"install it with {extra('cuda')} (it is built against a CUDA toolkit)"


def has_pycuda() -> bool:
    """True if PyCUDA is installed; it is not imported."""
    return find_spec("pycuda") is not None


@cache
def library() -> ctypes.CDLL:
    """Returns the loaded driver library (libcuda). Raises DeviceError if there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise DeviceError(_NO_DRIVER) from None


@cache
def driver() -> Driver:
    """Returns PyCUDA's driver module, initialised. Raises DeviceError if it is missing or there is no GPU."""
    library()
    if not has_pycuda():
        raise DeviceError(f"PyCUDA was not found; {pycuda_advice()}")
    try:
        cuda = import_module("pycuda.driver")
        cuda.init()
    except ImportError as e:
        raise DeviceError(f"PyCUDA cannot be imported: {e}") from e
    except Exception as e:  # an Error of a module whose import may have failed
        raise DeviceError(f"the NVIDIA driver does not start: {e}") from e
    if cuda.Device.count() == 0:
        raise DeviceError("the NVIDIA driver sees no GPU")
    return cuda


def gpu() -> Any:
    """Returns the first GPU without creating a context. Raises DeviceError."""
    return driver().Device(0)


@cache
def _primary() -> Any:
    cuda = driver()
    try:
        return gpu().retain_primary_context()
    except cuda.Error as e:
        raise DeviceError(f"the GPU cannot be opened: {e}") from e


def enter_context() -> None:
    """Makes the first GPU's primary context current in the calling thread.

    Other libraries of this process share that context. Raises DeviceError.
    """
    if not getattr(_thread, "is_inside", False):
        context = _primary()
        context.push()
        _thread.is_inside = True
        atexit.register(context.pop)


_MEANINGS: tuple[tuple[str, FailureKind, str, bool], ...] = (
    ("illegal memory access", "crash", "it accessed memory outside its arrays", True),
    ("illegal address", "crash", "it accessed memory outside its arrays", True),
    ("misaligned", "crash", "it accessed a misaligned address", True),
    ("illegal instruction", "crash", "it came upon an illegal instruction", True),
    ("timed out", "timeout", "the driver ended it for its time", True),
    (
        "too many blocks",
        "launch",
        "its blocks wait for each other, and the GPU does not hold all at once",
        False,
    ),
    (
        "too many resources",
        "launch",
        "a block needs more registers or memory than there are",
        False,
    ),
    ("invalid argument", "launch", "its launch is beyond the limits of the GPU", False),
    ("invalid value", "launch", "its launch is beyond the limits of the GPU", False),
    ("invalid configuration", "launch", "its launch is beyond the limits of the GPU", False),
    ("out of memory", "memory", "the GPU's memory ran out", False),
    ("no kernel image", "launch", "it was built for another GPU", False),
)


def explain(error: Exception, kernel: str) -> tuple[Failure, bool]:
    """Returns the failure that a PyCUDA error means for a kernel, and True if the context is lost.

    PyCUDA's message contains the driver's sentence. An unknown error counts as loss of the context.
    """
    said = str(error)
    for words, kind, meaning, is_lost in _MEANINGS:
        if words in said.lower():
            return Failure(kind, f"{kernel}: {meaning}", said), is_lost
    return Failure("crash", f"{kernel}: the driver reports an error", said), True
