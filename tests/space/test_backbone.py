"""Which values may be handed over in registers."""

import kernelscape as ks
import numpy as np
from kernelscape.kernels.language.record import record_sequence
from kernelscape.kernels.offload.pipeline import normalise
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
