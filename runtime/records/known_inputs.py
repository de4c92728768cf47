"""Input arrays of a stored sequence that are not drawn: stored values, active cells, and the user's .npz file.

Files may come from other people: only regular ones are read, and at most the bytes that the sequence's arrays need.
"""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...kernels.frontend.recorder import Recording
from ...kernels.ir.kernel import ArrayParam
from ...kernels.ir.task import Problem
from ...kernels.tasks.archive import ArchiveError
from ..files import opened_regular, read_regular, write_atomically
from ..free_memory import within_free_memory
from . import kept
from .record import RecordError
from .stored import StoredParameter, StoredSequence

Array = NDArray[Any]

_HEADER_BYTES = 1 << 16  # before an array in an .npz file, at most
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    RuntimeError,
    SyntaxError,  # these two of the header of an array
    tokenize.TokenError,
)


def known_arrays(
    stored: StoredSequence,
    recording: Recording,
    problem: Problem,
    file: Path,
    inputs: Path | None = None,
) -> dict[str, Array]:
    """Returns the arrays that a run stored, and those of the user's .npz file `inputs`, which take precedence.

    `file` is the file of the sequence. The arrays with the active cells of sparse fields are included. Raises MemoryError, and
    RecordError also if an array is missing without which the sequence may not end.
    """
    shapes = {p.name: p for p in recording.arrays}
    with within_free_memory():
        known = {} if inputs is None else read_inputs(inputs, recording, stored.parameters)
        for name, content in (*_kept(stored).items(), *stored.states.items()):
            if name not in known and (array := _read(content, shapes[name], file)) is not None:
                known[name] = array
    if not isinstance(stored.kept, msgspec.UnsetType):  # older files have always been drawn
        needed, _ = kept.needed_arrays(recording)
        roles = {a.name: a.role for a in problem.arrays}
        missing = [n for n in needed if n not in known and roles[n] != "output"]
        if missing:
            names, given = " and ".join(missing), ", ".join(f"{n}=..." for n in missing)
            raise RecordError(
                f"{file} does not hold the values of {names}, which decide where the sequence goes: give those it was explored with"
                f" by --inputs FILE.npz (numpy.savez('FILE.npz', {given}))"
            )
    return known


def drawn_notes(
    stored: StoredSequence, recording: Recording, problem: Problem, known: Mapping[str, Array]
) -> tuple[str, ...]:
    """Returns a sentence on arrays that decide control flow but were too large to be stored, so that they are drawn."""
    if isinstance(stored.kept, msgspec.UnsetType):
        return ()
    _, wanted = kept.needed_arrays(recording)
    roles = {a.name: a.role for a in problem.arrays}
    drawn = [n for n in wanted if n not in known and roles[n] != "output"]
    if not drawn:
        return ()
    return (
        f"the values of {' and '.join(drawn)}, which decide where the sequence goes, were too large to be kept: they are drawn at"
        " random, unless --inputs gives them",
    )


def write_kept(folder: Path, stored: StoredSequence, arrays: Mapping[str, Array]) -> None:
    """Writes the stored arrays that have files of their own."""
    for name, content in _kept(stored).items():
        if isinstance(content, kept.SeparateArray) and not (folder / content.file).exists():
            write_atomically(folder / content.file, arrays[name].tobytes())


def copy_kept(stored: StoredSequence, source: Path, folder: Path) -> None:
    """Copies the files of stored arrays from `source` to `folder`. Missing ones are skipped."""
    recording = stored.recorded()
    shapes = {p.name: p for p in recording.arrays}
    for name, content in _kept(stored).items():
        if isinstance(content, kept.SeparateArray) and not (folder / content.file).exists():
            array = _read(content, shapes[name], source)
            if array is not None:
                write_atomically(folder / content.file, array.tobytes())


def read_inputs(
    path: Path, recording: Recording, parameters: Sequence[StoredParameter]
) -> dict[str, Array]:
    """Returns the arrays of an .npz file by name. Raises RecordError if one is no argument of the sequence."""
    structure = kept.structure_of(recording)
    wanted = {p.name: p for p in recording.arrays if p.name not in structure}
    asked = {p.name: p for p in parameters}
    found: dict[str, Array] = {}
    try:
        with (
            opened_regular(path, follow=True) as fd,
            os.fdopen(fd, "rb", closefd=False) as file,
            zipfile.ZipFile(file) as archive,
        ):
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name not in wanted or name in found:
                    raise RecordError(
                        f"{path} gives {name!r:.60}, and the sequence takes {', '.join(wanted)}, each once"
                    )
                found[name] = _member(archive, member, wanted[name], asked[name])
    except OSError as e:
        raise RecordError(f"{path} cannot be read: {e.strerror or e}") from e
    except ArchiveError as e:
        raise RecordError(f"{path} does not fit the sequence: {e}") from e
    except _UNREADABLE as e:
        raise RecordError(f"{path} is no .npz file of arrays: {e}") from e
    return found


def _kept(stored: StoredSequence) -> Mapping[str, str | kept.SeparateArray]:
    return {} if isinstance(stored.kept, msgspec.UnsetType) else stored.kept


def _read(content: str | kept.SeparateArray, param: ArrayParam, file: Path) -> Array | None:
    """Returns a stored array; None if its file is missing.

    Raises RecordError if its content does not match its key.
    """
    try:
        if isinstance(content, str):
            return kept.unpacked(content, param)
        place = file.parent / content.file
        raw = read_regular(place, kept.n_bytes_of(param))
        if kept.content_key(raw) != content.key:
            raise RecordError(f"{place} is not what {file.name} names")
        return kept.shaped(np.frombuffer(raw, f"u{param.dtype.size_bytes}"), param)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise RecordError(f"{place} cannot be read: {e.strerror or e}") from e
    except ArchiveError as e:
        raise RecordError(f"{file} was changed by hand: {e}") from e


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, param: ArrayParam, asked: StoredParameter
) -> Array:
    """Returns one array of an .npz file; unpacks at most the bytes of the parameter."""
    n_bytes = kept.n_bytes_of(param)
    dtype, shape = param.dtype.numpy, param.shape
    if asked.is_truth:
        dtype = np.dtype(np.bool_)
    if asked.is_complex:
        dtype, shape = np.result_type(dtype, np.complex64), shape[:-1]
    if member.file_size > n_bytes + _HEADER_BYTES:
        raise ArchiveError(f"{param.name} is larger than {dtype}{list(shape)}")
    with archive.open(member) as content:
        version = np.lib.format.read_magic(content)
        if version != (1, 0):  # later ones may have headers of any length
            raise ArchiveError(f"{param.name} is written in the format {version}")
        form, is_fortran, is_of = np.lib.format.read_array_header_1_0(content)
        if (form, is_of) != (shape, dtype):
            raise ArchiveError(f"{param.name} is {is_of}{list(form)}, not {dtype}{list(shape)}")
        raw = content.read(n_bytes + 1)
    if len(raw) != n_bytes:
        raise ArchiveError(f"{param.name} is torn")
    array = np.frombuffer(raw, dtype).reshape(shape, order="F" if is_fortran else "C")
    flat = np.ascontiguousarray(array).reshape(-1).view(f"u{param.dtype.size_bytes}")
    return kept.shaped(flat, param)
