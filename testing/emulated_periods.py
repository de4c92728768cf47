"""Sequences on sparse fields over several periods, on the emulator and on the CPU: both leave what the reference leaves.

States are compared behind each period as programs see them, and their numbers are integers: they are exactly equal.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ..codegen.text.source import Source
from ..kernels.frontend.recorder import Recording
from ..kernels.sparse.naming import in_terms_of_trees
from ..runtime.api.outcome import Failure
from . import gpu_checking, sparse_periods
from .calling import Arrays, InputSet, Judge, in_child

_SECONDS = 60


def fault(recording: Recording, before: Arrays, source: Source, folder: Path) -> str:
    """The first fault of a CUDA text of a sequence, in each order of threads and blocks; "" for none."""
    wanted = sparse_periods.periods(recording, before)
    built = gpu_checking.build(source, folder)
    if isinstance(built, Failure):
        return f"not built: {built.log}"
    path = built.path

    def run() -> str:
        emulated = gpu_checking.Emulated(path, source)
        for order, name in enumerate(gpu_checking.ORDERS):
            call = partial(_call, emulated, order)
            said = sparse_periods.through_periods(call, recording, before, wanted)
            if said:
                return f"{said}, threads in {name} order"
        return ""

    return in_terms_of_trees(recording.trees, in_child(run, _SECONDS))


def _call(
    emulated: gpu_checking.Emulated, order: int, inputs: InputSet, judge: Judge, period: int
) -> str:
    return emulated.call(inputs, judge, order, period + 1)


def fault_of_both(
    recording: Recording, before: Arrays, source: Source, seed: int, folder: Path
) -> str:
    """The first fault of a CUDA text on the emulator, and of a random candidate on the CPU; "" for none."""
    said = fault(recording, before, source, folder)
    if said:
        return f"emulator: {said}"
    on_cpu = sparse_periods.drawn_sources(recording, 1, seed)
    said = sparse_periods.fault(recording, before, on_cpu, folder)
    return said and f"CPU: {said}"
