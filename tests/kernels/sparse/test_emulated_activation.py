"""Activation by many threads as CUDA text: threads that activate one cell find one slot, in every order of threads."""

from dataclasses import replace
from pathlib import Path

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate

pytest.importorskip("kernelscape.runtime.emulator")
pytest.importorskip("kernelscape.runtime.cuda")
from kernelscape.testing import emulated_periods, gpu_checking
from kernelscape.testing import sparse_emulation as emulation
from kernelscape.testing.sparse_drawn import Part, Tree
from kernelscape.testing.sparse_emulation import Shape
from kernelscape.testing.sparse_programs import World

from ...codegen.gpu_cases import NEEDS_COMPILER, nvrtc_is_there

POINTERS = Shape((("pointer", (2, 3)), ("bitmasked", (3, 2))), 0, 2)
HASHED = Shape((("dense", (2, 1)), ("hash", (3, 5)), ("dense", (2, 2))), 1, 3)
DEEP = Shape((("pointer", (2, 2)), ("pointer", (2, 2)), ("hash", (2, 2))), 2, 1)
OTHER = (("pointer", (1, 3)),)
SPREAD = [("spread", 5), ("fill", 2), ("carry", 0)]


def shared(shape: Shape, seed: int = 1) -> Candidate:
    """A random candidate in which threads share each loop that activates, in warps that are whole."""
    recording, _ = emulation.recorded(shape, SPREAD)
    root = build_space(normalise(recording), gpu_checking.target(2)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(seed)
    while True:
        found = emulation.random_candidate(root, rng)
        if any(t.activates and t.n_threads >= 16 for t in plan_of(found).tasks):
            return found


@pytest.mark.parametrize("shape", [POINTERS, HASHED, DEEP])
@NEEDS_COMPILER[0]
@NEEDS_COMPILER[1]
def test_threads_activate_at_once_in_three_periods(shape: Shape, tmp_path: Path) -> None:
    recording, before = emulation.recorded(shape, SPREAD)
    candidate = shared(shape)
    source = gpu_checking.source_of(candidate)
    assert "fetch_bit_or_u32(&" in source.text and "publish(&" in source.text
    assert emulated_periods.fault(recording, before, source, tmp_path) == ""


@NEEDS_COMPILER[0]
@NEEDS_COMPILER[1]
def test_threads_mark_lists_as_old_at_once(tmp_path: Path) -> None:
    """Cells of masks have no slots: marks are all that the threads store in counters."""
    world = World(Tree((("bitmasked", (2, 3)), ("pointer", (1, 1))), OTHER, 1, 3, "f64", 1))
    recording, before = world.recorded((Part(1, 0, (("renew", 24),)),))
    world.end()
    root = build_space(normalise(recording), gpu_checking.target(2)).root()
    assert isinstance(root, Candidate)
    rng = np.random.default_rng(1)
    drawn = (emulation.random_candidate(root, rng) for _ in range(60))
    made = next(x for x in drawn if any(t.activates and t.n_threads > 1 for t in plan_of(x).tasks))
    source = gpu_checking.source_of(made)
    assert "publish(&" not in source.text
    assert emulated_periods.fault(recording, before, source, tmp_path) == ""


@pytest.mark.parametrize("piece", range(4))
@NEEDS_COMPILER[0]
@NEEDS_COMPILER[1]
def test_random_programs_leave_what_the_reference_leaves(piece: int, tmp_path: Path) -> None:
    """On random trees with lists, in three periods; one of them on the CPU, too."""
    n_shared = 0
    for k in range(2):
        rng = np.random.default_rng([piece, k])
        shape, calls = emulation.drawn(rng)
        recording, before = emulation.recorded(shape, calls)
        root = build_space(normalise(recording), gpu_checking.target(2)).root()
        assert isinstance(root, Candidate)
        candidate = emulation.random_candidate(root, rng)
        n_shared += emulation.shares_activation(candidate)
        source = gpu_checking.source_of(candidate)
        if k or piece:
            said = emulated_periods.fault(recording, before, source, tmp_path)
        else:
            said = emulated_periods.fault_of_both(recording, before, source, piece, tmp_path)
        assert said == "", (shape, calls)
    assert n_shared


@pytest.mark.skipif(not nvrtc_is_there(), reason="no NVRTC")
@pytest.mark.parametrize("shape", [POINTERS, HASHED])
def test_the_compiler_of_cuda_takes_it(shape: Shape, nvrtc_folder: Path) -> None:
    assert gpu_checking.compiler_says(gpu_checking.source_of(shared(shape)), nvrtc_folder) == ""


def test_threads_that_activate_share_the_states_of_the_tree() -> None:
    candidate = shared(POINTERS)
    plan = plan_of(candidate)
    t = next(x.index for x in plan.tasks if x.activates and x.states)
    launch = next(x for x in launches_of(plan, candidate.space.target) if t in x.tasks)
    verify(launch, plan)
    own = plan.tasks[t]
    assert own.task.body is not None
    trees = replace(own.task.body.trees, shared=frozenset())
    alone = replace(own, task=replace(own.task, body=replace(own.task.body, trees=trees)))
    broken = replace(plan, tasks=(*plan.tasks[:t], alone, *plan.tasks[t + 1 :]))
    with pytest.raises(IllFormedError, match="threads activate cells of states that one changes"):
        verify(launch, broken)


@NEEDS_COMPILER[0]
@NEEDS_COMPILER[1]
def test_a_pool_at_its_end_leaves_no_thread_waiting(limit_layouts) -> None:
    """Cells without a slot are not written, the call ends with a sentence, and the program goes on."""
    limit_layouts("MOST_HASHED", 1 << 3)
    ks.init(arch=ks.emulator)
    try:
        x = ks.field(ks.i32)
        node = ks.root.hash(ks.i, 1 << 20)
        node.place(x)

        @ks.kernel
        def write(n: ks.i32):
            for i in range(64):
                if i < n:
                    x[3 * i] += i + 1

        with pytest.raises(AssertionError, match="a tree of sparse fields is full"):
            write(64)
        assert sum(x[3 * i] == i + 1 for i in range(64)) == 7
        node.deactivate_all()
        write(7)
        assert [x[3 * i] for i in range(8)] == [1, 2, 3, 4, 5, 6, 7, 0]
        assert ks.engine.stats().runs["write"].keys() == {"emulator"}
    finally:
        ks.reset()
