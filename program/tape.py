"""Tapes: run the kernels of a block, and then their adjoints in reverse order, or duals in place of the kernels.

A tape is an executor in front of the program's executor: it receives all kernel calls, also in a recorded sequence.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Literal

import numpy as np

from ..kernels.fields.caller_location import fail
from ..kernels.fields.element_fields import ScalarField
from ..kernels.fields.ndarray import Ndarray, gradient_of
from ..kernels.fields.program import needed_program
from ..kernels.frontend.adjoint_calls import run_adjoint
from ..kernels.frontend.derivatives import (
    checked_call,
    copy_call,
    derivative_call,
    overwritten_arrays,
)
from ..kernels.frontend.dispatch import Executor, chosen, current, using
from ..kernels.frontend.instance import KernelCall
from ..kernels.frontend.recorder import ndarray
from ..kernels.ir.errors import (
    LanguageError,
    ProgramRuntimeError,
    ProgramTypeError,
    ProgramValueError,
)
from .changed_cells import ChangedCells, Masks
from .grad_check import GradCheck
from .gradients import clear_all_gradients, set_all
from .snapshots import Snapshots


class AutodiffMode(Enum):
    """Way in which a kernel runs: itself, with checks of what a tape reads, or as one of its derivatives."""

    NONE = 0
    VALIDATION = 1
    FORWARD = 2
    REVERSE = 3


@dataclass(frozen=True)
class TapedFunction:
    """A kernel, or a function with a gradient of its own, as one call on a tape names it."""

    name: str
    tape: Tape = field(repr=False)

    @property
    def autodiff_mode(self) -> AutodiffMode:
        """Way in which its calls run now."""
        return AutodiffMode.VALIDATION if self.tape.is_checking else AutodiffMode.NONE


@dataclass(frozen=True)
class _Taped:
    """Kernel call on a tape.

    `before`: copies of arrays whose elements the call overwrites and its adjoint reads. `masks`: by number of a loop over active
    cells, an array that marks those of the call, if later calls may change them.
    """

    call: KernelCall
    before: dict[str, Any]
    masks: Masks = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.call.instance.ir.name

    @property
    def given(self) -> tuple[Any, ...]:
        return (*self.call.arrays.values(), *self.call.scalars.values())

    def again(self) -> None:
        current().run(self.call)

    def reverse(self) -> None:
        run_adjoint(self.call, self.before, self.masks)


@dataclass(frozen=True)
class _Replaced:
    """Call, on a tape, of a function whose gradient is another function."""

    function: Callable[..., Any]
    grad: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", "a function")

    @property
    def given(self) -> tuple[Any, ...]:
        return (*self.args, *self.kwargs.values())

    def again(self) -> None:
        self.function(*self.args, **self.kwargs)

    def reverse(self) -> None:
        self.grad(*self.args, **self.kwargs)


class _Taping(Executor):
    """Executor that records kernel calls and passes them on; checks the access rule if `is_checked`."""

    behind: Executor

    def __init__(
        self, behind: Executor, *, is_checked: bool, snapshots: Snapshots | None = None
    ) -> None:
        self.behind, self.is_checked, self.snapshots = behind, is_checked, snapshots
        self._flags: dict[int, Any] = {}
        self.cells = ChangedCells()
        self.calls: list[_Taped | _Replaced] = []

    def run(self, call: KernelCall) -> Any:
        if call.instance.is_derivative:
            return self.behind.run(call)
        if self.snapshots is not None:
            with using(self.behind):
                self.snapshots.before(call)
            self.calls.append(_Taped(call, {}))
            return self.behind.run(call)
        self.cells.refuse_changes_by_python()
        taped = _Taped(call, self._copies(call))
        self.calls.append(taped)
        ran = checked_call(call, self._flags, taped.before) if self.is_checked else call
        with self.cells.around(call, self.behind, taped.masks):
            return self.behind.run(ran)

    def underived(self) -> Executor:
        return _Watching(self.cells, self.behind.underived())

    def _copies(self, call: KernelCall) -> dict[str, Any]:
        """Returns copies, by name, of the arrays whose elements a call overwrites and its adjoint reads."""
        try:
            names = overwritten_arrays(call)
        except LanguageError:  # the tape may have no gradients: `reverse` says so where it has
            return {}
        params = {p.name: p for p in call.instance.ir.arrays}
        copies = {n: ndarray(params[n].dtype, params[n].shape) for n in names}
        copies |= {n: x.array for n, x in copies.items() if isinstance(x, Ndarray)}
        for n, x in copies.items():
            self.behind.run(copy_call(call, n, x, is_zero=not self.behind.records))
        return copies


class _Watching(Executor):
    """Executor of calls inside a tape's block that the tape does not differentiate: they may change active cells."""

    behind: Executor

    def __init__(self, cells: ChangedCells, behind: Executor) -> None:
        self._cells, self.behind = cells, behind

    def run(self, call: KernelCall) -> Any:
        self._cells.refuse_changes_by_python()
        with self._cells.around(call, self.behind, None):
            return self.behind.run(call)


