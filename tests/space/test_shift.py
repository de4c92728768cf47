"""Loop shifting: tasks that run one iteration late, beside those whose results they wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernelscape.codegen.plan.candidates import plan_of
from kernelscape.kernels.frontend.recorder import record_sequence
from kernelscape.kernels.library import load
from kernelscape.kernels.tasks.pipeline import normalise
from kernelscape.space import build
from kernelscape.space import choices as ch
from kernelscape.space.build import build_space
from kernelscape.space.candidate import Candidate
from kernelscape.space.engine import cpsat
from kernelscape.space.engine.builder import ModelBuilder
from kernelscape.space.targets.cpu import CPU_KIND
from kernelscape.space.targets.kind import CPU
from kernelscape.testing import checking
from kernelscape.testing.legality import illegal
from kernelscape.testing.violations import violations

SEQUENCES = ("atax", "gemver", "sgemvt")


def problem_of(name, m, n):
    entry = load(name)
    args = entry.make_arguments({"m": m, "n": n}, np.dtype(np.float32), np.random.default_rng(0))
    return normalise(record_sequence(entry.sequence, args, name))


def late_root(name, m=5, n=7, cores=2):
    """Returns the rest of a space once its one shift is decided to be late."""
    space = build_space(problem_of(name, m, n), checking.target(cores, 16))
    ((_, var),) = space.variables.shift.items()
    root = space.root().decide(var, 1 << ch.LATE)
    assert isinstance(root, Candidate), root
    return root


def drawn(root, tries, seed=0):
    rng = np.random.default_rng(seed)
    ends = [root.random_completion(rng) for _ in range(tries)]
    return [c for c in ends if isinstance(c, Candidate)]


def test_what_may_be_late():
    """In BiCGK nothing waits; a product has three loops; of GEMVER only the last task may wait."""
    for name, expected in (("bicgk", []), ("gemver", [(1, 2)]), ("atax", [(0, 1)])):
        space = build_space(problem_of(name, 5, 7), checking.target(2, 16))
        assert [(s.producer, s.consumer) for s in space.variables.shift] == expected
    assert not build_space(problem_of("gemver", 5, 7), checking.target(1, 16)).variables.shift


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("cores", [2, 3])
def test_late_candidates_are_legal(name, cores):
    found = drawn(late_root(name, cores=cores), 150)
    assert len(found) >= 140
    for candidate in found:
        assert violations(candidate.space.model, candidate.assignment()) == []
        assert illegal(candidate, cores) == ""


def test_tiles_may_go_to_threads_in_turn():
    """Not where a team keeps sums in blocks: there the loop is inside the one that is summed over."""
    space = build_space(problem_of("sgemv", 40, 50), checking.target(2, 16))
    rows, columns = [
        next(d for d in space.variables.schedule if d.loop.name == name) for name in ("i", "j")
    ]
    cyclic = space.root().decide(space.variables.schedule[rows], 1 << ch.CYCLIC)
    assert isinstance(cyclic, Candidate)
    assert space.model.order(columns.order_id, rows.order_id) not in cyclic.open_choices()
    for candidate in drawn(cyclic, 40):
        assert illegal(candidate) == ""
        loops = (p for t in plan_of(candidate).tasks for p in t.loops if p.loop.name == "i")
        assert any(p.is_parallel and p.schedule == "CYCLIC" for p in loops)


def test_filters_lose_no_late_candidate(monkeypatch):
    small = replace(CPU_KIND, mid_sizes=(1, 2), inner_sizes=(1, 2), most_whole=1)
    monkeypatch.setitem(build.KINDS, CPU, small)
    root = late_root("sgemvt", 3, 4)
    keys, open_ones = set(), [root]
    while open_ones:
        candidate = open_ones.pop()
        if isinstance(candidate, Candidate) and candidate.is_complete:
            keys.add(candidate.key)
        elif isinstance(candidate, Candidate):
            open_ones += [c for _, c in candidate.expand(int(candidate.open_choices()[0]))]
    assert cpsat.count(root.space.model, root.domains, 100_000) == (len(keys), True)
    assert len(keys) > 30


def without(declare, reason):
    def only_others(self, why, *rest, **more):
        if not why.startswith(reason):
            declare(self, why, *rest, **more)

    return only_others


@pytest.mark.parametrize(
    "reason",
    [
        "shifted in one loop",
        "shifted in every tile",
        "shifted tiles agree",
        "shifted rows of",
        "merged schedules",
    ],
)
def test_the_judge_sees_what_the_constraints_are_for(monkeypatch, reason):
    for method in ("clause", "table3"):
        monkeypatch.setattr(ModelBuilder, method, without(getattr(ModelBuilder, method), reason))
    found = [c for name in SEQUENCES for c in drawn(late_root(name), 150)]
    assert any(illegal(c) for c in found)
