"""Bodies in the bound: sweeps of a team and its starts, no more of them than the plan has, and no scalar code."""

from __future__ import annotations

from typing import Any

import kernelscape as ks
import numpy as np
import pytest
from kernelscape.codegen.passes.pipeline import launches_of
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.explorer.workload import make_workload
from kernelscape.kernels.frontend.intrinsics import loop_config
from kernelscape.kernels.frontend.kernel import kernel, types
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.search.bound.bounder import Bounder
from kernelscape.space import choices as ch
from kernelscape.space.backbone import INNER
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate, Space
from kernelscape.space.families.listgen import GENERATE, IF_CHANGED
from kernelscape.testing.checking import random_candidate
from kernelscape.testing.machines import root_of, round_target

nd = types.ndarray()
N = 128


def space_of(fn: Any, *arrays: Any) -> Space:
    return build_space(normalise(record_sequence(fn, arrays)), round_target())


def term(space: Space, domains: Any, name: str) -> float:
    return dict(Bounder(space).bound(domains).terms).get(name, 0.0)


@kernel
def dots(at: nd, x: nd, y: nd) -> None:
    for i in range(y.shape[0]):
        begin = at[i]
        t = 0.0
        for k in range(64):
            t += x[begin + k] * x[k]
        y[i] = t


def test_a_body_that_no_choice_puts_into_vectors_may_be_put_there_by_a_compiler() -> None:
    """Kind: bodies with the bound of scalar code. Those without decided vectors are functions with flags of their own."""
    at, x, y = np.zeros(N, np.int32), np.zeros(N + 64, np.float32), np.zeros(N, np.float32)
    space = space_of(dots, at, x, y)
    v, domains = space.variables, root_of(space).domains.copy()
    free = term(space, domains, "operations")
    domains[v.kind[space.backbone.dim(0, "i", INNER)]] = 1 << ch.ABSENT
    domains[next(iter(v.ranges.values()))] = 1 << ch.IN_TURN
    assert 0 < free == term(space, domains, "operations")


@pytest.mark.parametrize(("nodes", "n_cells"), [((1 << 12,), 1 << 12), ((64, 64), 64)])
def test_a_list_that_is_made_again_looks_at_all_words_of_its_table(
    nodes: tuple[int, ...], n_cells: int
) -> None:
    """Kind: lists for nothing. How many lists there are below a list depends on values."""
    ks.init()
    x, at = ks.field(ks.f32), ks.root
    for n in nodes:
        at = at.pointer(ks.i, n)
    at.dense(ks.i, 4).place(x)

    @kernel
    def activate() -> None:
        for i in range(4):
            x[100 * i] = 1.0

    @kernel
    def double() -> None:
        for i in x:
            x[i] *= 2.0

    def sequence() -> None:
        activate()
        double()

    problem = make_workload(sequence, (), sequence="m:sequence", name="sequence").problem
    space = build_space(problem, round_target(loads_per_ns=2.0))
    root, ways = root_of(space).domains, space.variables.of_places["listgen"].values()
    found = {}
    for way in (GENERATE, IF_CHANGED):
        domains = root.copy()
        domains[list(ways)] = 1 << way
        found[way] = term(space, domains, "ports")
    assert found[GENERATE] - found[IF_CHANGED] == pytest.approx(4 * n_cells / 64 / 2.0)


@kernel
def sweep(a: nd) -> None:
    loop_config(serialize=True)
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            a[i, j] = 0.25 * (a[i - 1, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j])


def test_a_sweep_by_a_team_starts_it_and_synchronises_after_each_diagonal() -> None:
    """Kind: teams that are no parallel loop, and count as one thread. The judge counts diagonals of the plan."""
    space = space_of(sweep, np.zeros((N, N), np.float32))
    target, bounder = space.target, Bounder(space)
    (waves,) = space.variables.waves.values()
    serial = root_of(space).decide(waves, 1 << ch.IN_ORDER)
    assert term(space, serial.domains, "launches") == target.call_ns
    for way in (ch.BY_ROWS, ch.BY_DIAGONALS):
        root = root_of(space).decide(waves, 1 << way)
        least = term(space, root.domains, "launches")
        assert least > target.call_ns + target.launch_ns
        for seed in range(3):
            made = root.random_completion(np.random.default_rng(seed))
            assert isinstance(made, Candidate)
            (wave,) = (t.wave for t in plan_of(made).tasks)
            n = wave.n_rows + wave.n_columns - 2
            wanted = target.call_ns + target.launch_ns + n * target.barrier_ns
            assert least <= term(space, made.domains, "launches") == pytest.approx(wanted)
            assert bounder.ns(made) >= n * target.barrier_ns


def test_each_launch_of_a_team_counts_those_that_convert_leaves_too() -> None:
    """Kind: launches for nothing, where leaves have another order of cells alone. The judge is the plan's loop IR."""
    ks.init()
    x, y = ks.field(ks.f32), ks.field(ks.f32)
    ks.root.pointer(ks.ij, 4).dense(ks.ij, 4).place(x, y)

    @kernel
    def activate() -> None:
        for i, j in ks.ndrange(8, 8):
            x[i, j] = 1.0

    @kernel
    def smooth() -> None:
        for i, j in x:
            y[i, j] = x[i, j] + x[i, j + 1]

    def sequence() -> None:
        activate()
        smooth()

    problem = make_workload(sequence, (), sequence="m:sequence", name="sequence").problem
    one_a_launch = {"cores": 2, "launch_ns": 1.0, "barrier_ns": 0.0, "call_ns": 0.0}
    space = build_space(problem, round_target(**one_a_launch))
    orders = set(space.variables.of_trees["cell_order"].values())
    layouts = set(space.variables.of_trees["leaf_layout"].values())
    seen = set()
    for seed in range(24):
        made = random_candidate(root_of(space), np.random.default_rng(seed))
        assert isinstance(made, Candidate)
        started = sum(x.is_parallel for x in launches_of(plan_of(made), space.target))
        assert term(space, made.domains, "launches") == started
        seen.add(tuple(any(made.value(v) for v in x) for x in (orders, layouts)))
    assert len(seen) == 4
