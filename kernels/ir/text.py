"""The stable text form of a kernel's IR: Python-like, one statement a line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .kernel import (
    Accumulator,
    Binary,
    Cast,
    Compare,
    Const,
    Expr,
    For,
    If,
    KernelIR,
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

_SIGNS = {
    "or": ("or", 1),
    "and": ("and", 2),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
    "floordiv": ("//", 6),
    "mod": ("%", 6),
}
_TIGHTEST = 9
_UPDATE_SIGNS = {"add": "+=", "mul": "*=", "min": "min=", "max": "max="}


def show(ir: KernelIR) -> str:
    """A kernel as text; equal for kernels that compute the same in the same way, whatever file they
    come from.
    """
    arrays = [f"{p.name}: {p.dtype.name}[{', '.join(map(str, p.shape))}]" for p in ir.arrays]
    scalars = [f"{p.name}: {p.dtype.name}" for p in ir.scalars]
    head = f"kernel {ir.name}({', '.join(arrays + scalars)})" + (
        "" if ir.fast_math else " fast_math=False"
    )
    return "\n".join([head, *_lines(ir.body, 1, set())]) + "\n"


def show_expr(x: Expr) -> str:
    """An expression as text, with the parentheses it needs."""
    return _text(x, 0)


def _lines(body: Iterable[Stmt], depth: int, declared: set[str]) -> Iterator[str]:
    pad = "    " * depth
    for s in body:
        match s:
            case For(loop=loop, extent=extent, body=inner):
                yield f"{pad}for {loop} in {_text(extent, 0)}:"
                yield from _nested(inner, depth, declared)
            case If(condition=condition, then=then, orelse=orelse):
                yield f"{pad}if {_text(condition, 0)}:"
                yield from _nested(then, depth, declared)
                if orelse:
                    yield f"{pad}else:"
                    yield from _nested(orelse, depth, declared)
            case SetLocal(name=name, value=value):
                kind = "" if name in declared else f": {value.dtype.name.rstrip('_')}"
                declared.add(name)
                yield f"{pad}{name}{kind} = {_text(value, 0)}"
            case UpdateLocal(name=name, op=op, value=value):
                yield f"{pad}{name} {_UPDATE_SIGNS[op]} {_text(value, 0)}"
            case Store(array=array, indices=indices, value=value):
                yield f"{pad}{_element(array, indices)} = {_text(value, 0)}"
            case Update(array=array, indices=indices, op=op, value=value):
                yield f"{pad}{_element(array, indices)} {_UPDATE_SIGNS[op]} {_text(value, 0)}"


def _nested(body: tuple[Stmt, ...], depth: int, declared: set[str]) -> Iterator[str]:
    if not body:
        yield "    " * (depth + 1) + "pass"
    yield from _lines(body, depth + 1, declared)


def _element(array: str, indices: tuple[Expr, ...]) -> str:
    return f"{array}[{', '.join(_text(i, 0) for i in indices)}]"


def _text(x: Expr, around: int) -> str:
    """`around` is how tightly the surrounding operator binds."""
    match x:
        case Const(value=value):
            return (
                f"({value!r})"
                if around > 5 and not isinstance(value, bool) and value < 0
                else repr(value)
            )
        case LoopIndex(loop=name) | Param(name=name) | Local(name=name):
            return name
        case Load(array=array, indices=indices):
            return _element(array, indices)
        case Accumulator():
            return "acc"
        case Cast(x=y, dtype=dtype):
            return f"{dtype.name.rstrip('_')}({_text(y, 0)})"
        case Select(condition=c, a=a, b=b):
            return f"({_text(a, 1)} if {_text(c, 1)} else {_text(b, 1)})"
        case Unary(op="neg", x=y):
            return _wrapped(f"-{_text(y, 7)}", 7, around)
        case Unary(op="not", x=y):
            return _wrapped(f"not {_text(y, 3)}", 3, around)
        case Unary(op=op, x=y):
            return f"{op}({_text(y, 0)})"
        case Binary(op=("min" | "max") as op, a=a, b=b):
            return f"{op}({_text(a, 0)}, {_text(b, 0)})"
        case Binary(op="add", a=a, b=Const(value=value)) if value < 0 and not isinstance(
            value, bool
        ):
            return _wrapped(f"{_text(a, 5)} - {-value!r}", 5, around)
        case Binary(op=op, a=a, b=b) | Compare(op=op, a=a, b=b):
            sign, tightness = _SIGNS[op]
            left = tightness + 1 if isinstance(x, Compare) else tightness
            return _wrapped(f"{_text(a, left)} {sign} {_text(b, tightness + 1)}", tightness, around)
    raise TypeError(f"{x!r} is no expression")


def _wrapped(text: str, tightness: int, around: int) -> str:
    return f"({text})" if tightness < around else text
