"""Stored form of a sequence: its kernels, its signature, and statistics of its arguments.

With it `best.json` is self-contained: a replay needs neither the user's program nor the user's data.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from ...kernels.fields.canonical_state import is_sound, without_inactive
from ...kernels.fields.dlpack import hands_out, shared_array
from ...kernels.frontend.complex_numbers import is_complex_array, pairs_of
from ...kernels.frontend.recorder import Recording
from ...kernels.frontend.truth_arrays import is_truth_array, with_bytes
from ...kernels.ir.kernel import DType
from ...kernels.tasks.archive import ArchiveError, from_values, to_values
from ..free_memory import total_bytes, within_free_memory
from ..worker.inputs import Arguments, Number, Range, draw, ranges_of
from .kept import Kept, check_kept, kept_of, packed, structure_of, unpacked
from .provenance import SourceFile, changes, source_files

_PARTS = (DType.f32, DType.f64)  # types of the parts of a complex number
_NOT_FINITE = ("inf", "-inf", "nan")  # numbers that JSON has no words for, as they are stored


class StoredParameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter of the sequence's function.

    `text`: displayed value of a constant. `unseen`: an array that is neither read nor written. `is_complex`: the last axis of the
    array has the parts of complex numbers. `is_truth`: a boolean array, recorded as bytes.
    """

    name: str
    kind: Literal["array", "scalar", "constant", "unseen"]
    text: str = ""
    is_complex: bool = False
    is_truth: bool = False


class StoredSequence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recorded sequence with the parameters and argument statistics of its call.

    `ranges` are the least and largest value of each array: integers for integer arrays, except in older files. `kept` are the
    stored arrays that decide the control flow (kept.py).
    """

    formula: str  # prose, which the header of the source shows
    recording: str  # JSON in JSON: one line of a file that people read
    parameters: tuple[StoredParameter, ...]
    ranges: dict[str, Range]
    scalars: dict[str, bool | int | float | str]
    files: tuple[SourceFile, ...] = ()  # of the user's program, which may have changed since
    states: dict[
        str, str
    ] = {}  # of trees: what their arrays held, packed; which cells are active cannot be drawn
    kept: dict[str, Kept] | msgspec.UnsetType = msgspec.UNSET  # not in older files

    def recorded(self) -> Recording:
        """Returns the recording. Raises ArchiveError, a sentence, for content that this class did not write."""
        try:
            values = json.loads(self.recording)
        except (ValueError, RecursionError) as e:
            raise ArchiveError(f"its kernels are no JSON: {e}") from e
        recording = from_values(values)
        arrays = [p.name for p in self.parameters if p.kind == "array"]
        scalars = [p.name for p in self.parameters if p.kind == "scalar"]
        if sorted(arrays) != sorted(p.name for p in recording.arrays) or set(arrays) - set(
            self.ranges
        ):
            raise ArchiveError("its parameters are not the arrays of its kernels")
        if sorted(scalars) != sorted(p.name for p in recording.scalars) or set(scalars) - set(
            self.scalars
        ):
            raise ArchiveError("its parameters are not the scalars of its kernels")
        unseen = [p.name for p in self.parameters if p.kind == "unseen"]
        if sorted(unseen) != sorted(recording.unseen):
            raise ArchiveError("its unseen parameters are not the unseen arrays of its kernels")
        shapes = {a.name: a.shape if a.dtype in _PARTS else () for a in recording.arrays}
        if any(p.is_complex and shapes.get(p.name, ())[-1:] != (2,) for p in self.parameters):
            raise ArchiveError("an array of complex numbers has no two parts for each")
        of_bytes = {a.name for a in recording.arrays if a.dtype is DType.u8}
        if any(p.is_truth and p.name not in of_bytes for p in self.parameters):
            raise ArchiveError("an array of truth values has no bytes")
        self._check_values(recording)
        check_sizes(recording)
        self._check_states(recording)
        check_kept(self.kept or {}, recording)
        return recording

    def _check_states(self, recording: Recording) -> None:
        structure = structure_of(recording)
        if set(self.states) != set(structure):
            raise ArchiveError("it does not say which cells of its sparse fields are active")
        shapes = {p.name: p for p in recording.arrays}
        found = {name: unpacked(text, shapes[name]) for name, text in self.states.items()}
        for used in recording.trees:
            here = {key: found[name] for key, name in used.sections if name in found}
            if not is_sound(used.layout, here):
                raise ArchiveError(f"the cells of {used.tree.name} lie outside of its arrays")

    def _check_values(self, recording: Recording) -> None:
        for p in self.parameters:
            if not p.name.isidentifier():
                raise ArchiveError(f"{p.name!r:.60} is no name of a parameter")
        for array in recording.arrays:
            if not _is_range(self.ranges[array.name], array.dtype):
                raise ArchiveError(f"the values of {array.name} lie in no range")
        for scalar in recording.scalars:
            value = self.scalars[scalar.name]
            if not _is_number(value, scalar.dtype):
                raise ArchiveError(f"the scalar {scalar.name} is {value!r:.40}")

    @property
    def numbers(self) -> dict[str, Number]:
        """Scalars by name, infinities and NaN included."""
        return {n: float(x) if isinstance(x, str) else x for n, x in self.scalars.items()}

    def changes(self) -> tuple[str, ...]:
        """Returns a sentence for each file of the user's program that has changed since the recording."""
        return changes(self.files)

    def draw(
        self, recording: Recording, rng: np.random.Generator, known: Mapping[str, Any]
    ) -> Arguments:
        """Returns random arguments in the stored ranges; arrays in `known` are not drawn (known_inputs.py).

        Raises MemoryError.
        """
        with within_free_memory():
            drawn = draw(recording, self.ranges, self.numbers, rng)
            arrays = without_inactive(recording.trees, {**drawn.arrays, **known})
            return Arguments(arrays, drawn.scalars)


