"""Buffers lie where threads do not disturb one another; a thread's own array holds what its least merged reader needs."""

from itertools import pairwise

import pytest
from kernelscape.codegen.passes.storage import APART_BYTES, SharedLayout, Workspace
from kernelscape.codegen.plan.plan import LoopPlan, TaskPlan
from kernelscape.codegen.text.facts import ALIGNMENT_BYTES
from kernelscape.kernels.ir.access import Access
from kernelscape.kernels.ir.affine import Affine
from kernelscape.kernels.ir.arrays import ArrayInfo
from kernelscape.kernels.ir.domain import Loop
from kernelscape.kernels.ir.kernel import Const, DType
from kernelscape.kernels.ir.task import Task
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


def test_what_each_thread_has_for_itself_lies_a_page_from_all_else():
    n_threads = 3
    workspace = Workspace(n_threads)
    parts = []  # first byte, byte behind the last one, is private
    for k, (n, is_private) in enumerate([(5, False), (1024, True), (7, True), (64, False)]):
        b = workspace.allocate(f"b{k}", DType.f32, n, is_private)
        for tid in range(n_threads if is_private else 1):
            first = b.offset_bytes + tid * b.stride_bytes
            assert first % ALIGNMENT_BYTES == 0
            parts.append((first, first + 4 * n, is_private))
    assert len(parts) == 2 + 2 * n_threads
    for (_, end, is_private), (first, _, next_is_private) in pairwise(parts):
        assert first - end >= (APART_BYTES if is_private or next_is_private else 0)
    assert parts[-1][1] <= workspace.size_bytes


def test_shared_buffers_follow_one_another():
    workspace = Workspace(2)
    offsets = [workspace.allocate(x, DType.f32, 16, is_private=False).offset_bytes for x in "ab"]
    assert (offsets, workspace.size_bytes) == ([0, 64], 128)


def test_buffers_of_launches_lie_where_those_of_earlier_ones_did():
    workspace = Workspace(2)
    kept = workspace.allocate("kept", DType.f32, 16, is_private=False)
    workspace.hold()
    first = workspace.allocate("first", DType.f32, 160, is_private=False)
    own = workspace.allocate("own", DType.f32, 16, is_private=True)
    most = workspace.size_bytes
    workspace.release()
    second = workspace.allocate("second", DType.f32, 16, is_private=True)
    assert kept.offset_bytes == 0
    assert first.offset_bytes == 64
    assert own.offset_bytes > first.offset_bytes + 640
    assert second.offset_bytes == 64 + workspace.apart_bytes  # behind what is not a thread's own
    assert workspace.size_bytes == most
    workspace.hold()
    third = workspace.allocate("third", DType.f32, 16, is_private=False)
    assert third.offset_bytes >= second.offset_bytes + 2 * second.stride_bytes
