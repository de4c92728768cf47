"""Stored argument values: links, row pointers and other arrays that decide a program's control flow.

Random links would form another structure, and a walk along them may never end. Small arrays are stored as text in the file
itself, larger ones beside it in files named by their content. Even larger ones are not stored: a replay then requires them
from the user.
"""

from __future__ import annotations

import hashlib
import math
import re
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...kernels.frontend.recorder import Recording
from ...kernels.ir.kernel import ArrayParam, DType
from ...kernels.tasks.archive import ArchiveError
from ...kernels.tasks.flow import flow_of
from ...kernels.tasks.naive_activation import cell_by_cell

Array = NDArray[Any]

PACKED_BYTES = 1 << 20  # of an array that may be a text
TEXT_BYTES = 64 << 10  # of all texts of a file together
NEEDED_BYTES = 128 << 20  # of all arrays without which a program does not end, or leaves its arrays
WANTED_BYTES = (
    16 << 20
)  # of all arrays: beyond it, arrays that only decide a branch or a divisor are drawn
_KEY = re.compile(r"[0-9a-f]{32}")


class SeparateArray(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An array stored in its own file, next to the file that refers to it."""

    key: str  # of its content

    @property
    def file(self) -> str:
        """Name of the array's file; its key has been checked."""
        return f"input-{self.key}.bin"


Kept = str | SeparateArray  # a text, packed, or a file


def structure_of(recording: Recording) -> list[str]:
    """Returns the names of arrays with activity masks and slots of sparse fields."""
    return [
        name
        for used in recording.trees
        for key, name in used.sections
        if not key.startswith("field")
    ]


def content_key(content: Any) -> str:
    """Returns a hash of the bytes of an array."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def needed_arrays(recording: Recording) -> tuple[list[str], list[str]]:
    """Returns the names of arrays that decide control flow: those required exactly, and the remaining ones.

    Without the exact values of the first, a run may never end or may index out of range.
    """
    flow, structure = flow_of(cell_by_cell(recording)), structure_of(recording)
    exact = flow.placing | flow.ending
    deciding = (exact | flow.steering).difference(structure)
    arrays = [p for p in recording.arrays if p.name in deciding]
    needed = [p.name for p in arrays if p.name in exact or not p.dtype.is_float]
    return needed, [p.name for p in arrays if p.name not in needed]


def kept_of(
    recording: Recording, roles: Mapping[str, str], arrays: Mapping[str, Array]
) -> dict[str, Kept]:
    """Returns, in stored form, the arrays whose values a run file must keep.

    `roles`: "input", "output" or "inout" by name of the array.
    """
    needed, wanted = needed_arrays(recording)
    kept: dict[str, Kept] = {}
    n_bytes = n_text = 0
    for name in (*needed, *wanted):
        array = arrays[name]
        most = NEEDED_BYTES if name in needed else WANTED_BYTES
        if roles[name] == "output" or n_bytes + array.nbytes > most:
            continue
        n_bytes += array.nbytes
        text = packed(array) if array.nbytes <= PACKED_BYTES else None
        if text is not None and n_text + len(text) <= TEXT_BYTES:
            n_text += len(text)
            kept[name] = text
        else:
            kept[name] = SeparateArray(content_key(np.ascontiguousarray(array)))
    return kept


def check_kept(kept: Mapping[str, Kept], recording: Recording) -> None:
    """Raises ArchiveError, a sentence, if `kept` cannot be stored values of the sequence's arrays."""
    structure = structure_of(recording)
    sizes = {p.name: n_bytes_of(p) for p in recording.arrays if p.name not in structure}
    for name, content in kept.items():
        if name not in sizes:
            raise ArchiveError(f"{name!r:.60}, of which it keeps the values, is none of its arrays")
        if isinstance(content, SeparateArray):
            if not _KEY.fullmatch(content.key):
                raise ArchiveError(f"{content.key!r:.60} is no key of what {name} held")
        elif sizes[name] > PACKED_BYTES:
            raise ArchiveError(f"{name} is too large to be kept as a text")
    if sum(sizes[name] for name in kept) > NEEDED_BYTES:
        raise ArchiveError(f"the arrays that it keeps take more than {NEEDED_BYTES >> 20} MiB")


def n_bytes_of(param: ArrayParam) -> int:
    """Returns the bytes of the array of a parameter."""
    return math.prod(param.shape) * param.dtype.size_bytes


def packed(array: Any) -> str:
    """Returns integers as compressed text of their differences, which suits increasing slots and coordinates."""
    flat = np.ascontiguousarray(array).reshape(-1).view(f"u{array.dtype.itemsize}")
    steps = np.diff(flat, prepend=flat.dtype.type(0))
    return b85encode(zlib.compress(steps.tobytes(), 6)).decode()


def unpacked(text: str, param: ArrayParam) -> Array:
    """Returns the array from a text of `packed`. Raises ArchiveError, a sentence, if its shape differs."""
    n_bytes = n_bytes_of(param)
    try:
        reader = zlib.decompressobj()
        raw = reader.decompress(b85decode(text), n_bytes + 1)
    except (ValueError, zlib.error) as e:
        raise ArchiveError(f"what {param.name} held cannot be read: {e}") from None
    if len(raw) != n_bytes:
        raise ArchiveError(f"what {param.name} held is not of its shape")
    steps = np.frombuffer(raw, f"u{param.dtype.size_bytes}")
    flat = np.add.accumulate(steps, dtype=steps.dtype)
    return shaped(flat, param)


def shaped(content: Array, param: ArrayParam) -> Array:
    """Returns bytes, or integers of the element's size, as the array of `param`.

    Raises ArchiveError for invalid truth values.
    """
    if param.dtype is DType.bool_ and content.size and int(content.max()) > 1:
        raise ArchiveError(f"what {param.name} held are no truth values")
    return content.view(param.dtype.numpy).reshape(param.shape)