class Tape:
    """Context that differentiates kernels: at its end it computes the gradients of `loss`, a one-element field.

    At its begin all gradients are cleared, unless `clear_gradients` is False, and the loss is set to zero. Without a loss `grad()`
    is called by the program. `validation` checks, in debug mode, that no element of a dense field with a gradient is stored to
    after it was read. `grad_check` are fields whose gradients are compared with central differences.
    With `snapshot_every`, what calls write is copied before every so many calls, from where they run again before their adjoints.
    Then calls may overwrite what others have read, as the steps of a time loop do. With "auto" the tape finds the number: about the
    root of the number of all calls, which needs least memory.
    """

    def __init__(
        self,
        loss: Any = None,
        clear_gradients: bool = True,
        validation: bool = False,
        grad_check: Sequence[Any] | None = None,
        snapshot_every: int | Literal["auto"] = 0,
    ) -> None:
        n_calls = _distance(snapshot_every)
        if snapshot_every and (validation or grad_check):
            fail(
                "a tape with snapshot_every= has no validation= and no grad_check=: it runs calls again from snapshots",
                ProgramValueError,
            )
        self._snapshots = Snapshots(n_calls) if n_calls != 0 else None
        self.loss, self._clears, self._validates = loss, clear_gradients, validation
        self._grad_check = grad_check
        self._check: GradCheck | None = None
        if validation and not needed_program("a tape").config.debug:
            text = (
                "Debug mode is disabled, autodiff valid check will not work."
                " Please specify `ti.init(debug=True)` to enable the check."
            )
            warnings.warn(text, stacklevel=2)
            self._validates = False
        self._taping: _Taping | None = None
        self._counts: dict[Any, int] | None = None  # of active cells at the end of the block
        self._block = ExitStack()
        self._is_open = False
        self._is_done = False

    def __enter__(self) -> Tape:
        if self._taping is not None:
            fail("a tape is entered once: make another ks.ad.Tape", ProgramRuntimeError)
        around = current()
        if isinstance(around, _Taping) and (around.snapshots or self._snapshots):
            fail(
                "a tape with snapshot_every= is inside of no other tape, and has none inside: enter one after the other",
                ProgramRuntimeError,
            )
        if self.loss is not None:
            _check_loss(self.loss)
            if self._clears:
                clear_all_gradients()
            _set_loss(self.loss, 0.0)
        if self._grad_check:
            self._check = GradCheck(self.loss, self._grad_check)
        self._taping = _Taping(current(), is_checked=self._validates, snapshots=self._snapshots)
        self._block.enter_context(using(self._taping))
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._block.close()
        self._is_open = False
        if kind is not None:
            return
        if self.loss is not None:
            self.grad()
        elif self._taping is not None and not current().records:
            self._counts = self._taping.cells.counts()

    def grad(self) -> None:
        """Computes the gradients of the loss: runs the adjoints of the calls, from the last call to the first."""
        if self._taping is None:
            fail(
                "a tape has no gradients before its block: with ks.ad.Tape(loss): ...",
                ProgramRuntimeError,
            )
        if self._is_done:
            fail(
                "the gradients of a tape are computed once: make another ks.ad.Tape",
                ProgramRuntimeError,
            )
        self._is_done = True
        if self.loss is not None:
            _set_loss(self.loss.grad, 1.0)
        self.reverse()
        if self._check is not None:
            self._check.run(self._again)

    def reverse(self) -> None:
        """Runs the adjoints of the calls, from the last to the first, with the gradients as they are."""
        if self._snapshots is not None:
            self._snapshots.reverse()
            return
        if self._taping is None:
            return
        cells = self._taping.cells
        cells.refuse_changes_by_python()
        if self._counts is not None:
            cells.refuse_changes_since(self._counts)
        for call in reversed(self._taping.calls):
            # A gradient that is written by hand may activate cells over which earlier calls loop.
            is_by_hand = isinstance(call, _Replaced)
            with using(_Watching(cells, current())) if is_by_hand else nullcontext():
                call.reverse()

    @property
    def is_checking(self) -> bool:
        """True in the block of a tape that validates."""
        return self._is_open and self._validates

    @property
    def calls(self) -> list[tuple[TapedFunction, tuple[Any, ...]]]:
        """The calls on the tape in order: what was called, with its arrays and numbers."""
        calls = self._taping.calls if self._taping else ()
        return [(TapedFunction(c.name, self), c.given) for c in calls]

    @property
    def modes(self) -> list[AutodiffMode]:
        """The way in which each call ran."""
        mode = AutodiffMode.VALIDATION if self._validates else AutodiffMode.NONE
        return [mode for _ in self.calls]

    def clear_ndarrays(self) -> None:
        """Sets the gradients of all ndarrays that are arguments of the calls to zero."""
        calls = self._taping.calls if self._taping else ()
        given = [x for c in calls if isinstance(c, _Taped) for x in c.call.arrays.values()]
        for gradient in map(gradient_of, given):
            if gradient is not None:
                gradient.fill(0)

    def _again(self) -> None:
        """Runs the recorded calls once more."""
        assert self._taping is not None
        for call in self._taping.calls:
            call.again()


