"""Cells of leaves as loops of their tasks, for threads of a block: which loops, and that results stay."""

import shutil

import kernelscape as ks
import pytest
from kernelscape.kernels.frontend.recorder import record_program
from kernelscape.kernels.tasks.leaf_loops import with_leaf_loops
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import sparse_emulation as emulation
from kernelscape.testing.sparse_emulation import Shape

POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (3, 2))), 0, 2)
BLOCKS = Shape((("pointer", (2, 3)), ("dense", (4, 8))), 0, 2)


def loops_of(which: str) -> list[str]:
    """The loops of the last task of a kernel over leaves of 4 x 8 cells."""
    ks.init(arch=ks.cpu)
    x, y, total = ks.field(ks.f32), ks.field(ks.f32), ks.field(ks.f32, shape=())
    ks.root.pointer(ks.ij, (2, 3)).dense(ks.ij, (4, 8)).place(x, y)

    @ks.kernel
    def own():
        for i, j in x:
            y[i, j] = x[i, j] + i

    @ks.kernel
    def shared():
        for i, j in x:
            y[i, j // 2 * 2] += x[i, j]

    @ks.kernel
    def summed():
        for i, j in x:
            total[None] += x[i, j]

    kernel = {"own": own, "shared": shared, "summed": summed}[which]
    problem = normalise(record_program(kernel, ())[0])
    ks.reset()
    made = with_leaf_loops(problem)
    assert with_leaf_loops(made) == made
    return [loop.name for loop in made.tasks[-1].loops]


def test_cells_that_do_not_depend_on_one_another_are_loops_of_the_task() -> None:
    assert loops_of("own") == ["element", "c", "c2"]


@pytest.mark.parametrize("kernel", ["shared", "summed"])
def test_cells_that_change_one_value_stay_in_the_body(kernel: str) -> None:
    assert loops_of(kernel)[1:] == []


@pytest.mark.compiler
@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="no C++")
@pytest.mark.parametrize("shape", [POINTERS, BLOCKS])
def test_threads_share_the_cells_of_a_leaf(shape: Shape, tmp_path) -> None:
    pytest.importorskip("kernelscape.runtime.emulator")
    recording, before = emulation.recorded(shape, [("bump", 0), ("drop", 3), ("bump", 0)])
    decided = [
        ("dim_kind(*.element.outer)", "PARALLEL"),
        ("dim_kind(*.c.mid)", "THREAD"),
        ("dim_kind(*.c2.mid)", "THREAD"),
    ]
    assert emulation.fault(recording, before, 2, tmp_path, decided=decided) == ""
