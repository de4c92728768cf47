"""Refusal of calls, on a tape, that change the active cells over which an earlier call loops.

An adjoint loops over the cells that are active when it runs, so it would visit others than its call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..kernels.frontend.derivatives import count_call, has_adjoint
from ..kernels.frontend.dispatch import Executor
from ..kernels.frontend.instance import KernelCall
from ..kernels.frontend.recorder import ndarray
from ..kernels.ir.errors import LanguageError
from ..kernels.ir.kernel import Activate, Append, Deactivate, DType, ForActive
from ..kernels.ir.walk import nested_statements


class ChangedCells:
    """The loops over active cells of the calls of a tape."""

    def __init__(self) -> None:
        self._loops: list[tuple[KernelCall, ForActive]] = []

    @contextmanager
    def around(self, call: KernelCall, behind: Executor) -> Iterator[None]:
        """Context in which a call runs: raises LanguageError if it changes the number of cells of an earlier loop.

        Nothing is counted for calls whose statements change no cells.
        """
        every = tuple(nested_statements(call.instance.ir.body))
        changes = [s for s in every if isinstance(s, Activate | Append | Deactivate)]
        trees = {s.tree for s in changes}
        known = dict(call.instance.structures)
        earlier = [
            (c, s)
            for c, s in self._loops
            if any(known[t] is dict(c.instance.structures)[s.tree] for t in trees)
        ]
        before = [self._count(c, s, behind) for c, s in earlier]
        yield
        for (c, s), n in zip(earlier, before, strict=True):
            if self._count(c, s, behind) != n:
                raise LanguageError(
                    f"the kernel {call.instance.ir.name} changes the active cells over which {c.instance.ir.name} loops, and an"
                    " adjoint loops over those that are active when it runs: activate cells before the first kernel of the tape",
                    call.where,
                )
        self._add(call)

    def _add(self, call: KernelCall) -> None:
        """Adds the loops of a call, unless it has no adjoint or its loops are known."""
        loops = [s for s in nested_statements(call.instance.ir.body) if isinstance(s, ForActive)]
        if not loops:
            return
        try:
            if not has_adjoint(call):
                return
        except LanguageError:  # the tape may have no gradients: its end says so where it has
            return
        have = dict(call.instance.structures)
        for s in loops:
            if not any(
                s.node == k.node and have[s.tree] is dict(c.instance.structures)[k.tree]
                for c, k in self._loops
            ):
                self._loops.append((call, s))

    def _count(self, call: KernelCall, loop: ForActive, behind: Executor) -> int:
        found = ndarray(DType.i32, (1,))
        structure = dict(call.instance.structures)[loop.tree]
        behind.run(count_call(call, loop, structure, found.array))
        return int(found.array[0])
