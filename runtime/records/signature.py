"""Calling convention of a tuned sequence: arguments by position or name, optional outputs, and error messages.

Every message about arguments comes from here. Compiled code (cpu/call.c) accepts valid calls only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.fields.dlpack import hands_out, shared_array
from ...kernels.frontend.complex_numbers import complex_of, is_complex_array, pairs_of
from ...kernels.frontend.truth_arrays import is_truth_array, truths_of, with_bytes
from ...kernels.ir.kernel import DType, Param
from ...kernels.ir.task import Problem
from ..api.arguments import fitting_array
from ..cpu.guarded_arrays import empty
from .stored import StoredParameter, text_of

Array = NDArray[Any]


Result = Array | tuple[Array, ...] | None


class Signature:
    """The parameters of a tuned sequence, in the order of its function.

    Outputs, arrays that are written before they are read, may be left out: a call creates and returns them. Constants of the
    code and unseen arrays may be left out, too.
    """

    def __init__(self, parameters: Sequence[StoredParameter], problem: Problem) -> None:
        self.parameters = tuple(parameters)
        self.arrays = {a.name: a for a in problem.arrays if a.role != "temp"}
        self.scalars = {s.name: s for s in problem.scalars}
        roles = {a.name: a.role for a in problem.arrays}
        self._complex = {p.name for p in parameters if p.is_complex}
        self._truths = {p.name for p in parameters if p.is_truth}
        self._outputs = [p.name for p in parameters if roles.get(p.name) == "output"]

    def __str__(self) -> str:
        return ", ".join(p.name for p in self.parameters)

    def is_written(self, name: str) -> bool:
        """True if calls write the array called `name`."""
        return self.arrays[name].role != "input"

    def complete(
        self, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Result]:
        """Returns the value of each parameter, and the result of the call. Constants left out are missing.

        Raises TypeError, one sentence, for missing, unknown or repeated arguments.
        """
        given, out = self._bind(args, named)
        given = {n: shared_array(x) if hands_out(x) else x for n, x in given.items()}
        result = self._add_outputs(given, out)
        if any(p.name not in given for p in self.parameters if p.kind in ("array", "scalar")):
            n_given = len(args) + len(named)
            raise TypeError(
                f"{len(self.parameters)} arguments are needed ({self}), {n_given} given"
            )
        return {p.name: given[p.name] for p in self.parameters if p.name in given}, result

    def values(self, given: Mapping[str, Any]) -> list[Any]:
        """Returns the arrays and then the scalars of the code, converted from `given`.

        Raises TypeError, one sentence, for any that do not fit.
        """
        self._check_constants(given)
        arrays = {name: self._array(name, given[name]) for name in self.arrays}
        self._check_apart(arrays)
        plain = [np.ascontiguousarray(a) for a in arrays.values()]
        return [*plain, *(number(s, given[s.name]) for s in self.scalars.values())]

    def give_back(self, given: Mapping[str, Any], values: Sequence[Any]) -> None:
        """Copies results from contiguous copies, which `values` made of slices and transposes, to the given arrays."""
        for name, value in zip(self.arrays, values, strict=False):
            array = self._real(name, given[name])
            if self.is_written(name) and not array.flags.c_contiguous:
                array[...] = value

    def _real(self, name: str, value: Any) -> Any:
        """Returns a complex array as real numbers with one more axis, a boolean array as bytes, others unchanged."""
        if name in self._truths:
            return with_bytes(value)
        is_one = name in self._complex and is_complex_array(value)
        return pairs_of(value) if is_one else value

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Returns arguments by name, and the value of `out` (unless the sequence has a parameter of that name)."""
        names = [p.name for p in self.parameters]
        if len(args) > len(names):
            raise TypeError(f"{len(names)} arguments are needed ({self}), {len(args)} given")
        given = dict(zip(names, args, strict=False))
        out = None
        for name, value in named.items():
            if name in given:
                raise TypeError(f"argument {name} is given twice, by its place and by its name")
            if name in names:
                given[name] = value
            elif name == "out":
                out = value
            else:
                raise TypeError(f"there is no argument {name}; the arguments are {self}")
        return given, out

    def _add_outputs(self, given: dict[str, Any], out: Any) -> Result:
        """Adds outputs that are not given: those of `out`, else new arrays. Returns the result of the call."""
        left = [name for name in self._outputs if name not in given]
        if out is not None and not left:
            raise TypeError("out must be left out: no output is left that it could be")
        places = list(out) if isinstance(out, tuple | list) else [out]
        if out is None:
            places = [None] * len(left)
        if len(places) != len(left):
            names = ", ".join(left)
            raise TypeError(f"out must be {len(left)} arrays ({names}), not {len(places)}")
        for name, place in zip(left, places, strict=True):
            a = self.arrays[name]
            made = empty(a.shape, a.dtype.numpy) if place is None else place
            if place is None and name in self._complex:
                made = complex_of(made)
            if place is None and name in self._truths:
                made = truths_of(made)
            given[name] = made
        results = tuple(given[name] for name in left)
        if len(results) < 2:
            return results[0] if results else None
        return results

    def _check_constants(self, given: Mapping[str, Any]) -> None:
        for p in self.parameters:
            if p.kind == "constant" and p.name in given and text_of(given[p.name]) != p.text:
                raise TypeError(
                    f"argument {p.name} is a constant of the tuned code: it must be {p.text},"
                    f" not {text_of(given[p.name])}"
                )

    def _array(self, name: str, value: Any) -> Array:
        a = self.arrays[name]
        if name in self._complex and not is_complex_array(value):
            kind = type(value).__name__ if not isinstance(value, np.ndarray) else value.dtype
            raise TypeError(f"argument {name} must be a NumPy array of complex numbers, not {kind}")
        if name in self._truths and not is_truth_array(value):
            kind = type(value).__name__ if not isinstance(value, np.ndarray) else value.dtype
            raise TypeError(f"argument {name} must be a NumPy array of truth values, not {kind}")
        value = self._real(name, value)
        array = fitting_array(name, a.dtype.numpy, a.shape, value, takes_views=True)
        if self.is_written(name) and not array.flags.writeable:
            raise TypeError(f"argument {name} is written and must not be read-only")
        if self.is_written(name) and any(
            n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)
        ):
            raise TypeError(
                f"argument {name} is written, and its elements are one and the same along an axis: pass a copy"
            )
        return array

    def _check_apart(self, arrays: Mapping[str, Array]) -> None:
        """Raises TypeError if two arguments share memory and one of them is written."""
        names = list(arrays)
        for k, name in enumerate(names):
            for other in names[:k]:
                written = self.is_written(name) or self.is_written(other)
                if written and _meet(arrays[name], arrays[other]):
                    raise TypeError(
                        f"arguments {other} and {name} share memory: pass a copy of one of them"
                    )


