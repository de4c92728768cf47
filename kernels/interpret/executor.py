"""The interpreter as the executor of calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..fields.program import settle
from ..language.dispatch import Executor, using
from ..language.instance import KernelCall
from .kernel import run_kernel
from .trees import run_on_trees


class Interpreter(Executor):
    """Runs calls at once: those of kernels on sparse fields as they were before they were lowered, on the fields themselves."""

    def run(self, call: KernelCall) -> Any:
        settle()
        instance = call.instance
        if instance.logical is None:
            run_kernel(instance.ir, call.arrays, call.scalars)
        else:
            arrays = dict(call.arrays) | dict(instance.views)
            run_on_trees(instance.logical, arrays, call.scalars, instance.storages)
        return call.result()


@contextmanager
def interpret() -> Iterator[None]:
    """Kernels called within the block run at once through the interpreter, also where a sequence is
    being recorded.
    """
    with using(Interpreter()):
        yield
