"""Safe speculation: expressions that may be evaluated in iterations in which the program does not evaluate them.

They access no element outside of an array, and divide no integer by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from ..ir.access import ALWAYS, maps_of
from ..ir.affine import index_range, limits
from ..ir.domain import Loop
from ..ir.kernel import Binary, Const, Expr, Load, Select
from ..ir.ops import DIVISIONS
from ..ir.task import Problem, Task
from ..ir.walk import children, loads, walk
from .conflicts import is_injective

Shape = Callable[[str], tuple[int, ...]]
"""The shape of an array, by name."""


def is_safe(e: Expr, loops: Sequence[Loop], shape: Shape) -> bool:
    """True if evaluating `e` in every iteration of `loops` leaves no array and divides no integer by zero."""
    return all(_is_safe_node(x, loops, shape) for x in walk(e))


def is_safe_where_wanted(e: Expr, loops: Sequence[Loop], shape: Shape) -> bool:
    """True if all of `e`, also its parts under conditions, may be evaluated wherever its value is needed."""
    return all(_is_safe_node(x, loops, shape) for part in _unsure(e) for x in walk(part))


def may_blend(task: Task, problem: Problem) -> bool:
    """True if a guarded task may store in all of its iterations, with the old value where its guard is false.

    Its reads and its target are inside of their arrays in all iterations.
    No other iteration stores to the element that gets its old value again.
    """
    assert task.value is not None
    lengths = {loop.name: loop.extent for loop in task.scope}
    for axis, n in zip(task.target.axes, problem.array(task.target.array).shape, strict=True):
        low, high = (-1, 0) if axis is None else index_range(axis, lengths)
        if low < 0 or high >= n:
            return False
    if not is_injective(maps_of(task.target.axes), ALWAYS, task.scope, ()):
        return False
    names = dict.fromkeys(load.array for load in loads(task.value))
    shapes = tuple((name, problem.array(name).shape) for name in names)
    return _is_safe_value(task.value, task.scope, shapes)


@lru_cache(maxsize=1 << 12)  # long programs are made of few different tasks
def _is_safe_value(
    value: Expr, loops: tuple[Loop, ...], shapes: tuple[tuple[str, tuple[int, ...]], ...]
) -> bool:
    return is_safe(value, loops, dict(shapes).__getitem__)


def _unsure(e: Expr) -> Iterator[Expr]:
    """Yields the subexpressions of `e` that are evaluated only for some values of the conditions in `e`."""
    match e:
        case Select():
            yield e.a
            yield e.b
            yield from _unsure(e.condition)
        case Binary(op="and" | "or"):
            yield e.b
            yield from _unsure(e.a)
        case _:
            for part in children(e):
                yield from _unsure(part)


def _is_safe_node(e: Expr, loops: Sequence[Loop], shape: Shape) -> bool:
    match e:
        case Load(array=array, indices=indices):
            extents = {loop.name: loop.extent for loop in loops}
            for index, n in zip(indices, shape(array), strict=True):
                known = limits(index, extents)
                if known is None or known[0] < 0 or known[1] >= n:
                    return False
        case Binary(op=op, b=b, dtype=dtype) if op in DIVISIONS and dtype.is_integer:
            return isinstance(b, Const) and b.value not in (0, -1)
    return True
