"""Planned window, `ks.init(async_mode=True)`: deferred calls, run by one plan when Python needs their values.

A window (the deferred calls) ends at `ks.sync`, at a call that cannot be deferred, at a limit, where Python reads memory that they
write or writes memory that they use, or when it equals the window expected next: programs repeat themselves. Calls that repeat
within a window are windows of their own. A window that runs again gets a plan (plan_bank.py); without one the calls run one by
one, short ones some at once, which a signal waits for. A call is known by its kernel and the objects that it is given, whatever
its numbers. A window that follows itself may begin some calls later (rotation.py). Of several windows that followed a window, the
calls say which one it is.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import starmap, takewhile
from operator import call as apply
from operator import is_
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...kernels.fields.caller_location import caller
from ...kernels.frontend.dispatch import AbstractDeferringExecutor, Caller
from ...kernels.frontend.lowering import lowered_call
from ..by_identity import ByIdentities, ByIdentity
from . import current_engine
from .held_memory import HeldMemory
from .plan_bank import BoundPlan, PlanBank
from .ran_window import RanWindow, WindowRun
from .rotation import Rotation
from .waiting_kernel import Held, Known, Values, WaitingKernel, known_as, numbers_of, renewed
from .window import DeferralWindow
from .window_calls import head_of, period_of
from .window_stats import Stats

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.fields.accessed_memory import HostAccess
    from ...kernels.frontend.instance import KernelCall

_MOST_WINDOWS = 256
_AS_BEFORE = "a window that ran before"
_MOST_CALLS = 1024  # that are known by their arguments
_AT_ONCE = 16  # calls without a plan between which no signal is handled, where they are short
_SHORT_S = 1e-3  # of a window


Note = Callable[[WindowRun], None]


class PlannedWindow(AbstractDeferringExecutor):
    """Executor that defers calls on fields of the program, at most `limit` per window, and runs them by plans.

    `behind`: executor of calls without a plan. `least_calls`: windows with fewer calls span several periods of a program that
    repeats itself. `note`: called after each run of a window. `plans`: False for no plans.
    """

    behind: DeferralWindow
    holds_accesses = True

    def __init__(
        self,
        behind: DeferralWindow,
        limit: int,
        *,
        least_calls: int = 8,
        plans: bool = True,
        note: Note | None = None,
    ) -> None:
        self.behind, self._limit, self._least_calls = behind, limit, least_calls
        self._note, self._why = note, ""
        # Numbers of deferred calls behind which Python accessed fields or made a call that cannot wait; with `note`.
        self._cuts: set[int] = set()
        self._has_plans = plans
        # A call leaves it once it has run, or once nobody could tell that it has not.
        self._held: list[Held] = []
        self._memory = HeldMemory()  # of the deferred calls
        self._is_running = False  # deferred calls, on the thread that has the lock
        self._expected: RanWindow | None = None
        self._follows = True  # the held calls are the first ones of `_expected`
        self._before: RanWindow | None = None
        self._rotation: Rotation[RanWindow] | None = None  # that the program follows
        self._n_rest = 0  # calls that stay deferred behind the windows that run now
        self._ran: dict[tuple[WaitingKernel, ...], RanWindow] = {}
        # By instance: equal kernels are of other fields.
        self._kernels = ByIdentity[Any, WaitingKernel]()
        self._known = ByIdentities[Held](_MOST_CALLS)  # by a program's kernel and arguments
        self._is_on_trees = False  # some kernel that has waited
        self._is_short = False  # the last window that ran call by call
        self.plans = PlanBank()
        self._stats = Stats()
        self._lock = threading.RLock()
        _windows.add(self)

    @property
    def stats(self) -> Stats:
        """The counts of the program."""
        with self._lock:
            self._count()
            return self._stats

    @property
    def waits(self) -> bool:
        # With `note` each access counts, also one between two windows.
        is_noted = self._note is not None
        return bool(self._held) or self._is_running or self.behind.waits or is_noted

    def run(self, call: KernelCall) -> Any:
        take = self.deferring(call)
        if take is not None:
            arrays, scalars = lowered_call(call).in_order
            if take(*arrays, *scalars):
                return None
        self._end("a call that cannot wait")
        self._cut()
        self._stats.n_at_once += 1
        return self.behind.run(call)

    def caller(self, call: KernelCall) -> Caller | None:
        return self.behind.caller(call)

    def deferring(self, call: KernelCall) -> Caller | None:
        plain = lowered_call(call)
        if not self.behind.may_wait(plain, fails=True):
            return None
        instance = plain.instance
        found = self._kernels.get(instance)
        if found is None or not all(map(is_, found.arrays, plain.in_order[0])):
            current_engine().prepare((instance.ir,))  # while the call waits
            self._kernels.remove(instance)
            kernel = WaitingKernel(plain, call.where, self.behind)
            if kernel.is_on_trees:
                self._is_on_trees = True
            found = self._kernels.setdefault(instance, kernel)
        return partial(self._take, found)

    def again(self, kernel: object, args: Values) -> bool:
        known: Known | None = None
        call: Held | None = None
        with self._lock:
            expected, held = self._expected if self._follows else None, self._held
            n = len(held)
            # An interrupt may have come before all of them ran, or their code may be missing.
            if expected is not None and n < len(expected.called):
                called = expected.called
                known = called[n]
                if known is not None and known[0] is kernel:
                    same, call = known[1], known[2]
                    # Of one or two arguments this is all.
                    is_same = not args or (args[0] is same[0] and args[-1] is same[-1])
                    if not is_same or (len(args) > 2 and not all(map(is_, args, same))):
                        call = renewed(args, known)
                    if call is not None:
                        held.append(call)
                        if n + 1 < len(called) or self._run_quickly(expected, _AS_BEFORE):
                            return True
            if call is not None:
                call = None  # it is deferred
            else:
                call = self._known.get((kernel, *args))
                if call is None:
                    return False
                if expected is None and n + 1 < self._limit:
                    held.append(call)
                    return True
                known = kernel, args, call, (), ()
                if expected is not None and n < len(expected.called) and n + 1 < self._limit:
                    self._hold(call, known)
                    expected = self._expected if self._follows else None
                    if expected is None or len(held) < len(expected.called):
                        return True
                    call = None
        self._take_up(call, known)
        return True

    def _take(
        self,
        held_as: WaitingKernel,
        *values: Any,
        kernel: object = None,
        args: Values = (),
        numbers: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Defers a call. False, without effect, if it is not on the same arrays, or if its numbers need conversion."""
        if not held_as.takes(values):
            return False
        call, known = (held_as, values), None
        if kernel is not None:
            known = known_as(kernel, args, call, held_as.numbers(numbers))
            if not numbers:
                self._known.set((kernel, *args), call)
        self._take_up(call, known)
        return True

    def _take_up(self, call: Held | None = None, known: Known | None = None) -> None:
        """Runs the deferred calls if they are a whole window, then defers `call` behind them.

        It waits for code without the lock: a thread that compiles may need the lock, since Python runs finalizers of the program
        in any thread.
        """
        while True:
            with self._lock:
                missing = self._run_whole()
                if missing is None and call is not None:
                    self._hold(call, known)
                    call, missing = None, self._run_whole()
            if missing is None:
                return
            self._settle(missing)

    def _hold(self, call: Held, known: Known | None) -> None:
        expected, held = self._expected, self._held
        if self._follows and expected is not None:
            if call[0] is not expected.kernels[len(held)]:
                expected = self._other(call[0])
                self._follows = expected is not None
                self._expected = expected or self._expected
            if expected is not None and known is not None:
                expected.called[len(held)] = known
        held.append(call)

    def _other(self, kernel: WaitingKernel) -> RanWindow | None:
        """Returns another window that may run behind the last one, and begins with the deferred calls and one of this kernel.

        None if there is none.
        """
        before, held = self._before, self._held
        if before is None or self._rotation is not None:
            return None
        n = len(held)
        others: tuple[RanWindow, ...] = (*before.behind, before)
        for x in others:
            own = x.kernels
            if n < len(own) and own[n] is kernel and x is not self._expected and x.begins(held):
                return x
        return None

    def _settle(self, call: KernelCall) -> None:
        """Waits for the code of a deferred call. An error drops all deferred calls."""
        try:
            self.behind.settle(call)
        except Exception:
            with self._lock:
                self._drop()
                self._follows = self._is_begun()
            raise

    def _drop(self) -> None:
        """Drops all deferred calls."""
        self._memory.clear()  # first: after an interrupt it is of no more calls than are deferred
        self._held = []

    def give_way(self) -> bool:
        self._end("a call that cannot wait")
        self._cut()
        return not self.behind.waits

    def release(self) -> None:
        if self._held or self._is_running:  # by another thread: its values are waited for
            self._end(f"Python, {caller()}")
        self._cut()
        self.behind.release()

    def release_for(self, access: HostAccess) -> None:
        if self._is_running or self._conflicts(access):
            self._end(access.says)
        self._cut()
        self.behind.release_for(access)

    def _cut(self) -> None:
        if self._note is not None:
            with self._lock:
                self._cuts.add(len(self._held))

    def _conflicts(self, access: HostAccess) -> bool:
        """True if a deferred call conflicts with `access`; waits for those that another thread runs."""
        with self._lock:
            return self._memory.conflicts(self._held, access)

    def outdate(self) -> None:
        with self._lock:
            self._forget()
            self._kernels = ByIdentity()  # which have arrays of fields

    def end(self) -> None:
        """Drops the deferred calls, since the fields that they write are deleted."""
        with self._lock:
            self._drop()
            self._forget()
            self._kernels = ByIdentity()
            self.plans.clear()
        self.behind.end()

    def start(self) -> None:
        self.behind.start()

    def go_on_in_child(self) -> None:
        """Resets lock and plans in a child of fork(): the threads that built plans are gone."""
        self._lock = threading.RLock()
        self._forget()
        stored = self.plans.stored
        self.plans = PlanBank(None if stored is None else stored.in_child())

    def _forget(self) -> None:
        self._expected, self._before, self._follows = None, None, True
        self._rotation = None
        self._count()
        self._known.clear()
        self._ran.clear()

    def _count(self) -> None:
        """Adds the runs of windows that are not counted yet to the counts of the program."""
        for ran in self._ran.values():
            ran.count(self._stats)

    # --- windows

    def _end(self, why: str) -> None:
        """Ends the window: runs its deferred calls."""
        while True:
            with self._lock:
                missing = self._run_held(why) if self._held and not self._is_running else None
            if missing is None:
                return
            self._settle(missing)

    # The next three run nothing if code is missing, and return the call of which it is.

    def _run_whole(self) -> KernelCall | None:
        """Runs the deferred calls if they are all of the expected window, or as many as the limit."""
        expected, n = self._expected, len(self._held)
        if self._follows and expected is not None:
            is_whole = n == len(expected.kernels)
            return self._run_window(expected, self._held[:], _AS_BEFORE) if is_whole else None
        is_full = n >= self._limit and not self._is_running
        return self._run_held("the limit", keeps_rest=True) if is_full else None

    def _run_held(self, why: str, *, keeps_rest: bool = False) -> KernelCall | None:
        """Runs the deferred calls; with `keeps_rest`, not an unfinished period at the end."""
        held = self._held[:]
        n = len(held)
        if n < 2 * self._least_calls and not keeps_rest:
            return self._run_window(self._window(held), held, why)
        missing = self._missing(held)
        if missing is not None:
            return missing
        kernels = [kernel for kernel, _ in held]
        first = head_of(kernels) if keeps_rest else 0
        unit = period_of(kernels[first:], self._least_calls, is_whole=not keeps_rest)
        n_whole = first + (n - first) // unit * unit
        ends = [*([first] if first else ()), *range(first + unit, n_whole + 1, unit)]
        if n_whole < n and not keeps_rest:
            ends.append(n)
        parts = (held[first:stop] for first, stop in zip([0, *ends], ends, strict=False))
        self._n_rest = n - n_whole if keeps_rest else 0
        self._run_windows(why, ((self._window(calls), calls) for calls in parts))
        return None

    def _run_window(self, ran: RanWindow, held: list[Held], why: str) -> KernelCall | None:
        """Runs the deferred calls `held`, which are exactly those of one window."""
        if self._run_quickly(ran, why):
            return None
        missing = self._missing(held)
        if missing is not None:
            return missing
        self._n_rest = 0
        self._run_windows(why, ((ran, held),))
        return None

    def _run_quickly(self, ran: RanWindow, why: str) -> bool:
        """Runs the deferred calls, exactly those of `ran`, as `_run_windows` does it where their plan needs nothing but its code.

        False, without effect, elsewhere.
        """
        bound, before = ran.bound, self._before
        if (
            bound is None
            or not bound.is_plain
            or self.behind.waits
            or self._rotation is not None
            or self._note is not None
        ):
            return False
        ends_early = ran is not self._expected and self._ends_early(ran)
        if before is not None and before.behind.last is not ran and not ends_early:
            before.behind.note(ran)
        begun: list[bool] = []
        n, stats = len(self._held), self._stats
        self._before, self._expected = ran, ran.behind.last or (None if ends_early else ran)
        self._follows = False
        self._is_running = True  # before `try` nothing is called, so no signal is handled between
        try:
            begin = perf_counter()
            if self._memory.n_calls:
                self._memory.clear()
            stats.note_end(why)
            bound.run(numbers_of(self._held) if ran.has_numbers else (), begun)
            taken_s = perf_counter() - begin
        except Exception:
            self._held = []  # the program had not made them
            raise
        finally:
            if begun:  # nothing is called here: no signal arrives between the run and this
                del self._held[:n]
            self._is_running = False
            self._follows = not self._held or self._is_begun()
        ran.n_by_plan += 1
        stats.wall_s += taken_s
        stats.backend_s += taken_s
        return True

    def _missing(self, held: Sequence[Held]) -> KernelCall | None:
        """Returns the first call that would wait for its code; None if all can run."""
        if not self.behind.waits:
            new = [kernel.ir for kernel, _ in held if not kernel.code]
            if not new or current_engine().prepare(new):
                return None
        return self.behind.missing(kernel.called(values) for kernel, values in held)

    def _run_windows(self, why: str, windows: Iterable[tuple[RanWindow, list[Held]]]) -> None:
        """Runs the first deferred calls, window by window.

        An error drops all deferred calls. After an interrupt those that have not run are still deferred.
        """
        self._follows = False  # until it is known again
        if self._memory.n_calls:
            self._memory.clear()
        self._is_running = True  # before `try` nothing is called, so no signal is handled between
        try:
            begin = perf_counter()
            self._why = why
            self._stats.note_end(why)
            for ran, calls in windows:
                self._run(ran, calls)
            self._stats.wall_s += perf_counter() - begin
        except Exception:
            self._held = []  # the program had not made them
            raise
        finally:
            self._is_running = False
            self._follows = not self._held or self._is_begun()

    def _is_begun(self) -> bool:
        """True if the deferred calls are the first calls of the expected window."""
        expected, held = self._expected, self._held
        if expected is None or len(held) == len(expected.kernels):
            return not held
        return expected.begins(held)

    def _run(self, ran: RanWindow, calls: list[Held]) -> None:
        """Runs the calls of one window, and reports it to `note`."""
        if self._note is None:
            self._run_calls(ran, calls)
            return
        changed = ran.changed()
        is_cut = self._take_cuts(len(calls))
        begin = perf_counter()
        self._run_calls(ran, calls)
        taken_s = perf_counter() - begin
        self._note(WindowRun(ran, calls, taken_s, self._why, changed, is_cut))

    def _take_cuts(self, n: int) -> bool:
        """Removes the cuts before the end of the first `n` deferred calls. True if there were some."""
        cuts, self._cuts = self._cuts, {k - n for k in self._cuts if k >= n}
        return any(k < n for k in cuts)

    def _run_calls(self, ran: RanWindow, calls: list[Held]) -> None:
        """Runs the calls of one window. After an interrupt, calls that have not begun stay deferred."""
        self._before, self._expected = ran, self._behind(ran)
        bound = ran.to_run()
        # Calls that wait behind have to run before.
        if bound is not None and not self.behind.waits:
            numbers = numbers_of(calls) if ran.has_numbers else ()
            if bound.may_run(numbers):
                self._run_by_plan(ran, bound, numbers)
                return
        ran.n_alone += 1
        begin = perf_counter()
        begun = ran.marks.begin() if self._is_on_trees and ran.is_on_trees else None
        self._run_each(calls)
        is_marked = ran.may_have_plan or self._note is not None
        if begun is not None and is_marked and not self.behind.waits:
            ran.marks.set(begun)
        taken_s = perf_counter() - begin
        self._is_short = taken_s < _SHORT_S
        self._stats.backend_s += taken_s

    def _behind(self, ran: RanWindow) -> RanWindow | None:
        """Returns the window that is expected behind `ran`, which runs now; None if there is none."""
        before, rotation = self._before, self._rotation
        if rotation is not None and rotation.holds(ran):
            if ran is rotation.rotated:
                rotation.note(is_whole=True)
            return rotation.rotated
        ends_early = self._ends_early(ran)
        if rotation is not None and rotation.holds(before):
            rotation.note(is_whole=False)
        elif before is not None and not ends_early:
            before.behind.note(ran)
        rotation = self._rotation = self._rotation_of(ran)
        if rotation is not None:
            return rotation.prologue
        return ran.behind.last or (None if ends_early else ran)

    def _ends_early(self, ran: RanWindow) -> bool:
        """True if the calls of `ran` are the first ones of the expected window, and not all of them.

        Such a window is not expected again: the next run of the expected one would end after as many calls.
        """
        expected = self._expected
        return expected is not None and expected is not ran and expected.begins_with(ran)

    def _rotation_of(self, ran: RanWindow) -> Rotation[RanWindow] | None:
        """Returns the rotation of a window; None if it does not follow itself, or if the rotation does not pay.

        None also where calls stay deferred: they begin the window itself, which is run whole once more.
        """
        bound = ran.bound
        if (
            bound is None
            or bound.kernels.rotation == 0
            or ran.behind.last is not ran
            or self._n_rest
        ):
            return None
        if ran.rotation is None:
            own, n = ran.kernels, bound.kernels.rotation
            ran.rotation = Rotation(self._window_of(own[:n]), self._window_of((*own[n:], *own[:n])))
        return ran.rotation if ran.rotation.pays else None

    def _run_by_plan(self, ran: RanWindow, bound: BoundPlan, numbers: Sequence[Any]) -> None:
        """Runs the first deferred calls, those of the window `ran`."""
        n = len(ran.kernels)
        begun: list[bool] = []
        begin = perf_counter()
        try:
            bound.run(numbers, begun)
        finally:
            if begun:  # nothing is called here: no signal arrives between the run and this
                del self._held[:n]
        self._stats.backend_s += perf_counter() - begin
        self._stats.note_windows(1, n, ran.work)
        self._stats.note_plan(1, n, bound.planned)

    def _run_each(self, calls: Sequence[Held]) -> None:
        """Runs the first deferred calls, which are `calls`, one by one.

        A signal is handled between calls of Python's. Where calls are short, it waits for some of them.
        """
        n, most = 0, _AT_ONCE if self._is_short else 1
        while n < len(calls):
            runs = [
                k.code + x[k.n_arrays :] if k.code and k.has_numbers else k.code
                for k, x in calls[n : n + most]
            ]
            if () in runs:
                runs = runs[: runs.index(())]
            if runs and not self.behind.waits:
                n_ran = self._run_at_once(runs)
                n += n_ran
                if n_ran == len(runs):
                    continue
            del self._held[0]
            kernel, values = calls[n]
            kernel.run(values)
            n += 1

    def _run_at_once(self, runs: Sequence[tuple[Any, ...]]) -> int:
        """Runs the first deferred calls by these functions, up to one that refuses its call. Returns the number of those that ran.

        A kernel that an extension runs has surely begun if its result is noted.
        """
        ran: list[bool] = []
        results = takewhile(bool, starmap(apply, runs))
        try:
            ran.extend(results)
        finally:
            if ran:
                del self._held[: len(ran)]
        return len(ran)

    def _window(self, calls: Sequence[Held]) -> RanWindow:
        return self._window_of(tuple([kernel for kernel, _ in calls]))

    def _window_of(self, kernels: tuple[WaitingKernel, ...]) -> RanWindow:
        """Returns the window of these kernels; a new one if none has run."""
        found = self._ran.get(kernels)
        if found is None:
            if len(self._ran) >= _MOST_WINDOWS:
                self._forget()
            found = RanWindow(kernels, self.plans if self._has_plans else None)
            self._ran[kernels] = found
        return found


_windows: weakref.WeakSet[PlannedWindow] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for window in tuple(_windows):
        window.go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)
