"""Compares generated CUDA text with the interpreter on the emulator, and has NVRTC compile it.

Arrays lie between guards, outputs hold poison and the workspace garbage, as in calling.py; the emulator says which thread did what
it must not. Every candidate runs with its threads in forward, backward and random order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ..codegen.c.source import Source
from ..codegen.c.text import Program
from ..codegen.lower import lower, print_source
from ..runtime.backend import AbstractDevice
from ..runtime.building.artifact import Artifact
from ..runtime.device import DeviceOptions, open_device
from ..runtime.worker.outcome import Failure
from ..space.candidate import Candidate
from ..space.targets.target import Target
from .calling import InputSet, Judge, call_once, in_child

SHEETS = ("a100", "h200")  # data sheets of GPUs with architectures sm_80 and sm_90
_SECONDS = 240.0  # for a text of random decisions, beside other compilers
_ORDERS = ("forward", "backward", "random")


def source_of(candidate: Candidate) -> Source:
    """The CUDA text of a complete candidate."""
    return printed(lower(candidate))


def printed(program: Program) -> Source:
    """The CUDA text of a program, which a test may have changed."""
    return print_source(program, open_device("emulator").builder.dialect())


def target() -> Target:
    """The GPU to generate for."""
    return open_device("emulator").machine.facts()


def build(source: Source, folder: Path) -> Artifact | Failure:
    """Builds a text for the emulator; equal texts are built once."""
    return open_device("emulator", DeviceOptions(build_folder=folder)).builder.build(source)


def check(
    source: Source,
    inputs: Sequence[InputSet],
    folder: Path,
    seconds: int = 60,
    judge: Judge | None = None,
) -> str:
    """Builds a text and runs it in a child: "" when all is right, else what is wrong, which `judge` says of the values if given."""
    built = build(source, folder)
    if isinstance(built, Failure):
        return f"not built: {built.log}"
    path = built.path
    return in_child(lambda: _run_all(path, source, inputs, judge), seconds)


def _run_all(path: str, source: Source, inputs: Sequence[InputSet], judge: Judge | None) -> str:
    library = ctypes.CDLL(path)
    library.emulator_error.restype = ctypes.c_char_p
    library.emulator_set_order.argtypes = [ctypes.c_int, ctypes.c_uint64]
    keep = library.emulator_keep
    keep.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    entry = getattr(library, source.entry)
    entry.restype = None
    for call in range(max(len(inputs), 2 * len(_ORDERS))):
        order = call % len(_ORDERS)
        library.emulator_set_order(order, call)
        # Vector types are aligned, and so are arrays on a device.
        keep(None, 0, 0)
        found = call_once(entry, source, inputs[call % len(inputs)], 0, judge, keep)
        error = library.emulator_error()
        found = error.decode() if error is not None else found
        if found:
            return f"{found} (call {call}, threads in {_ORDERS[order]} order)"
    return ""


def compiler_says(source: Source, folder: Path, sheets: Sequence[str] = SHEETS) -> str:
    """What NVRTC has to say to a text: warnings, errors, or nothing."""
    said = []
    for sheet in sheets:
        report = _device_for(sheet, folder).reporter.report(source)
        if isinstance(report, Failure):
            said.append(f"{sheet}: {report.kind}: {report.advice} {report.log}")
        elif report.warnings:
            said.append(f"{sheet}: {report.warnings}")
    return "\n".join(said)


# Kept: its processes take as long to start as a small text to compile.
@lru_cache(maxsize=len(SHEETS))
def _device_for(sheet: str, folder: Path) -> AbstractDevice:
    options = DeviceOptions(build_folder=folder, profile=sheet, compile_timeout_s=_SECONDS)
    return open_device("cuda", options)
