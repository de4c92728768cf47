"""Strip-mined element-wise loops: vectors as wide as a register, then the remaining elements one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..text import csyntax as c

Body = Callable[[int], tuple[c.CStmt, ...]]
"""Body of a loop, for vectors of so many lanes; 0: for one element."""


def strips(
    name: str, lo: c.CExpr, hi: c.CExpr, lanes: int, body: Body, is_whole: bool = False
) -> tuple[c.CStmt, ...]:
    """Returns loops from `lo` to `hi`: in vectors of `lanes` elements, then the remaining elements one by one.

    `body`: gives the code of one vector. `is_whole`: the vectors leave no remainder.
    """
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
    """Returns begin and end of a thread's part of the range `lo` to `hi`, in units of `unit` elements.

    The last unit may exceed the range.
    """
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
    """Returns `hi - lo` if it is a constant, otherwise None."""
    (before, first), (behind, last) = c.flatten(lo), c.flatten(hi)
    terms: Counter[c.CExpr] = Counter()
    for x, k in behind:
        terms[x] += k
    for x, k in before:
        terms[x] -= k
    return None if any(terms.values()) else last - first
