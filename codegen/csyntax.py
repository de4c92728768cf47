"""C syntax, the last stage before text: frozen dataclasses in which nothing is left to decide.

Expressions and statements of the C family that the lowering uses, no more. What differs between targets (barriers, vector
spelling, qualifiers) is named here and spelt by the dialect (codegen/dialect.py).
"""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Id:
    name: str


@dataclass(frozen=True)
class Num:
    text: str


@dataclass(frozen=True)
class Bin:
    op: str
    a: CExpr
    b: CExpr


@dataclass(frozen=True)
class Un:
    op: str
    x: CExpr


ARE_ALIGNED = Id("are_aligned")  # a constant in what a thread runs; see Function
PREFETCH = "__builtin_prefetch"  # a call of it reads and writes nothing


@dataclass(frozen=True)
class Call:
    function: str
    args: tuple[CExpr, ...]


@dataclass(frozen=True)
class Index:
    base: CExpr
    index: CExpr


@dataclass(frozen=True)
class CastTo:
    type: str
    x: CExpr


@dataclass(frozen=True)
class Literal:
    """A compound literal, `(type){items}`."""

    type: str
    items: tuple[CExpr, ...]


@dataclass(frozen=True)
class Cond:
    condition: CExpr
    a: CExpr
    b: CExpr


CExpr = Id | Num | Bin | Un | Call | Index | CastTo | Literal | Cond


@dataclass(frozen=True)
class Declare:
    """`type name[extent] = init;` An extent of 0 is as much as a launch gives: of shared arrays only."""

    type: str
    name: str
    init: CExpr | None = None
    extent: int | None = None
    constant: bool = False
    is_shared: bool = False  # one for all threads of a block


@dataclass(frozen=True)
class Assign:
    target: CExpr
    value: CExpr
    op: str = ""  # "+" for `+=`


@dataclass(frozen=True)
class Evaluate:
    """An expression for its effect: a call that stores."""

    x: CExpr


@dataclass(frozen=True)
class For:
    """`for (long var = lo; var < hi; var += step)`."""

    var: str
    lo: CExpr
    hi: CExpr
    step: int | CExpr
    body: tuple[CStmt, ...]


@dataclass(frozen=True)
class If:
    condition: CExpr
    then: tuple[CStmt, ...]
    orelse: tuple[CStmt, ...] = ()


@dataclass(frozen=True)
class Scope:
    body: tuple[CStmt, ...]


@dataclass(frozen=True)
class Comment:
    text: str


@dataclass(frozen=True)
class Barrier:
    """All threads of the launch meet here."""


CStmt = Declare | Assign | Evaluate | For | If | Scope | Comment | Barrier

# Of each kind of node the fields that hold others.
PARTS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind) if "CExpr" in str(f.type) or "CStmt" in str(f.type))
    for kind in (
        *(Bin, Un, Call, Index, CastTo, Literal, Cond),
        *(Declare, Assign, Evaluate, For, If, Scope),
    )
}


@dataclass(frozen=True)
class Parameter:
    """`type` is followed by `restrict`, where it is a pointer, and the name."""

    type: str
    name: str
    restrict: str = ""


@dataclass(frozen=True)
class Function:
    """One launch. `is_parallel`: its body, which names `thread_parameters`, runs once per thread of a team, with `tid` and
    `n_threads` bound, and then `after`, once.

    `block_threads` > 0: a kernel, which blocks of so many threads run. Where all arrays `aligned` begin at a multiple of
    `vector_bytes`, a thread runs the body with ARE_ALIGNED 1, else with 0.
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


def add(a: CExpr, b: CExpr) -> CExpr:
    """`a + b`, folded where one side is a literal zero."""
    if a == Num("0"):
        return b
    if b == Num("0"):
        return a
    return Bin("+", a, b)


def minus(a: CExpr, b: CExpr) -> CExpr:
    """`a - b`, folded where `b` is a literal zero."""
    return a if b == Num("0") else Bin("-", a, b)


def number(value: int) -> CExpr:
    return Num(str(value)) if value >= 0 else Un("-", Num(str(-value)))


def linear(terms: tuple[tuple[CExpr, int], ...], const: int) -> CExpr:
    """`sum of coefficient * term + const` in its shortest spelling."""
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
    """Undoes `linear`: terms with coefficients, and the constant."""
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