def _meet(a: Array, b: Array) -> bool:
    """True if two arrays share an element, or if some microseconds do not suffice to decide it."""
    try:
        return bool(np.shares_memory(a, b, max_work=1000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def number(scalar: Param, value: Any) -> int | float:
    """Returns a scalar argument as a Python number. Raises TypeError if its type cannot hold it.

    For a truth value any number is valid.
    """
    name, dtype = scalar.name, scalar.dtype
    is_truth = isinstance(value, bool | np.bool_)
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, np.timedelta64
    )
    if dtype is DType.bool_ and (is_truth or is_number):
        return bool(value)
    if is_truth or not is_number:
        raise TypeError(f"argument {name} must be a number, not {type(value).__name__}")
    if dtype.is_integer:
        if not isinstance(value, int | np.integer):
            raise TypeError(f"argument {name} must be an integer, not {value!r}")
        limits = np.iinfo(dtype.value)
        if not limits.min <= int(value) <= limits.max:
            raise TypeError(f"argument {name} must fit {dtype.value}, and {value} does not")
        return int(value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    largest = float(np.finfo(dtype.value).max)
    is_infinite = isinstance(value, float | np.floating) and math.isinf(value)
    if abs(found) > largest and not is_infinite:
        raise TypeError(f"argument {name} must fit {dtype.value}, and {value} does not")
    return found
