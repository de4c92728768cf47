"""The loop IR: its text, what the verifier refuses, and that no hazard is left between two barriers."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from kernelscape.codegen.loops import ir as loop_ir
from kernelscape.codegen.loops.text import show_launch
from kernelscape.codegen.loops.verify import IllFormedError, verify
from kernelscape.codegen.passes.barriers import (
    of_team,
    place_team_barriers,
)
from kernelscape.codegen.passes.nests import nests
from kernelscape.codegen.passes.pipeline import PASSES, launches_of, run
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.library import names
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.testing import checking
from kernelscape.testing.cases import library_cases

from .packed_cases import decided, recorded
from .test_ahead import BESIDE_TEAM
from .test_sources import PROGRAMS, candidate_of

SHOWN = ("bicgk_greedy", "gemver_late", "matmul_strided_ahead")
N_CASES = len(names())


def shown(candidate):
    plan = plan_of(candidate)
    return "\n".join(show_launch(x, plan) for x in launches_of(plan, candidate.space.target))


@pytest.mark.parametrize("program", SHOWN)
def test_golden_loops(program, golden):
    golden(shown(candidate_of(*PROGRAMS[program])), f"{program}.loops.txt")


def broken(launch, change):
    """The launch with a change of each node; a change gives a list in its place."""

    def changed(nodes):
        inside = (
            replace(n, children=changed(n.children)) if hasattr(n, "children") else n for n in nodes
        )
        return tuple(x for n in inside for x in change(n))

    return replace(launch, nodes=changed(launch.nodes))


def is_shared(n):
    return isinstance(n, loop_ir.Loop) and n.schedule is loop_ir.Schedule.BLOCKED


BROKEN = {
    "a barrier where threads have parted": lambda n: (
        [replace(n, children=(loop_ir.Barrier(), *n.children))] if is_shared(n) else [n]
    ),
    "two barriers in a row": lambda n: [n, n] if isinstance(n, loop_ir.Barrier) else [n],
    r"bodies of tasks \[0, 0\], not of": lambda n: (
        [n, n] if isinstance(n, loop_ir.TileBody) else [n]
    ),
    "the body of task 0 is inside": lambda n: n.children if is_shared(n) else [n],
    "is shared out to few threads": lambda n: [loop_ir.Alone(1, (n,))] if is_shared(n) else [n],
    "sums of task 0 in memory": lambda n: [] if isinstance(n, loop_ir.FillSums) else [n],
    "sums up in the order": lambda n: [n, n] if isinstance(n, loop_ir.FillSums) else [n],
    "the two blocks of": lambda n: [] if isinstance(n, loop_ir.PackRest) else [n],
    "is shared out inside of a tile": lambda n: (
        [replace(n, schedule=loop_ir.Schedule.CYCLIC, strips=None)]
        if isinstance(n, loop_ir.Loop) and n.level == 1
        else [n]
    ),
    "nobody is alone": lambda n: (
        [loop_ir.Alone(0, (n,))] if isinstance(n, loop_ir.TileBody) else [n]
    ),
    "nothing is in Loop": lambda n: [replace(n, children=())] if is_shared(n) else [n],
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_verifier_refuses(what):
    recording, _ = recorded("matmul_strided", np.float32, m=61, n=67, k=50)
    candidate = decided(recording, BESIDE_TEAM, 2)
    plan = plan_of(candidate)
    (launch,) = launches_of(plan, candidate.space.target)
    verify(launch, plan)
    with pytest.raises(IllFormedError, match=what):
        verify(broken(launch, BROKEN[what]), plan)


def test_every_pass_is_verified_in_tests():
    candidate = candidate_of(*PROGRAMS["bicgk_greedy"])
    plan = plan_of(candidate)
    start = nests(plan, plan.launches[0])

    def loses(launch: loop_ir.Launch, _plan) -> loop_ir.Launch:
        return replace(launch, nodes=())

    with pytest.raises(IllFormedError, match="bodies"):
        run((loses,), start, plan)


def candidates_of(root, seed, n):
    rng = np.random.default_rng(seed)
    made = (checking.random_candidate(root, rng) for _ in range(n))
    return [x for x in made if isinstance(x, Candidate)]


def trace(threads, nodes):
    """Yields the touched places, node by node in the order of execution, each loop run twice; None is a barrier."""
    for n in nodes:
        if isinstance(n, loop_ir.Barrier):
            yield None
        elif isinstance(n, loop_ir.Loop) and threads.enter(n):
            for _ in range(1 if n.is_parallel else 2):
                yield from trace(threads, n.children)
        else:
            yield threads.touches(n)


def hazards(threads, nodes):
    """Pairs of touches with no barrier between them that need one."""
    since, found = [], []
    for touches in trace(threads, nodes):
        if touches is None:
            since = []
            continue
        found += [(a, b) for a in since for b in touches if a.conflicts(b)]
        since += touches
    return found


def check_barriers(candidate, kind, place, threads_of):
    """The launches of a candidate with barriers have no hazard; how many barriers they need."""
    plan, n = plan_of(candidate), 0
    before = PASSES[kind].loops[: PASSES[kind].loops.index(place)]
    for roots in plan.launches:
        bare = run(before, nests(plan, roots), plan)
        launch = place(bare, plan)
        threads = threads_of(launch, plan)
        if launch.is_parallel:
            assert not hazards(threads, launch.nodes), show_launch(launch, plan)
            n += bool(hazards(threads, bare.nodes))
    return n


def test_no_hazard_is_left_between_barriers_of_a_team():
    n = 0
    for k, case in enumerate(islice(library_cases(4), N_CASES)):
        root = build_space(case.problem, checking.target(3, 32)).root()
        for candidate in candidates_of(root, k, 4):
            n += check_barriers(candidate, "cpu", place_team_barriers, of_team)
    assert n > 5  # which would have some without barriers
