"""Partition of loops with uneven iterations among threads: static by the entries of rows, or dynamic (guided)."""

from __future__ import annotations

from ...kernels.analysis.inner_ranges import RowStarts
from ...kernels.ir.kernel import DType
from ...space.families.schedule import GUIDED_PARTS
from ..bodies.vectors import Prelude
from ..text import csyntax as c
from ..text.types import type_name

# Bisection for more work ends at or behind bisection for less, whatever the array holds: so parts never overlap.
_ROWS = """\
static inline long {name}(const {type} *p, long n, long step, long k, long parts) {{
    if (k <= 0 || n <= 0) return 0;
    if (k >= parts) return n;
    const int64_t all = (int64_t)((uint64_t)p[n] - (uint64_t)p[0] + (uint64_t)n);
    const int64_t wanted = all > 0 ? all / parts * k + all % parts * k / parts : 0;
    long lo = 0, hi = n;
    while (lo < hi) {{
        const long mid = lo + (hi - lo) / 2;
        if ((int64_t)((uint64_t)p[mid] - (uint64_t)p[0] + (uint64_t)mid) < wanted) lo = mid + 1;
        else hi = mid;
    }}
    return lo / step * step;
}}"""
_TAKE = """\
static inline long take_part(int64_t *next, long n, long step, long parts, long *end) {
    int64_t at = __atomic_load_n(next, __ATOMIC_RELAXED), to;
    do {
        if (at >= n) return n;
        const long most = (n - at) / parts / step * step;
        to = at + (most > step ? most : step);
    } while (!__atomic_compare_exchange_n(next, &at, to, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    *end = to < n ? to : n;
    return at;
}"""


def equal(n: c.CExpr, unit: int) -> c.CExpr:
    """Returns the most iterations that one thread of a team runs out of `n`, rounded up to a multiple of `unit`."""
    n_threads = c.Id("n_threads")
    each = c.Bin("/", c.Bin("-", c.Bin("+", n, n_threads), c.Num("1")), n_threads)
    if unit == 1:
        return each
    return c.Bin(
        "*", c.Bin("/", c.Bin("+", each, c.number(unit - 1)), c.number(unit)), c.number(unit)
    )


def balanced(
    prelude: Prelude, array: c.CExpr, dtype: DType, rows: RowStarts, n: c.CExpr, step: int
) -> tuple[c.CExpr, c.CExpr]:
    """Returns begin and end of a thread's range of `n` iterations (rows), balanced by rows and their entries.

    They are multiples of `step`. Each row and each of its entries counts as one unit of work
    (Merrill and Garland, Merge-based parallel sparse matrix-vector multiplication, SC 2016).
    `array` holds the starts of rows. Its contents affect only the balance: the ranges cover all
    iterations anyway.
    """
    name = f"part_of_rows_{dtype.name}"
    text = _ROWS.format(name=name, type=type_name(dtype, 0))
    prelude.defined.setdefault(name, text)
    first = c.Un("&", c.Index(array, c.number(rows.offset)))

    def begin(k: c.CExpr) -> c.CExpr:
        return c.Call(name, (first, n, c.number(step), k, c.Id("n_threads")))

    return begin(c.Id("tid")), begin(c.Bin("+", c.Id("tid"), c.Num("1")))


def guided(
    prelude: Prelude, counter: c.CExpr, n: c.CExpr, step: int, names: tuple[str, str]
) -> tuple[tuple[c.CStmt, ...], c.CExpr, c.CStmt]:
    """Returns pieces of a loop in which a thread takes parts: declarations, condition, and the step to the next part.

    `counter`: the first iteration not taken yet, initially 0. `n`: number of iterations. `step`:
    parts are multiples of it. `names`: C names of begin and end of a part. A part's size is a
    thread's share of the remaining iterations (guided self-scheduling: Polychronopoulos and Kuck,
    IEEE Trans. Computers 36, 1987).
    """
    prelude.defined.setdefault("take_part", _TAKE)
    begin, end = names
    parts = c.Bin("*", c.number(GUIDED_PARTS), c.Id("n_threads"))
    taken = c.Call("take_part", (counter, n, c.number(step), parts, c.Un("&", c.Id(end))))
    opening = (c.Declare("long", end, c.Num("0")), c.Declare("long", begin, taken))
    return opening, c.Bin("<", c.Id(begin), n), c.Assign(c.Id(begin), taken)
