"""Induction scalars: integer arguments of calls that grow by a constant in each step of a repeated subsequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ir.affine import Affine, expression, to_affine
from ..ir.kernel import Const, Expr, LoopIndex
from ..ir.walk import walk

_LARGEST = 1 << 31  # numbers that may grow are smaller

Ints = NDArray[np.int64]


def uses_steps(numbers: Sequence[Expr]) -> bool:
    """True if some expressions depend on the step index of a repeat."""
    return any(isinstance(x, LoopIndex) for e in numbers for x in walk(e))


def at_steps(e: Expr, steps: Mapping[str, int]) -> Expr:
    """Returns `e` with the step index of each repeat replaced by the number `steps[name]`."""
    affine = to_affine(e) if uses_steps((e,)) else None
    if affine is None:
        return e
    return Const(affine.const + sum(k * steps[name] for name, k in affine.terms), e.dtype)


def growing(numbers: Sequence[Expr], growth: Mapping[str, tuple[int, ...]]) -> tuple[Expr, ...]:
    """Returns argument expressions in which integers grow from step to step of the enclosing repeats.

    `growth`: by step index, the growth in each step of every integer that may grow, in order.
    """
    made, n = list(numbers), 0
    for k, x in enumerate(numbers):
        value = _whole(x)
        if value is not None:
            terms = tuple(sorted((name, by[n]) for name, by in growth.items() if by[n]))
            made[k] = expression(Affine(value, terms), x.dtype)
            n += 1
    return tuple(made)


def by_form(calls: Sequence[tuple[Any, Sequence[Expr]]]) -> tuple[Ints, Ints]:
    """Returns the number of each call's form, and a table with one row of integers for each call.

    `calls`: callee and argument expressions of each call. Calls that differ only in integers that may grow have one form.
    """
    forms: dict[Any, int] = {}
    of_call, rows = [], list[list[int]]()
    for called, numbers in calls:
        values = [_whole(x) for x in numbers]
        others = [
            (x.dtype, "" if n is not None else repr(x))
            for x, n in zip(numbers, values, strict=True)
        ]
        of_call.append(forms.setdefault((called, tuple(others)), len(forms)))
        rows.append([n for n in values if n is not None])
    table = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return np.asarray(of_call, np.int64), table


def _whole(x: Expr) -> int | None:
    """Returns the value of an integer constant that may grow from step to step.

    None for any other expression.
    """
    if not isinstance(x, Const) or not x.dtype.is_index or abs(x.value) >= _LARGEST:
        return None
    return int(x.value)