def _distance(snapshot_every: int | Literal["auto"]) -> int | None:
    """Returns the calls between two snapshots: 0 without snapshots, None for automatic ones."""
    if snapshot_every == "auto":
        return None
    if isinstance(snapshot_every, bool) or not isinstance(snapshot_every, int):
        fail(
            f'snapshot_every= is a number of calls or "auto", not {snapshot_every!r:.60}',
            ProgramTypeError,
        )
    if snapshot_every < 0:
        fail(f"snapshot_every= is a number of calls, not {snapshot_every}", ProgramValueError)
    return snapshot_every


def _check_loss(loss: Any) -> None:
    if isinstance(loss, Ndarray):
        if loss.array.size != 1:
            fail("the loss of a tape is an ndarray of one element", ProgramRuntimeError)
        if loss.grad is None:
            fail(
                "the loss of a tape has no grad: make it with needs_grad=True", ProgramRuntimeError
            )
        return
    if not isinstance(loss, ScalarField):
        fail(f"the loss of a tape is a field of one number, not {loss!r}", ProgramTypeError)
    if loss.shape:
        fail(
            f"the loss of a tape is a field of one number: {loss.label} has the shape {loss.shape}",
            ProgramRuntimeError,
        )
    if not loss.grad.is_placed:
        fail(f"{loss.label} has no grad: make it with needs_grad=True", ProgramRuntimeError)


def _set_loss(loss: Any, value: float) -> None:
    if isinstance(loss, Ndarray):
        loss.fill(value)
    else:
        set_all(loss, value)


# --- forward mode


