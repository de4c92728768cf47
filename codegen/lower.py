"""A complete candidate to source text: launches in order, one static function each, and one entry that calls them."""

from __future__ import annotations

from dataclasses import dataclass

from ..kernels.ir import DType
from ..kernels.show_tasks import show_expr
from ..kernels.tasks import ArrayInfo, Problem
from ..space.backbone import written_arrays
from ..space.candidate import Candidate
from . import csyntax as c
from .cprint import Printer
from .dialect import Dialect
from .emit import LaunchWriter
from .names import c_names
from .nest import build_launch
from .plan import Plan, read_plan, tasks_of
from .source import Argument, Source
from .storage import ALIGNMENT_BYTES, Workspace
from .vectors import Prelude

ENTRY = "run_sequence"


@dataclass(frozen=True)
class Program:
    """What a complete candidate means: functions in the order in which they run, helpers, and the workspace they share."""

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
    names: dict[str, str]  # identifiers of arrays and scalars


def lower(candidate: Candidate) -> Program:
    """The program of a complete candidate. Equal candidates give equal programs; nothing is chosen here."""
    plan = read_plan(candidate)
    target = candidate.space.target
    prelude = Prelude()
    workspace = Workspace(target.cores)
    temporaries = []
    for array in plan.problem.arrays:
        if array.role == "temp" and _is_in_memory(plan, array):
            n = array.size_bytes // array.dtype.size_bytes
            buffer = workspace.allocate(array.name, array.dtype, n, is_private=False)
            temporaries.append((array, buffer.offset_bytes))
    names = c_names([a.name for a in plan.problem.arrays] + [s.name for s in plan.problem.scalars])
    functions, calls = [], []
    for k, roots in enumerate(plan.launches):
        launch = build_launch(plan, roots)
        writer = LaunchWriter(plan, launch, target, workspace, prelude, names)
        body = writer.write()
        name = f"launch_{k}"
        parameters = _parameters(plan.problem, body, names)
        comment = "; ".join(_sentence(plan, t) for t in launch.tasks)
        functions.append(c.Function(name, parameters, body, launch.is_parallel, comment))
        calls.append((name, tuple(p.name for p in parameters)))
    return Program(
        problem=plan.problem,
        functions=tuple(functions),
        calls=tuple(calls),
        temporaries=tuple(temporaries),
        workspace_bytes=workspace.size_bytes,
        prelude=prelude.text(),
        streams=prelude.streams,
        intrinsics=prelude.intrinsics,
        n_threads=target.cores,
        decisions=_decisions(plan),
        names=names,
    )


def print_source(program: Program, dialect: Dialect) -> Source:
    """The text of a program in a dialect."""
    p = Printer(dialect)
    problem = program.problem
    p.line(f"/* {problem.name}" + (f": {problem.formula}" if problem.formula else ""))
    for a in problem.arrays:
        if a.role != "temp":
            shape = " x ".join(map(str, a.shape)) or "scalar"
            p.line(f" *   {a.name}: {a.dtype.name}, {shape}, {a.role}")
    p.line(" *")
    for text in program.decisions:
        p.line(f" * {text}")
    p.line(" */")
    for header in dialect.headers:
        p.line(f"#include {header}")
    p.line("")
    optional = (
        dialect.intrinsics_prelude if program.intrinsics or program.streams else "",
        dialect.stream_prelude if program.streams else "",
    )
    for chunk in (*optional, program.prelude):
        for text in chunk.splitlines():
            p.line(text)
        if chunk:
            p.line("")
    for f in program.functions:
        p.function(f, program.n_threads)
        p.line("")
    _entry(p, program, dialect)
    arguments = _arguments(program)
    return Source("\n".join(p.lines) + "\n", ENTRY, arguments, program.n_threads)


def _entry(p: Printer, program: Program, dialect: Dialect) -> None:
    p.line(f"void {ENTRY}(void **args);")
    p.line(f"void {ENTRY}(void **args) {{")
    p.depth += 1
    used = {name for _, names in program.calls for name in names}
    if not used:
        p.line("(void)args;")
    for k, a in enumerate(_arguments(program)):
        if a.kind == "workspace":
            if used or program.temporaries:
                p.line(f"char *workspace = args[{k}];")
        elif program.names[a.name] in used:
            kind = dialect.scalar_types[_dtype(a.dtype).name]
            value = f"args[{k}]" if a.kind == "array" else f"*({kind} *)args[{k}]"
            p.line(f"{kind} {'*' if a.kind == 'array' else ''}{program.names[a.name]} = {value};")
    for array, offset in program.temporaries:
        if program.names[array.name] in used:
            kind = dialect.scalar_types[array.dtype.name]
            p.line(f"{kind} *{program.names[array.name]} = ({kind} *)(workspace + {offset});")
    for name, names in program.calls:
        p.line(f"{name}({', '.join(names)});")
    if program.streams:
        for text in dialect.stream_fence.splitlines():
            p.line(text)
    p.depth -= 1
    p.line("}")


