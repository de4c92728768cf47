"""Memoisation by object: a function's result for an immutable argument is stored in the argument itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def per_object(function: Callable[[T], R]) -> Callable[[T], R]:
    """Returns `function` with memoisation: its result is stored in its argument, like a `cached_property`.

    A table by value would hash a task with its whole body at each call. Long programs have thousands of calls.
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
