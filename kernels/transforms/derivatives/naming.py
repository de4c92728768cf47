"""Unused names for locals, loops and arrays that derivatives add to a kernel."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.kernel import For, ForActive, KernelIR
from ...ir.walk import local_changed, nested_statements


class Names:
    """All names of a kernel, and a generator of unused ones for locals, loops and arrays."""

    def __init__(self, ir: KernelIR, taken: Iterable[str] = ()) -> None:
        self._taken = {p.name for p in ir.arrays} | {p.name for p in ir.scalars} | set(taken)
        for s in nested_statements(ir.body):
            self._taken.add(local_changed(s))
            if isinstance(s, For):
                self._taken.add(s.loop)
            elif isinstance(s, ForActive):
                self._taken.update(s.loops)
        self._next: dict[str, int] = {}

    def fresh(self, stem: str) -> str:
        """Returns an unused name: `stem`, or `stem` with a number."""
        name, k = stem, self._next.get(stem, 0)
        while name in self._taken:
            k += 1
            name = f"{stem}_{k}"
        self._next[stem] = k
        self._taken.add(name)
        return name
