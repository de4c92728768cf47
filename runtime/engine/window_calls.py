"""Calls of a window with numbered arrays and trees, and the period with which calls repeat."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING, Any

from ...kernels.sparse.recorded import WindowCall

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.fields.tree import Structure


def window_calls(
    kernels: Sequence[Any],
) -> tuple[tuple[WindowCall, ...], tuple[Any, ...], tuple[Structure, ...]]:
    """Returns the calls of a window, each of a kernel with its arrays, and the arrays and trees that they refer to by number."""
    arrays, trees = _Numbered(), _Numbered()
    found = []
    for kernel in kernels:
        x = kernel.instance
        used = tuple((trees.number(s), s.layout) for _, s in x.structures)
        found.append(
            WindowCall(kernel.ir, tuple(map(arrays.number, kernel.arrays)), x.logical, used)
        )
    return tuple(found), tuple(arrays.found), tuple(trees.found)


class _Numbered:
    """Numbering of objects by identity, from 0 in the order of first use."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self._numbers: dict[int, int] = {}

    def number(self, x: Any) -> int:
        """Returns the number of an object; a new one at its first use."""
        n = self._numbers.setdefault(id(x), len(self.found))
        if n == len(self.found):
            self.found.append(x)
        return n


def period_of(calls: Sequence[object], least: int, *, is_whole: bool) -> int:
    """Returns the number of calls in the shortest period, which repeats from the first call on.

    `calls`: the kernel of each, with its arrays. If a period has fewer than `least` calls, a multiple of it. If no calls can follow
    (`is_whole`), all calls are one period unless they are at least twice `least`.
    """
    if is_whole and len(calls) < 2 * least:
        return len(calls)

    def is_repeated(n: int) -> bool:
        return all(map(is_, calls, calls[n:]))

    found = next((n for n in range(1, len(calls) // 2 + 1) if is_repeated(n)), len(calls))
    n_times = min(max(1, least // found), len(calls) // found)
    return found * n_times


def head_of(calls: Sequence[object]) -> int:
    """Returns the number of calls before a stream of periods that goes on up to the last call; 0 without such a stream.

    A stream has at least half of the calls, and two periods.
    """
    n = len(calls)
    for period in range(1, n // 2 + 1):
        first = n - period
        while first > 0 and calls[first - 1] is calls[first - 1 + period]:
            first -= 1
        if first <= min(n // 2, n - 2 * period):
            return first
    return 0
