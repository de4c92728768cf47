"""Weak dictionary keyed by object identity."""

from __future__ import annotations

import weakref
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


def _forget(found: dict[int, Any], key: int, _: object) -> None:
    """Drops an entry when its object is deleted, before another object can get the same identity."""
    found.pop(key, None)
