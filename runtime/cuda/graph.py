"""CUDA graphs of many calls, so that the host's launch rate does not limit sequences of a few microseconds.

PyCUDA has no graphs; the driver is called directly, on PyCUDA's stream and in its context.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .driver import library

_THREAD_LOCAL_CAPTURE = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class GraphError(Exception):
    """Raised if the driver refuses a graph; the message contains the driver's text."""


class CudaGraph:
    """A graph of the launches that `record` makes on a stream, launched again as a whole.

    Raises GraphError if the driver refuses it.
    """

    def __init__(self, stream: Any, record: Callable[[], None]) -> None:
        cuda = library()
        self._stream = ctypes.c_void_p(stream.handle)
        self._exec = ctypes.c_void_p()
        graph = ctypes.c_void_p()
        _check(cuda.cuStreamBeginCapture_v2(self._stream, _THREAD_LOCAL_CAPTURE), "capture")
        try:
            record()
        finally:
            ended = cuda.cuStreamEndCapture(self._stream, ctypes.byref(graph))
        _check(ended, "capture")
        try:
            flags = ctypes.c_ulonglong(0)
            made = cuda.cuGraphInstantiateWithFlags(ctypes.byref(self._exec), graph, flags)
        finally:
            cuda.cuGraphDestroy(graph)
        _check(made, "make")

    def launch(self) -> None:
        """Launches the graph on its stream."""
        _check(library().cuGraphLaunch(self._exec, self._stream), "launch")

    def close(self) -> None:
        """Frees the graph; the caller must not launch it afterwards."""
        library().cuGraphExecDestroy(self._exec)


def _check(status: int, what: str) -> None:
    if status != 0:
        said = ctypes.c_char_p()
        library().cuGetErrorString(status, ctypes.byref(said))
        words = (said.value or b"").decode() or f"error {status}"
        raise GraphError(f"the driver does not {what} a graph: {words}")
