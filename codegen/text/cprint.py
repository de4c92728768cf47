"""Printer: C syntax to text, with the fewest parentheses that precedence allows. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from . import csyntax as c
from .dialect import Dialect

_BINARY = {
    "*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 10, "<=": 10, ">": 10, ">=": 10,
    "==": 9, "!=": 9, "&": 8, "^": 7, "|": 6, "&&": 5, "||": 4,
}  # fmt: skip
_CONDITIONAL, _UNARY, _POSTFIX = 3, 14, 15
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
# Compilers warn of these combinations without parentheses, although the meaning is plain.
_WARNED = {
    "&&": ("||",),
    "||": ("&&",),
    "&": ("+", "-", *_COMPARISONS),
    "|": ("+", "-", "&", "^", *_COMPARISONS),
    "^": ("+", "-", "&", *_COMPARISONS),
    "<<": ("+", "-"),
}


def expression(x: c.CExpr) -> str:
    """Returns the C text of an expression."""
    return _at(x, 0)


def _at(x: c.CExpr, level: int) -> str:
    text, own = _print(x)
    return f"({text})" if own < level else text


def _print(x: c.CExpr) -> tuple[str, int]:
    match x:
        case c.Id(name):
            return name, _POSTFIX
        case c.Num(text):
            return text, _POSTFIX
        case c.Text(text):
            return _quoted(text), _POSTFIX
        case c.Bin(op, a, b):
            own = _BINARY[op]
            return f"{_operand(a, own, op)} {op} {_operand(b, own + 1, op)}", own
        case c.Un(op, inner):
            text = _at(inner, _UNARY)
            return f"{op}{f'({text})' if text.startswith(op) else text}", _UNARY
        case c.Call(function, args):
            return f"{function}({', '.join(_at(a, 0) for a in args)})", _POSTFIX
        case c.Index(base, index):
            return f"{_at(base, _POSTFIX)}[{_at(index, 0)}]", _POSTFIX
        case c.CastTo(kind, inner):
            return f"({kind}){_at(inner, _UNARY)}", _UNARY
        case c.Literal(kind, items):
            return f"({kind}){{{', '.join(_at(i, 0) for i in items)}}}", _POSTFIX
        case c.Cond(condition, a, b):
            parts = (_at(condition, _CONDITIONAL + 1), _at(a, 0), _at(b, _CONDITIONAL))
            return f"{parts[0]} ? {parts[1]} : {parts[2]}", _CONDITIONAL
    raise AssertionError(x)


def _quoted(text: str) -> str:
    """Returns a C string literal of `text`, in UTF-8.

    An octal escape has three digits at most, so it absorbs no character after it.
    """
    return '"' + "".join(map(_escaped, text.encode())) + '"'


def _escaped(byte: int) -> str:
    is_plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
    return chr(byte) if is_plain else "\\n" if byte == 10 else f"\\{byte:03o}"


def _operand(x: c.CExpr, level: int, parent: str) -> str:
    if isinstance(x, c.Bin) and x.op in _WARNED.get(parent, ()):
        return f"({_at(x, 0)})"
    return _at(x, level)


def functions_of(f: c.Function) -> tuple[str, ...]:
    """Returns the names of all C functions that the text of a launch defines."""
    if not f.is_parallel:
        return (f.name,)
    return (thread_function(f.name), _part(f.name), _given(f.name), f.name)


def thread_function(launch: str) -> str:
    """Returns the name of the function that each thread of a parallel launch runs."""
    return f"{launch}_thread"


def _part(launch: str) -> str:
    """Returns the name of the function that the team calls in each thread."""
    return f"{launch}_part"


def _given(launch: str) -> str:
    """Returns the name of the struct that holds the arguments of a launch's threads."""
    return f"{launch}_given"


def _meets(body: tuple[c.CStmt, ...]) -> bool:
    """True if the statements contain a barrier."""
    found: list[Any] = [body]
    while found:
        x = found.pop()
        if isinstance(x, c.Barrier):
            return True
        found += x if isinstance(x, tuple) else c.parts(x)
    return False


def in_comment(text: str) -> str:
    """Returns `text` as one line that cannot end a C comment."""
    plain = "".join(x if x.isprintable() else " " for x in text)
    return plain.replace("*/", "* /").replace("/*", "/ *")


