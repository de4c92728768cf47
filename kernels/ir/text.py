"""Printer of kernels and tasks: stable texts for people, for golden tests and for the keys of problems.

A kernel is printed in Python's syntax. A task is printed with types, affine indices in normal form, and names that the caller may
replace. The key of a problem is a hash of that text without names, so the text may never change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from . import kernel
from .access import Access
from .affine import Affine, to_affine
from .body import Body
from .domain import Loop
from .ops import COMPARISONS, OPS
from .task import Problem, Task
from .walk import children, loads, local_changed, nested_statements

_NOT, _NEGATED, _COMPARED, _SUM = 3, 11, 4, 9  # precedences
_BINDS = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(COMPARISONS, _COMPARED),
    "bit_or": 5,
    "bit_xor": 6,
    "bit_and": 7,
    "shl": 8,
    "shr": 8,
    "add": _SUM,
    "sub": _SUM,
    "mul": 10,
    "div": 10,
    "floordiv": 10,
    "mod": 10,
}

Names = Mapping[
    str, str
]  # array, loop, parameter or local -> what to print; others print as they are


def show(ir: kernel.KernelIR) -> str:
    """Returns a kernel as text: equal texts for kernels with the same statements, from whatever file."""
    arrays = [f"{p.name}: {p.dtype.name}[{', '.join(map(str, p.shape))}]" for p in ir.arrays]
    scalars = [f"{p.name}: {p.dtype.name}" for p in ir.scalars]
    head = f"kernel {ir.name}({', '.join(arrays + scalars)})" + (
        "" if ir.fast_math else " fast_math=False"
    )
    return "\n".join([head, *_Printer().lines(ir.body, 1)]) + "\n"


def show_expr(x: kernel.Expr) -> str:
    """Returns an expression as text, with the parentheses that it needs."""
    return _Printer().text(x, 0)


# Conversions of printf by what they are of.
_FLAGS = r"[-+ #0]*\d{0,3}(\.\d{0,3})?"
_OF_FLOATS, _OF_INTEGERS = (re.compile(_FLAGS + kinds) for kinds in ("[eEfFgGaA]", "[diouxX]"))


def default_format(dtype: kernel.DType) -> str:
    """Returns the default format of a type: a conversion of printf, without its %."""
    if not dtype.is_float:
        return "u" if dtype.is_integer and not dtype.is_signed else "d"
    return ".12f" if dtype is kernel.DType.f64 else "f"


def takes_format(dtype: kernel.DType, wanted: str) -> bool:
    """True if a conversion of printf, without its %, fits values of this type."""
    return bool((_OF_FLOATS if dtype.is_float else _OF_INTEGERS).fullmatch(wanted))


def show_value(x: kernel.Expr, names: Names | None = None) -> str:
    """Returns an expression of a task as one line of text. Only constants and casts show their dtypes."""
    return _Printer(names or {}).text(x, 0)


@dataclass(frozen=True)
class _Printer:
    """Printer of statements and expressions. `names`: those of a task, None for kernels.

    `declared`: locals that were already printed with a type.
    """

    names: Names | None = None
    declared: set[str] = field(default_factory=set)

    def name(self, kind: str, name: str) -> str:
        return name if self.names is None else self.names.get(f"{kind} {name}", name)

    # --- statements

    def lines(self, body: Iterable[kernel.Stmt], depth: int) -> Iterator[str]:
        pad = ("    " if self.names is None else "  ") * depth
        for s in body:
            match s:
                case kernel.For(loop=loop, extent=extent, body=inner):
                    between = " in " if self.names is None else "<"
                    yield f"{pad}for {self.name('loop', loop)}{between}{self.text(extent, 0)}:"
                    yield from self.nested(inner, depth)
                case kernel.If(condition=condition, then=then, orelse=orelse):
                    yield f"{pad}if {self.text(condition, 0)}:"
                    yield from self.nested(then, depth)
                    if orelse:
                        yield f"{pad}else:"
                        yield from self.nested(orelse, depth)
                case kernel.While(condition=condition, body=inner):
                    yield f"{pad}while {self.text(condition, 0)}:"
                    yield from self.nested(inner, depth)
                case kernel.ForActive(loops=names, body=inner):
                    yield f"{pad}for {', '.join(names)} in active {s.tree}.{s.node}:"
                    yield from self.nested(inner, depth)
                case kernel.Activate() | kernel.Deactivate():
                    yield f"{pad}{type(s).__name__.lower()} {self.cell(s.tree, s.node, s.indices)}"
                case kernel.Append():
                    yield f"{pad}{s.result}: i32 = append {self.cell(s.tree, s.node, s.indices)}"
                case kernel.Print():
                    yield f"{pad}print({', '.join(self.shown(s))})"
                case kernel.Assert(condition=condition):
                    said = ", ".join([repr(s.message), *self.shown(s)])
                    yield f"{pad}assert {self.text(condition, 0)}, {said}"
                case kernel.SetLocal() | kernel.UpdateLocal():
                    place = self.local(s.name, s.value.dtype, isinstance(s, kernel.SetLocal))
                    yield f"{pad}{place} {_assignment(s)} {self.text(s.value, 0)}"
                case kernel.LocalArray(name=name, extent=extent, value=value):
                    place = self.local(f"{name}[{extent}]", value.dtype, True)
                    if self.names is not None:
                        place = f"{self.name('local', name)}[{extent}]:{value.dtype.name}"
                    yield f"{pad}{place} = {self.text(value, 0)}"
                case kernel.SetElement(name=name, index=index, value=value):
                    yield f"{pad}{self.name('local', name)}[{self.index(index)}] = {self.text(value, 0)}"
                case kernel.Update() if s.result:
                    place = self.element(s.array, s.indices)
                    old = self.local(s.result, s.value.dtype, True)
                    yield f"{pad}{old} = atomic_{s.op}({place}, {self.text(s.value, 0)})"
                case kernel.Store() | kernel.Update():
                    place = self.element(s.array, s.indices)
                    yield f"{pad}{place} {_assignment(s)} {self.text(s.value, 0)}"

    def local(self, name: str, dtype: kernel.DType, is_set: bool) -> str:
        if self.names is not None:
            return f"{self.name('local', name)}:{dtype.name}"
        if not is_set or name in self.declared:
            return name
        self.declared.add(name)
        return f"{name}: {dtype.name.rstrip('_')}"

    def part(self, x: kernel.Part) -> str:
        return repr(x) if isinstance(x, str) else self.text(x, 0)

    def shown(self, s: kernel.Print | kernel.Assert) -> list[str]:
        """Returns the texts and values that a Print or Assert prints, and their formats if it has any."""
        return [self.part(x) for x in s.parts] + [f"formats={s.formats}"] * bool(s.formats)

    def nested(self, body: tuple[kernel.Stmt, ...], depth: int) -> Iterator[str]:
        if not body and self.names is None:
            yield "    " * (depth + 1) + "pass"
        yield from self.lines(body, depth + 1)

    # --- expressions

    def element(self, array: str, indices: tuple[kernel.Expr, ...]) -> str:
        return f"{self.name('array', array)}[{', '.join(map(self.index, indices))}]"

    def cell(self, tree: str, node: int, indices: tuple[kernel.Expr, ...]) -> str:
        return f"{tree}.{node}[{', '.join(self.text(i, 0) for i in indices)}]"

    def index(self, x: kernel.Expr) -> str:
        affine = None if self.names is None else to_affine(x)
        return self.text(x, 0) if affine is None else show_affine(affine, self.names)

    def text(self, x: kernel.Expr, around: int) -> str:
        """Returns an expression as text. `around` is the precedence of the surrounding operator."""
        typed = self.names is not None
        match x:
            case kernel.Const():
                return _constant(x, typed, around)
            case kernel.LoopIndex(loop=name):
                return self.name("loop", name)
            case kernel.Param(name=name):
                return self.name("param", name)
            case kernel.Local(name=name):
                return self.name("local", name)
            case kernel.LocalElement(name=name, index=index):
                return f"{self.name('local', name)}[{self.index(index)}]"
            case kernel.Load(array=array, indices=indices):
                return self.element(array, indices)
            case kernel.Accumulator():
                return "acc"
            case kernel.IsActive():
                return f"is_active({self.cell(x.tree, x.node, x.indices)})"
            case kernel.Item():
                return f"item({self.cell(x.tree, x.node, x.indices)})"
            case kernel.Length():
                return f"length({self.cell(x.tree, x.node, x.indices)})"
            case kernel.Cast(x=y, dtype=dtype):
                return f"{dtype.name if typed else dtype.name.rstrip('_')}({self.text(y, 0)})"
            case kernel.Bitcast(x=y, dtype=dtype):
                return f"bit_cast({self.text(y, 0)}, {dtype.name})"
            case kernel.Select(condition=c, a=a, b=b):
                if typed:
                    return f"select({self.text(c, 0)}, {self.text(a, 0)}, {self.text(b, 0)})"
                return f"({self.text(a, 1)} if {self.text(c, 1)} else {self.text(b, 1)})"
            case kernel.Unary(op="neg", x=y):
                return f"-{self.text(y, _NEGATED)}"
            case kernel.Unary(op="bit_not", x=y):
                return f"~{self.text(y, _NEGATED)}"
            case kernel.Unary(op="not", x=y) if not typed:
                return _wrapped(f"not {self.text(y, _NOT)}", around > _NOT)
            case kernel.Unary(op=op, x=y):
                return f"{op}({self.text(y, 0)})"
            case kernel.Binary(op=op, a=a, b=b) if not OPS[op].sign:
                return f"{op}({self.text(a, 0)}, {self.text(b, 0)})"
            case kernel.Binary(op="add", a=a, b=kernel.Const(value=value)) if (
                not typed and value < 0 and not isinstance(value, bool)
            ):
                return _wrapped(f"{self.text(a, _SUM)} - {-value!r}", around > _SUM)
            case kernel.Binary(op=op, a=a, b=b) | kernel.Compare(op=op, a=a, b=b):
                binds, compares = _BINDS[op], isinstance(x, kernel.Compare)
                left, right = self.text(a, binds + compares), self.text(b, binds + 1)
                whole = f"{left} {OPS[op].sign} {right}"
                return _wrapped(whole, binds < around or (typed and compares))
        raise TypeError(f"{x!r} is no expression")


def _constant(x: kernel.Const, typed: bool, around: int) -> str:
    if typed:
        return f"{x.value!r}:{x.dtype.name}" if not x.dtype.is_float else repr(float(x.value))
    is_negative = not isinstance(x.value, bool) and x.value < 0
    return _wrapped(repr(x.value), is_negative and around > _SUM)


def _assignment(s: kernel.SetLocal | kernel.UpdateLocal | kernel.Store | kernel.Update) -> str:
    if isinstance(s, kernel.SetLocal | kernel.Store):
        return "="
    return f"{OPS[s.op].sign or s.op}="


def _wrapped(text: str, needed: bool) -> str:
    return f"({text})" if needed else text


# --- tasks ----------------------------------------------------------------------------------------


def show_affine(affine: Affine, names: Names | None = None) -> str:
    """Returns an affine expression as text: `2*i + j - 1`."""
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
    """Returns an access as text: `a[i, j + 1]`; `?` for an index that is not affine."""
    names = names or {}
    axes = ("?" if x is None else show_affine(x, names) for x in access.axes)
    return f"{names.get('array ' + access.array, access.array)}[{', '.join(axes)}]"


def show_task(task: Task, names: Names | None = None, of_body: str = "non-affine") -> str:
    """Returns loops and assignment of one task as text, without its name.

    A task with a body has several lines, and the label `of_body`.
    """
    names = names or {}
    loops = " ".join(
        f"{names.get('loop ' + x.name, x.name)}<{x.extent}{' reduced' if x.is_reduction else ''}"
        for x in task.loops
    )
    head = f"for {loops}: " if loops else ""
    exact = "" if task.fast_math else " [order fixed]"
    if task.body is not None:
        reads, writes = (
            ", ".join(dict.fromkeys(x)) for x in _touched(task.body, task.scope, names)
        )
        body = show_statements(task.body.statements, names)
        return f"{head}{of_body}{exact} reads {reads or '-'} writes {writes or '-'}\n{body}"
    assert task.value is not None
    target, value = show_access(task.target, names), show_value(task.value, names)
    if task.condition is not None:
        condition = show_value(task.condition, names)
        return f"{head}{target}:{task.dtype.name} = {value} where {condition}{exact}"
    if task.op is None or task.finish is None:
        return f"{head}{target}:{task.dtype.name} = {value}{exact}"
    over = ", ".join(names.get("loop " + x.name, x.name) for x in task.loops if x.is_reduction)
    reduced = f"{OPS[task.op].noun}({over}) {value}"
    if isinstance(task.finish, kernel.Accumulator):
        return f"{head}{target}:{task.dtype.name} = {reduced}{exact}"
    finish = show_value(task.finish, names)
    return f"{head}{target}:{task.dtype.name} = {finish} with acc = {reduced}{exact}"


def show_statements(body: Iterable[kernel.Stmt], names: Names | None = None) -> str:
    """Returns statements of a task as text, a line each."""
    return "\n".join("    " + line for line in _Printer(names or {}).lines(body, 0))


def _touched(body: Body, loops: tuple[Loop, ...], names: Names) -> tuple[list[str], list[str]]:
    """Returns the texts of all reads and of all writes of a body, in terms of the loops around each.

    Locals are not substituted.
    """
    own = {loop.name for loop in loops}
    reads: list[str] = []
    writes: list[str] = []

    def element(array: str, indices: tuple[kernel.Expr, ...]) -> str:
        axes = (to_affine(i) for i in indices)
        known = (a if a is not None and {n for n, _ in a.terms} <= own else None for a in axes)
        return show_access(Access(array, tuple(known)), names)

    for s in nested_statements(body.statements):
        reads += [element(x.array, x.indices) for e in children(s) for x in loads(e)]
        if isinstance(s, kernel.Store | kernel.Update):
            writes.append(element(s.array, s.indices))
        if isinstance(s, kernel.Update):
            reads.append(writes[-1])
    return reads, writes


def show_tasks(problem: Problem, shown: Callable[[Task], str] = show_task) -> str:
    """Returns the whole problem as text: arrays with roles, scalars, tasks as `shown` prints them."""
    lines = [f"problem {problem.name}"]
    width = max((len(a.name) for a in problem.arrays), default=0)
    for a in problem.arrays:
        shape = ", ".join(str(n) for n in a.shape)
        lines.append(f"  array  {a.name:<{width}}  {a.dtype.name}[{shape}]  {a.role}")
    lines.extend(f"  scalar {p.name}  {p.dtype.name}" for p in problem.scalars)
    width = max((len(t.name) for t in problem.tasks), default=0)
    for k, t in enumerate(problem.tasks):
        around = [r for r in problem.repeats if k in r.members]
        for depth, r in enumerate(around, 1):
            if r.first == k:
                until = f" until {r.until}" if r.until else ""
                lines.append(f"{'  ' * depth}repeat {r.index}<{r.count}{until}")
        indent = "  " * (len(around) + 1)
        lines.append(f"{indent}task   {t.name:<{width}}  {shown(t)}")
    return "\n".join(lines) + "\n"


# Keys of problems name records, also of versions that printed this word of tasks with a body.
_IN_KEYS = "opaque"


def problem_key(problem: Problem) -> str:
    """Returns a hash over everything that decides the computation.

    Names of files, tasks, loops, arrays and locals are not part of it.
    """
    names = {"array " + a.name: f"a{k}" for k, a in enumerate(problem.arrays)}
    names |= {"param " + p.name: f"p{k}" for k, p in enumerate(problem.scalars)}
    lines = [f"{k} {a.dtype.name} {a.shape} {a.role}" for k, a in enumerate(problem.arrays)]
    lines += [f"{k} {p.dtype.name}" for k, p in enumerate(problem.scalars)]
    for task in problem.tasks:
        lines.append(show_task(task, {**names, **_inner_names(task)}, _IN_KEYS))
    for r in problem.repeats:
        until = f" until {names['array ' + r.until]}" if r.until else ""
        lines.append(f"repeat {r.first} {r.stop} {r.count}{until}")
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _inner_names(task: Task) -> dict[str, str]:
    names = {"loop " + x.name: f"l{k}" for k, x in enumerate(task.loops)}
    names |= {"loop " + x.name: f"s{k}" for k, x in enumerate(task.repeats)}
    if task.body is not None:
        for s in nested_statements(task.body.statements):
            if isinstance(s, kernel.For):
                names.setdefault("loop " + s.loop, f"l{len(names)}")
            if local_changed(s):
                names.setdefault("local " + local_changed(s), f"l{len(names)}")
    return names
