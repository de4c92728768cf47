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
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import starmap, takewhile
from operator import call as apply
from operator import is_
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...kernels.fields.accessed_memory import region
from ...kernels.fields.caller_location import caller
from ...kernels.frontend.dispatch import AbstractDeferringExecutor, Caller
from ...kernels.frontend.lowering import lowered_call
from ...kernels.ir.kernel import For, ForActive
from ...kernels.sparse.redundancy import work_on_trees
from ..by_identity import ByIdentities, ByIdentity
from ..cpu.calling import CallerParameter
from . import current_engine
from .held_memory import HeldMemory, written_arrays
from .loaded import rows_of_kernel
from .plan_bank import LEAST_TIMES, BoundPlan, PlanBank, WindowPlan
from .rotation import Rotation
from .successors import Successors
from .tree_marks import TreeMarks
from .window import DeferralWindow
from .window_calls import head_of, period_of, window_calls
from .window_stats import Stats

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.fields.accessed_memory import HostAccess
    from ...kernels.fields.tree import Structure
    from ...kernels.frontend.instance import KernelCall
    from ...kernels.ir.kernel import Location
    from ...kernels.sparse.recorded import WindowCall

Values = tuple[Any, ...]  # of a call: the arrays of its kernel, then its numbers
_MOST_WINDOWS = 256
_AS_BEFORE = "a window that ran before"
_MOST_CALLS = 1024  # that are known by their arguments
_AT_ONCE = 16  # calls without a plan between which no signal is handled, where they are short
_SHORT_S = 1e-3  # of a window


class WaitingKernel:
    """A kernel whose calls are deferred, on the arrays of all of them; `where` is the source line of its first call."""

    def __init__(self, call: KernelCall, where: Location, behind: DeferralWindow) -> None:
        self.instance, self.where, self._behind = call.instance, where, behind
        self.ir = call.instance.ir
        self.arrays = call.in_order[0]
        self.n_arrays = len(self.arrays)
        self.is_on_trees = bool(self.instance.structures)
        self._scalars = rows_of_kernel(self.ir)[self.n_arrays :]
        self.has_numbers = bool(self._scalars)
        # What runs it, which returns false if it refuses a call, and its arrays; () before it has run.
        self.code: tuple[Any, ...] = ()

    @cached_property
    def work(self) -> tuple[int, int, int]:
        """The numbers of its loops, of lists of active cells, and of activations."""
        logical = self.instance.logical
        stated = self.ir if logical is None else logical.ir
        return sum(isinstance(s, For | ForActive) for s in stated.body), *work_on_trees(stated)

    @cached_property
    def used(self) -> frozenset[int]:
        """The allocations that its arrays are in."""
        return frozenset(map(region, self.arrays))

    @cached_property
    def written(self) -> frozenset[int]:
        """The allocations that it writes."""
        return frozenset(region(self.arrays[k]) for k in written_arrays(self.ir))

    def takes(self, values: Values) -> bool:
        """True if the arrays of a call are its own, and no number needs conversion.

        Calls with other numbers convert them or raise by themselves.
        """
        if not all(map(is_, self.arrays, values)):
            return False
        n = self.n_arrays
        return not self.has_numbers or all(
            row.takes(values[n + k]) for k, row in enumerate(self._scalars)
        )

    def numbers(self, places: Iterable[tuple[int, int]]) -> tuple[Number, ...]:
        """Returns the numbers that a program gives; `places`: positions among values, and among the program's arguments."""
        return tuple((k, at, self._scalars[at - self.n_arrays]) for at, k in places)

    def run(self, values: Values) -> None:
        """Runs one call, or defers it behind calls that are deferred already."""
        call = self.called(values)
        self._behind.run(call)
        run = self._behind.caller(call)
        self.code = () if run is None else (run, *self.arrays)

    def called(self, values: Values) -> KernelCall:
        """Returns the call with these argument values."""
        from ...kernels.frontend.instance import KernelCall

        ir, n = self.ir, self.n_arrays
        arrays = {p.name: x for p, x in zip(ir.arrays, values[:n], strict=True)}
        scalars = {p.name: x for p, x in zip(ir.scalars, values[n:], strict=True)}
        return KernelCall(self.instance, arrays, scalars, self.where)


Held = tuple[WaitingKernel, Values]
Number = tuple[int, int, CallerParameter]  # position among arguments, among values, and parameter
# A call as the program made it: its kernel and arguments, what was deferred, the positions of other arguments than numbers (none if
# there are no numbers), and the numbers.
Known = tuple[object, Values, Held, tuple[int, ...], tuple[Number, ...]]


def _known_as(kernel: object, args: Values, call: Held, numbers: tuple[Number, ...]) -> Known:
    """Returns a call as it is known from now on."""
    taken = {k for k, _, _ in numbers}
    others = tuple(k for k in range(len(args)) if k not in taken) if numbers else ()
    return kernel, args, call, others, numbers


def _renewed(args: Values, known: Known) -> Held | None:
    """Returns a known call with the numbers in `args`; None if an argument is another object, or a number needs conversion."""
    _, before, (kernel, values), others, numbers = known
    if not numbers:
        return None
    for k in others:
        if args[k] is not before[k]:
            return None
    new = list(values)
    for k, at, row in numbers:
        x = new[at] = args[k]
        kind, least, most = row.limits
        if type(x) is not kind or not (least <= x <= most or row.takes(x)):
            return None
    return kernel, tuple(new)