class Printer:
    """Prints C syntax to lines, with one method per kind of syntax."""

    def __init__(self, dialect: Dialect, index_type: str = "long") -> None:
        """`index_type`: C type of loop variables."""
        self.dialect, self.index_type = dialect, index_type
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text if text and not text.startswith("#") else text)

    def function(self, f: c.Function, n_threads: int) -> None:
        """Prints one launch as a static function; if a team runs it, the code of a thread is another function."""
        if f.comment:
            self.line(f"/* {in_comment(f.comment)} */")
        if f.is_parallel:
            self.thread(f)
        opening = f"static {self.dialect.closed if f.is_closed else ''}void "
        if f.block_threads:
            opening = self.dialect.kernel_open.format(threads=f.block_threads)
        self.open_function(opening, f.name, f.parameters)
        if f.is_parallel:
            self.block(f.before)
            given = ", ".join(p.name for p in f.thread_parameters)
            self.line(f"struct {_given(f.name)} given = {{{given}}};")
            meets = int(_meets(f.body))
            threads = n_threads if f.threads is None else expression(f.threads)
            self.line(f"ks_team_run({_part(f.name)}, &given, {threads}, {meets});")
        else:
            self.block(f.body)
        self.block(f.after)
        self.close_function()

    def thread(self, f: c.Function) -> None:
        """Prints the function that each thread of a team runs, and the function that the team calls for it."""
        named, meets = f.thread_parameters, _meets(f.body)
        if f.aligned:
            named = (*named, c.Parameter("const int ", c.ARE_ALIGNED.name))
        named = (*named, *(c.Parameter("long ", name) for name in ("tid", "n_threads")))
        if meets:
            named = (*named, c.Parameter("struct ks_team *", "team"))
        inlined = self.dialect.inlined if f.aligned else ""
        self.open_function(f"static {inlined}void ", thread_function(f.name), named)
        self.block(f.body)
        self.close_function()
        self.line("")
        members = " ".join(f"{p.type}{p.name};" for p in f.thread_parameters)
        self.line(f"struct {_given(f.name)} {{ {members} }};")
        parameters = "void *given, long tid, long n_threads, struct ks_team *team"
        self.line(f"static void {_part(f.name)}({parameters}) {{")
        self.depth += 1
        if not meets:
            self.line("(void)team;")
        self.line(f"const struct {_given(f.name)} *g = given;")
        self.run_thread(f, ("tid", "n_threads", *(("team",) if meets else ())))
        self.close_function()
        self.line("")

    def run_thread(self, f: c.Function, names: tuple[str, ...]) -> None:
        """Prints the call of the thread's function.

        If stores depend on alignment, a test of the arrays selects a version.
        """
        given = tuple(c.Id(f"g->{p.name}") for p in f.thread_parameters)
        own = tuple(map(c.Id, names))

        def version(*more: c.CExpr) -> c.CStmt:
            return c.Evaluate(c.Call(thread_function(f.name), (*given, *more, *own)))

        if not f.aligned:
            self.statement(version())
            return
        places: list[c.CExpr] = [c.CastTo("uintptr_t", c.Id(f"g->{name}")) for name in f.aligned]
        together = reduce(lambda a, b: c.Bin("|", a, b), places)
        last_bits = c.Bin("&", together, c.number(f.vector_bytes - 1))
        test = c.Bin("==", last_bits, c.Num("0"))
        self.statement(c.If(test, (version(c.Num("1")),), (version(c.Num("0")),)))

    def open_function(self, opening: str, name: str, parameters: Iterable[c.Parameter]) -> None:
        listed = ", ".join(f"{p.type}{p.restrict}{p.name}" for p in parameters)
        self.line(f"{opening}{name}({listed}) {{")
        self.depth += 1

    def close_function(self) -> None:
        self.depth -= 1
        self.line("}")

    def block(self, body: tuple[c.CStmt, ...]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: c.CStmt) -> None:
        match s:
            case c.Declare(kind, name, init, extent, constant, is_shared):
                array = "" if extent is None else f"[{extent or ''}]"
                value = "" if init is None else f" = {expression(init)}"
                gap = "" if kind.endswith(("*", " ")) else " "
                prefix = "const " if constant else ""
                if is_shared:
                    prefix = ("" if extent else "extern ") + self.dialect.shared_array
                self.line(f"{prefix}{kind}{gap}{name}{array}{value};")
            case c.Assign(target, value, op):
                self.line(f"{expression(target)} {op}= {expression(value)};")
            case c.Evaluate(x):
                self.line(f"{expression(x)};")
            case c.RunClosed(function, args):
                self.line(f"{expression(c.Call(function, args))};")
            case c.For():
                self.for_loop(s)
            case c.While(condition, body):
                self.line(f"while ({expression(condition)}) {{")
                self.nested(body)
                self.line("}")
            case c.Goto(label):
                self.line(f"goto {label};")
            case c.Label(label):
                self.line(f"{label}:;")
            case c.If(condition, then, orelse):
                self.line(f"if ({expression(condition)}) {{")
                self.nested(then)
                if orelse:
                    self.line("} else {")
                    self.nested(orelse)
                self.line("}")
            case c.Scope(body):
                self.line("{")
                self.nested(body)
                self.line("}")
            case c.Comment(text):
                self.line(f"/* {in_comment(text)} */")
            case c.Barrier():
                self.line(self.dialect.barrier)

    def hint(self, text: str) -> None:
        """Prints lines with hints for the compiler; none if the dialect has none."""
        for line in text.splitlines():
            self.line(line)

    def nested(self, body: tuple[c.CStmt, ...]) -> None:
        self.depth += 1
        self.block(body)
        self.depth -= 1

    def for_loop(self, s: c.For) -> None:
        by = str(s.step) if isinstance(s.step, int) else expression(s.step)
        step = f"++{s.var}" if by == "1" else f"{s.var} += {by}"
        test = expression(c.Bin("<", c.Id(s.var), s.hi))
        if s.is_scalar:
            self.hint(self.dialect.scalar_loop)
        elif s.sums:
            reductions = " ".join(f"reduction({op}:{name})" for op, name in s.sums)
            self.hint(self.dialect.sum_loop.format(reductions=reductions))
        elif s.independent:
            self.hint(self.dialect.independent_loop)
        elif s.in_any_order:
            self.hint(self.dialect.free_loop)
        # gcc takes no pragma between `omp simd` and its loop.
        if s.copies and not s.sums:
            self.hint(self.dialect.unrolled_loop.format(copies=s.copies))
        self.line(f"for ({self.index_type} {s.var} = {expression(s.lo)}; {test}; {step}) {{")
        if s.is_scalar:
            self.hint(self.dialect.scalar_body)
        self.nested(s.body)
        self.line("}")
