"""Reading and substituting in IR expressions and statements, for everything that turns kernels
into tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from .kernel import (
    Binary,
    Cast,
    Compare,
    Const,
    DType,
    Expr,
    For,
    If,
    Load,
    Local,
    LoopIndex,
    Param,
    ReduceOp,
    Select,
    SetLocal,
    Stmt,
    Store,
    Unary,
    Update,
    UpdateLocal,
)
from .ops import OPS

REDUCE_OPS: tuple[ReduceOp, ...] = ("add", "mul", "min", "max")


def children(e: Expr) -> tuple[Expr, ...]:
    """The operands of `e`, in the order of its fields."""
    match e:
        case Load():
            return e.indices
        case Unary() | Cast():
            return (e.x,)
        case Binary() | Compare():
            return (e.a, e.b)
        case Select():
            return (e.condition, e.a, e.b)
        case _:
            return ()


def rebuild(e: Expr, parts: tuple[Expr, ...]) -> Expr:
    """`e` with its operands replaced by `parts` (same order and number as `children(e)`)."""
    match e:
        case Load():
            return replace(e, indices=parts)
        case Unary() | Cast():
            return replace(e, x=parts[0])
        case Binary() | Compare():
            return replace(e, a=parts[0], b=parts[1])
        case Select():
            return replace(e, condition=parts[0], a=parts[1], b=parts[2])
        case _:
            return e


def walk(e: Expr) -> Iterator[Expr]:
    """`e` and all its sub-expressions, parents first."""
    yield e
    for part in children(e):
        yield from walk(part)


def size(e: Expr) -> int:
    """Number of nodes of `e`."""
    return sum(1 for _ in walk(e))


def loads(e: Expr) -> tuple[Load, ...]:
    """Every load of `e`, in reading order."""
    return tuple(x for x in walk(e) if isinstance(x, Load))


def locals_read(e: Expr) -> tuple[str, ...]:
    """Names of the locals `e` reads, without repeats."""
    return tuple(dict.fromkeys(x.name for x in walk(e) if isinstance(x, Local)))


@dataclass(frozen=True, kw_only=True)
class Renaming:
    """What to put in place of arrays, parameters, locals and loop indices; others stay as they are.

    All at once: what is put in is not renamed again.
    """

    arrays: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Expr] = field(default_factory=dict)
    locals: Mapping[str, Expr] = field(default_factory=dict)
    loops: Mapping[str, Expr] = field(default_factory=dict)

    def apply(self, e: Expr) -> Expr:
        """`e` with the names replaced."""
        match e:
            case Param():
                return self.params.get(e.name, e)
            case Local():
                return self.locals.get(e.name, e)
            case LoopIndex():
                return self.loops.get(e.loop, e)
            case Load():
                indices = tuple(self.apply(i) for i in e.indices)
                return Load(self.arrays.get(e.array, e.array), indices, e.dtype)
            case _:
                return rebuild(e, tuple(self.apply(part) for part in children(e)))

    def apply_stmt(self, s: Stmt) -> Stmt:
        """`s` and the statements in it with the names replaced; a loop is renamed where its index
        becomes another's.
        """
        match s:
            case For():
                body = tuple(self.apply_stmt(x) for x in s.body)
                index = self.loops.get(s.loop)
                name = index.loop if isinstance(index, LoopIndex) else s.loop
                return replace(s, loop=name, extent=self.apply(s.extent), body=body)
            case If():
                return replace(
                    s,
                    condition=self.apply(s.condition),
                    then=tuple(self.apply_stmt(x) for x in s.then),
                    orelse=tuple(self.apply_stmt(x) for x in s.orelse),
                )
            case Store() | Update():
                return replace(
                    s,
                    array=self.arrays.get(s.array, s.array),
                    indices=tuple(self.apply(i) for i in s.indices),
                    value=self.apply(s.value),
                )
            case SetLocal() | UpdateLocal():
                return replace(s, value=self.apply(s.value))


def coerced(e: Expr, dtype: DType) -> Expr:
    """`e` as a value of `dtype`."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const):
        return Const(dtype.numpy.type(e.value).item(), dtype)
    return Cast(e, dtype)


def is_neutral(op: ReduceOp, e: Expr) -> bool:
    """Whether `e op x == x` for every x of e's dtype."""
    if isinstance(e, Cast):
        return is_neutral(op, e.x)
    if isinstance(e, Unary) and e.op == "neg" and isinstance(e.x, Const):
        return is_neutral(op, Const(-e.x.value, e.x.dtype))
    return isinstance(e, Const) and float(e.value) == OPS[op].neutral


def joined(op: ReduceOp, a: Expr, b: Expr, dtype: DType) -> Expr:
    """`a op b` without a neutral element."""
    if is_neutral(op, a):
        return b
    if is_neutral(op, b):
        return a
    return Binary(op, a, b, dtype)


def nested_statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """All statements of `body`, parents first, in program order."""
    for s in body:
        yield s
        match s:
            case For():
                yield from nested_statements(s.body)
            case If():
                yield from nested_statements(s.then)
                yield from nested_statements(s.orelse)
            case _:
                pass


def expressions(s: Stmt) -> tuple[Expr, ...]:
    """The expressions of one statement itself, not of those nested in it."""
    match s:
        case For():
            return (s.extent,)
        case If():
            return (s.condition,)
        case Store() | Update():
            return (*s.indices, s.value)
        case SetLocal() | UpdateLocal():
            return (s.value,)
