"""What is known of objects, by their identity."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """A value for each of some objects. It goes with its object, unless it holds that itself."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[weakref.ref[K], V]] = {}

    def get(self, x: K) -> V | None:
        """The value of an object, None where it has none."""
        found = self._found.get(id(x))
        return None if found is None else found[1]

    def setdefault(self, x: K, value: V) -> V:
        """The value of an object: this one where it had none."""
        key = id(x)
        reference = weakref.ref(x, partial(_forget, self._found, key))
        return self._found.setdefault(key, (reference, value))[1]

    def remove(self, x: K) -> None:
        """Forgets the value of an object."""
        self._found.pop(id(x), None)

    def items(self) -> list[tuple[K, V]]:
        """The objects that live, with their values."""
        pairs = [(reference(), value) for reference, value in tuple(self._found.values())]
        return [(x, value) for x, value in pairs if x is not None]


def _forget(found: dict[int, Any], key: int, _: object) -> None:
    """Before its memory, and so its identity, is another's."""
    found.pop(key, None)
