"""A complete candidate to source text: launches in order, a static function each and one for what its threads run, and an entry."""

from __future__ import annotations

from ..kernels.ir.kernel import DType
from ..space.engine.candidate import Candidate
from .c import csyntax as c
from .c.block import CMemory, Writer
from .c.cprint import Printer, functions_of, in_comment
from .c.dialect import Dialect
from .c.names import c_names
from .c.scene import Scene
from .c.source import Source
from .c.team import team_writer, written
from .c.usage import parameters, thread_parameters
from .c.vectors import CHelpers, Prelude, type_name, uses_math
from .lower_kernels import lower_kernels
from .passes.nests import nests
from .passes.pipeline import PASSES, Passes, run
from .passes.storage import Workspace
from .plan import read_plan
from .program import (
    Program,
    arguments,
    decisions,
    place_temporaries,
    sentence,
)

ENTRY = "run_sequence"


def lower(candidate: Candidate, passes: Passes | None = None) -> Program:
    """The program of a complete candidate. Equal candidates give equal programs; nothing is chosen here.

    `passes`: others than those of the target.
    """
    target = candidate.space.target
    passes = passes or PASSES[target.kind]
    if passes.are_of_grids:
        return lower_kernels(candidate, passes)
    plan = read_plan(candidate)
    prelude = Prelude(CHelpers())
    workspace = Workspace(target.cores, passes.apart_bytes)
    temporaries = place_temporaries(plan, workspace)
    names = c_names([a.name for a in plan.problem.arrays] + [s.name for s in plan.problem.scalars])
    functions, calls = [], []
    for k, roots in enumerate(plan.launches):
        launch = run(passes.loops, nests(plan, roots), plan)
        name = f"launch_{k}"
        w = Writer(prelude, names, CMemory(), knows_alignment=launch.is_parallel)
        writer = team_writer(Scene(plan, launch, target, workspace, w), name)
        body, after = written(writer)
        named = parameters(plan.problem, (*body, *after), names)
        functions.extend(writer.closed)
        comment = "; ".join(sentence(plan, t) for t in launch.tasks)
        own = thread_parameters(plan.problem, body, names) if launch.is_parallel else ()
        for make in passes.syntax:
            body = make(body, own if launch.is_parallel else named)
            after = make(after, named)
        functions.append(
            c.Function(
                name,
                named,
                body,
                launch.is_parallel,
                comment,
                after=after,
                thread_parameters=own,
                aligned=tuple(w.aligned),
                vector_bytes=max(w.aligned.values(), default=0),
            )
        )
        calls.append((name, tuple(p.name for p in named)))
    return Program(
        problem=plan.problem,
        functions=tuple(functions),
        calls=tuple(calls),
        temporaries=temporaries,
        workspace_bytes=workspace.size_bytes,
        prelude=prelude.text(),
        defined=(*prelude.defined, *(x for f in functions for x in functions_of(f)), ENTRY),
        streams=prelude.streams,
        intrinsics=prelude.intrinsics,
        may_fail=prelude.may_fail,
        n_threads=target.cores,
        decisions=decisions(plan),
        names=names,
    )


def print_source(program: Program, dialect: Dialect) -> Source:
    """The text of a program in a dialect."""
    p = Printer(dialect, program.index_type)
    problem = program.problem
    title = f"{problem.name}: {problem.formula}" if problem.formula else problem.name
    p.line(f"/* {in_comment(title)}")
    for a in problem.arrays:
        if a.role != "temp":
            shape = " x ".join(map(str, a.shape)) or "scalar"
            p.line(f" *   {a.name}: {a.dtype.name}, {shape}, {a.role}")
    p.line(" *")
    for text in program.decisions:
        p.line(f" * {in_comment(text)}")
    p.line(" */")
    above = len(p.lines)
    for header in dialect.headers:
        p.line(f"#include {header}")
    for text in dialect.prelude.splitlines():
        p.line(text)
    p.line("")
    intrinsics = dialect.intrinsics_prelude if program.intrinsics else ""
    closed = dialect.closed_prelude if any(f.is_closed for f in program.functions) else ""
    has_team = any(f.is_parallel for f in program.functions)
    team = dialect.team_prelude if has_team else ""
    for chunk in (team, intrinsics, closed, program.prelude):
        for text in chunk.splitlines():
            p.line(text)
        if chunk:
            p.line("")
    for f in program.functions:
        p.function(f, program.n_threads)
        p.line("")
    if program.has_entry:
        _entry(p, program, dialect)
    if dialect.math_header and uses_math("\n".join(p.lines[above:])):
        p.lines.insert(above, f"#include {dialect.math_header}")
    return Source(
        "\n".join(p.lines) + "\n",
        ENTRY,
        arguments(program),
        program.n_threads,
        launches=program.launches,
        suffix=dialect.suffix,
        names=program.defined,
        team=dialect.team if has_team else "",
    )


def _entry(p: Printer, program: Program, dialect: Dialect) -> None:
    p.line(f"void {ENTRY}(void **args);")
    p.line(f"void {ENTRY}(void **args) {{")
    p.depth += 1
    used = {name for _, names in program.calls for name in names}
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
    for name, names in program.calls:
        p.line(f"{name}({', '.join(names)});")
    if program.streams:
        for text in dialect.stream_fence.splitlines():
            p.line(text)
    p.depth -= 1
    p.line("}")
