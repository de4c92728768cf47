"""The engine as the executor of calls: the default executor of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...kernels.frontend.dispatch import Caller, Executor
from ...kernels.frontend.lowering import lowered, lowered_call
from . import current_engine

if TYPE_CHECKING:  # the frontend is imported while the engine looks for its compiler
    from ...kernels.frontend.instance import KernelCall


class Eager(Executor):
    """Runs calls at once, as compiled code."""

    def run(self, call: KernelCall) -> Any:
        plain = lowered_call(call)
        current_engine().run(plain.instance.ir, *plain.in_order)
        return call.result()

    def caller(self, call: KernelCall) -> Caller | None:
        return current_engine().quick(lowered(call.instance).ir)

    def start(self) -> None:
        current_engine().start()
