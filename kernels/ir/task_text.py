"""Stable text of normalised problems: for people, for golden tests and for the key of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from .access import Access
from .affine import Affine, to_affine
from .body import Body
from .domain import Loop
from .kernel import (
    Accumulator,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    Load,
    Local,
    LoopIndex,
    Param,
    Select,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
)
from .task import Problem, Task
from .walk import expressions, loads, nested_statements

_INFIX = {
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("*", 5),
    "div": ("/", 5),
    "floordiv": ("//", 5),
    "mod": ("%", 5),
    "and": ("and", 1),
    "or": ("or", 0),
}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_REDUCE = {"add": "sum", "mul": "product", "min": "min", "max": "max"}
_UPDATE = {"add": "+=", "mul": "*=", "min": "min=", "max": "max="}

Names = Mapping[
    str, str
]  # array, loop, parameter or local -> what to print; others print as they are


def show_expr(e: Expr, names: Names | None = None) -> str:
    """One expression on one line; dtypes show in constants and casts only."""
    return _expr(e, names or {}, 0)


def _expr(e: Expr, names: Names, level: int) -> str:
    match e:
        case Const():
            return f"{e.value!r}:{e.dtype.name}" if not e.dtype.is_float else repr(float(e.value))
        case LoopIndex():
            return names.get("loop " + e.loop, e.loop)
        case Param():
            return names.get("param " + e.name, e.name)
        case Local():
            return names.get("local " + e.name, e.name)
        case Accumulator():
            return "acc"
        case Load():
            inside = ", ".join(_index(i, names) for i in e.indices)
            return f"{names.get('array ' + e.array, e.array)}[{inside}]"
        case Unary(op="neg"):
            return f"-{_expr(e.x, names, 6)}"
        case Unary():
            return f"{e.op}({_expr(e.x, names, 0)})"
        case Binary(op="min" | "max"):
            return f"{e.op}({_expr(e.a, names, 0)}, {_expr(e.b, names, 0)})"
        case Binary():
            sign, own = _INFIX[e.op]
            text = f"{_expr(e.a, names, own)} {sign} {_expr(e.b, names, own + 1)}"
            return f"({text})" if own < level else text
        case Compare():
            return f"({_expr(e.a, names, 4)} {_COMPARE[e.op]} {_expr(e.b, names, 4)})"
        case Select():
            parts = (_expr(x, names, 0) for x in (e.condition, e.a, e.b))
            return "select({}, {}, {})".format(*parts)
        case Cast():
            return f"{e.dtype.name}({_expr(e.x, names, 0)})"


def _index(e: Expr, names: Names) -> str:
    affine = to_affine(e)
    return _expr(e, names, 0) if affine is None else show_affine(affine, names)


def show_affine(affine: Affine, names: Names | None = None) -> str:
    """`2*i + j - 1`."""
    names = names or {}
    parts: list[str] = []
    named = [(names.get("loop " + name, name), c) for name, c in affine.terms]
    for name, c in sorted(named):
        term = name if abs(c) == 1 else f"{abs(c)}*{name}"
        parts.append(("-" if c < 0 else "+") + " " + term)
    if affine.const or not parts:
        parts.append(("-" if affine.const < 0 else "+") + f" {abs(affine.const)}")
    text = " ".join(parts)
    return text[2:] if text.startswith("+ ") else "-" + text[2:]


def show_access(access: Access, names: Names | None = None) -> str:
    """`a[i, j + 1]`; `?` for an index that is not affine."""
    names = names or {}
    axes = ("?" if x is None else show_affine(x, names) for x in access.axes)
    return f"{names.get('array ' + access.array, access.array)}[{', '.join(axes)}]"


def show_task(task: Task, names: Names | None = None) -> str:
    """Loops and assignment of one task, without its name; several lines where it has a body."""
    names = names or {}
    loops = " ".join(
        f"{names.get('loop ' + x.name, x.name)}<{x.extent}{' reduced' if x.is_reduction else ''}"
        for x in task.loops
    )
    head = f"for {loops}: " if loops else ""
    exact = "" if task.fast_math else " [order fixed]"
    if task.body is not None:
        # The word is part of the keys of problems, which name records of earlier versions.
        reads, writes = (
            ", ".join(dict.fromkeys(x)) for x in _touched(task.body, task.loops, names)
        )
        body = "\n".join("    " + line for line in _statements(task.body.statements, names))
        return f"{head}opaque{exact} reads {reads or '-'} writes {writes or '-'}\n{body}"
    assert task.value is not None
    target, value = show_access(task.target, names), show_expr(task.value, names)
    if task.op is None or task.finish is None:
        return f"{head}{target}:{task.dtype.name} = {value}{exact}"
    over = ", ".join(names.get("loop " + x.name, x.name) for x in task.loops if x.is_reduction)
    reduced = f"{_REDUCE[task.op]}({over}) {value}"
    if isinstance(task.finish, Accumulator):
        return f"{head}{target}:{task.dtype.name} = {reduced}{exact}"
    finish = show_expr(task.finish, names)
    return f"{head}{target}:{task.dtype.name} = {finish} with acc = {reduced}{exact}"


def _touched(body: Body, loops: tuple[Loop, ...], names: Names) -> tuple[list[str], list[str]]:
    """What the statements read and write by the task's own loops, as they are spelled: locals are not looked through."""
    own = {loop.name for loop in loops}
    reads: list[str] = []
    writes: list[str] = []

    def element(array: str, indices: tuple[Expr, ...]) -> str:
        axes = (to_affine(i) for i in indices)
        known = (a if a is not None and {n for n, _ in a.terms} <= own else None for a in axes)
        return show_access(Access(array, tuple(known)), names)

    for s in nested_statements(body.statements):
        reads += [element(x.array, x.indices) for e in expressions(s) for x in loads(e)]
        if isinstance(s, Store | Update):
            writes.append(element(s.array, s.indices))
        if isinstance(s, Update):
            reads.append(writes[-1])
    return reads, writes


