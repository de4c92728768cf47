"""`ks.repeat`: a loop of Python around kernels that an array may end, at once and in recorded sequences."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..fields.field import AbstractLeaf
from ..fields.host_access import settle
from ..fields.ndarray import Ndarray
from ..ir.kernel import Location
from .dispatch import chosen
from .errors import LanguageError
from .recorder import current_recorder
from .symbols import SymbolicArray


def repeat(count: int, *, until: Any) -> Iterator[int]:
    """Returns the steps 0, 1, ... of a loop, which ends after the step that leaves array `until` other than 0.

    It ends after `count` steps at the latest. `until` has one integer, which a kernel of the loop writes. In a sequence all steps
    make the same calls; they are recorded, explored and generated once, and generated code tests the array after each step.
    """
    frame = sys._getframe(1)
    where = Location(frame.f_code.co_filename, frame.f_lineno)
    try:
        n = operator.index(count)
    except TypeError:
        raise LanguageError(
            f"ks.repeat takes a number of steps, not {count!r:.60}", where
        ) from None
    if n < 0:
        raise LanguageError(f"ks.repeat takes a number of steps from 0, not {n}", where)
    flag = _flag(until, where)
    recorder = current_recorder()
    if recorder is None:
        return _steps(n, flag)
    if chosen() is not recorder:
        raise LanguageError(
            "ks.repeat is inside of a tape of a sequence: the steps back would not end as those forward, use range",
            where,
        )
    return recorder.steps_until(n, flag, where)


def _steps(count: int, flag: Any) -> Iterator[int]:
    """Yields the steps of a loop whose kernels run."""
    for step in range(count):
        yield step
        settle()
        if flag.any():
            return


def _flag(until: Any, where: Location) -> Any:
    """Returns the array that ends a loop. LanguageError if it has not one integer."""
    array = until
    if isinstance(until, AbstractLeaf):
        if until.cells is not None:
            raise LanguageError("a sparse field cannot end a ks.repeat: take a dense one", where)
        array = until.storage
    elif isinstance(until, Ndarray):
        array = until.array
    is_view = isinstance(array, SymbolicArray) and array.base is not None
    is_flag = isinstance(array, np.ndarray | SymbolicArray) and array.size == 1 and not is_view
    if not is_flag or array.dtype.kind not in "iub":
        is_array = isinstance(array, np.ndarray | SymbolicArray)
        found = f"{until!r:.60}"
        if is_array:
            found = "a part of another one" if is_view else f"{array.dtype} of shape {array.shape}"
        raise LanguageError(
            f"ks.repeat ends by an array of one integer, such as ks.ndarray(ks.i32, 1), and until= is {found}",
            where,
        )
    return array
