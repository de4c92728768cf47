"""Values that may be handed over in registers."""

import kernelscape as ks
import numpy as np
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.backbone import build_backbone


@ks.kernel
def stencil(a: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(1, a.shape[0] - 1):
        b[i] = a[i - 1] + a[i] + a[i + 1]


def test_reads_beside_what_was_written_forbid_a_register():
    """With one inner point only a[1] meets the write, but a[0] and a[2] are read all the same."""

    def twice(a, b):
        stencil(a, b)
        stencil(b, a)

    arrays = (np.ones(3, np.float32), np.ones(3, np.float32))
    backbone = build_backbone(normalise(record_sequence(twice, arrays)))
    (flow,) = [f for f in backbone.flows if f.array == "b"]
    assert not flow.is_pointwise


@ks.kernel
def in_rounds(a: ks.types.ndarray(), b: ks.types.ndarray()):
    for t in range(2, 9):
        for i in range(t - 1, 2):
            total = 1.0
            for _ in range(1):
                total += b[i, i]
            a[1 - i] = total + t // 2


@ks.kernel
def doubled(a: ks.types.ndarray(), b: ks.types.ndarray()):
    for i in range(a.shape[0]):
        a[i] = 2 * a[i] + b[i, 0]


def test_elements_that_a_task_stores_again_and_again_are_in_no_register():
    """Elements that a round leaves alone have the values of the round before; reads after the loop see the last round."""

    def rounds(a, b):
        in_rounds(a, b)
        in_rounds(a, b)
        doubled(a, b)
        doubled(a, b)

    arrays = (np.ones(2, np.float32), np.ones((9, 2), np.float32))
    problem = normalise(record_sequence(rounds, arrays))
    found = {(f.producer, f.consumer): f.is_pointwise for f in build_backbone(problem).flows}
    assert all(t.is_structured for t in problem.tasks)
    assert found == {(0, 1): False, (1, 2): False, (2, 3): True}
