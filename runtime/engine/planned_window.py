"""Planned window, `ks.init(async_mode=True)`: deferred calls, run by one plan when Python needs their values.

A window (the deferred calls) ends at `ks.sync`, at a call that cannot be deferred, at a limit, where Python reads memory that they
write or writes memory that they use, or when it equals the window expected next: programs repeat themselves. Calls that repeat
within a window are windows of their own. A window that runs again gets a plan (plan_bank.py); without one the calls run one by
one. A window that follows itself may begin some calls later (rotation.py). Of several windows that followed a window, the calls say
which one it is.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from operator import is_
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ...kernels.fields.caller_location import caller
from ...kernels.frontend.dispatch import AbstractDeferringExecutor, Caller
from ...kernels.frontend.lowering import lowered_call
from ...kernels.ir.kernel import For, ForActive
from ...kernels.sparse.redundancy import work_on_trees
from ..by_identity import ByIdentity
from . import current_engine
from .held_memory import HeldMemory, written_arrays
from .loaded import rows_of_kernel
from .plan_bank import BoundPlan, PlanBank, WindowPlan
from .rotation import Rotation
from .successors import Successors
from .tree_marks import TreeMarks
from .window import DeferralWindow
from .window_calls import head_of, period_of, window_calls
from .window_stats import Stats

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.fields.accessed_memory import HostAccess
    from ...kernels.fields.tree import Structure
    from ...kernels.frontend.instance import Instance, KernelCall
    from ...kernels.ir.kernel import Location

Values = tuple[Any, ...]  # of a call: the arrays of its kernel, then its numbers
_MOST_WINDOWS = 256


class WaitingKernel:
    """A kernel whose calls are deferred; `where` is the source line of its first call."""

    def __init__(self, instance: Instance, where: Location, behind: DeferralWindow) -> None:
        self.ir, self.instance, self.where, self._behind = instance.ir, instance, where, behind
        self.n_arrays = len(self.ir.arrays)
        self.written = written_arrays(self.ir)
        self._scalars = rows_of_kernel(self.ir)[self.n_arrays :]
        stated = self.ir if instance.logical is None else instance.logical.ir
        self.n_loops = sum(isinstance(s, For | ForActive) for s in stated.body)
        self.n_lists, self.n_activations = work_on_trees(stated)
        self.quick: Caller | None = None  # false if it refuses a call

    def fits(self, values: Values) -> bool:
        """True if the numbers of a call need no conversion; other calls convert or raise by themselves."""
        n = self.n_arrays
        return all(row.takes(values[n + k]) for k, row in enumerate(self._scalars))

    def run(self, values: Values) -> None:
        """Runs one call, or defers it behind calls that are deferred already."""
        call = self.called(values)
        self._behind.run(call)
        self.quick = self._behind.caller(call)

    def called(self, values: Values) -> KernelCall:
        """Returns the call with these argument values."""
        from ...kernels.frontend.instance import KernelCall

        ir, n = self.ir, self.n_arrays
        arrays = {p.name: x for p, x in zip(ir.arrays, values[:n], strict=True)}
        scalars = {p.name: x for p, x in zip(ir.scalars, values[n:], strict=True)}
        return KernelCall(self.instance, arrays, scalars, self.where)


Held = tuple[WaitingKernel, Values]
Shape = tuple[tuple[WaitingKernel, Values], ...]  # kernels of calls, and their arrays


@dataclass(eq=False)
class RanWindow:
    """A window that has run: its calls, its plan bound to their arrays, and the windows that ran after it."""

    shape: Shape
    plan: WindowPlan | None
    arrays: Values
    structures: tuple[Structure, ...]
    called: list[
        tuple[object, Values, Held] | None
    ]  # kernels and arguments as the program gave them
    n_loops: int
    n_lists: int
    n_activations: int
    has_numbers: bool
    behind: Successors[RanWindow] = field(default_factory=Successors)
    bound: BoundPlan | None = None
    rotation: Rotation[RanWindow] | None = None
    marks: TreeMarks = field(init=False)

    def __post_init__(self) -> None:
        self.marks = TreeMarks([x.memory.arrays["counters"] for x in self.structures])

    def begins(self, held: Sequence[Held]) -> bool:
        """True if these calls are its first ones, or all of them."""
        if len(held) > len(self.shape):
            return False
        pairs = zip(held, self.shape, strict=False)
        return all(a is b and all(map(is_, x, y)) for (a, x), (b, y) in pairs)

    def changed(self) -> list[int] | None:
        """Returns the trees (by number) whose active cells may have changed since the last run; None if that is not known."""
        return self.marks.gone(range(len(self.structures))) if self.marks.are_set else None

    def to_run(self) -> BoundPlan | None:
        """Returns the plan bound to this window's arrays; None if it is not built or not usable."""
        plan, bound = self.plan, self.bound
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
        self._ran: dict[tuple[int, ...], RanWindow] = {}
        # By instance: equal kernels are of other fields.
        self._kernels = ByIdentity[Any, tuple[Caller | None]]()
        self.plans = PlanBank()
        self.stats = Stats()
        self._lock = threading.RLock()
        _windows.add(self)

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
        self.stats.n_at_once += 1
        return self.behind.run(call)

    def caller(self, call: KernelCall) -> Caller | None:
        return self.behind.caller(call)

    def deferring(self, call: KernelCall) -> Caller | None:
        plain = lowered_call(call)
        if not self.behind.may_wait(plain, fails=True):
            return None
        instance = plain.instance
        found = self._kernels.get(instance)
        if found is None:
            kernel = WaitingKernel(instance, call.where, self.behind)
            current_engine().prepare((kernel.ir,))  # while the call waits
            found = self._kernels.setdefault(instance, (partial(self._take, kernel),))
        return found[0]

    def again(self, kernel: object, args: Values) -> bool:
        with self._lock:
            expected, held = self._expected, self._held
            if expected is None or not self._follows:
                return False
            called, n = expected.called, len(held)
            if n == len(called):  # an interrupt came before they ran, or their code is missing
                return False
            known = called[n]
            if known is None or kernel is not known[0]:
                return False
            if args is not known[1] and not all(map(is_, args, known[1])):
                return False
            held.append(known[2])
            if n + 1 < len(called):
                return True
            missing = self._run_expected(expected)
        if missing is not None:
            self._settle(missing)
            self._take_up()
        return True

    def _take(
        self, held_as: WaitingKernel, *values: Any, kernel: object = None, args: Values = ()
    ) -> bool:
        """Defers a call. False, without effect, if its numbers need conversion."""
        if not held_as.fits(values):
            return False
        self._take_up((held_as, values), kernel, args)
        return True

    def _take_up(self, call: Held | None = None, kernel: object = None, args: Values = ()) -> None:
        """Runs the deferred calls if they are a whole window, then defers `call` behind them.

        It waits for code without the lock: a thread that compiles may need the lock, since Python runs finalizers of the program
        in any thread.
        """
        while True:
            with self._lock:
                missing = self._run_whole()
                if missing is None and call is not None:
                    self._hold(call, kernel, args)
                    call, missing = None, self._run_whole()
            if missing is None:
                return
            self._settle(missing)

    def _hold(self, call: Held, kernel: object, args: Values) -> None:
        expected, held = self._expected, self._held
        if self._follows and expected is not None:
            wanted, arrays = expected.shape[len(held)]
            if not (call[0] is wanted and all(map(is_, call[1], arrays))):
                expected = self._other([*held, call])
                self._follows = expected is not None
                self._expected = expected or self._expected
            if expected is not None and kernel is not None:
                expected.called[len(held)] = kernel, args, call
        held.append(call)

    def _other(self, calls: Sequence[Held]) -> RanWindow | None:
        """Returns another window that may run behind the last one, and begins with these calls; None if there is none."""
        before = self._before
        if before is None or self._rotation is not None:
            return None
        others = (x for x in (*before.behind, before) if x is not self._expected)
        return next((x for x in others if x.begins(calls)), None)

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

    def end(self) -> None:
        """Drops the deferred calls, since the fields that they write are deleted."""
        with self._lock:
            self._drop()
            self._forget()
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
        self._ran.clear()

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
            return self._run_expected(expected) if n == len(expected.shape) else None
        is_full = n >= self._limit and not self._is_running
        return self._run_held("the limit", keeps_rest=True) if is_full else None

    def _run_held(self, why: str, *, keeps_rest: bool = False) -> KernelCall | None:
        """Runs the deferred calls; with `keeps_rest`, not an unfinished period at the end."""
        held = self._held[:]
        missing = self._missing(held)
        if missing is not None:
            return missing
        first = head_of(held) if keeps_rest else 0
        unit = period_of(held[first:], self._least_calls, is_whole=not keeps_rest)
        n_whole = first + (len(held) - first) // unit * unit
        ends = [*([first] if first else ()), *range(first + unit, n_whole + 1, unit)]
        if n_whole < len(held) and not keeps_rest:
            ends.append(len(held))
        parts = (held[first:stop] for first, stop in zip([0, *ends], ends, strict=False))
        self._n_rest = len(held) - n_whole if keeps_rest else 0
        self._run_windows(why, ((self._window(calls), calls) for calls in parts))
        return None

    def _run_expected(self, expected: RanWindow) -> KernelCall | None:
        """Runs the deferred calls, which are exactly those of the window `expected`."""
        if expected.bound is None or self.behind.waits:
            missing = self._missing(self._held)
            if missing is not None:
                return missing
        self._n_rest = 0
        self._run_windows("a window that ran before", ((expected, self._held[:]),))
        return None

    def _missing(self, held: Sequence[Held]) -> KernelCall | None:
        """Returns the first call that would wait for its code; None if all can run."""
        if not self.behind.waits and all(kernel.quick is not None for kernel, _ in held):
            return None
        return self.behind.missing(kernel.called(values) for kernel, values in held)

    def _run_windows(self, why: str, windows: Iterable[tuple[RanWindow, list[Held]]]) -> None:
        """Runs the first deferred calls, window by window.

        An error drops all deferred calls. After an interrupt those that have not run are still deferred.
        """
        self._follows = False  # until it is known again
        self._memory.clear()
        self._is_running = True  # before `try` nothing is called, so no signal is handled between
        try:
            begin = perf_counter()
            self._why = why
            self.stats.note_end(why)
            for ran, calls in windows:
                self._run(ran, calls)
            self.stats.wall_s += perf_counter() - begin
        except Exception:
            self._held = []  # the program had not made them
            raise
        finally:
            self._is_running = False
            self._follows = self._is_begun()

    def _is_begun(self) -> bool:
        """True if the deferred calls are the first calls of the expected window."""
        expected, held = self._expected, self._held
        if expected is None or len(held) == len(expected.shape):
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
        stats = self.stats
        stats.n_windows += 1
        stats.n_calls += len(calls)
        stats.n_launches_without += ran.n_loops
        stats.n_lists_without += ran.n_lists
        stats.n_activations_without += ran.n_activations
        bound = ran.to_run()
        # Calls that wait behind have to run before.
        if bound is not None and not self.behind.waits:
            numbers = (
                [x for kernel, values in calls for x in values[kernel.n_arrays :]]
                if ran.has_numbers
                else ()
            )
            if bound.may_run(numbers):
                self._run_by_plan(bound, numbers, len(calls))
                return
        stats.n_launches += ran.n_loops
        stats.n_lists += ran.n_lists
        stats.n_activations += ran.n_activations
        begin = perf_counter()
        begun = ran.marks.begin()
        for kernel, values in calls:
            self._run_one(kernel, values)
        is_marked = ran.plan is not None or self._note is not None
        if is_marked and not self.behind.waits:
            ran.marks.set(begun)
        stats.backend_s += perf_counter() - begin

    def _behind(self, ran: RanWindow) -> RanWindow:
        """Returns the window that is expected behind `ran`, which runs now."""
        before, rotation = self._before, self._rotation
        if rotation is not None and rotation.holds(ran):
            if ran is rotation.rotated:
                rotation.note(is_whole=True)
            return rotation.rotated
        if rotation is not None and rotation.holds(before):
            rotation.note(is_whole=False)
        elif before is not None:
            before.behind.note(ran)
        rotation = self._rotation = self._rotation_of(ran)
        return ran.behind.last or ran if rotation is None else rotation.prologue

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
            first = list(ran.shape[: bound.kernels.rotation])
            rest = list(ran.shape[len(first) :])
            ran.rotation = Rotation(self._window(first), self._window([*rest, *first]))
        return ran.rotation if ran.rotation.pays else None

    def _run_by_plan(self, bound: BoundPlan, numbers: Sequence[Any], n: int) -> None:
        """Runs the first `n` deferred calls."""
        begin, begun = perf_counter(), list[bool]()
        try:
            bound.run(numbers, begun)
        finally:
            if begun:  # nothing is called here: no signal arrives between the run and this
                del self._held[:n]
        self.stats.backend_s += perf_counter() - begin
        self.stats.note_plan(n, bound.planned)

    def _run_one(self, kernel: WaitingKernel, values: Values) -> None:
        """Runs the first deferred call.

        A signal is handled between calls of Python's: a kernel that an extension runs has then surely begun if its result is noted.
        """
        ran = list[bool]()
        if kernel.quick is not None and not self.behind.waits:
            one = starmap(kernel.quick, (values,))
            try:
                ran.extend(one)
            finally:
                if ran and ran[0]:
                    del self._held[0]
        if not any(ran):
            del self._held[0]
            kernel.run(values)

    def _window(self, calls: list[Held]) -> RanWindow:
        """Returns the window with the kernels and arrays of these calls; a new one if none has run."""
        shape = tuple((kernel, values[: kernel.n_arrays]) for kernel, values in calls)
        key = tuple(id(x) for kernel, arrays in shape for x in (kernel, *arrays))
        found = self._ran.get(key)
        if found is None:
            if len(self._ran) >= _MOST_WINDOWS:
                self._forget()
            found = self._ran[key] = self._made(shape)
        return found

    def _made(self, shape: Shape) -> RanWindow:
        calls, arrays, trees = window_calls(shape)
        has_plan = self._has_plans and len(shape) > 1
        kernels = [kernel for kernel, _ in shape]
        return RanWindow(
            shape,
            self.plans.plan(calls) if has_plan else None,
            arrays,
            trees,
            [None] * len(shape),
            sum(x.n_loops for x in kernels),
            sum(x.n_lists for x in kernels),
            sum(x.n_activations for x in kernels),
            any(x.ir.scalars for x in kernels),
        )


_windows: weakref.WeakSet[PlannedWindow] = weakref.WeakSet()


def _go_on_in_child() -> None:
    for window in tuple(_windows):
        window.go_on_in_child()


os.register_at_fork(after_in_child=_go_on_in_child)
