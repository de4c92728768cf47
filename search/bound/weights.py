"""Operation counts of expressions: of one node, of a whole expression, and of chains of one operator."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ...kernels.ir.kernel import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Local,
    LocalElement,
    Param,
    Select,
    Unary,
)
from ...kernels.ir.ops import OPS, is_reduction
from ...kernels.ir.walk import walk

# Guaranteed operations by size of an element in bytes and name of the function, "" for all but functions such as exp.
Amounts = dict[tuple[int, str], float]
_CHAINS = {"add": "add", "sub": "add", "mul": "mul"}
_FREE = {("mul", 1), ("mul", -1), ("div", 1), ("add", 0), ("sub", 0)}


def flops_of(amounts: Amounts) -> tuple[float, float]:
    """Returns the numbers of f32 and of f64 operations, functions by their least number of operations."""
    f32, f64 = (sum(n for (size, _), n in amounts.items() if size == s) for s in (4, 8))
    return float(f32), float(f64)


def products_of(amounts: Amounts) -> tuple[float, float]:
    """Returns the numbers of sure multiplications among the f32 and the f64 operations."""
    return amounts.get((4, "mul"), 0.0), amounts.get((8, "mul"), 0.0)


def calls_of(amounts: Amounts) -> dict[tuple[int, str], float]:
    """Returns how often functions are computed, by size of an element in bytes and name."""
    return {
        (s, name): n / OPS[name].flops
        for (s, name), n in amounts.items()
        if name not in ("", "mul")
    }


def operands(e: Expr) -> tuple[Expr, ...]:
    """Returns the direct sub-expressions of a node, without indices of a load: these are no arithmetic on values."""
    match e:
        case Unary() | Cast() | Bitcast():
            return (e.x,)
        case Binary() | Compare():
            return (e.a, e.b)
        case Select():
            return (e.condition, e.a, e.b)
        case _:
            return ()


def told(e: Expr, parts: Sequence[str]) -> str:
    """Returns the canonical text of a node, from the texts `parts` of its operands; long texts are hashed.

    A compiler could compute nodes with equal texts once.
    """
    name = getattr(e, "op", type(e).__name__)
    parts = sorted(parts) if isinstance(e, Binary) and is_reduction(e.op) else parts
    return _short(f"({name} {e.dtype.name} {' '.join(parts)})")


def told_together(parts: Iterable[str]) -> str:
    """Returns the canonical text of a local, from the texts of its changes; long texts are hashed."""
    return _short(f"{{{'; '.join(parts)}}}")


def _short(text: str) -> str:
    return text if len(text) < 100 else hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def weight(e: Expr) -> float:
    """Returns the number of operations of one node, without its operands."""
    match e:
        case Binary() if e.dtype.is_float:
            constant = e.b.value if isinstance(e.b, Const) else None
            return 0.0 if (e.op, constant) in _FREE else OPS[e.op].flops
        case Unary() if e.dtype.is_float:
            return OPS[e.op].flops
        case Compare() if e.a.dtype.is_float:
            return OPS[e.op].flops
        case _:
            return 0.0


def function_of(e: Expr) -> str:
    """Returns the name of the function, such as exp, that the node surely computes; "" if it computes none.

    With a constant operand a compiler may have something quicker: `pow(x, 2)` is a product.
    """
    if not isinstance(e, Unary | Binary) or not OPS[e.op].is_transcendental:
        return ""
    return "" if any(isinstance(x, Const) for x in operands(e)) else e.op


def expression_weight(e: Expr | None) -> float:
    """Returns the number of operations of a whole expression, each node once."""
    return 0.0 if e is None else weight(e) + sum(expression_weight(x) for x in operands(e))


def chain(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """Returns the nodes of the chain of one operator that ends in `e`, and the operands that the chain combines."""
    if not isinstance(e, Binary) or e.op not in _CHAINS or not e.dtype.is_float:
        return [e], list(operands(e))
    nodes: list[Expr] = [e]
    leaves: list[Expr] = []
    for x in (e.a, e.b):
        if isinstance(x, Binary) and _CHAINS.get(x.op) == _CHAINS[e.op]:
            inner, below = chain(x)
            nodes, leaves = nodes + inner, leaves + below
        else:
            leaves.append(x)
    return nodes, leaves


def products(e: Expr, leaves: Sequence[Expr], n: float) -> float:
    """Returns how many of the `n` operations of a chain are surely multiplications.

    `leaves`: the operands of the chain that ends in `e`. A compiler may add in place of a
    multiplication by a constant (2 x is x + x), and each operand that may be one spares at most one.
    """
    if not isinstance(e, Binary) or e.op != "mul":
        return 0.0
    return max(0.0, n - sum(map(_may_be_constant, leaves)))


def _may_be_constant(e: Expr) -> bool:
    return not any(isinstance(x, Load | Param | Local | LocalElement) for x in walk(e))
