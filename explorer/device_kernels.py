"""Kernels of a program compiled for a device: each a sequence of one call, decided by the default sketch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codegen.lower import lower, print_source
from ..codegen.plan.candidates import plan_of
from ..codegen.text.source import Source
from ..kernels.frontend.recorder import Call, Recording
from ..kernels.ir import kernel
from ..kernels.ir.errors import KernelRuntimeIndexError, LanguageError, failed_assertion
from ..kernels.ir.simplify import unary
from ..kernels.ir.walk import nested_statements, written_in
from ..kernels.tasks.bounds_check import first_outside
from ..kernels.tasks.pipeline import normalise
from ..runtime.api.backend import AbstractArray, AbstractDevice, AbstractModule
from ..runtime.api.outcome import Failure
from ..search.starts.complete import complete_sketch
from ..search.starts.proposals import default_sketch
from ..space.build import build_space
from ..space.candidate import Candidate

Array = NDArray[Any]
FAILED = "failed_assertions"  # the array of a kernel that says which of its assertions failed


class RefusedError(Exception):
    """A device cannot run a kernel.

    The message completes the sentence "the kernel NAME runs on the CPU, since ...".
    """


@dataclass(frozen=True, eq=False)
class DeviceKernel:
    """A kernel loaded on a device. `module` is None if the kernel computes nothing.

    `assertions` are messages by position in the array `FAILED`, which the kernel sets where an assertion fails.
    """

    ir: kernel.KernelIR
    module: AbstractModule | None
    assertions: tuple[str, ...]
    written: frozenset[str]

    def run(self, arrays: Sequence[AbstractArray], numbers: Sequence[Any]) -> None:
        """Runs the kernel: `arrays` on the device and `numbers`, each in the order of the parameters.

        Raises RunError and KernelAssertionError.
        """
        if self.module is None:
            return
        failed = np.zeros(len(self.assertions), np.int32)
        self.module.run(self.values(arrays, numbers, failed))
        self.check(failed)

    def values(
        self, arrays: Sequence[AbstractArray], numbers: Sequence[Any], failed: Any
    ) -> tuple[Any, ...]:
        """Returns the values of the module's arguments; `failed`: the array of its assertions."""
        assert self.module is not None
        values: dict[str, Any] = dict(zip((p.name for p in self.ir.arrays), arrays, strict=True))
        values |= dict(zip((p.name for p in self.ir.scalars), numbers, strict=True))
        values[FAILED] = failed
        arguments = self.module.artifact.arguments
        return tuple(values[a.name] for a in arguments if a.kind != "workspace")

    def check(self, failed: Array) -> None:
        """Raises KernelAssertionError for the first assertion that failed."""
        if failed.any():
            raise failed_assertion(self.assertions[int(np.argmax(failed))])


def make_kernel(ir: kernel.KernelIR, device: AbstractDevice) -> DeviceKernel:
    """Compiles a kernel on plain arrays for `device` and loads it.

    Raises RefusedError, and KernelRuntimeIndexError if the kernel certainly indexes out of range.
    """
    outside = first_outside(ir)
    if outside is not None:
        raise KernelRuntimeIndexError(f"{outside}; nothing was written")
    told, assertions = with_told_assertions(ir)
    source = source_of(told, device)
    module = None if source is None else _loaded(source, device)
    return DeviceKernel(ir, module, assertions, written_in(ir.body))


def source_of(ir: kernel.KernelIR, device: AbstractDevice) -> Source | None:
    """Returns the source text of a kernel for `device`; None if the kernel computes nothing.

    Raises RefusedError.
    """
    if any(isinstance(s, kernel.Print) for s in nested_statements(ir.body)):
        raise RefusedError("it prints")
    call = Call(ir, tuple(a.name for a in ir.arrays), ir.scalars, kernel.NOWHERE)
    try:
        problem = normalise(Recording(ir.name, ir.arrays, (), ir.scalars, (call,)))
        if not problem.tasks:
            return None
        root = build_space(problem, device.machine.facts()).root()
    except LanguageError as e:
        raise RefusedError(str(e)) from e
    if not isinstance(root, Candidate):
        raise RefusedError(f"its space is empty: {root.choice}, {root.why}")
    candidate = complete_sketch(root, default_sketch(root.space))
    if candidate is None:
        raise RefusedError("no implementation was found for it")
    return print_source(lower(plan_of(candidate)), device.builder.dialect())


def with_told_assertions(ir: kernel.KernelIR) -> tuple[kernel.KernelIR, tuple[str, ...]]:
    """Returns a kernel whose assertions, if they fail, set elements of an array, and the assertions' messages.

    The kernel then does not end early. All assertions must be its last statements. Raises RefusedError otherwise.
    """
    n = len(ir.body)
    while n and isinstance(ir.body[n - 1], kernel.Assert):
        n -= 1
    last = [s for s in ir.body[n:] if isinstance(s, kernel.Assert)]
    before = any(isinstance(s, kernel.Assert) for s in nested_statements(ir.body[:n]))
    if before or any(s.parts for s in last):
        raise RefusedError("an assertion may end it half-way")
    if not last:
        return ir, ()
    failed = kernel.ArrayParam(FAILED, kernel.DType.i32, (len(last),))
    told = tuple(_told(s, k) for k, s in enumerate(last))
    body = (*ir.body[:n], *told)
    return replace(ir, arrays=(*ir.arrays, failed), body=body), tuple(s.message for s in last)


def _told(s: kernel.Assert, k: int) -> kernel.Stmt:
    one, place = kernel.Const(1, kernel.DType.i32), kernel.Const(k, kernel.DType.i64)
    return kernel.If(
        unary("not", s.condition), (kernel.Store(FAILED, (place,), one, s.where),), (), s.where
    )


def _loaded(source: Source, device: AbstractDevice) -> AbstractModule:
    artifact = device.builder.build(source)
    module = artifact if isinstance(artifact, Failure) else device.runner.load(artifact)
    if isinstance(module, Failure):
        raise RefusedError(f"{module.advice} {module.log}".strip())
    return module
