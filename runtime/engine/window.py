"""Window: deferred calls of kernels, in program order, until their code is compiled.

The first call of a kernel does not stop the program while a compiler runs: it is deferred, with all calls after it, and their
kernels are compiled in parallel. A deferred call runs at the first later call at which its code is loaded, or when Python needs
values of it or of a call behind it. Calls whose errors, prints or results the program could miss are never deferred.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...kernels.frontend.dispatch import AbstractDeferringExecutor, Caller
from ...kernels.frontend.lowering import lowered, lowered_call
from ...kernels.ir.kernel import Assert, KernelIR, Print
from ...kernels.ir.walk import nested_statements
from ..by_identity import ByIdentity
from ..records.signature import number
from . import current_engine
from .held_memory import conflicts

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.fields.accessed_memory import HostAccess
    from ...kernels.frontend.instance import KernelCall

_MOST_HELD = 64  # calls: a loop of Python around them has then met all of its kernels


class DeferralWindow(AbstractDeferringExecutor):
    """Executor that defers calls on fields while their code, or that of an earlier deferred call, is compiled."""

    repeats = False
    # Each call looks at this. It is changed with the lock, and true whenever a call is held, also after an interrupt.
    waits = False

    def __init__(self) -> None:
        self._held: deque[KernelCall] = deque()
        self._said = ByIdentity[KernelIR, frozenset[type]]()
        self._lock = threading.RLock()
        _windows.add(self)

    def run(self, call: KernelCall) -> Any:
        engine, plain = current_engine(), lowered_call(call)
        ir = plain.instance.ir
        is_ready = engine.prepare((ir,))
        if (self.waits or not is_ready) and self.may_wait(plain):
            for p, x in zip(ir.scalars, plain.scalars.values(), strict=True):
                number(p, x)  # its error is that of this call
            with self._lock:
                self.waits = True
                self._held.append(plain)
            self._run_ready()
            return None
        self.release()
        engine.run(ir, *plain.in_order)
        return call.result()

    def missing(self, calls: Iterable[KernelCall]) -> KernelCall | None:
        """Returns the first of these calls for whose code `run` might wait, if they run in order; None if it waits for none."""
        engine, n_held = current_engine(), len(self._held)
        for call in calls:
            plain = lowered_call(call)
            if n_held or self.waits or not engine.prepare((plain.instance.ir,)):
                if n_held >= _MOST_HELD or not self.may_wait(plain):
                    return call
                n_held += 1
        return None

    def settle(self, call: KernelCall) -> None:
        """Runs the deferred calls, then waits for the code of this one. No lock is held while it waits."""
        self.release()
        current_engine().prepared(lowered(call.instance).ir)

    def caller(self, call: KernelCall) -> Caller | None:
        return current_engine().quick(lowered(call.instance).ir)

    def deferring(self, call: KernelCall) -> Caller | None:
        return None

    def again(self, kernel: object, args: tuple[Any, ...]) -> bool:
        return False

    def give_way(self) -> bool:
        return False  # a call that could run at once may be deferred behind others

    def outdate(self) -> None:
        """No effect: deferred calls hold references to the arrays of their own fields."""

    def release(self) -> None:
        while self._held:
            self._run_first()
        if self.waits:
            with self._lock:
                self.waits = bool(self._held)

    def release_for(self, access: HostAccess) -> None:
        while self._conflicts(access):
            self._run_first()

    def _conflicts(self, access: HostAccess) -> bool:
        """True if a deferred call conflicts with `access`; waits for one that another thread runs."""
        with self._lock:
            return any(conflicts(c.instance.ir, c.in_order[0], access) for c in self._held)

    def end(self) -> None:
        """Drops the deferred calls, since the fields that they write are deleted."""
        with self._lock:
            self._held.clear()
            self.waits = False

    def start(self) -> None:
        current_engine().start()

    def go_on_in_child(self) -> None:
        """Makes a new lock in a child of fork(): the thread that held the old one may not exist there."""
        self._lock = threading.RLock()

    def _run_ready(self) -> None:
        """Runs deferred calls from the first on, as long as their code is loaded or too many are deferred."""
        engine = current_engine()
        while self._held:
            first = self._first()
            if first is None:
                return
            if len(self._held) <= _MOST_HELD and not engine.prepare((first.instance.ir,)):
                return
            self._run_first()

    def _first(self) -> KernelCall | None:
        try:
            return self._held[0]
        except IndexError:  # another thread has run it
            return None

    def _run_first(self) -> None:
        """Runs the first deferred call.

        It waits for the code without holding the lock, which a call by a finalizer in a compiling thread may need.
        """
        engine, call = current_engine(), self._first()
        try:
            if call is not None:
                engine.prepared(call.instance.ir)
        except Exception:
            with self._lock:
                self._drop(call)
                self.waits = bool(self._held)
            raise
        with self._lock:
            try:
                if call is not None and self._drop(call):
                    engine.run(call.instance.ir, *call.in_order)
            finally:
                self.waits = bool(self._held)  # until then other threads wait for its values

    def _drop(self, call: KernelCall | None) -> bool:
        """Removes the first deferred call if it is `call`. Returns True if it was removed."""
        with self._lock:
            is_first = bool(self._held) and self._held[0] is call
            if is_first:
                self._held.popleft()
            return is_first

    def may_wait(self, call: KernelCall, *, fails: bool = False) -> bool:
        """True if the call can be deferred: only kernels use its arrays, and it neither prints nor fails.

        With `fails` it may fail with an assertion, which `release` then raises.
        """
        instance = call.instance
        own = {name for name, x in instance.fields if not x.is_lent}
        if not all(a.name in own for a in instance.ir.arrays):
            return False
        found = self._said.get(instance.ir)
        if found is None:
            found = self._said.setdefault(instance.ir, _said(instance.ir))
        return not found or (fails and found == {Assert})


def _said(ir: KernelIR) -> frozenset[type]:
    """Returns the kinds of output of a kernel that a program can notice: prints, assertions, index errors."""
    found: set[type] = {
        type(s) for s in nested_statements(ir.body) if isinstance(s, Print | Assert)
    }
    if Print not in found and current_engine().options.checks_indices:
        from ...kernels.tasks.bounds_check import first_outside
        from .building import index_sites

        if first_outside(ir) is not None or index_sites(ir)[1]:
            found.add(IndexError)
    return frozenset(found)


_windows: weakref.WeakSet[DeferralWindow] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for window in tuple(_windows):
        window.go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)