def _arguments(program: Program) -> tuple[Argument, ...]:
    problem = program.problem
    arguments = [
        Argument(a.name, "array", a.dtype.value, a.shape)
        for a in problem.arrays
        if a.role != "temp"
    ]
    arguments += [Argument(s.name, "scalar", s.dtype.value, ()) for s in problem.scalars]
    if program.workspace_bytes:
        size = program.workspace_bytes + ALIGNMENT_BYTES
        arguments.append(Argument("workspace", "workspace", "uint8", (size,)))
    return tuple(arguments)


def _dtype(numpy_name: str) -> DType:
    return next(d for d in DType if d.value == numpy_name)


def _is_in_memory(plan: Plan, array: ArrayInfo) -> bool:
    """Whether a temporary is stored by some task, or filled by an opaque one."""
    return any(
        array.name in written_arrays(t.task) and (t.is_stored or t.task.opaque is not None)
        for t in plan.tasks
    )


def _parameters(
    problem: Problem, body: tuple[c.CStmt, ...], named: dict[str, str]
) -> tuple[c.Parameter, ...]:
    """What a launch names of the sequence's arrays, scalars and workspace; arrays that it does not write are const."""
    names, stored = _names(body)
    parameters = []
    for a in problem.arrays:
        name = named[a.name]
        if name in names:
            const = "" if name in stored else "const "
            parameters.append(c.Parameter(f"{const}{_C[a.dtype.name]} *restrict ", name))
    parameters += [
        c.Parameter(f"{_C[s.dtype.name]} ", named[s.name])
        for s in problem.scalars
        if named[s.name] in names
    ]
    if "workspace" in names:
        parameters.append(c.Parameter("char *restrict ", "workspace"))
    return tuple(parameters)


_C = {"f32": "float", "f64": "double", "i32": "int32_t", "i64": "int64_t"}


def _names(body: tuple[c.CStmt, ...]) -> tuple[set[str], set[str]]:
    """Identifiers that occur in a body, and those of arrays that are stored to."""
    seen: set[str] = set()
    stored: set[str] = set()

    def visit(x: object) -> None:
        match x:
            case tuple():
                for item in x:
                    visit(item)
            case c.Id(name):
                seen.add(name)
            case c.Assign(c.Index(c.Id(name), _)):
                stored.add(name)
            case c.Evaluate(c.Call(f, (c.Un("&", c.Index(c.Id(name), _)), *_))) if f != c.PREFETCH:
                stored.add(name)
        if isinstance(x, _NODES):
            for value in vars(x).values():
                visit(value)

    visit(body)
    return seen, stored


_NODES = (
    c.Bin, c.Un, c.Call, c.Index, c.CastTo, c.Literal, c.Cond,
    c.Declare, c.Assign, c.Evaluate, c.For, c.If, c.Scope,
)  # fmt: skip


def _sentence(plan: Plan, t: int) -> str:
    task = plan.tasks[t].task
    if task.opaque is not None or task.value is None:
        return task.name
    return f"{task.name}: {task.target.array} {'=' if task.op is None else task.op} {show_expr(task.value)}"


def _decisions(plan: Plan) -> tuple[str, ...]:
    """The decisions in words, for the header of the text."""
    lines = []
    for k, _ in enumerate(plan.launches):
        lines.append(
            f"launch {k}: " + ", ".join(plan.tasks[t].task.name for t in _launch_tasks(plan, k))
        )
    for t in plan.tasks:
        parts = []
        for p in t.loops:
            levels = ["parallel" if p.is_parallel else "loop"]
            if p.mid > 1:
                levels.append(f"{p.mid} steps")
            if p.inner > 1:
                levels.append(f"{'vector' if p.is_vector else 'unroll'} {p.inner}")
            parts.append(f"{p.loop.name} ({', '.join(levels)})")
        extras = [f"packs {o.access.array}" for o in t.copies]
        if t.prefetch_iterations:
            extras.append(f"prefetches {t.prefetch_iterations} iterations ahead")
        extras += [f"keeps {f.array}" for f in t.kept]
        extras += ["streams"] * t.is_streamed + ["stays on chip"] * (not t.is_stored)
        lines.append(f"{t.task.name}: " + "; ".join([", ".join(parts), *extras]))
    return tuple(lines)


def _launch_tasks(plan: Plan, k: int) -> list[int]:
    return [t for root in plan.launches[k] for t in tasks_of(root)]
