"""Memoisation by object: results that belong to one immutable value are computed once for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def per_object(function: Callable[[T], R]) -> Callable[[T], R]:
    """Returns `function`, which stores its result in its argument, as `cached_property` does from inside of a class.

    A table by value would hash a task with its whole body for each question. Long programs ask thousands of times.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def found(x: T) -> R:
        known: dict[str, Any] = vars(x)
        if name not in known:
            known[name] = function(x)
        result: R = known[name]
        return result

    return found
