"""Lowered programs, the last form of a plan before printing, and their text in a dialect of C.

A program consists of functions in order of execution, and an entry that calls them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...kernels.ir.arrays import ArrayInfo
from ...kernels.ir.kernel import DType
from ...kernels.ir.repeats import Repeat
from ...kernels.ir.task import Problem
from ..bodies.vectors import uses_math
from ..text import csyntax as c
from ..text.cprint import Printer, in_comment
from ..text.dialect import Dialect
from ..text.facts import ALIGNMENT_BYTES
from ..text.names import own_names
from ..text.source import ENTRY, Argument, KernelLaunch, Source
from ..text.types import type_name

_OTHER_INTEGERS = re.compile(r"\b(u?int(8|16)|uint(32|64))_t\b|\bU?INT(8|16)_M|\bUINT(32|64)_M")


@dataclass(frozen=True)
class LoweredProgram:
    """A lowered candidate: C functions in order of execution, their helpers, and the workspace that they share."""

    problem: Problem
    functions: tuple[c.Function, ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...]
    temporaries: tuple[tuple[ArrayInfo, int], ...]  # with their offsets in the workspace
    workspace_bytes: int
    prelude: str
    streams: bool
    intrinsics: bool
    n_threads: int
    decisions: tuple[str, ...]
    names: dict[str, str]  # identifiers of arrays, scalars and steps
    defined: tuple[str, ...] = ()  # names that C text of it defines for its file
    has_entry: bool = True  # a function that runs all others; kernels are launched from outside
    launches: tuple[KernelLaunch, ...] = ()  # of kernels
    index_type: str = "long"  # of loop variables
    may_fail: bool = False  # its statements may assert something
    repeats: tuple[Repeat, ...] = ()  # of calls, outer ones first

    @property
    def has_team(self) -> bool:
        """True if a team of threads runs some launch."""
        return any(f.is_parallel for f in self.functions)


@dataclass(frozen=True)
class Launches:
    """Lowered launches of a CPU plan: functions, calls in order, and the offsets of temporary arrays in the workspace."""

    functions: tuple[c.Function, ...]
    calls: tuple[tuple[str, tuple[str, ...]], ...]
    temporaries: tuple[tuple[ArrayInfo, int], ...] = ()
    workspace_bytes: int = 0


def arguments(program: LoweredProgram) -> tuple[Argument, ...]:
    """Returns the argument vector of a program's entry."""
    return arguments_of(program.problem, program.workspace_bytes)


def arguments_of(problem: Problem, workspace_bytes: int) -> tuple[Argument, ...]:
    """Returns the argument vector for a problem: the user's arrays, the scalars, and the workspace if its size is not 0."""
    found = [
        Argument(a.name, "array", a.dtype.value, a.shape)
        for a in problem.arrays
        if a.role != "temp"
    ]
    found += [Argument(s.name, "scalar", s.dtype.value, ()) for s in problem.scalars]
    if workspace_bytes:
        size = workspace_bytes + ALIGNMENT_BYTES
        found.append(Argument("workspace", "workspace", "uint8", (size,)))
    return tuple(found)


def print_source(program: LoweredProgram, dialect: Dialect) -> Source:
    """Returns the source text of a program in a dialect of C."""
    p = Printer(dialect, program.index_type)
    for line in title(program.problem, program.decisions):
        p.line(line)
    print_body(p, program, dialect, function_lines(program, dialect))
    if program.has_entry:
        _entry(p, program, dialect)
    return Source(
        "\n".join(p.lines) + "\n",
        ENTRY,
        arguments(program),
        program.n_threads,
        launches=program.launches,
        suffix=dialect.suffix,
        names=own_names(program.prelude, program.defined),
        team=dialect.team if program.has_team else "",
    )


