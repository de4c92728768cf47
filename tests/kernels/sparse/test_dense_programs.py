"""Dense fields pay nothing for sparse ones in their program: the same kernels, tasks and C."""

from __future__ import annotations

from types import SimpleNamespace

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.lower import lower, print_source
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.ir.text import show_tasks
from kernelscape.runtime.cpu.dialect import C_TEAM
from kernelscape.runtime.engine.building import kernel_text
from kernelscape.search.starts.complete import first_candidates
from kernelscape.space.build import build_space
from kernelscape.testing.checking import target

N = 256


@pytest.fixture(autouse=True)
def no_program_is_left():
    yield
    ks.reset()


def program(is_beside_trees: bool) -> SimpleNamespace:
    """A program of dense fields, beside sparse ones with a kernel of their own or not."""
    ks.init()
    if is_beside_trees:
        s = ks.field(ks.f32)
        ks.root.pointer(ks.i, N // 16).dense(ks.i, 16).place(s)

        @ks.kernel
        def grow():
            for i in range(N // 2):
                s[i] = i

        grow()
    x, y, image = (ks.field(ks.f32, shape=N) for _ in range(3))
    total = ks.field(ks.f32, shape=())

    @ks.kernel
    def smooth(a: ks.f32):
        for i in range(1, N - 1):
            y[i] = a * (x[i - 1] + x[i] + x[i + 1])

    @ks.kernel
    def add():
        for i in y:
            total[None] += y[i]
            image[i % 16] += x[i]

    def step():
        smooth(0.5)
        add()

    x.from_numpy(np.arange(N, dtype=np.float32))
    return SimpleNamespace(**locals())


def texts(p: SimpleNamespace) -> tuple[list[str], str, str]:
    """The C of each kernel by itself, the tasks of both, and the C of the first candidate."""
    workload = make_workload(p.step, (), sequence="test:step", name="step")
    assert not workload.recording.trees
    space = build_space(workload.problem, target(2, 32))
    ((_, default),) = first_candidates(space, limit=1)
    kernels = [kernel_text(call.ir, 2, True) for call in workload.recording.calls]
    return kernels, show_tasks(workload.problem), print_source(lower(plan_of(default)), C_TEAM).text


def test_dense_kernels_are_the_same_beside_sparse_fields() -> None:
    alone, beside = texts(program(False)), texts(program(True))
    assert beside == alone
    assert len(alone[0]) == 2
    assert "smooth" in alone[1]
