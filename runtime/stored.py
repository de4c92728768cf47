"""A sequence as a run keeps it: its kernels, how it is called, and what its arguments were like.

With it `best.json` stands alone: a replay needs neither the user's program nor the user's data.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from ..kernels.archive import ArchiveError, from_values, to_values
from ..kernels.sequence import Recording
from .inputs import Arguments, draw, ranges_of


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parameter of the sequence's function; `text` shows the value of a constant."""

    name: str
    kind: Literal["array", "scalar", "constant"]
    text: str = ""


class StoredSequence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recording with its call. `ranges` hold the least and largest value each array had."""

    formula: str  # prose, which the header of the source shows
    recording: str  # JSON in JSON: one line of a file that people read
    parameters: tuple[Parameter, ...]
    ranges: dict[str, tuple[float, float]]
    scalars: dict[str, bool | int | float]

    def recorded(self) -> Recording:
        """Raises ArchiveError, a sentence, for anything that was not stored by this class."""
        try:
            values = json.loads(self.recording)
        except ValueError as e:
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
        return recording

    def draw(self, recording: Recording, rng: np.random.Generator) -> Arguments:
        """Arguments like the ones the run was made with."""
        return draw(recording, self.ranges, self.scalars, rng)


def bind_arguments(
    fn: Callable[..., Any], args: Sequence[Any], recording: Recording
) -> tuple[tuple[Parameter, ...], Arguments]:
    """The parameters of the function that was recorded, and its arguments by the names in the
    recording.
    """
    bound = inspect.signature(fn).bind(*args)
    bound.apply_defaults()
    arrays = {p.name for p in recording.arrays}
    scalars = {p.name for p in recording.scalars}
    parameters: list[Parameter] = []
    values: dict[str, Any] = {}
    for parameter in bound.signature.parameters.values():
        value = bound.arguments[parameter.name]
        named = [(parameter.name, value)]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            named = [(f"{parameter.name}{k}", x) for k, x in enumerate(value)]
        for name, x in named:
            values[name] = x
            if name in arrays:
                parameters.append(Parameter(name, "array"))
            elif name in scalars:
                parameters.append(Parameter(name, "scalar"))
            else:
                parameters.append(Parameter(name, "constant", text_of(x)))
    return tuple(parameters), Arguments(
        {p.name: values[p.name] for p in recording.arrays},
        {p.name: p.dtype.numpy.type(values[p.name]).item() for p in recording.scalars},
    )


def store_sequence(
    recording: Recording,
    formula: str,
    parameters: tuple[Parameter, ...],
    arguments: Arguments,
) -> StoredSequence:
    """The sequence as it is kept."""
    return StoredSequence(
        formula,
        json.dumps(to_values(recording), separators=(",", ":")),
        parameters,
        ranges_of(arguments),
        dict(arguments.scalars),
    )


def text_of(x: Any) -> str:
    """A constant as it is stored and shown."""
    return repr(x)[:200]
