"""Bounds of sequences on trees with open layouts: the sum over components, each at its best over layouts and directories."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.explorer.bound_validity import Claims
from kernelscape.explorer.division import least_ns
from kernelscape.explorer.workload import Workload, make_workload
from kernelscape.kernels.tasks.non_affine import non_affine_tasks
from kernelscape.runtime.fake.device import FakeDevice
from kernelscape.search import events as ev
from kernelscape.search.bound.bounder import Bounder
from kernelscape.search.starts.complete import sketched_candidates
from kernelscape.space import choices as ch
from kernelscape.space.backbone import OUTER, objects
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.component_space import Alike, component_spaces
from kernelscape.space.components import coupling_of
from kernelscape.space.families.listgen import GENERATE
from kernelscape.space.targets.target import CacheLevel
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.machines import root_of, round_target

SLACK = 1 + 1e-9
N_ACTIVE, N_SHORT, N_LONG = 1 << 12, 1000, 1 << 14


def workload() -> Workload:
    """Two loops over a tree's cells, one that computes, and one that writes: components limited by different resources."""
    ks.init()
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.i, N_ACTIVE).dense(ks.i, 4).place(x, y)
    short, long = ks.field(ks.f32, shape=N_SHORT), ks.field(ks.f32, shape=N_LONG)

    @ks.kernel
    def activate():
        for i in range(4):
            x[100 * i] = 1.0

    @ks.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    @ks.kernel
    def compute():
        for i in short:
            short[i] = ((short[i] * 2.0 + 1.0) * short[i] + 3.0) * short[i] + 5.0

    @ks.kernel
    def write():
        for i in long:
            long[i] = 1.0

    def sequence() -> None:
        activate()
        double()
        compute()
        write()

    return make_workload(sequence, (), sequence="m:sequence", name="sequence")


def narrow(patch: pytest.MonkeyPatch) -> None:
    """At most two tasks share a launch, so a short sequence has several components."""
    patch.setattr(objects, "LAUNCH_TASKS", 2)
    patch.setattr(objects, "LAUNCH_OBJECTS", 0)


@pytest.fixture(scope="module")
def root() -> Candidate:
    sizes = (("L1", 64, 1000.0), ("L2", 1 << 10, 400.0))
    levels = tuple(
        CacheLevel(name=name, capacity_bytes=n, read_bytes_per_ns=rate) for name, n, rate in sizes
    )
    with pytest.MonkeyPatch.context() as patch:
        narrow(patch)
        target = round_target(levels=levels, call_ns=1.0, f32_flops_per_ns=4.0, loads_per_ns=2.0)
        found = root_of(build_space(workload().problem, target))
    space = found.space
    for d, var in space.variables.kind.items():
        if d.level == OUTER and space.problem.tasks[d.task].name in ("compute0", "write0"):
            decided = found.decide(var, 1 << ch.PARALLEL)
            assert isinstance(decided, Candidate)
            found = decided
    return found


@pytest.fixture(scope="module")
def parts(root: Candidate) -> tuple[Alike, ...]:
    return component_spaces(root, sketched_candidates(root.space)[0][1])


def sum_ns(parts: tuple[Alike, ...], candidate: Candidate) -> float:
    return sum(least_ns(Bounder(same.space), same.places, candidate) for same in parts)


def layouts(root: Candidate) -> list[int]:
    return [v for v in coupling_of(root.space) if root.is_open(v)]


def test_the_sum_over_components_is_a_bound_under_all_layouts(
    root: Candidate, parts: tuple[Alike, ...]
) -> None:
    """The kind: a bound of the present layout alone, or none at all, since layouts are still open."""
    whole, rng = Bounder(root.space), np.random.default_rng(0)
    kinds = {root.space.choices[v].kind for v in layouts(root)}
    assert {"leaf_layout", "directory"} <= kinds
    least = sum_ns(parts, root)
    assert least > 1.05 * whole.ns(root)  # one waits for its threads, another one for memory
    seen = set()
    for _ in range(24):
        made = random_candidate(root, rng)
        assert isinstance(made, Candidate)
        seen.add(tuple(made.value(v) for v in layouts(root)))
        assert least <= sum_ns(parts, made) * SLACK
        assert least <= whole.ns(made) * SLACK
    assert len(seen) > 4


def test_the_sum_never_falls_where_a_layout_is_decided(
    root: Candidate, parts: tuple[Alike, ...]
) -> None:
    least = sum_ns(parts, root)
    for v in layouts(root):
        for value in root.values(v):
            decided = root.decide(v, 1 << value)
            assert isinstance(decided, Candidate)
            assert sum_ns(parts, decided) * SLACK >= least


def test_a_component_looks_at_no_table_that_may_be_a_directory(
    root: Candidate, parts: tuple[Alike, ...]
) -> None:
    """The kind: a component whose space has no choice of directories, and so counts the words of a table that HASH never reads."""
    space, domains = root.space, root.domains.copy()
    domains[list(space.variables.of_places["listgen"].values())] = 1 << GENERATE
    hashed = [v for v in layouts(root) if space.choices[v].kind == "directory"]
    for v in hashed:
        domains[v] = 1 << space.choices[v].values.index("HASH")
    for same in parts:
        ports = dict(Bounder(same.space).bound(domains).terms).get("ports", 0.0)
        assert ports < 4 * N_ACTIVE / 64 / 2.0


@pytest.mark.parametrize("is_divided", [False, True])
def test_non_affine_tasks_keep_the_sum_over_roots_of_components(is_divided: bool) -> None:
    """The kind: a sum over components that is replaced by the bound of the whole root, where bodies may be written otherwise."""
    device = FakeDevice()
    tasks = non_affine_tasks(workload().problem)
    assert tasks
    claims = Claims(device, device.worker(), round_target(), tasks)
    claims.is_divided = is_divided
    claims.finish(ev.Finished("exhausted", None, (), 5.0, None, ev.Tally(), 0.0))
    assert claims.bound_ns == (5.0 if is_divided else claims.whole_ns)
