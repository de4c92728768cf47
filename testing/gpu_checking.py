"""Compares generated CUDA text with the interpreter on the emulator, and has NVRTC compile it.

Arrays lie between guards, outputs hold poison and the workspace garbage, as in calling.py; the emulator says which thread did what
it must not. Every candidate runs with its threads in forward, backward and random order.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..codegen.text.source import Source
from ..codegen.write.program_text import LoweredProgram
from ..runtime.api.artifact import Artifact
from ..runtime.api.backend import AbstractDevice
from ..runtime.api.outcome import Failure
from ..runtime.device import DeviceOptions, open_device
from ..runtime.library import load_library
from ..space.candidate import Candidate
from ..space.targets.target import Target
from .calling import InputSet, Judge, call_once, in_child

SHEETS = ("a100", "h200")  # data sheets of GPUs with architectures sm_80 and sm_90
_SECONDS = 240.0  # for a text of random decisions, beside other compilers
ORDERS = ("forward", "backward", "random")


def source_of(candidate: Candidate) -> Source:
    """The CUDA text of a complete candidate."""
    return printed(lower(plan_of(candidate)))


def printed(program: LoweredProgram) -> Source:
    """The CUDA text of a program, which a test may have changed."""
    return print_source(program, open_device("emulator").builder.dialect())


def target(cores: int = 0) -> Target:
    """The GPU to generate for.

    `cores`: its multiprocessors, 0: those of the data sheet. With few, blocks take tiles of small problems in turn.
    """
    found = open_device("emulator").machine.facts()
    return replace(found, cores=cores) if cores else found


def build(source: Source, folder: Path) -> Artifact | Failure:
    """Builds a text for the emulator; equal texts are built once."""
    options = DeviceOptions(build_folder=folder, compile_timeout_s=_SECONDS)
    return open_device("emulator", options).builder.build(source)


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
        return f"not built: {built.kind}: {built.advice} {built.log}"
    path = built.path
    return in_child(lambda: _run_all(path, source, inputs, judge), seconds)


def _run_all(path: str, source: Source, inputs: Sequence[InputSet], judge: Judge | None) -> str:
    emulated = Emulated(path, source)
    for call in range(max(len(inputs), 2 * len(ORDERS))):
        order = call % len(ORDERS)
        found = emulated.call(inputs[call % len(inputs)], judge, order, call)
        if found:
            return f"{found} (call {call}, threads in {ORDERS[order]} order)"
    return ""


class Emulated:
    """A text that is built for the emulator, in the process that calls it."""

    def __init__(self, path: str, source: Source) -> None:
        self.library, self.source = load_library(path), source
        self.library.emulator_error.restype = ctypes.c_char_p
        self.library.emulator_set_order.argtypes = [ctypes.c_int, ctypes.c_uint64]
        self.keep = self.library.emulator_keep
        self.keep.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        self.entry = getattr(self.library, source.entry)
        self.entry.restype = None

    def call(self, inputs: InputSet, judge: Judge | None, order: int, seed: int) -> str:
        """The fault of a call whose threads run in an order, by its place in ORDERS; "" for none."""
        self.library.emulator_set_order(order, seed)
        # Vector types are aligned, and so are arrays on a device.
        self.keep(None, 0, 0)
        found = call_once(self.entry, self.source, inputs, 0, judge, self.keep)
        error = self.library.emulator_error()
        return error.decode() if error is not None else found or ""


def compiler_says(source: Source, folder: Path, sheets: Sequence[str] = ()) -> str:
    """Returns the warnings and errors of NVRTC for a text. Texts take turns with architectures where none is given."""
    said = []
    for sheet in sheets or (SHEETS[zlib.crc32(source.text.encode()) % len(SHEETS)],):
        report = device_for(sheet, folder).reporter.report(source)
        if isinstance(report, Failure):
            said.append(f"{sheet}: {report.kind}: {report.advice} {report.log}")
        elif report.warnings:
            said.append(f"{sheet}: {report.warnings}")
    return "\n".join(said)


# Kept: its processes take as long to start as a small text to compile.
@lru_cache(maxsize=len(SHEETS))
def device_for(sheet: str, folder: Path) -> AbstractDevice:
    options = DeviceOptions(build_folder=folder, profile=sheet, compile_timeout_s=_SECONDS)
    return open_device("cuda", options)
