"""Executor of calls outside of programs: runs each at once by the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels.fields.host_access import settle
from ...kernels.fields.program import current_program
from ...kernels.frontend.dispatch import Caller, Executor
from ...kernels.frontend.lowering import lowered, lowered_call
from . import current_engine

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.frontend.instance import KernelCall


class Eager(Executor):
    """Executor that runs each call at once, as compiled code."""

    def run(self, call: KernelCall) -> Any:
        settle()  # a block of its own in a program whose calls are deferred
        plain = lowered_call(call)
        current_engine().run(plain.instance.ir, *plain.in_order)
        return call.result()

    def caller(self, call: KernelCall) -> Caller | None:
        program = current_program()
        if program is not None and program.follower is not None:
            return None  # which would pass deferred calls by
        return current_engine().quick(lowered(call.instance).ir)

    def start(self) -> None:
        current_engine().start()
