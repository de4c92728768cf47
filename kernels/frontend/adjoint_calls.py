"""Runs adjoints of kernel calls, which keep more iterations of loops of unknown length once a call needs them.

`ks.init(ad_stack_size=)` gives their number. Otherwise it doubles for a kernel of which a call has a longer loop: the gradients get
their values from before the adjoint, and it runs again.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..fields.ndarray import Ndarray
from ..fields.program import current_program
from ..ir.kernel import Assert, Location
from ..ir.walk import nested_statements, written_in
from ..transforms.derivatives.loops import is_guard
from .derivatives import copy_call, derivative_call, n_kept, restore_call, set_kept
from .dispatch import current
from .instance import KernelCall

Prepare = Callable[[Location, tuple[Any, ...], dict[str, Any]], KernelCall]


class AdjointKernel:
    """Adjoint of a kernel, `kernel.grad`: takes the kernel's arguments, adds to gradients of arrays it reads."""

    def __init__(self, prepare: Prepare) -> None:
        self._prepare = prepare

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        where = Location(frame.f_code.co_filename, frame.f_lineno)
        run_adjoint(self._prepare(where, args, kwargs))


def run_adjoint(
    call: KernelCall,
    before: Mapping[str, Any] | None = None,
    masks: Mapping[int, Any] | None = None,
) -> None:
    """Runs the adjoint of a kernel call, if it has one. `before`, `masks`: as for `derivative_call`.

    Raises AssertionError if a loop has more iterations than `ad_stack_size`, or than a local array has room for. In recordings and
    on sparse fields the number of iterations does not grow.
    """
    adjoint = derivative_call(call, "grad", before, masks)
    if adjoint is None:
        return
    if not _may_grow(adjoint):
        current().run(adjoint)
        return
    written = written_in(adjoint.instance.ir.body)
    saved = {
        p.name: _copied(adjoint, p.name) for p in adjoint.instance.ir.arrays if p.name in written
    }
    while True:
        try:
            current().run(adjoint)
            return
        except AssertionError as e:
            if not is_guard(str(e)):
                raise
            n = n_kept(call.instance)
            set_kept(call.instance, 2 * n)
            longer = derivative_call(call, "grad", before, masks)
            if longer is None or _guards(longer) == _guards(adjoint):  # no room for more
                set_kept(call.instance, n)
                raise
        for name, copy in saved.items():
            current().run(restore_call(adjoint, name, copy))
        adjoint = longer
        logging.getLogger("kernelscape").warning(
            f"{call.instance.ir.name} has a loop of more iterations than its adjoint keeps: from now on it keeps {2 * n}"
        )


def _may_grow(adjoint: KernelCall) -> bool:
    """True if the adjoint keeps a number of iterations that may be too small, and that the user has not given."""
    program, instance = current_program(), adjoint.instance
    is_given = program is not None and program.config.ad_stack_size > 0
    is_elsewhere = current().records or instance.is_on_trees or bool(instance.views)
    return not is_given and not is_elsewhere and bool(_guards(adjoint))


def _guards(adjoint: KernelCall) -> list[str]:
    """Returns the messages of an adjoint whose loops are too long for it."""
    every = nested_statements(adjoint.instance.ir.body)
    return [s.message for s in every if isinstance(s, Assert) and is_guard(s.message)]


def _copied(call: KernelCall, name: str) -> Any:
    """Returns a copy of an array of a call."""
    param = next(p for p in call.instance.ir.arrays if p.name == name)
    copy = Ndarray(param.dtype, param.shape).array
    current().run(copy_call(call, name, copy))
    return copy
