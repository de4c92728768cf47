"""Plan bank: default plans of windows of calls, by signature. A plan is one kernel for all calls, decided by rules.

It is built in the background from the second time on that a window is met, and kept by content as all kernels are.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from ...kernels.ir.kernel import For, KernelIR
from ...kernels.transforms.merged_calls import merged
from ..api.backend import AbstractCaller
from . import current_engine
from .folder import CompileError

_LEAST_TIMES = 2  # that a window is met before its plan is built
_MOST_PLANS = 256

Pattern = tuple[tuple[int, ...], ...]  # for each array of each call its number


@dataclass(eq=False)
class WindowPlan:
    """The plan of windows of one signature. `ir`: the kernel of all calls, None where there is none, or not yet."""

    kernels: tuple[KernelIR, ...]
    pattern: Pattern
    n_met: int = 0
    is_usable: bool = True
    n_loops: int = 0  # outermost ones of the plan
    _quick: AbstractCaller | None = field(default=None, repr=False)
    _merging: Future[KernelIR | None] | None = field(default=None, repr=False)

    def caller(self) -> AbstractCaller | None:
        """Returns the caller of the plan: all arrays by their numbers, then all scalars. None while it is built, or without one."""
        if self._quick is not None:
            return self._quick
        self.n_met += 1
        if not self.is_usable or self.n_met < _LEAST_TIMES:
            return None
        engine = current_engine()
        if self._merging is None:
            self._merging = engine.submit(partial(_begun, self.kernels, self.pattern))
        if not self._merging.done():
            return None
        return self._prepared(self._merging.result(), waits=False)

    def complete(self) -> None:
        """Waits for the plan, if it is being built."""
        if self._merging is not None:
            self._prepared(self._merging.result(), waits=True)

    def refuse(self) -> None:
        """Makes its windows run call by call from now on."""
        self.is_usable, self._quick = False, None

    @property
    def ir(self) -> KernelIR | None:
        """The kernel of all calls; None where there is none, or not yet."""
        done = self._merging is not None and self._merging.done()
        return self._merging.result() if done and self._merging is not None else None

    def _prepared(self, ir: KernelIR | None, *, waits: bool) -> AbstractCaller | None:
        engine = current_engine()
        if ir is None:
            self.is_usable = False
            return None
        if not waits and not engine.prepare((ir,)):
            return None
        self.n_loops = sum(isinstance(s, For) for s in ir.body)
        try:
            caller = engine.prepared(ir)
            self._quick = engine.quick(ir)
            return caller
        except CompileError as e:
            self.is_usable = False
            warnings.warn(f"a window of calls runs call by call: {e}", RuntimeWarning, stacklevel=2)
            return None


def _begun(kernels: Sequence[KernelIR], pattern: Pattern) -> KernelIR | None:
    """Returns the kernel of all calls, whose code is being compiled."""
    ir = merged(kernels, pattern)
    if ir is not None:
        current_engine().prepare((ir,))
    return ir


class PlanBank:
    """Plans of the windows that a program has met. The kernels of a signature live as long as its plan."""

    def __init__(self) -> None:
        self._plans: dict[tuple[tuple[int, ...], Pattern], WindowPlan] = {}

    def plan(self, kernels: tuple[KernelIR, ...], pattern: Pattern) -> WindowPlan | None:
        """Returns the plan of a window; None where there are too many."""
        key = tuple(map(id, kernels)), pattern
        found = self._plans.get(key)
        if found is None and len(self._plans) < _MOST_PLANS:
            found = self._plans[key] = WindowPlan(kernels, pattern)
        return found

    def complete(self) -> None:
        """Waits for all plans that are being built."""
        for plan in tuple(self._plans.values()):
            plan.complete()

    def clear(self) -> None:
        """Forgets all plans."""
        self._plans.clear()
