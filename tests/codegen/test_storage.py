"""A thread's own array holds what its least merged reader needs."""

import pytest
from kernelscape.codegen.plan import LoopPlan, TaskPlan
from kernelscape.codegen.storage import SharedLayout
from kernelscape.kernels.ir import Const, DType
from kernelscape.kernels.tasks import Access, Affine, ArrayInfo, Loop, Task
from kernelscape.space.backbone import INNER, MID, OUTER, Flow

AXES = (Affine(0, (("i", 1),)), Affine(0, (("j", 1),)))
ARRAY = ArrayInfo("t", DType.f32, (64, 40), "temp")


def flow(consumer):
    pairs = (("i", "i"), ("j", "j"))
    return Flow(0, consumer, "t", pairs, False, f"flow {consumer}", AXES)


def producer(*flows):
    i, j = Loop("i", 64, False), Loop("j", 40, False)
    task = Task("p", "p", (i, j), Access("t", AXES), DType.f32, Const(1.0, DType.f32))
    loops = (
        LoopPlan(i, is_parallel=False, mid=4, inner=2, is_vector=False, has_lanes=False),
        LoopPlan(j, is_parallel=False, mid=1, inner=8, is_vector=False, has_lanes=False),
    )
    return TaskPlan(0, task, loops, False, False, (), (), flows)


@pytest.mark.parametrize(
    ("levels", "extents"),
    [
        (({"i": INNER}, {"i": INNER}), (2, 40)),
        (({"i": MID}, {"i": MID}), (2, 40)),
        (({"i": OUTER}, {"i": OUTER}), (8, 40)),
        (({"i": MID}, {"i": OUTER}), (8, 40)),  # the outer one reads a whole tile
        (({"i": OUTER}, {"i": MID}), (8, 40)),
        (({"i": MID}, {}), (64, 40)),  # not merged at all: the whole axis
        (({"i": OUTER, "j": INNER}, {"i": OUTER, "j": INNER}), (8, 8)),
    ],
)
def test_extents_follow_the_least_merged_reader(levels, extents):
    flows = (flow(1), flow(2))
    merged = {
        (f, loop): level for f, at in zip(flows, levels, strict=True) for loop, level in at.items()
    }
    assert SharedLayout.of(producer(*flows), flows, ARRAY, merged).extents == extents
