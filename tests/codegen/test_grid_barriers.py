"""Grids that stay: blocks exchange values at a barrier of the grid, in one launch, and again in the next one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.text import show_launch
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.lower import lower
from kernelscape.codegen.passes.grid_barriers import place_grid_barriers
from kernelscape.codegen.passes.pipeline import GPU, loops_of, verifying
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.codegen.write.host_launcher import launched_text
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.testing import checking
from kernelscape.testing.syntax import calls

from .gpu_cases import NEEDS_COMPILER, decided, gpu, nvrtc_is_there

N = 24
nd = types.ndarray()


@kernel
def sum_rows(a: nd, s: nd):
    for i in range(a.shape[0]):
        s[i] = 0
        for j in range(a.shape[1]):
            s[i] += a[i, j]


@kernel
def weigh(a: nd, s: nd, out: nd):
    for k in range(a.shape[1]):
        out[k] = 0
        for l in range(a.shape[0]):
            out[k] += s[l] * a[l, k]


def once(a, s, out):
    sum_rows(a, s)
    weigh(a, s, out)


class Stayed:
    """A sequence whose tasks are the nests of one launch; the blocks of its grid take tiles of rows."""

    def __init__(self, tiles=(4, 4), n_blocks=0):
        rng = np.random.default_rng(3)
        arrays = [rng.uniform(-1, 1, (N, N)).astype(np.float32)]
        arrays += [np.zeros(N, np.float32) for _ in range(2)]
        recording = record_sequence(once, arrays, "stayed")
        self.problem = normalise(recording)
        wanted = {}
        for t, tile in zip(self.problem.tasks, tiles, strict=True):
            rows, columns = (x.name for x in t.loops)
            wanted |= {
                f"dim_kind({t.name}.{rows}.outer)": "PARALLEL",
                f"dim_kind({t.name}.{rows}.mid)": "THREAD",
                f"size({t.name}.{rows}.mid)": str(tile),
                f"dim_kind({t.name}.{rows}.inner)": "ABSENT",
                f"dim_kind({t.name}.{columns}.outer)": "LOOP",
            }
        plan = plan_of(decided(self.problem, wanted))
        tasks = tuple(self._in_turn(t, n_blocks) for t in plan.tasks)
        roots = tuple(root for launch in plan.launches for root in launch)
        choices = plan.choices | {"team": dict.fromkeys(range(len(tasks)), "WHOLE_GRID")}
        self.plan = replace(plan, tasks=tasks, launches=(roots,), choices=choices)
        given = dict(zip((a.name for a in recording.arrays), arrays, strict=True))
        self.inputs = checking.make_inputs(recording, self.problem, given, {})

    @staticmethod
    def _in_turn(task, n_blocks):
        """The plan of a task whose tiles so many blocks take in turn."""
        loops = (replace(p, n_blocks=n_blocks) if p.is_parallel else p for p in task.loops)
        return replace(task, loops=tuple(loops)) if n_blocks else task

    @property
    def launch(self):
        return loops_of(self.plan, self.plan.launches[0], self.plan.target)

    def source(self, passes=GPU):
        with verifying():
            return gpu.printed(lower(self.plan, passes))


def fault(case, source, folder):
    return gpu.check(source, case.inputs, folder)


def in_a_row(source, n=3):
    """The same with so many launches of the grid that stays, one after the other: each finds what the last one left."""
    first, staying = source.launches
    assert (first.stays, staying.stays) == (False, True)
    return replace(source, launches=(first, *n * [staying]))


GRIDS = {
    "a tile a block": ((4, 4), 0),
    "tiles in turn": ((2, 2), 5),
    "fewer tiles than blocks": ((2, 8), 4),
}


@pytest.mark.parametrize("grid", GRIDS)
@NEEDS_COMPILER[1]
@pytest.mark.compiler
def test_every_block_finds_what_all_have_stored(grid, tmp_path, nvrtc_folder):
    """In three orders of blocks, twice each, and in launches in a row: none sets count and sense back for the next one."""
    case = Stayed(*GRIDS[grid])
    source = case.source()
    assert len(calls(lower(case.plan), "meet_grid")) == 1
    assert fault(case, in_a_row(source), tmp_path) == "", source.text
    if nvrtc_is_there():
        assert gpu.compiler_says(source, nvrtc_folder, gpu.SHEETS) == ""


@NEEDS_COMPILER[1]
@pytest.mark.compiler
def test_without_its_barrier_a_block_reads_what_others_have_not_stored(tmp_path):
    case = Stayed()
    source = case.source(GPU.without(place_grid_barriers))
    assert [x.stays for x in source.launches] == [False]
    said = fault(case, source, tmp_path)
    assert "another block of this launch" in said


# What is wrong with a barrier in the text, and what the emulator says then.
WRONG = {
    "__threadfence();\n        if (atomicInc": ("if (atomicInc", "another block of this launch"),
    "    meet_grid(": ("    if (blockIdx.x != 1) meet_grid(", "another block of this launch"),
    "    meet_grid(&": (
        "    if (blockIdx.x == 1) return;\n    meet_grid(&",
        "no block goes on: thread (0, 0, 0)",
    ),
    "last = gridDim.x": ("last = 1 + gridDim.x", "no block goes on: thread (0, 0, 0)"),
    "atomicInc((unsigned *)n_arrived, last)": (
        "atomicAdd((unsigned *)n_arrived, 1u)",
        "no block goes on: thread (0, 0, 0)",
    ),
}


@pytest.mark.parametrize("right", WRONG)
@NEEDS_COMPILER[1]
@pytest.mark.compiler
def test_a_wrong_barrier_is_found(right, tmp_path):
    """No fence, a block that leaves the barrier out, or ends before it, one too many to wait for, a count that is left behind."""
    wrong, said = WRONG[right]
    case = Stayed()
    source = in_a_row(case.source())
    assert right in source.text
    found = fault(case, replace(source, text=source.text.replace(right, wrong)), tmp_path)
    assert said in found


@NEEDS_COMPILER[1]
@pytest.mark.compiler
def test_a_grid_that_does_not_fit_stands_still(tmp_path):
    """A multiprocessor has shared memory for one such block."""
    n = gpu.target().cores
    case = Stayed((2, 8), n + 1)
    source = case.source()
    first, staying = source.launches
    assert staying.grid == (n + 1, 1, 1)
    source = replace(source, launches=(first, replace(staying, shared_bytes=120 << 10)))
    said = fault(case, source, tmp_path)
    assert f"1 of {n + 1} cannot begin, since {n} are resident at once" in said


def test_arrays_behind_a_barrier_are_read_as_others_left_them():
    """No pointer to them promises that this kernel alone has it, or reads only; what no task writes is const."""
    _, staying = lower(Stayed().plan).functions
    qualified = {p.name: (p.type, bool(p.restrict)) for p in staying.parameters}
    assert qualified["a"] == ("const float *", True)
    assert {qualified[name] for name in ("s", "out")} == {("float *", False)}
    assert qualified["workspace"] == ("char *", False)


def test_a_barrier_is_between_dependent_nests_alone():
    case = Stayed()
    assert show_launch(case.launch, case.plan).count("barrier of the grid") == 1
    kinds = [type(n) for n in case.launch.nodes]
    assert kinds == [loop_ir.Loop, loop_ir.GridBarrier, loop_ir.Loop]
    apart = place_grid_barriers(replace(case.launch, nodes=case.launch.nodes[:1]), case.plan)
    assert not apart.stays


def inside(launch):
    first, *rest = launch.nodes
    return (replace(first, children=(*first.children, loop_ir.GridBarrier())), *rest)


REFUSED = {
    "a barrier of the grid where blocks have parted": inside,
    "two barriers in a row": lambda x: (x.nodes[0], loop_ir.GridBarrier(), *x.nodes[1:]),
    "in bands": lambda x: (replace(x.nodes[0], band=2), *x.nodes[1:]),
    "nests of one grid have": lambda x: (replace(x.nodes[0], step=8), *x.nodes[1:]),
    "run the same body": lambda x: (*x.nodes[0].children, *x.nodes[1:]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_verifier_refuses(what):
    case = Stayed()
    verify(case.launch, case.plan)
    with pytest.raises(IllFormedError, match=what):
        verify(replace(case.launch, nodes=REFUSED[what](case.launch)), case.plan)


def test_a_team_has_no_barrier_of_a_grid():
    case = Stayed()
    launch = replace(case.launch, runs=loop_ir.Runs.TEAM)
    with pytest.raises(IllFormedError, match="in a launch without one"):
        verify(launch, case.plan)


def test_hosts_launch_it_cooperatively():
    case = Stayed()
    text = launched_text(case.source(), case.problem)
    for start in ("cudaLaunchKernel(launch_0, ", "cudaLaunchCooperativeKernel(launch_1, "):
        assert text.count(start) == 1
