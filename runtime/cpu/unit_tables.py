"""Sequences in units: one library per component, and a table of their calls that a compiled loop runs (table.c)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.artifact import Artifact
from ..api.backend import AbstractArray, AbstractModule
from ..library import load_library
from .guarded_arrays import address_of
from .host_arguments import host_arguments

Array = NDArray[Any]


class _CallRow(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("component", ctypes.c_int64),
    )


class _Repeat(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("step", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("n_bytes", ctypes.c_int64),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("n_calls", ctypes.c_int64),
        ("n_repeats", ctypes.c_int64),
        ("calls", ctypes.c_void_p),
        ("repeats", ctypes.c_void_p),
        ("component_ns", ctypes.c_void_p),
        ("component_runs", ctypes.c_void_p),
    )


class UnitModule(AbstractModule):
    """A sequence in units, with the libraries of all units loaded."""

    def __init__(self, artifact: Artifact, harness: ctypes.CDLL) -> None:
        """Raises OSError if a library cannot be loaded, AttributeError if it lacks the unit's function."""
        assert artifact.table is not None
        self._artifact, self._table = artifact, artifact.table
        self.entry = harness.ks_run_table
        self._clock_ns = _clock_ns(harness)
        self._libraries = ExitStack()
        paths = dict.fromkeys(unit.path for unit in artifact.units)
        opened = {path: load_library(path) for path in paths}
        for library in opened.values():
            self._libraries.callback(library.close)
        self._addresses = [
            _address(getattr(opened[unit.path], unit.entry)) for unit in artifact.units
        ]
        n_components = 1 + max((call.component for call in self._table.calls), default=-1)
        self._measured = np.zeros(n_components, np.int64)
        self._n_runs = np.zeros(n_components, np.int64)

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    @property
    def component_ns(self) -> tuple[float, ...]:
        taken = self._measured - self._clock_ns * self._n_runs
        return tuple(map(float, np.maximum(taken, 1)))

    def run(self, values: Sequence[AbstractArray | Array | int | float | bool]) -> None:
        pointers, _kept = self.bind(values)
        self.entry(pointers)

    def bind(
        self, values: Sequence[AbstractArray | Array | int | float | bool]
    ) -> tuple[Any, list[Any]]:
        """Returns the argument vector (the table bound to arguments), and objects that must live as long as it."""
        table, arrays = self._table, host_arguments(self._artifact.arguments, values)
        addresses = [address_of(x) for x in arrays]
        steps = (ctypes.c_long * max(1, len(table.repeats)))()
        first_step, step_bytes = ctypes.addressof(steps), ctypes.sizeof(ctypes.c_long)
        calls, kept = (_CallRow * max(1, len(table.calls)))(), list[Any]((arrays, steps))
        for k, call in enumerate(table.calls):
            places = [
                first_step + step_bytes * s.offset
                if s.argument < 0
                else addresses[s.argument] + s.offset
                for s in call.slots
            ]
            slots = (ctypes.c_void_p * max(1, len(places)))(*places)
            kept.append(slots)
            calls[k] = _CallRow(self._addresses[call.unit], ctypes.addressof(slots), call.component)
        repeats = (_Repeat * max(1, len(table.repeats)))(
            *(
                _Repeat(
                    r.first,
                    r.stop,
                    r.count,
                    first_step + step_bytes * k,
                    0 if test is None else addresses[test.argument],
                    0 if test is None else test.n_bytes,
                )
                for k, (r, test) in enumerate(zip(table.repeats, table.tests, strict=True))
            )
        )
        bound = (_Table * 1)(
            _Table(
                len(table.calls),
                len(table.repeats),
                ctypes.addressof(calls),
                ctypes.addressof(repeats),
                self._measured.ctypes.data,
                self._n_runs.ctypes.data,
            )
        )
        return ctypes.cast(bound, ctypes.POINTER(ctypes.c_void_p)), [*kept, calls, repeats, bound]

    def close(self) -> None:
        self._libraries.close()


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _clock_ns(harness: ctypes.CDLL) -> int:
    cost = harness.ks_clock_cost
    cost.restype = ctypes.c_int64
    return int(cost())
