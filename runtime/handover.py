"""Transfer of values from a forked child to its parent: arrays go through shared memory, all else is pickled."""

from __future__ import annotations

import io
import mmap
import os
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_ALIGNED = 64  # bytes at which arrays begin


class Handover:
    """Shared-memory channel for one value, created before the fork.

    Arrays in `kept`, which the parent owns already, are returned as these objects.
    """

    def __init__(self, kept: Sequence[Array] = ()) -> None:
        self._kept = tuple(kept)
        self._fd = os.memfd_create("arrays")

    def dumps(self, value: Any) -> bytes:
        """Pickles the value in the child, and writes its arrays to the shared file."""
        spans: list[tuple[int, int]] = []

        def put(buffer: pickle.PickleBuffer) -> None:
            content = buffer.raw()
            start = -(-os.lseek(self._fd, 0, os.SEEK_END) // _ALIGNED) * _ALIGNED
            spans.append((start, content.nbytes))
            while content.nbytes:
                n = os.pwrite(self._fd, content, start)
                content, start = content[n:], start + n

        written = io.BytesIO()
        _Pickler(written, put, self._kept).dump(value)
        return pickle.dumps((written.getvalue(), spans))

    def loads(self, content: bytes) -> Any:
        """Returns the value in the parent, from the child's bytes and the shared file. Its arrays are writable."""
        written, spans = pickle.loads(content)
        size = os.fstat(self._fd).st_size
        file = memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_COPY) if size else b"")
        buffers = [file[start : start + n] for start, n in spans]
        return _Unpickler(io.BytesIO(written), buffers, self._kept).load()

    def close(self) -> None:
        """Closes the shared file. Loaded arrays stay valid."""
        os.close(self._fd)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, put: Any, kept: Sequence[Array]) -> None:
        super().__init__(file, protocol=5, buffer_callback=put)
        self._numbers = {id(a): k for k, a in enumerate(kept)}

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value)) if isinstance(value, np.ndarray) else None

    def reducer_override(self, value: Any) -> Any:
        # One element seen everywhere takes no memory, and is to stay so.
        if isinstance(value, np.ndarray) and value.size > 1 and not any(value.strides):
            return np.broadcast_to, (value.flat[0], value.shape)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: io.BytesIO, buffers: Sequence[memoryview], kept: Sequence[Array]
    ) -> None:
        super().__init__(file, buffers=buffers)
        self._kept = kept

    def persistent_load(self, number: int) -> Array:
        return self._kept[number]
