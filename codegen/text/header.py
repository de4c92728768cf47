"""C header of a source: the declaration of its function for C and C++, in plain types, and its requirements on callers."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.ir.kernel import DType
from ...kernels.ir.task import Problem
from .cprint import in_comment
from .facts import ALIGNMENT_BYTES
from .names import RESERVED_CUDA, c_names
from .source import Argument, Source
from .types import type_name

# Further names on the host side of GPU text (codegen/write/host_launcher.py), and the templates of the text.
_OF_LAUNCHES = frozenset(("stream", "error", "dim3", "lanes_of", "scalar_of", "mask_of"))
_ROLES = {
    "input": "read",
    "output": "written; what it held before does not matter",
    "inout": "updated",
}


def function_name(problem: Problem) -> str:
    """Returns the name of the function that the header defines: the sequence's name as an identifier."""
    return c_names([problem.name], RESERVED_CUDA | _OF_LAUNCHES)[problem.name]


def identifiers(problem: Problem) -> dict[str, str]:
    """Returns the C identifiers of the header function's arguments, by the names of arrays and scalars."""
    arguments = [a.name for a in problem.arrays if a.role != "temp"]
    arguments += [s.name for s in problem.scalars]
    return c_names(arguments, RESERVED_CUDA | _OF_LAUNCHES | {function_name(problem)})


def declared(
    source: Source, problem: Problem, parameters: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Returns (declaration, description) of each parameter of the function, with the workspace last."""
    named, roles = identifiers(problem), {a.name: a.role for a in problem.arrays}
    known = {a.name: a for a in source.arguments if a.kind != "workspace"}
    ordered = [known[name] for name in dict.fromkeys((*parameters, *known)) if name in known]
    listed = [_parameter(a, roles.get(a.name, ""), named) for a in ordered]
    if any(a.kind == "workspace" for a in source.arguments):
        size = f"{function_name(problem).upper()}_WORKSPACE_BYTES"
        listed.append(("void *workspace", f"{size}, of any contents, for this call alone"))
    return listed


def header_file(problem: Problem) -> str:
    """Returns the file name of the header."""
    return f"{function_name(problem)}.h"


def header_text(
    source: Source, problem: Problem, parameters: Sequence[str] = (), entry: str = ""
) -> str:
    """Returns the header of C text lowered from `problem`: a function with a parameter per array and scalar.

    `parameters` gives their order; the default is that of `source.arguments`. Names of neither are ignored. `entry` is the name of
    `source.entry` in the object file, if it was renamed there. Raises ValueError for GPU text, which has no entry: see
    codegen/write/host_launcher.py.
    """
    if source.launches:
        raise ValueError("code for a GPU has no function that C could call")
    entry = entry or source.entry
    function, named = function_name(problem), identifiers(problem)
    workspace = next((a for a in source.arguments if a.kind == "workspace"), None)
    size = 0 if workspace is None else workspace.shape[0]
    macro = function.upper()
    places = [_place(a, named) for a in source.arguments]
    return "\n".join(
        [
            *_comment(source, problem, function),
            f"#ifndef {macro}_H",
            f"#define {macro}_H",
            "",
            "#include <stdint.h>",
            "",
            f"#define {macro}_WORKSPACE_BYTES {size}",
            f"#define {macro}_ALIGNMENT {ALIGNMENT_BYTES}",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "/* What is linked: args[k] points to array k, or to the value of a scalar. */",
            f"void {entry}(void **args);",
            "",
            f"static inline void {function}(",
            *parameter_lines(declared(source, problem, parameters), ") {"),
            f"    void *args[] = {{{', '.join(places) or '0'}}};",
            f"    {entry}(args);",
            "}",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "",
            "#endif",
            "",
        ]
    )


def title_of(problem: Problem) -> str:
    """Returns the problem's name and formula as text that is safe in a C comment."""
    formula = f": {problem.formula}" if problem.formula else ""
    return in_comment(f"{problem.name}{formula}")


def _comment(source: Source, problem: Problem, function: str) -> list[str]:
    macro = function.upper()
    return [
        f"/* {title_of(problem)}",
        " *",
        " * Arrays are contiguous, the last axis innermost, and begin at a multiple of their element's size;",
        f" * {macro}_ALIGNMENT is fastest, and what the workspace must have. What is written overlaps nothing else.",
        " * Nothing is checked: index arrays must hold indices that are in range.",
        f" * Up to {source.n_threads} threads take part. Calls may run at the same time, each with a workspace",
        " * and written arrays of its own.",
        " */",
    ]


def _parameter(a: Argument, role: str, named: dict[str, str]) -> tuple[str, str]:
    """Returns the declaration of one parameter, and its description."""
    kind = type_name(DType(a.dtype), 0)
    if a.kind == "scalar":
        return f"{kind} {named[a.name]}", "by value"
    const = "const " if role == "input" else ""
    shape = " x ".join(map(str, a.shape)) or "one element"
    return f"{const}{kind} *{named[a.name]}", f"{shape}, {_ROLES[role]}"


def _place(a: Argument, named: dict[str, str]) -> str:
    if a.kind == "workspace":
        return "workspace"
    return f"&{named[a.name]}" if a.kind == "scalar" else f"(void *){named[a.name]}"


def parameter_lines(listed: Sequence[tuple[str, str]], end: str) -> list[str]:
    """Returns one line per parameter with its description as a comment. `end`: text behind the last one."""
    if not listed:
        return [f"    void{end}"]
    ends = [","] * (len(listed) - 1) + [end]
    width = max(len(text) + len(after) for (text, _), after in zip(listed, ends, strict=True))
    return [
        f"    {text + after:{width}} /* {words} */"
        for (text, words), after in zip(listed, ends, strict=True)
    ]