class RanWindow:
    """A window that has run: the kernels of its calls, its plan bound to their arrays, and the windows that ran after it.

    `plans`: where it gets its plan; None for no plan.
    """

    def __init__(self, kernels: tuple[WaitingKernel, ...], plans: PlanBank | None) -> None:
        self.kernels = kernels
        self._plans = plans if len(kernels) > 1 else None
        self.called: list[Known | None] = [None] * len(kernels)
        self.behind: Successors[RanWindow] = Successors()
        self.bound: BoundPlan | None = None
        self.rotation: Rotation[RanWindow] | None = None
        self._n_met = 0
        # Runs that are not counted yet: call by call, and by `_run_quickly`.
        self.n_alone = self.n_by_plan = 0

    @cached_property
    def _numbered(self) -> tuple[tuple[WindowCall, ...], Values, tuple[Structure, ...]]:
        return window_calls(self.kernels)

    @cached_property
    def _plan(self) -> WindowPlan | None:
        """The plan of its calls: made when it is met again, since most windows are not."""
        return None if self._plans is None else self._plans.plan(self._numbered[0], self._n_met - 1)

    @property
    def may_have_plan(self) -> bool:
        """True unless it has no plan, whatever comes."""
        return self._plans is not None

    @property
    def arrays(self) -> Values:
        """The arrays that its calls use."""
        return self._numbered[1]

    @property
    def structures(self) -> tuple[Structure, ...]:
        """The trees that its calls use."""
        return self._numbered[2] if self.is_on_trees else ()

    @cached_property
    def is_on_trees(self) -> bool:
        return any(kernel.is_on_trees for kernel in self.kernels)

    @cached_property
    def work(self) -> list[int]:
        """The numbers of loops, of lists of active cells, and of activations of its calls."""
        return [sum(n) for n in zip(*(kernel.work for kernel in self.kernels), strict=True)]

    @cached_property
    def has_numbers(self) -> bool:
        return any(kernel.has_numbers for kernel in self.kernels)

    @cached_property
    def marks(self) -> TreeMarks:
        """The marks of its trees."""
        return TreeMarks([x.memory.arrays["counters"] for x in self.structures])

    def begins(self, held: Sequence[Held]) -> bool:
        """True if these calls are its first ones, or all of them."""
        own = self.kernels
        return len(held) <= len(own) and all(map(is_, (kernel for kernel, _ in held), own))

    def begins_with(self, ran: RanWindow) -> bool:
        """True if the kernels of `ran` are its first ones, and not all of them."""
        n = len(ran.kernels)
        return n < len(self.kernels) and ran.kernels == self.kernels[:n]

    def changed(self) -> list[int] | None:
        """Returns the trees (by number) whose active cells may have changed since the last run; None if that is not known."""
        return self.marks.gone(range(len(self.structures))) if self.marks.are_set else None

    def to_run(self) -> BoundPlan | None:
        """Returns the plan bound to this window's arrays; None if it is not built or not usable."""
        self._n_met += 1
        if self._plans is None or self._n_met < LEAST_TIMES:
            return None
        plan, bound = self._plan, self.bound
        if plan is None or not plan.is_usable:
            return None
        if bound is not None and not bound.is_kept(plan):
            bound = self.bound = None
        if bound is None:
            planned = plan.planned()
            if planned is not None:
                bound = BoundPlan(planned, self.arrays, self.structures, self.marks)
                if not bound.are_apart:  # kernels of single calls say so
                    plan.refuse()
                    return None
                self.bound = bound
        return bound

    def count(self, stats: Stats) -> None:
        """Adds the runs that are not counted yet."""
        n_alone, n_by_plan, n_calls = self.n_alone, self.n_by_plan, len(self.kernels)
        self.n_alone = self.n_by_plan = 0
        if n_alone:
            stats.note_windows(n_alone, n_calls, self.work)
            stats.note_alone(n_alone, self.work)
        if n_by_plan and self.bound is not None:
            stats.note_windows(n_by_plan, n_calls, self.work)
            stats.note_plan(n_by_plan, n_calls, self.bound.planned)


@dataclass(frozen=True)
class WindowRun:
    """One run of a window: its calls, its seconds, and the reason why the window ended.

    `changed`: the trees (by number) whose active cells have changed since the run before on the same arrays; None if that is not
    known.
    `is_cut`: between the last call of the run before and its own, Python accessed a field or made a call that cannot wait.
    """

    ran: RanWindow
    calls: Sequence[Held]
    taken_s: float
    why: str
    changed: list[int] | None
    is_cut: bool


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
                        call = _renewed(args, known)
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
            known = _known_as(kernel, args, call, held_as.numbers(numbers))
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
        first = head_of(held) if keeps_rest else 0
        unit = period_of(held[first:], self._least_calls, is_whole=not keeps_rest)
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
            stats.ends[why] = stats.ends.get(why, 0) + 1
            bound.run(_numbers(self._held) if ran.has_numbers else (), begun)
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
            numbers = _numbers(calls) if ran.has_numbers else ()
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
        ends_early = self._ends_early(ran)
        if rotation is not None and rotation.holds(ran):
            if ran is rotation.rotated:
                rotation.note(is_whole=True)
            return rotation.rotated
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


def _numbers(calls: Iterable[Held]) -> list[Any]:
    """Returns the numbers of all calls, in order."""
    return [x for kernel, values in calls for x in values[kernel.n_arrays :]]


_windows: weakref.WeakSet[PlannedWindow] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for window in tuple(_windows):
        window.go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)
