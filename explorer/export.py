"""`explore export`: writes a tuned implementation as files that do not need this package."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..codegen.text.header import function_name, header_file, header_text
from ..codegen.text.source import Source
from ..codegen.write.host_launcher import launch_header_text, launched_text
from ..runtime.api.outcome import Failure
from ..runtime.cpu.compiler import FEWER_PASSES, LEVEL, run_compiler
from ..runtime.files import write_atomically
from ..runtime.records.folder import SOURCE
from ..runtime.records.replay import StaleError, dialect_of, rebuild
from ..runtime.scratch import Scratch
from .check_inputs import FILE, contents, inputs_of
from .results import Best, load
from .self_check import check_text

_BUILD_S = 120.0
_LINKED_TOO = ("-pthread",)  # what they begin with: for the linker as well


@dataclass(frozen=True)
class Exported:
    """The files that were written to `folder`. `function` is the name of the C function to call.

    `library` is the shared library, built for this CPU or for the GPU of the text. It is None if a GPU's `compiler` is not
    installed.
    """

    folder: Path
    function: str
    files: tuple[Path, ...]
    library: Path | None
    compiler: str


def export(path: str | Path, folder: Path, inputs: Path | None = None) -> Exported:
    """Writes the implementation of a run directory or best.json as source text, build files and a check program.

    These are kernel.c, a header, a program that checks it, CMakeLists.txt, and the shared library. For a GPU, kernel.cu with a
    function that launches its kernels, and the library if nvcc is installed. Arrays that the check cannot draw are in inputs.bin,
    from the .npz file `inputs` or as the run stored them. Raises as `replay`.
    """
    best = load(path)
    rebuilt = rebuild(best.file, best.device.machine.facts(), dialect_of(best.device))
    source, problem = rebuilt.source, rebuilt.problem
    known = best.known_arrays(rebuilt, inputs)
    given = inputs_of(best.file.stored, rebuilt.recording, known)
    read = contents(source, problem, given)
    function = function_name(problem)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{SOURCE}{source.suffix}"
    command = shlex.split(
        best.device.reporter.command_line(source, file, best.file.conditions.compiler)
    )
    names = [p.name for p in best.file.stored.parameters]
    if source.launches:
        text = launched_text(source, problem, names)
        header = launch_header_text(source, problem, names)
        cmake = cuda_cmake_text(function, source, command, best, bool(read))
    else:
        text, header = source.file_text, header_text(source, problem, names)
        cmake = cmake_text(function, source, command, best, bool(read))
    texts = {
        file: text,
        folder / header_file(problem): header,
        folder / "main.c": check_text(source, problem, rebuilt.recording, best.file.stored, given),
        folder / "CMakeLists.txt": cmake,
    }
    for place, content in texts.items():
        write_atomically(place, content.encode())
    files = [*texts]
    if read:
        files.append(folder / FILE)
        write_atomically(files[-1], read)
    if source.launches and not shutil.which(command[0]):
        return Exported(folder, function, tuple(files), None, command[0])
    library = folder / f"lib{function}.so"
    with Scratch("building-", folder) as scratch:  # a compiler writes to where a link leads
        made = scratch / library.name
        if source.launches:
            kept = [command[0], *_cuda_flags(command)]
            _build([*kept, "-shared", "-Xcompiler", "-fPIC", "-o", str(made), str(file)], file)
        else:
            _build([str(made) if x == str(file.with_suffix(".so")) else x for x in command], file)
        os.replace(made, library)
    return Exported(folder, function, (*files, library), library, command[0])


def _build(command: Sequence[str], file: Path) -> None:
    failure = run_compiler(list(command), _BUILD_S)
    if isinstance(failure, Failure):
        raise StaleError(f"{file} cannot be built: {failure.advice} {failure.log}".strip())


def cmake_text(
    function: str, source: Source, command: Sequence[str], best: Best, has_inputs: bool
) -> str:
    """Returns a CMakeLists.txt that builds the library with the flags of `command`, and the check program as a test."""
    target = _target(function)
    flags = _flags(command)
    linked = [x for x in flags if x.startswith(_LINKED_TOO)]
    libraries = [x.removeprefix("-l") for x in command if x.startswith("-l")]
    common = [x for x in flags if x not in (LEVEL, *FEWER_PASSES)]
    lines = [
        _origin(best),
        "# What -march=native means is that of the machine that builds: shapes and threads are constants of the text.",
        "cmake_minimum_required(VERSION 3.16)",
        f"project({function} C)",
        "if(NOT CMAKE_BUILD_TYPE)",
        "  set(CMAKE_BUILD_TYPE None) # all flags are below",
        "endif()",
        "enable_testing()",
        "",
        *_library(function, source),
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
    return "\n".join([*lines, *_check(function, has_inputs)])


def cuda_cmake_text(
    function: str, source: Source, command: Sequence[str], best: Best, has_inputs: bool
) -> str:
    """Returns a CMakeLists.txt for CUDA text: nvcc, the CUDA runtime, and the check program as a test."""
    target = _target(function)
    flags = _cuda_flags(command)
    architecture = next(x for x in flags if x.startswith("-arch=")).removeprefix("-arch=sm_")
    others = [x for x in flags if not x.startswith("-arch=")]
    lines = [
        _origin(best),
        "# Built for the GPU it was tuned for; later ones run it too, as their driver compiles it again.",
        "cmake_minimum_required(VERSION 3.18)",
        f"project({function} LANGUAGES C CUDA)",
        "find_package(CUDAToolkit REQUIRED)",
        "enable_testing()",
        "",
        *_library(function, source),
        f"set_target_properties({target} PROPERTIES CUDA_ARCHITECTURES {architecture} CUDA_RUNTIME_LIBRARY Shared)",
        f"target_link_libraries({target} PUBLIC CUDA::cudart)",
    ]
    if others:
        lines.append(f"target_compile_options({target} PRIVATE {_quoted(others)})")
    return "\n".join([*lines, *_check(function, has_inputs)])


def _target(function: str) -> str:
    return f"tuned_{function}"  # some names mean something else to CMake


def _origin(best: Best) -> str:
    """Returns a C comment on the origin of the implementation.

    Its texts come from a file that anybody may have written, so none of them begins a line.
    """
    compiler = best.file.conditions.compiler
    built_by = f": built by {compiler}" if compiler else ""
    return f"# {' '.join(f'{best.file.sequence}, {best.file.dtype}{built_by}'.split())}"


def _library(function: str, source: Source) -> list[str]:
    target = _target(function)
    return [
        f"add_library({target} SHARED {SOURCE}{source.suffix})",
        f"set_target_properties({target} PROPERTIES OUTPUT_NAME {function})",
        f"target_include_directories({target} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})",
    ]


def _check(function: str, has_inputs: bool) -> list[str]:
    return [
        "",
        "# Without contraction: it must draw the inputs that the reference was given.",
        f"add_executable(check_{function} main.c)",
        f"target_compile_options(check_{function} PRIVATE -O1 -ffp-contract=off)",
        *(
            [
                f'target_compile_definitions(check_{function} PRIVATE KS_INPUTS="${{CMAKE_CURRENT_SOURCE_DIR}}/{FILE}")'
            ]
            if has_inputs
            else []
        ),
        f"target_link_libraries(check_{function} PRIVATE {_target(function)} m)",
        f"add_test(NAME {function} COMMAND check_{function})",
        "",
    ]


def _flags(command: Sequence[str]) -> list[str]:
    """Returns the compiler flags of a command line, in order, without files, linked libraries, -shared and -fPIC."""
    skipped = {"-shared", "-fPIC", "-o"}
    return [
        x for x in command[1:] if x.startswith("-") and x not in skipped and not x.startswith("-l")
    ]


def _cuda_flags(command: Sequence[str]) -> list[str]:
    """Returns the flags of nvcc's command line, without those that make a cubin: here nvcc makes a library."""
    return [x for x in _flags(command) if x != "-cubin"]


def _quoted(flags: Sequence[str]) -> str:
    return " ".join(x if x.replace("-", "").replace("=", "").isalnum() else f'"{x}"' for x in flags)
