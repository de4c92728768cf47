"""Reference run of a recorded sequence: interprets its calls one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..frontend.recorder import Call, Recording
from ..ir.kernel import KernelIR
from ..ir.repeats import flag_of
from ..ir.walk import written_in
from .kernel import evaluate_scalar, run_kernel

Array = np.ndarray[Any, Any]
RunKernel = Callable[[KernelIR, Mapping[str, Array], Mapping[str, Any]], None]
"""Runs a kernel in place, as `interpret.run_kernel` does."""


def initial_arrays(
    recording: Recording,
    arrays: Mapping[str, Array],
) -> dict[str, Array]:
    """The initial arrays of a recording by name.

    They are copies of arrays that a call writes, zeros for temporaries, and the other arrays themselves.
    """
    written = {name for call in recording.calls for name in written_by(call)}
    found: dict[str, Array] = {}
    for p in recording.arrays:
        if p.name in written:
            found[p.name] = np.empty(p.shape, p.dtype.numpy)
            found[p.name][...] = arrays[p.name]
        else:
            found[p.name] = arrays[p.name]
    for p in recording.temps:
        found[p.name] = np.empty(p.shape, p.dtype.numpy)
        found[p.name][...] = 0
    return found


def run_calls(
    recording: Recording,
    found: Mapping[str, Array],
    scalars: Mapping[str, Any],
    run: RunKernel = run_kernel,
) -> None:
    """Runs all calls of a recording in place, on the arrays of `initial_arrays`."""
    numbers = {p.name: p.dtype.numpy.type(scalars[p.name]) for p in recording.scalars}
    for call in recording.calls_in_order(flag_of(found)):
        run(
            call.ir,
            {p.name: found[name] for p, name in zip(call.ir.arrays, call.arrays, strict=True)},
            {
                p.name: evaluate_scalar(x, numbers)
                for p, x in zip(call.ir.scalars, call.scalars, strict=True)
            },
        )


def written_by(call: Call) -> set[str]:
    """Names of the sequence's arrays that a call writes."""
    names = dict(zip((p.name for p in call.ir.arrays), call.arrays, strict=True))
    return {names[array] for array in written_in(call.ir.body)}
