"""The C header of a source: how C and C++ call it, in plain types, and what it asks of its callers."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.tasks import Problem
from .cprint import in_comment
from .names import RESERVED_CUDA, c_names
from .program import dtype_named
from .source import Argument, Source
from .storage import ALIGNMENT_BYTES
from .vectors import type_name

_ROLES = {
    "input": "read",
    "output": "written; what it held before does not matter",
    "inout": "updated",
}


def function_name(problem: Problem) -> str:
    """The function that the header defines: the sequence's name as an identifier."""
    return _names(problem)[0]


def header_file(problem: Problem) -> str:
    """The name of the header's file."""
    return f"{function_name(problem)}.h"


def header_text(
    source: Source, problem: Problem, parameters: Sequence[str] = (), entry: str = ""
) -> str:
    """The header of C text that was lowered from `problem`: a function with an argument for each array and scalar.

    `parameters` gives their order (default: that of `source.arguments`; names of neither are passed over). `entry` is what
    `source.entry` is called in the object file, where that was renamed. Raises ValueError for GPU text, which has no entry.
    """
    if source.launches:
        raise ValueError("code for a GPU has no function that C could call")
    entry = entry or source.entry
    function, named = _names(problem)
    roles = {a.name: a.role for a in problem.arrays}
    known = {a.name: a for a in source.arguments if a.kind != "workspace"}
    ordered = [known[name] for name in dict.fromkeys((*parameters, *known)) if name in known]
    workspace = next((a for a in source.arguments if a.kind == "workspace"), None)
    size = 0 if workspace is None else workspace.shape[0]
    macro = function.upper()
    listed = [_parameter(a, roles.get(a.name, ""), named) for a in ordered]
    if workspace is not None:
        listed.append(
            ("void *workspace", f"{macro}_WORKSPACE_BYTES, of any contents, for this call alone")
        )
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
            *_lines(listed),
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


def _names(problem: Problem) -> tuple[str, dict[str, str]]:
    """The function's identifier, and those of its arguments."""
    arguments = [a.name for a in problem.arrays if a.role != "temp"]
    arguments += [s.name for s in problem.scalars]
    function = c_names([problem.name], RESERVED_CUDA)[problem.name]
    return function, c_names(arguments, RESERVED_CUDA | {function})


def _comment(source: Source, problem: Problem, function: str) -> list[str]:
    formula = f": {problem.formula}" if problem.formula else ""
    title = in_comment(f"{problem.name}{formula}")
    macro = function.upper()
    return [
        f"/* {title}",
        " *",
        " * Arrays are contiguous, the last axis innermost, and begin at a multiple of their element's size;",
        f" * {macro}_ALIGNMENT is fastest, and what the workspace must have. What is written overlaps nothing else.",
        " * Nothing is checked: index arrays must hold indices that are in range.",
        f" * Up to {source.n_threads} threads take part. Calls may run at the same time, each with a workspace",
        " * and written arrays of its own.",
        " */",
    ]


def _parameter(a: Argument, role: str, named: dict[str, str]) -> tuple[str, str]:
    """A parameter's declaration, and what it is."""
    kind = type_name(dtype_named(a.dtype), 0)
    if a.kind == "scalar":
        return f"{kind} {named[a.name]}", "by value"
    const = "const " if role == "input" else ""
    shape = " x ".join(map(str, a.shape)) or "one element"
    return f"{const}{kind} *{named[a.name]}", f"{shape}, {_ROLES[role]}"


def _place(a: Argument, named: dict[str, str]) -> str:
    if a.kind == "workspace":
        return "workspace"
    return f"&{named[a.name]}" if a.kind == "scalar" else f"(void *){named[a.name]}"


def _lines(listed: list[tuple[str, str]]) -> list[str]:
    """One line a parameter, with its comment."""
    if not listed:
        return ["    void) {"]
    ends = [","] * (len(listed) - 1) + [") {"]
    width = max(len(text) for text, _ in listed) + 3
    return [
        f"    {text + end:{width}} /* {words} */"
        for (text, words), end in zip(listed, ends, strict=True)
    ]