def _statements(body: tuple[Stmt, ...], names: Names) -> list[str]:
    lines: list[str] = []
    for s in body:
        lines.extend(_statement(s, names))
    return lines


def _statement(s: Stmt, names: Names) -> list[str]:
    def nested(body: tuple[Stmt, ...]) -> list[str]:
        return ["  " + line for line in _statements(body, names)]

    match s:
        case For():
            loop = names.get("loop " + s.loop, s.loop)
            return [f"for {loop}<{show_expr(s.extent, names)}:", *nested(s.body)]
        case If():
            lines = [f"if {show_expr(s.condition, names)}:", *nested(s.then)]
            return [*lines, "else:", *nested(s.orelse)] if s.orelse else lines
        case SetLocal() | UpdateLocal():
            sign = "=" if isinstance(s, SetLocal) else _UPDATE[s.op]
            name = names.get("local " + s.name, s.name)
            return [f"{name}:{s.value.dtype.name} {sign} {show_expr(s.value, names)}"]
        case Store() | Update():
            sign = "=" if isinstance(s, Store) else _UPDATE[s.op]
            inside = ", ".join(_index(i, names) for i in s.indices)
            array = names.get("array " + s.array, s.array)
            return [f"{array}[{inside}] {sign} {show_expr(s.value, names)}"]


def show_tasks(problem: Problem) -> str:
    """The whole problem: arrays with roles, scalars, one line a task."""
    lines = [f"problem {problem.name}"]
    width = max((len(a.name) for a in problem.arrays), default=0)
    for a in problem.arrays:
        shape = ", ".join(str(n) for n in a.shape)
        lines.append(f"  array  {a.name:<{width}}  {a.dtype.name}[{shape}]  {a.role}")
    lines.extend(f"  scalar {p.name}  {p.dtype.name}" for p in problem.scalars)
    width = max((len(t.name) for t in problem.tasks), default=0)
    lines.extend(f"  task   {t.name:<{width}}  {show_task(t)}" for t in problem.tasks)
    return "\n".join(lines) + "\n"


def problem_key(problem: Problem) -> str:
    """A hash over everything that decides the computation: no names of files, tasks, loops, arrays
    or locals.
    """
    names = {"array " + a.name: f"a{k}" for k, a in enumerate(problem.arrays)}
    names |= {"param " + p.name: f"p{k}" for k, p in enumerate(problem.scalars)}
    lines = [f"{k} {a.dtype.name} {a.shape} {a.role}" for k, a in enumerate(problem.arrays)]
    lines += [f"{k} {p.dtype.name}" for k, p in enumerate(problem.scalars)]
    for task in problem.tasks:
        lines.append(show_task(task, {**names, **_inner_names(task)}))
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _inner_names(task: Task) -> dict[str, str]:
    names = {"loop " + x.name: f"l{k}" for k, x in enumerate(task.loops)}
    if task.body is not None:
        for s in nested_statements(task.body.statements):
            if isinstance(s, For):
                names.setdefault("loop " + s.loop, f"l{len(names)}")
            if isinstance(s, SetLocal | UpdateLocal):
                names.setdefault("local " + s.name, f"l{len(names)}")
    return names
