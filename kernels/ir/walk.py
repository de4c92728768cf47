"""Traversal and substitution of IR expressions and statements, for all passes that turn kernels into tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import isfinite
from operator import attrgetter, is_, is_not
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from . import kernel
from .ops import OPS

T = TypeVar("T")
N = TypeVar("N", bound=kernel.Expr | kernel.Stmt)
_EXPRESSIONS = frozenset(get_args(kernel.Expr))
_NODES = _EXPRESSIONS.union(get_args(kernel.Stmt))

_PARTS: dict[type[Any], tuple[tuple[str, bool, bool], ...]] = {}


def _parts(node: kernel.Expr | kernel.Stmt) -> tuple[tuple[str, bool, bool], ...]:
    """Returns the fields of a node that contain nodes or texts, as (name, has statements, is a tuple)."""
    kind: type[Any] = type(node)
    if kind not in _PARTS:
        hints = get_type_hints(kind)
        many = {f.name: get_origin(hints[f.name]) is tuple for f in fields(kind)}
        held = {name: get_args(hints[name])[0] if many[name] else hints[name] for name in many}
        _PARTS[kind] = tuple(
            (name, of == kernel.Stmt, many[name])
            for name, of in held.items()
            if of in (kernel.Expr, kernel.Part, kernel.Stmt)
        )
    return _PARTS[kind]


def _with(node: N, new: Mapping[str, Any]) -> N:
    """Returns a copy of a node with the values `new` of some fields.

    `dataclasses.replace` takes five times as long, and passes copy millions of nodes.
    """
    made = object.__new__(type(node))
    values = vars(made)
    values.update(vars(node))
    values.update(new)
    return made


_Read = Callable[[Any], tuple[Any, ...]]
# By kind of node: what reads its operands, and its blocks. Passes read those of millions of nodes.
_OPERANDS: dict[type[Any], _Read] = {}
_BLOCKS: dict[type[Any], _Read] = {}


def children(node: kernel.Expr | kernel.Stmt) -> tuple[kernel.Expr, ...]:
    """Returns the operands of a node, in the order of its fields. Nested statements are not among them."""
    return (_OPERANDS.get(type(node)) or _reader_of_operands(node))(node)


def _reader_of_operands(node: kernel.Expr | kernel.Stmt) -> _Read:
    """Returns the function that reads the operands of the node's kind, and keeps it."""
    names = [(name, many) for name, is_block, many in _parts(node) if not is_block]
    is_plain = not isinstance(node, kernel.Print | kernel.Assert)  # these have texts among them
    if is_plain and (not any(many for _, many in names) or len(names) == 1):
        made = _reader_of(names)
    else:

        def made(x: Any) -> tuple[kernel.Expr, ...]:
            found: list[kernel.Expr] = []
            for name, many in names:
                held = getattr(x, name)
                found.extend(e for e in held if not isinstance(e, str)) if many else found.append(
                    held
                )
            return tuple(found)

    _OPERANDS[type(node)] = made
    return made


def _reader_of(names: Sequence[tuple[str, bool]]) -> _Read:
    """Returns a function that reads fields: one that is a tuple, or several (or none) that are not."""
    if not names:
        return lambda _: ()
    read: Any = attrgetter(*(name for name, _ in names))
    is_tuple = len(names) > 1 or names[0][1]
    return read if is_tuple else lambda x: (read(x),)


def blocks(s: kernel.Stmt) -> tuple[tuple[kernel.Stmt, ...], ...]:
    """Returns the blocks of statements nested in statement `s`."""
    return (_BLOCKS.get(type(s)) or _reader_of_blocks(s))(s)


def _reader_of_blocks(s: kernel.Stmt) -> _Read:
    """Returns the function that reads the blocks of the statement's kind, and keeps it."""
    names = [(name, False) for name, is_block, _ in _parts(s) if is_block]
    made = _BLOCKS[type(s)] = _reader_of(names)
    return made


def with_blocks(
    s: kernel.Stmt, change: Callable[[tuple[kernel.Stmt, ...]], tuple[kernel.Stmt, ...]]
) -> kernel.Stmt:
    """Returns the statement with each nested block replaced by `change` of it."""
    inner: dict[str, Any] = {k: change(getattr(s, k)) for k, is_block, _ in _parts(s) if is_block}
    return _with(s, inner) if inner else s


