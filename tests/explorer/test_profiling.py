"""Profiles of workloads: which are taken, by how long they may take."""

from __future__ import annotations

import kernelscape as ks
from kernelscape.explorer.profiling import combined, take_profile
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.tasks.execution_counts import counting
from kernelscape.kernels.tasks.profile import Profile, TaskProfile
from kernelscape.runtime.reference import Reference


def test_a_large_tree_with_few_cells_is_counted() -> None:
    """Kind: loops over cells without a bound, since all cells of the tree would take longer than a profile may."""
    ks.init(arch=ks.cpu)
    x = ks.field(ks.f32)
    ks.root.pointer(ks.i, 1 << 18).dense(ks.i, 1 << 8).place(x)

    @ks.kernel
    def fill() -> None:
        for i in range(3):
            x[1000 * i] = 1.0

    @ks.kernel
    def double() -> None:
        for i in x:
            x[i] = 2.0 * x[i] + 1.0

    def sequence() -> None:
        fill()
        double()

    workload = make_workload(sequence, (), sequence="m:sequence", name="sequence")
    ks.reset()
    made = counting(workload.problem)
    assert made is not None and Reference().expected_ns(made.recording) > 20e9
    profile = take_profile(workload, None, lambda: False)
    assert profile is not None
    counted = [profile.of(t) for t in workload.problem.tasks if t.name.startswith("double")]
    assert any(x is not None and 3 * (1 << 8) in x.entered for x in counted)


def test_all_calls_count_up_to_the_one_by_which_counts_hold() -> None:
    """Kind: a call between the first and the one that holds, which did less than both."""

    def run(count: float, *, holds: bool) -> Profile:
        return Profile((TaskProfile("t", (count,), (), holds),))

    found = combined([run(40.0, holds=False), run(1.0, holds=False), run(40.0, holds=True)])
    assert found == run(1.0, holds=True)
    assert combined([run(3.0, holds=True)]) == run(3.0, holds=True)
