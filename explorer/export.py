"""`explore export`: a tuned implementation as files that need nothing of this package."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..codegen.header import function_name, header_file, header_text
from ..codegen.source import Source
from ..runtime.cpu.compiler import FEWER_PASSES, LEVEL, run_compiler
from ..runtime.folder import SOURCE
from ..runtime.outcome import Failure
from ..runtime.records import RecordError
from ..runtime.replay import StaleError, dialect_of, rebuild
from .saved import Best, load
from .self_check import check_text

_BUILD_S = 120.0
_LINKED_TOO = ("-pthread",)  # what they begin with: for the linker as well


@dataclass(frozen=True)
class Exported:
    """What was written to `folder`. `function` is what C calls, `library` the shared library, built for this CPU."""

    folder: Path
    function: str
    files: tuple[Path, ...]
    library: Path


def export(path: str | Path, folder: Path) -> Exported:
    """Write the implementation of a run directory or best.json: kernel.c, a header, a program that checks it, CMakeLists.txt, and
    the shared library.

    Raises as `replay`, and RecordError where it is for a GPU.
    """
    best = load(path)
    rebuilt = rebuild(best.file, best.device.facts(), dialect_of(best.device))
    source, problem = rebuilt.source, rebuilt.problem
    if source.launches:
        raise RecordError(
            f"{path} is for a GPU: its kernels need a host program of yours; `explore codegen` writes them"
        )
    function = function_name(problem)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{SOURCE}{source.suffix}"
    command = shlex.split(best.device.command_line(source, file, best.file.conditions.compiler))
    texts = {
        file: source.file_text,
        folder / header_file(problem): header_text(source, problem, _parameters(best)),
        folder / "main.c": check_text(source, problem, rebuilt.recording, best.file.stored),
        folder / "CMakeLists.txt": cmake_text(function, source, command, best),
    }
    for place, text in texts.items():
        place.write_text(text)
    library = _built(command, file, folder / f"lib{function}.so")
    return Exported(folder, function, (*texts, library), library)


def _parameters(best: Best) -> list[str]:
    return [p.name for p in best.file.stored.parameters]


def _built(command: Sequence[str], file: Path, library: Path) -> Path:
    """The shared library, by the command line that people are told as well."""
    failure = run_compiler(list(command), _BUILD_S)
    if isinstance(failure, Failure):
        raise StaleError(f"{file} cannot be built: {failure.advice} {failure.log}".strip())
    os.replace(file.with_suffix(".so"), library)
    return library


def cmake_text(function: str, source: Source, command: Sequence[str], best: Best) -> str:
    """Builds the library as it was built here, and the program that checks it, as a test."""
    target = f"tuned_{function}"  # some names mean something else to CMake
    flags = _flags(command)
    linked = [x for x in flags if x.startswith(_LINKED_TOO)]
    libraries = [x.removeprefix("-l") for x in command if x.startswith("-l")]
    common = [x for x in flags if x not in (LEVEL, *FEWER_PASSES)]
    # Texts of a file that may be anybody's, in a program: none of them begins a line.
    built_by = f"{best.file.sequence}, {best.file.dtype}: built by {best.file.conditions.compiler}"
    lines = [
        f"# {' '.join(built_by.split())}",
        "# What -march=native means is that of the machine that builds: shapes and threads are constants of the text.",
        "cmake_minimum_required(VERSION 3.16)",
        f"project({function} C)",
        "if(NOT CMAKE_BUILD_TYPE)",
        "  set(CMAKE_BUILD_TYPE None) # all flags are below",
        "endif()",
        "enable_testing()",
        "",
        f"add_library({target} SHARED {SOURCE}{source.suffix})",
        f"set_target_properties({target} PROPERTIES OUTPUT_NAME {function})",
        f"target_include_directories({target} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})",
    ]
    if set(flags) & set(FEWER_PASSES):
        lines += [
            'if(CMAKE_C_COMPILER_ID STREQUAL "GNU")',
            f"  target_compile_options({target} PRIVATE {_quoted(flags)})",
            "else()",
            f"  target_compile_options({target} PRIVATE {_quoted([LEVEL, *common])})",
            "endif()",
        ]
    else:
        lines.append(f"target_compile_options({target} PRIVATE {_quoted(flags)})")
    if linked:
        lines.append(f"target_link_options({target} PUBLIC {_quoted(linked)})")
    if libraries:
        lines.append(f"target_link_libraries({target} PUBLIC {' '.join(libraries)})")
    lines += [
        "",
        "# Without contraction: it must draw the inputs that the reference was given.",
        f"add_executable(check_{function} main.c)",
        f"target_compile_options(check_{function} PRIVATE -O1 -ffp-contract=off)",
        f"target_link_libraries(check_{function} PRIVATE {target} m)",
        f"add_test(NAME {function} COMMAND check_{function})",
        "",
    ]
    return "\n".join(lines)


def _flags(command: Sequence[str]) -> list[str]:
    """Those of a command line that are for the compiler, in order."""
    skipped = {"-shared", "-fPIC", "-o"}
    return [
        x for x in command[1:] if x.startswith("-") and x not in skipped and not x.startswith("-l")
    ]


def _quoted(flags: Sequence[str]) -> str:
    return " ".join(x if x.replace("-", "").replace("=", "").isalnum() else f'"{x}"' for x in flags)
