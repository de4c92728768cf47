"""C syntax tree: expressions and statements of the C family that lowering uses, decided in all details.

Differences between targets (barriers, vector types, qualifiers) are named here, and a dialect
spells them (codegen/text/dialect.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True)
def _node(cls: type[_Class]) -> type[_Class]:
    """Makes a class a dataclass that only type checkers see as frozen: a text has thousands of nodes, and freezing is slow."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@_node
class Id:
    name: str


@_node
class Num:
    text: str


@_node
class Text:
    """A string literal."""

    text: str


@_node
class Bin:
    op: str
    a: CExpr
    b: CExpr


@_node
class Un:
    op: str
    x: CExpr


ARE_ALIGNED = Id("are_aligned")  # a constant in the code of a thread; see Function
PREFETCH = "__builtin_prefetch"  # a call of it reads and writes nothing


@_node
class Call:
    function: str
    args: tuple[CExpr, ...]


@_node
class Index:
    base: CExpr
    index: CExpr


@_node
class CastTo:
    type: str
    x: CExpr


@_node
class Literal:
    """A compound literal, `(type){items}`."""

    type: str
    items: tuple[CExpr, ...]


@_node
class Cond:
    condition: CExpr
    a: CExpr
    b: CExpr


CExpr = Id | Num | Text | Bin | Un | Call | Index | CastTo | Literal | Cond


@_node
class Declare:
    """Statement: `type name[extent] = init;`. An extent of 0, of shared arrays only, is set by the launch."""

    type: str
    name: str
    init: CExpr | None = None
    extent: int | None = None
    constant: bool = False
    is_shared: bool = False  # one for all threads of a block


@_node
class Assign:
    target: CExpr
    value: CExpr
    op: str = ""  # "+" for `+=`


@_node
class Evaluate:
    """Statement: evaluates an expression for its effect, such as a call that stores."""

    x: CExpr


@_node
class RunClosed:
    """Statement: calls a function with non-affine (closed) bodies, which stores to the arrays `stores`."""

    function: str
    args: tuple[CExpr, ...]
    stores: tuple[str, ...]


@_node
class For:
    """Statement: `for (long var = lo; var < hi; var += step)`.

    `in_any_order`: iterations may be reordered as far as their loads and stores allow.
    `sums`: variables that iterations only add to (or multiply), each with its operator.
    `independent`: no iteration loads a value that another one stores.
    `is_scalar`: compilers must not vectorise the loop.
    `copies`: unroll factor for compilers; 0 leaves it to them.
    """

    var: str
    lo: CExpr
    hi: CExpr
    step: int | CExpr
    body: tuple[CStmt, ...]
    in_any_order: bool = False
    sums: tuple[tuple[str, str], ...] = ()
    independent: bool = False
    is_scalar: bool = False
    copies: int = 0


@_node
class If:
    condition: CExpr
    then: tuple[CStmt, ...]
    orelse: tuple[CStmt, ...] = ()


@_node
class While:
    condition: CExpr
    body: tuple[CStmt, ...]


@_node
class Goto:
    label: str


@_node
class Label:
    """Target of a `Goto`: the last statement of a scope."""

    label: str


@_node
class Scope:
    body: tuple[CStmt, ...]


@_node
class Comment:
    text: str


@_node
class Barrier:
    """Statement: all threads of the launch synchronise."""


CStmt = (
    Declare
    | Assign
    | Evaluate
    | RunClosed
    | For
    | While
    | If
    | Goto
    | Label
    | Scope
    | Comment
    | Barrier
)

# Of each kind of node the fields that hold others.
PARTS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind) if "CExpr" in str(f.type) or "CStmt" in str(f.type))
    for kind in (
        *(Bin, Un, Call, Index, CastTo, Literal, Cond),
        *(Declare, Assign, Evaluate, RunClosed, For, While, If, Scope),
    )
}


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    get: Callable[[Any], Any] = attrgetter(*names)
    return get if len(names) > 1 else lambda x: (get(x),)


_GETTERS = {kind: _getter(names) for kind, names in PARTS.items()}


def parts(x: Any) -> tuple[Any, ...]:
    """Returns the children of a syntax node: nodes and tuples of nodes."""
    get = _GETTERS.get(type(x))
    return () if get is None else get(x)


@_node
class Parameter:
    """A parameter of a function. `restrict`: qualifier text between the type and the name, for pointers."""

    type: str
    name: str
    restrict: str = ""


@_node
class Function:
    """One launch as a C function, or a function that it calls.

    `is_parallel`: the body runs once per thread of a team, with `tid` and `n_threads` bound; it
    names `thread_parameters`. Then `after` runs, once.
    `block_threads` > 0: a GPU kernel, which blocks of so many threads run.
    `aligned`: arrays. If all of them begin at a multiple of `vector_bytes`, a thread runs the body
    with ARE_ALIGNED 1, else with 0.
    `is_closed`: the function holds bodies of non-affine (closed) tasks, and another function calls
    it.
    `threads`: number of threads of the team, in terms of the parameters; None: the number that the
    text is for.
    `before`: code of the caller before the team begins.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[CStmt, ...]
    is_parallel: bool
    comment: str = ""
    block_threads: int = 0
    after: tuple[CStmt, ...] = ()
    thread_parameters: tuple[Parameter, ...] = ()
    aligned: tuple[str, ...] = ()
    vector_bytes: int = 0
    is_closed: bool = False
    threads: CExpr | None = None
    before: tuple[CStmt, ...] = ()


def add(a: CExpr, b: CExpr) -> CExpr:
    """Returns `a + b`; the other operand alone if one is a literal zero."""
    if a == Num("0"):
        return b
    if b == Num("0"):
        return a
    return Bin("+", a, b)


def minus(a: CExpr, b: CExpr) -> CExpr:
    """Returns `a - b`; `a` alone if `b` is a literal zero."""
    return a if b == Num("0") else Bin("-", a, b)


def number(value: int) -> CExpr:
    return Num(str(value)) if value >= 0 else Un("-", Num(str(-value)))


def linear(terms: tuple[tuple[CExpr, int], ...], const: int) -> CExpr:
    """Returns `sum of coefficient * term + const` in its shortest form."""
    total: CExpr | None = None
    for x, coefficient in terms:
        if coefficient == 0:
            continue
        size = abs(coefficient)
        product = x if size == 1 else Bin("*", x, Num(str(size)))
        if total is None:
            total = product if coefficient > 0 else Un("-", product)
        else:
            total = Bin("+" if coefficient > 0 else "-", total, product)
    if total is None:
        return number(const)
    if const == 0:
        return total
    return Bin("+" if const > 0 else "-", total, Num(str(abs(const))))


def minimum(a: CExpr, b: CExpr) -> CExpr:
    return Cond(Bin("<", a, b), a, b)


def flatten(x: CExpr) -> tuple[list[tuple[CExpr, int]], int]:
    """Returns the terms of a sum with their coefficients, and the constant: the inverse of `linear`."""
    match x:
        case Num(text):
            return [], int(text)
        case Un("-", inner):
            terms, const = flatten(inner)
            return [(t, -k) for t, k in terms], -const
        case Bin("+", a, b):
            left, right = flatten(a), flatten(b)
            return left[0] + right[0], left[1] + right[1]
        case Bin("-", a, b):
            left, right = flatten(a), flatten(Un("-", b))
            return left[0] + right[0], left[1] + right[1]
        case Bin("*", a, Num(text)):
            return [(a, int(text))], 0
    return [(x, 1)], 0
