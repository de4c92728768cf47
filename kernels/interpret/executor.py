"""Executor that runs calls of kernels in the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..fields.host_access import settle
from ..frontend.dispatch import Executor, using
from ..frontend.instance import KernelCall
from .kernel import run_kernel
from .trees import run_on_trees


class Interpreter(Executor):
    """Executor that interprets each call at once.

    A kernel on sparse fields runs before sparse lowering, on the fields themselves.
    """

    def run(self, call: KernelCall) -> Any:
        settle()
        instance = call.instance
        if instance.is_on_trees:
            run_on_trees(instance.ir, call.arrays, call.scalars, instance.storages)
        else:
            run_kernel(instance.ir, call.arrays, call.scalars)
        return call.result()


@contextmanager
def interpret() -> Iterator[None]:
    """Runs kernels called within the block at once through the interpreter, also while a sequence is recorded."""
    with using(Interpreter()):
        yield