def check_sizes(recording: Recording) -> None:
    """Raises MemoryError if the arrays of a sequence are larger than this machine's memory."""
    n_bytes = sum(
        math.prod(a.shape) * a.dtype.size_bytes for a in (*recording.arrays, *recording.temps)
    )
    if n_bytes > (most := total_bytes()):
        raise MemoryError(
            f"the arrays of {recording.name} take {n_bytes:.3g} bytes, and this machine has {most:.3g}"
        )


def _is_range(ends: Range, dtype: DType) -> bool:
    """True if `ends` are a valid least and largest value of dtype `dtype`."""
    low, high = ends
    least, most = _limits(dtype)
    if isinstance(low, float) or isinstance(high, float):  # as all were once, rounded
        least, most = float(least), float(most)
    return least <= low <= high <= most  # nor for a NaN


def _is_number(value: bool | int | float | str, dtype: DType) -> bool:
    """True if `value` is a valid stored number of dtype `dtype`."""
    if isinstance(value, str):
        return dtype.is_float and value in _NOT_FINITE
    if dtype is DType.bool_ or type(value) is bool:
        return dtype is DType.bool_ and type(value) is bool
    least, most = _limits(dtype)
    return (type(value) is int or dtype.is_float) and least <= value <= most


def _limits(dtype: DType) -> tuple[float, float]:
    """Returns the least and the largest finite value of a dtype."""
    if dtype.is_float:
        most = float(np.finfo(dtype.value).max)
        return -most, most
    return (0, 1) if dtype is DType.bool_ else dtype.range


def bind_arguments(
    fn: Callable[..., Any],
    args: Sequence[Any],
    recording: Recording,
    captured: Mapping[str, Any] | None = None,
) -> tuple[tuple[StoredParameter, ...], Arguments]:
    """Returns the parameters of the recorded function, and its arguments by their names in the recording.

    `captured` are arrays of fields, which become additional parameters after the function's own.
    """
    bound = inspect.signature(fn).bind(*args)
    bound.apply_defaults()
    arrays = {p.name for p in recording.arrays}
    scalars = {p.name for p in recording.scalars}
    parameters: list[StoredParameter] = []
    values: dict[str, Any] = dict(captured or {})
    for parameter in bound.signature.parameters.values():
        value = bound.arguments[parameter.name]
        named = [(parameter.name, value)]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            named = [(f"{parameter.name}{k}", x) for k, x in enumerate(value)]
        for name, given in named:
            x = values[name] = shared_array(given) if hands_out(given) else given
            if name in arrays:
                kinds = is_complex_array(x), is_truth_array(x)
                parameters.append(StoredParameter(name, "array", "", *kinds))
            elif name in scalars:
                parameters.append(StoredParameter(name, "scalar"))
            elif name in recording.unseen:
                parameters.append(StoredParameter(name, "unseen"))
            else:
                parameters.append(StoredParameter(name, "constant", text_of(x)))
    parameters += [
        StoredParameter(name, "unseen" if name in recording.unseen else "array")
        for name in captured or {}
    ]
    return tuple(parameters), Arguments(
        {p.name: _plain(values[p.name]) for p in recording.arrays},
        {p.name: p.dtype.numpy.type(values[p.name]).item() for p in recording.scalars},
    )


def _plain(x: Any) -> Any:
    """Returns an array in the form of its recorded parameter: complex as real pairs, booleans as bytes."""
    plain = with_bytes(np.ascontiguousarray(x))
    return pairs_of(plain) if is_complex_array(plain) else plain


def store_sequence(
    recording: Recording,
    formula: str,
    parameters: tuple[StoredParameter, ...],
    arguments: Arguments,
    roles: Mapping[str, str],
) -> StoredSequence:
    """Returns the stored form of a sequence.

    `formula`: displayed text. `roles`: "input", "output" or "inout" by name of the array.
    """
    return StoredSequence(
        formula,
        json.dumps(to_values(recording), separators=(",", ":")),
        parameters,
        ranges_of(arguments),
        {n: x if math.isfinite(x) else repr(x) for n, x in arguments.scalars.items()},
        source_files(recording),
        {name: packed(arguments.arrays[name]) for name in structure_of(recording)},
        kept_of(recording, roles, arguments.arrays),
    )


def text_of(x: Any) -> str:
    """Returns the text of a constant for storing and display."""
    return repr(x)[:200]
