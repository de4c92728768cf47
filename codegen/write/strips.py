"""Element-wise loops in vectors: strips as wide as a register, and one by one what they leave over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..text import csyntax as c

Body = Callable[[int], tuple[c.CStmt, ...]]
"""What a loop holds, for vectors of so many lanes; 0: for one element."""


def strips(
    name: str, lo: c.CExpr, hi: c.CExpr, lanes: int, body: Body, is_whole: bool = False
) -> tuple[c.CStmt, ...]:
    """Loops that together run from `lo` to `hi`, in vectors of at most `lanes` elements; `is_whole`: nothing is left over."""
    length = length_of(lo, hi)
    while length is not None and lanes > length:
        lanes //= 2
    if lanes < 2:
        return (c.For(name, lo, hi, 1, body(0)),)
    if is_whole or (length is not None and length % lanes == 0):
        return (c.For(name, lo, hi, lanes, body(lanes)),)
    if length is None:
        n = c.number(lanes)
        whole: c.CExpr = c.Bin("*", c.Bin("/", c.minus(hi, lo), n), n)
    else:
        whole = c.number(length // lanes * lanes)
    last = c.add(lo, whole)
    return (c.For(name, lo, last, lanes, body(lanes)), c.For(name, last, hi, 1, body(0)))


def own_part(lo: c.CExpr, hi: c.CExpr, unit: int) -> tuple[c.CExpr, c.CExpr]:
    """What a thread has of a range that its team goes through, in units of so many elements; the last unit may reach beyond it."""
    length = length_of(lo, hi)
    units: c.CExpr
    if length is not None:
        units = c.number(-(-length // unit))
    elif unit == 1:
        units = c.Bin("-", hi, lo)
    else:
        units = c.Bin("/", c.linear(((c.Bin("-", hi, lo), 1),), unit - 1), c.number(unit))

    def place(thread: c.CExpr) -> c.CExpr:
        part = c.Bin("/", c.Bin("*", units, thread), c.Id("n_threads"))
        return c.add(lo, part if unit == 1 else c.Bin("*", part, c.number(unit)))

    return place(c.Id("tid")), place(c.Bin("+", c.Id("tid"), c.Num("1")))


def length_of(lo: c.CExpr, hi: c.CExpr) -> int | None:
    """`hi - lo` where it is a number."""
    (before, first), (behind, last) = c.flatten(lo), c.flatten(hi)
    terms: Counter[c.CExpr] = Counter()
    for x, k in behind:
        terms[x] += k
    for x, k in before:
        terms[x] -= k
    return None if any(terms.values()) else last - first