def mapped(
    node: N,
    on_expr: Callable[[kernel.Expr], kernel.Expr],
    on_stmt: Callable[[kernel.Stmt], kernel.Stmt],
) -> N:
    """Returns the node with its operands replaced by `on_expr`, and its nested statements by `on_stmt`.

    An expression without changes is returned itself. Statements are always new objects, since passes distinguish them by identity.
    """
    if type(node) in _EXPRESSIONS:
        e: Any = node
        operands = children(e)
        changed = tuple(map(on_expr, operands))
        return node if all(map(is_, changed, operands)) else cast(N, rebuild(e, changed))
    parts, new = _parts(node), dict[str, Any]()
    for name, is_block, many in parts:
        old = getattr(node, name)
        on = on_stmt if is_block else on_expr
        now: Any = tuple(x if isinstance(x, str) else on(x) for x in old) if many else on(old)
        if any(map(is_not, now, old)) if many else now is not old:
            new[name] = now
    return _with(node, new) if parts else node


def rebuild(e: kernel.Expr, parts: tuple[kernel.Expr, ...]) -> kernel.Expr:
    """Returns `e` with its operands replaced by `parts` (same order and number as `children(e)`).

    It is another object if it has operands: passes may distinguish it by identity.
    """
    left, new = iter(parts), dict[str, Any]()
    for name, _, many in _parts(e):
        old = getattr(e, name)
        new[name] = (
            tuple(x if isinstance(x, str) else next(left) for x in old) if many else next(left)
        )
    return _with(e, new) if new else e


def walk(e: kernel.Expr) -> Iterator[kernel.Expr]:
    """Yields `e` and all its sub-expressions, parents first."""
    left = [e]
    while left:
        e = left.pop()
        yield e
        left += children(e)[::-1]


def size(e: kernel.Expr) -> int:
    """Returns the number of nodes of `e`."""
    return sum(1 for _ in walk(e))


def loads(e: kernel.Expr) -> tuple[kernel.Load, ...]:
    """Returns every load of `e`, in reading order."""
    return tuple(x for x in walk(e) if isinstance(x, kernel.Load))


def locals_read(e: kernel.Expr) -> tuple[str, ...]:
    """Returns the names of the locals and local arrays that `e` reads, without duplicates."""
    return tuple(
        dict.fromkeys(x.name for x in walk(e) if isinstance(x, kernel.Local | kernel.LocalElement))
    )


def local_changed(s: kernel.Stmt) -> str:
    """Returns the local, or local array, that the statement sets or updates, nested ones aside; "" if none."""
    match s:
        case kernel.SetLocal() | kernel.UpdateLocal() | kernel.LocalArray() | kernel.SetElement():
            return s.name
        case kernel.Update() | kernel.Append():
            return s.result
    return ""


@dataclass(frozen=True, kw_only=True)
class Renaming:
    """Substitution of arrays, parameters, locals and loop indices in IR; other names stay.

    It is simultaneous: substituted expressions are not renamed again. A loop index with a new name keeps its type.
    """

    arrays: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, kernel.Expr] = field(default_factory=dict)
    locals: Mapping[str, kernel.Expr] = field(default_factory=dict)
    loops: Mapping[str, kernel.Expr] = field(default_factory=dict)

    def apply(self, e: kernel.Expr) -> kernel.Expr:
        """Returns `e` with the names replaced."""
        match e:
            case kernel.Const():
                return e
            case kernel.Param():
                return self.params.get(e.name, e)
            case kernel.Local():
                return self.locals.get(e.name, e)
            case kernel.LoopIndex():
                found = self.loops.get(e.loop, e)
                return (
                    replace(found, dtype=e.dtype) if isinstance(found, kernel.LoopIndex) else found
                )
            case kernel.Load() if e.array in self.arrays:
                e = replace(e, array=self.arrays[e.array])
        return mapped(e, self.apply, self.apply_stmt)

    def apply_stmt(self, s: kernel.Stmt) -> kernel.Stmt:
        """Returns `s` and the statements in it with the names replaced.

        A loop is renamed if its index becomes another index.
        """
        match s:
            case kernel.For():
                index = self.loops.get(s.loop)
                if isinstance(index, kernel.LoopIndex):
                    s = replace(s, loop=index.loop)
            case kernel.Store() | kernel.Update() if s.array in self.arrays:
                s = replace(s, array=self.arrays[s.array])
        return mapped(s, self.apply, self.apply_stmt)


def coerced(e: kernel.Expr, dtype: kernel.DType) -> kernel.Expr:
    """Returns `e` converted to `dtype`, unless it has that type already."""
    if e.dtype == dtype:
        return e
    if isinstance(e, kernel.Const) and dtype.is_integer and e.dtype.is_integer:
        return kernel.Const(dtype.wrapped(int(e.value)), dtype)
    if isinstance(e, kernel.Const):
        return kernel.Const(dtype.numpy.type(e.value).item(), dtype)
    return kernel.Cast(e, dtype)