class _Forward(Executor):
    """Executor that runs the dual of each kernel in place of the kernel."""

    behind: Executor

    def __init__(self, behind: Executor) -> None:
        self.behind = behind

    def run(self, call: KernelCall) -> Any:
        forward = None if call.instance.is_derivative else derivative_call(call, "dual")
        return self.behind.run(forward or call)


class FwdMode:
    """Context in which kernels also compute the derivatives of the fields `loss` by `param` along a direction.

    The results are in the fields `dual` of `loss`. `seed`: the direction, a number for each element of `param`; 1 for a single
    element by default.
    """

    def __init__(
        self,
        loss: Any,
        param: Any,
        seed: Sequence[float] | None = None,
        clear_gradients: bool = True,
    ) -> None:
        self.loss = loss if isinstance(loss, list) else [loss]
        self.param, self.seed, self._clears = param, seed, clear_gradients
        self._block = ExitStack()

    def __enter__(self) -> FwdMode:
        for x in (*self.loss, self.param):
            if not isinstance(x, ScalarField):
                fail(f"forward mode takes fields of numbers, not {x!r}", ProgramTypeError)
        n = int(np.prod(self.param.shape))
        if self.seed is None and n != 1:
            fail(
                f"{self.param.label} has {n} elements: give seed=, a number for each",
                ProgramRuntimeError,
            )
        seed = np.ones(1) if self.seed is None else np.asarray(self.seed, np.float64)
        if seed.size != n:
            fail(
                f"seed= has {seed.size} numbers, {self.param.label} has {n} elements",
                ProgramValueError,
            )
        if self._clears:
            clear_all_gradients("dual")
        self.param.dual.from_numpy(seed.reshape(self.param.shape))
        self._block.enter_context(using(_Forward(current())))
        return self

    def __exit__(self, *_: object) -> None:
        self._block.close()
        set_all(self.param.dual, 0.0)


# --- functions with gradients of their own


class _WithGradient:
    """Function that tapes record as one call: its gradient is the function `grad`, or an error if that is None."""

    def __init__(self, function: Callable[..., Any], grad: Callable[..., Any] | None) -> None:
        functools.update_wrapper(self, function)
        self._function, self.grad = function, grad

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        executor, watching = chosen(), list[ChangedCells]()
        while isinstance(executor, _Taping):
            if executor.snapshots is not None:
                name = getattr(self._function, "__name__", "a function")
                fail(
                    f"{name} has a gradient of its own, and a tape with snapshot_every= knows nothing of what it writes",
                    ProgramRuntimeError,
                )
            executor.calls.append(_Replaced(self._function, self._gradient, args, kwargs))
            watching.append(executor.cells)
            executor = executor.behind
        for cells in reversed(watching):
            assert executor is not None
            executor = _Watching(cells, executor)
        with nullcontext() if executor is None else using(executor):
            return self._function(*args, **kwargs)

    def _gradient(self, *args: Any, **kwargs: Any) -> None:
        if self.grad is None:
            name = getattr(self._function, "__name__", "a function")
            fail(
                f"{name} has no gradient: write one below @ks.ad.grad_for({name})",
                ProgramRuntimeError,
            )
        self.grad(*args, **kwargs)


def grad_replaced(function: Callable[..., Any]) -> Any:
    """Marks a Python function whose gradient is written by hand, with `grad_for`."""
    return _WithGradient(function, None)


def grad_for(primal: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that makes a function the gradient of `primal`, a function marked by `grad_replaced`."""
    if not isinstance(primal, _WithGradient) or primal.grad is not None:
        fail(
            "ks.ad.grad_for takes a function of Python below @ks.ad.grad_replaced that has no gradient yet",
            ProgramRuntimeError,
        )

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        primal.grad = function
        return function

    return mark


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Gradient of a function marked by `no_grad`: does nothing."""


def no_grad(function: Callable[..., Any]) -> Any:
    """Marks a Python function whose kernels do not contribute to gradients."""
    return _WithGradient(function, _nothing)
