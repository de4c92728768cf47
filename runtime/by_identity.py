"""Weak dictionaries keyed by object identity."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """Dictionary from objects, by identity, to values. An entry is dropped when its object is deleted.

    A value that references its own object keeps the entry alive.
    """

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, x: K) -> V | None:
        """Returns the value of an object; None if it has none."""
        found = self._found.get(id(x))
        return None if found is None else found[1]

    def setdefault(self, x: K, value: V) -> V:
        """Returns the value of an object; first stores `value` if the object has none."""
        key = id(x)
        reference = weakref.ref(x, partial(_forget, self._found, key))
        return self._found.setdefault(key, (reference, value))[1]

    def remove(self, x: K) -> None:
        """Removes the value of an object."""
        self._found.pop(id(x), None)

    def items(self) -> list[tuple[K, V]]:
        """Returns the living objects with their values."""
        pairs = [(reference(), value) for reference, value in tuple(self._found.values())]
        return [(x, value) for x, value in pairs if x is not None]


class ByIdentities(Generic[V]):
    """Dictionary from tuples of objects, by identity, to at most `most` values; all are dropped for one more.

    An entry is dropped when one of its objects is deleted. Objects without weak references, such as numbers, are kept with it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: dict[tuple[int, ...], tuple[V, list[Any]]] = {}

    def get(self, xs: tuple[Any, ...]) -> V | None:
        """Returns the value of some objects; None if they have none."""
        found = self._found.get(tuple(map(id, xs)))
        return None if found is None else found[0]

    def set(self, xs: tuple[Any, ...], value: V) -> None:
        """Stores the value of some objects."""
        if len(self._found) >= self._most:
            self._found.clear()
        key = tuple(map(id, xs))
        forget = partial(_forget, self._found, key)
        self._found[key] = value, [_weakly(x, forget) for x in xs]

    def clear(self) -> None:
        """Drops all entries."""
        self._found.clear()


def _weakly(x: Any, forget: Callable[[Any], None]) -> Any:
    """Returns a reference to `x` that calls `forget` when it is deleted; `x` itself if there is no such reference."""
    try:
        return weakref.ref(x, forget)
    except TypeError:
        return x


def _forget(found: dict[Any, Any], key: object, _: object) -> None:
    """Drops an entry when its object is deleted, before another object can get the same identity."""
    found.pop(key, None)
