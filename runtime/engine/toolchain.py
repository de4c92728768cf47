"""The engine's C compiler: searched once per machine, and stored with its properties."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from ...kernels.analysis.contraction import divides
from ...kernels.ir.kernel import KernelIR
from ..cpu.compiler import IN_TWO_PARTS, SOUND, Compiler, find_compiler
from ..files import NOTE_BYTES, read_own, write_own
from ..host import cpu_key

# Taichi's fast_math as LLVM has it, except that NaN and infinity are preserved. Integers wrap around.
_RECIPROCAL = "-freciprocal-math"
_FAST = ("-fno-signed-zeros", "-fassociative-math", _RECIPROCAL)
_FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-semantic-interposition",
    "-w",
)
_KEPT = "compiler.json"
_KEPT_FLAGS = ("-ffp-contract=", "-march=", "-mcpu=", "-mprefer-vector-width=")


def engine_compiler(folder: Path, wanted: str | None = None) -> Compiler:
    """Returns the compiler with the engine's flags. Raises DeviceError if none works.

    The search runs compilers several times. Its result is stored in `folder`, if that can be written, until the compiler or the
    CPU changes.
    """
    place, known = folder / _KEPT, _identity(wanted)
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(read_own(place, NOTE_BYTES))  # it names the program that is run
        if kept["identity"] == known:
            c = kept["compiler"]
            return Compiler(
                c["path"], c["version"], tuple(c["flags"]), c["native"], tuple(c["linked"])
            )
    found = find_compiler(wanted)
    kept_flags = tuple(f for f in found.flags if f.startswith(_KEPT_FLAGS) or f in SOUND)
    found = replace(found, flags=(*_FLAGS, *kept_flags))
    with suppress(OSError):  # it is found again then
        write_own(place, json.dumps({"identity": known, "compiler": asdict(found)}).encode())
    return found


def is_remembered(folder: Path) -> bool:
    """True if `folder` stores the result of an earlier compiler search."""
    return (folder / _KEPT).exists()


def flags_of(ir: KernelIR) -> tuple[str, ...]:
    """Returns the compiler flags of one kernel, which depend on its floating-point mode."""
    if not ir.fast_math:
        return ("-ffp-contract=off",)
    return tuple(f for f in _FAST if f != _RECIPROCAL or not divides(ir.body))


def _identity(wanted: str | None) -> list[str]:
    """Returns a key that changes when another program is installed in the place of a compiler."""
    parts = [cpu_key(), *_FLAGS, IN_TWO_PARTS]
    for name in (wanted,) if wanted else ("gcc", "clang", "cc"):
        path = shutil.which(name)
        if path is not None:
            real = Path(path).resolve()
            found = real.stat()
            parts.append(f"{path} {real} {found.st_size} {found.st_mtime_ns}")
    return parts
