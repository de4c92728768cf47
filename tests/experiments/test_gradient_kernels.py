"""Length of adjoints of the kernels whose gradients are timed: statements, and operations, of the kernel and of its adjoint."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.experiments.gradient_kernels import AD_STACK, KERNELS
from kernelscape.kernels.frontend.dispatch import Executor, using
from kernelscape.kernels.ir.kernel import KernelIR
from kernelscape.kernels.ir.walk import children, nested_statements, walk

MOST = 4  # times the kernel's
# Kernels with few statements of many operations each. The adjoint is in single-assignment form: a statement for each value that it
# needs twice, and for each derivative.
OF_LONG_STATEMENTS = {"springs", "softmax", "rk4"}


class _Listed(Executor):
    """Lists the kernels that are called, and runs none."""

    def __init__(self) -> None:
        self.kernels: list[KernelIR] = []

    def run(self, call: Any) -> None:
        self.kernels.append(call.instance.ir)


@pytest.fixture(autouse=True)
def _no_program_afterwards() -> Iterator[None]:
    yield
    ks.reset()


@cache
def kernel_and_adjoint(name: str) -> list[KernelIR]:
    ks.init(arch=ks.cpu, ad_stack_size=AD_STACK)
    kernel, _, _ = KERNELS[name](ks, np.random.default_rng(1))
    listed = _Listed()
    with using(listed):
        kernel()
        kernel.grad()
    return listed.kernels


def n_statements(ir: KernelIR) -> int:
    return sum(1 for _ in nested_statements(ir.body))


def n_nodes(ir: KernelIR) -> int:
    """The number of statements and of nodes of their expressions."""
    held = (walk(e) for s in nested_statements(ir.body) for e in children(s))
    return n_statements(ir) + sum(1 for nodes in held for _ in nodes)


@pytest.mark.parametrize("name", KERNELS)
def test_text_of_an_adjoint_is_at_most_four_times_the_kernels(name: str) -> None:
    kernel, adjoint = kernel_and_adjoint(name)
    assert adjoint.name == f"{kernel.name}_grad"
    assert n_nodes(kernel) < n_nodes(adjoint) <= MOST * n_nodes(kernel)


def test_statements_of_adjoints_are_at_most_four_times_the_kernels() -> None:
    both = {name: tuple(map(n_statements, kernel_and_adjoint(name))) for name in KERNELS}
    longer = {name for name, (kernel, adjoint) in both.items() if adjoint > MOST * kernel}
    assert longer == OF_LONG_STATEMENTS, both
