"""Host launcher of GPU code: a C function that enqueues the kernels of a source on a CUDA stream, and its header."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.ir.task import Problem
from ..text.facts import ALIGNMENT_BYTES
from ..text.header import (
    declared,
    function_name,
    header_file,
    identifiers,
    parameter_lines,
    title_of,
)
from ..text.source import KernelLaunch, Source

_UNASKED_BYTES = (
    48 << 10
)  # of shared memory; more a launch has to ask for (CUDA C++ Programming Guide, "Shared Memory")
_STREAM = ("cudaStream_t stream", "what the launches are queued on; 0: the default stream")


def launch_header_text(source: Source, problem: Problem, parameters: Sequence[str] = ()) -> str:
    """Returns the header of the host launcher, for C and C++ with CUDA's runtime.

    `source`: GPU text that was lowered from `problem`. `parameters`: order of the arguments, as in
    `header_text`. Raises ValueError for text for a CPU.
    """
    function, macro = function_name(problem), function_name(problem).upper()
    size = next((a.shape[0] for a in source.arguments if a.kind == "workspace"), 0)
    return "\n".join(
        [
            f"/* {title_of(problem)}",
            " *",
            " * Arrays are in the memory of the GPU, contiguous, the last axis innermost, and they and the workspace begin at a",
            f" * multiple of {macro}_ALIGNMENT bytes, as all that cudaMalloc gives does. What is written overlaps nothing else.",
            " * Nothing is checked: index arrays must hold indices that are in range.",
            " * The first error of a launch is returned, else cudaSuccess, and the kernels may still run then: what goes wrong",
            " * in them shows in a later call of CUDA. Calls may run at the same time, in streams of their own, each with a",
            " * workspace and written arrays of its own.",
            " */",
            f"#ifndef {macro}_H",
            f"#define {macro}_H",
            "",
            "#include <cuda_runtime_api.h>",
            "#include <stdint.h>",
            "",
            f"#define {macro}_WORKSPACE_BYTES {size}",
            f"#define {macro}_ALIGNMENT {ALIGNMENT_BYTES}",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            f"cudaError_t {function}(",
            *_signature(source, problem, parameters, ");"),
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def launched_text(source: Source, problem: Problem, parameters: Sequence[str] = ()) -> str:
    """Returns the text of the kernels, followed by the host launcher that the header declares.

    NVRTC, which compiles device code only, skips the launcher. Raises ValueError for text for a
    CPU.
    """
    function = function_name(problem)
    lines = [
        source.text.rstrip("\n"),
        "",
        "#if !defined(__CUDACC_RTC__)",
        f'#include "{header_file(problem)}"',
        "",
        "/* Queues the kernels in order; a later one sees what an earlier one wrote. */",
        f'extern "C" cudaError_t {function}(',
        *_signature(source, problem, parameters, ") {"),
        "    cudaError_t error;",
    ]
    for launch in source.launches:
        lines += _launch(source, problem, launch)
    return "\n".join([*lines, "    return cudaSuccess;", "}", "#endif", ""])


def _signature(source: Source, problem: Problem, parameters: Sequence[str], end: str) -> list[str]:
    if not source.launches:
        raise ValueError("code for a CPU is launched by itself")
    return parameter_lines([*declared(source, problem, parameters), _STREAM], end)


def _launch(source: Source, problem: Problem, launch: KernelLaunch) -> list[str]:
    named = {"workspace": "workspace", **identifiers(problem)}
    chosen = [source.arguments[k] for k in launch.arguments]
    given = [named[a.name if a.kind != "workspace" else "workspace"] for a in chosen]
    steps = [f"step_{k}" for k in range(len(launch.steps))]
    places = ", ".join(f"&{name}" for name in (*given, *steps))
    grid, block = (", ".join(map(str, sizes)) for sizes in (launch.grid, launch.block))
    asked = f"{launch.kernel}, cudaFuncAttributeMaxDynamicSharedMemorySize, {launch.shared_bytes}"
    start = "cudaLaunchCooperativeKernel" if launch.stays else "cudaLaunchKernel"
    failed = "        if (error != cudaSuccess) return error;"
    return [
        "    {",
        *(f"        long {s} = {n};" for s, n in zip(steps, launch.steps, strict=True)),
        f"        void *args[] = {{{places or '0'}}};",
        *(
            [f"        error = cudaFuncSetAttribute({asked});", failed]
            if launch.shared_bytes > _UNASKED_BYTES
            else []
        ),
        f"        error = {start}({launch.kernel}, dim3({grid}), dim3({block}), args, {launch.shared_bytes}, stream);",
        failed,
        "    }",
    ]
