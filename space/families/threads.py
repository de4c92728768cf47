"""Thread mapping in a GPU block: the mid dims that threads share, and which of these varies fastest."""

from __future__ import annotations

from itertools import combinations

from ..backbone import MID, Dim
from ..draft import Draft, Family, all_but, bits
from ..engine.declarations import Term
from ..targets.kind import GPU
from .tiling import THREAD, kinds_of

NOT_THREADS, FASTER, SLOWER = range(3)
THREAD_LEVEL = (
    "NOT_THREADS",  # x and y are not both shared out to threads
    "INNER",  # x varies faster than y from one thread to the next
    "OUTER",  # x varies more slowly
)


def declare(s: Draft) -> None:
    for t in range(s.n_tasks):
        able = [d for d in s.dims_at(t, MID) if kinds_of(s, d) & bits(THREAD)]
        for d, e in combinations(able, 2):
            s.v.thread_level[d, e] = s.b.add("thread_level", (d.name, e.name), THREAD_LEVEL)


def levels_of_threads(a: int, b: int, level: int) -> bool:
    """True if two dims, of kinds `a` and `b`, have a thread level exactly if threads share both."""
    return (a == b == THREAD) == (level != NOT_THREADS)


def order_of_threads(ab: int, bc: int, ac: int) -> bool:
    return ab != bc or ab == NOT_THREADS or ac == ab


def opposite(level: int) -> int:
    """Returns the thread level of (y, x), given that of (x, y)."""
    return {FASTER: SLOWER, SLOWER: FASTER}.get(level, level)


def threads_of(s: Draft, t: int) -> list[Term]:
    """Returns the factors whose product is the number of threads of a task in a block."""
    v = s.v
    return [Term((v.kind[d], bits(THREAD)), v.size[d], v.universe[d]) for d in s.dims_at(t, MID)]


def blocks_of_threads(s: Draft) -> None:
    """Hardware: the threads of a block are limited. Coherence: the dims that they share have one order."""
    b, v = s.b, s.v
    for t, task in enumerate(s.problem.tasks):
        if terms := threads_of(s, t):
            limit = s.target.max_threads_per_block
            b.product_at_most(f"threads of {task.name}", terms, limit)
        third_axis(s, s.dims_at(t, MID))
    for (d, e), var in v.thread_level.items():
        rule = levels_of_threads
        b.table3("levels of threads", v.kind[d], v.kind[e], var, rule, share=rule)
        for f in (x for (y, x) in v.thread_level if y == e):
            levels = (var, v.thread_level[e, f], v.thread_level[d, f])
            b.table3("order of threads", *levels, order_of_threads, share=order_of_threads)


def third_axis(s: Draft, mids: list[Dim]) -> None:
    """Hardware: the slowest of three dims with threads lies along z of a block, whose size is limited.

    With more than three such dims there is no z: one flat number then counts the threads
    (`codegen/passes/map_grid.py`).
    """
    v, most = s.v, s.target.max_threads_along_z
    able = [d for d in mids if kinds_of(s, d) & bits(THREAD)]
    for d in (d for d in able if max(v.universe[d]) > most):
        fits = bits(*(k for k, n in enumerate(v.universe[d]) if n <= most))
        for faster in combinations([e for e in able if e != d], 2):
            literals = [(v.size[d], fits)]
            for e in faster:
                var, slower = level_between(s, d, e)
                literals.append((var, all_but(THREAD_LEVEL, slower)))
            rest = [f for f in able if f != d and f not in faster]
            literals += [(v.kind[f], bits(THREAD)) for f in rest]
            s.b.clause("threads along z", literals)


def level_between(s: Draft, d: Dim, e: Dim) -> tuple[int, int]:
    """Returns the thread-level choice of two dims, and the value that stands for threads of `d` varying more slowly."""
    if (d, e) in s.v.thread_level:
        return s.v.thread_level[d, e], SLOWER
    return s.v.thread_level[e, d], FASTER


FAMILY = Family("threads", {GPU: (blocks_of_threads,)}, declare)
