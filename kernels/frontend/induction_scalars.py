"""Induction scalars: call arguments of a sequence that grow by a constant from step to step of a repeat."""

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
    """True if some of these numbers depend on step indices."""
    return any(isinstance(x, LoopIndex) for e in numbers for x in walk(e))


def at_steps(e: Expr, steps: Mapping[str, int]) -> Expr:
    """The number with the step indices of repeats replaced by `steps`, by index name."""
    affine = to_affine(e) if uses_steps((e,)) else None
    if affine is None:
        return e
    return Const(affine.const + sum(k * steps[name] for name, k in affine.terms), e.dtype)


def growing(numbers: Sequence[Expr], growth: Mapping[str, tuple[int, ...]]) -> tuple[Expr, ...]:
    """The numbers, with `growth` added: for each step index the growth of each integer in order."""
    made, n = list(numbers), 0
    for k, x in enumerate(numbers):
        value = _whole(x)
        if value is not None:
            terms = tuple(sorted((name, by[n]) for name, by in growth.items() if by[n]))
            made[k] = expression(Affine(value, terms), x.dtype)
            n += 1
    return tuple(made)


def by_form(calls: Sequence[tuple[Any, Sequence[Expr]]]) -> tuple[Ints, Ints]:
    """The form of each call, numbered, and a table with the integers of each call in a row.

    Each of `calls` is a callee and its numbers. Two calls have the same form if they differ only in integers that may grow.
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
    """The value of an integer that may grow from step to step; None for any other number."""
    if not isinstance(x, Const) or not x.dtype.is_index or abs(x.value) >= _LARGEST:
        return None
    return int(x.value)