def title(problem: Problem, said: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the comment on top of a text: the problem, its arrays, and the sentences `said`."""
    name = f"{problem.name}: {problem.formula}" if problem.formula else problem.name
    yield f"/* {in_comment(name)}"
    for a in problem.arrays:
        if a.role != "temp":
            shape = " x ".join(map(str, a.shape)) or "scalar"
            yield f" *   {a.name}: {a.dtype.name}, {shape}, {a.role}"
    yield " *"
    for text in said:
        yield f" * {in_comment(text)}"
    yield " */"


def function_lines(program: LoweredProgram, dialect: Dialect) -> list[str]:
    """Returns the lines of all functions of a program, without its entry."""
    p = Printer(dialect, program.index_type)
    for f in program.functions:
        p.function(f, program.n_threads)
        p.line("")
    return p.lines


def print_body(
    p: Printer, program: LoweredProgram, dialect: Dialect, functions: Sequence[str]
) -> None:
    """Prints everything between the title and the entry: headers, helpers, and `functions` (lines of text)."""
    above = len(p.lines)
    for header in dialect.headers:
        p.line(f"#include {header}")
    for text in dialect.prelude.splitlines():
        p.line(text)
    integers_at = len(p.lines)
    p.line("")
    intrinsics = dialect.intrinsics_prelude if program.intrinsics else ""
    team = dialect.team_prelude if program.has_team else ""
    for chunk in (team, intrinsics):
        for text in chunk.splitlines():
            p.line(text)
        if chunk:
            p.line("")
    closed_at = len(p.lines)
    for text in program.prelude.splitlines():
        p.line(text)
    if program.prelude:
        p.line("")
    p.lines += functions
    is_closed = any(f.is_closed for f in program.functions)
    if is_closed or (
        dialect.free_loop and dialect.free_loop in map(str.strip, p.lines[closed_at:])
    ):
        p.lines[closed_at:closed_at] = [*dialect.closed_prelude.splitlines(), ""]
    if any(map(_OTHER_INTEGERS.search, p.lines[integers_at:])):
        p.lines[integers_at:integers_at] = dialect.integers_prelude.splitlines()
    if dialect.math_header and uses_math("\n".join(p.lines[above:])):
        p.lines.insert(above, f"#include {dialect.math_header}")


def _entry(p: Printer, program: LoweredProgram, dialect: Dialect) -> None:
    p.line(f"void {ENTRY}(void **args);")
    p.line(f"void {ENTRY}(void **args) {{")
    p.depth += 1
    used = {name for _, names in program.calls for name in names}
    used |= {program.names[r.until] for r in program.repeats if r.until}
    if not used:
        p.line("(void)args;")
    for k, a in enumerate(arguments(program)):
        if a.kind == "workspace":
            if used or program.temporaries:
                p.line(f"char *workspace = args[{k}];")
        elif program.names[a.name] in used:
            kind = type_name(DType(a.dtype), 0)
            value = f"args[{k}]" if a.kind == "array" else f"*({kind} *)args[{k}]"
            p.line(f"{kind} {'*' if a.kind == 'array' else ''}{program.names[a.name]} = {value};")
    for array, offset in program.temporaries:
        if program.names[array.name] in used:
            kind = type_name(array.dtype, 0)
            p.line(f"{kind} *{program.names[array.name]} = ({kind} *)(workspace + {offset});")
    if program.may_fail:
        p.line("ks_stopped = 0;")
        p.line("ks_message[0] = 0;")
    _calls(p, program)
    if program.streams:
        for text in dialect.stream_fence.splitlines():
            p.line(text)
    p.depth -= 1
    p.line("}")


def _calls(p: Printer, program: LoweredProgram) -> None:
    """Prints the calls of all functions, inside loops for repeats."""
    opened: list[Repeat] = []
    for k, (name, names) in enumerate(program.calls):
        for r in (r for r in program.repeats if r.first == k):
            step = program.names[r.index]
            p.line(f"for (long {step} = 0; {step} < {r.count}; ++{step}) {{")
            p.depth += 1
            opened.append(r)
        p.line(f"{name}({', '.join(names)});")
        while opened and opened[-1].stop == k + 1:
            r = opened.pop()
            if r.until:
                p.line(f"if (*{program.names[r.until]}) break;")
            p.depth -= 1
            p.line("}")