def is_neutral(op: kernel.ReduceOp, e: kernel.Expr) -> bool:
    """True if `e` is recognised as a neutral element of `op`: `e op x == x` for every x of e's dtype."""
    has_ends = op in ("min", "max") and e.dtype.is_integer
    if isinstance(e, kernel.Cast):  # the ends of a narrower type are none of a wider one
        return is_neutral(op, e.x) and not has_ends
    if isinstance(e, kernel.Unary) and e.op == "neg" and isinstance(e.x, kernel.Const):
        return is_neutral(op, kernel.Const(-e.x.value, e.x.dtype))
    if has_ends:
        return e == neutral_of(op, e.dtype)
    return isinstance(e, kernel.Const) and float(e.value) == OPS[op].neutral


def neutral_of(op: kernel.ReduceOp, dtype: kernel.DType) -> kernel.Const:
    """Returns the neutral element of `op` in this type."""
    value = OPS[op].neutral
    assert value is not None
    if dtype.is_float or isfinite(value):
        return kernel.Const(value if dtype.is_float else int(value), dtype)
    low, high = dtype.range
    return kernel.Const(int(high if value > 0 else low), dtype)


def joined(op: kernel.ReduceOp, a: kernel.Expr, b: kernel.Expr, dtype: kernel.DType) -> kernel.Expr:
    """Returns the expression `a op b`, or one operand if the other is neutral."""
    if is_neutral(op, a):
        return b
    if is_neutral(op, b):
        return a
    return kernel.Binary(op, a, b, dtype)


def nested_statements(body: tuple[kernel.Stmt, ...]) -> Iterator[kernel.Stmt]:
    """Yields all statements of `body`, parents first, in program order."""
    left = [*reversed(body)]
    while left:
        s = left.pop()
        yield s
        for block in reversed(blocks(s)):
            left += block[::-1]


def identified(body: tuple[kernel.Stmt, ...]) -> tuple[kernel.Stmt, ...]:
    """Returns the statements with identities (`uid`): their numbers in program order, from 1 on."""
    numbers = itertools.count(1)

    def block(some: tuple[kernel.Stmt, ...]) -> tuple[kernel.Stmt, ...]:
        return tuple(with_blocks(_with(s, {"uid": next(numbers)}), block) for s in some)

    return block(body)


def written_in(body: tuple[kernel.Stmt, ...]) -> frozenset[str]:
    """Returns the names of the arrays that statements of `body` store to or update."""
    return frozenset(
        s.array for s in nested_statements(body) if isinstance(s, kernel.Store | kernel.Update)
    )


def without(body: tuple[kernel.Stmt, ...], kind: type[Any]) -> tuple[kernel.Stmt, ...]:
    """Returns the statements except all of one class, at any depth."""
    kept = (s for s in body if not isinstance(s, kind))
    return tuple(with_blocks(s, lambda inner: without(inner, kind)) for s in kept)


def rewrite(node: T, change: Callable[[Any], Any]) -> T:
    """Returns `node` with `change` applied to every part, bottom-up: dataclasses, tuples and leaves.

    A kernel that occurs several times is rewritten once, and stays one object.
    """
    known: dict[int, Any] = {}

    def part(x: Any) -> Any:
        if isinstance(x, tuple):
            return change(tuple(map(part, x)))
        kind = type(x)
        if kind in _NODES:
            return change(_with(x, {name: part(held) for name, held in vars(x).items()}))
        names = _rewritten(kind)
        if not names:
            return change(x)
        if kind is not kernel.KernelIR:
            return change(replace(x, **{name: part(getattr(x, name)) for name in names}))
        if id(x) not in known:
            known[id(x)] = change(replace(x, **{name: part(getattr(x, name)) for name in names}))
        return known[id(x)]

    return cast(T, part(node))


_REWRITTEN: dict[type[Any], tuple[str, ...]] = {}


def _rewritten(kind: type[Any]) -> tuple[str, ...]:
    """Returns the names of the fields that `rewrite` looks into; () for leaves."""
    if kind not in _REWRITTEN:
        is_leaf = not is_dataclass(kind) or issubclass(kind, (type, kernel.Location))
        _REWRITTEN[kind] = () if is_leaf else tuple(f.name for f in fields(kind))
    return _REWRITTEN[kind]


def widened(ir: T) -> T:
    """Returns the same computation with every f16 and f32 made f64. Bit casts keep the original type."""
    return rewrite(ir, _widened)


_OF_SIZE = {2: kernel.DType.f16, 4: kernel.DType.f32}


def _widened(x: Any) -> Any:
    if x is kernel.DType.f32 or x is kernel.DType.f16:
        return kernel.DType.f64
    if isinstance(x, kernel.Bitcast) and x.x.dtype.size_bytes != x.dtype.size_bytes:
        # One side was a float of the other's size.
        if x.dtype is kernel.DType.f64:
            return kernel.Cast(
                kernel.Bitcast(x.x, _OF_SIZE[x.x.dtype.size_bytes]), kernel.DType.f64
            )
        return kernel.Bitcast(kernel.Cast(x.x, _OF_SIZE[x.dtype.size_bytes]), x.dtype)
    return x
